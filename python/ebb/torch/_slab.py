# SPDX-License-Identifier: Apache-2.0
"""Where bytes go that leave: a file without a name in a folder, or other memory of the host (pinned beside a card).

A slot is given to one storage at a time, and its place is used again after, for as many bytes or fewer. Copies run
beside computing (_copies.py): one begins with `send` or `fetch`, and whoever uses its bytes waits for it. Their rates are
measured while a step is recorded, when nothing runs beside them: the rate of a way is the one that half of the bytes reached.
An average would be that of the copies that had to wait, for another program or for memory that was used for the first time.
"""
import bisect
import contextlib
import copy
import ctypes
import mmap
import os
import tempfile
import time

import torch

from ._copies import Stream, Thread
from ._tensors import bytes_view, over, quietly

_CHUNK_BYTES = 1 << 30  # one call to the system moves at most 2 GiB


class _File:
    """A file without a name. A process that was forked has the same file: it may read what lies there, as long as the process
    that made the file does not write any more, and makes a file of its own to write."""

    def __init__(self, folder):
        self._folder, self._process = folder, os.getpid()
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)
        except OSError as error:
            raise self._refused(error) from None
        self._writes, self._n_writes = mmap.mmap(-1, 8), 0  # how often it was written: known to all processes, to this one

    def _refused(self, error):
        return OSError(error.errno, f"{error.strerror}: ebb moves tensors to a file in {os.fspath(self._folder)!r}; choose another one "
                       "with spill=\"/a/folder\"")

    def __del__(self):
        if hasattr(self, "_file"):
            self._file.close()

    def is_own(self):
        return self._process == os.getpid()

    def write(self, left, offset):
        self._n_writes += 1
        self._writes[:] = self._n_writes.to_bytes(8, "little")
        while left:
            try:
                n = os.pwrite(self._file.fileno(), left[:_CHUNK_BYTES], offset)
            except OSError as error:
                raise self._refused(error) from None
            left, offset = left[n:], offset + n

    def read(self, left, offset):
        while left:
            n = os.preadv(self._file.fileno(), [left[:_CHUNK_BYTES]], offset)
            if n == 0:
                raise OSError("ebb: the file of what was moved out is shorter than it was")
            left, offset = left[n:], offset + n
        if not self.is_own() and int.from_bytes(self._writes[:], "little") != self._n_writes:
            raise RuntimeError("ebb: a tensor was away when this process was forked, and the process that it was forked from has "
                               "trained on since; use the tensor once before the fork, so that it is there")


