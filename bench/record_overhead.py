#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What recording costs: ebb's own runtime, the recorder for PyTorch, and `ebb record`, as CSV.

    bench/record_overhead.py --ebb build/release/ebb [--torch PYTHON]... [--rounds N]

Recorded and plain steps take turns, so that whatever else the machine does falls on both. ebb's are steps of one run, of
which the second half is recorded; PyTorch's alternate one by one, inside and outside of one recorder; `ebb record` is
beside the same command without it, by the processor's time of all its processes. A row: commit, machine, recorder, what
runs, pairs, median time plain and recorded, and the median, 10 % and 90 % quantiles of the ratio of pairs.
"""
import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..")
EBB_RUNS = [["mlp", "--batch", "512"], ["resnet20", "--batch", "32"], ["resnet50", "--batch", "4", "--image", "64x64"],
            ["resnet20", "--batch", "32", "--memory", "40%"]]
WARM_UP = 2


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


class Table:
    def __init__(self):
        sys.path.insert(0, HERE)
        import provenance
        self.begin = [provenance.commit(), provenance.processor()]
        self.writer = csv.writer(sys.stdout, lineterminator="\n")
        self.writer.writerow("commit machine recorder what pairs plain_s recorded_s ratio ratio_p10 ratio_p90".split())

    def row(self, recorder, what, pairs):
        ratios = [recorded / plain for plain, recorded in pairs]
        medians = [statistics.median(side) for side in zip(*pairs)]
        self.writer.writerow([*self.begin, recorder, what, len(pairs), *(f"{m:.6f}" for m in medians),
                              *(f"{r:.4f}" for r in (statistics.median(ratios), quantile(ratios, 0.1),
                                                     quantile(ratios, 0.9)))])
        sys.stdout.flush()


# ---- ebb train --record --------------------------------------------------------------------------

def measure_ebb(ebb, table, rounds, folder):
    for run in EBB_RUNS:
        half, pairs = 10, []
        for _ in range(rounds):
            command = [ebb, "train", *run, "--steps", str(2 * half + WARM_UP), "--json", "--no-eval", "--record",
                       os.path.join(folder, "own"), "--record-steps", str(half)]
            lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
            times = [json.loads(line)["time_s"] for line in lines if line.startswith('{"step"')]
            pairs.append((statistics.median(times[WARM_UP:-half]), statistics.median(times[-half:])))
        table.row("ebb train --record", " ".join(run), pairs)


# ---- ebb.torch.record ----------------------------------------------------------------------------

def torch_nets():
    import torch

    class Transformer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
            self.embedding, self.layers = torch.nn.Embedding(1000, 256), torch.nn.TransformerEncoder(layer, 24)
            self.out = torch.nn.Linear(256, 1000)

        def forward(self, x):
            return self.out(self.layers(self.embedding(x)).mean(1))

    def mlp():
        layers = [torch.nn.Linear(1024, 1024), torch.nn.ReLU()] * 3
        return torch.nn.Sequential(*layers, torch.nn.Linear(1024, 10)), torch.randn(512, 1024), torch.randint(0, 10, (512,))

    def resnet50():
        import torchvision
        return torchvision.models.resnet50(num_classes=10), torch.randn(8, 3, 128, 128), torch.randint(0, 10, (8,))

    def transformer():
        return Transformer(), torch.randint(0, 1000, (8, 64)), torch.randint(0, 1000, (8,))

    return {"mlp 4x1024 batch 512": mlp, "resnet50 batch 8 128x128": resnet50,
            "transformer 24x256 batch 8x64": transformer}


def torch_worker(rounds):
    """Prints a line a network: JSON of [name, pairs]."""
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import torch
    import ebb.torch
    from torch.utils._python_dispatch import TorchDispatchMode
    for name, make in torch_nets().items():
        net, x, y = make()
        optimizer, loss = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9), torch.nn.CrossEntropyLoss()

        def step():
            begin = time.perf_counter()
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
            return time.perf_counter() - begin
        with tempfile.TemporaryDirectory() as folder:
            recorder, pairs = ebb.torch.record(os.path.join(folder, "trace")), []
            for _ in range(WARM_UP):
                step()
            with recorder:
                for _ in range(WARM_UP):
                    step()
                for _ in range(rounds):
                    TorchDispatchMode.__exit__(recorder, None, None, None)  # the mode steps aside, the trace stays open
                    plain = step()
                    TorchDispatchMode.__enter__(recorder)
                    pairs.append((plain, step()))
        print(json.dumps([f"torch {torch.__version__}: {name}", pairs]), flush=True)


def measure_torch(python, table, rounds):
    command = [python, "-W", "ignore", os.path.abspath(__file__), "--torch-worker", str(rounds)]
    for line in subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines():
        table.row("ebb.torch.record", *json.loads(line))


# ---- ebb record ----------------------------------------------------------------------------------

def processor_time(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_preload(ebb, table, rounds, folder):
    program = os.path.join(folder, "program")
    subprocess.run(["cc", "-std=gnu11", "-O2", "-fno-builtin", "-D_GNU_SOURCE", "-w", "-rdynamic", "-o", program,
                    os.path.join(ROOT, "tests", "e2e", "record", "program.c"), "-ldl", "-pthread"], check=True)
    train = [ebb, "train", "resnet20", "--batch", "32", "--steps", "10", "--no-eval"]
    for what, command in (("20 million malloc and free of 16 to 515 bytes", [program, "small"]),
                          ("200,000 malloc and free of 100 KiB, a frame deep", [program, "large"]),
                          ("ebb train resnet20, 10 steps", train)):
        record = [ebb, "record", "-o", os.path.join(folder, "trace"), "--", *command]
        pairs = [(processor_time(command), processor_time(record)) for _ in range(rounds)]
        if command[-1] == "large":  # without, it does next to nothing: what counts is the difference
            what += f" (a pair {statistics.median(r - p for p, r in pairs) / 200000 * 1e6:.2f} us more)"
        table.row("ebb record", what, pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--torch", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch-worker", type=int)
    args = parser.parse_args()
    if args.torch_worker:
        torch_worker(args.torch_worker)
        return
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        measure_ebb(args.ebb, table, args.rounds, folder)
        measure_preload(args.ebb, table, args.rounds, folder)
    for python in args.torch:
        measure_torch(python, table, 2 * args.rounds)


if __name__ == "__main__":
    main()
