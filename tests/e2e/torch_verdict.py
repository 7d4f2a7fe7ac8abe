# SPDX-License-Identifier: Apache-2.0
"""One line for each thing that a test checks. status: whether any failed, the exit status of the test. suffix: of each
name."""
status, suffix = 0, ""


def verdict(name, good, *what):
    """what: printed if it is not good."""
    global status
    print(f"{'ok' if good else 'not ok'} - {name}{suffix}", *(() if good else what), flush=True)
    status |= not good
