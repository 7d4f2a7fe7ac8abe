# SPDX-License-Identifier: Apache-2.0
"""One training step as it is seen below autograd: operators, what autograd saves and gets back, and how long each
storage lives by itself.

While a step is recorded, all that autograd saves of the step's own results is moved out at once. So a storage is gone as
soon as the program's own variables and autograd's running nodes let go of it, which is the life that a plan cannot
shorten; and the recorded step needs little memory. Each operator of the forward pass is run twice and its results
compared: one that gives other bits is never computed again.

If a step has to be recorded within a limit, all that was not used lately is moved out as well, whatever it is, so that
half of the limit is left for what an operator makes. Where there is no room to run an operator twice, it is run once.
"""
import collections
import gc
import itertools
import warnings
import weakref

import torch

from .. import planning
from . import _inside, _tensors
from ._estimated import estimated_ns
from ._operators import tensors_in
from ._pager import MIN_BYTES, Recent
from ._recording import OP, PACK, TOUCH, UNPACK, Entry, Recording, Storage
from ._repeat import device_of, flags, map_tensors, random_state, repeat_of, set_random_state, shapes_of
from ._tensors import CHANGED, alive, digest, expired, forget, geometry, in_backward, is_made_of_tensors, is_overwritten, is_plain, \
    is_resident_only, over, overlap, parts_of, quietly, same_bits, storage_of, tensors_alive, without_graph

class _Saved:
    """What autograd holds in place of a tensor. is_changed: its bytes were written since."""
    __slots__ = ("storage", "place", "pack", "slot", "is_changed", "__weakref__")


def note_written(saved, tensors):
    """What was saved of a storage (references) is changed if one of these tensors, which were written, lies over it.
    PyTorch's GRU saves one part of a storage and writes another one."""
    with quietly():
        places = [geometry(tensor) for tensor in tensors]
        for one in [one for one in (reference() for reference in saved) if one is not None]:
            one.is_changed = one.is_changed or any(overlap(one.place, place) for place in places)


