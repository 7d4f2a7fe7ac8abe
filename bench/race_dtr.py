#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DTR's rule and ebb's plans on DTR's own logs, beside what the authors' simulator gives.

    bench/race_dtr.py --build build/release FOLDER [--ratios 0.7,0.5,0.4,0.3,0.2] [--effort 1] [--within SECONDS]
                      [--no-best] [-o OUT.csv]
    bench/race_dtr.py FOLDER --without-views OUT_FOLDER

FOLDER holds the logs of simrd/logs.zip of github uwsampl/dtr-prototype. A figure is the time with recomputation over
the time without; nothing is copied. A budget is a ratio of the simulator's own peak without a budget, constants included.

 - simulator: RuntimeV2EagerOptimized on the log, with the heuristics DTR and DTREqClass. Typed in: we ran it.
 - dtr, dtr-eq: the policies of ebb on the program that `ebb import` makes of the log, with the budget as a limit on the
   load, as the simulator has it (build the target bench_rule). Views are not in a program; their time is added to both
   sides of the quotient, as if each ran once.
   --without-views writes the logs with a COPY in the place of each view: the simulator gives the policies' figures on
   them.
 - best: `ebb plan --policy best`, whose peak as placed keeps within the budget, without views. --within: with more
   effort, as long as a plan takes no longer.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

from ebb_plan import plan_within, time_over
from provenance import written

# Beginning of the log's name: the network, the simulator's peak in bytes, and by ratio its overhead with DTR's exact h
# and with equivalence classes. OOM: out of memory; thrash: over ten times as long.
LOGS = {
    "resnet32-": ("ResNet-32", 10061179152,
        {0.7: (1.046, 1.046), 0.5: (1.107, 1.107), 0.4: (1.140, 1.140), 0.3: (1.178, 1.179),
         0.2: (1.371, 1.332), 0.15: (1.843, 1.432), 0.1: (2.223, "OOM")}),
    "unet-": ("UNet", 8415764640,
        {0.7: (1.085, 1.085), 0.5: (1.159, 1.159), 0.4: ("OOM", "OOM"), 0.3: ("OOM", "OOM"),
         0.2: ("OOM", "OOM"), 0.15: ("OOM", "OOM"), 0.1: ("OOM", "OOM")}),
    "tv_densenet121-": ("DenseNet-121", 11020749360,
        {0.7: (1.104, 1.104), 0.5: (1.176, 1.176), 0.4: (1.271, 1.293), 0.3: (1.446, 1.426),
         0.2: (1.679, 1.616), 0.15: ("not run", "OOM"), 0.1: ("OOM", "OOM")}),
    "inceptionv4-": ("Inception v4", 11245348984,
        {0.7: (1.050, 1.044), 0.5: (1.092, 1.092), 0.4: (1.131, 1.138), 0.3: (1.219, 1.244),
         0.2: ("thrash", "OOM"), 0.15: ("not run", "OOM"), 0.1: ("OOM", "OOM")}),
    "transformer-": ("Transformer", 9864405000,
        {0.7: (1.031, 1.031), 0.5: (1.058, 1.058), 0.4: (1.083, 1.091), 0.3: (1.123, 1.124),
         0.2: (1.352, 1.545), 0.15: (2.850, 4.549), 0.1: ("OOM", "OOM")}),
    "treelstm-": ("TreeLSTM", 170173608,
        {0.7: (1.034, 1.033), 0.5: (1.123, 1.127), 0.4: (1.173, 1.190), 0.3: (1.401, "thrash"),
         0.2: (1.530, "thrash"), 0.15: ("not run", "thrash"), 0.1: ("thrash", "thrash")}),
    "unroll_gan-": ("Unrolled GAN", 252677418,
        {0.7: (1.044, 1.044), 0.5: (1.067, 1.069), 0.4: (1.079, 1.080), 0.3: (1.206, 1.111),
         0.2: ("thrash", "thrash"), 0.15: ("not run", "thrash"), 0.1: ("OOM", "OOM")}),
    "lstm-": ("LSTM", 5595127736,
        {0.7: (1.032, 1.031), 0.5: (1.065, 1.071), 0.4: (1.143, 1.159), 0.3: (1.301, 1.365),
         0.2: (1.598, 1.550), 0.15: ("not run", "OOM"), 0.1: ("OOM", "OOM")}),
}
BEST = ["best", "best_bound", "best_peak_bytes", "best_effort", "best_s", "best_cpu_s"]
COLUMNS = ["commit", "processor", "network", "ratio", "budget_bytes", "simulator_dtr", "simulator_dtr_eq", "dtr", "dtr_eq",
           *BEST]


