#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget where a step does what no operator shows: kernels of other libraries, memory that NumPy writes, flags that choose
an algorithm, random generators that are handed on. Then what uses parameters between steps without an operator.

    tests/e2e/torch_budget_unseen.py FOLDER
"""
import contextlib
import copy
import gc
import os
import random
import signal
import sys
import warnings

import numpy as np
import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import ebb.torch
from ebb import planning
from ebb._interrupts import held, watched
import torch_verdict
from torch_verdict import verdict

folder = sys.argv[1]
WIDTH, ROWS, N_STEPS = 128, 256, 6
PLANS = ({"budget": "60%"}, {"budget": "60%", "spill": folder}, {"budget": "60%", "spill": folder, "moves": True})


class Unseen(torch.autograd.Function):
    """A kernel that PyTorch is not told of, as one of Triton or of an extension."""

    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        np.tanh(x.detach().numpy(), out=y.numpy())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, slope):
        y, = ctx.saved_tensors
        return slope * (1 - y * y)


class Wrapped(torch.Tensor):
    pass


def kernels(model, x):
    for layer in model:
        x = Unseen.apply(layer(x))
    return x.square().mean()


def subclasses(model, x):
    seen = (x * 2).sigmoid()
    x.as_subclass(Wrapped).mul_(3)
    x = seen * x
    for layer in model:
        x = layer(x)
        x.as_subclass(Wrapped).add_(1)
        x = (x * x).sigmoid()
    return x.square().mean()


def memory_of_numpy(model, x):
    for layer in model:
        x = layer(x)
        mask = torch.zeros_like(x)
        mask.detach().numpy()[...] = 2
        x = (x * mask).sin() * mask
    return x.square().mean()


def buffers_of_numpy(model, x):
    buffer, total = np.zeros((ROWS, WIDTH), np.uint8), 0
    for i in range(8):
        buffer[:] = np.random.RandomState(i).randint(0, 255, buffer.shape)
        seen = torch.from_numpy(buffer).float() / 255
        total = total + model[0](seen * x).sigmoid().mean()
    return total


def flags(model, x):
    for layer in model:
        torch.set_float32_matmul_precision("medium")
        x = layer(x)
        torch.set_float32_matmul_precision("highest")
        x = x * x.sigmoid()
    return x.square().mean()


def generators(model, x):
    generator = torch.Generator().manual_seed(1)
    for layer in model:
        x = layer(x).sigmoid()
        x = x * torch.poisson(x.detach() * 3, generator)
    return x.square().mean()


def inference(model, x):
    with torch.inference_mode():
        model.seen = model[0](x).square()
    for layer in model:
        x = layer(x).tanh()
    return x.square().mean()


def swapped(model, x, is_swapped=True):
    """Other weights in the forward pass than in the backward pass."""
    if not hasattr(model, "others"):
        model.others = [parameter.detach() * 3 for parameter in model.parameters()]

    def swap():
        for parameter, other in zip(model.parameters(), model.others if is_swapped else ()):
            parameter.data, other.data = other.data, parameter.data
    swap()
    for layer in model:
        x = layer(x).tanh().mul(1.1)
    swap()
    return x.square().mean()


class Training:
    def __init__(self, budget=None, moves=False, spill=None):
        torch.manual_seed(0)
        self.model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(6)])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        owners = {"model": self.model, "optimizer": self.optimizer} if moves else {}
        self.fit = ebb.torch.Budget(budget, spill=spill, effort=0, quiet=True, **owners) if budget else None

    def train(self, loss_of, n_steps=N_STEPS):
        losses = []
        for i in range(n_steps):
            x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(i))
            with self.fit.step() if self.fit else contextlib.nullcontext():
                self.optimizer.zero_grad()
                loss = loss_of(self.model, x)
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
        return losses

    def bits(self, loss_of):
        losses = self.train(loss_of)
        return losses, [parameter.tolist() for parameter in self.model.parameters()]


def within(loss_of, plan):
    """As plainly; within the budget, or the least that is named."""
    for _ in range(3):
        training = Training(**plan)
        try:
            return training.bits(loss_of), training.fit.summary()
        except ebb.torch.DoesNotFit as error:
            plan = {**plan, "budget": error.least_bytes}
    return None, None


def check_bits():
    for loss_of in (kernels, subclasses, memory_of_numpy, buffers_of_numpy, flags, generators, inference, swapped):
        plainly = Training().bits(loss_of)
        for plan in PLANS:
            got, told = within(loss_of, plan)
            verdict(f"{loss_of.__name__}, {plan}: the same bits, as planned", got == plainly and told["steps_unlike"] == 0, told)
            verdict(f"{loss_of.__name__}, {plan}: the bytes as planned", told["peak_measured_bytes"] <= told["peak_planned_bytes"], told)
            gc.collect()


def check_between_steps():
    training = Training("60%", True, folder)
    training.train(inference)
    del training.model.seen
    training.fit.put_away()
    answer = ebb.torch.plan(training.model, (torch.randn(ROWS, WIDTH),), training.optimizer, loss=lambda model, x: model(*x).sum(),
                            quiet=True)
    verdict("a plan for what is away", answer.plain_bytes > answer.least_bytes > 0, answer)
    training.fit.put_away()
    training.fit.bring_back()
    path = os.path.join(folder, "scripted.pt")
    torch.jit.script(copy.deepcopy(training.model)).save(path)
    again = torch.jit.load(path)
    x = torch.randn(ROWS, WIDTH)
    verdict("a scripted copy of what came back", torch.equal(again(x), training.model(x)))
    verdict("what came back leaves again", training.train(inference) is not None and training.fit.summary()["steps_unlike"] == 0,
            training.fit.summary())


def check_written_after_the_step():
    """Before a graph that outlives its step is used."""
    for plan in ({"budget": "90%"}, {"budget": "80%", "spill": folder}):
        training, x = Training(**plan), torch.randn(ROWS, WIDTH)
        for is_last in (False, False, False, True):
            with training.fit.step():
                made = training.model(x).exp()
                loss = (made * made).mean()
                if not is_last:
                    loss.backward()
        loss.backward(retain_graph=True)
        made.detach().mul_(2)
        try:
            loss.backward()
            verdict(f"written after the step, {plan}: told", False)
        except RuntimeError as error:
            verdict(f"written after the step, {plan}: told", "in place" in str(error), error)


def late(act):
    """The exception of a step that does another thing only once there is a plan, within the least budget; None: there is none."""
    budget = "20%"
    for _ in range(3):
        training = Training(budget)
        try:
            training.train(lambda model, x: act(model, x, False))
            break
        except ebb.torch.DoesNotFit as error:
            budget = error.least_bytes
    try:
        training.train(lambda model, x: act(model, x, True))
    except RuntimeError as error:
        return str(error)
    return None


def check_late_changes():
    def with_flags(model, x, is_late):
        with torch.backends.mkldnn.flags(enabled=not is_late):
            for layer in model:
                x = layer(x).tanh().mul(1.1)
        return x.square().mean()
    found = late(with_flags)
    verdict("flags that change after the plan: told", found is not None and "flags" in found, found)
    found = late(swapped)
    verdict("weights that are exchanged after the plan: told", found is not None and "changed" in found, found)


def check_assigned():
    training = Training("90%")

    def assign(model, x):
        x = model[0](x)
        y = x * x
        x.data = x.data * 2
        return model[1](y).square().mean()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with contextlib.suppress(ebb.torch.DoesNotFit):
            training.train(assign, 2)
    verdict("data that are assigned: a warning", any(".data of a tensor" in str(one.message) for one in told), told)


def check_mapped_parameters():
    """Those of a file that is mapped do not move, but what is computed from them is computed again."""
    path = os.path.join(folder, "parameters.pt")
    torch.save(Training().model.state_dict(), path)
    training = Training("75%")
    training.model.load_state_dict(torch.load(path, mmap=True), assign=True)
    for parameter in training.model.parameters():
        parameter.requires_grad_(parameter.ndim > 1)
    training.optimizer = torch.optim.SGD(training.model.parameters(), 1e-3)
    training.train(lambda model, x: model(x).square().mean(), 1)
    are_mapped = not training.model[0].weight.untyped_storage().resizable()
    try:
        training.train(lambda model, x: model(x).square().mean())
    except ebb.torch.DoesNotFit as error:
        verdict("parameters of a mapped file", False, error)
        return
    told = training.fit.summary()
    verdict("parameters of a mapped file", are_mapped and told["recomputed_ops"] > 0 and told["steps_unlike"] == 0, are_mapped, told)


def check_other_thread():
    fit = Training("60%", True, folder).fit
    with fit.step():
        found = torch_verdict.said_elsewhere(fit.put_away, fit.bring_back)
    verdict("what is for between steps, in a step of another thread",
            len(found) == 2 and all("between steps" in text for text in found), found)


def check_signals():
    got = []
    before = [signal.signal(number, lambda number, _: got.append(number)) for number in (signal.SIGUSR1, signal.SIGTERM)]
    with watched(), held():
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
    verdict("two signals that wait are both handled", got == [signal.SIGUSR1, signal.SIGTERM], got)
    for number, handler in zip((signal.SIGUSR1, signal.SIGTERM), before):
        signal.signal(number, handler)


def chain(n):
    """A network of skips at random, forward and backward."""
    rng, program = random.Random(1), planning.Program("chain")
    made = [program.tensor(f"t{i}", rng.randint(1000, 9000)) for i in range(n)]
    slope = program.tensor("slope", 1000)
    for i in range(n):
        before = [made[i - 1], made[max(0, i - rng.randint(2, 9))]] if i > 1 else made[:i]
        program.step(f"s{i}", before, [made[i]], phase=0, repeat=planning.EXACT, time_ns=rng.randint(1000, 90000))
    program.step("loss", made[-1:], [slope], phase=2)
    for i in range(n - 1, 0, -1):
        last, slope = slope, program.tensor(f"slope{i}", rng.randint(1000, 9000))
        program.step(f"b{i}", [last, made[i], made[i - 1]], [slope], phase=2, time_ns=rng.randint(1000, 90000))
    return program


def check_a_search_is_interrupted():
    """It would take hours."""
    program = chain(100)

    def interrupt(*_):
        raise KeyboardInterrupt
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        program.plan(100000, planning.Machine(), effort=1000000)
        verdict("a search is interrupted", False, "it ended")
    except KeyboardInterrupt:
        verdict("a search is interrupted", True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    verdict("the next one is not", program.plan(100000, planning.Machine(), effort=0).peak_bytes <= 100000)


if __name__ == "__main__":
    torch.set_num_threads(1)
    check_signals()
    check_a_search_is_interrupted()
    check_other_thread()
    check_between_steps()
    check_written_after_the_step()
    check_mapped_parameters()
    check_late_changes()
    check_assigned()
    check_bits()
    sys.exit(torch_verdict.status)
