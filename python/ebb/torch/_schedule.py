# SPDX-License-Identifier: Apache-2.0
"""From a recorded step to what is done when it is followed: the step as a program of ebb, ebb's plan for it, and the
plan's actions at the moments at which they can be done.

Each operator of the forward pass is a step that may be computed again if it is exact. In the backward pass a step is
what happens from one tensor that autograd gets back to the next one: actions can be done only there. A storage that is
alive by itself is read there, so that a plan does not count on its bytes. What no plan can move (parameters, gradients,
the optimizer's) is scratch of the steps during which it is alive. `peak` then follows the actions over the recorded
step, storage by storage; this peak is the promise, not the plan's.
"""
from collections import defaultdict

from .. import planning, trace
from ._steps import OP, PACK, UNPACK

LAST_DROP = 6  # beside the kinds of planning: a drop after which a storage is not needed; autograd may still name it
_TRIES = 12  # of budgets for the plan, until the peak is below the budget


class Schedule:
    """before, after: {entry: actions (kind, storage; of AGAIN: entry)}. captured: the entries that are computed again.
    is_idle: nothing leaves."""

    def __init__(self, recording, actions, steps):
        self.before, self.after = defaultdict(list), defaultdict(list)
        self.captured = set()
        last, waiting, is_leading = -1, [], True
        for kind, target in _with_last_drops(actions, recording, steps):
            if kind == planning.RUN:
                entry = steps[target]
                if entry is None or entry == last:
                    continue
                if waiting:
                    self.before[entry] += waiting
                last, waiting, is_leading = entry, [], True
            elif kind in (planning.DROP, LAST_DROP) and is_leading and last >= 0:
                self.after[last].append((kind, target))
            else:
                is_leading = False
                waiting.append((kind, steps[target] if kind == planning.AGAIN else target))
                if kind == planning.AGAIN:
                    self.captured.add(steps[target])


def _with_last_drops(actions, recording, steps):
    seen, found = set(), []
    for kind, target in reversed(actions):
        if kind == planning.DROP and target not in seen:
            kind = LAST_DROP
        if kind in (planning.DROP, LAST_DROP, planning.IN):
            seen.add(target)
        elif kind == planning.AGAIN:
            entry = recording.entries[steps[target]]
            seen.update([number for _, number in entry.births], entry.updates)
        found.append((kind, target))
    return reversed(found)


def plain(recording):
    """What a step without a plan does: autograd keeps what it saves until it has got it back for the last time."""
    saved = {entry.storage for entry in recording.entries if entry.kind == PACK and entry.storage is not None}
    last = {entry.storage: i for i, entry in enumerate(recording.entries) if entry.kind == UNPACK}
    schedule = Schedule(recording, (), ())
    for number, storage in enumerate(recording.storages):
        if number in last:
            schedule.after[last[number]].append((LAST_DROP, number))
        elif storage.maker is not None and number not in saved:
            schedule.after[storage.maker].append((LAST_DROP, number))
    return schedule


class _Copy:
    __slots__ = ("n_bytes", "n_holders", "is_own")

    def __init__(self, n_bytes, is_own):
        self.n_bytes, self.n_holders, self.is_own = n_bytes, 1, is_own


