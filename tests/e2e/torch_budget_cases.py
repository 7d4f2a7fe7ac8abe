#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget where training is not the same step again and again: other shapes, evaluation, exceptions,
accumulation, checkpoints, forks, graphs that outlive their step, tensors written in place, wrong use.

    tests/e2e/torch_budget_cases.py FOLDER [NAME...]

Each case trains the same program plainly and with a budget, and compares the bits. Named programs run in all
ways. Without names: each program in one way if EBB_TEST_ALL is in the environment, else one of them; then wrong use.
"""
import contextlib
import copy
import gc
import io
import json
import os
import pickle
import sys
import threading
import traceback
import weakref

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.checkpoint import checkpoint

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import ebb.torch
import torch_verdict
from ebb.torch import _say
from torch_budget import EFFORT, raises
from torch_verdict import verdict

folder = sys.argv[1]
BATCH, WIDTH, N_KINDS = 256, 64, 6
# Computed again, moved out, nothing leaves, parameters and the like move too, as far as it goes.
WAYS = ("70%", None, False), ("70%", folder, False), ("100%", None, False), ("60%", folder, True), ("5%", folder, True), \
    ("40%", "ram", True)


def net(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.1))),
                         nn.Linear(WIDTH, 8))


def data(i, n=BATCH):
    generator = torch.Generator().manual_seed(i)
    return torch.randn(n, WIDTH, generator=generator), torch.randint(0, 8, (n,), generator=generator)


def run(program, share, spill, moves_all):
    """(losses, weights, Budget or None) of a program that gets a step() to put around its steps."""
    gc.collect()
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    held = {"model": model, "optimizer": optimizer} if moves_all else {}
    fit = ebb.torch.Budget(share, spill=spill, effort=EFFORT, **held) if share else None
    torch.manual_seed(11)
    losses = program(model, optimizer, fit.step if fit else contextlib.nullcontext)
    return losses, [p.detach().clone() for p in model.parameters()], fit


def least_or(share, train):
    """train(share), or with the least budget where that is more. Kinds of steps that come later may need more than the
    first."""
    for _ in range(N_KINDS):
        try:
            return train(share)
        except ebb.torch.DoesNotFit as error:
            share = error.least_bytes
    return train(share)


def are_same(plain, got):
    return plain[0] == got[0] and all(torch.equal(a, b) for a, b in zip(plain[1], got[1]))


def compare(name, program, look, ways):
    plain = run(program, None, None, False)
    for share, spill, moves_all in ways:
        *got, fit = least_or(share, lambda share: run(program, share, spill, moves_all))
        told = fit.summary()
        how = "" if spill is None else " in RAM" if spill == "ram" else " with a file"
        verdict(f"{name}, {share}{how}{', all moves' if moves_all else ''}", are_same(plain, got) and look(told), plain[0], got[0],
                told)


def backward(model, optimizer, x, y):
    """The loss of a step without the optimizer's part."""
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    return loss


def one(model, optimizer, x, y):
    loss = backward(model, optimizer, x, y)
    optimizer.step()
    return loss.item()


# ---- programs ------------------------------------------------------------------------------------

def alike(model, optimizer, step):
    losses = []
    for i in range(5):
        with step():
            losses.append(one(model, optimizer, *data(i)))
    return losses


def last_batch_is_smaller(model, optimizer, step):
    losses = []
    for i in range(12):
        with step():
            losses.append(one(model, optimizer, *data(i, 96 if i % 5 == 4 else BATCH)))
    return losses


def evaluates_inside(model, optimizer, step):
    losses = []
    for i in range(9):
        with step():
            losses.append(one(model, optimizer, *data(i)))
            if i % 4 == 3:
                model.eval()
                with torch.no_grad():
                    losses.append(model(data(99)[0]).sum().item())
                model.train()
        with torch.no_grad():
            losses.append(model(data(98)[0]).sum().item())
    return losses


def evaluates_first(model, optimizer, step):
    losses = []
    for i in range(9):
        with step():
            if i % 4 == 3:
                model.eval()
                with torch.no_grad():
                    losses.append(model(data(99, 32)[0]).sum().item())
                model.train()
            losses.append(one(model, optimizer, *data(i)))
    return losses


