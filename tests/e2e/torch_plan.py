#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.plan: what is said before anything runs is what `Budget` measures when it runs, and what is counted by
`ebb.torch.record` and by PyTorch's own tracker.

    tests/e2e/torch_plan.py FOLDER

An LSTM is left out: on a CPU it runs as one operator of oneDNN, but on fake tensors as its parts.
"""
import contextlib
import gc
import io
import json
import logging
import os
import sys

import torch
from torch import nn
from torch.nn import functional

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import ebb.torch
import torch_verdict
from ebb.torch import _say
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_budget import raises
from torch_budget_nets import NETS, plain_step
from torch_verdict import verdict

folder = sys.argv[1]
SCALARS = 64  # bytes that operators of a small step take while they run, which fake ones do not
machine, ROOM_BYTES = os.path.join(folder, "card.json"), 500000
with open(machine, "w") as file:
    json.dump({"format": "ebb-machine", "version": 2,
               "tiers": [{"name": "device", "store": "device", "capacity_bytes": ROOM_BYTES}],
               "rates": {"flops_per_s": 1e12, "bytes_per_s": 1e11, "overhead_ns": 5000}}, file)


def budget_says(net, share):
    """What a Budget of this share plans and measures in real steps."""
    torch.manual_seed(5)
    model, batch, loss_of, optimizer_of = NETS[net]()
    optimizer, fit = optimizer_of(model), ebb.torch.Budget(share, effort=0)
    for i in range(3):
        data = batch(i)
        with fit.step():
            plain_step(model, data, loss_of, optimizer)
    return fit.summary()


def as_budget(net):
    gc.collect()
    real = budget_says(net, "100%")
    gc.collect()
    model, batch, loss_of, optimizer_of = NETS[net]()
    optimizer, data = optimizer_of(model), batch(0)
    before = [t.clone() for t in model.state_dict().values()]
    said = ebb.torch.plan(model, data, optimizer, "80%", loss_of)
    verdict(f"{net}: the bytes of a plain step are those of a real one",
            said.plain_bytes == real["plain_bytes"] == real["peak_measured_bytes"], said, real)
    verdict(f"{net}: a plan keeps 80 %", said.fits and said.needs_plan and said.at.peak_bytes <= said.budget_bytes and
            said.at.recomputed_ops > 0 and said.at.moved_out_bytes == 0 and said.at.slowdown > 1, said)
    verdict(f"{net}: nothing was changed", not optimizer.state and all(p.grad is None for p in model.parameters()) and
            all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values())))


def mlp(device="cpu", width=64, depth=4):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
    with torch.device(device):
        return nn.Sequential(*layers, nn.Linear(width, 8))


def loss_of(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


def batch_of(n):
    return torch.randn(n, 64), torch.zeros(n, dtype=torch.int64)


def plain_bytes(model, batch):
    return ebb.torch.plan(model, batch, torch.optim.AdamW(model.parameters()), loss=loss_of).plain_bytes


def kinds_of_tensors():
    """Real, fake and on the meta device, for the CPU and for a card that is not there."""
    found = [plain_bytes(mlp(), batch_of(256)), plain_bytes(mlp("meta"), [t.to("meta") for t in batch_of(256)])]
    for device in "cpu", "cuda":
        with FakeTensorMode():
            with torch.device(device):
                batch = batch_of(256)
            found.append(plain_bytes(mlp(device), batch))
    if torch.cuda.is_available():
        found.pop()  # of a card's own operators
    verdict("real, meta and fake tensors, of a card too, are the same", len(set(found)) == 1, found)
    with FakeTensorMode():
        model, batch = mlp("cuda"), [t.cuda() for t in batch_of(4)] if torch.cuda.is_available() else batch_of(4)
    text = str(ebb.torch.plan(model, batch, loss=loss_of))
    verdict("it says when a card's operators are not used",
            torch.cuda.is_available() or "for cpu, cuda, with the operators of cpu" in text, text)


def as_others_count():
    """ebb.torch.record and PyTorch's tracker."""
    from torch.distributed._tools.mem_tracker import MemTracker
    with FakeTensorMode():
        model, data = mlp(width=64), batch_of(256)
        optimizer = torch.optim.AdamW(model.parameters())
        said = ebb.torch.plan(model, data, optimizer, loss=loss_of)
        with ebb.torch.record(os.path.join(folder, "t.trace"), quiet=True) as recorded:
            for _ in range(2):
                plain_step(model, data, loss_of, optimizer)
        plain_step(model, data, loss_of, optimizer)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *data)
        with tracker:
            plain_step(model, data, loss_of, optimizer)
        counted = sum(tracker.get_tracker_snapshot("peak")[torch.device("cpu")].values()) // 2  # and their total
    verdict("the peak is that of record", said.plain_bytes == recorded.peak_bytes, said, recorded.peak_bytes)
    verdict("and that of PyTorch's tracker", said.plain_bytes == counted, said.plain_bytes, counted)


