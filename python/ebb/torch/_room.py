# SPDX-License-Identifier: Apache-2.0
"""What autograd saves in a step without a plan: it stays in memory while the budget has room; after that the oldest moves to the
slab.

Autograd asks first for what it saved last, so the oldest stays away longest. Nothing is computed again, because what it was made
from may be overwritten. How much an operator makes is not known before it ran, so room is left for the most that one of the
recorded step made.
"""
import itertools
import os
import weakref

from ._tensors import alive, forget, is_plain, is_resident_only, n_tensors_over

_EXTRA_PART = 32  # of the limit: what leaves at once beside what has to


class _Kept:
    """A storage as it was when autograd saved something of it: `storage`, which is None once it left, or in the slab (`slot`).
    key: a weak reference to the storage, or None; back: to the one that it came back in, or None. version: of the tensors in it.
    saved: weak references to what autograd holds."""

    __slots__ = ("key", "storage", "version", "slot", "back", "saved", "__weakref__")

    def __init__(self, storage, version, slot):
        self.key = storage._weak_ref() if storage is not None else None
        self.storage, self.version, self.slot, self.back, self.saved = storage, version, slot, None, []

    def __del__(self):
        for key in (self.key, self.back):
            if key is not None:
                forget(key)

    def storage_and_is_new(self):
        """A storage with its bytes, and whether it was brought back for that."""
        storage = self.storage
        if storage is None and self.back is not None:
            storage = alive(self.back)
        if storage is not None:
            return storage, False
        storage = self.slot.back()
        if self.back is not None:
            forget(self.back)
        self.back = storage._weak_ref()
        return storage, True


class Room:
    """limit_bytes: the most that is there at once. reserve_bytes: the most that an operator makes. count: Bytes of what is there,
    which the room closes."""

    def __init__(self, slab, limit_bytes, reserve_bytes, count):
        self._slab, self._limit, self._reserve, self._count = slab, limit_bytes, reserve_bytes, count
        self._process, self._is_slab_full = os.getpid(), False
        self._made, self._all = set(), []  # keys of storages; weak references to all that is kept
        self._of = {}  # {key of a storage: weak references to what is kept of it, for each version}

    def close(self):
        """The step is over; what is kept stays as it is, for a graph that outlives it."""
        if self._count is not None:
            self._count.close()
            self._count = None

    # ---- what autograd saves

    def keep(self, saved, storage, version):
        """The bytes of a saved tensor are those of a storage."""
        found = next((kept for kept in self._kept_of(storage) if kept.version == version), None)
        if found is None:
            found = self._new(storage, version, None)
            self._of[storage._cdata] = [weakref.ref(kept) for kept in (*self._kept_of(storage), found)]
        self._hold(saved, found)
        self._count.see(storage)

    def _kept_of(self, storage):
        found = (reference() for reference in self._of.get(storage._cdata, ()))
        return [kept for kept in found if kept is not None]

    def keep_slot(self, saved, slot):
        """The bytes of a saved tensor are in the slab already."""
        self._hold(saved, self._new(None, None, slot))

    def _new(self, *of):
        kept = _Kept(*of)
        self._all.append(weakref.ref(kept))
        return kept

    @staticmethod
    def _hold(saved, kept):
        saved.kept = kept
        kept.saved.append(weakref.ref(saved))

    def saved_of(self, storage):
        """References to what autograd holds of a storage."""
        return list(itertools.chain.from_iterable(kept.saved for kept in self._kept_of(storage)))

    def give(self, kept):
        """A storage with its bytes."""
        if kept.storage is None and self._count is not None:
            self.make_room(kept.slot.n_bytes)
        storage, is_new = kept.storage_and_is_new()
        if is_new and self._count is not None:
            self._count.see(storage)
        return storage

    # ---- what is there

    def made(self, tensors):
        """By an operator."""
        for tensor in tensors:
            if is_plain(tensor):
                storage = tensor.untyped_storage()
                self._made.add(storage._cdata)
                self._count.see(storage)
        self.make_room()

    def is_made(self, storage):
        return storage._cdata in self._made

    def make_room(self, more_bytes=0):
        """For so many bytes, and for what an operator makes. Gives what left for it: {key of a storage: slot}."""
        left = {}
        if self._excess(more_bytes) <= 0 or self._is_slab_full or self._process != os.getpid():
            return left
        self._count.bury()
        excess_bytes = self._excess(more_bytes)
        if excess_bytes <= 0:
            return left
        excess_bytes += self._limit // _EXTRA_PART  # so that the next operators need not look
        kept = [one for one in (reference() for reference in self._all) if one is not None]
        self._all = [weakref.ref(one) for one in kept]
        for one in kept:
            if excess_bytes > 0 and not self._is_slab_full and self._may_leave(one):
                excess_bytes -= one.storage.nbytes()
                self._move_out(one, left)
        self._count.bury()
        return left

    def _excess(self, more_bytes):
        """At most so much: what died since may be counted."""
        return self._count.live + more_bytes + self._reserve - self._limit

    @staticmethod
    def _may_leave(kept):
        """Whether it is there, and only for autograd."""
        return kept.storage is not None and n_tensors_over(kept.storage) == 0 and not is_resident_only(kept.storage)

    def _move_out(self, kept, left):
        try:
            left[kept.key] = kept.slot = self._slab.out(kept.storage)
            kept.storage = None
        except OSError:  # where it was to go there is no room either
            self._is_slab_full = True