def fails_now_and_then(model, optimizer, step):
    losses = []
    for i in range(10):
        x, y = data(i)
        with contextlib.suppress(ZeroDivisionError), step():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            if i in (3, 5):
                losses.append(1 // 0)
            loss.backward()
            if i == 6:
                losses.append(1 // 0)
            optimizer.step()
            losses.append(loss.item())
    return losses


def two_optimizer_steps(model, optimizer, step):
    losses = []
    for i in range(8):
        with step():
            losses += [one(model, optimizer, *data(i + 100 * half)) for half in range(2)]
    return losses


def optimizer_fails(model, optimizer, step):
    """Within a step that goes on."""
    losses = []
    for i in range(10):
        with step():
            hook = optimizer.register_step_pre_hook(lambda *_: 1 // 0) if i in (4, 7) else None
            with contextlib.suppress(ZeroDivisionError):
                losses.append(one(model, optimizer, *data(i)))
            if hook is not None:
                hook.remove()
                losses.append(one(model, optimizer, *data(i + 100)))
    return losses


def accumulates_in_a_step(model, optimizer, step):
    losses = []
    for i in range(6):
        with step():
            optimizer.zero_grad()
            for k in range(3):
                loss = functional.cross_entropy(model(data(3 * i + k)[0]), data(3 * i + k)[1]) / 3
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
    return losses


def accumulates(n_steps, update):
    """Every third step goes on, with `update`, where the others end."""
    def train(model, optimizer, step):
        losses = []
        for i in range(n_steps):
            x, y = data(i)
            with step():
                loss = functional.cross_entropy(model(x), y) / 3
                loss.backward()
                losses.append(loss.item())
                if i % 3 == 2:
                    update(model, optimizer, i)
        return losses
    return train


def update_and_reset(model, optimizer, i):
    optimizer.step()
    optimizer.zero_grad()


def with_checkpoints(model, optimizer, step):
    def forward(x):
        x = checkpoint(model[:9], x, use_reentrant=False)
        return model[9:](x)
    losses = []
    for i in range(6):
        with step():
            losses.append(one(forward, optimizer, *data(i)))
    return losses


def backward_later(model, optimizer, step):
    losses = []
    for i in range(7):
        x, y = data(i)
        with step():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            if i not in (3, 5):
                loss.backward()
        if i in (3, 5):
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def twice_backward(model, optimizer, step):
    losses = []
    for i in range(6):
        x, y = data(i)
        with step():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward(retain_graph=True)
            loss.backward(retain_graph=i == 4)
            if i == 4:
                loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def penalty_of_gradients(model, optimizer, step):
    losses = []
    for i in range(5):
        x, y = data(i)
        x.requires_grad_()
        with step():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            gradient, = torch.autograd.grad(loss, x, create_graph=True)
            (loss + gradient.square().sum()).backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def other_numbers(model, optimizer, step):
    """A number that is another one in each step, and a path that changes after a while."""
    losses = []
    for i in range(9):
        x, y = data(i)
        with step():
            optimizer.zero_grad()
            h = model[:9](x * (1 + i))
            h = torch.tanh(h / (i + 1)) if i < 6 else torch.sin(h / (i + 1))
            loss = functional.cross_entropy(model[9:](h), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def swaps_its_branches(model, optimizer, step):
    """The same operators on the same shapes, but of other tensors."""
    losses = []
    for i in range(9):
        x, y = data(i)
        with step():
            optimizer.zero_grad()
            a, b = model[:3](x), model[3:6](x)
            a, b = (b, a) if i % 4 == 3 else (a, b)
            h = torch.tanh(a) * 2 + torch.tanh(b)
            loss = functional.cross_entropy(model[6:](h * b), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def writes_in_place(model, optimizer, step):
    losses = []
    for i in range(7):
        x, y = data(i)
        with step():
            optimizer.zero_grad()
            h = model[0](x)
            h.mul_(2).add_(1)
            functional.relu_(h)
            h = functional.dropout(model[3](h), 0.2, inplace=True)
            h = functional.gelu(h)
            h += 1
            loss = functional.cross_entropy(model[6:](h), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def writes_in_backward(model, optimizer, step):
    """A hook writes what others would be computed again from."""
    def loss_of(x, y):
        h = model[0](x).clone()

        def write(gradient):
            with torch.no_grad():
                h.detach().add_(1)
            return gradient
        parts = [(k * h).sin() for k in range(2, 9)]
        parts[-1].register_hook(write)
        return functional.cross_entropy(model[1:](sum(parts)), y)
    losses = []
    for i in range(6):
        with step():
            optimizer.zero_grad()
            loss = loss_of(*data(i))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def writes_in_parts(model, optimizer, step):
    """A GRU writes the parts of one storage in place, and saves each part by itself."""
    torch.manual_seed(4)
    gru = nn.GRU(WIDTH, WIDTH, 2, dropout=0.1)
    optimizer.add_param_group({"params": list(gru.parameters())})
    losses = []
    for i in range(7):
        x, y = data(i)
        with step():
            optimizer.zero_grad()
            h = gru(x.view(8, -1, WIDTH))[0].flatten(0, 1)
            loss = functional.cross_entropy(model(h), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def empty_tensors(model, optimizer, step):
    """Tensors without bytes, which may lie where a storage lay that a plan has dropped (caches of keys begin so)."""
    losses = []
    for i in range(8):
        x, y = data(i)
        with step():
            optimizer.zero_grad()
            h, kept = x, []
            for k in range(0, 18, 3):
                h = model[k:k + 3](h)
                kept.append(torch.cat([torch.empty(0, WIDTH), h * 2]))
            loss = functional.cross_entropy(model[18](h + sum(kept)), y)
            del h, kept
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def tensors_from_bytes(model, optimizer, step):
    """Tensors that no operator made. They live as long as something may have to be computed again from them. When they
    were made is not seen: the plan has them from the step's begin, so a peak before their first use is planned too high."""
    losses = []
    for i in range(5):
        x, y = data(i)
        numbers = bytes(x.untyped_storage().tolist())
        with step():
            optimizer.zero_grad()
            h = x
            for k in range(0, 18, 3):
                h = torch.tanh(model[k:k + 3](h) * torch.frombuffer(bytearray(numbers), dtype=torch.float).view(x.shape))
            loss = functional.cross_entropy(model[18](h), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def sparse_gradients(model, optimizer, step):
    torch.manual_seed(4)
    words = nn.EmbeddingBag(100, WIDTH, sparse=True)
    of_words, losses = torch.optim.SGD(words.parameters(), 0.1), []
    for i in range(6):
        x, y = data(i)
        with step():
            optimizer.zero_grad()
            of_words.zero_grad()
            loss = functional.cross_entropy(model(words((x.abs() * 20).long())), y)
            loss.backward()
            optimizer.step()
            of_words.step()
            losses.append(loss.item())
    return losses


def another_beside(model, optimizer, step):
    """A network beside, of which this step knows nothing, and whose gradients come and go."""
    other, losses = net(4), []
    for i in range(6):
        if i % 2 == 0:
            other(data(90 + i)[0]).sum().backward()
        else:
            other.zero_grad()
        with step():
            losses.append(one(model, optimizer, *data(i)))
    return losses


def forks(model, optimizer, step):
    losses = []
    for i in range(6):
        with step():
            if i in (1, 4):
                child = os.fork()
                if child == 0:
                    with contextlib.suppress(BaseException):
                        one(model, optimizer, *data(i))
                    os._exit(0)
                os.waitpid(child, 0)
            losses.append(one(model, optimizer, *data(i)))
    return losses


def writes_by_size(model, optimizer, step):
    """A small batch changes the tensor that others were made from; a large one changes another tensor."""
    def loss_of(x, y):
        h, other = model[0](x).clone(), model[0](x)
        found = sum((k * h).sin() for k in range(2, 9))
        with torch.no_grad():
            (other if len(x) == 256 else h).add_(1)
        return functional.cross_entropy(model[1:](found), y)
    losses = []
    for i, n in enumerate((256, 256, 256, 190, 256, 180, 200)):
        with step():
            optimizer.zero_grad()
            loss = loss_of(*data(i, n))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


PROGRAMS = {
    "sizes by which another tensor is written": (writes_by_size, lambda told: told["steps_unlike"] <= 2),
    "a smaller last batch": (last_batch_is_smaller, lambda told: told["plans"] <= 2 and told["steps_unlike"] <= 1),
    "an evaluation after the step's work": (evaluates_inside, lambda told: True),
    "an evaluation before it": (evaluates_first, lambda told: True),
    "two optimizer steps": (two_optimizer_steps, lambda told: told["steps_unlike"] == 0),
    "an optimizer that fails": (optimizer_fails, lambda told: told["steps_unlike"] > 0),
    "exceptions": (fails_now_and_then, lambda told: told["plans"] >= 1),
    "accumulation in one step": (accumulates_in_a_step, lambda told: told["steps_unlike"] == 0),
    "accumulation over steps": (accumulates(15, update_and_reset), lambda told: told["steps_unlike"] <= 3 and 2 <= told["plans"] <= 3),
    "checkpoints inside": (with_checkpoints, lambda told: told["steps_unlike"] == 0),
    "a backward pass behind the step": (backward_later, lambda told: True),
    "two backward passes": (twice_backward, lambda told: True),
    "a penalty of gradients": (penalty_of_gradients, lambda told: told["steps_unlike"] == 0),
    "numbers and a path that change": (other_numbers, lambda told: True),
    "branches that are swapped": (swaps_its_branches, lambda told: True),
    "writes in place": (writes_in_place, lambda told: told["steps_unlike"] == 0),
    "writes in the backward pass": (writes_in_backward, lambda told: told["steps_unlike"] == 0),
    "writes in parts": (writes_in_parts, lambda told: told["steps_unlike"] == 0 and told["peak_measured_bytes"] ==
                        told["peak_planned_bytes"]),
    "tensors without bytes": (empty_tensors, lambda told: told["steps_unlike"] == 0),
    "tensors from bytes": (tensors_from_bytes, lambda told: told["steps_unlike"] == 0 and
                           told["peak_measured_bytes"] <= told["peak_planned_bytes"]),
    "sparse gradients": (sparse_gradients, lambda told: told["steps_unlike"] == 0 and
                         told["peak_measured_bytes"] <= told["peak_planned_bytes"]),
    "another network beside": (another_beside, lambda told: told["plans"] == 1),
    "forks": (forks, lambda told: told["steps_unlike"] == 0),
}


# ---- wrong use -----------------------------------------------------------------------------------

def misuse():
    for budget in ("", "6 apples", 0, -1, "0%", True, 1.5, None):
        raises(f"a budget of {budget!r}", ValueError, "a budget is", lambda: ebb.torch.Budget(budget))
    raises("a budget above all", ValueError, "more than a step needs", lambda: ebb.torch.Budget("150%"))
    raises("a folder that is not there", ValueError, "does not exist", lambda: ebb.torch.Budget("1GiB", spill="/nowhere"))
    raises("a folder that is a file", ValueError, "is a file", lambda: ebb.torch.Budget("1GiB", spill=__file__))
    raises("half an effort", ValueError, "effort is", lambda: ebb.torch.Budget("1GiB", effort=0.5))
    raises("no folder at all", ValueError, "spill is", lambda: ebb.torch.Budget("1GiB", spill=3))
    raises("a model that is none", TypeError, "model", lambda: ebb.torch.Budget("1GiB", model=3))
    raises("an optimizer that is none", TypeError, "optimizer", lambda: ebb.torch.Budget("1GiB", optimizer=3))
    fit, other = ebb.torch.Budget("1GiB"), ebb.torch.Budget("1GiB")
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        raises(f"a Budget for {copied.__module__}.{copied.__name__}", TypeError, "can't be copied", lambda: copied(fit))

    def nest(inner):
        with fit.step(), inner.step():
            pass
    around = fit.step()
    for _ in range(2):
        with around:
            raises("a step in itself", RuntimeError, "running already", around.__enter__)
    raises("a step in a step", RuntimeError, "running already", lambda: nest(fit))
    raises("a step in another Budget's", RuntimeError, "running already", lambda: nest(other))
    with fit.step():
        found = torch_verdict.said_elsewhere(fit.step().__enter__)
    verdict("a step on another thread meanwhile", len(found) == 1 and "running already" in found[0], found)


def refusals():
    """Each says what to type next, in lines below 100 columns as Python prints them."""
    def refused(spill, moves_all):
        try:
            run(alike, 1000, spill, moves_all)
        except ebb.torch.DoesNotFit as error:
            return error.least_bytes, traceback.format_exception_only(error)[0].splitlines()
        return 0, []

    least, lines = refused("none", False)
    verdict("a budget that is too small", lines[:1] == ["ebb.torch.DoesNotFit: ebb: no plan keeps this step within 1000 bytes"],
            lines)
    verdict("the least is what to type next", any(f"ebb.torch.Budget({least})" in line for line in lines), least, lines)
    verdict("then somewhere to move to", 'spill="/a/folder"' in lines[-1], lines)
    inside, lines = refused("ram", False)
    verdict("then the model and the optimizer", "model=model, optimizer=optimizer" in lines[-1] and inside <= least, lines)
    everything, lines = refused("ram", True)
    verdict("then there is nothing more to say", "Budget(" in lines[-1] and 0 < everything < inside, lines, inside)
    verdict("lines are below 100 columns", all(len(line) < 100 for line in lines), lines)
    got = run(alike, least, "none", False)[2].summary()
    verdict("the least is kept", got["peak_measured_bytes"] <= least and got["moved_out_bytes"] == 0, got)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(stream, delay_s, act):
    """The lines on stderr."""
    _say._DELAY_S, sys.stderr, before = delay_s, stream, (_say._DELAY_S, sys.stderr)
    try:
        act()
    finally:
        _say._DELAY_S, sys.stderr = before
    return stream.getvalue().splitlines()


def tells_what_it_does():
    """On a terminal, or where it takes long, a line each that it records, plans and follows."""
    def train(**more):
        model = net()
        optimizer, fit = torch.optim.AdamW(model.parameters()), ebb.torch.Budget("70%", effort=EFFORT, **more)
        alike(model, optimizer, fit.step)

    lines = told(Terminal(), 1e9, train)
    verdict("on a terminal: records, plans, follows", len(lines) == 3 and all(
        line.startswith("ebb: " + word) and len(line) <= 100
        for line, word in zip(lines, ("recording", "planning", "following"))), lines)
    verdict("no terminal: nothing is said of what is quick", told(io.StringIO(), 1e9, train) == [])
    slow = told(io.StringIO(), 1e-3, train)
    verdict("no terminal: what takes long is told", [line.split()[:2] for line in slow] == [line.split()[:2] for line in lines],
            slow, lines)
    verdict("quiet", told(Terminal(), 1e-3, lambda: train(quiet=True)) == [])
    os.environ["EBB_PROGRESS_S"] = "0"
    verdict("EBB_PROGRESS_S=0", told(Terminal(), 1e-3, train) == [])
    del os.environ["EBB_PROGRESS_S"]

    def refuse(*_):
        raise RuntimeError("can't start new thread")
    start, threading.Timer.start = threading.Timer.start, refuse
    try:
        verdict("a process that may start no thread trains, too", told(io.StringIO(), 1e9, train) == [])
    finally:
        threading.Timer.start = start


def summary_is_a_table():
    *_, fit = run(alike, "70%", None, False)
    summary = fit.summary()
    text = str(summary)
    verdict("a summary is a dict", isinstance(summary, dict) and json.loads(json.dumps(summary)) == summary == eval(repr(summary)))
    verdict("it prints as a table with units", len(text.splitlines()) == 8 and all(len(line) < 100 for line in text.splitlines())
            and f"{summary['budget_bytes'] / (1 << 20):.2f} MiB" in text and f"{summary['recomputed_ops']} operators" in text, text)
    verdict("a Budget says what it is", _say.bytes_text(summary["peak_planned_bytes"]) in repr(fit), fit)
    texts = [_say.bytes_text(n) for n in (0, 1023, 1024, 1 << 20, 3 << 29)]
    verdict("bytes are written as on the command line", texts == ["0 B", "1023 B", "1.00 KiB", "1.00 MiB", "1.50 GiB"], texts)
    fresh = ebb.torch.Budget("70%")
    verdict("before its first step, too", "70%" in repr(fresh) and "no plan yet" in repr(fresh) and
            "no plan yet" in str(fresh.summary()), fresh, str(fresh.summary()))


def writes_what_is_saved():
    """As PyTorch, ebb refuses to go on with other bytes: in the steps that are recorded, and in those that follow."""
    for bad, writes_weight in [(bad, writes_weight) for bad in (0, 1, 3) for writes_weight in (False, True)]:
        model = net()
        optimizer, fit = torch.optim.AdamW(model.parameters(), 1e-3), ebb.torch.Budget("70%", effort=EFFORT)

        def train():
            for i in range(4):
                with fit.step():
                    optimizer.zero_grad()
                    h = torch.sigmoid(model[:9](data(i)[0]))
                    y = model[9:](h)
                    with torch.set_grad_enabled(not writes_weight):
                        if i == bad:
                            (model[12].weight if writes_weight else h)[:, 3] += 1
                    y.sum().backward()
                    optimizer.step()
        raises(f"{'a weight' if writes_weight else 'what was saved'} is written, step {bad}", RuntimeError, "changed in place", train)


def all_moves(budget, make, spill=folder, n_steps=6):
    """(all that a network has after some steps, summary), where all that it has may move if there is a budget."""
    torch.manual_seed(3)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    fit = ebb.torch.Budget(budget, model, optimizer, spill, EFFORT) if budget else None
    for i in range(n_steps):
        with fit.step() if fit else contextlib.nullcontext():
            one(model, optimizer, *data(i))
    return [tensor.clone() for tensor in model.state_dict().values()], fit.summary() if fit else None


def same_when_all_moves(name, budget, make, spill=folder):
    plain, _ = all_moves(None, make)
    try:
        got, told = all_moves(budget, make, spill)
    except ebb.torch.DoesNotFit as error:
        budget = error.least_bytes
    else:
        budget = None
    if budget is not None:  # behind the handler, which keeps the network
        got, told = all_moves(budget, make, spill)
    verdict(name, all(torch.equal(a, b) for a, b in zip(plain, got)) and (told["recomputed_ops"] or told["moved_out_bytes"])
            and told["peak_measured_bytes"] <= told["budget_bytes"], told)


def statistics_move():
    """Batch-norm writes its statistics, which its schema does not say. Here they are large enough to leave."""
    def make():
        layers = (layer for _ in range(2) for layer in (nn.Linear(64, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Linear(1024, 64)))
        return nn.Sequential(*layers, nn.Linear(64, 8))
    same_when_all_moves("statistics of batch-norm move", "20%", make)


def owners_without_a_tier():
    """A model and an optimizer that are named, and nowhere that anything could move to."""
    same_when_all_moves("a model is named and no folder", "70%", net, None)


def a_copy_fails():
    """The file takes no more, now and then: the step that is lost says so, the network is whole, later steps go on."""
    from ebb.torch import _slab
    write, n_calls, n_lost = os.pwrite, 0, 0

    def full(*args):
        nonlocal n_calls
        n_calls += 1
        if n_calls % 37 == 0:
            raise OSError(28, "No space left on device")
        return write(*args)
    torch.manual_seed(3)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    fit = ebb.torch.Budget("60%", model, optimizer, folder, EFFORT)
    try:
        for i in range(12):
            _slab.os.pwrite = full if i >= 3 else write
            try:
                with fit.step():
                    one(model, optimizer, *data(i))
            except OSError as error:
                n_lost += "No space" in str(error)
    finally:
        _slab.os.pwrite = write
    with fit.step():
        loss = one(model, optimizer, *data(1))
    whole = all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())
    verdict("copies that fail are told, and nothing is lost", n_lost > 0 and whole and loss == loss, n_lost, n_calls)


def after_a_refusal():
    """A refused step leaves no memory behind: neither its network's nor its batch's, once the exception is handled."""
    alive = []

    def train():
        model = net(1)
        optimizer, fit = torch.optim.AdamW(model.parameters(), 1e-3), ebb.torch.Budget(1000, effort=EFFORT)
        for i in range(5):
            x, y = data(i)
            alive.append(weakref.ref(x))
            with fit.step():
                one(model, optimizer, x, y)
            alive.extend(weakref.ref(t) for p in model.parameters() for t in (p, p.grad, *optimizer.state[p].values()))

    with contextlib.suppress(ebb.torch.DoesNotFit):
        train()
    gc.collect()
    left = [reference() for reference in alive if reference() is not None]
    verdict("a refused step leaves nothing", len(alive) == 1 + 1 + 14 * 5 and not left, len(alive), left)


def only_what_is_saved():
    """Where what autograd saves is enough, nothing else leaves, and operators of the backward pass and of the optimizer are
    not looked at; else all may leave, and they are."""
    def look(*_):
        looks.append(_get_current_dispatch_mode() is not None)

    def steps(model, optimizer, step):
        next(model.parameters()).register_hook(look)
        optimizer.register_step_pre_hook(look)
        optimizer.register_step_post_hook(look)  # before the global one
        losses = []
        for i in range(5):
            looks.clear()
            with step():
                losses.append(one(model, optimizer, *data(i)))
                look()
        return losses

    looks = []
    plain = run(steps, None, None, False)
    for share, is_whole in ("80%", False), ("1%", True):
        *got, fit = least_or(share, lambda share: run(steps, share, "ram", True))
        told = fit.summary()
        verdict(f"{'all' if is_whole else 'only what is saved'} leaves", are_same(plain, got) and told["moved_out_bytes"] > 0 and
                fit._current.recording.is_whole == is_whole and looks == [is_whole] * 3 + [True] and
                told["peak_measured_bytes"] == told["peak_planned_bytes"] <= told["budget_bytes"], told, looks)


def states_rest():
    """Only the optimizer's state leaves by itself: it is away until the optimizer steps, and what else uses it finds it there."""
    from ebb.torch import _fit, _recording
    fit_of = _fit.fit

    def fit_states(recording, budget_bytes, machine, tier_bytes, *more):
        """Near the least for which states leave, so that they have to."""
        states = recording.of(_recording.STATES)
        least = _fit.tightest(states, tier_bytes, 1 << 60).peak_bytes
        return fit_of(states, least + least // 100, machine, tier_bytes, *more)
    _fit.fit = fit_states

    def norm(optimizer, model):
        return optimizer.state[model[0].weight]["exp_avg"].norm().item() if optimizer.state else 0

    def steps(look_forward, look_backward):
        def train(model, optimizer, step):
            losses = []
            for i in range(7):
                with step():
                    optimizer.zero_grad()
                    h = model[:9](data(i)[0])
                    if look_forward and i == 5:
                        losses.append(norm(optimizer, model))
                    if look_backward and i > 3:
                        h.register_hook(lambda _: losses.append(norm(optimizer, model)))
                    loss = functional.cross_entropy(model[9:](h), data(i)[1])
                    loss.backward()
                    if look_forward and i == 6:
                        losses.append(sum(s["exp_avg_sq"].sum().item() for s in optimizer.state_dict()["state"].values()))
                    optimizer.step()
                losses.append(loss.item())
            return losses + [s[key].numpy().tobytes() for s in optimizer.state.values() for key in sorted(s)]
        return train

    def fails(model, optimizer, step):
        losses = []
        for i in range(8):
            with contextlib.suppress(ZeroDivisionError), step():
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(data(i)[0]), data(i)[1])
                if i == 4:
                    raise ZeroDivisionError
                loss.backward()
                if i != 5:
                    optimizer.step()
                losses.append(loss.item())
        return losses

    def steps_in_backward(model, optimizer, step):
        losses = []
        model[0].weight.register_post_accumulate_grad_hook(lambda _: optimizer.step() if len(losses) > 3 else None)
        for i in range(7):
            with step():
                loss = backward(model, optimizer, *data(i))
                if i < 4:
                    optimizer.step()
            losses.append(loss.item())
        return losses

    def around_the_optimizer(mode):
        def train(model, optimizer, step):
            losses = []
            for i in range(6):
                with step():
                    loss = backward(model, optimizer, *data(i))
                    with mode():
                        optimizer.step()
                    n = len(seen)
                    _ = torch.ones(1) + 1
                    losses += loss.item(), len(seen) - n, norm(optimizer, model)
            return losses
        return train

    def another_in_backward(model, optimizer, step):
        scale, losses = nn.Parameter(torch.ones(WIDTH)), []
        other = torch.optim.SGD([scale], 0.1)

        def update(_):
            other.step()
            other.zero_grad()
        scale.register_post_accumulate_grad_hook(update)
        for i in range(6):
            with step():
                losses.append(one(model, optimizer, data(i)[0] * scale, data(i)[1]))
        return losses

    def by_hand(model, optimizer, step):
        losses = []
        for i in range(7):
            with step():
                loss = backward(model, optimizer, *data(i))
                if i == 0:
                    optimizer.step()
                for p, state in optimizer.state.items() if i else ():
                    with torch.no_grad():
                        p.sub_(state["exp_avg"].lerp_(p.grad, 0.1), alpha=0.01)
                        state["exp_avg_sq"].mul_(0.9)
            losses.append(loss.item())
        return losses

    def copies(model, optimizer, step):
        losses = []
        for i in range(7):
            with step():
                losses.append(one(model, optimizer, *data(i)))
                held = copy.deepcopy(optimizer.state_dict())["state"] if i > 3 else {}
            losses.append(sum(state["exp_avg"].norm().item() for state in held.values()))
            if i == 5:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        return losses

    def two_sizes(model, optimizer, step):
        losses = []
        for i in range(10):
            with step():
                losses.append(one(model, optimizer, *data(i, BATCH if i < 4 or i % 2 else BATCH - 16)))
        return losses

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **kwargs or {})

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **kwargs or {})

    seen = []
    try:
        for name, program in (("a function mode around the optimizer", around_the_optimizer(Functions)),
                              ("a dispatch mode around the optimizer", around_the_optimizer(Operators)),
                              ("another optimizer in the backward pass", another_in_backward),
                              ("the optimizer's work by hand", by_hand), ("copies of the states", copies),
                              ("two sizes of steps", two_sizes), ("nothing looks", steps(False, False)),
                              ("the forward pass looks", steps(True, False)), ("the backward pass looks", steps(False, True)),
                              ("steps fail", fails), ("an optimizer in the backward pass", steps_in_backward)):
            plain, (*got, fit) = run(program, None, None, False), run(program, "50%", "ram", True)
            told, planned = fit.summary(), fit._current
            verdict(f"states rest: {name}", are_same(plain, got) and (told["peak_measured_bytes"] or 0) <= told["peak_planned_bytes"] and
                    told["moved_out_bytes"] > 0 and [*fit._plans][0].recording.rests and
                    ([*fit._plans][-1].recording.rests or program is fails), plain[0], got[0], told)  # one that does not use them
            if name == "nothing looks":
                verdict("states rest: all steps are alike", told["steps_unlike"] == 0, told)
                verdict("states rest: counted as planned", told["peak_measured_bytes"] == told["peak_planned_bytes"], told)
    finally:
        _fit.fit = fit_of


def steps_on_another_thread():
    """Of an optimizer whose state may be away, and operators of another thread are not seen."""
    def steps(model, optimizer, step):
        found = []

        def update():
            try:
                optimizer.step()
            except RuntimeError as error:
                found.append(str(error))
        for i in range(4):
            with step():
                backward(model, optimizer, *data(i))
                thread = threading.Thread(target=update)
                if i == 3:
                    thread.start()
                    thread.join()
                else:
                    optimizer.step()
        return found

    found, *_ = least_or("1%", lambda share: run(steps, share, "ram", True))
    verdict("an optimizer that steps on another thread", len(found) == 1 and "on another thread" in found[0], found)


def less_room_beside_others():
    """What lies beside storages, which only a card's allocator tells, is part of the budget and of the peaks."""
    from ebb.torch import _budget, _outside
    verdict("what lies beside storages is counted", _outside._of_card(
        {"requested_bytes.all.current": 100, "requested_bytes.all.peak": 150, "allocated_bytes.all.peak": 157}, 60) == 47 and
        _outside._of_card({"allocated_bytes.all.peak": 157}, 60) == 0)

    def train(budget):
        *_, fit = run(lambda model, optimizer, step: [one_step(model, optimizer, step, i) for i in range(4)], budget, "ram", True)
        return fit.summary()

    def one_step(model, optimizer, step, i):
        with step():
            return one(model, optimizer, *data(i))

    def least():
        try:
            train(1)
        except ebb.torch.DoesNotFit as error:
            return error.least_bytes

    told, outside, least_alone = train("100%"), 1 << 20, least()
    budget = told["plain_bytes"] * 4 // 5
    _budget.outside_bytes = lambda: outside
    try:
        beside = train(budget + outside)
        verdict("the least that is named has it", least() - least_alone == outside)
    finally:
        _budget.outside_bytes = _outside.outside_bytes
    verdict("peaks have it", beside["plain_bytes"] - told["plain_bytes"] == outside and beside["moved_out_bytes"] > 0 and
            budget / 2 < beside["peak_measured_bytes"] - outside == beside["peak_planned_bytes"] - outside <= budget, told, beside)


if __name__ == "__main__":
    torch.set_num_threads(1)
    QUICK = ("a smaller last batch", "another network beside")
    for i, name in enumerate(sys.argv[2:] or (PROGRAMS if "EBB_TEST_ALL" in os.environ else QUICK)):
        compare(name, *PROGRAMS[name], WAYS if sys.argv[2:] else (WAYS[i % len(WAYS)],))
    if not sys.argv[2:]:
        misuse()
        refusals()
        tells_what_it_does()
        summary_is_a_table()
        writes_what_is_saved()
        after_a_refusal()
        statistics_move()
        owners_without_a_tier()
        a_copy_fails()
        only_what_is_saved()
        states_rest()
        steps_on_another_thread()
        less_room_beside_others()
    sys.exit(torch_verdict.status)