def ties_and_frozen():
    model = mlp()
    model[2].weight = model[0].weight
    model[4].weight.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    said = ebb.torch.plan(model, batch_of(256), optimizer, loss=loss_of).plain_bytes
    fit = ebb.torch.Budget("100%", effort=0)
    for _ in range(3):
        with fit.step():
            plain_step(model, batch_of(256), loss_of, optimizer)
    verdict("weights that are shared and frozen", fit.summary()["peak_measured_bytes"] - said in range(-8, 9),
            fit.summary(), said)


def moves_all():
    """Parameters and the like may move: what is said is what a Budget keeps that is given the model and the optimizer."""
    model = mlp()
    optimizer, weights = torch.optim.AdamW(model.parameters()), sum(p.nbytes for p in model.parameters())
    stays = ebb.torch.plan(model, batch_of(8), optimizer, "50%", loss_of, spill="disk")
    said = ebb.torch.plan(model, batch_of(8), optimizer, "50%", loss_of, spill="disk", moves_all=True)
    verdict("a budget below what parameters, gradients and state have", not stays.fits and said.fits and
            said.budget_bytes < 4 * weights and said.at.moved_out_bytes > weights, said, weights)
    fit = ebb.torch.Budget(said.least_bytes, model=model, optimizer=optimizer, spill=folder, effort=0)
    for i in range(4):
        data = batch_of(8)
        with fit.step():
            plain_step(model, data, loss_of, optimizer)
    told = fit.summary()
    verdict("a Budget keeps the least that was said", told["peak_measured_bytes"] == told["peak_planned_bytes"] <=
            said.least_bytes and told["plain_bytes"] - said.plain_bytes in range(-8, SCALARS), told, said)


def batches():
    model = mlp()
    said = ebb.torch.plan(model, batch_of, torch.optim.AdamW(model.parameters()), None, loss_of, machine, curve=4)
    sizes = [ebb.torch.plan(model, batch_of, torch.optim.AdamW(model.parameters()), said.budget_bytes, loss_of, machine,
                            batch=said.largest_plain_batch + more).plain_bytes for more in (0, 1)]
    verdict("the card's memory is the budget", said.budget_bytes == ROOM_BYTES and said.fits, said)
    verdict("the largest batch without a plan is the largest", sizes[0] <= ROOM_BYTES < sizes[1], said, sizes)
    verdict("a plan makes room for more", said.batch == said.largest_batch > said.largest_plain_batch and
            said.at.peak_bytes <= ROOM_BYTES and said.at.moved_out_bytes + said.at.recomputed_ops > 0, said)
    steps = [point.step_s for point in said.curve]
    verdict("the curve falls to the plain step", len(steps) == 4 and sorted(steps, reverse=True) == steps and
            steps[0] > steps[-1] == said.plain_s and all(p.peak_bytes <= p.budget_bytes for p in said.curve) and
            said.curve[0].budget_bytes == said.least_bytes, said)
    verdict("it prints a table", len(str(said).splitlines()) == 9 and f"{said.plain_bytes:,}" in str(said), said)
    small = ebb.torch.plan(model, batch_of(64), None, 1000, loss_of)
    verdict("what nothing keeps is an answer", small.fits is False and small.at is None and
            small.least_bytes > 1000 and "does not fit" in str(small), small)
    hints = [str(ebb.torch.plan(model, batch_of(64), None, 1000, loss_of, **more)) for more in (
        {}, {"spill": folder}, {"spill": "disk", "moves_all": True})]
    verdict("and says what else to ask for", all(word in hint for hint, word in zip(
        hints, ('spill="ram"', "moves_all=True", "smaller batch"))) and f"{small.least_bytes:,}" in hints[0], *hints)
    verdict("round figures are said to be some", "machine=" in str(small) and "machine=" not in str(said), small, said)
    verdict("points say what they are", f"step_s={said.curve[0].step_s!r}" in repr(said.curve), said.curve)
    verdict("lines are at most 100 columns", all(len(line) <= 100 for text in (*hints, str(said)) for line in text.splitlines()))


