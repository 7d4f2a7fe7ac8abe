# SPDX-License-Identifier: Apache-2.0
"""A recorded step as a program of ebb.

Each operator of the forward pass is a step that may be computed again if it is exact. In the backward pass a step is
what happens from one tensor that autograd gets back to the next one, or from one use of what may leave by itself to the
next: actions can be done only there. A storage that is alive by itself is read there, so that a plan does not count on
its bytes. What no plan can move is scratch of the steps during which it is alive.
"""
from .. import planning, trace
from ._recording import OP, UNPACK
from ._repeat import repeat_of
from ._schedule import Schedule

MEASURED, ESTIMATED, NONE = range(3)  # times of a layout


class Layout:
    """A recording as a program: `program`; `steps`, the entry of each step or None; `base_bytes`, which are always
    there; `steps_ns`, of all steps once; `storages`, the storage of each tensor. times: those that were measured; those that
    are estimated from what operators do, which are the same each time; or none, where each step of the program takes one
    nanosecond. lets_go: the gradients that the step leaves behind leave after their last use."""

    def __init__(self, recording, times=MEASURED, lets_go=False):
        self.recording, self._times = recording, times
        self.leftovers = recording.leftovers() if lets_go else {}
        self._movable = [recording.is_held(number) for number in range(len(recording.storages))]
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
                              step["scratch"] - self.base_bytes, 1 if times == NONE else step["ns"])
        self.program.keep_order()  # the program runs as it does

    def _ns(self, entries):
        return sum(entry.estimated_ns if self._times == ESTIMATED else entry.ns for entry in entries)

    def _fixed_bytes(self):
        """Of what no plan can move, at each entry, with what its operator takes while it runs."""
        change, entries = [0] * (len(self.recording.entries) + 1), len(self.recording.entries)
        for number, storage in enumerate(self.recording.storages):
            for begin, end in self._fixed_lives(number, storage):
                change[max(0, begin)] += storage.n_bytes
                change[entries if end is None else end] -= storage.n_bytes
        live, fixed = 0, []
        for i, entry in enumerate(self.recording.entries):
            change[i + 1] += entry.kept_bytes
            live += change[i]
            fixed.append(live + entry.inside_bytes)
        return fixed

    def _fixed_lives(self, number, storage):
        if self._movable[number] or number in self.recording.lasting or number in self.leftovers or \
                number in self.leftovers.values():
            return
        for begin, end, _ in storage.lives:
            last = self.recording.uses[number][-1] + 1 if number in self.recording.passing else begin
            if end is None or last < end:  # after its last use a plan does nothing more with it
                yield last, end

    def _rewritten_later(self):
        """Operators that read something which no plan can move, and which changes before the backward pass ends; not the
        statistics of batch-norm, which is computed again without them."""
        written, found = {}, set()
        for i in range(self.recording.last_unpack, -1, -1):
            entry = self.recording.entries[i]
            unread = entry.updates if entry.kind == OP and repeat_of(entry.func).is_batch_norm else ()
            if any(number in written for number in entry.versions if not self._movable[number] and number not in unread):
                found.add(i)
            for number in entry.updates:
                written[number] = i
        return found

    def _tensor(self, number):
        tensor = self._tensors.get(number)
        if tensor is None:
            storage, is_lasting = self.recording.storages[number], number in self.recording.lasting
            role = trace.PARAMETER if is_lasting else trace.GRADIENT if number in self.recording.passing else \
                trace.ACTIVATION
            tensor = self._tensors[number] = self.program.tensor(f"s{number}", storage.n_bytes, role, is_lasting)
            self.storages.append(number)
        return tensor

    def _tell(self, entry, name, phase, scratch, ns=1, reads=(), writes=(), updates=(), is_exact=False):
        tensors = [[self._tensor(number) for number in numbers] for numbers in (writes, updates, reads)]
        self._told.append({"name": name, "phase": phase, "scratch": scratch, "ns": ns, "writes": tensors[0],
                           "updates": tensors[1], "reads": tensors[2], "is_exact": is_exact})
        self.steps.append(entry)

    def _is_repeatable_place(self, i):
        entry = self.recording.entries[i]
        return entry.kind == OP and not entry.is_backward and i <= self.recording.last_unpack and \
            bool(entry.births or entry.updates)

    def _stops(self):
        """The entries by which steps begin."""
        entries, found = self.recording.entries, {i for uses in self.recording.uses.values() for i in uses}
        found.update(i for i, entry in enumerate(entries) if self._is_repeatable_place(i) or
                     entry.kind == UNPACK and entry.storage is not None and self._movable[entry.storage])
        return sorted(found)

    def _tell_steps(self):
        recording, entries, fixed = self.recording, self.recording.entries, self._fixed
        stops = self._stops()
        rest = next((i for i in range(recording.last_unpack + 1, len(entries)) if not entries[i].is_backward),
                    len(entries))
        has_rest = rest < len(entries) and (not stops or stops[-1] < rest)
        lives = sorted((life[0], len(entries) if life[1] is None else life[1], number)
                       for number, is_movable in enumerate(self._movable) if is_movable
                       for life in recording.storages[number].lives)
        room = self._room_for_repeats()
        for at, begin in enumerate(stops):
            end = stops[at + 1] if at + 1 < len(stops) else rest if has_rest else len(entries)
            entry = entries[begin]
            if self._is_repeatable_place(begin):
                most = max(fixed[(stops[at - 1] + 1 if at else 0):begin + 1])
                self._tell_operator(begin, entry, max(most, room.get(begin, 0)))
                dying = [number for first, gone, number in lives if first < begin and begin < gone <= end]
                named = set(entry.versions) | {number for _, number in entry.births}
                dying = [number for number in dying if number not in named]
                if dying:
                    self._tell(begin, "held", trace.FORWARD, most, reads=dying)
                continue
            alive = {number for first, gone, number in lives if first < end and gone > begin}
            self._tell_stretch(begin, end, alive)
        if has_rest:
            alive = sorted({number for first, gone, number in lives if gone > rest})
            self._tell(None, "update", trace.UPDATE, max(fixed[rest:]), self._ns(entries[rest:]), reads=alive)

    def _tell_stretch(self, begin, end, alive):
        """What happens from one entry on, up to another one."""
        entry, uses = self.recording.entries[begin], self.recording.uses
        births = [number for _, number in entry.births if number in uses]
        updates = [number for number in entry.updates if number in uses]
        reads = {number for number in entry.versions if number in uses and number not in entry.updates}
        if entry.storage is not None:
            reads.add(entry.storage)
        name, phase = ("backward", trace.BACKWARD) if begin <= self.recording.last_unpack or entry.is_backward else \
            ("update", trace.UPDATE)
        self._tell(begin, name, phase, max(self._fixed[begin:end]), self._ns(self.recording.entries[begin:end]),
                   sorted(reads | alive), births, updates)

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
                found[i] = fixed + entry.inside_bytes
        return found

    def _tell_operator(self, i, entry, scratch):
        births = [number for _, number in entry.births if self._movable[number]]
        mine = [number for number in entry.versions if self._movable[number] or number in self.recording.lasting]
        reads = [number for number in mine if number not in entry.updates]
        updates = [number for number in mine if number in entry.updates]
        is_exact = entry.is_exact and i not in self._inexact and bool(births or updates) and \
            not any(number in self.recording.lasting for number in updates) and \
            len(births) == len(entry.births)
        ns = self._ns([entry]) + (self.recording.again_ns if is_exact else 0)
        self._tell(i, entry.func._schema.name, trace.FORWARD, scratch, ns, reads, births, updates, is_exact)

    def schedule(self, plan):
        actions = [(kind, target if kind in (planning.RUN, planning.AGAIN) else self.storages[target])
                   for kind, target, *_ in plan.actions]
        return Schedule(self.recording, actions, self.steps, self.leftovers)
