# SPDX-License-Identifier: Apache-2.0
"""`plan`: before anything runs, what a training step needs and what it costs to stay within less, on fake tensors."""
import contextlib
import logging
import os

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, \
    unset_fake_temporarily

from .. import planning
from . import _arguments, _budget, _fake, _fit, _say, _schedule

_SPILLS = {"none": {}, "ram": {planning.HOST}, "disk": {planning.DISK}}
_MOST_BATCH = 1 << 20


class Point:
    """What a budget costs. A plan of None: nothing leaves."""

    def __init__(self, budget_bytes, fit, plain_s):
        plan = fit.plan
        self.budget_bytes, self.peak_bytes = budget_bytes, fit.peak_bytes
        self.step_s = plan.iteration_ns / 1e9 if plan else plain_s
        self.slowdown = self.step_s / plain_s
        self.recomputed_ops = plan.n_recomputed_steps if plan else 0
        self.moved_out_bytes = plan.moved_out_bytes if plan else 0

    def __repr__(self):
        return f"Point({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def __str__(self):
        return f"{self.budget_bytes:>19,}{self.peak_bytes:>19,}{self.step_s:>12.6f}{self.slowdown:>10.3f}" \
               f"{self.recomputed_ops:>9}{self.moved_out_bytes:>19,}"


_HEAD = f"{'budget':>19}{'peak':>19}{'step, s':>12}{'slowdown':>10}{'repeats':>9}{'moved out':>19}"


class Answer:
    """What `plan` found; bytes are of storages, times are estimates in seconds.

    plain_bytes, plain_s: of a step without a plan. least_bytes: the least peak that a plan was found for. budget_bytes:
    None if there is none. fits: whether a step keeps it, with a plan or without; needs_plan: only with one. at: the
    `Point` of the budget (without a budget, of the plain step); None if it does not fit. curve: `Point`s, from the least
    budget up. batch; largest_batch, largest_plain_batch: that fit with a plan and without (0: none does; None: not asked).
    hint: what else to ask for where it does not fit, or None. is_nominal: times are for round figures of a desktop.
    device: what the step is for; computed_on: what the operators were chosen for."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def __repr__(self):
        return f"<ebb.torch.plan: {self.plain_bytes} bytes, least {self.least_bytes}, fits={self.fits}>"

    def __str__(self):
        lines = [f"without a plan {self.plain_bytes:,} bytes, {self.plain_s:.6f} s; least {self.least_bytes:,} bytes"]
        if self.device != self.computed_on:
            lines.append(f"for {self.device}, with the operators of {self.computed_on}: this PyTorch cannot use it")
        if self.batch is not None:
            lines[0] = f"batch {self.batch}: {lines[0]}"
        if self.budget_bytes is not None:
            lines.append(f"a budget of {self.budget_bytes:,} bytes: " + (
                "it does not fit" if not self.fits else "it fits with a plan" if self.needs_plan else "it fits"))
        if self.hint is not None:
            lines.append(self.hint)
        if self.is_nominal:
            lines.append("times are for round figures of a desktop; machine=\"FILE\" takes a file of ebb probe")
        if self.largest_batch is not None:
            lines.append(f"the largest batch: {self.largest_batch}, without a plan {self.largest_plain_batch}")
        points = ([self.at] if self.at is not None else []) + self.curve
        return "\n".join([*lines, _HEAD, *map(str, points)] if points else lines)


class _Probe:
    """One recorded step; what is asked of it is found once."""

    def __init__(self, recording, fakes, machine, tiers, effort):
        self._recording, self._machine, self._tiers, self._effort = recording, machine, tiers, effort
        self.fakes, self._least, self._layouts = fakes, None, _fit.layouts_of(recording)
        self._plain = _schedule.plain(recording)
        self.plain_bytes, self.plain_s = _schedule.peak(self._plain), self._layouts[0].steps_ns / 1e9
        self._points = []

    @property
    def least(self):
        if self._least is None:
            # A search for the least that may also copy is long, and was seldom better than the rule of `budget`.
            policies = ("budget",) if self._tiers and self._effort == 0 else ("budget", "best")
            self._least = _fit.tightest(self._recording, self._tiers, self.plain_bytes, policies)
            self._least.timed(self._layouts[self._least.layout], self._machine)
        return self._least

    @property
    def least_bytes(self):
        """A plan for another budget may need less than the one for the least."""
        return min(found.peak_bytes for found in (self.least, *self._points))

    def fits(self, budget_bytes):
        return self.plain_bytes <= budget_bytes or self._fit(budget_bytes) is not None

    def _fit(self, budget_bytes):
        if self.least.peak_bytes <= budget_bytes:
            return self.least
        return _fit.fitted(self._layouts, budget_bytes, self._machine, self._tiers, self._effort)

    def point(self, budget_bytes):
        """None: no plan keeps it. A plan that was found for another budget is taken if it is faster."""
        if budget_bytes is None or self.plain_bytes <= budget_bytes:
            return Point(budget_bytes or self.plain_bytes, _fit.Fit(self._plain, self.plain_bytes, None), self.plain_s)
        excess_bytes = self._points[-1].excess_bytes if self._points else 0
        fit = _fit.fitted(self._layouts, budget_bytes, self._machine, self._tiers, self._effort, os.cpu_count() or 1,
                          excess_bytes)
        found = [one for one in (fit, self.least, *self._points)
                 if one is not None and one.peak_bytes <= budget_bytes]
        if not found:
            return None
        best = min(found, key=lambda one: one.plan.iteration_ns)
        self._points.append(best)
        return Point(budget_bytes, best, self.plain_s)

    def curve(self, n):
        least, most = self.least_bytes, self.plain_bytes
        budgets = sorted({least + (most - least) * i // max(1, n - 1) for i in range(n)})
        return [self.point(budget) for budget in budgets]


def _default_loss(model, inputs):
    if isinstance(inputs, dict):
        output = model(**inputs)
    elif isinstance(inputs, (list, tuple)):
        output = model(*inputs)
    else:
        output = model(inputs)
    return output["loss"] if isinstance(output, dict) and "loss" in output else getattr(output, "loss", output)


def _largest(fits, first):
    """The largest batch that fits, if those below it do; 0: not even 1 does."""
    low, high = 0, max(1, first)
    while fits(high):
        low, high = high, high * 2
        if low >= _MOST_BATCH:
            raise ValueError("ebb: a batch of any size fits; does inputs(n) give n examples?")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@contextlib.contextmanager
def _quiet_log():
    """An operator that fails on fake tensors raises what it does on real ones; PyTorch also logs a stack of its own."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was_disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was_disabled


