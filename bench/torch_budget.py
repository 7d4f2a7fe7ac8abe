#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget beside the plain loop, torch.utils.checkpoint per block and save_on_cpu: peaks, times, bits of a step.

    EBB_LIBRARY=build/release/libebb.so PYTHON bench/torch_budget.py [-o FILE.csv] [--nets gpt2,lstm] [--steps ,bf16] [--spill FOLDER]

PYTHON has torch, torchvision and transformers; cc is needed, for the counter. Peaks are those that
tests/e2e/count_alloc.c counts, which is preloaded and sees the allocations of PyTorch's CPU allocator, not ebb's figures;
they include temporaries inside of operators. `process_peak_bytes` is what the operating system says: by how much the process
grew during a step, beside what was counted when the step began. It is taken in a process of its own, in which malloc gives
freed memory back at once.

Times are those of the processor, so that they can be compared on a machine that does other things as well; copies to a folder
in memory count, waiting for a disk does not. `wall_ms` is by the clock, as is `planned_ms`. Each way is a process of its own.
The ways of a group take turns, one step each, with a plain loop among them. `times_plain` is the median over the rounds of a
way's time by the plain loop's in the same round. The first three steps of each way are not timed: ebb records two and measures
the third itself. `same_bits`: all losses and the weights after the last round are those of the plain loop.

