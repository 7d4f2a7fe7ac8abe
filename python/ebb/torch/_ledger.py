# SPDX-License-Identifier: Apache-2.0
"""The storages that live, as the blocks of a trace.

How a free is seen: of each storage the ledger has the weak reference that PyTorch's own multiprocessing uses, which
says whether the storage is gone and does not keep it; nor is another one made at the address that is its key. Asking
that of every storage at each operator would be slow. So while a tensor lives that was seen with a storage, the storage is
taken to live; from then on, until it is seen with another one, it is a suspect, and suspects are asked before each
operator. All are asked every few operators, for a tensor may have been given another storage.

A process that is killed leaves what was written. So the ledger writes when a second has gone since it last did, and
when so much more lives than ever before that memory may be what it is killed for.
"""
import threading
import time
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .. import trace

_ASK_ALL_EVERY = 64
_WRITE_EVERY_NS = 10**9
_WRITE_GROWTH_BYTES, _WRITE_GROWTH_PART = 1 << 20, 64  # of the peak: by so many bytes, and by this part of it
_storage_of = getattr(torch.Tensor, "untyped_storage", None) or torch.Tensor._storage  # of 2.0, of 1.13
_expired, _forget = torch.UntypedStorage._expired, torch.UntypedStorage._free_weak_ref


class Block:
    __slots__ = ("number", "size_bytes", "role", "name", "tensor")


