#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does ebb.torch.Budget serve programs that others wrote? Each one of torch_zoo.py, plainly and within a budget.

    EBB_LIBRARY=build/release/libebb.so PYTHON bench/torch_programs.py [-o FILE.csv] [--share 60] [--spill FOLDER|ram] [--all] [NAME...]

PYTHON has torch, torchvision and transformers; cc is needed, for the counter. A row for each program: whether it stays
within the share of what a step needs, else within the least that ebb names; whether losses and weights have the same bits;
the planned peak beside the one that tests/e2e/count_alloc.c counts in the last two steps; what went wrong. --all: the
model may move too. Each run is a process of its own.
"""
import argparse
import contextlib
import csv
import gc
import hashlib
import os
import pickle
import sys
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "python"), HERE]

from provenance import commit
from torch_counted import Counter, preload

COLUMNS = ("commit", "torch", "program", "budget", "verdict", "same_bits", "plain_bytes", "counted_plain_bytes", "budget_bytes",
           "planned_peak_bytes", "storages_peak_bytes", "counted_peak_bytes", "excess_percent", "recomputed_ops",
           "moved_out_bytes", "steps_unlike", "plans", "slowdown", "message")
N_STEPS = 6


def held(modules, step):
    import torch
    return {"model": torch.nn.ModuleList(modules), "optimizer": getattr(step, "optimizer", None)}


def run(name, budget, args):
    """What a program does, in this process. budget: None: plainly."""
    import torch
    import torch_zoo
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counter = Counter()
    counter.peak()
    before = counter.bytes
    torch.manual_seed(7)
    modules, step = torch_zoo.PROGRAMS[name]()
    fit, around = None, contextlib.nullcontext
    if budget is not None:
        import ebb.torch
        fit = ebb.torch.Budget(budget, spill=args.spill, effort=0,
                               **(held(modules, step) if args.all else {}))
        around = fit.step
    told = {"losses": [], "peaks": [], "seconds": []}
    try:
        for i in range(N_STEPS):
            gc.collect()
            counter.peak()
            begin = time.perf_counter()
            with around():
                told["losses"].append(step(i))
            told["seconds"].append(time.perf_counter() - begin)
            told["peaks"].append(counter.peak() - before)
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {error}".replace("\n", " ")
        told["least"] = getattr(error, "least_bytes", None)
        told["trace"] = traceback.format_exc()
    if fit is not None:
        told.update(fit.summary())
    digest = hashlib.blake2b()
    for module in modules:
        for tensor in module.state_dict().values():
            digest.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
                          if tensor.dim() else repr(tensor.item()).encode())
    told["weights"] = digest.hexdigest()
    return told


def in_a_process(act, *args):
    """What act(*args) gives in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(write, "wb") as file:
                pickle.dump(act(*args), file)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    return pickle.loads(data) if status == 0 else {"error": f"the process ended with status {status}", "losses": [],
                                                   "peaks": [], "seconds": [], "weights": None}


def row(name, args):
    plain, budget = in_a_process(run, name, None, args), f"{args.share:g}%"
    if "error" in plain:
        return {"verdict": "the plain program fails", "message": plain["error"]}
    got = in_a_process(run, name, budget, args)
    if got.get("least"):
        refused, budget = got["error"], got["least"]
        got = in_a_process(run, name, budget, args)
        got.setdefault("error", refused) if not got.get("is_planned") else None
    is_same = repr(got["losses"]) == repr(plain["losses"]) and got["weights"] == plain["weights"]
    planned, budget_bytes = got.get("peak_planned_bytes"), got.get("budget_bytes")
    # The first planned step is also measured by ebb; the last ones are as users have them.
    counted = max(got["peaks"][-2:], default=None)
    is_followed = got.get("is_planned") and not got["steps_unlike"]
    verdict = "breaks" if "error" in got and not got.get("least") else "refused" if "error" in got else \
        "other bits" if not is_same else "not followed" if not is_followed else \
        "fits" if isinstance(budget, str) else "fits the least"
    if args.trace and "trace" in got:
        print(got["trace"])
    return {"verdict": verdict, "same_bits": "" if "error" in got else "yes" if is_same else "no", "budget": budget, "budget_bytes": budget_bytes,
            "plain_bytes": got.get("plain_bytes"), "counted_plain_bytes": max(plain["peaks"][-2:]),
            "planned_peak_bytes": planned, "storages_peak_bytes": got.get("peak_measured_bytes"),
            "counted_peak_bytes": counted,
            "excess_percent": f"{100 * (counted / planned - 1):.3f}" if planned and counted else "",
            "recomputed_ops": got.get("recomputed_ops"), "moved_out_bytes": got.get("moved_out_bytes"),
            "steps_unlike": got.get("steps_unlike"), "plans": got.get("plans"),
            "slowdown": f"{min(got['seconds'][-3:]) / min(plain['seconds'][-3:]):.2f}" if len(got["seconds"]) == N_STEPS else "",
            "message": got.get("error", "")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", default="/dev/null")
    parser.add_argument("--share", type=float, default=60)
    parser.add_argument("--spill")
    parser.add_argument("--all", action="store_true", help="parameters and buffers may move too")
    parser.add_argument("--trace", action="store_true", help="print where errors come from")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    preload()
    import torch
    import torch_zoo
    for name in args.names or torch_zoo.PROGRAMS:  # what they import, before the processes part
        torch_zoo.warm(name)
    with open(args.output, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for name in args.names or torch_zoo.PROGRAMS:
            found = {"commit": commit(), "torch": torch.__version__, "program": name, **row(name, args)}
            writer.writerow(found)
            file.flush()
            print(*(found.get(key, "") for key in COLUMNS[2:]), sep="\t", flush=True)


if __name__ == "__main__":
    main()