Groups: each rival beside ebb with the rival's counted peak as the budget; then 60, 40 and 25 %. `recompute`: only
activations are affected, and they are computed again. `file`: what autograd saves may also move to a file in the folder.
`move`: parameters, gradients and the optimizer's state move too. save_on_cpu's copies lie in memory that the counter does not
see, as if the CPU were a card. `overhead`: a budget that fits, so that nothing moves.
"""
import argparse
import contextlib
import csv
import gc
import hashlib
import os
import pickle
import re
import statistics
import sys
import tempfile
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "python"), HERE]

from provenance import commit
from torch_counted import TESTS, Counter, Growth, preload


COLUMNS = ("commit", "torch", "net", "step", "group", "way", "n", "step_ms", "p10_ms", "p90_ms", "times_plain", "wall_ms",
           "planned_ms", "budget_bytes", "planned_peak_bytes", "counted_peak_bytes", "excess_percent", "process_peak_bytes",
           "process_excess_percent", "recomputed_ops", "moved_out_bytes", "same_bits", "message")
N_UNTIMED = 3
N_GROWING = 5  # steps of the process that is watched from outside
RIVALS = "checkpoint per block", "save_on_cpu"
LEAST = ", the least"  # of a way whose budget was refused, so that it got the least that ebb named


def checkpoint_blocks(blocks):
    from torch.utils.checkpoint import checkpoint
    for block in blocks:
        block.forward = (lambda forward: lambda *args, **kwargs: checkpoint(
            forward, *args, use_reentrant=False, **kwargs))(block.forward)


def save_on_cpu():
    """torch.autograd.graph.save_on_cpu, whose copies the counter does not see."""
    import numpy
    import torch

    def pack(tensor):
        kept = numpy.empty(tensor.numel() * tensor.element_size(), numpy.uint8)
        copy = torch.from_numpy(kept).view(tensor.dtype).view(tensor.shape)
        return copy.copy_(tensor)
    return torch.autograd.graph.saved_tensors_hooks(pack, lambda copy: copy.clone())


def bits_of(losses, model):
    """A digest of all losses and of what a model has at the end."""
    import torch
    digest = hashlib.blake2b(repr(losses).encode())
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def serve(way, net, step, args, budget, grows, ask, tell):
    """A process that trains in one way, a step each time it is asked."""
    import torch
    import torch_budget_nets
    import torch_models
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counter, growth = Counter(), Growth() if grows else None
    counter.peak()
    before = counter.bytes
    torch.manual_seed(5)
    model, batch, loss_of, optimizer, blocks = torch_models.NETS[net]()
    around, fit, losses = contextlib.nullcontext, None, []
    if way == "checkpoint per block":
        checkpoint_blocks(blocks)
    elif way == "save_on_cpu":
        around = save_on_cpu
    elif way != "plain":
        import ebb.torch
        held = {"spill": args.spill, "model": model, "optimizer": optimizer} if "move" in way else {}
        if "file" in way:
            held = {"spill": args.spill}
        fit = ebb.torch.Budget(budget, effort=args.effort, **held)
        around = fit.step
    for i, _ in enumerate(iter(ask.readline, b"end\n")):
        data = batch(i)
        gc.collect()
        counter.peak()
        counted = counter.bytes - before
        try:
            if growth is not None:
                growth.begin()
            begin, wall = time.process_time(), time.perf_counter()
            with around():
                losses.append(torch_budget_nets.STEPS[step](model, data, loss_of, optimizer).item())
            told = {"seconds": time.process_time() - begin, "wall": time.perf_counter() - wall}
            if growth is not None:
                told["process_peak"] = counted + growth.bytes()
            told["peak"] = counter.peak() - before
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {error}", "least": getattr(error, "least_bytes", None)}
            if told["least"] is None:
                traceback.print_exc()
        del data
        told["summary"] = fit.summary() if fit is not None else {}
        if i == args.rounds - 1:
            told["bits"] = bits_of(losses, model)
        pickle.dump(told, tell)
        tell.flush()
        if "error" in told:
            return


class Way:
    def __init__(self, way, net, step, args, budget=None, grows=False):
        self.way, self.budget, self.told_each, self.told = way, budget, [], {}
        to_child, self._ask = os.pipe()
        self._tell, to_parent = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                os.close(self._ask)
                os.close(self._tell)
                serve(way, net, step, args, budget, grows, os.fdopen(to_child, "rb"), os.fdopen(to_parent, "wb"))
                status = 0
            os._exit(status)
        os.close(to_child)
        os.close(to_parent)
        self._tell = os.fdopen(self._tell, "rb")

    def step(self):
        if "error" in self.told:
            return
        try:
            os.write(self._ask, b"\n")
            self.told = pickle.load(self._tell)
        except (BrokenPipeError, EOFError):
            self.told = {"error": "the process ended", "summary": {}}
        if "error" not in self.told:
            self.told_each.append(self.told)

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            os.write(self._ask, b"end\n")
        os.close(self._ask)
        self._tell.close()
        os.waitpid(self._child, 0)

    def timed(self, key):
        """What was told of each step that is timed, in turn."""
        return [told[key] for told in self.told_each[N_UNTIMED:]]


def process_peak(way, net, step, args):
    """The highest of a process of its own, in steps like the timed ones, and what was counted then; None: it could not train."""
    one = Way(way.way, net, step, args, way.told["summary"].get("budget_bytes"), grows=True)
    for _ in range(N_GROWING):
        one.step()
    one.end()
    return None if "error" in one.told else max((told["process_peak"], told["peak"]) for told in one.told_each[N_UNTIMED:])


def row(group, way, plain, process):
    told, seconds = way.told["summary"], way.timed("seconds")
    times = sorted(1e3 * s for s in seconds)
    planned = told.get("peak_planned_bytes")
    found = {"group": group, "way": way.way, "n": len(times), "message": way.told.get("error", ""),
             "budget_bytes": told.get("budget_bytes", way.told.get("least") or ""), "planned_peak_bytes": planned,
             "recomputed_ops": told.get("recomputed_ops"), "moved_out_bytes": told.get("moved_out_bytes")}
    if told.get("step_planned_s"):
        found["planned_ms"] = f"{1e3 * told['step_planned_s']:.0f}"
    if times:
        peak, ratios = max(way.timed("peak")), (mine / plains for mine, plains in zip(seconds, plain.timed("seconds")))
        found.update(step_ms=f"{statistics.median(times):.0f}", p10_ms=f"{times[len(times) // 10]:.0f}",
                     p90_ms=f"{times[-1 - len(times) // 10]:.0f}", counted_peak_bytes=peak,
                     times_plain=f"{statistics.median(ratios):.3f}", wall_ms=f"{1e3 * statistics.median(way.timed('wall')):.0f}",
                     same_bits="yes" if way.told.get("bits") == plain.told.get("bits") else "no")
        if planned:
            found["excess_percent"] = f"{100 * (peak / planned - 1):.3f}"
    if process is not None:
        found.update(process_peak_bytes=process[0], process_excess_percent=f"{100 * (process[0] / process[1] - 1):.3f}")
    return found


def group(name, ways, net, step, args, writer):
    """ways: (way, budget)"""
    running = [Way(way, net, step, args, budget) for way, budget in [("plain", None), *ways]]
    for _ in range(args.rounds):
        for i, way in enumerate(running):
            way.step()
            least = way.told.get("least")
            if least and not way.way.endswith("least"):
                way.end()
                running[i] = Way(way.way + LEAST, net, step, args, least)
                while len(running[i].told_each) < len(running[0].told_each) and "error" not in running[i].told:
                    running[i].step()
    for way in running:
        way.end()
    for way in running:
        grown = process_peak(way, net, step, args) if args.grown and "error" not in way.told else None
        writer({"net": net, "step": step, **row(name, way, running[0], grown)})


def peak_of(way, net, step, args):
    one = Way(way, net, step, args)
    one.step()
    one.step()
    one.end()
    return one.told["peak"]


def measure(net, step, args, writer):
    import torch_models
    wanted = args.groups.split(",")
    for rival in RIVALS:
        if rival in wanted and (rival == "save_on_cpu" or torch_models.NETS[net]()[4]):
            budget = peak_of(rival, net, step, args)
            ways = [(rival, None), ("ebb recompute", budget)]
            if rival == "save_on_cpu":
                ways.append(("ebb file", budget))
            group(f"as {rival}", ways, net, step, args, writer)
    if "overhead" in wanted:
        group("overhead", [("ebb recompute", "100%")], net, step, args, writer)
    if "shares" in wanted:
        group("shares", [("ebb recompute 60%", "60%")] * args.recompute +
              [(f"ebb move {share}%", f"{share}%") for share in (60, 40, 25)], net, step, args, writer)


def table(path):
    """The rows of a CSV as the table of docs/pytorch.md."""
    head = ("network", "way", "budget", "counted peak", "beyond the plan", "process", "time", "predicted", "bits")
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    with open(path) as file:
        plain_ms = None
        for found in csv.DictReader(file):
            if found["way"] == "plain":
                plain_ms = found["step_ms"]
            if found["way"] != "plain" or found["group"] == "shares":
                print(f"| {' | '.join(cells(found, plain_ms))} |")


def cells(found, plain_ms):
    """plain_ms: what the plain loop took that went in turn with this way."""
    budget, excess, planned = (found[key] for key in ("budget_bytes", "excess_percent", "planned_ms"))
    way = found["way"].removesuffix(LEAST)
    if found["group"].startswith("as ") and budget:
        way += ", given the peak of " + found["group"][3:].replace("save_on_cpu", "`save_on_cpu`")
    elif way.endswith("%"):
        way = re.sub(r" (\d+)%$", r", given \1 %", way)
    if found["way"].endswith(LEAST):
        way += ": refused, the least"
    yield f"{found['net']}{', ' * bool(found['step'])}{found['step']}"
    yield way
    yield f"{int(budget) / 1e6:.1f} MB" if budget else ""
    yield f"{int(found['counted_peak_bytes'] or 0) / 1e6:.1f} MB"
    yield excess + " %" if excess else ""
    yield f"{int(found['process_peak_bytes']) / 1e6:.1f} MB" if found["process_peak_bytes"] else ""
    yield found["times_plain"]
    yield f"{int(planned) / int(plain_ms):.2f}" if planned else ""
    yield "same" if found["same_bits"] == "yes" else "other"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", default="/dev/null")
    parser.add_argument("--nets", default="gpt2,vit_b_16,resnet50,unet,lstm")
    parser.add_argument("--steps", default="", help="kinds of steps: '', accumulated, bf16")
    parser.add_argument("--groups", default=",".join((*RIVALS, "overhead", "shares")))
    parser.add_argument("--no-grown", dest="grown", action="store_false", help="do not measure how processes grow")
    parser.add_argument("--no-recompute", dest="recompute", action="store_false", help="no share without a folder")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--spill", default=tempfile.gettempdir())
    parser.add_argument("--table", help="write the rows of this CSV as a table for the documentation, and measure nothing")
    args = parser.parse_args()
    if args.table:
        table(args.table)
        return
    preload()
    import torch
    import torchvision
    import transformers
    assert torchvision and transformers.GPT2LMHeadModel  # imported before the processes part
    with open(args.output, "w", newline="") as file:
        sheet = csv.DictWriter(file, COLUMNS)
        sheet.writeheader()

        def writer(found):
            found = {"commit": commit(), "torch": torch.__version__, **found}
            sheet.writerow(found)
            file.flush()
            print(*(found.get(key, "") for key in COLUMNS[2:]), sep="\t", flush=True)
        for net in args.nets.split(","):
            for step in args.steps.split(","):
                measure(net, step, args, writer)


if __name__ == "__main__":
    main()
