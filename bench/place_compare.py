#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All solvers of `ebb place` over a folder of instances, as a table.

    bench/place_compare.py --ebb build/release/ebb [FOLDER]... [--made N --maker build/release/bench_place] [--rounds N]
                           [--steps N] [--peer NAME=COMMAND] [-o bench/results/FILE.csv]

A FOLDER holds what `ebb place` takes: CSV files, programs, plans, traces; README files and folders in it are left out. Each
instance goes through `ebb place --compare --json` once a round, so all solvers run before any runs again. A row is a
solver on an instance: commit, machine, instance, buffers, solver, peak, bound, ratio, whether the peak is proven to be
the least, rounds, and the median, least and most seconds. A solver that refuses an instance has a row without figures.

--made N adds N problems that bench_place makes from seeds, of all its kinds. Two of five have alignments or gaps.

The last line says on how many instances `best` is worse than a rule; the exit status is 1 unless that is none.

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


def kinds(maker):
    """What bench_place makes; without arguments it says so."""
    text = subprocess.run([maker], stdout=subprocess.PIPE, text=True).stdout
    return [line.split(":")[0] for line in text.splitlines()]


def align(row, number):
    return row + [(1, 96, 256, 512)[number % 4]]


def open_gap(row, number):
    """In every fourth buffer: after its first moment, all but 64 bytes are free for others."""
    lower, upper, size = map(int, row[1:])
    return row + [f"{lower + 1}-{upper}@0:64" if number % 4 == 0 and upper - lower > 2 and size > 64 else ""]


def make(maker, names, seed, folder):
    """The file of a problem: each kind in turn, in four sizes; of five of a kind one has alignments and one gaps."""
    kind, turn = names[seed % len(names)], seed // len(names)
    n, more = (120, 300, 1000, 3000)[turn % 4], (None, None, None, align, open_gap)[turn % 5]
    text = subprocess.run([maker, "csv", f"seed={seed}", f"{kind}:{n}"], check=True, stdout=subprocess.PIPE, text=True).stdout
    columns, *rows = [line.split(",") for line in text.splitlines()]
    if more:
        columns += ["alignment" if more is align else "gaps"]
        rows = [more(row, number) for number, row in enumerate(rows)]
    path = os.path.join(folder, f"made-{kind}-{seed}{'-' + columns[-1] if more else ''}.csv")
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns] + rows)
    return path


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
    parser.add_argument("--made", type=int, default=0, metavar="N")
    parser.add_argument("--maker", metavar="BENCH_PLACE")
    parser.add_argument("-o", "--output")
    parser.add_argument("folder", nargs="*")
    args = parser.parse_args()
    if args.made and not args.maker:
        parser.error("--made needs --maker")
    output = open(args.output, "w", newline="", encoding="utf-8") if args.output else sys.stdout
    writer = csv.DictWriter(output, COLUMNS)
    writer.writeheader()
    about = {"commit": commit(), "machine": processor()}
    peers = [peer.split("=", 1)[0] for peer in args.peer]
    n, worse = 0, []
    with tempfile.TemporaryDirectory() as made:
        paths = [path for folder in args.folder for path in instances(folder)]
        names = kinds(args.maker) if args.made else []
        for path in paths + [make(args.maker, names, seed, made) for seed in range(args.made)]:
            rows = list(rows_of(args, path))
            for row in rows:
                writer.writerow(about | row)
                if "ratio" in row:
                    print(f"{row['instance']} {row['solver']}: {row['ratio']} in {row['median_s']} s", file=sys.stderr)
            output.flush()
            peak = {row["solver"]: row["peak_bytes"] for row in rows if "peak_bytes" in row and row["solver"] not in peers}
            n += 1
            worse += [path for solver in peak if peak[solver] < peak["best"]][:1]
    print(f"best is worse than a rule on {len(worse)} of {n} instances {' '.join(worse)}".rstrip(), file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
