# SPDX-License-Identifier: Apache-2.0
"""One call of `ebb plan` as benchmarks make it: its figures, and what planning took."""
import json
import resource
import subprocess
import sys
import time


def plan(ebb, *words):
    """The figures of `ebb plan WORDS --json`, with plan_s and plan_cpu_s, the seconds that passed and those of all
    processors. A budget that is too small is a result without a plan's figures; any other failure ends the program."""
    cpu_s = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    begin_s, begin_cpu_s = time.monotonic(), cpu_s()
    done = subprocess.run([ebb, "plan", *words, "--json"], capture_output=True, text=True, check=False)
    result = json.loads(done.stdout or "{}")
    if done.returncode != 0 and "least_budget_bytes" not in result:
        sys.exit(f"{words[0]}: {done.stderr.strip()}")
    return result | {"plan_s": time.monotonic() - begin_s, "plan_cpu_s": cpu_s() - begin_cpu_s}


MOST_TRIES = 4


def plan_within(seconds, effort, ebb, *words):
    """plan() with this effort; and, unless seconds is None, with more, as long as planning takes no more seconds. The last
    one that did not take more, with the effort that it had; the first one in any case."""
    found = None
    for _ in range(MOST_TRIES):
        tried = plan(ebb, *words, "--effort", str(effort)) | {"effort": effort}
        if found is not None and tried["plan_s"] > seconds:
            break
        found = tried
        more = 0 if seconds is None else int(effort * 0.9 * seconds / tried["plan_s"])
        if more <= effort:
            break
        effort = more
    return found


def time_over(result, base_s, missing="none"):
    """The predicted time and the bound on it over base_s; missing where there is no plan."""
    times = [result.get(name) for name in ("step_time_predicted_s", "bound_step_time_s")]
    return [missing if time_s is None else f"{time_s / base_s:.4f}" for time_s in times]
