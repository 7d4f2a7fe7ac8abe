# SPDX-License-Identifier: Apache-2.0
"""What a training step was seen to do: its moments, the lives of its storages, and which of them may leave by themselves.

What autograd saves is a plan's to keep or not, for autograd asks for it (_follow.py holds it). Other storages belong to
the program, and can only be away (_pager.py) between their uses: `lasting` ones, which are there all the time
(parameters, the optimizer's state), and `passing` ones, which the backward pass makes (gradients). An owner is a name of
_owned.py.
"""
import torch

from ._owned import GRADIENT, STATE
from ._pager import MIN_BYTES

OP, PACK, UNPACK, TOUCH = range(4)  # of the last: memory that is used beside the operators
# What may leave by itself: nothing; the optimizer's state, where no other part of a step uses it; all that is owned.
NOTHING, STATES, ALL = range(3)
_AGAIN_NS = 30000  # of an operator that Python calls
_SMALL_PART = 8192  # of what is owned: what has less bytes than this part of it never leaves
_MIN_ABSENCE = 64  # entries between two uses of what has no owner, below which it does not leave


class Entry:
    """What happened at one moment. versions: {storage: version} of what an operator reads; `updates` it writes in
    place; `births`: (number of the result, storage); `empties`: numbers of results of 0 bytes. `inside_bytes`: the most that it
    takes beside its results while it runs; `kept_bytes`: what autograd may keep beside them to the end of the step. `random_bytes`: the
    random state that it needs to be computed again; 0: it draws no random numbers. `ns`: how long it took; `estimated_ns`: how long
    it takes by what it does, whatever else the machine is at. `is_exact`: it may be computed again. `gone`: of what
    autograd saves, the entry by which it has let go of it; None: it has not. `gradient_bytes`: of all gradients before the
    entry; None: they were not counted."""
    __slots__ = ("kind", "func", "shapes", "is_backward", "versions", "updates", "births", "ns", "estimated_ns", "is_exact", "storage",
                 "empties", "version", "pack", "is_view", "gone", "inside_bytes", "kept_bytes", "random_bytes",
                 "gradient_bytes")

    def __init__(self, kind, is_backward):
        self.kind, self.is_backward = kind, is_backward
        self.func = self.shapes = self.storage = self.version = self.pack = None
        self.versions, self.updates, self.births, self.empties, self.ns, self.gone = {}, [], [], (), 0, None
        self.estimated_ns = 0
        self.inside_bytes = self.kept_bytes = self.random_bytes = 0
        self.is_exact = self.is_view = False
        self.gradient_bytes = None

    def known_by(self):
        """What the same moment of another step has in common with it."""
        return self.kind, self.func, self.shapes


class Storage:
    """lives: [first entry, entry by which it is gone or None, whether it came back for autograd]. maker: the entry of
    the operator that made it; None: it was there before, or it was not seen made. first_owner, last_owner: whose it was
    when the step began and ended, or None. is_hidden: not all of its uses are seen, because it is part of a sparse tensor or
    a collective used it. is_shared: it is written by a collective, perhaps after that had returned, or by what is no operator."""
    __slots__ = ("n_bytes", "maker", "lives", "first_owner", "last_owner", "is_hidden", "is_shared")

    def __init__(self, n_bytes, maker):
        self.n_bytes, self.maker, self.lives = n_bytes, maker, []
        self.first_owner, self.last_owner, self.is_hidden, self.is_shared = None, None, False, False


