#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget on a card beside the plain loop, torch.utils.checkpoint per block and save_on_cpu: peaks, times, bits.

    EBB_LIBRARY=build/release/libebb.so PYTHON bench/torch_card.py [-o FILE.csv] [--nets gpt2,resnet50] [--ways ebb] [--seconds N]

PYTHON has torch with CUDA, torchvision and transformers. Peaks are those of PyTorch's own count of the bytes that its
allocator gave (max_memory_allocated), which ebb has no part in. Matrix products are in TF32 everywhere, and deterministic
algorithms are used where there are any, so that bits can be compared. A figure is the median of a way's steps after the first
four (ebb records two and measures the third itself); the plain loop comes first and last.
host_ms: when the host has given the card all of a step; the rest it waits for the card.

Ways: each rival, and ebb with the rival's counted peak as its budget; then ebb at 60, 40 and 25 % of the plain peak. With
`activations` only what autograd saves is affected, else parameters, gradients and the optimizer's state may move, too. The
lower tier is pinned memory.
"""
import argparse
import contextlib
import csv
import gc
import os
import statistics
import sys
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "python"), HERE]
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

from provenance import commit, driver

COLUMNS = ("commit", "torch", "card", "net", "batch", "way", "n", "step_ms", "min_ms", "max_ms", "host_ms", "times_plain",
           "planned_ms", "budget_bytes", "plain_planned_bytes", "planned_peak_bytes", "measured_peak_bytes", "counted_peak_bytes",
           "recomputed_ops", "moved_out_bytes", "planning_s", "same_bits", "message")
N_UNTIMED, N_TIMED = 4, 6
SIZES = {"gpt2": (8, 1024), "resnet50": (128, 224), "vit_b_16": (64,), "unet": (8, 384)}


class Net:
    """A fresh network on the card, with its first weights."""

    def __init__(self, name):
        import torch
        import torch_models
        torch.manual_seed(5)
        model, batch, self.loss_of, optimizer, self.blocks = torch_models.NETS[name](*SIZES[name])
        self.model, kind = model.cuda(), type(optimizer)
        given = {key: optimizer.defaults[key] for key in ("lr", "momentum", "weight_decay") if key in optimizer.defaults}
        self.optimizer = kind(self.model.parameters(), **given)
        self.batch = lambda i: tuple(tensor.cuda() for tensor in batch(i))

    def step(self, data):
        self.optimizer.zero_grad()
        loss = self.loss_of(self.model, data)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def around_of(way, net, budget):
    """(what is around each step, the Budget or None)."""
    import torch
    from torch_budget import checkpoint_blocks
    if way == "checkpoint per block":
        checkpoint_blocks(net.blocks)
    elif way == "save_on_cpu":
        return lambda: torch.autograd.graph.save_on_cpu(pin_memory=True), None
    elif way.startswith("ebb"):
        import ebb.torch
        held = {} if "activations" in way else {"model": net.model, "optimizer": net.optimizer}
        fit = ebb.torch.Budget(budget, **held)
        return fit.step, fit
    return contextlib.nullcontext, None


def run(name, way, budget=None):
    """What a way's steps took and gave."""
    import torch
    from torch_budget import bits_of
    net = Net(name)
    data = [net.batch(i) for i in range(2)]  # on the card for all ways
    around, fit = around_of(way, net, budget)
    seconds, host, peaks, losses = [], [], [], []
    for i in range(N_UNTIMED + N_TIMED):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        with around():
            loss = net.step(data[i % 2])
        host.append(time.perf_counter() - begin)
        losses.append(loss.item())
        del loss
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        peaks.append(torch.cuda.max_memory_allocated())
    told = fit.summary() if fit is not None else {}
    return {"seconds": seconds[N_UNTIMED:], "host": host[N_UNTIMED:], "peak": max(peaks[N_UNTIMED:]), "told": told,
            "bits": bits_of(losses, net.model), "planning_s": max(seconds[:2]) if fit is not None else ""}


