#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Policy `best` beside every other policy: is it ever slower, does it ever need more, is it faster with less memory?

    bench/race_rules.py [--ebb build/release/ebb] [--memory 95%..5%:5%] [--options "--machine FILE"] [-o FILE.csv]
                        [--made N [--seed N]] PROGRAM...

A PROGRAM is what `ebb compare` takes: a file, or a network with its options in one argument ("resnet50 --batch 256"),
which is planned for the backend `dry`. --made adds programs made at random: small networks in training with shortcuts,
saved masks, statistics, in-place steps and a few that cannot be repeated. A row is a budget: the predicted time of
best's plan, the fastest other policy and its time, and what is wrong, if anything: "slower" than another policy by more
than a millionth, "no plan" where another has one, "slower than with less memory". The last line counts what is wrong;
the exit status is 1 if anything is.
"""
import argparse
import csv
import os
import random
import shlex
import subprocess
import sys
import tempfile

from provenance import written

COLUMNS = ["commit", "processor", "program", "budget_bytes", "best_s", "other", "other_s", "ratio", "bound_s", "wrong"]
ROUNDING = 1 + 1e-6


class Program:
    """The text of a program file: tensors and steps as they are added."""

    def __init__(self, rng):
        self.rng, self.tensors, self.steps = rng, [], []

    def tensor(self, role, marks=""):
        size = self.rng.choice([1, 1, 1, 3]) * self.rng.randint(1, 2 << 20)
        self.tensors.append(f'tensor {len(self.tensors)} "t{len(self.tensors)}" {size} {role}{marks}')
        return len(self.tensors) - 1

    def step(self, phase, time_ns, **accesses):
        words = " ".join(f"{how} {' '.join(map(str, which))}" for how, which in accesses.items())
        repeat = self.rng.choices(["", "never ", "other_bits "], [16, 1, 1])[0] if phase == "forward" else ""
        scratch = self.rng.choice([0, 0, self.rng.randint(1, 1 << 20)])
        self.steps.append(f'step {len(self.steps)} "s" "made" {phase} {repeat}{words} '
                          f'choice "only" {scratch} 0000000000000000 0 0 time {time_ns}')

    def text(self, name):
        counts = f"end {len(self.tensors)} {len(self.steps)}"
        return "\n".join(["ebb-program 1", f'name "{name}"', "alignment 64", *self.tensors, *self.steps, counts, ""])


def made(rng, name):
    """A network in training, of 3 to 40 layers; a step takes about as long as a link of some GB/s takes for its tensors."""
    p, n_layers = Program(rng), rng.choice([rng.randint(3, 12), rng.randint(3, 40)])
    acts, layers = [p.tensor("input")], []
    p.step("forward", 1000, write=[acts[0]])
    for _ in range(n_layers):
        weight, reads = p.tensor("parameter", " persistent"), {acts[-1], rng.choice(acts)}
        act, mask = p.tensor("activation"), [p.tensor("activation")] * rng.randint(0, 1)
        p.step("forward", rng.randint(1, 3000) * 1000, read=[*sorted(reads), weight], write=[act, *mask])
        if rng.random() < 0.2:
            p.step("forward", rng.randint(1, 200) * 1000, update=[act])
        if rng.random() < 0.2:
            p.step("forward", rng.randint(1, 200) * 1000, read=[act], update=[p.tensor("buffer", " persistent")])
        acts.append(act)
        layers.append((weight, reads, mask))
    slope = p.tensor("gradient")
    p.step("backward", 1000, read=[acts[-1]], write=[slope])
    for act, (weight, reads, mask) in zip(reversed(acts), reversed(layers)):
        below, change = p.tensor("gradient"), p.tensor("gradient")
        p.step("backward", rng.randint(1, 6000) * 1000, read=[slope, act, *sorted(reads), *mask, weight],
               write=[below, change])
        p.step("update", rng.randint(1, 300) * 1000, read=[change], update=[weight])
        slope = below
    return p.text(name)


def write_made(folder, n, seed):
    rng = random.Random(seed)
    for i in range(n):
        path = os.path.join(folder, f"made-{seed}-{i}.ebbp")
        with open(path, "w", encoding="utf-8") as file:
            file.write(made(rng, f"made-{seed}-{i}"))
        yield path


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
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--made", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--memory", default="95%..5%:5%")
    parser.add_argument("--options", default="")
    parser.add_argument("-o", dest="out")
    args = parser.parse_args()
    n_rows = n_wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        programs = [*args.programs, *write_made(folder, args.made, args.seed)]
        rows = ([os.path.basename(program), *row] for program in programs
                for row in rows_of(compare(args.ebb, program, args.memory, shlex.split(args.options))))
        for row in written(args.out, COLUMNS, rows):
            n_rows, n_wrong = n_rows + 1, n_wrong + bool(row[-1])
    print(f"{n_rows} budgets, {n_wrong} wrong", file=sys.stderr)
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
