#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What plans would gain if tensors could leave in part: a network's program, and the same with its tensors split.

    bench/parts_gain.py --machine FILE [--ebb build/release/ebb] [--parts 2,4] [--effort 1] [-o OUT.csv] NET:BATCH:PER_CENT...

Each tensor of 4 KiB or more is split into equal parts that every step uses as it used the whole. Parts may lie anywhere, so
no plan that keeps the parts of a tensor side by side where it is used can be better than the best plan for the split
program. (The search may miss that plan.) The budget is a per cent of what the policy liveness needs of the whole one.
"""
import argparse
import os
import re
import tempfile

from ebb_plan import plan
from provenance import written

LEAST_BYTES = 4096
GRAIN = 256
MODES = ("read", "write", "update")
COLUMNS = ["commit", "processor", "network", "batch", "memory_percent", "budget_bytes", "parts", "step_time_s", "gap",
           "out_bytes", "plan_s"]


def split_tensor(line, n_parts, first):
    """The lines of a tensor's parts, numbered from first."""
    number, name, size, rest = re.match(r'tensor (\d+) "(.*?)" (\d+)(.*)$', line).groups()
    size = int(size)
    n = n_parts if size >= LEAST_BYTES else 1
    each = size // n // GRAIN * GRAIN
    sizes = [each] * (n - 1) + [size - each * (n - 1)]
    return int(number), [f'tensor {first + i} "{name}.{i}" {bytes_}{rest}' for i, bytes_ in enumerate(sizes)]


def split_accesses(line, parts):
    """A step's line with the parts in the place of each tensor."""
    words, mode = [], None
    for word in re.findall(r'"[^"]*"|\S+', line):
        if mode and word.isdigit():
            words += [str(part) for part in parts[int(word)]]
            continue
        mode = word if word in MODES else None
        words.append(word)
    return " ".join(words)


def split_program(text, n_parts):
    lines, parts, n = [], {}, 0
    for line in text.splitlines():
        if line.startswith("tensor "):
            number, own = split_tensor(line, n_parts, n)
            parts[number] = range(n, n + len(own))
            n += len(own)
            lines += own
        elif line.startswith("step "):
            lines.append(split_accesses(line, parts))
        else:
            lines.append(re.sub(r"^end \d+", f"end {n}", line))
    return "\n".join(lines) + "\n"


def rows_of(args, subject, folder):
    net, batch, percent = subject.split(":")
    whole = os.path.join(folder, "whole.ebbp")
    words = [net, "--batch", batch, "--backend", "dry", "--machine", args.machine, "--memory", percent + "%"]
    budget = plan(args.ebb, *words, "--effort", "0", "--program-out", whole)["budget_bytes"]
    for n in [1] + [int(n) for n in args.parts.split(",")]:
        path = os.path.join(folder, "parts.ebbp")
        with open(whole) as file, open(path, "w") as out:
            out.write(split_program(file.read(), n))
        got = plan(args.ebb, path, "--machine", args.machine, "--memory", str(budget), "--effort", args.effort)
        yield [net, batch, percent, budget, n, f"{got['step_time_predicted_s']:.6f}", f"{got['gap']:.4f}",
               got["moved_out_bytes"], f"{got['plan_made_s']:.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="+", metavar="NET:BATCH:PER_CENT")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--parts", default="2,4")
    parser.add_argument("--effort", default="1")
    parser.add_argument("-o", dest="out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = (row for subject in args.subjects for row in rows_of(args, subject, folder))
        for row in written(args.out, COLUMNS, rows):
            if args.out:
                print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