class Table:
    def __init__(self, path):
        import torch
        self.file = open(path, "w", newline="", encoding="utf-8") if path else sys.stdout
        self.writer = csv.DictWriter(self.file, COLUMNS, lineterminator="\n")
        self.writer.writeheader()
        build = os.path.dirname(os.environ.get("EBB_LIBRARY", os.path.join(HERE, "..", "build", "release", "")))
        self.origin = {"commit": commit(build),
                       "torch": torch.__version__, "card": torch.cuda.get_device_name() + driver()}

    def row(self, name, way, budget=None, plain=None):
        """Runs a way and writes it down; what `run` gave, or None."""
        import torch
        row = {**self.origin, "net": name, "batch": "x".join(map(str, SIZES[name])), "way": way, "budget_bytes": budget}
        done = None
        try:
            done = run(name, way, budget)
            told, median = done["told"], statistics.median(done["seconds"])
            plan_s = told.get("step_planned_s")
            row.update(n=len(done["seconds"]), step_ms=1e3 * median, min_ms=1e3 * min(done["seconds"]),
                       max_ms=1e3 * max(done["seconds"]), host_ms=1e3 * statistics.median(done["host"]),
                       planned_ms=1e3 * plan_s if plan_s else None, counted_peak_bytes=done["peak"], planning_s=done["planning_s"],
                       plain_planned_bytes=told.get("plain_bytes"), planned_peak_bytes=told.get("peak_planned_bytes"),
                       measured_peak_bytes=told.get("peak_measured_bytes"), recomputed_ops=told.get("recomputed_ops"),
                       moved_out_bytes=told.get("moved_out_bytes"))
            if plain is not None:
                row.update(times_plain=median / statistics.median(plain["seconds"]), same_bits=done["bits"] == plain["bits"])
        except Exception as error:
            row["message"] = f"{type(error).__name__}: {error}".splitlines()[0]
            if getattr(error, "least_bytes", None) is None:
                traceback.print_exc()
            del error
        gc.collect()
        torch.cuda.empty_cache()
        self.writer.writerow({key: f"{x:.6g}" if isinstance(x, float) else x for key, x in row.items()})
        self.file.flush()
        print(*(f"{key} {row[key]}" for key in COLUMNS[3:] if row.get(key) not in (None, "")), sep=", ", file=sys.stderr,
              flush=True)
        return done


def compare(table, name, end, chosen):
    plain = table.row(name, "plain")
    ways = [(way, None) for way in ("save_on_cpu", "checkpoint per block")] + [("ebb", 0.6), ("ebb", 0.4), ("ebb", 0.25),
                                                                           ("ebb, activations", 0.6)]
    for way, share in ways:
        if chosen and way not in chosen:
            continue
        if time.monotonic() > end:
            print(f"{name}, {way}: left out, no time", file=sys.stderr)
            continue
        done = table.row(name, way, int(share * plain["peak"]) if share else None, plain)
        if share is None and done is not None:
            for ours in ("ebb", "ebb, activations"):
                table.row(name, f"{ours}, as {way}", done["peak"], plain)
    table.row(name, "plain", plain=plain)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output")
    parser.add_argument("--nets", type=lambda text: text.split(","), default=list(SIZES))
    parser.add_argument("--ways", type=lambda text: text.split(","), help="these beside plain (all)")
    parser.add_argument("--seconds", type=float, default=1e9, help="for all; what there is no time for is left out")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch
    if not torch.cuda.is_available():
        sys.exit("torch_card: PyTorch finds no card")
    torch.use_deterministic_algorithms(True, warn_only=True)  # the loss of an image for each pixel has no such algorithm
    torch.utils.deterministic.fill_uninitialized_memory = False  # which no bits depend on, and takes time everywhere
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    table, begin = Table(args.output), time.monotonic()
    for i, name in enumerate(args.nets):
        compare(table, name, begin + args.seconds * (i + 1) / len(args.nets), args.ways)


if __name__ == "__main__":
    main()
