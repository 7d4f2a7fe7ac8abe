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
import os
import shlex

from ebb_plan import plan, time_over
from provenance import written

COLUMNS = ["commit", "processor", "program", "memory_percent", "policy", "time_ratio", "bound_ratio", "again",
           "out_bytes", "plan_s"]


def rows_of(args, program):
    words = shlex.split(program) + shlex.split(args.options) + (["--machine", args.machine] if args.machine else [])
    if not os.path.exists(words[0]):
        words += ["--backend", "dry"]
    free = plan(args.ebb, *words, "--policy", "liveness")
    for percent in args.memory.split(","):
        budget = int(free["liveness_bytes"] * float(percent) / 100)
        for policy in args.policies.split(","):
            effort = ["--effort", str(args.effort)] if policy == "best" else []
            got = plan(args.ebb, *words, "--policy", policy, "--memory", str(budget), *effort)
            yield [os.path.basename(program), percent, policy,
                   *time_over(got, free["step_time_predicted_s"], missing=""),
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
