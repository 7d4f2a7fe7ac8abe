# SPDX-License-Identifier: Apache-2.0
"""One training step as it is seen below autograd: operators, what autograd saves and gets back, and how long each
storage lives by itself.

While a step is recorded, all that autograd saves of the step's own results is moved out at once. So a storage is gone as
soon as the program's own variables and autograd's running nodes let go of it, which is the life that a plan cannot
shorten; and the recorded step needs little memory. Each operator of the forward pass is run twice and its results
compared: one that gives other bits is never computed again.
"""
import gc
import itertools
import time
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor

from . import _tensors
from ._operators import Operator, tensors_in
from ._tensors import alive, expired, forget, geometry, in_backward, is_plain, over, quietly, same_bits

OP, PACK, UNPACK = range(3)
_AGAIN_NS = 30000  # of an operator that Python calls
CHANGED = "ebb: a tensor that autograd saved was changed in place before it was used"


class Entry:
    """What happened at one moment. versions: {storage: version} of what an operator reads; `updates` it writes in
    place; `births`: (number of the result, storage). `is_exact`: it may be computed again. `gone`: of what autograd saves,
    the entry by which it has let go of it; None: it has not."""
    __slots__ = ("kind", "func", "shapes", "is_backward", "versions", "updates", "births", "ns", "is_exact", "storage",
                 "version", "shape", "pack", "is_random", "is_view", "gone")

    def __init__(self, kind, is_backward):
        self.kind, self.is_backward = kind, is_backward
        self.func = self.shapes = self.storage = self.version = self.shape = self.pack = None
        self.versions, self.updates, self.births, self.ns, self.gone = {}, [], [], 0, None
        self.is_exact = self.is_random = self.is_view = False


class Storage:
    """lives: [first entry, entry by which it is gone or None, whether it came back for autograd]. maker: the entry of
    the operator that made it; None: it was there before, or nobody saw it made."""
    __slots__ = ("n_bytes", "maker", "lives")

    def __init__(self, n_bytes, maker):
        self.n_bytes, self.maker, self.lives = n_bytes, maker, []


class Recording:
    """entries, storages, the number of the last entry that gives autograd something back (-1: none does). again_ns: what
    an operator takes beside its own time when it is computed again."""

    def __init__(self, entries, storages, again_ns=_AGAIN_NS):
        self.entries, self.storages, self.again_ns = entries, storages, again_ns
        self.last_unpack = max((i for i, entry in enumerate(entries) if entry.kind == UNPACK), default=-1)
        self.moments = [i for i, entry in enumerate(entries)
                        if i <= self.last_unpack and (entry.kind != OP or not (entry.is_backward or entry.is_view))]
        first = entries[self.moments[0]] if self.moments else None
        self._first = first and (first.kind, first.func, first.shapes if first.kind == OP else first.shape)
        self.saved_shapes = [torch.Size(entry.shape) for entry in entries if entry.kind == PACK]

    def begins_with(self, kind, func, shapes):
        return self._first == (kind, func, shapes)


def shapes_of(args):
    """What a call of an operator is known by: the shapes of its tensors, and the sizes that it is given."""
    found = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            found.append(arg.shape)
        elif isinstance(arg, (list, tuple)) and arg and isinstance(arg[0], int):
            found.append(tuple(arg))
    return found


def tensors_alive():
    """All tensors that Python has, and their gradients; not fake ones, which are beside any real step."""
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor) and not issubclass(type(thing), FakeTensor):
            yield thing
            if thing.is_leaf and thing.requires_grad and thing.grad is not None:
                yield thing.grad


def map_tensors(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(item, change) for item in value)
    return value


# ---- operators that can be computed again --------------------------------------------------------

def _without_statistics(args):
    """Batch-norm in training: its result does not depend on the running statistics, which must move only once."""
    return (*args[:3], None, None, *args[5:])


_BATCH_NORMS = ("aten.native_batch_norm", "aten.cudnn_batch_norm", "aten.miopen_batch_norm")
_UNSURE = ("aten.rrelu_with_noise", "aten.set_", "aten.resize_", "aten.as_strided_", "aten._local_scalar_dense")
_UNWRITTEN = ("aten.empty", "aten.new_empty")  # their contents mean nothing


