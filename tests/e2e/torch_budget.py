#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget: the bits of losses and weights are those of the plain loop, and the bytes are as planned.

    tests/e2e/torch_budget.py FOLDER [NAME...]

Networks are trained plainly and under a budget of a share of what a step needs, or the least that ebb names. Named
networks run with every kind of step, 60, 40 and 25 %, with and without a folder for what moves out. Without names:
each network and each kind of step in a few cases if EBB_TEST_ALL is in the environment, else two small ones.
"""
import gc
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import ebb.torch
import torch_verdict
from torch_budget_nets import NETS, STEPS
from torch_verdict import verdict

folder, wanted = sys.argv[1], sys.argv[2:]
N_STEPS = 6
EFFORT = 0  # of the search for a plan


def raises(name, kind, text, act):
    try:
        act()
    except kind as error:
        verdict(name, text in str(error), error)
    except BaseException as error:
        verdict(name, False, repr(error))
    else:
        verdict(name, False, "no exception")


def bits(tensors):
    return [tensor.detach().clone() for tensor in tensors]


def train(net, step, fit=None):
    gc.collect()
    torch.manual_seed(5)
    model, batch, loss_of, optimizer_of = NETS[net]()
    optimizer = optimizer_of(model)
    losses = []
    for i in range(N_STEPS):
        data = batch(i)
        if fit is None:
            losses.append(STEPS[step](model, data, loss_of, optimizer).item())
        else:
            with fit.step():
                losses.append(STEPS[step](model, data, loss_of, optimizer).item())
    return losses, bits(model.state_dict().values())


def same(a, b):
    return a[0] == b[0] and all(torch.equal(x, y) for x, y in zip(a[1], b[1]))


def case(net, step, share, spill):
    name = f"{net}{' ' + step if step else ''} at {share} % {'with a file' if spill else 'computed again'}"
    plain = train(net, step)
    fit = ebb.torch.Budget(f"{share}%", spill=spill, effort=EFFORT)
    least = None
    try:
        got = train(net, step, fit)
    except ebb.torch.DoesNotFit as error:
        least = error.least_bytes
    if least is not None:  # behind the handler, which keeps the networks of the frames that it came through
        verdict(f"{name}: the least is named", least > 0)
        name += ", the least"
        fit = ebb.torch.Budget(least, spill=spill, effort=EFFORT)
        got = train(net, step, fit)
    told = fit.summary()
    verdict(f"{name}: the same bits", same(plain, got), told)
    verdict(f"{name}: the bytes as planned, within the budget",
            told["peak_measured_bytes"] == told["peak_planned_bytes"] <= told["budget_bytes"], told)
    verdict(f"{name}: the plan was followed", told["steps_unlike"] == 0 and
            bool(told["moved_out_bytes"] or told["recomputed_ops"]), told)
    verdict(f"{name}: the predicted time is one of the recorded times", told["gap"] > -1e-9, told)
    if os.environ.get("EBB_TEST_SHOW"):
        print({k: told[k] for k in ("plain_bytes", "budget_bytes", "peak_planned_bytes", "peak_measured_bytes",
                                    "recomputed_ops", "moved_out_bytes", "step_planned_s", "step_measured_s", "gap")})


MATRIX = [(net, step, share, has_file) for net in NETS for step in STEPS for share in (60, 40, 25)
          for has_file in (True, False)]
QUICK = [("resnet", "", 60, False), ("resnet", "", 5, True), ("lstm", "", 60, True)]
LONG = [("gpt", "", 40, True), ("vit", "bf16", 60, True), ("unet", "", 60, False), ("resnet", "accumulated", 60, True),
        ("lstm", "accumulated", 60, True), *QUICK]

if __name__ == "__main__":
    torch.set_num_threads(1)
    if unknown := set(wanted) - set(NETS):
        sys.exit(f"no network is called {', '.join(sorted(unknown))}")
    for net, step, share, has_file in MATRIX if wanted else LONG if "EBB_TEST_ALL" in os.environ else QUICK:
        if not wanted or net in wanted:
            case(net, step, share, folder if has_file else None)
    sys.exit(torch_verdict.status)
