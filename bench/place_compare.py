#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All solvers of `ebb place` over a folder of instances, as a table.

    bench/place_compare.py --ebb build/release/ebb FOLDER [--rounds N] [--steps N] [--peer NAME=COMMAND]
                           [-o bench/results/FILE.csv]

FOLDER holds what `ebb place` takes: CSV files, programs, plans, traces; README files and folders in it are left out. Each
instance goes through `ebb place --compare --json` once a round, so all solvers run before any runs again. A row is a
solver on an instance: commit, machine, instance, buffers, solver, peak, bound, ratio, whether the peak is proven to be
the least, rounds, and the median, least and most seconds. A solver that refuses an instance has a row without figures.

A peer is another program, run in turn with ebb: a COMMAND of the shell in which {input}, {output} and {bound} stand for
the instance, a CSV file of the same lines with a column 'offset', and the bound in bytes. Its peak is what `ebb place`
finds in that file, so it is checked too. Its seconds are those that a line 'time SECONDS' of its output says, or
without one the whole process's; where it fails, or takes longer than --peer-limit, its row has no figures.
"""
import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

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


def run_peer(args, command, path, bound):
    """The object of another program's answer, or None."""
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "placed.csv")
        begin = time.monotonic()
        try:
            done = subprocess.run(["timeout", str(args.peer_limit), "sh", "-c",
                                   command.format(input=path, output=output, bound=bound)],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
            seconds = time.monotonic() - begin
            checked = subprocess.run([args.ebb, "place", output, "--json"], check=True, stdout=subprocess.PIPE, text=True)
        except subprocess.CalledProcessError:
            return None
        said = re.findall(r"^time ([0-9.e-]+)$", done.stdout, re.MULTILINE)
        return json.loads(checked.stdout) | {"time_s": float(said[-1]) if said else seconds}


def run_all(args, path):
    """Solver or peer -> its object."""
    found = place(args.ebb, path, args.steps)
    first = next(iter(found.values()))
    for peer in args.peer:
        name, command = peer.split("=", 1)
        found[name] = run_peer(args, command, path, first["lower_bound_bytes"]) or {"buffers": first["buffers"], "error": ""}
    return found


def rows_of(args, path):
    rounds = [run_all(args, path) for _ in range(args.rounds)]
    name = os.path.splitext(os.path.basename(path))[0]
    peers = [peer.split("=", 1)[0] for peer in args.peer]
    for solver, first in rounds[0].items():
        row = {"instance": name, "n": first["buffers"], "solver": solver}
        if all("error" not in r[solver] for r in rounds):
            peaks = [r[solver]["peak_bytes"] for r in rounds]
            if solver not in peers and len(set(peaks)) > 1:
                sys.exit(f"{path}: {solver} gives another peak each time")
            bound = rounds[0]["best"]["lower_bound_bytes"]
            times = [r[solver]["time_s"] for r in rounds]
            row |= {"peak_bytes": min(peaks), "bound_bytes": bound, "ratio": f"{min(peaks) / bound:.6f}",
                    "optimal": int(min(peaks) == bound), "rounds": len(times),
                    "median_s": f"{statistics.median(times):.6f}", "min_s": f"{min(times):.6f}",
                    "max_s": f"{max(times):.6f}"}
        yield row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="search steps; without it, as many as ebb takes by default")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--peer-limit", type=float, default=60, help="seconds")
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
