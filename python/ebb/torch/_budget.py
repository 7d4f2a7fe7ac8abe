# SPDX-License-Identifier: Apache-2.0
"""`Budget`: an eager training step that is recorded, planned by libebb, and followed."""
import contextlib
import functools
import sys
import tempfile
import threading
import time
import warnings
import weakref

import torch

from .. import planning
from .._interrupts import held, watched
from . import _arguments, _fit, _follow, _guard, _inside, _mode, _say, _schedule, _sizes, _steps
from ._bytes import Bytes
from ._kinds import Kinds
from ._outside import outside_bytes
from ._owned import STATE, Owned, refuse_unseen
from ._pager import MIN_BYTES, Data, Pager
from ._plans import Planned, Plans
from ._recording import ALL, Recording
from ._slab import Slab
from ._tensors import n_tensors_over

_MAX_RECORDED, _MAX_GROWN = 16, 32  # steps that are recorded, and for which a plan is made anew ...
_STEPS_FOR_ONE_MORE = 50  # ... and one more of each after so many steps
_MAX_SMALLER = 8  # recorded steps, after which smaller ones that a plan serves have no plan of their own
_MAX_LOST = 2  # steps that left a plan before any followed it to its end; then steps are not measured any more
_MAX_MENDED = 2  # times that a plan is made anew because a step had more than it says
_running = threading.local()  # budget, step: what runs on this thread
_LATENCY_NS = 20000  # of a copy
_ROOM_PART = 4  # of the budget: what parameters and the like may have of it in a step that no plan is followed in


class DoesNotFit(RuntimeError):
    """No plan keeps the budget. least_bytes: a budget that one keeps; 0: none is known."""

    __module__ = "ebb.torch"  # where it is found

    def __init__(self, message, least_bytes):
        super().__init__(message)
        self.least_bytes = least_bytes


@functools.lru_cache(None)
def _keep_compiler_out():
    """Else it compiles ebb's own functions where a compiled model calls an operator."""
    sys.modules["torch._dynamo"].trace_rules.add("ebb.torch")


def is_running():
    """Whether a step of a Budget runs on this thread."""
    return getattr(_running, "budget", None) is not None


def _plain_bytes(recording, outside_bytes):
    """What a recorded step needs without a plan."""
    return _schedule.peak(_schedule.plain(recording)) + outside_bytes


def _found(fit):
    """What a plan comes to, in a line."""
    if fit.plan is None:
        return f"no plan is needed: a step has at most {_say.bytes_text(fit.peak_bytes)}"
    return f"following the plan: a peak of {_say.bytes_text(fit.peak_bytes)}; {_say.bytes_text(fit.plan.moved_out_bytes)} " \
        f"move out and {fit.plan.n_recomputed_steps} operators run again"


class _Around(contextlib.ContextDecorator):
    """A step, and each other one for which it is entered again."""

    def __init__(self, around):
        self._around, self._within = around, None

    def __enter__(self):
        within = self._around()
        within.__enter__()
        self._within = within

    def __exit__(self, *error):
        return self._within.__exit__(*error)