class _Question:
    def __init__(self, model, inputs, optimizer, loss, machine, spill, effort, moves_all):
        _arguments.check_model(model)
        if optimizer is not None:
            _arguments.check_optimizer(optimizer)
        if not callable(loss):
            raise TypeError("ebb: loss is a function of the model and its inputs")
        _arguments.check_spill(spill, tuple(_SPILLS))
        _arguments.check_effort(effort)
        self.machine = machine if isinstance(machine, planning.Machine) else planning.Machine(machine)
        self._tiers = {tier: self.machine.capacity_bytes(tier) or planning.NO_LIMIT
                       for tier in _SPILLS.get(spill or ("none" if machine is None else "ram"), _SPILLS["disk"])}
        self._model, self._inputs, self._optimizer, self._loss, self._effort = model, inputs, optimizer, loss, effort
        self._probes, self._moves_all = {}, moves_all
        if moves_all and not self._tiers:
            raise ValueError("ebb: moves_all needs somewhere to move to: spill=\"ram\" or \"disk\"")

    def hint(self, least_bytes):
        """What may keep a budget that nothing keeps."""
        if not self._tiers:
            return f'  the least budget with a plan is {least_bytes:,} bytes; with spill="ram" or spill="disk" it may be smaller'
        if not self._moves_all:
            return f"  the least budget with a plan is {least_bytes:,} bytes; with moves_all=True it may be smaller"
        return f"  the least budget with a plan is {least_bytes:,} bytes; below it, a smaller batch or model is needed"

    def probe(self, batch):
        if batch not in self._probes:
            try:
                with _quiet_log():
                    recording, fakes = _fake.record(self._model, self._optimizer, lambda fakes: self._batch(fakes, batch),
                                                    self._loss, self.machine, self._moves_all)
            except (DataDependentOutputException, DynamicOutputShapeException) as error:
                raise ValueError(f"ebb: the step depends on the value of a tensor, which a fake one does not have: "
                                 f"{error}") from error
            self._probes[batch] = _Probe(recording, fakes, self.machine, self._tiers, self._effort)
        return self._probes[batch]

    def _batch(self, fakes, batch):
        if batch is None:
            return fakes.tree(self._inputs)
        with fakes.mode:
            made = self._inputs(batch)
        return fakes.tree(made)