def peak(recording, schedule):
    """The most bytes of storages that are alive at once when a step follows the schedule."""
    storages, entries = recording.storages, recording.entries
    starts, ends, backs = defaultdict(list), defaultdict(list), {}
    for number, storage in enumerate(storages):
        for life in storage.lives:
            if life[1] is not None:
                ends[life[1]].append(life)
            if life[2]:
                backs[life[0], number] = life
            elif life[0] >= 0:
                starts[life[0]].append((number, life))
    natural = {id(life): [_Copy(storage.n_bytes, False)] for storage in storages for life in storage.lives
               if life[0] < 0}
    live = most = sum(storage.n_bytes for storage in storages for life in storage.lives if life[0] < 0)
    held, last_back, saved = {}, {}, defaultdict(list)
    for entry in entries:
        if entry.kind == PACK and entry.storage is not None:
            saved[entry.storage].append(entry)
            ends[entry.gone].append(entry)

    def release(copy):
        nonlocal live
        copy.n_holders -= 1
        if copy.n_holders == 0:
            live -= copy.n_bytes

    def act(kind, target, i):
        nonlocal live, most
        if kind in (planning.DROP, LAST_DROP):
            copy = held.pop(target, None)
            for entry in saved[target] if kind == LAST_DROP and copy is not None else ():
                if entry.gone is None or entry.gone > i:  # autograd keeps it
                    natural[id(entry)] = [copy]
                    copy.n_holders += 1
            if copy is not None:
                release(copy)
        elif kind == planning.IN:
            held[target] = _Copy(storages[target].n_bytes, True)
            live += storages[target].n_bytes
        elif kind == planning.AGAIN:
            passing = 0
            for number in entries[target].updates:
                if number in held and not held[number].is_own:
                    held[number].is_own, passing = True, passing + storages[number].n_bytes
            for _, number in entries[target].births:
                if number in held:
                    passing += storages[number].n_bytes
                else:
                    held[number] = _Copy(storages[number].n_bytes, True)
                    live += storages[number].n_bytes
            most = max(most, live + passing)
        most = max(most, live)

    for i, entry in enumerate(entries):
        for life in ends[i]:
            for copy in natural.pop(id(life), ()):
                release(copy)
        for action in schedule.before.get(i, ()):
            act(*action, i)
        for number, life in starts[i]:
            copy = _Copy(storages[number].n_bytes, False)
            natural[id(life)] = [copy]
            live += copy.n_bytes
            if entry.kind == OP and not entry.is_backward and i <= recording.last_unpack:
                held[number] = copy
                copy.n_holders += 1
        if entry.kind == UNPACK and entry.storage is not None:
            number = entry.storage
            life = backs.get((i, number)) or last_back.get(number)
            copy = held.get(number)
            if life is not None and copy is not None and (life[1] is None or life[1] > i):
                copies = natural.setdefault(id(life), [])
                if copy not in copies:
                    copies.append(copy)
                    copy.n_holders += 1
                last_back[number] = life
        most = max(most, live)
        for action in schedule.after.get(i, ()):
            act(*action, i)
    return most


# ---- the program ---------------------------------------------------------------------------------

