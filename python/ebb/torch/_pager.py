# SPDX-License-Identifier: Apache-2.0
"""Storages that are away: their bytes lie in the slab, and PyTorch has a storage of 0 bytes until they come back.

The storage object stays the same one, so that each tensor, view and saved graph that has it finds its bytes again. A
copy in the slab counts as long as nothing has written the storage; then the storage leaves again without a copy.

PyTorch's kernels do not look whether a storage is there: many crash. So within a step `touch` comes before each operator
(the dispatch mode sees them all), and `Data` before what hands out memory beside the operators. Between steps _guard.py
looks after the tensors themselves.
"""
import os
from collections import OrderedDict

import torch
from torch.overrides import TorchFunctionMode

from ._tensors import alive, expired, forget, is_resident_only, parts_of, storage_of

MIN_BYTES = 4096  # a storage that is smaller never leaves


class _Page:
    """is_current: the slot holds the storage's bytes. is_pinned: it never leaves."""
    __slots__ = ("key", "n_bytes", "slot", "is_away", "is_current", "is_pinned")

    def __init__(self, key, n_bytes):
        self.key, self.n_bytes, self.slot = key, n_bytes, None
        self.is_away = self.is_current = self.is_pinned = False


class Pager:
    """count: what is told of each storage that leaves or comes back (`left`, `came`), or None. asked: a function that is told
    of each page that is away and used all the same, or None. away, coming: pages by key; of the latter the bytes are on
    their way."""

    def __init__(self, slab):
        self._slab, self._process = slab, os.getpid()
        self.pages, self.count, self.asked = {}, None, None
        self.away, self.coming = {}, {}

    # ---- pages

    def page(self, storage):
        """The page of a storage, made now if there is none."""
        page = self.pages.get(storage._cdata)
        if page is None:
            key = storage._weak_ref()
            page = self.pages[key] = _Page(key, storage.nbytes())
        elif not page.is_away and page.n_bytes != storage.nbytes():  # resized by the program
            page.n_bytes, page.slot, page.is_current = storage.nbytes(), None, False
        return page

    def knows(self, storage):
        return storage._cdata in self.pages

    def bytes_of(self, storage):
        """How many it has when it is there."""
        page = self.away.get(storage._cdata)
        return storage.nbytes() if page is None else page.n_bytes

    def bury(self):
        """Forget what is gone."""
        for key in [key for key in self.pages if expired(key)]:
            self.away.pop(key, None)
            self.coming.pop(key, None)
            del self.pages[key]
            forget(key)

    def distrust(self):
        """Whatever is there may be written from now on without being seen."""
        for page in self.pages.values():
            if not page.is_away:
                page.is_current = False

    # ---- moves

    def _leaver(self, page):
        """The storage that may leave, or None. Memory that others may know by its address stays."""
        storage = None if page.is_away or expired(page.key) else alive(page.key)
        if storage is None or self._process != os.getpid() or is_resident_only(storage) or \
                storage.nbytes() != page.n_bytes or page.is_pinned:
            return None
        return storage

    def send(self, page):
        """Begin to copy out what will leave."""
        storage = self._leaver(page)
        if storage is not None and not (page.is_current and page.slot.error is None):
            page.slot, page.is_current = self._slab.send(storage, page.slot), True

    def out(self, page):
        """Let a storage leave; gives whether it is away."""
        storage = self._leaver(page)
        if storage is None:
            return page.is_away
        self.coming.pop(page.key, None)
        try:
            self.send(page)
            page.slot.wait()
        except BaseException:
            page.is_current = False
            raise
        page.is_away = True
        storage.resize_(0)
        self.away[page.key] = page
        if self.count is not None:
            self.count.left(page.key)
        return True

    def come(self, page):
        """The bytes begin to come."""
        storage = alive(page.key) if page.is_away else None
        if storage is None:
            return
        storage.resize_(page.n_bytes)
        try:
            self._slab.fetch(page.slot, storage)
        except Exception:
            storage.resize_(0)
            raise
        page.is_away = False
        del self.away[page.key]
        self.coming[page.key] = page
        if self.count is not None:
            self.count.came(storage)

    def arrive(self, page):
        """The bytes that began to come are there."""
        del self.coming[page.key]
        try:
            page.slot.arrive()
        except Exception:
            storage = None if expired(page.key) else alive(page.key)
            if storage is not None:
                storage.resize_(0)
                page.is_away, self.away[page.key] = True, page
                if self.count is not None:
                    self.count.left(page.key)
            raise
        except BaseException:  # an interrupt: they are still on their way
            self.coming[page.key] = page
            raise

    def back(self, page):
        """The bytes are there again."""
        self.come(page)
        if page.key in self.coming:
            self.arrive(page)

    def touch(self, tensors):
        """Bring back what is about to be used."""
        for tensor in tensors if self.away or self.coming else ():
            storage = storage_of(tensor)
            if storage is not None:
                self.touch_storage(storage)

    def use(self, taken):
        """What an operator takes, (tensor, is read, is written) of each, is there, and what it writes is not the slab's copy
        any more. The same as `touch`, `pin` and `wrote`, with one look at each tensor, as this comes before every operator."""
        for tensor, _, is_written in taken:
            if tensor.layout is not torch.strided:
                self.pin([tensor])
            storage = storage_of(tensor)
            key = None if storage is None else storage._cdata
            if key in self.away or key in self.coming:
                self.touch_storage(storage)
            if is_written and key in self.pages:
                self.pages[key].is_current = False

    def touch_storage(self, storage):
        page = self.away.get(storage._cdata)
        if page is not None and self.asked is not None:
            self.asked(page)
        page = page or self.coming.get(storage._cdata)
        if page is not None:
            self.back(page)

    def wrote(self, tensor):
        storage = storage_of(tensor)
        page = None if storage is None else self.pages.get(storage._cdata)
        if page is not None:
            page.is_current = False

    def pin(self, tensors):
        """What sparse tensors are made of stays, as it is not seen when they are used."""
        self._keep(storage for tensor in tensors if tensor.layout != torch.strided for storage in parts_of(tensor))

    def hold(self, tensors):
        """Tensors that a collective may still use stay."""
        self._keep(storage for storage in map(storage_of, tensors) if storage is not None)

    def _keep(self, storages):
        for storage in storages:
            self.touch_storage(storage)
            self.page(storage).is_pinned = True

    def is_pinned(self, key):
        return key in self.pages and self.pages[key].is_pinned

    def all_back(self):
        for page in (*self.away.values(), *self.coming.values()):
            self.back(page)

    def settle(self):
        """What began to come is there, but for what cannot be read; then the first error is raised."""
        first = None
        while self.coming:
            try:
                self.arrive(next(iter(self.coming.values())))
            except BaseException as error:
                first = first or error
        if first is not None:
            raise first