class Recording:
    """entries, storages, the number of the last entry that gives autograd something back (-1: none does). again_ns: what
    an operator takes beside its own time when it is computed again. leavers: what may leave by itself.
    uses: {storage: entries that use it} of what may leave by itself; `lasting`, `passing`. moments: the entries by which a
    step that is followed is known to be like this one; up to `last_use`, with those of the backward pass (`is_whole`) if
    anything that it uses may leave by itself. rests: only states of the optimizer may leave by themselves.
    n_optimizer_steps: how often an optimizer stepped."""

    def __init__(self, entries, storages, again_ns=_AGAIN_NS, leavers=ALL, n_optimizer_steps=0):
        self.entries, self.storages, self.again_ns, self._leavers = entries, storages, again_ns, leavers
        self.n_optimizer_steps = n_optimizer_steps
        self.last_unpack = max((i for i, entry in enumerate(entries) if entry.kind == UNPACK), default=-1)
        self._find_leavers()
        self.is_whole = bool(self.uses) and leavers == ALL
        self.rests = bool(self.uses) and leavers == STATES
        self.last_use = max([self.last_unpack, *(uses[-1] for uses in self.uses.values())])
        self.moments = [i for i, entry in enumerate(entries) if i <= self.last_use and (
            not self.uses.keys().isdisjoint(entry.versions) if entry.kind == TOUCH else
            self.is_whole or entry.kind != OP or not (entry.is_backward or entry.is_view))]
        self.first = entries[self.moments[0]] if self.moments else None
        self.saved_shapes = [entry.shapes[0] for entry in entries if entry.kind == PACK]

    def of(self, leavers):
        """The same, where only these leave by themselves."""
        return Recording(self.entries, self.storages, self.again_ns, leavers, self.n_optimizer_steps)

    def is_held(self, number):
        """Whether a follower holds a storage; it only refers to others, and to their tensors."""
        maker = self.storages[number].maker
        return maker is not None and not self.storages[number].is_shared and not self.entries[maker].is_backward and \
            maker <= self.last_unpack

    def begins_with(self, known_by, gradient_bytes):
        return self.first is not None and self.first.known_by() == known_by and \
            self.first.gradient_bytes in (None, gradient_bytes)

    def is_start_of(self, other):
        """Whether another recording has all of this one's moments, of the same storages."""
        return len(self.entries) <= len(other.entries) and self.n_optimizer_steps <= other.n_optimizer_steps and \
            all(mine == others for mine, others in zip(self._all_known_by(), other._all_known_by()))

    def _all_known_by(self):
        order = {}  # by first use; the numbers are those in which Python had the tensors
        for entry in self.entries:
            used = (*entry.versions, *(number for _, number in entry.births))
            yield *entry.known_by(), entry.gradient_bytes, [order.setdefault(number, len(order)) for number in used], \
                [(self.storages[number].n_bytes, self.storages[number].first_owner) for number in used]

    def _may_leave(self, storage):
        if self._leavers == STATES:
            return self._is_lasting(storage) and storage.first_owner[0] == STATE
        return self._is_lasting(storage) or self._is_passing(storage)

    def _find_leavers(self):
        owned = [storage for storage in self.storages if self._leavers != NOTHING and (storage.first_owner or storage.last_owner)]
        least = max(MIN_BYTES, sum(storage.n_bytes for storage in owned) // _SMALL_PART)
        uses, saved = {}, {entry.storage for entry in self.entries if entry.kind == PACK}
        for number, storage in enumerate(self.storages):
            if storage.n_bytes >= least and owned and number not in saved and not storage.is_hidden and self._may_leave(storage):
                uses[number] = []
        for i, entry in enumerate(self.entries if uses else ()):
            for number in {*entry.versions, *(number for _, number in entry.births)} if entry.kind in (OP, TOUCH) else ():
                if number in uses:
                    uses[number].append(i)
        if self._leavers == STATES:
            rest = 1 + max((i for i, entry in enumerate(self.entries) if entry.is_backward or i <= self.last_unpack), default=-1)
            uses = {number: found for number, found in uses.items() if found and found[0] >= rest}
        self.uses = {number: found for number, found in uses.items() if found and (
            self.storages[number].first_owner or self.storages[number].last_owner or self._has_pause(found))}
        self.lasting = {number for number in self.uses if self._is_lasting(self.storages[number])}
        self.passing = {number for number in self.uses if number not in self.lasting}

    @staticmethod
    def _is_lasting(storage):
        return storage.first_owner is not None and storage.lives == [[-1, None, False]]

    def _is_passing(self, storage):
        return storage.maker is not None and self.entries[storage.maker].is_backward and len(storage.lives) == 1

    @staticmethod
    def _has_pause(uses):
        return any(later - use >= _MIN_ABSENCE for use, later in zip(uses, uses[1:]))

    def leftovers(self):
        """{gradient that the step leaves behind: the one that it found in its place, or None}."""
        touched = {number for entry in self.entries if entry.kind == TOUCH for number in entry.versions}
        found = {storage.first_owner: number for number, storage in enumerate(self.storages)
                 if storage.first_owner and number not in touched}
        return {number: found.get(self.storages[number].last_owner) for number in self.passing
                if self.storages[number].last_owner and self.storages[number].last_owner[0] == GRADIENT}
