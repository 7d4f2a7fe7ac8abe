#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What pools need for the zoo's networks: peak over bound of each placement solver on recorded iterations.

    bench/place_zoo.py --ebb build/release/ebb [--paper] [-o bench/results/FILE.csv]

The first networks are those of table I of the SmartPool paper (Zhang et al., arXiv 1903.06631: CIFAR-10's images, batches
of 100), in paper accounting: one tensor for each layer's output and gradient. The paper's memory load and its ratios of
CnMem and of SmartPool stand beside ours. Our load is the tensors' plus three times the parameters (with gradients and
momentum), which are not placed; the paper's also has the workspaces of its cuDNN, which cannot be had here.

The other networks train on the backend `dry`, whose bytes are exact, with the last iteration recorded; the trace goes
through `ebb place --compare`. `saving` is against `best-fit`, which is what CnMem does.
"""
import argparse
import csv
import json
import os
import shlex
import subprocess
import sys
import tempfile

from provenance import commit
from zoo_trace import record

PAPER = {  # network: load in MiB, ratios of CnMem and SmartPool
    "resnet18_cifar": (1452, 1.033, 1.003), "resnet34_cifar": (2824, 1.028, 1.001),
    "resnet50_cifar": (4418, 1.030, 1.003), "resnet101_cifar": (8367, 1.028, 1.0005),
    "vgg11_cifar": (389, 1.169, 1.013), "vgg13_cifar": (509, 1.115, 1.016),
    "vgg16_cifar": (647, 1.113, 1.012), "vgg19_cifar": (785, 1.072, 1.011),
}
CIFAR = [(net, 100, "32x32", 10) for net in PAPER]
IMAGENET = [("alexnet", 200, "224x224", 1000), ("vgg16", 32, "224x224", 1000), ("resnet50", 32, "224x224", 1000),
            ("resnet101", 32, "224x224", 1000), ("resnet152", 32, "224x224", 1000),
            ("resnet:3,4,788,3", 16, "224x224", 1000), ("inception4", 32, "299x299", 1000),
            ("densenet121", 32, "224x224", 1000)]


def parameter_bytes(ebb, net):
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program")
        subprocess.run([ebb, "plan", net, "--batch", "1", "--backend", "dry", "--program-out", program], check=True,
                       stdout=subprocess.DEVNULL)
        with open(program, encoding="utf-8") as file:
            words = [shlex.split(line) for line in file]
        return sum(int(word[3]) for word in words if word[:1] == ["tensor"] and word[4] == "parameter")


def compare(ebb, net, batch, image, classes):
    """Solver -> its JSON object."""
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace")
        if net in PAPER:
            subprocess.run([ebb, "plan", net, "--batch", str(batch), "--accounting", "paper", "--program-out", trace],
                           check=True, stdout=subprocess.DEVNULL)
        else:
            record(ebb, net, batch, image, classes, trace)
        text = subprocess.run([ebb, "place", trace, "--compare", "--json"], check=True, stdout=subprocess.PIPE,
                              text=True).stdout
    return {row["solver"]: row for row in map(json.loads, text.splitlines())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--paper", action="store_true", help="only the networks of table I")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    rows = []
    for case in CIFAR if args.paper else CIFAR + IMAGENET:
        net, batch, image, _ = case
        found = compare(args.ebb, *case)
        cnmem = found["best-fit"]["peak_bytes"]
        paper = PAPER.get(net, ("", "", ""))
        load = found["best-fit"]["lower_bound_bytes"] + 3 * parameter_bytes(args.ebb, net) if net in PAPER else ""
        for solver, row in found.items():
            saving = 1 - row["peak_bytes"] / cnmem
            rows.append([commit(), net, batch, image, row["buffers"], solver, row["peak_bytes"],
                         row["lower_bound_bytes"], f"{row['ratio']:.5f}", f"{saving:.4f}", f"{row['time_s']:.4f}",
                         load, *paper])
            print(f"{net} b{batch} {solver}: {row['ratio']:.5f} of the bound, saves {saving:.1%}", file=sys.stderr)
    output = open(args.output, "w", newline="", encoding="utf-8") if args.output else sys.stdout
    writer = csv.writer(output)
    writer.writerow(["commit", "net", "batch", "image", "blocks", "solver", "peak_bytes", "bound_bytes", "ratio", "saving",
                     "time_s", "load_bytes", "paper_load_mib", "paper_cnmem_ratio", "paper_smartpool_ratio"])
    writer.writerows(rows)


if __name__ == "__main__":
    main()
