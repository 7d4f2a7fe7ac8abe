#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All solvers of `ebb place` over a folder of instances, as a table.

    bench/place_compare.py --ebb build/release/ebb FOLDER [--rounds N] [--steps N] [-o bench/results/FILE.csv]

FOLDER holds what `ebb place` takes: CSV files, programs, plans, traces; README files and folders in it are left out. Each
instance goes through `ebb place --compare --json` once a round, so all solvers run before any runs again. A row is a
solver on an instance: commit, machine, instance, buffers, solver, peak, bound, ratio, whether the peak is proven to be
the least, rounds, and the median, least and most seconds. A solver that refuses an instance has a row without figures.
"""
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys

from provenance import commit, processor

COLUMNS = ["commit", "machine", "instance", "n", "solver", "peak_bytes", "bound_bytes", "ratio", "optimal", "rounds",
           "median_s", "min_s", "max_s"]


def instances(folder):
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    return [path for path in paths if os.path.isfile(path) and not os.path.basename(path).startswith((".", "README"))]


def place(ebb, path, steps):
    """Solver -> its object."""
    command = [ebb, "place", path, "--compare", "--json"] + (["--steps", str(steps)] if steps else [])
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {line["solver"]: line for line in map(json.loads, text.splitlines())}


def rows_of(args, path):
    rounds = [place(args.ebb, path, args.steps) for _ in range(args.rounds)]
    name = os.path.splitext(os.path.basename(path))[0]
    for solver, first in rounds[0].items():
        row = {"instance": name, "n": first["buffers"], "solver": solver}
        if "error" not in first:
            if any(r[solver]["peak_bytes"] != first["peak_bytes"] for r in rounds):
                sys.exit(f"{path}: {solver} gives another peak each time")
            times = [r[solver]["time_s"] for r in rounds]
            row |= {"peak_bytes": first["peak_bytes"], "bound_bytes": first["lower_bound_bytes"],
                    "ratio": f"{first['ratio']:.6f}", "optimal": int(first["optimal"]), "rounds": len(times),
                    "median_s": f"{statistics.median(times):.6f}", "min_s": f"{min(times):.6f}",
                    "max_s": f"{max(times):.6f}"}
        yield row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="search steps; without it, as many as ebb takes by default")
    parser.add_argument("-o", "--output")
    parser.add_argument("folder")
    args = parser.parse_args()
    output = open(args.output, "w", newline="", encoding="utf-8") if args.output else sys.stdout
    writer = csv.DictWriter(output, COLUMNS)
    writer.writeheader()
    about = {"commit": commit(), "machine": processor()}
    for path in instances(args.folder):
        for row in rows_of(args, path):
            writer.writerow(about | row)
            output.flush()
            if "ratio" in row:
                print(f"{row['instance']} {row['solver']}: {row['ratio']} in {row['median_s']} s", file=sys.stderr)


if __name__ == "__main__":
    main()