class Recent:
    """Keeps the storages that were used last, as far as there is room; for steps that no plan is followed in."""

    def __init__(self, pager):
        self._pager, self._used = pager, OrderedDict()  # {key: page}, the one used last is the last

    def use(self, storage):
        page = self._pager.page(storage)
        self._used[page.key] = page
        self._used.move_to_end(page.key)

    def use_all(self):
        """What is there counts as used."""
        self._used.update((key, page) for key, page in self._pager.pages.items() if not page.is_away)

    def make_room(self, excess_bytes, needed):
        """Let go of about this many bytes, except of what is needed (keys)."""
        for key, page in tuple(self._used.items()) if excess_bytes > 0 else ():
            if key in needed:
                continue
            del self._used[key]
            if not page.is_away and not expired(key) and self._pager.out(page):
                excess_bytes -= page.n_bytes
                if excess_bytes <= 0:
                    return

    def bytes(self):
        return sum(page.n_bytes for key, page in self._used.items() if not page.is_away and not expired(key))


_DATA = {torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.data_ptr, torch.Tensor.untyped_storage,
         torch.Tensor.storage, torch.Tensor.tolist, torch.Tensor.__reduce_ex__, torch.Tensor.share_memory_,
         torch.Tensor.__dlpack__, torch.Tensor.resize_, torch.Tensor.set_, torch.Tensor.is_shared,
         torch.Tensor.__deepcopy__}


_HANDS_OUT = {torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.data_ptr, torch.Tensor.untyped_storage,
              torch.Tensor.storage, torch.Tensor.__dlpack__, torch.Tensor.set_}  # of these: what may write it unseen
_ASSIGN = torch.Tensor.data.__set__


class Data(TorchFunctionMode):
    """Within a step: what uses a tensor's memory beside the operators finds it there. mode: what is told of it."""

    def __init__(self, mode):
        super().__init__()
        self._mode = mode

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in _DATA and args and isinstance(args[0], torch.Tensor):
            self._mode.touch(args[0], func in _HANDS_OUT)
        elif func == _ASSIGN:
            self._mode.assigned(*args)
        return func(*args, **kwargs or {})