class Layout:
    """A recording as a program: `program`; `steps`, the entry of each step or None; `base_bytes`, which are always
    there; `steps_ns`, of all steps once; `storages`, the storage of each tensor. Without times each step of the program
    takes one nanosecond."""

    def __init__(self, recording, is_timed=True):
        self.recording = recording
        entries, storages = recording.entries, recording.storages
        self._movable = [s.maker is not None and not entries[s.maker].is_backward and s.maker <= recording.last_unpack
                         for s in storages]
        self._fixed = self._fixed_bytes()
        self._inexact = self._rewritten_later()
        self.program, self.steps, self.storages, self._tensors = planning.Program("a training step"), [], [], {}
        self._told = []
        self._tell_steps()
        self.base_bytes = min((step["scratch"] for step in self._told), default=0)
        self.steps_ns = sum(max(1, step["ns"]) for step in self._told)
        for step in self._told:
            self.program.step(step["name"], step["reads"], step["writes"], step["updates"], step["phase"],
                              planning.EXACT if step["is_exact"] else planning.NEVER,
                              step["scratch"] - self.base_bytes, step["ns"] if is_timed else 1)

    def _fixed_bytes(self):
        """Of what no plan can move, at each entry."""
        change, entries = [0] * (len(self.recording.entries) + 1), len(self.recording.entries)
        for storage, is_movable in zip(self.recording.storages, self._movable):
            for begin, end, is_back in () if is_movable else storage.lives:
                change[max(0, begin)] += storage.n_bytes
                change[entries if end is None else end] -= storage.n_bytes
        live, fixed = 0, []
        for i in range(entries):
            live += change[i]
            fixed.append(live)
        return fixed

    def _rewritten_later(self):
        """Operators that read something which no plan can move, and which changes before the backward pass ends."""
        written, found = {}, set()
        for i in range(self.recording.last_unpack, -1, -1):
            entry = self.recording.entries[i]
            if any(number in written for number in entry.versions if not self._movable[number]):
                found.add(i)
            for number in entry.updates:
                written[number] = i
        return found

    def _tensor(self, number):
        tensor = self._tensors.get(number)
        if tensor is None:
            tensor = self._tensors[number] = self.program.tensor(
                f"s{number}", self.recording.storages[number].n_bytes, trace.ACTIVATION)
            self.storages.append(number)
        return tensor

    def _tell(self, entry, name, phase, scratch, ns=1, reads=(), writes=(), updates=(), is_exact=False):
        tensors = [[self._tensor(number) for number in numbers] for numbers in (writes, updates, reads)]
        self._told.append({"name": name, "phase": phase, "scratch": scratch, "ns": ns, "writes": tensors[0],
                           "updates": tensors[1], "reads": tensors[2], "is_exact": is_exact})
        self.steps.append(entry)

    def _tell_steps(self):
        recording, entries, fixed = self.recording, self.recording.entries, self._fixed
        last = recording.last_unpack
        stops = [i for i, entry in enumerate(entries) if i <= last and (
            entry.kind == UNPACK and entry.storage is not None and self._movable[entry.storage] or
            entry.kind == OP and not entry.is_backward and (entry.births or entry.updates))]
        rest = next((i for i in range(last + 1, len(entries)) if not entries[i].is_backward), len(entries))
        lives = sorted((life[0], len(entries) if life[1] is None else life[1], number)
                       for number, is_movable in enumerate(self._movable) if is_movable
                       for life in recording.storages[number].lives)
        room = self._room_for_repeats()
        for at, begin in enumerate(stops):
            end = stops[at + 1] if at + 1 < len(stops) else rest
            entry = entries[begin]
            most = max(fixed[(stops[at - 1] + 1 if at else 0):begin + 1] if entry.kind == OP else fixed[begin:end])
            if entry.kind == OP:
                self._tell_operator(begin, entry, max(most, room.get(begin, 0)))
                dying = [number for first, gone, number in lives if first < begin and begin < gone <= end]
                named = set(entry.versions) | {number for _, number in entry.births}
                dying = [number for number in dying if number not in named]
                if dying:
                    self._tell(begin, "held", trace.FORWARD, most, reads=dying)
                continue
            alive = {number for first, gone, number in lives if first < end and gone > begin}
            alive.add(entry.storage)
            ns = sum(e.ns for e in entries[begin:end])
            self._tell(begin, "backward", trace.BACKWARD, most, ns, reads=sorted(alive))
        if rest < len(entries):
            alive = sorted({number for first, gone, number in lives if gone > rest})
            self._tell(None, "update", trace.UPDATE, max(fixed[rest:]), sum(e.ns for e in entries[rest:]), reads=alive)

    def _room_for_repeats(self):
        """What is there beside an operator's own tensors when it is most likely computed again: when autograd gets the
        first of its results, or of those after it."""
        first = {}
        for i, entry in enumerate(self.recording.entries):
            if entry.kind == UNPACK and entry.storage is not None:
                first.setdefault(entry.storage, i)
        found, fixed = {}, 0
        for i in range(self.recording.last_unpack, -1, -1):
            entry = self.recording.entries[i]
            if entry.kind != OP or entry.is_backward:
                continue
            backs = [first[number] for _, number in entry.births if number in first]
            if backs:
                fixed = self._fixed[min(backs)]
            if entry.is_exact:
                found[i] = fixed
        return found

    def _tell_operator(self, i, entry, scratch):
        births = [number for _, number in entry.births if self._movable[number]]
        reads = [number for number in entry.versions if self._movable[number] and number not in entry.updates]
        updates = [number for number in entry.updates if self._movable[number]]
        is_exact = entry.is_exact and i not in self._inexact and bool(births or updates) and \
            len(births) == len(entry.births)
        ns = entry.ns + (self.recording.again_ns if is_exact else 0)
        self._tell(i, entry.func._schema.name, trace.FORWARD, scratch, ns, reads, births, updates, is_exact)

    def schedule(self, plan):
        actions = [(kind, target if kind in (planning.RUN, planning.AGAIN) else self.storages[target])
                   for kind, target, _ in plan.actions]
        return Schedule(self.recording, actions, self.steps)


