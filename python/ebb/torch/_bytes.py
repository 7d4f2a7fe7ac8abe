# SPDX-License-Identifier: Apache-2.0
"""The bytes of a step that is measured."""
import itertools

from ._tensors import expired, forget, is_plain, tensors_alive


class Bytes:
    """The storages that live, by PyTorch's own count of references; those that are away have none."""

    def __init__(self):
        self.live = self.peak = 0
        self._known = {}

    @classmethod
    def of_all_tensors(cls):
        """With what is there now."""
        count = cls()
        for tensor in tensors_alive():
            if is_plain(tensor):
                count.see(tensor.untyped_storage())
        return count

    def see(self, storage):
        if storage._cdata not in self._known and storage.nbytes() > 0:
            self._add(storage)

    def came(self, storage):
        self.bury()
        self._add(storage)

    def _add(self, storage):
        if storage._cdata not in self._known:
            storage._weak_ref()
        self.live += storage.nbytes() - self._known.get(storage._cdata, 0)
        self._known[storage._cdata] = storage.nbytes()
        self.peak = max(self.peak, self.live)

    def left(self, key):
        self.live -= self._known.get(key, 0)
        if key in self._known:
            self._known[key] = 0

    def ran(self, most_bytes, kept_bytes):
        """An operator has had this much at once, of which its results are not seen yet, and of which something stays."""
        self.peak = max(self.peak, self.live + most_bytes)
        self.live += kept_bytes

    def bury(self):
        keys = tuple(self._known)
        for key in itertools.compress(keys, map(expired, keys)):
            self.live -= self._known.pop(key)
            forget(key)

    def close(self):
        for key in self._known:
            forget(key)
        self._known.clear()
