#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables and figures of AutoSwap (Zhang et al., arXiv 1903.06631) beside ebb's: by the same rule, and by `swap`.

    bench/paper_autoswap.py --ebb build/release/ebb [--traces DIR] [-o bench/results/FILE.csv] [--docs docs/papers.md]

A row is one figure of the paper: commit, table or figure, what it is of, unit, the paper's number, ebb's by the same rule,
ebb's by the policy swap, and a note. Table II and figure 10 are of CIFAR's networks at batch 100 in paper accounting, on a
machine with the paper's model of copies and with rates with which VGG-16 takes the 81.6 ms of the authors' trace.

DIR holds vec_block_fresh_vgg.csv and load_origin_vgg.csv of github junzhezhang/memInfoSwap, which have no licence and so are
not here. Without it figure 9 has no row of ours. --docs writes the rows into that page, between the lines
<!-- autoswap --> and <!-- end of autoswap -->.
"""
import argparse
import csv
import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile

from paper_docs import write_docs
from provenance import commit

MIB = 2**20
HERE = os.path.dirname(os.path.abspath(__file__))
MACHINE = {"format": "ebb-machine", "version": 2,
           "links": [{"near": "device", "far": "host", "out": {"bytes_per_s": 13227513228, "latency_ns": 47200},
                      "in": {"bytes_per_s": 12150668287, "latency_ns": 9700}}],
           "rates": {"flops_per_s": 2.65e12, "bytes_per_s": 1.51e11, "overhead_ns": 13000}}
TABLE_2 = [("resnet18_cifar", 20.7), ("resnet34_cifar", 24.8), ("resnet50_cifar", 34.2), ("resnet101_cifar", 32.4),
           ("vgg11_cifar", 27.0), ("vgg13_cifar", 29.3), ("vgg16_cifar", 30.9), ("vgg19_cifar", 28.5)]
FIGURE_9 = {"aoa": (490, 13.934525), "doa": (530, 12.090582), "wdoa": (450, 10.889456), "swdoa": (450, 12.090582)}
FIGURE_10 = [("resnet50_cifar", 60, 15), ("vgg16_cifar", 60, 15)]
PEAK_EVENT = 1369  # of the authors' trace
ITERATION_MS = 81.57  # the trace's
LOWEST, HIGHEST = 280, 670  # limits of figure 9 in MiB, by 10
TEXT = 350                 # of which the text speaks


class Ebb:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder
        self.machine = os.path.join(folder, "machine.json")
        with open(self.machine, "w", encoding="utf-8") as file:
            json.dump(MACHINE, file)

    def run(self, *words):
        done = subprocess.run([self.path, *words], capture_output=True, text=True, check=False)
        if done.returncode == 1:
            return None
        if done.returncode != 0:
            sys.exit(f"{shlex.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def plan(self, what, policy, *options):
        """What `ebb plan --json` says; None: there is no plan."""
        out = self.run("plan", what, "--policy", policy, "--machine", self.machine, "--json", *options)
        return json.loads(out) if out is not None else None

    def net(self, net, policy, *options, effort=0):
        options = ("--batch", "100", "--accounting", "paper", "--effort", str(effort), *options)
        return self.plan(net, policy, *options)


def table_2(ebb):
    for net, paper in TABLE_2:
        peak = ebb.net(net, "liveness")["peak_planned_bytes"]
        saved = [100 * (1 - ebb.net(net, policy, "--slowdown", "0%")["peak_planned_bytes"] / peak)
                 for policy in ("autoswap-bo", "swap")]
        yield ["table II", f"{net}, saved at no overhead", "%", paper, f"{saved[0]:.1f}", f"{saved[1]:.1f}",
               "autoswap-bo; another network's load than the paper's"]


def figure_10(ebb):
    for net, saved, overhead in FIGURE_10:
        whole = ebb.net(net, "liveness")
        memory = str(int(whole["peak_planned_bytes"] * (100 - saved) / 100))
        cells = []
        for policy in ("autoswap-bo", "swap"):
            plan = ebb.net(net, policy, "--memory", memory, effort=1)
            more = plan and 100 * (plan["step_time_predicted_s"] / whole["step_time_predicted_s"] - 1)
            cells.append(f"{more:.1f}" if plan else "no plan")
        yield ["figure 10", f"{net}, time over liveness with {saved} % saved", "%", f"under {overhead}", *cells,
               "read from a drawing; loads, not pools"]


def overheads(folder):
    """By rule, the overhead in ms at each limit: the authors' rules on their trace, as coded."""
    files = [os.path.join(folder, name) for name in ("vec_block_fresh_vgg.csv", "load_origin_vgg.csv")]
    script = os.path.join(HERE, "..", "tests", "golden", "autoswap.py")
    out = subprocess.run([sys.executable, script, *files, str(PEAK_EVENT)], capture_output=True, text=True, check=True)
    found = {}
    for line in out.stdout.splitlines():
        words = line.split()
        if words[:2] == ["expect", "coded"]:
            found.setdefault(words[2], {})[int(words[3]) // MIB] = float(words[4]) / 1e6
    return found


def figure_9(ebb, folder):
    if folder is None:
        yield ["figure 9", "VGG16, overhead over limits", "", "", "", "", "needs the authors' trace: --traces"]
        return
    found = overheads(folder)
    for rule, (zero, at_lowest) in FIGURE_9.items():
        limits = [limit for limit, ms in found[rule].items() if ms > 0]
        yield ["figure 9", f"VGG16 by {rule}, no overhead from", "MiB", zero, max(limits) + 10, "", "at all limits above"]
        yield ["figure 9", f"VGG16 by {rule}, overhead at {LOWEST} MiB", "ms", f"{at_lowest:.3f}",
               f"{found[rule][LOWEST]:.3f}", "", "as the authors count it"]
    least = {limit: min(found[rule][limit] for rule in FIGURE_9) for limit in range(LOWEST, HIGHEST + 1, 10)}
    mixed = max(limit for limit, ms in least.items() if ms > 0) + 10
    with open(os.path.join(folder, "load_origin_vgg.csv"), encoding="utf-8") as file:
        load = max(float(line) for line in file)
    trace = os.path.join(ebb.folder, "vgg.ebb")
    ebb.run("import", os.path.join(folder, "vec_block_fresh_vgg.csv"), "--format", "singa", "-o", trace)
    whole = ebb.plan(trace, "liveness")
    before = load - whole["peak_planned_bytes"]  # what the trace does not tell was there before
    zero = ebb.plan(trace, "swap", "--slowdown", "0%", "--effort", "1")
    yield ["figure 9", "VGG16, the best of all scores, no overhead from", "MiB", 450, mixed,
           f"{(zero['peak_planned_bytes'] + before) / MIB:.1f}", "swap: simulated, with its stalls"]
    text = ebb.plan(trace, "swap", "--memory", str(int(TEXT * MIB - before)), "--effort", "1")
    out_ms = [1e3 * engine["busy_predicted_s"] for engine in text["engines"] if engine["engine"] == "host-out"]
    yield ["section VI", f"VGG16 below {TEXT} MB, copies out take", "ms", 28.9, "", f"{out_ms[0]:.1f}", ""]
    yield ["section VI", f"VGG16 below {TEXT} MB, overhead", "ms", 7.3, f"{least[TEXT]:.1f}",
           f"{1e3 * (text['step_time_predicted_s'] - whole['step_time_predicted_s']):.1f}", "rule: the best of all scores"]
    low = ebb.plan(trace, "swap", "--memory", str(int(LOWEST * MIB - before)), "--effort", "4")
    more = 100 * (low["step_time_predicted_s"] / whole["step_time_predicted_s"] - 1) if low else None
    yield ["figure 9", f"VGG16, the best of all scores, overhead at {LOWEST} MiB", "%", f"{100 * 10.889456 / ITERATION_MS:.2f}",
           f"{100 * least[LOWEST] / ITERATION_MS:.2f}", f"{more:.1f}" if low else "no plan",
           "swap: simulated, with its stalls, effort 4; the rules' overheads are only added up"]


def without_card():
    yield ["table I", "CnMem and SmartPool", "", "", "", "", "below; times of cudaMalloc need a card"]
    yield ["figure 11", "GeePS, MXNet-memonger, SuperNeurons", "", "", "", "",
           "needs a card: their own run times; a drawing without numbers"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--traces", help="the folder of the authors' trace")
    parser.add_argument("-o", "--output")
    parser.add_argument("--docs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ebb = Ebb(args.ebb, folder)
        rows = []
        for row in itertools.chain(table_2(ebb), figure_9(ebb, args.traces), figure_10(ebb), without_card()):
            rows.append(row)
            print(*row, sep=" | ", file=sys.stderr, flush=True)
    if args.docs:
        write_docs(args.docs, "<!-- autoswap -->", "<!-- end of autoswap -->", "swap", rows)
    out = open(args.output, "w", encoding="utf-8", newline="") if args.output else sys.stdout
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["commit", "figure", "of", "unit", "paper", "same_rule", "swap", "note"])
    writer.writerows([commit(), *row] for row in rows)


if __name__ == "__main__":
    main()