def items_of(path):
    """Each line of a log, and of a call the pairs of lines that describe its results: MEMORY and ALIAS."""
    with open(path, encoding="utf-8") as file:
        lines = map(json.loads, file)
        for item in lines:
            n_results = len(item["RESULT"]) if item["INSTRUCTION"] == "CALL" else 0
            yield item, [(next(lines), next(lines)) for _ in range(n_results)]


def is_view(result):
    return result[1]["ALIAS"] != "-1"


def without_views(path):
    """The lines of a log in which a name of the storage takes the place of each view."""
    for item, results in items_of(path):
        own = [result for result in results if not is_view(result)]
        if own:
            yield {**item, "RESULT": [memory["NAME"] for memory, _ in own]}
        elif not results:
            yield item
        for result in own:
            yield from result
        for _, alias in filter(is_view, results):
            yield {"INSTRUCTION": "COPY", "DST": alias["NAME"], "SRC": item["ARGS"][int(alias["ALIAS"])]}


def write_without_views(paths, folder):
    os.makedirs(folder, exist_ok=True)
    for path in paths:
        with open(os.path.join(folder, os.path.basename(path)), "w", encoding="utf-8") as out:
            for item in without_views(path):
                out.write(json.dumps(item) + "\n")


def views_ns(path):
    """The time of calls whose results are all views, which no program has."""
    return sum(int(item["TIME"]) for item, results in items_of(path) if results and all(map(is_view, results)))


def rule(args, path, policy, budgets):
    """Its time under each budget, or None."""
    done = subprocess.run([os.path.join(args.build, "bench_rule"), path, policy, *map(str, budgets)], capture_output=True,
                          text=True, check=True)
    times = [line.split(",")[2] for line in done.stdout.split()]
    return [None if t == "none" else int(t) for t in times]


def best(args, path, machine, budget, base_s):
    got = plan_within(args.within, args.effort, os.path.join(args.build, "ebb"), path, "--machine", machine, "--memory",
                      str(budget), "--host-memory", "0")
    return [*time_over(got, base_s), got.get("peak_planned_bytes", ""), got["effort"], f"{got['plan_s']:.1f}",
            f"{got['plan_cpu_s']:.1f}"]


def rows_of(args, path, machine):
    name, peak, told = next(LOGS[begin] for begin in LOGS if os.path.basename(path).startswith(begin))
    views = views_ns(path)
    ratios = [float(r) for r in args.ratios.split(",")]
    budgets = [int(peak * r) for r in ratios]
    base = rule(args, path, "dtr-eq", [1 << 50])[0]
    rules = {p: rule(args, path, p, budgets) for p in ("dtr", "dtr-eq")}
    for i, ratio in enumerate(ratios):
        own = ["none" if rules[p][i] is None else f"{(rules[p][i] + views) / (base + views):.4f}" for p in rules]
        row = [name, ratio, budgets[i], *told.get(ratio, ("not run", "not run")), *own]
        row += [""] * len(BEST) if args.no_best else best(args, path, machine, budgets[i], base / 1e9)
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--ratios", default="0.7,0.5,0.4,0.3,0.2")
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--within", type=float, metavar="SECONDS")
    parser.add_argument("--no-best", action="store_true")
    parser.add_argument("--without-views", metavar="OUT_FOLDER")
    parser.add_argument("-o", dest="out")
    args = parser.parse_args()
    paths = [path for begin in LOGS for path in glob.glob(os.path.join(args.folder, begin + "*.log"))]
    if not paths:
        sys.exit(f"{args.folder}: none of the logs is here")
    if args.without_views:
        write_without_views(paths, args.without_views)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json") as machine:
        json.dump({"format": "ebb-machine", "version": 2, "rates": {"overhead_ns": 0}}, machine)
        machine.flush()
        rows = (row for path in paths for row in rows_of(args, path, machine.name))
        for row in written(args.out, COLUMNS, rows):
            if args.out:
                print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