class Repeat:
    """How an operator is computed again: which of its arguments it writes, whether it draws random numbers."""

    def __init__(self, func):
        self.operator = Operator(func)
        self.name = self.operator.name
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags
        self.is_view = not func._schema.is_mutable and any(result.alias_info is not None for result in func._schema.returns)
        self.is_unwritten = self.name.startswith(_UNWRITTEN)
        self.written = [i for i, argument in enumerate(func._schema.arguments)
                        if argument.alias_info is not None and argument.alias_info.is_write]
        self.is_sure = func.namespace == "aten" and not self.name.startswith(_UNSURE) and \
            all(not func._schema.arguments[i].kwarg_only for i in self.written)

    def arguments(self, args, kwargs):
        """Those with which it is computed again, or None: it cannot be."""
        if not self.is_sure or kwargs.get("generator") is not None or kwargs.get("out") is not None:
            return None
        if self.name in _BATCH_NORMS:
            return _without_statistics(args) if len(args) > 5 and args[5] else args
        return args


_repeats = {}


def repeat_of(func):
    return _repeats.get(func) or _repeats.setdefault(func, Repeat(func))


def random_state(device):
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(device, state):
    torch.cuda.set_rng_state(state, device) if device.type == "cuda" else torch.set_rng_state(state)


# ---- the recorder --------------------------------------------------------------------------------

class _Saved:
    """What autograd holds in place of a tensor."""
    __slots__ = ("storage", "version", "place", "pack", "slot", "__weakref__")