def says_little():
    """A wrong shape: PyTorch's exception, and none of its log. Lines on stderr where it is a terminal."""
    model, logged = mlp(), []
    log = logging.getLogger("torch._subclasses.fake_tensor")
    log.addFilter(logged.append)
    raises("a wrong shape", RuntimeError, "", lambda: ebb.torch.plan(model, (torch.randn(4, 3), batch_of(4)[1]), loss=loss_of))
    log.removeFilter(logged.append)
    verdict("nothing is logged of it", logged == [], logged)
    for stream, more, n in (Terminal(), {}, 2), (Terminal(), {"quiet": True}, 0), (io.StringIO(), {}, 0):
        delay_s, _say._DELAY_S = _say._DELAY_S, 1e9
        with contextlib.redirect_stderr(stream):
            ebb.torch.plan(model, batch_of(64), None, "90%", loss_of, curve=2, **more)
        _say._DELAY_S = delay_s
        lines = stream.getvalue().splitlines()
        verdict(f"{n} lines of what it does", len(lines) == n and all(len(line) <= 100 for line in lines), lines)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def misuse():
    model = mlp()
    plan, x = ebb.torch.plan, batch_of(4)
    raises("a model that is none", TypeError, "model is", lambda: plan(3, x))
    raises("an optimizer that is none", TypeError, "optimizer is", lambda: plan(model, x, 3))
    raises("a budget above all", ValueError, "more than a step needs", lambda: plan(model, x, None, "101%", loss_of))
    raises("a budget that is none", ValueError, "a budget is", lambda: plan(model, x, None, "6 apples", loss_of))
    raises("a loss that is no function", TypeError, "loss is", lambda: plan(model, x, loss=3))
    raises("a loss that is no number", TypeError, "one number", lambda: plan(model, x[0]))
    raises("an optimizer with a closure", TypeError, "needs a closure", lambda: plan(
        model, x, torch.optim.LBFGS(model.parameters()), loss=loss_of))
    raises("an effort of -1", ValueError, "effort is", lambda: plan(model, x, loss=loss_of, effort=-1))
    raises("a curve of -1", ValueError, "curve is", lambda: plan(model, x, loss=loss_of, curve=-1))
    raises("a batch without a function", ValueError, "batch is", lambda: plan(model, x, loss=loss_of, batch=4))
    raises("somewhere to move that is none", ValueError, "spill is", lambda: plan(model, x, loss=loss_of, spill="x"))
    raises("a machine file that is not there", RuntimeError, "nowhere",
           lambda: plan(model, x, loss=loss_of, machine="/nowhere"))
    raises("a value that is asked for", ValueError, "value of a tensor",
           lambda: plan(model, x, loss=lambda m, b: m(b[0]).sum() * m(b[0]).sum().item()))

    raises("moves with nowhere to go", ValueError, "somewhere", lambda: plan(model, x, loss=loss_of, moves_all=True))

    def inside():
        with ebb.torch.Budget("1GiB").step():
            plan(model, x, loss=loss_of)
    raises("inside of a Budget's step", RuntimeError, "is running", inside)


torch.set_num_threads(1)
for name in sorted({*NETS} - {"lstm"}) if "EBB_TEST_ALL" in os.environ else ("gpt",):
    as_budget(name)
kinds_of_tensors()
as_others_count()
ties_and_frozen()
moves_all()
batches()
says_little()
misuse()
sys.exit(torch_verdict.status)
