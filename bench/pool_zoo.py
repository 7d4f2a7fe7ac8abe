#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a malloc and a free cost on iterations of the zoo's networks, and on long ones that are made up.

    bench/pool_zoo.py --build build/release [--rounds N] [-o bench/results/FILE.csv]

Records the iterations and runs `bench_pool` over them, which see. Use a machine that does nothing else.
"""
import argparse
import csv
import os
import subprocess
import sys
import tempfile

from provenance import commit, processor
from zoo_trace import record

NETS = [("alexnet", 200), ("vgg16", 32), ("resnet50", 32), ("densenet121", 32), ("resnet:3,4,788,3", 16)]
MODELS = ["model:500000", "model:2100000:1000000"]  # a million calls; a million blocks out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        traces = []
        for net, batch in NETS:
            traces.append(os.path.join(folder, f"{net.replace(',', '-')} b{batch}"))
            record(os.path.join(args.build, "ebb"), net, batch, "224x224", 1000, traces[-1])
        text = subprocess.run([os.path.join(args.build, "bench_pool"), f"rounds={args.rounds}", *traces, *MODELS],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = list(csv.reader(text.splitlines()))
    output = open(args.output, "w", newline="", encoding="utf-8") if args.output else sys.stdout
    writer = csv.writer(output)
    writer.writerow(["commit", "machine", *rows[0]])
    writer.writerows([commit(), processor(), *row] for row in rows[1:])


if __name__ == "__main__":
    main()