class Fit:
    """A schedule that keeps a budget: its peak, and the plan that it follows (None: nothing leaves)."""

    excess_bytes = 0

    def __init__(self, schedule, peak_bytes, plan):
        self.schedule, self.peak_bytes, self.plan = schedule, peak_bytes, plan

    def timed(self, layout, machine):
        """With the times of a layout, if its plan was made without: no plan is faster than all steps once."""
        if self.plan is not None:
            self.plan.time(layout.program, machine)
            self.plan.bound_ns = layout.steps_ns
        return self


def fit(recording, budget_bytes, machine, tier_bytes, effort, n_threads=1):
    """The fastest schedule that is found whose peak is at most the budget. planning.NoFit names the least."""
    without = plain(recording)
    bytes_without = peak(recording, without)
    if bytes_without <= budget_bytes:
        return Fit(without, bytes_without, None)
    layout = Layout(recording)
    found = fitted(layout, budget_bytes, machine, tier_bytes, effort, n_threads)
    if found is not None:
        return found
    found = tightest(recording, tier_bytes, bytes_without)
    if found.peak_bytes <= budget_bytes:
        return found.timed(layout, machine)
    raise planning.NoFit(f"ebb: no plan keeps this step within {budget_bytes} bytes; without one it needs "
                         f"{bytes_without}, and {found.peak_bytes} can be kept", found.peak_bytes)


def fitted(layout, budget_bytes, machine, tier_bytes, effort, n_threads=1, excess_bytes=0):
    """The fastest schedule of a plan that the search finds whose peak is at most the budget; None: it finds none.
    excess_bytes: by how much peaks are expected to be above what the plan says, as `Fit.excess_bytes` of another budget."""
    for _ in range(_TRIES):
        aim = budget_bytes - layout.base_bytes - excess_bytes
        try:
            plan = layout.program.plan(max(1, aim), machine, tier_bytes, effort=effort, n_threads=n_threads)
        except planning.NoFit:
            return None
        found = _followed(layout, plan)
        found.excess_bytes = excess_bytes
        if found.peak_bytes <= budget_bytes:
            return found
        excess_bytes += found.peak_bytes - budget_bytes
    return None


def _followed(layout, plan):
    schedule = layout.schedule(plan)
    return Fit(schedule, peak(layout.recording, schedule), plan)


def tightest(recording, tier_bytes, bytes_without, policies=("budget", "best")):
    """The least peak that is found. It does not depend on times, so a budget that it names can be kept next time."""
    layout, found = Layout(recording, is_timed=False), Fit(plain(recording), bytes_without, None)
    for policy in policies:
        least = 1
        for _ in range(2):  # the first is refused, and told the least
            try:
                fitted = _followed(layout, layout.program.plan(least, planning.Machine(), tier_bytes, policy, effort=0))
            except planning.NoFit as error:
                least = error.least_budget_bytes
                continue
            if fitted.peak_bytes < found.peak_bytes:
                found = fitted
            break
    return found