class Ledger:
    def __init__(self, path, stacks):
        self.live_bytes = self.peak_bytes = 0
        self.is_fake = isinstance(torch.empty(0), FakeTensor)
        tells = trace.TELLS_ACCESSES | trace.TELLS_ROLES | trace.TELLS_STEPS | trace.TELLS_BEFORE
        tells |= 0 if self.is_fake else trace.TELLS_TIMES | trace.TELLS_ADDRESSES
        self.writer = trace.Writer(path, tells | (trace.TELLS_STACKS if stacks else 0), time.time_ns())
        for note in ("source", "ebb.torch"), ("torch", torch.__version__), ("fake", "yes" if self.is_fake else "no"):
            self.writer.note(*note)
        self.are_before = True  # new blocks were there before the recording
        self._start_ns, self._ticks = 0, 0
        self._blocks, self._suspects, self._countdown = {}, set(), _ASK_ALL_EVERY
        self._spaces, self._rows, self._n_refused = {}, {}, {}
        self._write_at_ns, self._write_at_bytes = 0, 0

    def begin(self):
        """What comes now is recorded; it is time 0."""
        self.are_before, self._start_ns = False, time.perf_counter_ns()
        self._write()

    def _write(self):
        """All that has been told is in the file."""
        self.writer.flush()
        self._write_at_ns = time.monotonic_ns() + _WRITE_EVERY_NS
        self._write_at_bytes = self.peak_bytes + max(_WRITE_GROWTH_BYTES, self.peak_bytes // _WRITE_GROWTH_PART)

    def now(self):
        """In ns; under fake tensors, where times mean nothing, a count."""
        if self.are_before:
            return 0
        self._ticks += 1
        return self._ticks if self.is_fake else time.perf_counter_ns() - self._start_ns

    def set_row(self):
        """What comes now is on the row of the timeline that this thread has."""
        thread = threading.get_ident()
        row = self._rows.get(thread)
        if row is None:
            row = self._rows[thread] = min(len(self._rows), trace.MAX_ROWS - 1)
            self.writer.note(f"row.{row}", threading.current_thread().name)
        self.writer.row(row)

    def newest(self):
        """The number of the youngest block that lives; -1: none does."""
        return next((block.number for block in reversed(self._blocks.values())), -1)

    def _storage(self, tensor):
        """(storage, its key, its bytes, its address); None for what has none: sparse tensors, other libraries', meta,
        tensors made of tensors, real ones beside fake ones."""
        if isinstance(tensor, FakeTensor) != self.is_fake or tensor.device.type == "meta":
            return None
        try:
            storage = _storage_of(tensor)
            size_bytes, address = int(storage.nbytes()), None if self.is_fake else storage.data_ptr()
            return None if address == 0 and size_bytes else (storage, storage._cdata, size_bytes, address)
        except (NotImplementedError, RuntimeError, ValueError):
            return None

    def is_new(self, tensor):
        found = self._storage(tensor)
        return found is not None and found[2] > 0 and found[1] not in self._blocks

    def block(self, tensor, time_ns, role=None, name="", stack=0):
        """The block of a tensor's storage, allocated now if it was not known; None of what has no bytes. Without a
        role it is a parameter or an input: it was not seen made."""
        found = self._storage(tensor)
        if found is None:
            return None
        storage, key, size_bytes, address = found
        block = self._blocks.get(key)
        if block is not None and block.size_bytes == size_bytes:
            if key in self._suspects:
                self._anchor(block, key, tensor)
            return block
        if block is not None:
            role, name = (block.role, block.name) if role is None else (role, name)
            self._free(key, time_ns)  # resized
        if size_bytes == 0:
            return None
        if role is None:
            role = trace.PARAMETER if isinstance(tensor, torch.nn.Parameter) else trace.INPUT
        block = self._blocks[storage._weak_ref()] = Block()
        block.size_bytes, block.role, block.name = size_bytes, role, name
        self._anchor(block, key, tensor)
        space, name = self._space(tensor.device), self.writer.string(name)
        self.writer.stack(stack)
        block.number = self.writer.alloc(time_ns, size_bytes, role, name, address, space, self.are_before)
        self.live_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        if self.live_bytes >= self._write_at_bytes and not self.are_before:
            self._write()
        return block

    def _anchor(self, block, key, tensor):
        """While this tensor lives, so does the block."""
        self._suspects.discard(key)
        suspect = self._suspects.add
        block.tensor = weakref.ref(tensor, lambda _: suspect(key))

    def _space(self, device):
        space = self._spaces.get(device)
        if space is None:
            space = self._spaces[device] = len(self._spaces)
            self.writer.note(f"space.{space}", str(device))
        return space

    def refuse(self, device, size_bytes, room, name, stack):
        """The device did not have this many bytes left; `name` asked for them. room: (free bytes, capacity) or None."""
        space = self._space(device)
        self._n_refused[space] = self._n_refused.get(space, 0) + 1
        self.writer.note(f"oom.{space}", str(self._n_refused[space]))
        left = f", {room[0]} left of {room[1]}" if room else ""
        text = self.writer.string(f"out of memory: {name} asked for {size_bytes} bytes of {device}{left}")
        self.writer.stack(stack)
        self.writer.mark(self.now(), trace.ANNOTATION, text, size_bytes)

    def _free(self, key, time_ns):
        block = self._blocks.pop(key)
        block.tensor = None
        self.live_bytes -= block.size_bytes
        self.writer.free(time_ns, block.number)
        _forget(key)

    def ask(self, everyone=False):
        """Free what is gone; write what was told a while ago."""
        if time.monotonic_ns() >= self._write_at_ns:
            self._write()
        self._countdown -= 1
        if everyone or self._countdown == 0:
            self._countdown, asked = _ASK_ALL_EVERY, self._blocks
        else:
            asked = self._suspects
        time_ns = self.now()
        for key in tuple(asked.copy()):  # at once: a collection of garbage in between adds suspects
            if key not in self._blocks:
                self._suspects.discard(key)
            elif _expired(key):
                self._suspects.discard(key)
                self._free(key, time_ns)

    def label(self, tensor, role, name):
        """What a tensor is for, known only now."""
        time_ns = self.now()
        block = self.block(tensor, time_ns, role, name) if isinstance(tensor, torch.Tensor) else None
        if block is not None and (block.role, block.name) != (role, name):
            block.role, block.name = role, name
            self.writer.label(time_ns, block.number, role, self.writer.string(name))

    def close(self):
        for key in self._blocks:
            _forget(key)
        self._blocks.clear()
