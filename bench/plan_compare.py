#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Policies of `ebb plan` beside each other at several budgets, as a table.

    bench/plan_compare.py --ebb build/release/ebb [--machine FILE] [--policies budget,best] [--memory 80,50,25]
                          [--options "--host-memory 0"] [--effort N] [-o bench/results/FILE.csv] PROGRAM...

A PROGRAM is what `ebb plan` takes: a file, or a network with its options in one argument ("resnet50 --batch 256"), which
is planned for the backend `dry`. A budget is a per cent of what the policy liveness needs. A row is a policy at a budget:
commit, processor, program, per cent, policy, the predicted time over the time without a budget, the bound on it in the
same unit, the steps computed again, the bytes copied out, and the seconds that planning took. A budget without a plan has
a row without figures.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import time

from provenance import written

COLUMNS = ["commit", "processor", "program", "memory_percent", "policy", "time_ratio", "bound_ratio", "again",
           "out_bytes", "plan_s"]


def plan(ebb, program, options):
    words = shlex.split(program)
    if not os.path.exists(words[0]):
        words += ["--backend", "dry"]
    start = time.monotonic()
    done = subprocess.run([ebb, "plan", *words, *options, "--json"], capture_output=True, text=True, check=False)
    result = json.loads(done.stdout or "{}")
    result["plan_s"] = time.monotonic() - start
    if done.returncode != 0 and "least_budget_bytes" not in result:
        sys.exit(f"{program}: {done.stderr.strip()}")
    return result


def rows_of(args, program):
    shared = shlex.split(args.options) + (["--machine", args.machine] if args.machine else [])
    free = plan(args.ebb, program, [*shared, "--policy", "liveness"])
    for percent in args.memory.split(","):
        budget = int(free["liveness_bytes"] * float(percent) / 100)
        for policy in args.policies.split(","):
            options = [*shared, "--policy", policy, "--memory", str(budget)]
            got = plan(args.ebb, program, options + (["--effort", str(args.effort)] if policy == "best" else []))
            times = [got.get(name) for name in ("step_time_predicted_s", "bound_step_time_s")]
            yield [os.path.basename(program), percent, policy,
                   *("" if t is None else f"{t / free['step_time_predicted_s']:.4f}" for t in times),
                   got.get("recomputed_steps", ""), got.get("moved_out_bytes", ""), f"{got['plan_s']:.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--machine")
    parser.add_argument("--policies", default="budget,best")
    parser.add_argument("--memory", default="80,75,70,50,25,15")
    parser.add_argument("--options", default="")
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("-o", dest="out")
    args = parser.parse_args()
    rows = (row for program in args.programs for row in rows_of(args, program))
    for row in written(args.out, COLUMNS, rows):
        if args.out:
            print(*row, sep="\t")


if __name__ == "__main__":
    main()