def plan(model, inputs, optimizer=None, budget=None, loss=_default_loss, machine=None, batch=None, curve=0, spill=None,
         effort=0, moves_all=False, quiet=False):
    """Say what a training step needs, and what it costs to need less, before anything runs: see docs/pytorch.md.

        answer = ebb.torch.plan(model, (x, y), optimizer, "24GiB", loss=lambda model, batch: ..., machine="card.json")
        print(answer)

    Nothing is computed and nothing is changed: the step runs on fake tensors in place of those of `model`, `inputs` and
    `optimizer`, which may be real, fake, or on the meta device. inputs: a tensor, or a tuple, list or dict of them, with
    which the default loss calls the model, to take its output or that output's `loss`; or a function that makes them for a
    batch size. Then the largest batch that keeps the budget is found, and is what is described, if no `batch` is given.
    budget: as for `Budget`; by default what the machine's device holds. machine: a machine file, or None for round
    figures of a desktop. spill: where tensors may move: "none", "ram" (the default where a machine is given), "disk", or a
    folder, which is a disk, too.
    moves_all: what the model and the optimizer hold may move there, too, as with a Budget that is given both.
    curve: how many budgets to plan for. effort: of the search for plans. quiet: no lines on stderr while it is at work.

    ValueError, TypeError: wrong use. Budgets that nothing keeps are an answer, not an exception."""
    question = _Question(model, inputs, optimizer, loss, machine, spill, effort, moves_all)
    n_bytes, share = _arguments.bytes_or_share(budget) if budget is not None else (
        question.machine.capacity_bytes(planning.DEVICE), None)
    if not isinstance(curve, int) or curve < 0:
        raise ValueError(f"ebb: curve is a number of budgets, not {curve!r}")
    if batch is not None and (not isinstance(batch, int) or batch < 1 or not callable(inputs)):
        raise ValueError("ebb: batch is at least 1, and needs inputs that are a function of it")
    if _budget.is_running():
        raise RuntimeError("ebb: a step of a Budget is running; plan before it")
    teller = _say.Teller(quiet)
    try:
        with unset_fake_temporarily(), torch.enable_grad():
            return _answer(question, teller, n_bytes, share, batch, curve, callable(inputs))
    finally:
        teller.end()


def _answer(question, teller, n_bytes, share, batch, curve, has_batches):
    teller.begin("step", "running the step on fake tensors" + (" of several batches" if has_batches else ""))
    if has_batches and share is not None:
        n_bytes, share = int(share * question.probe(batch or 1).plain_bytes), None
    largest = largest_plain = None
    if has_batches and n_bytes is not None:
        largest_plain = _largest(lambda n: question.probe(n).plain_bytes <= n_bytes, batch or 1)
        largest = _largest(lambda n: question.probe(n).fits(n_bytes), max(1, largest_plain))
    if has_batches:
        batch = batch or largest or 1
    probe = question.probe(batch)
    if share is not None:
        n_bytes = int(share * probe.plain_bytes)
    n_budgets = curve + (n_bytes is not None)
    teller.begin("plan", f"planning for the least budget{f' and {n_budgets} more' if n_budgets else ''}")
    at, points = probe.point(n_bytes), probe.curve(curve)
    devices = probe.fakes.devices or {"cpu"}
    return Answer(plain_bytes=probe.plain_bytes, plain_s=probe.plain_s, least_bytes=probe.least_bytes,
                  budget_bytes=n_bytes, fits=None if n_bytes is None else at is not None,
                  needs_plan=n_bytes is not None and probe.plain_bytes > n_bytes, at=at, curve=points, batch=batch,
                  largest_batch=largest, largest_plain_batch=largest_plain,
                  hint=question.hint(probe.least_bytes) if n_bytes is not None and at is None else None,
                  is_nominal=question.machine.is_nominal, device=", ".join(sorted(devices)),
                  computed_on=", ".join(sorted(devices - probe.fakes.moved | ({"cpu"} if probe.fakes.moved else set()))))
