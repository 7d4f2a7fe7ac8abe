#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GPT-2 whose training needs more memory than there is: plainly, then under a hard limit with ebb.torch.Budget.

    EBB_LIBRARY=build/release/libebb.so PYTHON bench/torch_small_ram.py [--limit 3e9] [--budget 2.2e9] [--spill FOLDER] ...

PYTHON has torch. Three processes train the same model on the same batches: the plain loop without a limit; the plain loop
under the limit, which has to fail; ebb under the limit. The limit is RLIMIT_DATA: all memory that is private and can be
written, with PyTorch's own. Said of each: losses, a hash of the weights, the most bytes that were resident (VmHWM) and that
the limit counts (VmData, looked at ten times a second).
"""
import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


class Watch(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.most = 0

    def run(self):
        while True:
            self.most = max(self.most, status("VmData"))
            time.sleep(0.1)


def train(args):
    """One process: prints what happened as a line of JSON."""
    sys.path[:0] = [os.path.join(HERE, "..", "python"), os.path.join(HERE, "..", "tests", "e2e")]
    import torch
    import ebb.torch
    import torch_budget_nets
    from torch.nn import functional
    torch.set_num_threads(args.threads)
    if args.way != "plain":
        resource.setrlimit(resource.RLIMIT_DATA, (int(args.limit), int(args.limit)))
    watch = Watch()
    watch.start()
    torch.manual_seed(5)
    model = torch_budget_nets.Gpt(args.width, args.depth, args.length, args.words)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    fit = ebb.torch.Budget(int(args.budget), model=model, optimizer=optimizer, spill=args.spill, effort=args.effort) \
        if args.way == "ebb" else None
    told = {"parameters": sum(p.numel() for p in model.parameters()), "losses": [], "seconds": []}
    for i in range(args.steps):
        generator = torch.Generator().manual_seed(i)
        x = torch.randint(0, args.words, (args.batch, args.length + 1), generator=generator)

        def step():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            return loss.item()
        begin = time.perf_counter()
        if fit is None:
            told["losses"].append(step())
        else:
            with fit.step():
                told["losses"].append(step())
        told["seconds"].append(round(time.perf_counter() - begin, 2))
        print(args.way, i, told["losses"][-1], told["seconds"][-1], status("VmHWM"), watch.most, file=sys.stderr,
              flush=True)
    told["summary"] = fit.summary() if fit else None
    weights = hashlib.blake2b()
    for parameter in model.parameters():
        weights.update(parameter.detach().clone().numpy())
        if fit is not None:
            fit.put_away()
    told.update(weights=weights.hexdigest()[:32], resident_bytes=status("VmHWM"), data_bytes=watch.most)
    print(json.dumps(told))


def child(way):
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", __file__, *sys.argv[1:], "--way", way], text=True,
                          stdout=subprocess.PIPE, env=environment)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--limit", type=float, default=3e9)
    parser.add_argument("--budget", type=float, default=2.2e9)
    parser.add_argument("--spill", default=".")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=24)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--words", type=int, default=50257)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--effort", type=int, default=0)
    parser.add_argument("--ways", default="plain,plain-limited,ebb")
    parser.add_argument("--way")
    args = parser.parse_args()
    if args.way:
        train(args)
        return 0
    found = {}
    for way in args.ways.split(","):
        found[way] = child(way)
        print(way, json.dumps(found[way]), flush=True)
    plain, ebb = found.get("plain"), found.get("ebb")
    same = plain is not None and ebb is not None and \
        all(plain[key] == ebb[key] for key in ("losses", "weights"))
    print("the same losses and weights" if same else "NOT the same losses and weights")
    return 0 if same and found.get("plain-limited") is None else 1


if __name__ == "__main__":
    sys.exit(main())
