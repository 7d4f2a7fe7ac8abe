#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Policy `best` beside every other policy: is it ever slower, does it ever need more, is it faster with less memory?

    bench/race_rules.py [--ebb build/release/ebb] [--memory 95%..5%:5%] [--options "--machine FILE"] [-o FILE.csv] PROGRAM...

A PROGRAM is what `ebb compare` takes: a file, or a network with its options in one argument ("resnet50 --batch 256"),
which is planned for the backend `dry`. A row is a budget: the predicted time of best's plan, the fastest other policy and
its time, and what is wrong, if anything: "slower" than another policy by more than a millionth, "no plan" where another
has one, "slower than with less memory". The last line counts what is wrong; the exit status is 1 if anything is.
"""
import argparse
import csv
import os
import shlex
import subprocess
import sys
import tempfile

from provenance import written

COLUMNS = ["commit", "processor", "program", "budget_bytes", "best_s", "other", "other_s", "ratio", "bound_s", "wrong"]
ROUNDING = 1 + 1e-6


def compare(ebb, program, memory, options):
    """{budget: {policy: (time_s or None, bound_s)}}"""
    words = shlex.split(program)
    if not os.path.exists(words[0]):
        words += ["--backend", "dry"]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "rows.csv")
        done = subprocess.run([ebb, "compare", *words, "--memory", memory, *options, "-o", out], capture_output=True,
                              text=True, check=False)
        if not os.path.exists(out):
            sys.exit(f"{program}: {done.stderr.strip()}")
        budgets = {}
        with open(out, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                time_s = float(row["time_s"]) if row["time_s"] else None
                budgets.setdefault(int(row["budget_bytes"]), {})[row["policy"]] = time_s, row["bound_s"]
    return budgets


def rows_of(budgets):
    with_less_s = None
    for budget in sorted(budgets):
        best_s, bound_s = budgets[budget]["best"]
        others = [(time_s, name) for name, (time_s, _) in budgets[budget].items() if name != "best" and time_s]
        other_s, other = min(others, default=(None, ""))
        wrong = []
        if other_s and not best_s:
            wrong.append("no plan")
        if other_s and best_s and best_s > other_s * ROUNDING:
            wrong.append("slower")
        if with_less_s and best_s and best_s > with_less_s * ROUNDING:
            wrong.append("slower than with less memory")
        with_less_s = best_s or with_less_s
        ratio = f"{best_s / other_s:.5f}" if best_s and other_s else ""
        yield [budget, best_s or "", other, other_s or "", ratio, bound_s, ", ".join(wrong)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--memory", default="95%..5%:5%")
    parser.add_argument("--options", default="")
    parser.add_argument("-o", dest="out")
    args = parser.parse_args()
    n_rows = n_wrong = 0
    rows = ([os.path.basename(program), *row] for program in args.programs
            for row in rows_of(compare(args.ebb, program, args.memory, shlex.split(args.options))))
    for row in written(args.out, COLUMNS, rows):
        n_rows, n_wrong = n_rows + 1, n_wrong + bool(row[-1])
    print(f"{n_rows} budgets, {n_wrong} wrong", file=sys.stderr)
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
