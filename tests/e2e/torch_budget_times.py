#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget: which times plans are made with, and what is done near the least budget.

    tests/e2e/torch_budget_times.py FOLDER
"""
import os
import sys
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import ebb.torch
import torch_verdict
from ebb import planning
from ebb.torch import _estimated, _fit, _inside
from torch_budget import EFFORT
from torch_budget_nets import NETS, STEPS
from torch_verdict import verdict

PAUSE_S, REFUSED_BYTES = 0.05, 1000


def clocks():
    """With one thread the time of others does not count."""
    n_threads, found = torch.get_num_threads(), {}
    for n in 1, 2:
        torch.set_num_threads(n)
        found[n] = _inside._timed(time.sleep, (PAUSE_S,), {})[1]
    torch.set_num_threads(n_threads)
    verdict("one thread: the processor's time counts", found[1] < PAUSE_S * 5e8, found)
    verdict("several threads: all time counts", found[2] >= PAUSE_S * 9e8, found)


def estimated():
    """The times that the least is found with are the same each time, and large work takes longer than small work."""
    machine, aten = planning.Machine(), torch.ops.aten
    small, large = torch.ones(8, 8), torch.ones(256, 256)

    def ns(func, *args):
        return _estimated.estimated_ns(machine, func, args, {}, func(*args))
    found = [ns(aten.mm.default, small, small), ns(aten.mm.default, large, large), ns(aten.relu.default, large)]
    verdict("estimated times", found[0] < found[1] > found[2] > 0, found)
    verdict("a view takes no time", ns(aten.t.default, large) == 0)
    verdict("a sparse tensor's bytes are those of its parts",
            ns(aten.add.Tensor, large.to_sparse(), large.to_sparse()) > ns(aten.add.Tensor, small.to_sparse(), small.to_sparse()))
    verdict("operators whose work is not known", _estimated._flops(aten.mm.default, (3,), {}, None) == 0)


class _Plan:
    def __init__(self, peak_bytes, iteration_ns=1):
        self.peak_bytes, self.iteration_ns, self.bound_ns = peak_bytes, iteration_ns, 1


class _Layout:
    """A step whose only plan has 90 bytes, and needs 5 bytes more than that when it is followed."""
    base_bytes, steps_ns, asked = 0, 1, ()

    def __init__(self):
        self.program, self.asked = self, []

    def plan(self, aim_bytes, *machine, **options):
        self.asked.append(aim_bytes)
        if aim_bytes < 80:
            raise planning.NoFit("none", 80)
        return _Plan(min(aim_bytes, 90) if aim_bytes >= 90 else 80)


def tries():
    """A budget that a plan just misses: it is not found again and again."""
    followed, layout = _fit._followed, _Layout()
    _fit._followed = lambda layout, plan: _fit.Fit(None, plan.peak_bytes + 5, plan)
    try:
        found = _fit._fitted(layout, 94, None, {}, 0, 1, 0)
    finally:
        _fit._followed = followed
    verdict("a plan that is just too large comes twice at most", found.peak_bytes == 85 and
            sum(aim >= 90 for aim in layout.asked) == 2, layout.asked)


def train(budget, n_steps):
    torch.manual_seed(5)
    model, batch, loss_of, optimizer_of = NETS["gpt"]()
    optimizer, fit = optimizer_of(model), ebb.torch.Budget(budget, effort=EFFORT, quiet=True)
    for i in range(n_steps):
        with fit.step():
            STEPS[""](model, batch(i), loss_of, optimizer)
    return fit.summary()


def refused():
    """(the least, the lines of the message)"""
    try:
        train(REFUSED_BYTES, 2)
    except ebb.torch.DoesNotFit as error:
        return error.least_bytes, str(error).splitlines()
    return 0, []


def near_the_least():
    """A little more than the least that takes much less time is named, and nothing if it takes as long. The least is the
    same each time, and is kept."""
    found, least, fitted = {}, {}, _fit.fitted
    for ns in 1, 1 << 60:
        _fit.fitted = lambda layouts, budget_bytes, *asked: None if budget_bytes <= REFUSED_BYTES else \
            _fit.Fit(None, budget_bytes, _Plan(budget_bytes, ns))
        try:
            least[ns], lines = refused()
        finally:
            _fit.fitted = fitted
        found[ns] = [line for line in lines if "times as long" in line]
    verdict("a roomier budget is named", len(found[1]) == 1 and f"Budget({int(1.02 * least[1])})" in found[1][0] and
            len(found[1][0]) < 100, found, least)
    verdict("one that saves no time is not", not found[1 << 60], found)
    verdict("the least is the same each time", len(set(least.values())) == 1, least)
    told = train(least[1], 4)
    verdict("the least is kept", told["peak_measured_bytes"] <= least[1] == told["budget_bytes"], told)


if __name__ == "__main__":
    clocks()
    estimated()
    tries()
    near_the_least()
    sys.exit(torch_verdict.status)
