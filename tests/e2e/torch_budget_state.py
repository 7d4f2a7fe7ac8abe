#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget where parameters, gradients and the optimizer's state leave: budgets below what these need, and programs
that look at them, change them or keep them between steps.

    tests/e2e/torch_budget_state.py FOLDER [NAME...]

Each program trains plainly and with a budget, and the bits are compared. Without names: all of them if EBB_TEST_ALL is in
the environment, else a few.
"""
import contextlib
import copy
import gc
import io
import os
import pickle
import sys
import threading
import types

import torch
from torch import nn
from torch.nn import functional

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import ebb.torch
from ebb import planning
from ebb.torch import _follow, _slab
import torch_verdict
from torch_budget import EFFORT
from torch_verdict import verdict

folder = sys.argv[1]
WIDTH, DEPTH, BATCH = 96, 6, 8


class Net(nn.Module):
    """Far more parameters than activations; the first and the last layer are one tensor, and one is frozen."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self.layers[-1].weight = self.layers[0].weight
        self.layers[2].weight.requires_grad_(False)

    def forward(self, x):
        for layer in self.layers:
            x = functional.dropout(torch.tanh(layer(x)), 0.1, self.training)
        return x


def data(i):
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(i))


class Training:
    """What a program has: a model, an optimizer, `step` to put around steps, and `fit` or None."""

    def __init__(self, budget=None, spill=folder, make=lambda model: torch.optim.AdamW(model.parameters(), 1e-2)):
        gc.collect()
        torch.manual_seed(3)
        self.model = Net()
        self.optimizer = make(self.model)
        self.fit = ebb.torch.Budget(budget, self.model, self.optimizer, spill, EFFORT) if budget else None
        self.step = self.fit.step if self.fit else contextlib.nullcontext
        torch.manual_seed(11)

    def one(self, i):
        with self.step():
            self.optimizer.zero_grad()
            loss = self.model(data(i)).square().mean()
            loss.backward()
            self.optimizer.step()
            return loss.item()

    def weights(self):
        """As bytes, which take no room of a budget."""
        tensors = [tensor.detach() for tensor in self.model.parameters()] + [
            value for state in self.optimizer.state.values() for value in state.values()]
        return [tensor.clone().numpy().tobytes() for tensor in tensors]


def owned_bytes(training):
    tensors = [*training.model.parameters(), *(p.grad for p in training.model.parameters() if p.grad is not None),
               *(value for state in training.optimizer.state.values() for value in state.values())]
    return sum(tensor.nbytes for tensor in tensors)


def away(training):
    """How many bytes are away."""
    return sum(page.n_bytes for page in training.fit._pager.away.values()) if training.fit else 1


def least_budget():
    training = Training("1%")
    try:
        for i in range(2):
            training.one(i)
    except ebb.torch.DoesNotFit as error:
        return error.least_bytes
    return 0


def fitted(program, budget, how):
    """With the least budget of the program where that is more."""
    try:
        training = Training(budget, **how)
        return training, (program(training), training.weights())
    except ebb.torch.DoesNotFit as error:
        least = error.least_bytes
    training = Training(least, **how)
    return training, (program(training), training.weights())


def compare(name, program, budget, **how):
    plain = Training(**how)
    expected = program(plain), plain.weights()
    del plain
    training, got = fitted(program, budget, how)
    told = training.fit.summary()
    verdict(f"{name}: the same bits", repr(expected[0]) == repr(got[0]) and expected[1] == got[1], expected[0], got[0],
            told)
    verdict(f"{name}: the bytes as planned, within the budget", told["is_planned"] and
            told["peak_measured_bytes"] == told["peak_planned_bytes"] <= told["budget_bytes"], told)
    return training


# ---- programs ------------------------------------------------------------------------------------

def plainly(training):
    return [training.one(i) for i in range(6)]