class Recorder:
    """slab: where saved tensors go. is_checked: operators are run twice."""

    def __init__(self, slab, is_checked):
        self._slab, self._is_checked = slab, is_checked
        self._entries, self._storages = [], []
        self._numbers, self._lives, self._version = {}, {}, {}  # of live storages by key: number, life; {number: version}
        self._slots, self._returned, self._saved = {}, {}, {}
        self._leaves, self._is_over = [], False

    def begin(self):
        gc.collect()
        for tensor in tensors_alive():
            number = self._number(tensor)
            if tensor.is_leaf and tensor.requires_grad:
                self._leaves.append((weakref.ref(tensor), number))

    def leaves(self):
        """Those that are alive and took part in the step. Other networks' may come and go."""
        seen = {number for entry in self._entries for number in entry.versions}
        return [tensor for tensor, number in ((ref(), number) for ref, number in self._leaves)
                if tensor is not None and (number is None or number in seen)]

    def finish(self):
        self._bury()
        for key in self._numbers:
            forget(key)
        self._numbers.clear()
        self._slots.clear()
        self._is_over = True
        return Recording(self._entries, self._storages)

    def _number(self, tensor, maker=None):
        """The number of a tensor's storage; None: it has none that is known how to handle."""
        if not self._is_plain(tensor):
            return None
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None and storage.nbytes() > 0:
            number = len(self._storages)
            self._storages.append(Storage(storage.nbytes(), maker))
            self._version[number] = 0
            self._live(storage, number, len(self._entries) if maker is not None else -1, False)
        return number

    def _live(self, storage, number, begin, is_back):
        key = storage._weak_ref()
        self._numbers[key] = number
        self._lives[key] = life = [begin, None, is_back]
        self._storages[number].lives.append(life)

    def _bury(self):
        """Note which storages are gone by the entry that comes."""
        now = len(self._entries)
        keys = tuple(self._numbers)
        for key in itertools.compress(keys, map(expired, keys)):
            del self._numbers[key]
            self._lives.pop(key)[1] = now
            forget(key)
        for saved in [saved for saved in self._saved if saved() is None]:
            self._entries[self._saved.pop(saved)].gone = now

    def dispatch(self, func, types, args, kwargs):
        repeat = repeat_of(func)
        if repeat.operator.is_primitive or repeat.operator.is_profiler:
            return func(*args, **kwargs)
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented
        self._bury()
        entry = Entry(OP, in_backward() != -1)
        entry.func, entry.shapes, entry.is_random, entry.is_view = func, shapes_of(args), repeat.is_random, repeat.is_view
        taken = list(repeat.operator.tensors(args, kwargs))
        for tensor, _, is_written in taken:
            number = self._number(tensor)
            if number is not None:
                entry.versions[number] = self._version[number]
                if is_written and number not in entry.updates:
                    entry.updates.append(number)
        again = self._before(entry, repeat, args, kwargs, [tensor for tensor, _, _ in taken])
        result, entry.ns = self._run(func, args, kwargs)
        for i, tensor in enumerate(tensors_in(result)):
            key = tensor.untyped_storage()._cdata if self._is_plain(tensor) else None
            if key is not None and key not in self._numbers:
                number = self._number(tensor, len(self._entries))
                if number is not None:
                    entry.births.append((i, number))
        for number in entry.updates:
            self._version[number] += 1
        if again is not None and (entry.births or entry.updates):
            entry.is_exact = repeat.is_unwritten or not self._is_checked or self._compare(again, result)
        self._entries.append(entry)
        return result

    _is_plain = staticmethod(is_plain)

    @staticmethod
    def _run(func, args, kwargs):
        """What an operator gives, and how long it took."""
        begin_ns = time.perf_counter_ns()
        result = func(*args, **kwargs)
        return result, time.perf_counter_ns() - begin_ns

    def _before(self, entry, repeat, args, kwargs, tensors):
        """What is needed to run the operator once more; None: it cannot be, or need not."""
        if entry.is_backward or not all(self._is_plain(tensor) for tensor in tensors):
            return None
        if any(self._storages[number].maker is None for number in entry.updates) and repeat.name not in _BATCH_NORMS:
            return None
        args = repeat.arguments(args, kwargs)
        if args is None or not self._is_checked or repeat.is_unwritten:
            return None if args is None else ()
        copies = {tensor.untyped_storage()._cdata: tensor.untyped_storage().clone()
                  for i in repeat.written if i < len(args) for tensor in tensors_in(args[i])}

        def replace(tensor):
            copy = copies.get(tensor.untyped_storage()._cdata)
            return tensor if copy is None else over(copy, geometry(tensor))
        device = tensors[0].device if tensors else torch.device("cpu")
        state = random_state(device) if repeat.is_random else None
        return entry.func, tuple(map_tensors(arg, replace) for arg in args), kwargs, device, state

    def _compare(self, again, result):
        func, args, kwargs, device, state = again
        with _tensors.quietly():
            if state is not None:
                after = random_state(device)
                set_random_state(device, state)
            try:
                second = func(*args, **kwargs)
            except RuntimeError:
                return False
            finally:
                if state is not None:
                    set_random_state(device, after)
            pair = tensors_in(result), tensors_in(second)
            return len(pair[0]) == len(pair[1]) and all(is_plain(a) and same_bits(a, b) for a, b in zip(*pair))

    # ---- what autograd saves

    def pack(self, tensor):
        self._bury()
        number = self._number(tensor)
        entry = Entry(PACK, in_backward() != -1)
        entry.shape = tuple(tensor.shape)
        if number is None or self._storages[number].maker is None:
            self._entries.append(entry)
            return tensor
        saved = _Saved()
        saved.storage = entry.storage = number
        saved.version = entry.version = self._version[number]
        saved.place, saved.pack = geometry(tensor), len(self._entries)
        slot = self._slots.get((number, saved.version))
        if slot is None:
            with quietly():
                slot = self._slots[number, saved.version] = self._slab.out(tensor.untyped_storage())
        saved.slot = slot
        self._saved[weakref.ref(saved)] = len(self._entries)
        self._returned[number] = tensor.untyped_storage()._cdata, saved.version
        self._entries.append(entry)
        return saved

    def unpack(self, saved):
        if self._is_over:  # a graph that outlived its step
            return self._late(saved)
        self._bury()
        entry = Entry(UNPACK, in_backward() != -1)
        if isinstance(saved, torch.Tensor):
            entry.shape = tuple(saved.shape)
            self._entries.append(entry)
            return saved
        entry.storage, entry.version, entry.pack = saved.storage, saved.version, saved.pack
        entry.shape = tuple(saved.place[2])
        if self._version[saved.storage] != saved.version:
            raise RuntimeError(CHANGED)
        with quietly():
            storage = self._still_there(saved)
            if storage is None:
                storage = saved.slot.back()
                self._live(storage, saved.storage, len(self._entries), True)
                self._returned[saved.storage] = storage._cdata, saved.version
            self._entries.append(entry)
            return self._over(storage, saved)

    @staticmethod
    def _over(storage, saved):
        return over(storage, saved.place)

    @staticmethod
    def _late(saved):
        if isinstance(saved, torch.Tensor):
            return saved
        with quietly():
            return over(saved.slot.back(), saved.place)

    def _still_there(self, saved):
        key, version = self._returned.get(saved.storage, (None, None))
        return alive(key) if self._numbers.get(key) == saved.storage and version == saved.version else None
