#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb's plans beside G10's on the traces of G10's simulator.

    bench/race_g10.py --build build/release FOLDER [--networks bert-256,vit-1280] [--ways copies,both,g10] [--effort 1]
                      [-o OUT.csv]

FOLDER is results/ of github platformxlab/G10 (Zhang et al., MICRO 2023) after its simulator has run each configuration
NETWORK/BATCH-sim_FlashNeuron.config, which needs the least memory and writes kernels.config:

    cd src && make && python3 resources/genconfigs.py
    ./gpg configs/ResNet152/512-sim_FlashNeuron.config < ../frontend/Nets/ResNet152.txt

A figure is an iteration's time over the sum of its kernels' times. The device has 40 GiB, the host 128 GiB; PCIe carries
15.754 GB/s each way with 5 us of latency, the SSD 3.2 GB/s. Where the host is too small, an SSD is a third tier, and
what it carries is taken off the host's link, as G10's simulator has it for its direct storage.

 - published: typed in from example_results/ (overall_batchsize, overall_performance). G10's own column is of a simulator
   that moves pages and faults; "fails": no finite time.
 - copies: `ebb plan --no-recompute`. both: `ebb plan`. g10: `ebb plan --policy g10`. All are of ebb's simulator, with
   peaks as placed.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from ebb_plan import plan, time_over
from provenance import written

GIB = 1 << 30
DEVICE, HOST = 40 * GIB, 128 * GIB
PCIE, SSD = 15.754e9, 3.2e9
FAILS = None
# Folder, batch: what the authors published for FlashNeuron, DeepUM+ and G10.
PUBLISHED = {
    "BERT_Base": {128: (1.0000, 1.0677, 1.0000), 256: (1.4022, 1.2574, 1.0035), 512: (4.4829, 1.6086, 1.4922),
                  768: (FAILS, 1.7272, 1.5713), 1024: (FAILS, 3.3417, 2.2486)},
    "VIT": {256: (1.0000, 1.0000, 1.0000), 512: (1.0000, 1.2007, 1.0000), 768: (1.0000, 1.4887, 1.0000),
            1024: (1.6132, 1.7700, 1.3576), 1280: (FAILS, 2.0338, 1.4908)},
    "Inceptionv3": {512: (1.0000, 1.0013, 1.0051), 768: (1.1285, 1.0121, 1.0003), 1024: (1.3604, 1.0858, 1.0063),
                    1280: (1.6764, 1.2429, 1.0153), 1536: (FAILS, 1.4854, 1.0233), 1792: (FAILS, 1.6199, 1.1793)},
    "ResNet152": {256: (1.0000, 1.0000, 1.0001), 512: (1.0215, 1.0000, 1.0016), 768: (1.1359, 1.0247, 1.0015),
                  1024: (1.3259, 1.0725, 1.0013), 1280: (1.5566, 1.1726, 1.0163)},
    "SENet154": {256: (1.0000, 1.0041, 1.0002), 512: (1.1033, 1.0230, 1.0004), 768: (1.3406, 1.2048, 1.0017),
                 1024: (1.8769, 1.4536, 1.0709)},
}
WAYS = {"copies": ["--no-recompute"], "both": [], "g10": ["--policy", "g10"]}
COLUMNS = ["commit", "processor", "network", "batch", "ideal_s", "liveness_bytes", "flashneuron_published",
           "deepum_published", "g10_published"]


def columns(ways):
    return COLUMNS + [way + what for way in ways for what in ("", "_bound", "_peak_bytes", "_out_bytes", "_again", "_cpu_s")]


def way(rate, latency_ns=5000):
    return {"bytes_per_s": rate, "latency_ns": latency_ns}


def machine(has_ssd):
    tiers = [{"name": "device", "store": "device", "capacity_bytes": DEVICE},
             {"name": "host", "store": "memory", "capacity_bytes": HOST}]
    rate = PCIE - SSD if has_ssd else PCIE
    links = [{"near": "device", "far": "host", "out": way(rate), "in": way(rate)}]
    if has_ssd:
        links.append({"near": "device", "far": "disk", "out": way(SSD, 25000), "in": way(SSD, 25000)})
    return {"format": "ebb-machine", "version": 2, "tiers": tiers, "links": links, "rates": {"overhead_ns": 0}}


def trace(folder, network, batch):
    return os.path.join(folder, network, f"{batch}-FlashNeuron", "statistics", "kernels.config")


class Planner:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.ebb = os.path.join(args.build, "ebb")
        self.program = os.path.join(folder, "g10.program")
        self.machines = [os.path.join(folder, f"{name}.json") for name in ("host", "ssd")]
        for has_ssd, path in enumerate(self.machines):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(machine(bool(has_ssd)), file)

    def plan(self, path, *options):
        disk = ["--disk", self.folder] if path == self.machines[True] else []
        return plan(self.ebb, self.program, "--machine", path, "--host-memory", str(HOST), *disk, *options)

    def row(self, instance):
        network, batch = instance
        subprocess.run([self.ebb, "import", trace(self.args.folder, network, batch), "-o", self.program],
                       check=True, stdout=subprocess.DEVNULL)
        free = self.plan(self.machines[0], "--policy", "liveness")
        ideal_s, needs = free["step_time_predicted_s"], free["liveness_bytes"]
        path = self.machines[needs > DEVICE + HOST]
        row = [network, batch, f"{ideal_s:.4f}", needs,
               *("fails" if x is FAILS else f"{x:.4f}" for x in PUBLISHED[network][batch])]
        for name in self.args.ways:
            got = self.plan(path, "--memory", str(DEVICE), "--effort", str(self.args.effort), *WAYS[name])
            row += [*time_over(got, ideal_s), *(got.get(key, "") for key in
                    ("peak_planned_bytes", "moved_out_bytes", "recomputed_steps")), f"{got['plan_cpu_s']:.1f}"]
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--networks", help="as bert-256; default: all that have a trace")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS), help="default: all")
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("-o", dest="out")
    args = parser.parse_args()
    wanted = args.networks and args.networks.lower().split(",")
    if unknown := set(args.ways) - set(WAYS):
        parser.error(f"no way is called {', '.join(sorted(unknown))}")
    instances = [(network, batch) for network, batches in PUBLISHED.items() for batch in batches
                 if os.path.exists(trace(args.folder, network, batch))
                 and (not wanted or f"{network.split('_')[0].lower()}-{batch}" in wanted)]
    if not instances:
        sys.exit(f"{args.folder}: no traces")
    with tempfile.TemporaryDirectory() as folder:
        for row in written(args.out, columns(args.ways), map(Planner(args, folder).row, instances)):
            if args.out:
                print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
