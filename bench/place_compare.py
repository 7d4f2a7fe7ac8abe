#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All solvers of `ebb place` over a folder of instances, as a table.

    bench/place_compare.py --ebb build/release/ebb [FOLDER]... [--made N] [--rounds N] [--steps N]
                           [--peer NAME=COMMAND] [-o bench/results/FILE.csv]

A FOLDER holds what `ebb place` takes: CSV files, programs, plans, traces; README files and folders in it are left out. Each
instance goes through `ebb place --compare --json` once a round, so all solvers run before any runs again. A row is a
solver on an instance: commit, machine, instance, buffers, solver, peak, bound, ratio, whether the peak is proven to be
the least, rounds, and the median, least and most seconds. A solver that refuses an instance has a row without figures.

--made N adds N problems that are made, seeded: forward and backward passes whose buffers live from one to the other, with
short-lived ones between, in one to five iterations.

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
import random
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


def make(seed, folder):
    """A file of buffers as a training has them: kept from a layer's forward to its backward pass, and short-lived ones."""
    rng = random.Random(seed)
    n_layers, time, lines = rng.randint(5, 60), 0, ["id,lower,upper,size"]
    sizes = [rng.choice((1, 3, 17, 64)) * rng.randint(1, 4096) for _ in range(n_layers)]

    def add(lower, upper, size):
        lines.append(f"{len(lines)},{lower},{upper},{size}")

    for _ in range(rng.randint(1, 5)):
        begin = time
        for layer in range(n_layers):
            add(begin + 2 * layer, begin + 4 * n_layers - 2 * layer, sizes[layer])
            if rng.random() < 0.6:
                add(begin + 2 * layer, begin + 2 * layer + rng.randint(1, 2), rng.randint(1, 1 << 18))
            if rng.random() < 0.6:
                end = begin + 4 * n_layers - 2 * layer
                add(end - 1, end + rng.randint(1, 6), rng.choice(sizes))
        time = begin + 4 * n_layers + rng.randint(1, 8)
    path = os.path.join(folder, f"made-{seed}.csv")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
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
    parser.add_argument("-o", "--output")
    parser.add_argument("folder", nargs="*")
    args = parser.parse_args()
    output = open(args.output, "w", newline="", encoding="utf-8") if args.output else sys.stdout
    writer = csv.DictWriter(output, COLUMNS)
    writer.writeheader()
    about = {"commit": commit(), "machine": processor()}
    peers = [peer.split("=", 1)[0] for peer in args.peer]
    n, worse = 0, []
    with tempfile.TemporaryDirectory() as made:
        paths = [path for folder in args.folder for path in instances(folder)]
        for path in paths + [make(seed, made) for seed in range(args.made)]:
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
