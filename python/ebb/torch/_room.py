# SPDX-License-Identifier: Apache-2.0
"""What autograd saves in a step that no plan is followed in: it stays while there is room within the budget, else it leaves, the
oldest first.

Autograd wants back first what it saved last. So what leaves is away for as long as can be, and in the backward pass there is
more and more room. Nothing is computed again: in such a step nobody knows what is written next. How much an operator makes is
not known before it ran either, so room is left for the most that one of the recorded step made.
"""
import weakref

from ._tensors import alive, forget, is_plain, n_tensors_over

_ROOM_PART = 32  # of the limit: what leaves at once beside what has to


class _Kept:
    """A storage as it was when autograd saved something of it: `storage`, which is None once it left, or in the slab (`slot`).
    key: a weak reference to the storage, or None; back: to the one that it came back in, or None. version: of the tensors in it.
    saved: weak references to what autograd holds."""

    __slots__ = ("key", "storage", "version", "slot", "back", "saved", "__weakref__")

    def __init__(self, storage, version, slot):
        self.key, self.storage, self.version, self.slot = storage and storage._weak_ref(), storage, version, slot
        self.back, self.saved = None, []

    def __del__(self):
        for key in (self.key, self.back):
            if key is not None:
                forget(key)

    def bytes(self):
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
        self._slab, self._limit, self.reserve_bytes, self._count, self._is_full = slab, limit_bytes, reserve_bytes, count, False
        self._made, self._all, self._of = set(), [], {}  # keys of storages; weak references to what is kept, also by key

    def close(self):
        self._count.close()

    # ---- what autograd saves

    def keep(self, saved, storage, version):
        """The bytes of a saved tensor are those of a storage."""
        found = self._of.get(storage._cdata, lambda: None)()
        if found is None or found.version != version:
            found = _Kept(storage, version, None)
            self._of[storage._cdata] = weakref.ref(found)
        self._hold(saved, found)
        self._count.see(storage)

    def keep_slot(self, saved, slot):
        """The bytes of a saved tensor are in the slab already."""
        self._hold(saved, _Kept(None, None, slot))

    def _hold(self, saved, kept):
        saved.kept = kept
        kept.saved.append(weakref.ref(saved))
        if len(kept.saved) == 1:
            self._all.append(weakref.ref(kept))

    def saved_of(self, storage):
        """References to what autograd holds of a storage."""
        kept = self._of.get(storage._cdata, lambda: None)()
        return kept.saved if kept is not None and kept.key == storage._cdata else ()

    def give(self, kept):
        """A storage with its bytes."""
        if kept.storage is None:
            self.make_room(kept.slot.n_bytes)
        storage, is_new = kept.bytes()
        if is_new:
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
        if self._excess(more_bytes) <= 0 or self._is_full:
            return left
        self._count.bury()
        excess_bytes = self._excess(more_bytes)
        if excess_bytes <= 0:
            return left
        excess_bytes += self._limit // _ROOM_PART  # so that the next operators need not look
        kept = [one for one in (reference() for reference in self._all) if one is not None]
        self._all = [weakref.ref(one) for one in kept]
        for one in kept:
            if excess_bytes > 0 and one.storage is not None and n_tensors_over(one.storage) == 0 and not self._is_full:
                excess_bytes -= one.storage.nbytes()
                self._move_out(one, left)
        self._count.bury()
        return left

    def _excess(self, more_bytes):
        """At most so much: what died since may be counted."""
        return self._count.live + more_bytes + self.reserve_bytes - self._limit

    def _move_out(self, kept, left):
        try:
            left[kept.key] = kept.slot = self._slab.out(kept.storage)
            kept.storage = None
        except OSError:  # where it was to go there is no room either
            self._is_full = True
