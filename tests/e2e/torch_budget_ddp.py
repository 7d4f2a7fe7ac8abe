#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget with two processes: DistributedDataParallel in several ways, and layers whose halves are in two
processes, give the bits of the same loop without a Budget, within the budget; FSDP and communication hooks are refused.

    tests/e2e/torch_budget_ddp.py FOLDER [NAME...]
"""
import contextlib
import functools
import os
import sys

import torch
from torch import distributed, multiprocessing, nn
from torch.nn import functional

import torch_verdict
from torch_budget import same
from torch_verdict import verdict

folder = sys.argv[1]
N_STEPS = 8
WAYS = {  # how the model is wrapped, and its loop
    "DDP": {},
    "DDP, buckets as gradients": {"gradient_as_bucket_view": True},
    "DDP, a static graph": {"static_graph": True},
    "DDP, unused parameters": {"find_unused_parameters": True},
    "DDP, accumulated": {"accumulates": True},
}
BUDGETS = ("5%", None), ("60%", folder)  # or the least that is named
SPLIT = "halves of layers", "gathered", "halves of layers, DTensor"
LATE_BYTES = 2 * 1024 * 256 * 4  # two results of collectives: gloo's thread lets go of them a moment later


class _Sum(torch.autograd.Function):
    """The sum over both processes, in the place of what is summed."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        distributed.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, slope):
        return slope


class _Gather(torch.autograd.Function):
    """What both processes have, one below the other."""

    @staticmethod
    def forward(ctx, x):
        both = x.new_empty(2 * x.shape[0], x.shape[1])
        distributed.all_gather_into_tensor(both, x)
        return both

    @staticmethod
    def backward(ctx, slope):
        slope = slope.clone()
        distributed.all_reduce(slope)
        return slope.chunk(2)[distributed.get_rank()]


class Gathering(nn.Module):
    """A linear layer whose results both processes see, and of which each goes on with its own."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)

    def forward(self, x):
        return functional.gelu(torch.tanh(_Gather.apply(self.linear(x))).chunk(2)[distributed.get_rank()])


class Halves(nn.Module):
    """Two linear layers, of which each process has half of the columns of the first and of the rows of the second."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 128), nn.Linear(128, 256, bias=False)

    def forward(self, x):
        return functional.gelu(_Sum.apply(self.second(functional.gelu(self.first(x)))))


def split_by_pytorch():
    """The same, where the parameters are PyTorch's distributed tensors."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    blocks = [nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU()) for _ in range(8)]
    for block in blocks:
        parallelize_module(block, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return nn.Sequential(*blocks, nn.Linear(256, 10))


def split(way):
    torch.manual_seed(3)
    if "DTensor" in way:
        return split_by_pytorch()
    return nn.Sequential(*((Gathering if way == "gathered" else Halves)() for _ in range(8)), nn.Linear(256, 10))


def net():
    torch.manual_seed(3)
    return nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.1))),
                         nn.Linear(256, 10))


def backward(model):
    x, y = torch.randn(512, 256), torch.randint(0, 10, (512,))
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    return loss.item()


def train(fit, model, accumulates, seed):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    if fit is not None:
        fit = fit(model, optimizer)
    torch.manual_seed(seed)
    losses = []
    for _ in range(N_STEPS):
        with fit.step() if fit is not None else contextlib.nullcontext():
            optimizer.zero_grad()
            if accumulates:
                with model.no_sync():
                    losses.append(backward(model))
            losses.append(backward(model))
            optimizer.step()
    with torch.no_grad():
        parameters = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
        return (losses, [p.clone() for p in parameters]), fit


def make(way):
    """A model, whether gradients are accumulated, the seed of the data: halves of layers have the same data."""
    if way in SPLIT:
        return split(way), False, 10
    how = dict(WAYS[way])
    accumulates = how.pop("accumulates", False)
    model = nn.parallel.DistributedDataParallel(net(), bucket_cap_mb=1, **how)
    return model, accumulates, 10 + distributed.get_rank()


def run(way, budget, spill):
    """What the parent is told: whether the bits are those of a loop without a budget, and the summary."""
    import ebb.torch

    def attempt(budget, model, optimizer):
        held = {"model": model, "optimizer": optimizer} if spill else {}
        return ebb.torch.Budget(budget, spill=spill, quiet=True, **held)
    plain, _ = train(None, *make(way))
    try:
        got, fit = train(functools.partial(attempt, budget), *make(way))
    except ebb.torch.DoesNotFit as error:  # in both processes, after the same step
        least = error.least_bytes + error.least_bytes // 50  # later steps may need a little more
    else:
        least = None
    if least is not None:
        got, fit = train(functools.partial(attempt, least), *make(way))
    return same(plain, got), dict(fit.summary())


def sharded():
    from torch.distributed.fsdp import fully_shard
    model = net()
    fully_shard(model)
    return model


def hooked():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    model = nn.parallel.DistributedDataParallel(net())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return model


REFUSED = {"FSDP": sharded, "communication hook": hooked}


def refused(word):
    """What the parent is told: whether the error is one line with this word, and the error."""
    import ebb.torch
    try:
        train(lambda model, optimizer: ebb.torch.Budget("80%", model=model, optimizer=optimizer, spill=folder, quiet=True),
              REFUSED[word](), False, 10)
    except TypeError as error:
        return word in str(error) and "\n" not in str(error), str(error)
    return False, "no error"


def work(rank, store, what, answers):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    answers.put((rank, *(run(*what) if len(what) > 1 else refused(*what))))
    distributed.barrier()
    distributed.destroy_process_group()


def ask(*what):
    """The answers of both processes."""
    store = os.path.join(folder, "store")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(store)
    answers = multiprocessing.get_context("spawn").SimpleQueue()
    multiprocessing.spawn(work, args=(store, what, answers), nprocs=2)
    return [answers.get()[1:] for _ in range(2)]


def main():
    for name in sys.argv[2:] or ([*WAYS, *SPLIT] if "EBB_TEST_ALL" in os.environ else ["DDP", "halves of layers", "gathered"]):
        for budget, spill in BUDGETS:
            told = ask(name, budget, spill)
            title = f"{name}, {budget}{' with a file' if spill else ''}"
            verdict(f"{title}: the same bits", all(is_same for is_same, _ in told), told)
            late = LATE_BYTES if name in SPLIT else 0
            verdict(f"{title}: within the plan, which is within the budget", all(
                one["peak_measured_bytes"] - late <= one["peak_planned_bytes"] <= one["budget_bytes"] for _, one in told), told)
            verdict(f"{title}: the plan is followed", all(
                (one["recomputed_ops"] or one["moved_out_bytes"]) and one["steps_unlike"] <= 1 for _, one in told), told)
    for word in REFUSED:
        told = ask(word)
        verdict(f"{word}: refused in one line", all(good for good, _ in told), told)
    sys.exit(torch_verdict.status)


if __name__ == "__main__":
    main()
