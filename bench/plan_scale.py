#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a plan takes as programs grow: residual networks of 539 to 98,639 steps, with each effort.

    bench/plan_scale.py --machine FILE [--ebb build/release/ebb] [--efforts 0,1,2,4] [-o bench/results/FILE.csv]

The budget is half of what the policy liveness needs. "any": copies to the host are allowed; "none": nothing can be
copied. plan_s is the time of planning alone, cpu_s the processor time of the whole command. time_ratio is the predicted
time over the time without a budget, bound_ratio the bound on it.
"""
import argparse

from ebb_plan import plan, time_over
from provenance import written

NETS = [("resnet50", 64), ("resnet:3,8,36,3", 16), ("resnet:12,30,100,12", 8), ("resnet:30,70,250,30", 4),
        ("resnet:50,120,420,50", 4), ("resnet:60,150,500,60", 4), ("resnet:250,650,2136,250", 2)]
COLUMNS = ["commit", "processor", "network", "batch", "steps", "copies", "effort", "budget_bytes", "plan_s", "cpu_s",
           "time_ratio", "bound_ratio"]


def rows_of(args, net, batch):
    words = [net, "--batch", str(batch), "--backend", "dry", "--machine", args.machine]
    free = plan(args.ebb, *words, "--policy", "liveness")
    for copies, tiers in (("any", []), ("none", ["--host-memory", "0"])):
        for effort in args.efforts.split(","):
            budget = free["liveness_bytes"] // 2
            got = plan(args.ebb, *words, *tiers, "--memory", str(budget), "--effort", effort)
            plan_s = f"{got['plan_made_s']:.4f}" if "plan_made_s" in got else "none"
            yield [net, batch, free["steps"], copies, effort, budget, plan_s, f"{got['plan_cpu_s']:.2f}",
                   *time_over(got, free["step_time_predicted_s"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--efforts", default="0,1,2,4")
    parser.add_argument("-o", dest="out")
    args = parser.parse_args()
    rows = (row for net, batch in NETS for row in rows_of(args, net, batch))
    for row in written(args.out, COLUMNS, rows):
        if args.out:
            print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
