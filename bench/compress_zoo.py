#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What compression would keep of the tensors that leave the device, for networks of the zoo in training.

    bench/compress_zoo.py --build build/release [--digits build/digits/digits.csv.gz] [-o bench/results/FILE.csv] [NET:BATCH:STEPS...]

Trains each on noise, and a small ResNet on handwritten digits, and runs `bench_compress` over its tensors, which see.
"""
import argparse
import csv
import os
import subprocess
import sys

from provenance import commit, processor

NETS = ["alexnet:64:3", "vgg16:8:3", "resnet50:4:3", "densenet121:2:3"]
DIGITS = ["resnet20", "64", "8", "300"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--digits")
    parser.add_argument("-o", "--output")
    parser.add_argument("nets", nargs="*", default=NETS)
    args = parser.parse_args()
    output = open(args.output, "w", newline="", encoding="utf-8") if args.output else sys.stdout
    writer = csv.writer(output)
    cases = [[*net.split(":")[:2], "0", net.split(":")[2], "synthetic"] for net in args.nets]
    if args.digits:
        cases.append([*DIGITS, "digits:" + args.digits])
    for i, case in enumerate(cases):
        text = subprocess.run([os.path.join(args.build, "bench_compress"), *case], check=True, stdout=subprocess.PIPE,
                              text=True).stdout
        rows = list(csv.reader(text.splitlines()))
        if i == 0:
            writer.writerow(["commit", "machine", *rows[0]])
        writer.writerows([commit(), processor(), *row] for row in rows[1:])
        output.flush()


if __name__ == "__main__":
    main()
