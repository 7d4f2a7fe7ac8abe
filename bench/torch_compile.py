#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.compile beside torch.compile's own budget: peaks and recomputed work of the graphs that come out.

    EBB_LIBRARY=build/release/libebb.so PYTHON bench/torch_compile.py [-o FILE.csv] [--nets gpt,vit] [--effort N]

PYTHON has torch 2.15. The joint graph of a training step is captured once for each network. At 20 values of PyTorch's
`activation_memory_budget` its own partitioner (the knapsack solver "dp") makes a forward and a backward graph; ebb is then
asked for graphs within that peak (way "at its peak"), and within 20 budgets from the least to the peak of PyTorch's graphs
without a budget (way "even"). Peaks of both come from the graphs alone, by the lives of storages (ebb.torch's peak_bytes,
which e2e tests compare with an allocation counter). Recomputed work is that of the two graphs less that of the joint graph:
floating-point operations as PyTorch counts them, and microseconds on a machine with ebb's round figures.
"""
import argparse
import csv
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "python"), os.path.join(HERE, "..", "tests", "e2e")]

import torch
from torch import nn
from torch._functorch import config, partitioners

import torch_budget_nets as nets
from ebb.torch import _compile
from provenance import commit

COLUMNS = ("commit", "torch", "net", "nodes", "way", "asked", "torch_peak_bytes", "torch_recomputed_us",
           "torch_recomputed_flops", "asked_bytes", "ebb_peak_bytes", "ebb_recomputed_us", "ebb_recomputed_flops",
           "ebb_seconds")
FLOPS, BYTES, OVERHEAD_US = 2e11, 2e10, 5  # as ebb_machine_create has them
N = 20


class Bottleneck(nn.Module):
    def __init__(self, n_in, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        self.short = nn.Identity() if n_in == 4 * width else nn.Sequential(
            nn.Conv2d(n_in, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def resnet50(width=8):
    blocks, n_in = [], width
    for i, n in enumerate((3, 4, 6, 3)):
        for j in range(n):
            blocks.append(Bottleneck(n_in, width << i, 2 if i and not j else 1))
            n_in = 4 * width << i
    return nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                         *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, 10))


def text(batch, length):
    x = torch.randint(0, 512, (batch, length + 1))
    return x[:, :-1], x[:, 1:]


NETS = {
    "gpt": lambda: (nets.Gpt(96, 12, 128), text(8, 128)),
    "vit": lambda: (nets.Vit(96, 12), (torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,)))),
    "resnet50": lambda: (resnet50(), (torch.randn(16, 3, 96, 96), torch.randint(0, 10, (16,)))),
    "unet": lambda: (nets.Unet(8), (torch.randn(8, 3, 64, 64), torch.randint(0, 4, (8, 64, 64)))),
}


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        out = self.model(x)
        return nn.functional.cross_entropy(out.flatten(0, 1), y.flatten()) if out.ndim == 3 else \
            nn.functional.cross_entropy(out, y)


def work(graphs):
    """(microseconds, floating-point operations) of all nodes."""
    us = flops = 0.0
    for graph in graphs:
        for node in graph.nodes:
            if node.op == "call_function" and _compile._tensors(node) and not is_view(node):
                n, traffic = _compile.work(node)
                us += max(n / FLOPS, traffic / BYTES) * 1e6 + OVERHEAD_US
                flops += n
    return us, flops


def is_view(node):
    known = {s for value in node.all_input_nodes for s in _compile._storages(value)}
    return not _compile._is_copy(node) and bool(known) and known.issuperset(_compile._storages(node))


def again(parts, once):
    us, flops = work([part.graph for part in parts])
    return us - once[0], flops - once[1]


class Race:
    """The partitioner that torch.compile is given: it tries both ways on the joint graph that it gets."""

    def __init__(self, net, args, writer, commit):
        self.net, self._args, self._writer, self._commit = net, args, writer, commit

    def __call__(self, module, inputs, *, num_fwd_outputs, static_lifetime_input_indices=None, **how):
        static = static_lifetime_input_indices or []

        def stock(budget):
            with config.patch(activation_memory_budget=budget):
                return partitioners.min_cut_rematerialization_partition(
                    module, inputs, num_fwd_outputs=num_fwd_outputs, static_lifetime_input_indices=static)

        first = stock(1.0)
        info = partitioners.classify_nodes(module, static, num_fwd_outputs)
        joint, once = _compile.Joint(module, info, num_fwd_outputs), work([module.graph])
        plain_bytes = _compile.peak_bytes(*first, num_fwd_outputs)

        def ebb(budget):
            told, begin = _compile.Partitioner(budget, None, self._args.effort, False), time.perf_counter()
            parts = told.planned(module, joint, info, num_fwd_outputs, budget, first)
            return _compile.peak_bytes(*parts, num_fwd_outputs), *again(parts, once), time.perf_counter() - begin

        rows, tried = [], {}
        for i in range(N):
            share = i / (N - 1)
            parts = stock(share)
            peak, theirs = _compile.peak_bytes(*parts, num_fwd_outputs), again(parts, once)
            tried[peak] = tried.get(peak) or ebb(peak)
            rows.append(("at its peak", f"{share:.3f}", peak, *theirs, peak, *tried[peak]))
        try:
            ebb(1)
        except _compile.DoesNotFit as error:
            least = error.least_bytes
        for i in range(N):
            budget = least + (plain_bytes - least) * i // (N - 1)
            rows.append(("even", f"{budget / plain_bytes:.3f}", "", "", "", budget, *ebb(budget)))
        self._tell(rows, len(module.graph.nodes))
        return first

    def _tell(self, rows, n):
        for row in rows:
            numbers = [f"{value:.6g}" if isinstance(value, float) else value for value in row]
            self._writer.writerow((self._commit, torch.__version__, self.net, n, *numbers))
        raced, even = rows[:N], rows[N:]
        rises = [sum(b[k] < a[k] for a, b in zip(part, part[1:])) for part, k in ((raced, 2), (even, 6))]
        print(f"{self.net}: {n} nodes; above the asked budget {sum(row[6] > row[5] for row in rows)} of {len(rows)}; "
              f"more microseconds than PyTorch at its peak {sum(row[7] > 1.0001 * row[3] + 1e-6 for row in raced)} of {N}, "
              f"more operations {sum(row[8] > 1.0001 * row[4] + N for row in raced)}; smaller budget, higher peak: "
              f"PyTorch {rises[0]}, ebb {rises[1]}; smaller budget, less work: ebb "
              f"{sum(b[7] > a[7] * 1.0001 + 1e-6 for a, b in zip(even, even[1:]))}; at most {max(r[9] for r in rows):.1f} s",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", default="/dev/null")
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--effort", type=int, default=1)
    args, tree = parser.parse_args(), commit()
    with open(args.output, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for net in args.nets.split(","):
            torch.manual_seed(0)
            model, batch = NETS[net]()
            backend = _compile.aot_autograd(fw_compiler=_compile.boxed_nop, bw_compiler=_compile.boxed_nop,
                                            partition_fn=Race(net, args, writer, tree))
            torch.compile(WithLoss(model), backend=backend, dynamic=False)(*batch)
            file.flush()


if __name__ == "__main__":
    main()
