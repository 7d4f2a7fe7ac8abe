#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures and tables of SuperNeurons (Wang et al., PPoPP 2018) beside ebb's: by the same rule, and by `best`.

    bench/paper_superneurons.py --ebb build/release/ebb [-o bench/results/FILE.csv] [--docs docs/papers.md]

A row is one figure of the paper: commit, table or figure, what it is of, unit, the paper's number, ebb's by the same rule,
ebb's by the policy best, and a note. "The same rule" is a policy of that paper in paper accounting. Times are predicted for
a machine with the nominal rates of the paper's card (K40: 4.29 TFLOPS, 288 GB/s) and its 8 GB/s between card and host.
--docs writes the rows into that page, between the lines <!-- superneurons --> and <!-- end -->.
"""
import argparse
import collections
import csv
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

from paper_docs import write_docs
from provenance import commit

GIB, MIB = 2**30, 2**20
CARD = 12 * GIB
NETS = ["alexnet", "vgg16", "inception4", "resnet50", "resnet101", "resnet152"]
K40 = {"format": "ebb-machine", "version": 2,
       "links": [{"near": "device", "far": "host", "out": {"bytes_per_s": 8e9}, "in": {"bytes_per_s": 8e9}}],
       "rates": {"flops_per_s": 4.29e12, "bytes_per_s": 2.88e11, "overhead_ns": 10000}}

PEAKS = [("none", "baseline", 2189.437), ("liveness", "liveness", 1489.355), ("utp", "offload and prefetch", 1132.155),
         ("superneurons", "cost-aware recomputation", 886.385)]
TABLE_1 = [("alexnet", "recompute-speed", 14, 993.018), ("alexnet", "recompute-memory", 23, 886.23),
           ("alexnet", "recompute-cost-aware", 17, 886.23), ("resnet50", "recompute-speed", 84, None),
           ("resnet50", "recompute-memory", 118, None), ("resnet50", "recompute-cost-aware", 85, None),
           ("resnet101", "recompute-speed", 169, None), ("resnet101", "recompute-memory", 237, None),
           ("resnet101", "recompute-cost-aware", 170, None)]
TABLE_3 = [(256, 2.56, 0), (384, 3.72, 0), (512, 4.88, 0), (640, 6.03, 0), (896, 8.35, 0), (1024, 9.50, 0.88)]
TABLE_5 = {"alexnet": (1792, 27.8), "vgg16": (224, 54.5), "inception4": (240, 139.5), "resnet50": (384, 123.2),
           "resnet101": (256, 137.6), "resnet152": (176, 143.6)}  # largest batch; figure 13's demand in GB
FIGURE_2 = {"alexnet": (200, 3.05), "vgg16": (32, 7.37), "vgg19": (32, 7.94), "inception4": (32, 17.8),
            "resnet50": (32, 8.42), "resnet101": (32, 12.8), "resnet152": (32, 18.1)}
FIGURE_8 = {"alexnet": dict(conv=21, relu=32, pool=19, lrn=28), "vgg16": dict(conv=37, relu=47, pool=16),
            "resnet50": dict(conv=34, relu=30, batch_norm=35)}
FIGURE_11 = [("alexnet", 128, 1.095), ("vgg16", 32, 1.083), ("inception4", 32, 1.264), ("resnet50", 32, 1.500),
             ("resnet101", 32, 1.455), ("resnet152", 32, 1.410)]


class Ebb:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder
        self.machine = os.path.join(folder, "k40.json")
        with open(self.machine, "w", encoding="utf-8") as file:
            json.dump(K40, file)

    def plan(self, net, batch, policy, *options, paper=True):
        """What `ebb plan --json` says; None: there is no plan."""
        words = [self.path, "plan", net, "--batch", str(batch), "--policy", policy, "--machine", self.machine, "--json"]
        words += ["--accounting", "paper"] if paper else ["--backend", "dry"]
        done = subprocess.run([*words, *options], capture_output=True, text=True, check=False)
        if done.returncode == 1:
            return None
        if done.returncode != 0:
            sys.exit(f"{shlex.join(words)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def program(self, net, batch, *options):
        """Tensors (name, bytes, role) and steps (kind, writes) of a program."""
        path = os.path.join(self.folder, "program")
        subprocess.run([self.path, "plan", net, "--batch", str(batch), "--policy", "liveness", *options, "--program-out",
                        path], check=True, stdout=subprocess.DEVNULL)
        tensors, steps = [], []
        with open(path, encoding="utf-8") as file:
            for line in file:
                words = shlex.split(line)
                if words[:1] == ["tensor"]:
                    tensors.append((words[2], int(words[3]), words[4]))
                elif words[:1] == ["step"]:
                    accesses = " ".join(words[5:])
                    found = re.search(r"\bwrite((?: \d+)+)", accesses)
                    steps.append((words[3], [int(t) for t in found.group(1).split()] if found else []))
        return tensors, steps

    def parameter_bytes(self, net):
        tensors, _ = self.program(net, 1, "--backend", "dry")
        return sum(size for _, size, role in tensors if role == "parameter")


def largest(fits, start, step):
    """The largest multiple of step that fits, from one that does or not on."""
    low, high = 0, start
    while fits(high):
        low, high = high, 2 * high
    while high - low > step:
        middle = (low + high) // 2 // step * step
        middle = max(middle, low + step)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def figure_10(ebb):
    base = ebb.plan("alexnet", 200, "liveness")["step_time_predicted_s"]
    for policy, what, paper in PEAKS:
        got = ebb.plan("alexnet", 200, policy, "--memory", "886.24MiB") if policy == "superneurons" else \
            ebb.plan("alexnet", 200, policy)
        budget = str(got["peak_planned_bytes"])
        best = ebb.plan("alexnet", 200, "best", "--memory", budget)
        times = [f"{(plan['step_time_predicted_s'] / base - 1) * 100:.1f} %" for plan in (got, best)]
        yield ["figure 10", f"AlexNet b200, {what}", "MiB", f"{paper:.3f}", f"{got['peak_planned_bytes'] / MIB:.3f}",
               f"{best['peak_planned_bytes'] / MIB:.3f}", f"time over liveness: {times[0]} by the rule, {times[1]} by best"]
    floor = ebb.plan("alexnet", 200, "liveness")["floor_bytes"]
    got, best = (ebb.plan("alexnet", 200, policy, "--memory", str(floor)) for policy in ("superneurons", "best"))
    times = [f"{(plan['step_time_predicted_s'] / base - 1) * 100:.1f} %" for plan in (got, best)]
    yield ["figure 10", "AlexNet b200, least", "MiB", "886.23", f"{got['peak_planned_bytes'] / MIB:.3f}",
           f"{best['peak_planned_bytes'] / MIB:.3f}",
           f"what one step touches; time over liveness: {times[0]} by the rule, {times[1]} by best"]


def table_1(ebb):
    for net, policy, again, peak in TABLE_1:
        got = ebb.plan(net, 200 if net == "alexnet" else 16, policy)
        best = ebb.plan(net, 200 if net == "alexnet" else 16, "best", "--memory", str(got["peak_planned_bytes"]))
        yield ["table 1", f"{net}, {policy}", "steps", again, got["recomputed_steps"], best["recomputed_steps"],
               "best: within the same bytes"]
        if peak is not None:
            yield ["table 1", f"{net}, {policy}", "MiB", peak, f"{got['peak_planned_bytes'] / MIB:.3f}",
                   f"{best['peak_planned_bytes'] / MIB:.3f}", ""]


def moved_gb(plan):
    return f"{(plan['moved_out_bytes'] + plan['moved_in_bytes']) / 1e9:.2f}"


def table_3(ebb):
    budget = str(CARD - 3 * ebb.parameter_bytes("alexnet"))
    for batch, without, cached in TABLE_3:
        yield ["table 3", f"AlexNet b{batch}, no cache", "GB", without, moved_gb(ebb.plan("alexnet", batch, "utp")), "",
               "utp: once each way; the paper moved 1.74 times as much"]
        yield ["table 3", f"AlexNet b{batch}, cache", "GB", cached,
               moved_gb(ebb.plan("alexnet", batch, "tensor-cache", "--memory", budget)),
               moved_gb(ebb.plan("alexnet", batch, "best", "--memory", budget)), "12 GiB less three times the parameters"]


def table_4(ebb):
    deep = [ebb.parameter_bytes(f"resnet:6,32,{n3},6") for n3 in (6, 7)]
    size = deep[1] - deep[0]

    def fits(n3):
        rest = CARD - 3 * (deep[0] + (n3 - 6) * size)
        return rest > 0 and ebb.plan(f"resnet:6,32,{n3},6", 16, "superneurons", "--memory", str(rest)) is not None

    n3 = largest(fits, 595, 5)
    yield ["table 4", "ResNet b16, depth in 12 GB", "layers", 1920, 134 + 3 * n3, "", f"n3 = {n3}; parameters bind"]
    n3 = 3000
    got = ebb.plan(f"resnet:6,32,{n3},6", 16, "best", "--memory", str(CARD), paper=False)
    yield ["table 4", "ResNet b16, a depth that fits", "layers", 1920, "", 134 + 3 * n3 if got else "",
           f"n3 = {n3}, everything counted; parameters and their state go out too; not the limit"]


def table_5(ebb):
    for net in NETS:
        batch, demand = TABLE_5[net]
        rest = CARD - 3 * ebb.parameter_bytes(net)
        by_rule = largest(lambda b: ebb.plan(net, b, "superneurons", "--memory", str(rest)) is not None, batch, 8)
        by_best = largest(lambda b: ebb.plan(net, b, "budget", "--memory", str(CARD), paper=False) is not None, batch, 8)
        yield ["table 5", f"{net}, largest batch in 12 GB", "images", batch, by_rule, by_best,
               "rule: without workspaces; best: everything that dry counts; it has a plan where budget has one"]
        got = ebb.plan(net, batch, "none")["peak_planned_bytes"] + 3 * ebb.parameter_bytes(net)
        live = ebb.plan(net, batch, "liveness", paper=False)["liveness_bytes"]
        yield ["figure 13", f"{net} b{batch}, demand", "GB", demand, f"{got / 1e9:.1f}", f"{live / 1e9:.1f}",
               "rule: all tensors and three times the parameters; best: liveness of what dry counts"]


def figure_2(ebb):
    for net, (batch, paper) in FIGURE_2.items():
        got = ebb.plan(net, batch, "none")["peak_planned_bytes"] + 3 * ebb.parameter_bytes(net)
        yield ["figure 2", f"{net} b{batch}, without workspaces", "GB", paper, f"{got / 1e9:.2f}", "",
               "all tensors and three times the parameters"]


def figure_8(ebb):
    for net, shares in FIGURE_8.items():
        tensors, steps = ebb.program(net, 8, "--accounting", "paper")
        by_kind, counted = collections.Counter(), set()
        for kind, writes in steps:
            for tensor in writes:
                if tensor not in counted:
                    counted.add(tensor)
                    by_kind[re.sub("^(max|avg)_", "", re.sub("_bwd$", "", kind))] += tensors[tensor][1]
        total = sum(by_kind.values())
        for kind, paper in shares.items():
            yield ["figure 8", f"{net}, share of {kind}", "% of memory", paper, f"{100 * by_kind[kind] / total:.1f}", "",
                   "all tensors that its layers make"]


def figure_11(ebb):
    for net, batch, paper in FIGURE_11:
        budget = str(CARD - 3 * ebb.parameter_bytes(net))
        without = ebb.plan(net, batch, "utp")["step_time_predicted_s"]
        cached, best = (ebb.plan(net, batch, policy, "--memory", budget)["step_time_predicted_s"]
                        for policy in ("tensor-cache", "best"))
        yield ["figure 11", f"{net} b{batch}, speed with the cache over without", "ratio", paper, f"{without / cached:.3f}",
               f"{without / best:.3f}", "predicted, copies beside computing"]


def without_card():
    for what, why in [("table 2, pool against cudaMalloc", "times of an allocator on a card"),
                      ("figure 12, workspaces", "the workspaces of cuDNN's algorithms"),
                      ("figure 14, images per second", "times on a card")]:
        yield [what.split(",")[0], what.split(", ")[1], "", "", "", "", f"needs a card: {why}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--only", help="rows of these parts: figure_10,table_1 ...")
    parser.add_argument("-o", "--output")
    parser.add_argument("--docs")
    args = parser.parse_args()
    parts = [figure_10, table_1, table_3, table_4, table_5, figure_2, figure_8, figure_11]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        ebb = Ebb(args.ebb, folder)
        for part in parts:
            if args.only and part.__name__ not in args.only.split(","):
                continue
            for row in part(ebb):
                rows.append(row)
                print(*row, sep=" | ", file=sys.stderr, flush=True)
    rows += list(without_card()) if not args.only else []
    output = open(args.output, "w", newline="", encoding="utf-8") if args.output else sys.stdout
    writer = csv.writer(output)
    writer.writerow(["commit", "figure", "of", "unit", "paper", "same_rule", "best", "note"])
    writer.writerows([commit(), *row] for row in rows)
    if args.docs:
        write_docs(args.docs, "<!-- superneurons -->", "<!-- end -->", "best", rows)


if __name__ == "__main__":
    main()