class Budget:
    """Keep training steps within a budget of memory, with the same bits.

        fit = ebb.torch.Budget("6GiB")
        for x, y in batches:
            with fit.step():
                optimizer.zero_grad()
                loss_of(model(x), y).backward()
                optimizer.step()
        print(fit.summary())

    budget: bytes, as a number or "6GiB", or per cent of what the second step needs without a plan. It is for all
    tensors that live in a step (parameters, gradients, the optimizer's state, inputs, activations) and for what operators
    take while they run. spill: a folder for a file that tensors may move to, or "ram" for the host's memory (the default
    beside a card), or "none" (the default on a CPU): activations are only computed again. model, optimizer: what they hold
    may move as well. The first two steps are recorded, with what autograd saves moved out (without spill, to a temporary
    file). effort: of the search for a plan (docs/best.md). quiet: no lines on stderr while it records and plans.

    A plan also serves steps with the same operators and smaller tensors. In a step that is not like the recorded one, what autograd
    saved moves out when there is no room for it; the next one is recorded.
    One Budget serves one training loop, on one thread."""

    def __init__(self, budget, model=None, optimizer=None, spill=None, effort=1, quiet=False):
        self._bytes, self._share = _arguments.bytes_or_share(budget)
        if model is not None:
            _arguments.check_model(model)
        if optimizer is not None:
            _arguments.check_optimizer(optimizer)
        _arguments.check_spill(spill, ("ram", "none"))
        _arguments.check_effort(effort)
        self._asked, self._teller = budget, _say.Teller(quiet)
        self._spill, self._effort = None if spill == "none" else spill, effort
        self._has_tier = self._spill is not None or spill is None and torch.cuda.is_available()
        self._lock, self._plans, self._current = threading.Lock(), Plans(), None
        self._n_steps = self._n_unlike = self._n_recorded = self._n_grown = self._outside_bytes = 0
        self._is_warm, self._kinds = False, Kinds()
        self._optimizers = weakref.WeakSet([optimizer] if optimizer is not None else ())  # that stepped
        self._leaves = {}  # weak references to what has gradients, by its id
        self._note_leaves(model.parameters() if model is not None else ())
        self._owned = Owned(model, optimizer)
        self._slab = self._pager = self._guard = None  # made in the first step

    # ---- steps

    def step(self):
        """Around each training step, from the gradients' reset or the forward pass to the optimizer's step."""
        return _Around(self._around)

    @contextlib.contextmanager
    def _around(self):
        if is_running() or not self._lock.acquire(blocking=False):
            raise RuntimeError("ebb: a step of a Budget is running already; steps are not nested or shared by threads")
        with watched():
            try:
                _running.budget = self
                _mode.tell_of_optimizers(self._note_optimizer)
                self._n_steps += 1
                yield from self._step()
            finally:
                with held():
                    self._teller.end()
                    _running.budget = _running.step = None
                    _mode.tell_of_optimizers(None)
                    self._lock.release()

    def _step(self):
        self._make_slab()
        try:
            with held():
                self._begin_owned()
            yield from self._run()
        finally:
            with held():
                self._slab.is_measuring = False
                self._slab.abandon()
                self._end_owned()

    def _run(self):
        self._has_data = False
        with held():
            doer, begin = self._begin(), time.perf_counter()
        if doer is None:
            yield
            return
        step = _running.step = _mode.Mode(doer)
        try:
            with held():
                self._see(step)
            yield
        finally:
            with held():
                self._within.close()
        doer = step.doer  # another one than at first where the step was another one
        if isinstance(doer, _steps.Recorder):
            with held():
                recording = doer.finish(self._leavers())
            if recording.entries:  # else the step was empty
                self._end_recording(recording, doer)
        else:
            with held():
                doer.finish()
            self._end_following(doer, time.perf_counter() - begin)

    def _see(self, step):
        """Let what happens come to a mode, until `_within` is closed."""
        self._within = contextlib.ExitStack()
        self._within.enter_context(torch.autograd.graph.saved_tensors_hooks(step.pack, step.unpack))
        self._watch_data(step.doer)
        if not isinstance(step.doer, _follow.Watcher):
            _mode.active[self._owned.optimizer_id] = step
            self._within.callback(_mode.active.pop, self._owned.optimizer_id, None)
            self._within.enter_context(step)

    # ---- what may leave by itself

    def _watch_data(self, doer):
        """In a step in which something may be away, it also comes back for what is not an operator, and in a recorded one that is
        noted."""
        if (doer.is_guarded or doer.rests or isinstance(doer, _steps.Recorder)) and not self._has_data:
            self._has_data = True
            self._within.enter_context(Data(_running.step))

    def _leavers(self):
        """What is owned and may leave: {key of a storage: (storage, owner, tensors)}."""
        return self._owned.storages() if self._pager is not None else {}

    def _make_slab(self):
        if self._slab is None:
            folder = None if self._spill == "ram" else self._spill
            if self._spill is None and not torch.cuda.is_available():
                folder = tempfile.gettempdir()
            self._slab = Slab(folder)
            if self._has_tier and self._owned.may_leave:
                self._pager = Pager(self._slab)
                self._guard = _guard.Guard(self._pager)

    def _begin_owned(self):
        if self._guard is not None:
            self._guard.end()
            self._pager.bury()
            self._pager.distrust()  # what came back between steps may have been written
        _guard.lift(tensor for _, tensor in self._owned.tensors())  # for another Budget

    def _end_owned(self):
        if self._guard is None:
            return
        self._guard.end()
        self._pager.count = self._pager.asked = None
        owned = self._owned.storages() if self._pager.away or self._pager.coming else {}
        try:
            self._pager.settle()
            for key, page in tuple(self._pager.away.items()):
                if key not in owned:
                    self._pager.back(page)
        finally:
            self._pager.distrust()
            self._guard.begin(owned, self._owned.parameters() if owned else ())

    def put_away(self):
        """Between steps: what the model and the optimizer hold leaves, until it is used again."""
        with self._between_steps():
            if self._guard is None:
                return
            self._begin_owned()
            try:
                for storage, _, tensors in self._owned.storages().values():
                    if self._pager.bytes_of(storage) >= MIN_BYTES and n_tensors_over(storage) <= len(tensors):
                        self._pager.out(self._pager.page(storage))
            finally:
                self._end_owned()

    def bring_back(self):
        """Between steps: what the model and the optimizer hold comes back, for what uses it without an operator of PyTorch, as a
        scripted copy does. It leaves again in the next step."""
        with self._between_steps():
            if self._guard is None:
                return
            self._begin_owned()
            self._pager.all_back()

    @contextlib.contextmanager
    def _between_steps(self):
        if is_running() or not self._lock.acquire(blocking=False):
            raise RuntimeError("ebb: a step of a Budget is running; call this between steps")
        try:
            with watched(), held():
                yield
        finally:
            self._lock.release()

    # ---- what does a step

    def _begin(self):
        """What does the step that begins; None: nothing is done."""
        key = self._key()
        self._kinds.begin(key)
        likely = self._plans.likely(key, self._current)
        if self._can_record() and (likely is None or self._kinds.is_wanted()):
            self._kinds.note_recorder()
            recorder = self._recorder()
            recorder.is_wanted = likely is not None
            return recorder
        if likely is not None:
            return self._follower(likely)
        return self._stranger() if self._pager is not None or self._bytes is not None else None

    def _can_record(self):
        return self._n_recorded < _MAX_RECORDED + self._n_steps // _STEPS_FOR_ONE_MORE

    def _can_grow(self):
        return self._n_grown < _MAX_GROWN + self._n_steps // _STEPS_FOR_ONE_MORE

    def _recorder(self):
        refuse_unseen(self._pager is not None)
        if "torch._dynamo" in sys.modules:
            _keep_compiler_out()
        if not _inside.can_see():
            warnings.warn(f"ebb: {_inside.why_unseen()} while a step is recorded, so what operators take while they run is not in "
                          "the plan", stacklevel=2)
        limit = self._limit_bytes() if self._pager is not None else None
        self._slab.is_measuring = True
        self._teller.begin("record", "recording two training steps, which take longer than others; then they are planned")
        recorder = _steps.Recorder(self._slab, self._is_warm, self._pager, limit, self._gradient_bytes)
        recorder.begin(self._leavers())
        return recorder

    def _limit_bytes(self):
        """Of what the storages of a step may have; None: it is not known yet."""
        return max(0, self._bytes - self._outside_bytes) if self._bytes is not None else None

    def _stranger(self):
        """What does a step that nothing is known of and that is not recorded."""
        self._current = None
        follower = _follow.Follower(_schedule.plain(Recording([], [])), self._slab, self._pager,
                                    (self._bytes or 0) // _ROOM_PART)
        follower.is_lost, follower.limit_bytes = True, self._limit_bytes()
        follower.begin(self._owned.storages)
        return follower

    def _follower(self, planned):
        self._current = planned
        is_measured = not planned.n_followed and planned.n_lost < _MAX_LOST
        if planned.fit.plan is None and not is_measured and not self._n_unlike:
            if self._pager is not None:
                self._pager.all_back()
            return _follow.Watcher(planned.recording, self._gradient_bytes)
        follower = _follow.Follower(planned.fit.schedule, self._slab, self._pager, self._bytes // _ROOM_PART, self._other,
                                    self._gradient_bytes)
        follower.spare_bytes, follower.limit_bytes = planned.spare_bytes, self._limit_bytes() - planned.more_bytes
        leavers = functools.lru_cache(None)(self._leavers)  # gone with this function: gradients that it names are to be freed in the step
        follower.begin(leavers, Bytes.of_all_tensors if is_measured else None)
        if is_measured and not follower.is_lost and self._finds_more(planned, follower.measured.live):
            follower.measured.close()
            return self._follower(planned)
        if follower.rests:
            self._guard.begin(leavers(), ())
            states = {key: (storage, tensors) for key, (storage, name, tensors) in leavers().items() if name[0] == STATE}
            follower.watch = lambda page: page.key in states and self._guard.watch(*states[page.key])
            follower.wake = self._guard.end
        return follower

    def _finds_more(self, planned, live_bytes):
        """Whether so much lies beside what the recorded step began with that the plan had to be made anew."""
        more_bytes = live_bytes - planned.early_bytes - _schedule.first_bytes(planned.fit.schedule)
        if more_bytes <= planned.more_bytes:
            return False
        if planned.peak_bytes - planned.more_bytes + more_bytes <= planned.budget_bytes:
            planned.more_bytes = more_bytes
            return False
        self._plan_beside(planned, more_bytes)
        return True

    def _plan_beside(self, planned, more_bytes):
        """Make a plan anew with so many bytes beside it. DoesNotFit leaves the old one as it is."""
        planned.take(self._fit(planned.recording.of(ALL), planned.plain_bytes, planned.outside_bytes + more_bytes))
        planned.more_bytes = more_bytes

    def _make_room(self, planned):
        """A step that had more than its plan says, and than the budget, is planned with so much less room."""
        excess = planned.peak_measured_bytes - planned.peak_bytes
        if planned.peak_measured_bytes <= planned.budget_bytes or excess <= 0 or planned.n_mended == _MAX_MENDED:
            return
        planned.n_mended += 1
        try:
            self._plan_beside(planned, planned.more_bytes + excess)
            planned.peak_measured_bytes, planned.n_followed = None, -1  # the next one is measured, too
        except DoesNotFit:
            warnings.warn(f"ebb: a step had {planned.peak_measured_bytes} bytes, {planned.peak_measured_bytes - planned.budget_bytes} "
                          "above its budget, and there is no plan with less", stacklevel=2)
        finally:
            self._teller.end()

    def _other(self, known_by):
        """What does a step whose first moment is this one and not that of the plan that was taken; None: nothing does."""
        gradient_bytes = self._gradient_bytes()
        serving = self._plans.serving(self._kinds.key, known_by, gradient_bytes, self._current)
        if serving is not None and self._n_recorded < _MAX_SMALLER and serving.is_slow_for(known_by):
            serving = None
        may_grow = serving is None and self._current.may_grow_for(known_by, gradient_bytes, self._can_record())
        if may_grow or serving is not None and serving is self._current:
            return _running.step.doer
        doer = None
        if self._guard is not None:
            self._guard.end()
        if serving is not None:
            doer = self._follower(serving)
        elif self._can_record():
            self._n_unlike += 1
            doer = self._recorder()
        if doer is not None:
            _running.step.doer = doer
            self._watch_data(doer)
        return doer

    def _end_recording(self, recording, recorder):
        if not self._is_warm:  # optimizers make their state in the first step
            self._is_warm = True
            self._slab.forget_rates()
            self._note_leaves(recorder.leaves())
            return
        self._n_recorded += 1
        key = self._kinds.key
        longer = self._plans.longer(key, recording)
        if longer is not None:  # its plan is for this step, too
            self._current = longer
            self._kinds.note_short()
            return
        largest = self._plans.largest(key, _sizes.structure(recording))
        if recorder.is_wanted and largest is not None and _sizes.is_within(recording, largest.recording):
            self._current = largest
            return
        self._kinds.note_recorded()
        outside = self._outside_bytes = outside_bytes()
        if self._bytes is None:
            self._bytes = int(self._share * _plain_bytes(recording, outside))  # of the first kind of step
        early_bytes = key[0] - recorder.first_gradient_bytes
        both = self._together(recording, largest, outside, early_bytes) if largest is not None else None
        self._current = both or self._planned(recording, outside, early_bytes)
        self._plans.add(self._current)

    def _together(self, recording, largest, outside, early_bytes):
        """A plan for this step and for the largest that is like it, if neither is within the other. None: there is none."""
        both = _sizes.enclosing(recording, largest.recording)
        if both is None:
            return None
        with contextlib.suppress(DoesNotFit):
            return self._planned(both, outside, early_bytes)

    def _grow(self, planned, larger):
        """A plan for steps as large as the one that was larger than its plan's, unless there is one for larger steps, which serves
        those that begin as small as this one from now on. If none keeps the budget, what was not seen of the step may have
        been smaller than it is taken to be, so the next one is recorded."""
        if self._plans.largest(planned.key, planned.structure) is not planned:
            self._plans.remove(planned)
            return
        if not self._can_grow():
            return
        recording = _sizes.grown(planned.recording.of(ALL), larger)
        try:
            self._current = self._planned(recording, planned.outside_bytes, planned.early_bytes)
            self._plans.add(self._current)
            self._n_grown += self._current.fit.plan is not None
            self._current.n_followed = int(self._current.fit.plan is None)  # then there is nothing to measure
        except DoesNotFit:
            self._n_grown += 1
            self._kinds.want()
        finally:
            self._teller.end()

    def _planned(self, recording, outside, early_bytes):
        plain_bytes = _plain_bytes(recording, outside)
        fit = self._fit(recording, plain_bytes, outside)
        return Planned(fit, plain_bytes, self._bytes, self._kinds.key, outside, early_bytes)

    def _fit(self, recording, plain_bytes, outside_bytes):
        machine, tiers = planning.Machine(), {}
        if self._has_tier:
            tier = planning.HOST if self._spill in (None, "ram") else planning.DISK
            machine.set_link(tier, max(1e6, self._slab.out_rate), max(1e6, self._slab.in_rate), _LATENCY_NS)
            tiers[tier] = planning.NO_LIMIT
        self._teller.begin("plan", f"planning a step that needs {_say.bytes_text(plain_bytes)} within "
                           f"{_say.bytes_text(self._bytes)}")
        try:
            fit = _fit.fit(recording, self._bytes, machine, tiers, self._effort, _fit.n_search_threads(), outside_bytes)
        except planning.NoFit as error:
            raise DoesNotFit("\n".join([str(error), *self._hints(error.least_budget_bytes, plain_bytes, error.roomier)]),
                             error.least_budget_bytes) from None
        self._teller.result("follow", _found(fit))
        return fit

    def _hints(self, least_bytes, plain_bytes, roomier):
        """What else to type."""
        yield f"without a plan it needs {plain_bytes} bytes"
        if least_bytes < plain_bytes:
            yield f"the least that a plan keeps: ebb.torch.Budget({least_bytes})"
        if roomier is not None:
            yield f"with ebb.torch.Budget({roomier[0]}) a step should take {roomier[1]:.2f} times as long as with the least"
        if not self._has_tier:
            yield 'it may be smaller with spill="/a/folder", where tensors may move to (or "ram", which makes the process no smaller)'
        elif not self._owned.may_leave:
            yield "it may be smaller with model=model, optimizer=optimizer: what they hold may then move, too"

    def _end_following(self, doer, seconds):
        planned = self._current
        if planned is None:
            return
        if doer.measured is not None:
            doer.measured.close()
        if doer.has_grown():
            self._n_unlike += 1
            self._grow(planned, doer.larger)
            return
        if doer.is_lost:
            self._n_unlike += 1
            planned.n_lost += 1
            self._kinds.note_unlike(doer.is_longer, not isinstance(doer, _follow.Watcher))
            return
        if doer.measured is not None and (doer.n_seen > 0 or doer.is_whole()):
            planned.peak_measured_bytes = max(planned.peak_measured_bytes or 0, doer.measured.peak + planned.outside_bytes)
            self._make_room(planned)
        if not doer.is_whole():  # it ended early, so the next one is measured, too
            return
        planned.n_followed += 1
        if doer.measured is None and planned.n_followed > 2 and not doer.has_sizes:
            planned.step_s = seconds if planned.step_s is None else min(planned.step_s, seconds)

    def _key(self):
        """What a step depends on when it begins: how many bytes the gradients have, and the state of optimizers."""
        return self._gradient_bytes(), sum(
            value.nbytes for optimizer in self._optimizers for state in optimizer.state.values() if isinstance(state, dict)
            for value in state.values() if isinstance(value, torch.Tensor) and value.layout == torch.strided)

    def _gradient_bytes(self):
        leaves = [reference() for reference in self._leaves.values()]
        gradients = (leaf.grad for leaf in leaves if leaf is not None)
        return sum(grad.nbytes for grad in gradients if grad is not None and grad.layout == torch.strided)

    def _note_optimizer(self, optimizer):
        """One steps on this thread."""
        self._optimizers.add(optimizer)
        step = getattr(_running, "step", None)
        if step is not None:
            step.doer.note_optimizer()

    def _note_leaves(self, leaves):
        self._leaves.update((id(leaf), weakref.ref(leaf)) for leaf in leaves)

    # ---- what happened

    def __reduce__(self):
        raise TypeError("ebb: a Budget can't be copied or sent to another process; make one there")

    def __repr__(self):
        planned = self._current
        asked = self._asked if self._bytes is None else _say.bytes_text(self._bytes)
        told = f"a peak of {_say.bytes_text(planned.peak_bytes)}" if planned is not None else "no plan yet"
        return f"<ebb.torch.Budget of {asked}, {self._n_steps} steps, {told}>"

    def summary(self):
        """What was planned and measured, of the plan that was used last: a dict, which prints as a table. Bytes are of
        storages, of what operators take while they run, and on a card of what its allocator has given beside these; `gap`:
        how far the predicted time is above what no plan can be faster than."""
        planned = self._current
        if planned is None:
            return _say.Summary(is_planned=False, steps=self._n_steps, steps_unlike=self._n_unlike, plans=len(self._plans))
        plan = planned.fit.plan
        return _say.Summary({
            "is_planned": True, "steps": self._n_steps, "steps_unlike": self._n_unlike, "plans": len(self._plans),
            "budget_bytes": planned.budget_bytes, "plain_bytes": planned.plain_bytes,
            "peak_planned_bytes": planned.peak_bytes,
            "peak_measured_bytes": planned.peak_measured_bytes,
            "moved_out_bytes": plan.moved_out_bytes if plan else 0,
            "recomputed_ops": plan.n_recomputed_steps if plan else 0,
            "held_bytes": self._guard.held_bytes if self._guard else 0,
            "step_planned_s": plan.iteration_ns / 1e9 if plan else None, "step_measured_s": planned.step_s,
            "gap": plan.iteration_ns / plan.bound_ns - 1 if plan and plan.bound_ns else 0.0,
        })