def looking(training):
    """Everything by which a program may get at a tensor between two steps."""
    parameter, found = training.model.layers[1].weight, []
    looks = [
        lambda: (parameter + 1).sum().item(), lambda: parameter.grad.abs().sum().item(), lambda: str(parameter),
        lambda: parameter.detach().clone().numpy().sum(), lambda: parameter.tolist()[0][:3], lambda: parameter[3, 4].item(),
        lambda: copy.deepcopy(training.model).layers[1].weight.sum().item(),
        lambda: copy.deepcopy(training.optimizer.state[parameter]["exp_avg"]).sum().item(),
        lambda: pickle.loads(pickle.dumps(parameter)).sum().item(),
        lambda: [t.sum().item() for t in through_a_file(training.model.state_dict()).values()],
        lambda: through_a_file(training.optimizer.state_dict())["state"][1]["exp_avg_sq"].sum().item(),
        lambda: torch.nn.utils.clip_grad_norm_(training.model.parameters(), 1e-3).item(),
        lambda: training.model.eval()(data(77)).sum().item(),
        lambda: training.model.train().layers[0](data(7)).sum().item(),
        lambda: torch.equal(parameter, parameter.clone()), lambda: torch.cat([parameter, parameter]).sum().item(),
        lambda: parameter.data_ptr() != 0, lambda: isinstance(parameter, nn.Parameter),
        lambda: torch.nn.utils.parameters_to_vector(training.model.parameters()).sum().item(),
        lambda: on_a_thread(lambda: parameter.sum().item()), lambda: parameter.untyped_storage().nbytes()]
    for i, look in enumerate([None, None, None, *looks]):
        found.append(training.one(i))
        with torch.no_grad():
            found.append(look() if look else None)
    return found


