#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training throughput of ebb beside PyTorch on the CPU, in one run, alternating.

    bench/against_torch.py --ebb build/release/ebb --torch PYTHON [--torch PYTHON] [-o bench/results/FILE.csv]

Each PYTHON is an interpreter that imports torch and torchvision. In every round each contender trains each network
for a few steps in a process of its own, one behind the other, so that a machine whose speed drifts does so for all.
A round's figure is the least step time behind the first; a contender's is the median of its rounds. PyTorch
counts with the faster of its two memory formats.
"""
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys

from provenance import commit, processor

CASES = [("resnet50", 16), ("vgg16", 8), ("alexnet", 128), ("densenet121", 8)]
HERE = os.path.dirname(os.path.abspath(__file__))


def run_ebb(ebb, net, batch, steps, threads):
    command = [ebb, "train", net, "--batch", str(batch), "--steps", str(steps), "--optimizer", "momentum",
               "--lr", "0.001", "--policy", "liveness", "--threads", str(threads), "--json"]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = [json.loads(line) for line in text.splitlines()]
    return min(line["time_s"] for line in lines[1:] if "step" in line and "time_s" in line)


def run_torch(python, net, batch, steps, threads, channels_last):
    command = [python, os.path.join(HERE, "torch_worker.py"), net, "--batch", str(batch), "--steps", str(steps),
               "--threads", str(threads)] + (["--channels-last"] if channels_last else [])
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return min(float(line) for line in text.splitlines()[1:])


def torch_version(python):
    return subprocess.run([python, "-c", "import torch; print(torch.__version__)"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.strip()


def contenders(args):
    """Name -> function(net, batch) -> least seconds a step."""
    found = {"ebb": lambda net, batch: run_ebb(args.ebb, net, batch, args.steps, args.threads)}
    for python in args.torch:
        version = torch_version(python)
        for last in (False, True):
            name = f"torch {version}{' channels-last' if last else ''}"
            found[name] = lambda net, batch, p=python, c=last: run_torch(p, net, batch, args.steps, args.threads, c)
    return found


def compare(args, net, batch):
    """The rows of one network."""
    times = {name: [] for name in contenders(args)}
    for _ in range(args.rounds):
        for name, measure in contenders(args).items():
            times[name].append(measure(net, batch))
    ours = statistics.median(times["ebb"])
    rows = []
    for name, seconds in times.items():
        median = statistics.median(seconds)
        rows.append([commit(), processor(), name, net, batch, len(seconds), f"{median:.4f}", f"{min(seconds):.4f}",
                     f"{max(seconds):.4f}", f"{batch / median:.3f}", f"{median / ours:.3f}"])
        print(f"{net} b{batch} {name}: {median:.3f} s a step, {batch / median:.2f} img/s", file=sys.stderr)
    best = min((statistics.median(t) for name, t in times.items() if name != "ebb"), default=None)
    if best is not None:
        print(f"{net} b{batch}: ebb is {best / ours:.3f} x the fastest PyTorch", file=sys.stderr)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--torch", action="append", default=[])
    parser.add_argument("--nets", help="a comma-separated part of the cases")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    output = open(args.output, "w", newline="", encoding="utf-8") if args.output else sys.stdout
    writer = csv.writer(output)
    writer.writerow(["commit", "machine", "contender", "net", "batch", "n", "median_s", "min_s", "max_s", "images_per_s",
                     "time_over_ebb"])
    for net, batch in CASES:
        if args.nets and net not in args.nets.split(","):
            continue
        writer.writerows(compare(args, net, batch))
        output.flush()  # what was measured stays, should the rest be stopped


if __name__ == "__main__":
    main()
