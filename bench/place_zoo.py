#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What pools need for the zoo's networks: peak over bound of each placement solver on recorded iterations.

    bench/place_zoo.py --ebb build/release/ebb [-o bench/results/FILE.csv]

Each network trains on the backend `dry`, whose bytes are exact, with its last iteration recorded; the trace goes through
`ebb place --compare`. The first networks are those of table I of the SmartPool paper (Zhang et al., arXiv 1903.06631:
CIFAR-10's images, batches of 100), whose own ratios of CnMem and of SmartPool stand beside ours. `saving` is against
`best-fit`, which is what CnMem does.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

from provenance import commit
from zoo_trace import record

PAPER = {  # network: ratios of CnMem and SmartPool
    "resnet18": (1.033, 1.003), "resnet34": (1.028, 1.001), "resnet50": (1.030, 1.003), "resnet101": (1.028, 1.0005),
    "vgg11_bn": (1.169, 1.013), "vgg13_bn": (1.115, 1.016), "vgg16_bn": (1.113, 1.012), "vgg19_bn": (1.072, 1.011),
}
CIFAR = [(net, 100, "32x32", 10) for net in PAPER]
IMAGENET = [("alexnet", 200, "224x224", 1000), ("vgg16", 32, "224x224", 1000), ("resnet50", 32, "224x224", 1000),
            ("resnet101", 32, "224x224", 1000), ("resnet152", 32, "224x224", 1000),
            ("resnet:3,4,788,3", 16, "224x224", 1000), ("inception4", 32, "299x299", 1000),
            ("densenet121", 32, "224x224", 1000)]


def compare(ebb, net, batch, image, classes):
    """Solver -> its JSON object."""
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace")
        record(ebb, net, batch, image, classes, trace)
        text = subprocess.run([ebb, "place", trace, "--compare", "--json"], check=True, stdout=subprocess.PIPE,
                              text=True).stdout
    return {row["solver"]: row for row in map(json.loads, text.splitlines())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    rows = []
    for case in CIFAR + IMAGENET:
        net, batch, image, _ = case
        found = compare(args.ebb, *case)
        cnmem = found["best-fit"]["peak_bytes"]
        paper = PAPER.get(net, ("", "")) if case in CIFAR else ("", "")
        for solver, row in found.items():
            saving = 1 - row["peak_bytes"] / cnmem
            rows.append([commit(), net, batch, image, row["buffers"], solver, row["peak_bytes"],
                         row["lower_bound_bytes"], f"{row['ratio']:.5f}", f"{saving:.4f}", f"{row['time_s']:.4f}", *paper])
            print(f"{net} b{batch} {solver}: {row['ratio']:.5f} of the bound, saves {saving:.1%}", file=sys.stderr)
    output = open(args.output, "w", newline="", encoding="utf-8") if args.output else sys.stdout
    writer = csv.writer(output)
    writer.writerow(["commit", "net", "batch", "image", "blocks", "solver", "peak_bytes", "bound_bytes", "ratio", "saving",
                     "time_s", "paper_cnmem_ratio", "paper_smartpool_ratio"])
    writer.writerows(rows)


if __name__ == "__main__":
    main()
