# SPDX-License-Identifier: Apache-2.0
"""One line for each thing that a test checks. status: whether any failed, the exit status of the test. suffix: of each
name."""
import threading

status, suffix = 0, ""


def verdict(name, good, *what):
    """what: printed if it is not good."""
    global status
    print(f"{'ok' if good else 'not ok'} - {name}{suffix}", *(() if good else what), flush=True)
    status |= not good


def said_elsewhere(*acts):
    """What each of these says when another thread does it: the text of its RuntimeError."""
    said = []

    def do():
        for act in acts:
            try:
                act()
                said.append("it was done")
            except RuntimeError as error:
                said.append(str(error))
    thread = threading.Thread(target=do)
    thread.start()
    thread.join()
    return said