def through_a_file(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


def on_a_thread(act):
    found = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start()
    thread.join()
    return found[0]


def changing(training):
    """Weights, gradients and state are written between steps."""
    found, first = [], None
    for i in range(12):
        found.append(training.one(i))
        if i == 3:
            first = through_a_file(training.model.state_dict()), through_a_file(training.optimizer.state_dict())
        with torch.no_grad():
            if i == 5:
                training.model.layers[1].weight.mul_(2)
            if i == 6:
                training.model.layers[3].weight.data = torch.full((WIDTH, WIDTH), 0.01)
            if i == 7:
                nn.init.zeros_(training.model.layers[4].weight)
            if i == 8:
                training.optimizer.state[training.model.layers[1].weight]["exp_avg"].zero_()
        if i == 9:
            training.model.load_state_dict(first[0])
            training.optimizer.load_state_dict(first[1])
    return found


def keeping(training):
    """Others have tensors in the same storages: they stay right, and the storages come back."""
    kept = numbers = None
    found = []
    for i in range(9):
        found.append(training.one(i))
        if i == 3:
            kept = training.model.state_dict()
        if i > 3:
            found.append([tensor.sum().item() for tensor in kept.values()])
            verdict("tensors that are kept: the summary tells of them", not training.fit or
                    training.fit.summary()["held_bytes"] > 0)
        if i == 5:
            numbers = training.model.layers[1].weight.detach().numpy()
        if i > 5:
            found.append(float(numbers.sum()))
    return found


def clearing_last(training):
    found = []
    for i in range(6):
        with training.step():
            loss = training.model(data(i)).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(training.model.parameters(), 0.1)
            training.optimizer.step()
            training.optimizer.zero_grad()
            found.append(loss.item())
    return found


def clearing_in_place(training):
    found = []
    for i in range(6):
        with training.step():
            training.optimizer.zero_grad(set_to_none=False)
            loss = training.model(data(i)).square().mean()
            loss.backward()
            training.optimizer.step()
            found.append(loss.item())
    return found


def failing(training):
    found = []
    for i in range(9):
        with contextlib.suppress(ZeroDivisionError), training.step():
            training.optimizer.zero_grad()
            loss = training.model(data(i)).square().mean()
            if i == 4:
                found.append(1 // 0)
            loss.backward()
            if i == 6:
                found.append(1 // 0)
            training.optimizer.step()
            found.append(loss.item())
        with torch.no_grad():
            found.append(training.model.eval()(data(99)).sum().item() if i in (4, 6) else 0)
        training.model.train()
    return found


def looking_within(training):
    """Memory is handed out beside the operators, in a step."""
    found = []
    for i in range(6):
        with training.step():
            training.optimizer.zero_grad()
            loss = training.model(data(i)).square().mean()
            loss.backward()
            training.optimizer.step()
            found.append(loss.item())
            if i in (3, 4):
                found.append([tensor.tolist()[0] for tensor in training.model.parameters() if tensor.dim() > 1])
                found.append(pickle.loads(pickle.dumps(training.model.layers[1].weight)).sum().item())
    return found


PROGRAMS = {"plain steps": plainly, "looks between steps": looking, "changes between steps": changing,
            "tensors that are kept": keeping, "gradients cleared last": clearing_last,
            "gradients cleared in place": clearing_in_place, "exceptions": failing, "looks within a step": looking_within}


def put_away(budget):
    training = Training(budget)
    for i in range(4):
        training.one(i)
    verdict("tensors are away between steps", away(training) > owned_bytes(training) / 2, away(training))
    everything = [p.detach().sum().item() for p in training.model.parameters()]
    before = away(training)
    training.fit.put_away()
    verdict("put_away: it is away again", away(training) > before and away(training) > owned_bytes(training) / 2,
            before, away(training), owned_bytes(training))
    verdict("put_away: and as it was", everything == [p.detach().sum().item() for p in training.model.parameters()])


def two_budgets(budget):
    """One after the other on one model, and the first is forgotten while tensors are away."""
    plain = Training()
    expected = [plain.one(i) for i in range(9)], plain.weights()
    del plain
    training, got = Training(budget), []
    for i in range(9):
        if i == 4:
            training.fit = ebb.torch.Budget(budget, training.model, training.optimizer, folder, EFFORT)
            training.step = training.fit.step
            gc.collect()
        got.append(training.one(i))
    del training.fit, training.step
    gc.collect()
    verdict("two Budgets: the same bits", expected == (got, training.weights()), expected[0], got)


def copies_in_turn():
    """A plan may bring a tensor in and send it out again before anybody uses it."""
    slab, n_bytes = _slab.Slab(folder), 1 << 25
    bytes_before = torch.randint(0, 255, (n_bytes,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    follower = types.SimpleNamespace(_table={1: (bytes_before.clone().untyped_storage(), 0)}, _slots={}, _own=set(), _slab=slab,
                                     _over=set(), _see=lambda storage: storage, _is_spoilt=lambda number: False)
    follower._drop = lambda kind, number: _follow.Follower._drop(follower, kind, number)
    for kind in (planning.OUT, planning.DROP, planning.IN, planning.OUT):
        (follower._drop if kind == planning.DROP else
         lambda kind, number: _follow.Follower._move_or_repeat(follower, kind, number))(kind, 1)
    follower._slots[1][0].wait()
    verdict("what comes in is there before it goes out again", not slab._under_way, slab._under_way)
    back = torch.empty(0, dtype=torch.uint8).set_(follower._slots[1][0].back())
    verdict("and its bytes are the same", torch.equal(back, bytes_before))
    slab.abandon()


def main():
    torch.set_num_threads(1)
    least = least_budget()
    wanted = sys.argv[2:] or (PROGRAMS if "EBB_TEST_ALL" in os.environ else ["plain steps", "looks between steps"])
    for name in wanted:
        compare(name, PROGRAMS[name], least)
    if "EBB_TEST_ALL" in os.environ or sys.argv[2:]:
        compare("in RAM, with room", plainly, 2 * least, spill="ram")
        compare("SGD", plainly, "70%", make=lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
    verdict("the least budget is below half of parameters, gradients and state",
            0 < least < 0.5 * owned_bytes(compare("the least budget", plainly, least)), least)
    put_away(least)
    two_budgets(least)
    copies_in_turn()
    sys.exit(torch_verdict.status)


if __name__ == "__main__":
    main()
