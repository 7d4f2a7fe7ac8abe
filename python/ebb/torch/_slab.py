# SPDX-License-Identifier: Apache-2.0
"""Where bytes go that leave: a file without a name in a folder, or other memory of the host (pinned beside a card).

A slot is given to one storage at a time and used again after. The rates of copies are measured as they happen: the rate
of a way is the one that half of the bytes reached. An average would be that of the copies that had to wait, for another
program or for memory that was used for the first time.
"""
import os
import tempfile
import time

import torch

from ._tensors import bytes_view

_CHUNK_BYTES = 1 << 30  # one call to the system moves at most 2 GiB


class Slab:
    """folder: of the file; None: memory."""

    def __init__(self, folder):
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0) if folder is not None else None
        self._free, self._end = {}, 0  # {bytes: slots}, the end of the file
        self.out_bytes = self.in_bytes = 0
        self._outs, self._ins = [], []  # (bytes per second, bytes) of copies

    out_rate = property(lambda self: _median(self._outs))
    in_rate = property(lambda self: _median(self._ins))

    def forget_rates(self):
        """Those of a step in which every slot was new."""
        self._outs.clear()
        self._ins.clear()

    def out(self, storage, slot=None):
        """Copy a storage out, over what a slot holds if one is given; gives the slot that holds it."""
        begin_ns, n_bytes = time.perf_counter_ns(), storage.nbytes()
        if slot is None:
            places = self._free.get(n_bytes)
            slot = _Slot(self, n_bytes, places.pop() if places else self._new_place(storage, n_bytes), storage.device)
        if self._file is None:
            slot.place.copy_(storage)
        else:
            self._write(storage, slot.place)
        self.out_bytes += n_bytes
        self._outs.append(_rate(n_bytes, begin_ns))
        return slot

    def _new_place(self, storage, n_bytes):
        if self._file is None:
            return torch.UntypedStorage(n_bytes) if storage.device.type == "cpu" else \
                torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True).untyped_storage()
        self._end += n_bytes
        return self._end - n_bytes

    def _on_host(self, storage):
        return storage if storage.device.type == "cpu" else storage.cpu()

    def _write(self, storage, offset):
        held = self._on_host(storage)
        left = bytes_view(held)
        while left:
            n = os.pwrite(self._file.fileno(), left[:_CHUNK_BYTES], offset)
            left, offset = left[n:], offset + n

    def into(self, slot, storage):
        """Read what a slot holds into a storage of as many bytes."""
        begin_ns = time.perf_counter_ns()
        if self._file is None:
            storage.copy_(slot.place)
        else:
            host = storage if storage.device.type == "cpu" else torch.UntypedStorage(slot.n_bytes)
            left, offset = bytes_view(host), slot.place
            while left:
                n = os.preadv(self._file.fileno(), [left[:_CHUNK_BYTES]], offset)
                if n == 0:
                    raise OSError("ebb: the file of what was moved out is shorter than it was")
                left, offset = left[n:], offset + n
            if host is not storage:
                storage.copy_(host)
        self.in_bytes += slot.n_bytes
        self._ins.append(_rate(slot.n_bytes, begin_ns))

    def close(self):
        self._free.clear()
        if self._file is not None:
            self._file.close()


def _rate(n_bytes, begin_ns):
    return 1e9 * n_bytes / max(1, time.perf_counter_ns() - begin_ns), n_bytes


def _median(copies):
    """The rate that half of the bytes reached; 0: there were no copies."""
    left = sum(n_bytes for _, n_bytes in copies) / 2
    for rate, n_bytes in sorted(copies):
        left -= n_bytes
        if left <= 0:
            return rate
    return 0.0


class _Slot:
    """Its place is free again when it is gone."""
    __slots__ = ("slab", "n_bytes", "place", "device")

    def __init__(self, slab, n_bytes, place, device):
        self.slab, self.n_bytes, self.place, self.device = slab, n_bytes, place, device

    def back(self):
        """A new storage with what it holds."""
        storage = torch.UntypedStorage(self.n_bytes, device=self.device)
        self.slab.into(self, storage)
        return storage

    def into(self, storage):
        self.slab.into(self, storage)

    def __del__(self):
        self.slab._free.setdefault(self.n_bytes, []).append(self.place)
