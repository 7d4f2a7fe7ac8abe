#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What no plan that only copies can beat, by a linear program: a certificate that shares no code with ebb's policies.

    bench/copies_bound.py PROGRAM MACHINE [--load BYTES] [--cell MICROSECONDS]

PROGRAM is a file of `ebb plan --program-out`, MACHINE a machine file with one link and no shares. Without --load it says the
least load at which an iteration takes no longer than its computing; with it, how much longer it takes at least under that
load. It needs scipy.

Time is cut into cells, and of each cell only the step with the highest load counts, the pivot. Bytes may leave and come back
one by one, each as soon as it likes, and each direction copies as much as fits into the time between two pivots (with its
share of the latency). What is absent at a pivot was copied out since it was written, and is copied in before its next use.
Plans can do no more than that, whatever they place where. Larger cells make the bound lower, not wrong.
"""
import argparse
import json
import shlex
import sys

import numpy
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

MODES = {"read": 1, "write": 2, "update": 3}
MIB = 2**20


def read_program(path, rates):
    """Tensors as (bytes, persistent, kept), steps as (accesses, ns, scratch)."""
    tensors, steps, alignment = [], [], 1
    with open(path, encoding="utf-8") as file:
        for words in map(shlex.split, file):
            if words[:1] == ["alignment"]:
                alignment = int(words[1])
            elif words[:1] == ["tensor"]:
                tensors.append((-(-int(words[3]) // alignment) * alignment, "persistent" in words[5:], "kept" in words[5:]))
            elif words[:1] == ["step"]:
                accesses, mode, choice = {}, 0, words.index("choice")
                for word in words[5:choice]:
                    mode = MODES.get(word, mode)
                    if word.isdigit():
                        accesses[int(word)] = mode
                if words[choice + 6:choice + 7] == ["time"]:
                    ns = int(words[choice + 7])
                else:
                    work = max(float(words[choice + 4]) / rates["flops_per_s"], float(words[choice + 5]) / rates["bytes_per_s"])
                    ns = rates["overhead_ns"] + 1e9 * work
                steps.append((accesses, ns, -(-int(words[choice + 2]) // alignment) * alignment))
    return tensors, steps


def find_gaps(tensors, steps):
    """The load of each step, and by version (bytes, written at, has a copy, [(from, to)]), steps counted on past the end."""
    n = len(steps)
    uses = [[] for _ in tensors]
    for s, step in enumerate(steps):
        for t, mode in step[0].items():
            uses[t].append((s, mode))
    change = numpy.zeros(n + 1)
    versions, dead = [], []
    for (size, persistent, kept), use in zip(tensors, uses):
        if not use:
            continue
        change[0 if persistent else use[0][0]] += size
        change[n if persistent or kept else use[-1][0] + 1] -= size
        writes = [s for s, mode in use if mode & 2]
        unrolled = use + ([(s + n, mode) for s, mode in use] if persistent else [(n, 1)] if kept else [])
        made = {}
        for (s, _), (after, mode) in zip(unrolled, unrolled[1:]):
            written = max((w for w in writes + [w + n for w in writes] if w <= s), default=None)
            if s >= n and written is not None and written >= n:
                break  # the same as in the first iteration
            if written is None and writes:
                continue  # counted an iteration later
            if not writes and s >= n:
                break
            if mode == 2:
                dead.append((size, s, after))
            else:
                made.setdefault(written, []).append((s, after))
        versions += [(size, written, written is None, gaps) for written, gaps in made.items()]
    return numpy.cumsum(change)[:n] + [step[2] for step in steps], versions, dead


class Rows:
    """The rows of a linear program, sum of values times variables <= limit."""

    def __init__(self):
        self.row, self.column, self.value, self.limit, self.n = [], [], [], [], 0

    def variable(self):
        self.n += 1
        return self.n - 1

    def add(self, terms, limit):
        for column, value in terms:
            self.row.append(len(self.limit))
            self.column.append(column)
            self.value.append(value)
        self.limit.append(limit)


def bound(tensors, steps, link, cell_ns, load_bytes):
    load, versions, dead = find_gaps(tensors, steps)
    n = len(steps)
    begin = numpy.concatenate([[0], numpy.cumsum([step[1] for step in steps])])
    cells = {}
    for s in range(n):
        cells.setdefault(begin[s] // cell_ns, []).append(s)
    pivot = [max(members, key=lambda s: load[s]) for members in cells.values()]
    n_pivots, total_ns = len(pivot), begin[-1]

    def lengths(at):  # of the stretch before each pivot, around the end
        return numpy.diff(numpy.concatenate([[at[-1] - total_ns], at]))

    def between(first, last):  # pivots after step first and before step last, counted on
        return [j + lap * n_pivots for lap in range(3) for j in range(n_pivots) if first < pivot[j] + lap * n < last]

    rows = Rows()
    stall, most = [rows.variable() for _ in pivot], rows.variable()
    away, out, back, room = ([[] for _ in pivot] for _ in range(4))
    for size, first, last in dead:
        for j in between(first, last):
            room[j % n_pivots].append(size)
    for size, written, has_copy, gaps in versions:
        ns = {way: size * 1e9 / link[way]["bytes_per_s"] + link[way]["latency_ns"] for way in ("out", "in")}
        absent = {}
        for first, last in gaps:
            inside = between(first, last)
            share = [rows.variable() for _ in inside]
            for k, j in enumerate(inside):
                absent[j] = share[k]
                away[j % n_pivots].append((share[k], -size))
                arrives = rows.variable()
                back[(j + 1) % n_pivots].append((arrives, ns["in"]))
                rows.add([(share[k], 1), (arrives, -1)] + [(x, -1) for x in share[k + 1:k + 2]], 0)
        before = []
        for j in between(written, max(pivot[j % n_pivots] + j // n_pivots * n for j in absent) + 1) if absent and not has_copy else []:
            copied, leaves = rows.variable(), rows.variable()
            out[j % n_pivots].append((leaves, ns["out"]))
            rows.add([(copied, 1), (leaves, -1)] + [(x, -1) for x in before], 0)
            if j in absent:
                rows.add([(absent[j], 1), (copied, -1)], 0)
            before = [copied]
    starts, ends = lengths(begin[pivot]), lengths(begin[numpy.array(pivot) + 1])
    for j in range(n_pivots):
        rows.add(away[j] + [(most, -1)], sum(room[j]) - load[pivot[j]])
        rows.add(out[j] + [(stall[j], -1)], starts[j])
        rows.add(back[j] + [(stall[j], -1)], ends[j])
    limits = [(0, 0 if load_bytes is None else None)] * n_pivots
    limits += [(0, None) if load_bytes is None else (load_bytes, load_bytes)] + [(0, 1)] * (rows.n - n_pivots - 1)
    cost = numpy.zeros(rows.n)
    cost[most if load_bytes is None else slice(0, n_pivots)] = 1 / MIB if load_bytes is None else 1e-6
    matrix = csr_matrix((rows.value, (rows.row, rows.column)), shape=(len(rows.limit), rows.n))
    found = linprog(cost, A_ub=matrix, b_ub=rows.limit, bounds=limits, method="highs")
    if found.status != 0:
        sys.exit(found.message)
    return found.fun, load.max() / MIB, total_ns / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("machine")
    parser.add_argument("--load", type=int)
    parser.add_argument("--cell", type=float, default=500)
    args = parser.parse_args()
    with open(args.machine, encoding="utf-8") as file:
        machine = json.load(file)
    tensors, steps = read_program(args.program, machine["rates"])
    found, load, ms = bound(tensors, steps, machine["links"][0], args.cell * 1e3, args.load)
    if args.load is None:
        print(f"a load of at least {found:.1f} MiB of {load:.1f} where nothing is waited for")
    else:
        print(f"at least {found:.3f} ms more than {ms:.3f}, {100 * found / ms:.2f} %")


if __name__ == "__main__":
    main()
