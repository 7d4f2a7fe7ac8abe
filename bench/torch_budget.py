#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget beside the plain loop, torch.utils.checkpoint per block and save_on_cpu: peaks and times of a step.

    LIBRARY=build/release PYTHON bench/torch_budget.py [-o FILE.csv] [--nets gpt,vit] [--scale N] [--rounds N]

PYTHON has torch; cc is needed, for the counter. Rows are measured in alternation, each round one step of each, after the
steps that ebb records. Peaks are counted by tests/e2e/count_alloc.c, which is preloaded and sees the allocations of
PyTorch's CPU allocator, not ebb's figures; they include temporaries inside of operators. `overhead` is the time of the
plain loop inside of a Budget that fits, over that of the plain loop.
"""
import argparse
import contextlib
import csv
import ctypes
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.join(HERE, "..", "tests", "e2e")
COUNTER = "EBB_BENCH_COUNTER"
COLUMNS = ("commit", "torch", "threads", "net", "scale", "way", "n", "step_ms", "p10_ms", "p90_ms", "counted_peak_bytes",
           "planned_peak_bytes", "planned_step_ms", "recomputed_ops", "moved_out_bytes", "same_bits")


def preload():
    """Start again with the counter in front of the allocator."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "count_alloc.so")
    subprocess.run(["cc", "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", path, os.path.join(TESTS, "count_alloc.c"),
                    "-ldl", "-pthread"], check=True)
    os.environ.update({"LD_PRELOAD": path, COUNTER: path})
    os.execv(sys.executable, [sys.executable, *sys.argv])


class Counter:
    """The peak of the bytes that PyTorch's allocator has given and not got back, from `begin` on."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        self._library.count_alloc_log.restype = ctypes.POINTER(ctypes.c_uint64)
        self._library.count_alloc_n.restype = ctypes.c_size_t
        self._log, self._at, self._live, self._bytes = self._library.count_alloc_log(), 0, {}, 0

    def peak(self):
        """Since the last call."""
        most, n = self._bytes, self._library.count_alloc_n()
        for i in range(self._at, n):
            address, size = self._log[2 * i], self._log[2 * i + 1]
            self._bytes += size - self._live.pop(address, 0)
            if size:
                self._live[address] = size
            most = max(most, self._bytes)
        self._at = n
        return most


class Way:
    """One way to train, with a model of its own. Its peak is what a step adds to what there was before the way."""

    def __init__(self, name, net, scale, counter, budget=None, spill=None, wrap=None, around=contextlib.nullcontext):
        import ebb.torch
        import torch
        gc.collect()
        counter.peak()
        self._before, self._counter = counter._bytes, counter
        torch.manual_seed(5)
        self.name, self.times, self.losses, self.peak_bytes = name, [], [], 0
        self.model, self._batch, self._loss, optimizer = torch_budget_nets.NETS[net](scale)
        self.optimizer, self._around = optimizer(self.model), around
        self.fit = ebb.torch.Budget(budget, spill=spill) if budget else None
        self.state = torch.get_rng_state()
        if wrap:
            wrap(self.model)

    def step(self, i):
        import torch
        data = self._batch(i)
        torch.set_rng_state(self.state)
        gc.collect()
        self._counter.peak()
        others = self._counter._bytes - self.own_bytes() if self.times else self._before
        begin = time.perf_counter()
        with self.fit.step() if self.fit else self._around():
            loss = torch_budget_nets.plain_step(self.model, data, self._loss, self.optimizer)
        self.times.append(time.perf_counter() - begin)
        self.peak_bytes = self._counter.peak() - others
        self.losses.append(loss.item())
        self.state = torch.get_rng_state()
        del data, loss

    def own_bytes(self):
        tensors = list(self.model.parameters()) + list(self.model.buffers())
        tensors += [p.grad for p in self.model.parameters() if p.grad is not None]
        tensors += [v for state in self.optimizer.state.values() for v in state.values() if hasattr(v, "nbytes")]
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        return sum(storages.values())


def checkpoint_blocks(model):
    from torch.utils.checkpoint import checkpoint
    for block in model.blocks:
        block.forward = (lambda forward: lambda x: checkpoint(forward, x, use_reentrant=False))(block.forward)


def measure(net, args, counter, writer, commit):
    import torch
    reference = Way("plain", net, args.scale, counter)
    for i in range(3):
        reference.step(i)
    ways = [Way("plain", net, args.scale, counter), Way("fits", net, args.scale, counter, "100%")]
    if hasattr(reference.model, "blocks"):
        ways.append(Way("checkpoint per block", net, args.scale, counter, wrap=checkpoint_blocks))
    ways.append(Way("save_on_cpu", net, args.scale, counter, around=torch.autograd.graph.save_on_cpu))
    del reference
    for share in (60, 40, 25):
        ways.append(Way(f"ebb {share} %", net, args.scale, counter, f"{share}%"))
        ways.append(Way(f"ebb {share} % file", net, args.scale, counter, f"{share}%", args.spill))
    refused = []
    for i in range(4 + args.rounds):
        for way in ways:
            if way in refused:
                continue
            try:
                way.step(i)
            except Exception as error:
                if type(error).__name__ != "DoesNotFit":
                    raise
                least = error.least_bytes
                refused.append(way)
        for way in [way for way in refused if not way.name.endswith("refused")]:
            way.name += ": refused"
            way.least_bytes = least
    for way in ways:
        told = way.fit.summary() if way.fit else {}
        times = sorted(1e3 * t for t in way.times[4:])
        if not times:
            row = ["", "", "", ""]
        else:
            row = [f"{statistics.median(times):.1f}", f"{times[len(times) // 10]:.1f}", f"{times[-1 - len(times) // 10]:.1f}",
                   way.peak_bytes]
        planned = told.get("step_planned_s")
        out = [commit, torch.__version__, torch.get_num_threads(), net, args.scale, way.name, len(times), *row,
               told.get("peak_planned_bytes", getattr(way, "least_bytes", "")), f"{1e3 * planned:.1f}" if planned else "",
               told.get("recomputed_ops", ""), told.get("moved_out_bytes", ""),
               "" if not times else "yes" if way.losses == ways[0].losses else "no"]
        writer.writerow(out)
        print(*out[3:], sep="\t", flush=True)


def main():
    global torch_budget_nets
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", default="/dev/null")
    parser.add_argument("--nets", default="gpt,vit,resnet,unet,lstm")
    parser.add_argument("--scale", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--spill", default=tempfile.gettempdir())
    args = parser.parse_args()
    if COUNTER not in os.environ:
        preload()
    sys.path[:0] = [os.path.join(HERE, "..", "python"), TESTS]
    import torch
    import torch_budget_nets
    torch.set_num_threads(1)
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    counter = Counter(os.environ[COUNTER])
    with open(args.output, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for net in args.nets.split(","):
            measure(net, args, counter, writer, commit)


if __name__ == "__main__":
    main()
