#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training inside budgets beside training without one, executed on the backend cpu: what a budget costs in fact.

    bench/race_executed.py [--ebb build/release/ebb] [--beside OTHER/ebb] [--memory 50,25] [--disk DIR] [--steps 20]
                           [-o FILE.csv] [NET:BATCH...]

The kernels of each network are measured once. Then a process for each budget and one without trains it, all at once, but
only one of them runs at a time: each is let go on (SIGCONT) until it says that a step is done, and is halted there
(SIGSTOP), in turn. So a machine whose speed drifts does so for all. The first two steps of each count for nothing. A
budget is a per cent of what the policy liveness needs. --disk adds a row for the first budget with the file tier alone;
--beside adds rows for another build of ebb, which trains in turn with this one.

A row: commit, processor, program, budget, tier, median seconds of a step, predicted seconds, measured over predicted, the
time over that of the process without a budget (the median over the rounds), the same as predicted, the bound on it, the
peaks planned and measured, steps computed again, bytes copied out, and whether the weights at the end are those of the
process without a budget.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from provenance import written

COLUMNS = ["commit", "processor", "program", "memory_percent", "tier", "median_s", "predicted_s", "measured_over_predicted",
           "ratio", "ratio_predicted", "ratio_bound", "peak_planned_bytes", "peak_measured_bytes", "again", "out_bytes",
           "same_bits"]
CASES = ["resnet50:16", "vgg16:8", "densenet121:8", "resnet152:4"]
WARM_STEPS = 2


class Contender:
    def __init__(self, name, tier, command):
        self.name, self.tier = name, tier
        self.times, self.result = [], None
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.process.send_signal(signal.SIGSTOP)

    def run_a_step(self):
        self.process.send_signal(signal.SIGCONT)
        start = time.monotonic()
        line = self.process.stdout.readline()
        took_s = time.monotonic() - start
        if not line:
            sys.exit(f"{self.name} %: ebb train ended early")
        self.process.send_signal(signal.SIGSTOP)
        said = json.loads(line)
        if "step" in said and "time_s" in said:
            self.times.append(took_s)

    def finish(self):
        self.process.send_signal(signal.SIGCONT)
        rest = self.process.stdout.read()
        if self.process.wait() != 0:
            sys.exit(f"{self.name}: ebb train failed")
        self.result = json.loads(rest.splitlines()[-1])


def contenders(args, net, batch, machine):
    shared = [args.ebb, "train", net, "--batch", batch, "--backend", "cpu", "--machine", machine, "--no-eval", "--steps",
              str(args.steps + WARM_STEPS), "--json"]
    yield Contender("100", "", [*shared, "--policy", "liveness"])
    budgets = args.memory.split(",")
    for percent in budgets:
        yield Contender(percent, "host", [*shared, "--memory", percent + "%"])
        if args.beside:
            yield Contender(percent, "host, beside", [args.beside, *shared[1:], "--memory", percent + "%"])
    if args.disk:
        yield Contender(budgets[0], "file", [*shared, "--memory", budgets[0] + "%", "--host-memory", "0", "--disk", args.disk])


def rows_of(args, case):
    net, batch = case.split(":")
    with tempfile.TemporaryDirectory() as folder:
        machine = os.path.join(folder, "machine")
        disk = ["--disk", args.disk] if args.disk else []
        subprocess.run([args.ebb, "probe", net, "--batch", batch, "--backend", "cpu", *disk, "-o", machine], check=True,
                       stdout=subprocess.DEVNULL)
        racers = list(contenders(args, net, batch, machine))
        for _ in range(args.steps + WARM_STEPS):
            for racer in racers:
                racer.run_a_step()
        for racer in racers:
            racer.finish()
        bounds = [bound_of(args, net, batch, machine, racer) for racer in racers]
    free = racers[0].result
    for racer, bound_s in zip(racers, bounds):
        got, median_s = racer.result, statistics.median(racer.times[WARM_STEPS:])
        predicted_s = got["step_time_predicted_s"]
        yield [case, racer.name, racer.tier, f"{median_s:.4f}", f"{predicted_s:.4f}", f"{median_s / predicted_s:.4f}",
               f"{paired_ratio(racer, racers[0]):.4f}", f"{predicted_s / free['step_time_predicted_s']:.4f}",
               f"{bound_s / free['step_time_predicted_s']:.4f}", got["peak_planned_bytes"], got["peak_measured_bytes"],
               got["recomputed_steps"], got["moved_out_bytes"],
               "yes" if got["weights_sha256"] == free["weights_sha256"] else "NO"]


def paired_ratio(racer, free):
    return statistics.median(mine / its for mine, its in zip(racer.times[WARM_STEPS:], free.times[WARM_STEPS:]))


def bound_of(args, net, batch, machine, racer):
    tiers = ["--host-memory", "0", "--disk", args.disk] if racer.tier == "file" else []
    done = subprocess.run([args.ebb, "plan", net, "--batch", batch, "--backend", "cpu", "--machine", machine, *tiers,
                           "--memory", racer.name + "%", "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["bound_step_time_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--beside")
    parser.add_argument("--memory", default="50,25")
    parser.add_argument("--disk")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("-o", dest="out")
    args = parser.parse_args()
    rows = (row for case in args.cases for row in rows_of(args, case))
    for row in written(args.out, COLUMNS, rows):
        if args.out:
            print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