class Slab:
    """folder: of the file; None: memory. is_measuring: whether rates are measured. leaving: {key of a storage that is
    copied out: slot}."""

    def __init__(self, folder):
        self._folder, self._file = folder, _File(folder) if folder is not None else None
        self._free, self._sizes, self._end = {}, [], 0  # {bytes: places}, its keys in order, the end of the file
        self.returned = []  # places (file, bytes, place) that are free again; a slot may go at any moment
        self._ways = {}  # {(is out, device or None): what makes its copies}
        self.is_measuring, self.leaving, self._under_way = True, {}, {}
        self._rates = {True: [], False: []}  # (bytes per second, bytes) of copies out and in

    out_rate = property(lambda self: _median(self._rates[True]))
    in_rate = property(lambda self: _median(self._rates[False]))

    def forget_rates(self):
        """Those of a step in which every slot was new."""
        for rates in self._rates.values():
            rates.clear()

    # ---- copies

    def send(self, storage, slot=None):
        """Begin to copy a storage out, over what a slot holds if one is given; gives the slot that will hold it. Until
        that slot was waited for, the storage is not to be written."""
        if self._file is not None and not self._file.is_own():
            self._file, self._end = _File(self._folder), 0
            self._free.clear()
            self._sizes.clear()
        if slot is None or slot.file is not self._file:
            n_bytes = storage.nbytes()
            slot = _Slot(self, self._file, n_bytes, *self._place(storage, n_bytes), storage.device)
        self._begin(slot, storage, True)
        return slot

    def out(self, storage, slot=None):
        """The same, and wait until it is done."""
        slot = self.send(storage, slot)
        slot.finish()
        return slot

    def fetch(self, slot, storage):
        """Begin to read what a slot holds into a storage of as many bytes; the slot is to be waited for."""
        self._begin(slot, storage, False)

    def settle(self):
        """Wait for all copies."""
        while self._under_way:
            next(iter(self._under_way)).wait()

    def settle_storage(self, storage):
        """A storage may be written afterwards."""
        slot = self.leaving.get(storage._cdata) if storage is not None else None
        if slot is not None:
            slot.wait()

    def keeps_nothing(self):
        """Whether every storage may be written; where only a card has to wait for that, it does."""
        for slot in tuple(self.leaving.values()) if self._file is None else ():
            if slot.device.type == "cuda":
                slot.wait()
        return not self.leaving

    def abandon(self):
        """Wait for all copies, whatever becomes of them."""
        while self._under_way:
            try:
                self.settle()
            except Exception:  # whoever needs these bytes is told when it asks for them
                pass

    def _begin(self, slot, storage, is_out):
        try:
            slot.wait()  # for the one before
        except Exception:
            if slot.is_out and not is_out:  # it does not hold the bytes
                raise
        slot.storage, slot.is_out, slot.error = storage, is_out, None
        on_card = self._file is None and storage.device.type == "cuda"
        key = is_out, storage.device if on_card else None
        way = self._ways.get(key)
        if way is None:
            way = self._ways[key] = Stream(storage.device) if on_card else Thread()
        event = torch.cuda.current_stream(storage.device).record_event() \
            if storage.device.type == "cuda" and not on_card else None
        slot.copy = way.begin(lambda: self._copy(slot, event), slot.n_bytes)
        self._under_way[slot] = None
        if is_out:
            self.leaving[storage._cdata] = slot
        if on_card and self.is_measuring:
            begin_ns = time.perf_counter_ns()
            slot.finish()
            self._rates[is_out].append(_rate(slot.n_bytes, begin_ns))

    def end(self, slot):
        """Of a copy that was waited for."""
        self._under_way.pop(slot, None)
        if slot.is_out and self.leaving.get(slot.storage._cdata) is slot:
            del self.leaving[slot.storage._cdata]

    def _copy(self, slot, event):
        """event: of what computes, if another thread copies from or to a card."""
        begin_ns, storage, is_out = time.perf_counter_ns(), slot.storage, slot.is_out
        if self._file is None:
            to, source = (slot.place, storage) if is_out else (storage, slot.place)
            if storage.device.type == "cuda":
                _copy_on_card(to, source, slot.n_bytes)
                return
            ctypes.memmove(to.data_ptr(), source.data_ptr(), slot.n_bytes)
        elif is_out:
            slot.file.write(bytes_view(_on_host(storage, event)), slot.place)
        else:
            self._read(slot, storage, event)
        if self.is_measuring:
            self._rates[is_out].append(_rate(slot.n_bytes, begin_ns))

    # ---- places

    def _place(self, storage, n_bytes):
        """(bytes, place): a free one of as many bytes or up to twice as many, or a new one."""
        while self.returned:
            file, size, place = self.returned.pop()
            if file is not self._file:
                continue
            if size not in self._free:
                bisect.insort(self._sizes, size)
            self._free.setdefault(size, []).append(place)
        at = bisect.bisect_left(self._sizes, n_bytes)
        if at == len(self._sizes) or self._sizes[at] > 2 * n_bytes:
            return n_bytes, self._new_place(storage, n_bytes)
        size = self._sizes[at]
        place = self._free[size].pop()
        if not self._free[size]:
            del self._free[size], self._sizes[at]
        return size, place

    def _new_place(self, storage, n_bytes):
        if self._file is None:
            return torch.UntypedStorage(n_bytes) if storage.device.type == "cpu" else \
                torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True).untyped_storage()
        self._end += n_bytes
        return self._end - n_bytes

    def _read(self, slot, storage, event):
        host = storage if storage.device.type == "cpu" else torch.UntypedStorage(slot.n_bytes)
        slot.file.read(bytes_view(host), slot.place)
        if host is not storage:
            with _behind(event, storage.device):
                storage.copy_(host)


def _on_host(storage, event):
    if storage.device.type == "cpu":
        return storage
    with _behind(event, storage.device):
        return storage.cpu()


@contextlib.contextmanager
def _behind(event, device):
    """On another stream of a card, after what it computes."""
    with torch.cuda.stream(torch.cuda.Stream(device)):
        torch.cuda.current_stream().wait_event(event)
        yield


def _copy_on_card(to, source, n_bytes):
    if to.nbytes() == source.nbytes():
        to.copy_(source, non_blocking=True)
        return
    with quietly():
        parts = [over(storage, (torch.uint8, 0, (n_bytes,), (1,))) for storage in (to, source)]
        parts[0].copy_(parts[1], non_blocking=True)


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
    """Its place is free again when it is gone. copy: the one that is under way, or None; out of or into `storage`. error:
    why the last one failed, which is raised for whoever waits for its bytes."""
    __slots__ = ("slab", "file", "n_bytes", "place_bytes", "place", "device", "copy", "storage", "is_out", "error")

    def __init__(self, slab, file, n_bytes, place_bytes, place, device):
        self.slab, self.file, self.n_bytes, self.device = slab, file, n_bytes, device
        self.place_bytes, self.place = place_bytes, place
        self.copy = self.storage = self.is_out = self.error = None

    def wait(self):
        """What computes from now on comes after the copy that is under way."""
        self._end(lambda under_way: under_way.wait())

    def finish(self):
        """The same, and so does the host."""
        self._end(lambda under_way: under_way.finish())

    def arrive(self):
        """Wait if the copy is one that comes back."""
        if not self.is_out:
            self.wait()

    def _end(self, wait):
        """An interrupt passes: then the copy goes on, and is still to be waited for."""
        if self.copy is not None:
            try:
                wait(self.copy)
            except Exception as error:
                self.error = copy.copy(error)  # without its traceback, which would keep all that the step has
            self.copy = None
            self.slab.end(self)
            self.storage = None
        if self.error is not None:
            raise copy.copy(self.error)

    def come(self):
        """A new storage, into which what it holds begins to be read."""
        storage = torch.UntypedStorage(self.n_bytes, device=self.device)
        self.slab.fetch(self, storage)
        return storage

    def back(self):
        """A new storage with what it holds."""
        storage = self.come()
        self.wait()
        return storage

    def __del__(self):
        self.slab.returned.append((self.file, self.place_bytes, self.place))
