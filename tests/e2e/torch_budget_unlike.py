#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget where a step needs other memory than the recorded one although the operators that are compared are the
same: gradients that are there or not, steps that go on, memory that is used beside the operators, tensors that are kept,
tensors of other sizes.

    tests/e2e/torch_budget_unlike.py FOLDER [NAME...]

Each step that is followed is measured: it needs at most what its plan says, which is at most the budget. Steps that are not
measured are noticed as unlike as those that are. Named programs run in all ways. Without names: each program in one
way if EBB_TEST_ALL is in the environment, else some of them.
"""
import contextlib
import io
import os
import sys

import torch
from torch import nn
from torch.nn import functional

import torch_budget_cases as cases
import torch_verdict
from torch_budget import EFFORT, raises
from torch_budget_cases import WAYS, accumulates, are_same, backward, compare, data, least_or, net, one, run
from torch_verdict import verdict

import ebb.torch


def measured_throughout(name, program, look, ways):
    """No followed step needs more than its plan says. Each is measured, and the plans are those that are made otherwise."""
    found = []

    @contextlib.contextmanager
    def step(fit):
        for planned in fit._plans:
            planned.n_followed, planned.n_lost, planned.peak_measured_bytes = 0, 0, None
        n_unlike = fit._n_unlike
        with fit.step():
            yield
        planned = fit._current
        if planned is not None and planned.peak_measured_bytes is not None and fit._n_unlike == n_unlike:
            found.append((planned.peak_measured_bytes, planned.peak_bytes, planned.budget_bytes))

    def train(share):
        found.clear()
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        held = {"model": model, "optimizer": optimizer} if moves_all else {}
        fit = ebb.torch.Budget(share, spill=spill, effort=EFFORT, **held)
        torch.manual_seed(11)
        return program(model, optimizer, lambda: step(fit)), [p.detach().clone() for p in model.parameters()], fit
    plain = run(program, None, None, False)
    for share, spill, moves_all in ways:
        *got, fit = least_or(share, train)
        *_, other = least_or(share, lambda share: run(program, share, spill, moves_all))
        told, others = fit.summary(), other.summary()
        unlike = [one["steps_unlike"] for one in (told, others)]
        is_noticed = unlike[0] == unlike[1] or share == "100%" and unlike[0] < unlike[1]  # what watches only sees it later
        verdict(f"{name}, {share}, measured in each step", are_same(plain, got) and found and
                all(measured <= planned <= budget for measured, planned, budget in found) and is_noticed, found, told, others)


# ---- programs ------------------------------------------------------------------------------------

def clips(model, optimizer, i):
    """Gradients are there or not when the next step begins."""
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad(set_to_none=i % 2 == 0)


def resets_now_and_then(before, after):
    """Gradients are let go of in some steps, before the forward pass or after it, of which no operator tells."""
    def train(model, optimizer, step):
        losses = []
        for i in range(16):
            x, y = data(i)
            with step():
                if before(i):
                    optimizer.zero_grad()
                loss = functional.cross_entropy(model(x), y)
                if after(i):
                    optimizer.zero_grad()
                loss.backward()
                losses.append(loss.item())
                if i % 2:
                    optimizer.step()
        return losses
    return train


def saves_in_a_step(when):
    def train(model, optimizer, step):
        losses = []
        for i in range(10):
            with step():
                loss = backward(model, optimizer, *data(i))
                if when(i):
                    written = io.BytesIO()
                    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                                "gradients": [p.grad for p in model.parameters()]}, written)
                optimizer.step()
            losses.append(loss.item())
            if when(i):
                written.seek(0)
                losses += [tensor.sum().item() for tensor in torch.load(written)["model"].values()]
        return losses
    return train


def looks_at_memory(model, optimizer, step):
    """Of one tensor after another, which need not all be there at once."""
    losses = []
    for i in range(8):
        with step():
            loss = backward(model, optimizer, *data(i))
            for parameter in model.parameters():
                losses.append(sum(parameter.detach().flatten().tolist()[:3]) + torch.ones(1).sum().item())
            optimizer.step()
            losses.append(loss.item())
    return losses


def steps_are_empty(model, optimizer, step):
    losses = []
    for i in range(13):
        with step():
            if i % 3 == 1:
                losses.append(one(model, optimizer, *data(i)))
    return losses


def keeps_what_it_made(model, optimizer, step):
    losses, kept = [], []
    hook = model[4].register_forward_hook(lambda module, args, result: kept.append(result.detach()) if len(kept) < 3 else None)
    for i in range(8):
        with step():
            losses.append(backward(model, optimizer, *data(i)))
            optimizer.step()
    hook.remove()
    return [loss.item() for loss in losses] + [one.sum().item() for one in kept]


def backward_alone(model, optimizer, step):
    losses = []
    for i in range(7):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(data(i)[0]), data(i)[1])
        with step():
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sizes_vary(*sizes):
    """Batches of other sizes from step to step. A pair is of two batches, of which the first operator shows one."""
    def train(model, optimizer, step):
        losses = []
        for i, found in enumerate(sizes):
            batches = [data(i + at, n) for at, n in enumerate(found if isinstance(found, tuple) else (found,))]
            with step():
                optimizer.zero_grad()
                loss = sum(functional.cross_entropy(model(x), y) for x, y in batches)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses
    return train


PROGRAMS = {
    "sizes that are smaller now and then": (
        sizes_vary(*[256] * 4, 200, 180, 256, 256, 255, 190), lambda told: told["plans"] == 1 and told["steps_unlike"] == 0),
    "sizes of which some are larger": (
        sizes_vary(200, 200, 200, 256, 180, 250, 256, 200, 256, 190, 256),
        lambda told: told["plans"] <= 2 and told["steps_unlike"] <= 4),
    "two sizes, one of them not seen first": (
        sizes_vary(*[(256, 190)] * 4, (190, 256), (256, 200), (190, 256), (200, 240), (256, 256), (180, 190), (256, 256)),
        lambda told: told["plans"] <= 2 and told["steps_unlike"] <= 4),
    "accumulation and clipping": (accumulates(21, clips), lambda told: 0 < told["steps_unlike"] <= 4),
    "a reset before the forward pass": (resets_now_and_then(lambda i: i % 2 == 0, lambda i: False), lambda told: True),
    "a reset after the forward pass": (resets_now_and_then(lambda i: False, lambda i: i % 2 == 0), lambda told: told["steps_unlike"] <= 4),
    "a reset before it or after it": (resets_now_and_then(lambda i: i % 4 == 0, lambda i: i % 4 == 2), lambda told: True),
    "saving in each step": (saves_in_a_step(lambda i: True), lambda told: told["steps_unlike"] == 0),
    "saving in some steps": (saves_in_a_step(lambda i: i % 4 == 3), lambda told: True),
    "memory that is looked at": (looks_at_memory, lambda told: told["steps_unlike"] == 0),
    "empty steps": (steps_are_empty, lambda told: told["steps_unlike"] == 0 and told["peak_measured_bytes"] is not None),
    "what is kept from step to step": (keeps_what_it_made, lambda told: told["steps_unlike"] <= 1),
    "a backward pass alone": (backward_alone, lambda told: True),
    "an evaluation after the step's work": cases.PROGRAMS["an evaluation after the step's work"],
    "an evaluation before it": cases.PROGRAMS["an evaluation before it"],
    "two optimizer steps": cases.PROGRAMS["two optimizer steps"],
}

def writes_unseen():
    """A hook that was not there in the recorded steps writes what others are to be computed again from. Other bits never come of it."""
    def train(share, spill):
        model, losses = net(), []
        optimizer, fit = torch.optim.AdamW(model.parameters(), 1e-3), ebb.torch.Budget(share, spill=spill, effort=EFFORT) if share else None
        for i in range(5):
            with fit.step() if fit else contextlib.nullcontext():
                optimizer.zero_grad()
                h = model[0](data(i)[0]).clone()
                parts = [(k * h).sin() for k in range(2, 9)]
                if i == 4:
                    parts[-1].register_hook(lambda _: (h.detach().add_(1), None)[1])
                loss = functional.cross_entropy(model[1:](sum(parts)), data(i)[1])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses, [tensor.clone() for tensor in model.state_dict().values()]
    plain = train(None, None)
    for share, spill in ("60%", None), ("60%", cases.folder):
        try:
            verdict(f"a new hook writes, with {spill and 'a file' or 'no file'}: the same bits", are_same(plain, train(share, spill)))
        except RuntimeError as error:
            verdict(f"a new hook writes, with {spill and 'a file' or 'no file'}: told", "was changed in place" in str(error), error)


def saves_twice(a):
    """What is saved, saved again for nothing, and written."""
    a.sigmoid() * a, a * a.exp()
    return a.add_(1).sum()


def saves_parts(a):
    """Two parts of a storage are saved, each before another write."""
    parts = a.clone()
    first = parts[:10] ** 3
    parts[20:30] = 0.5
    second = parts[20:30] ** 3
    parts[:10] = 0.25
    return first.sum() + second.sum()


def writes_in_unlike_steps():
    """What autograd saved is written in a step that left its plan: as PyTorch, ebb refuses to go on."""
    def train(write):
        model = net()
        optimizer, fit = torch.optim.AdamW(model.parameters(), 1e-3), ebb.torch.Budget("70%", effort=EFFORT)
        for i in range(5):
            with fit.step():
                optimizer.zero_grad()
                h = model[:3](data(i)[0])
                y = model[3](h)
                y = y + write(h) if i == 4 else y
                functional.cross_entropy(model[4:](y), data(i)[1]).backward()
                optimizer.step()
    for write in (saves_twice, saves_parts):
        raises(f"an unlike step that {write.__name__.replace('_', ' ')}", RuntimeError, "changed in place", lambda: train(write))


def reads_in_a_child():
    """A process that is forked within a step finds what is away."""
    def steps(model, optimizer, step):
        ends = []
        for i in range(4):
            with step():
                one(model, optimizer, *data(i))
                child = os.fork() if i == 3 else None
                if child == 0:
                    os._exit(0 if all(parameter.isfinite().all() for parameter in model.parameters()) else 1)
                ends += [os.waitpid(child, 0)[1]] if child else []
        return ends
    ends, _, fit = least_or("5%", lambda share: run(steps, share, "ram", True))
    verdict("a child finds parameters that are away", ends == [0] and fit.summary()["moved_out_bytes"] > 0, ends)


if __name__ == "__main__":
    torch.set_num_threads(1)
    QUICK = "accumulation and clipping", "saving in each step", "empty steps", "two sizes, one of them not seen first"
    for i, name in enumerate(sys.argv[2:] or (PROGRAMS if "EBB_TEST_ALL" in os.environ else QUICK)):
        ways = WAYS if sys.argv[2:] else (WAYS[-1 - i % len(WAYS)],)
        compare(name, *PROGRAMS[name], ways)
        measured_throughout(name, *PROGRAMS[name], ways)
    if not sys.argv[2:]:
        writes_unseen()
        writes_in_unlike_steps()
        reads_in_a_child()
    sys.exit(torch_verdict.status)
