#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every policy that has a plan, trained by it: are the bits the same, and the peaks what was planned?

    bench/policies_executed.py [--ebb build/release/ebb] [--policies g10,swap] [--memory 90%,60%] [--disk DIR]
                               [--host-memory SIZE] [-o bench/results/FILE.csv] [NET...]

Five networks with small images, on the backend `cpu`, by `ebb compare --run`. A row is a policy within a budget: commit,
processor, network, and the columns of `ebb compare`: bytes between tiers, predicted and measured time, planned and measured
peak, the loss's bits. With --disk and --host-memory 0 copies go to a file. The last line counts what is wrong: a loss of
other bits than the network's first row, or a measured peak that is not the planned one; the exit status is 1 if anything is.
"""
import argparse
import csv
import os
import subprocess
import sys
import tempfile

from provenance import written

# SGD alone, and batches in which activations take more than the largest update: so most policies have a plan.
NETS = {
    "resnet50": ["--batch", "16", "--image", "64x64"],
    "densenet121": ["--batch", "16", "--image", "64x64"],
    "inception4": ["--batch", "8", "--image", "107x107"],
    "vgg16": ["--batch", "32", "--image", "64x64"],
    "alexnet": ["--batch", "128", "--image", "99x99"],
}


def compare(args, net, folder):
    out = os.path.join(folder, net + ".csv")
    given = {"--disk": args.disk, "--host-memory": args.host_memory, "--policies": args.policies}
    options = [word for name, value in given.items() if value for word in (name, value)]
    done = subprocess.run([args.ebb, "compare", net, *NETS[net], "--optimizer", "sgd", "--run", "--steps", "2", "--machine",
                           os.path.join(folder, "machine.json"), "--memory", args.memory, *options, "-o", out],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if not os.path.exists(out):
        sys.exit(f"{net}: {done.stderr.strip()}")
    with open(out, newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["loss_hex"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET")
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--policies", help="default: all")
    parser.add_argument("--memory", default="90%,60%")
    parser.add_argument("--disk")
    parser.add_argument("--host-memory")
    parser.add_argument("-o", dest="out")
    args = parser.parse_args()
    n_rows = n_bits = n_peaks = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([args.ebb, "probe", "-o", os.path.join(folder, "machine.json")], stdout=subprocess.DEVNULL, check=True)
        rows = {net: compare(args, net, folder) for net in args.nets or NETS}
    for net, own in rows.items():
        n_rows += len(own)
        n_bits += sum(row["loss_hex"] != own[0]["loss_hex"] for row in own)
        n_peaks += sum(row["measured_peak_bytes"] != row["peak_bytes"] for row in own)
    columns = list(next(own[0] for own in rows.values() if own))
    lines = ([net, *row.values()] for net, own in rows.items() for row in own)
    for line in written(args.out, ["commit", "processor", "network", *columns], lines):
        if not args.out:
            print(*line, sep=",")
    print(f"{n_rows} plans: {n_bits} with other bits, {n_peaks} with another peak", file=sys.stderr)
    return 1 if n_bits or n_peaks or not n_rows else 0


if __name__ == "__main__":
    sys.exit(main())