class Recorder:
    """slab: where saved tensors go. is_checked: operators are run twice. pager: of what may be away, or None; with it a
    limit to keep, or None, and what is owned: {key of a storage: (storage, owner, tensors)}. gradient_bytes: a function that
    counts those of all gradients; `first_gradient_bytes`: when the recording began.
    is_wanted: given by whoever begins it; a step like it, or one that begins like it, was not like its plan."""

    is_lost, rests, is_wanted, measured, unseen = False, False, False, None, ()
    sees_backward = sees_optimizer = staticmethod(lambda: True)
    begin_backward = staticmethod(lambda: None)

    def __init__(self, slab, is_checked, pager=None, limit_bytes=None, gradient_bytes=lambda: None):
        self._numbers, self._lives, self._version = {}, {}, {}  # of live storages by key: number, life; {number: version}
        self._slab, self._is_checked, self._pager, self._limit = slab, is_checked, pager, limit_bytes
        self._nominal = planning.Machine()
        self._gradient_bytes, self._counted, self._n_optimizer_steps = gradient_bytes, set(), 0  # _counted: kinds of entries
        self.is_guarded = pager is not None
        self._recent = Recent(pager) if pager is not None and limit_bytes is not None else None
        self.live_bytes = 0
        self._entries, self._storages = [], []
        self._saved, self._saved_of = {}, collections.defaultdict(list)  # {reference: entry}, {number: references}
        self._slots, self._returned = {}, {}  # {number: (the newest slot, version)}, {number: key of what autograd got}
        self._leaves, self._is_over, self._is_updating = [], False, False
        self._opaque, self._flags, self._last_flags = set(), [], None  # numbers of what is written unseen; (entry, flags); at the end
        self._of_parameters = set()  # numbers: NumPy does not write them, wherever a file was mapped to

    def __del__(self):
        for key in self._numbers:  # of a step that raised
            forget(key)

    def begin(self, owned=None):
        gc.collect()
        self.first_gradient_bytes = self._gradient_bytes()
        if self._pager is not None:
            self._pager.count = self
        for tensor in tensors_alive():
            number = self._number(tensor)
            if tensor.is_leaf and tensor.requires_grad:
                self._leaves.append((weakref.ref(tensor), number))
            if isinstance(tensor, torch.nn.Parameter):
                self._of_parameters.add(number)
        self._note_owners(owned or {})

    def _note_owners(self, owned):
        for storage, owner, tensors in owned.values():
            number = self._number(tensors[0])
            if number is not None:
                self._storages[number].first_owner = owner
                self._note_use(storage)

    def leaves(self):
        """Those that are alive and took part in the step. Other networks' may come and go."""
        seen = {number for entry in self._entries for number in entry.versions}
        return [tensor for tensor, number in ((ref(), number) for ref, number in self._leaves)
                if tensor is not None and (number is None or number in seen)]

    def finish(self, owned=None):
        self._bury()
        for storage, owner, _ in (owned or {}).values():
            number = self._numbers.get(storage._cdata)
            if number is not None and not (storage.nbytes() and is_resident_only(storage)):
                self._storages[number].last_owner = owner
        for storage in self._storages:
            if storage.last_owner is None and storage.lives[-1][1] is None:
                storage.first_owner = None  # nobody's any more, or its memory cannot be given back
        for key, number in self._numbers.items():
            self._storages[number].is_hidden = self._pager is not None and self._pager.is_pinned(key)
            forget(key)
        self._numbers.clear()
        self._slots.clear()
        self._end_shared()
        self._forbid_repeats()
        self._is_over = True
        return Recording(self._entries, self._storages, n_optimizer_steps=self._n_optimizer_steps)

    def note_optimizer(self):
        """One steps."""
        self._n_optimizer_steps += 1

    def begin_optimizer(self, has_closure):
        """What it computes is never computed again; but a closure of its own may have a forward pass."""
        self._is_updating = not has_closure

    def end_optimizer(self):
        self._is_updating = False

    def touch(self, tensor, is_handed_out):
        """Its memory is used beside the operators, up to the next moment; or from now on, by whom it is handed out to."""
        self._bury()
        if is_handed_out:
            self._note_opaque(tensor)
        if self._pager is None:
            return
        if not self._entries or self._entries[-1].kind != TOUCH:
            self._entries.append(Entry(TOUCH, in_backward() != -1))
        number = self._number(tensor)
        if number is not None:
            self._entries[-1].versions[number] = self._version[number]
        self._pager.touch([tensor])

    def _share(self, tensors):
        """A collective may still write them when it has returned."""
        for number in map(self._number, tensors):
            if number is not None:
                self._storages[number].is_shared = True
        if self._pager is not None:
            self._pager.hold(tensors)

    def _note_opaque(self, tensor, is_written=False):
        """Its memory is written by what is no operator, or by an operator of a subclass; perhaps, unless it is_written. If the step
        made it, it stays. Nothing that reads it is computed again."""
        storage = storage_of(tensor)
        number = self._numbers.get(storage._cdata) if storage is not None else None
        is_made = number is not None and self._storages[number].maker is not None
        if is_made:
            self._storages[number].is_shared = True
        if is_made or number is not None and is_written:
            self._opaque.add(number)

    def assigned(self, tensor, other):
        """Its data are those of another one from now on, which autograd does not count as a write."""
        self._note_opaque(tensor, is_written=True)
        self._note_opaque(other, is_written=True)
        number = self._number(tensor)
        if any(reference() is not None for reference in self._saved_of.get(number, ())):
            warnings.warn("ebb: .data of a tensor that autograd saved was assigned in a step. Gradients are those of the data that it "
                          "had, as wherever hooks for saved tensors are used; without ebb they may be those of the new data", stacklevel=4)

    def _is_unwritten(self, number):
        """Whether no operator has written what one has made room for."""
        maker = self._storages[number].maker
        return maker is not None and self._version[number] == 0 and repeat_of(self._entries[maker].func).is_unwritten

    def _end_shared(self):
        """What is written unseen stays from its first moment to its last, also where autograd had saved it before."""
        for storage in self._storages:
            if storage.is_shared:
                storage.lives[:] = [[storage.lives[0][0], storage.lives[-1][1], False]]
        for entry in self._entries:
            if entry.storage is not None and self._storages[entry.storage].is_shared:
                entry.storage = None

    def _forbid_repeats(self):
        """What the backward pass writes (in a hook) may have been written when an operator that read it would run again; what is
        written unseen, at any time. With other flags it would be another algorithm."""
        written = {number for entry in self._entries if entry.is_backward for number in entry.updates} | self._opaque
        for entry in self._entries:
            entry.is_exact = entry.is_exact and written.isdisjoint(entry.versions)
        for entry, its_flags in self._flags if self._last_flags is not None else ():
            entry.is_exact = entry.is_exact and its_flags == self._last_flags

    def _note_gradients(self, entry):
        """They are counted at the first moment of each kind, for a program may let go of them between any two."""
        if entry.kind not in self._counted:
            entry.gradient_bytes = self._gradient_bytes()
            if not entry.is_view:
                self._counted.add(entry.kind)

    def _number(self, tensor, maker=None):
        """The number of a tensor's storage; None: it has none that is known how to handle."""
        if not self._is_plain(tensor):
            return None
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        n_bytes = storage.nbytes() if self._pager is None else self._pager.bytes_of(storage)
        if number is None and n_bytes > 0:
            number = len(self._storages)
            self._storages.append(Storage(n_bytes, maker))
            self._version[number] = 0
            self._live(storage, number, len(self._entries) if maker is not None else -1, False)
        return number

    def _note_sparse(self, tensors):
        """What sparse tensors are made of is there, and stays."""
        for storage in (storage for tensor in tensors for storage in parts_of(tensor)):
            if storage._cdata not in self._numbers and storage.nbytes() > 0:
                self._storages.append(Storage(storage.nbytes(), None))
                self._version[len(self._storages) - 1] = 0
                self._live(storage, len(self._storages) - 1, len(self._entries), False)
        if self._pager is not None:
            self._pager.pin(tensors)

    def _live(self, storage, number, begin, is_back):
        key = storage._weak_ref()
        self._numbers[key] = number
        self._lives[key] = life = [begin, None, is_back]
        self._storages[number].lives.append(life)
        self.live_bytes += storage.nbytes()

    def _bury(self):
        """Note which storages are gone by the entry that comes."""
        now = len(self._entries)
        keys = tuple(self._numbers)
        for key in itertools.compress(keys, map(expired, keys)):
            number = self._numbers.pop(key)
            if self._pager is not None:
                self._storages[number].is_hidden = self._pager.is_pinned(key)
            if self._pager is None or key not in self._pager.away:
                self.live_bytes -= self._storages[number].n_bytes
            self._lives.pop(key)[1] = now
            forget(key)
        for saved in [saved for saved in self._saved if saved() is None]:
            self._entries[self._saved.pop(saved)].gone = now

    def dispatch(self, func, types, args, kwargs):
        repeat = repeat_of(func)
        if repeat.is_bookkeeping:
            return func(*args, **kwargs)
        if is_made_of_tensors(types):
            return NotImplemented
        self._bury()
        entry = Entry(OP, in_backward() != -1)
        entry.func, entry.shapes, entry.is_view = func, shapes_of(args, kwargs), repeat.is_view
        self._note_gradients(entry)
        entry.random_bytes = random_state(device_of(args, kwargs)).nbytes if repeat.is_random else 0
        taken = list(repeat.operator.tensors(args, kwargs))
        for tensor, _, is_written in taken:
            number = self._number(tensor)
            if number is not None:
                entry.versions[number] = self._version[number]
                if is_written and number not in entry.updates:
                    entry.updates.append(number)
                elif not is_written and repeat.reads_bytes and self._is_unwritten(number):
                    self._note_opaque(tensor)
            elif is_written:
                self._note_opaque(tensor, is_written=True)
        self._make_ready([tensor for tensor, _, _ in taken])
        if repeat.operator.is_collective and self._pager is not None:
            self._pager.hold([tensor for tensor, _, _ in taken])
        again = self._before(entry, repeat, args, kwargs, [tensor for tensor, _, _ in taken])
        live_bytes = self.live_bytes
        result, entry.ns, most_bytes = self._run(func, args, kwargs)
        entry.estimated_ns = estimated_ns(self._nominal, func, args, kwargs, result)
        if self._pager is not None:
            for tensor in (tensor for tensor, _, is_written in taken if is_written):
                self._pager.wrote(tensor)
        self._note_sparse([tensor for tensor in tensors_in(result) if tensor.layout != torch.strided])
        for i, tensor in enumerate(tensors_in(result)):
            key = tensor.untyped_storage()._cdata if self._is_plain(tensor) else None
            if key is not None and key not in self._numbers:
                number = self._number(tensor, len(self._entries))
                if number is not None:
                    entry.births.append((i, number))
                    self._note_use(tensor.untyped_storage())
                elif not repeat.is_view:
                    entry.empties += i,
        if repeat.operator.is_collective:
            self._share([tensor for tensor, _, is_written in taken if is_written] + tensors_in(result))
        entry.inside_bytes = max(0, most_bytes - (self.live_bytes - live_bytes))
        entry.kept_bytes = self._kept_bytes(func, args)
        for number in entry.updates:
            self._version[number] += 1
            if number in self._saved_of:
                self._note_changes(number, [tensor for tensor, _, is_written in taken if is_written])
        if again is not None and (entry.births or entry.updates):
            entry.is_exact = repeat.is_unwritten or not self._is_checked or self._compare(again, result, entry)
        self._entries.append(entry)
        return result

    # ---- a step within a limit

    def left(self, key):
        if key in self._numbers:
            self.live_bytes -= self._storages[self._numbers[key]].n_bytes

    def came(self, storage):
        if storage._cdata in self._numbers:
            self.live_bytes += storage.nbytes()

    def _note_use(self, storage):
        if self._recent is not None and self._pager.bytes_of(storage) >= MIN_BYTES:
            self._recent.use(storage)

    def _make_ready(self, tensors):
        """What is about to be used is there. Other things leave for it, so that half of the limit is free."""
        if self._recent is not None:
            storages = [storage for storage in map(storage_of, tensors) if storage is not None]
            needed = {storage._cdata for storage in storages}
            to_come = sum(page.n_bytes for key, page in self._pager.away.items() if key in needed)
            self._recent.make_room(self.live_bytes + to_come - self._limit // 2, needed)
            self._pager.touch(tensors)
            for storage in storages:
                self._note_use(storage)
        elif self._pager is not None:
            self._pager.touch(tensors)
        if self._pager is not None:
            self._pager.pin(tensors)

    def _has_room(self, n_bytes):
        return self._limit is None or self.live_bytes + n_bytes <= self._limit

    # ---- operators

    _is_plain = staticmethod(is_plain)

    _run, _kept_bytes = staticmethod(_inside.run), staticmethod(_inside.kept_bytes)

    def _before(self, entry, repeat, args, kwargs, tensors):
        """What is needed to run the operator once more; None: it cannot be, or need not."""
        if entry.is_backward or self._is_updating or not all(self._is_plain(tensor) for tensor in tensors):
            return None
        if any(tensor.is_inference() or is_overwritten(tensor) and self._number(tensor) not in self._of_parameters for tensor in tensors):
            return None
        self._flags.append((entry, flags()))
        if any(self._storages[number].maker is None for number in entry.updates) and not repeat.is_batch_norm:
            return None
        args = repeat.arguments(args, kwargs)
        if args is None or not self._is_checked or repeat.is_unwritten:
            return None if args is None else ()
        if not self._has_room(sum(self._storages[number].n_bytes for number in entry.updates)):
            return None
        copies = {tensor.untyped_storage()._cdata: tensor.untyped_storage().clone()
                  for i in repeat.written if i < len(args) for tensor in tensors_in(args[i])}

        def replace(tensor):
            copy = copies.get(tensor.untyped_storage()._cdata)
            return tensor if copy is None else over(copy, geometry(tensor))
        device = device_of(args, kwargs)
        state = random_state(device) if repeat.is_random else None
        kwargs = {name: map_tensors(value, replace) for name, value in kwargs.items()}
        return entry.func, tuple(map_tensors(arg, replace) for arg in args), kwargs, device, state

    def _compare(self, again, result, entry):
        """Whether the operator gives the same bits once more."""
        with _tensors.quietly():
            if self._has_room(self._born_bytes(entry) + entry.inside_bytes):
                second = self._once_more(entry, *again)
                pair = tensors_in(result), tensors_in(second)
                return second is not None and len(pair[0]) == len(pair[1]) and \
                    all(is_plain(a) and same_bits(a, b) for a, b in zip(*pair))
            storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors_in(result)}
            is_kept = not entry.updates or repeat_of(entry.func).is_batch_norm  # what it updates: its statistics are left out
            return is_kept and all(storage.device.type == "cpu" for storage in storages.values()) and \
                self._compare_away(entry, again, tensors_in(result), storages.values())

    def _compare_away(self, entry, again, first, storages):
        """The same where there is no room for two results: the first one is away meanwhile."""
        before = [(geometry(tensor), digest(tensor)) for tensor in first]
        for storage in storages:
            self._pager.out(self._pager.page(storage))
        second = self._once_more(entry, *again)
        is_same = second is not None and before == [(geometry(tensor), digest(tensor)) for tensor in tensors_in(second)]
        del second
        for storage in storages:
            self._pager.touch_storage(storage)
        return is_same

    def _born_bytes(self, entry):
        return sum(self._storages[number].n_bytes for _, number in entry.births)

    def _once_more(self, entry, func, args, kwargs, device, state):
        """What the operator gives, with the random state that it had; None: it fails. It takes as long as the faster of
        the two calls: the other one may have had to wait for another program. It takes the bytes of the greater one."""
        if state is not None:
            after = random_state(device)
            set_random_state(device, state)
        try:
            result, ns, most_bytes = self._run(func, args, kwargs)
            entry.ns = min(entry.ns, ns)
            entry.inside_bytes = max(entry.inside_bytes, most_bytes - self._born_bytes(entry))
            return result
        except RuntimeError:
            return None
        finally:
            if state is not None:
                set_random_state(device, after)

    # ---- what autograd saves

    def pack(self, tensor):
        self._bury()
        number = self._number(tensor)
        if number is not None and self._is_unwritten(number):
            self._note_opaque(tensor)
        entry = Entry(PACK, in_backward() != -1)
        self._note_gradients(entry)
        entry.shapes = [tensor.shape]
        if number is None or self._storages[number].is_shared or not self._is_of_forward(self._storages[number]):
            self._entries.append(entry)
            return self._without_graph(tensor)
        saved = _Saved()
        saved.storage = entry.storage = number
        entry.version = self._version[number]
        saved.place, saved.pack, saved.is_changed = geometry(tensor), len(self._entries), False
        if self._slots.get(number, (None, None))[1] != entry.version:
            with quietly():
                self._make_ready([tensor])
                self._slots[number] = self._slab.out(tensor.untyped_storage()), entry.version
        saved.slot = self._slots[number][0]
        reference = weakref.ref(saved)
        self._saved[reference] = len(self._entries)
        self._saved_of[number].append(reference)
        self._returned[number] = tensor.untyped_storage()._cdata
        self._entries.append(entry)
        return saved

    _without_graph = staticmethod(without_graph)

    def _is_of_forward(self, storage):
        return storage.maker is not None and not self._entries[storage.maker].is_backward

    def unpack(self, saved):
        if self._is_over:  # a graph that outlived its step
            return self._late(saved)
        self._bury()
        if self._last_flags is None:
            self._last_flags = flags()
        entry = Entry(UNPACK, in_backward() != -1)
        self._note_gradients(entry)
        if isinstance(saved, torch.Tensor):
            entry.shapes = [saved.shape]
            self._entries.append(entry)
            return saved
        entry.storage, entry.pack = saved.storage, saved.pack
        entry.shapes = [saved.place[2]]
        if saved.is_changed:
            raise RuntimeError(CHANGED)
        with quietly():
            storage = self._still_there(saved)
            if storage is not None and self._pager is not None:
                self._pager.touch_storage(storage)
            if storage is None:
                slot, _ = self._slots[saved.storage]
                if self._recent is not None:
                    self._recent.make_room(self.live_bytes + slot.n_bytes - self._limit // 2, ())
                storage = slot.back()
                self._live(storage, saved.storage, len(self._entries), True)
                self._note_use(storage)
                self._returned[saved.storage] = storage._cdata
            self._entries.append(entry)
            return self._over(storage, saved)

    @staticmethod
    def _over(storage, saved):
        return over(storage, saved.place)

    def _late(self, saved):
        if isinstance(saved, torch.Tensor):
            if self._pager is not None:
                with quietly():
                    self._pager.touch([saved])
            return saved
        with quietly():
            return over(saved.slot.back(), saved.place)

    def _still_there(self, saved):
        key = self._returned[saved.storage]
        return alive(key) if self._numbers.get(key) == saved.storage else None

    def _note_changes(self, number, written):
        note_written(self._saved_of[number], [tensor for tensor in written if self._number(tensor) == number])
