# SPDX-License-Identifier: Apache-2.0
"""Follows a schedule in a training step that is like the recorded one.

The step's own storages are held in a table from when they are made until the plan drops them. Autograd gets a name for
what it saves; when it wants the tensor back, the plan has brought the storage back by then: read from the slab, or its
operators computed again, from the arguments and the random state that they had in this very step.

What may leave by itself (_recording.py) is away between uses as the plan says. What is away and used all the same comes
back first.

Each call of an operator in the forward pass (in the whole step, if anything may leave by itself), and each tensor that autograd
saves or wants back, is compared with the recording; sizes may differ (_sizes.py). At the first that differs otherwise the plan is
left. In the forward pass all that is gone and that autograd still wants is then computed once more, and stays or moves out as the
budget has room (_room.py); in the backward pass what is gone is brought back when it is wanted, in whatever order. So results never
depend on the step being like the recorded one.
"""
import os
import weakref

import torch

from ..planning import AGAIN, DROP, IN, OUT
from . import _inside, _schedule
from ._bytes import Bytes
from ._operators import tensors_in
from ._owned import GRADIENT
from ._pager import Recent
from ._recording import OP, PACK, TOUCH, UNPACK, Entry
from ._room import Room
from ._repeat import device_of, flags, map_tensors, passes, random_state, repeat_of, set_random_state, shapes_of
from ._schedule import LAST_DROP
from ._sizes import are_alike, within
from ._steps import note_written
from ._tensors import CHANGED, expired, forget, geometry, in_backward, is_made_of_tensors, is_plain, n_modes, over, quietly, \
    storage_of, version_of, without_graph


class _Saved:
    """What autograd holds in place of a tensor: where the tensor lies in a storage. bytes: the storage itself, once
    the plan has no more use for it. kept: of _room.py, once the plan was left. is_changed: its bytes were written since."""
    __slots__ = ("storage", "place", "entry", "bytes", "kept", "is_changed", "__weakref__")

    def __init__(self, storage, place, entry):
        self.storage, self.place, self.entry, self.bytes, self.kept, self.is_changed = storage, place, entry, None, None, False


class _Argument:
    __slots__ = ("storage", "version", "place")


class _Outside:
    """A tensor that no plan moves, its version when the operator read it, and the storage that it had (None: it is not plain)."""
    __slots__ = ("tensor", "version", "storage")

    def __init__(self, tensor):
        self.tensor, self.version = tensor, version_of(tensor)
        self.storage = tensor.untyped_storage() if is_plain(tensor) else None

    def is_as_it_was(self):
        return version_of(self.tensor) == self.version and (
            self.storage is None or self.tensor.untyped_storage()._cdata == self.storage._cdata)


class _Call:
    """An operator with what it needs to be computed again."""
    __slots__ = ("func", "args", "kwargs", "device", "state", "entry", "flags")


class Follower:
    """One step.

    pager: of what may be away, or None. room_bytes: for what a pager has, where no plan says what is there.
    other: a function that gives what follows the step when its first moment is another one than recorded, which may be this
    one if only sizes differ; None: nothing does. gradient_bytes: a function that counts those of all gradients.

    Given by whoever begins it: spare_bytes, how much it may make after the last moment; limit_bytes, the most that may be there once the
    plan was left, or None; and where it rests, `watch(page)`, which has a page looked after and says whether it may leave, and
    `wake()`, which ends that.

    What others look at:
    is_lost     it was not like the recorded one; is_longer: because it went on where that one had ended
    has_sizes   sizes differed; larger: {storage: bytes} of those that were larger
    measured    a Bytes that measures it, or None
    is_guarded  operators may use what is away, and bring it back
    rests       what may be away is the optimizer's state, which _guard.py looks after until the optimizer steps; operators do not
    unseen      the ids of operators that need not be looked at"""

    unseen, rests, spare_bytes, limit_bytes = (), False, float("inf"), None
    watch, wake = staticmethod(lambda page: True), staticmethod(lambda: None)

    def __init__(self, schedule, slab, pager=None, room_bytes=0, other=lambda known_by: None, gradient_bytes=lambda: None):
        recording = schedule.recording
        self._gradient_bytes, self._n_optimizer_steps, self._expected, self._is_broken = gradient_bytes, 0, (), False
        self._other, self._pager, self._room_bytes, self._recent = other, pager, room_bytes, None
        self._pages, self._number_of = {}, {}  # {number: page}, {page: number}
        self._recording, self._entries, self._schedule, self._slab = recording, recording.entries, schedule, slab
        self._before, self._after, self._apart = schedule.before, schedule.after, {*recording.uses, *schedule.away}
        self.is_lost, self.is_longer, self.is_over = False, False, False
        self.has_sizes, self._is_too_large, self.larger, self._is_compared = False, False, {}, False  # the last: though lost
        self._has_unpacked, self._more = False, Bytes()
        self._moments, self.n_seen, self._process = recording.moments, 0, os.getpid()
        self._table, self._own, self._version = {}, set(), {}  # {number: (storage, version)}, ...
        self._numbers = {}  # {weak reference: number}: no other storage is made at a key's address meanwhile
        self._slots, self._calls, self._made_by, self._saved, self._over = {}, {}, {}, {}, set()
        self._results, self._watched, self._spoilt = {}, {}, set()  # {number: weak reference to a tensor}, {number: its version}
        self._at_the_end = {}  # {number: its version} of what autograd still wants
        self.measured = self._room = None
        self.is_guarded = pager is not None

    def __del__(self):
        for key in self._numbers:
            forget(key)
        for counted in (self._more, self.measured, self._room):  # of a step that raised
            if counted is not None:
                counted.close()

    def begin(self, owned=None, measured=None):
        """Before anything runs, what is away is what the plan says. owned: gives {key of a storage: (storage, owner, tensors)}."""
        if self._pager is not None:
            found = {}
            if self._recording.lasting or self._schedule.away:
                found = {owner: storage for storage, owner, _ in owned().values()}
                self._find_pages(found)
            self._pager.asked = self._note_return
            if self.is_lost:
                self._recent = Recent(self._pager)
                self._recent.use_all()
            else:
                leaves = {page for number, page in self._pages.items() if number in self._schedule.away}
                for page in leaves:
                    self._leave(page)
                for page in {*self._pager.away.values()} - leaves - self._of_the_step_before(found):
                    self._pager.back(page)
                self.rests = self._recording.rests
                self.is_guarded = self._recording.is_whole or bool(self._pager.away) and not self.rests
                if self._is_broken:
                    self._lose()
        self.measured = measured() if measured is not None else None
        if self._pager is not None:
            self._pager.count = self.measured
        if self.is_lost and self._room is None:
            self._keep_saved()
        if not (self._recording.is_whole or self.is_guarded or self.measured is not None):
            self.unseen = passes

    def _find_pages(self, storages):
        for number, storage in enumerate(self._recording.storages):
            if storage.first_owner is None or number not in self._recording.lasting | self._schedule.away:
                continue
            found = storages.get(storage.first_owner)
            if found is None or self._pager.bytes_of(found) != storage.n_bytes:
                self.is_lost = True
                return
            self._note_page(number, self._pager.page(found))

    def _of_the_step_before(self, found):
        """Pages of gradients that were gone when the recording began, at the first moment: they may go without coming back."""
        if not self._recording.is_whole:
            return set()
        return {page for page in (self._pager.page(storage) for owner, storage in found.items() if owner[0] == GRADIENT)
                if page not in self._number_of}

    def _note_page(self, number, page):
        self._pages[number], self._number_of[page] = page, number

    # ---- what a plan did not foresee

    def is_whole(self):
        """Whether all moments of the plan came."""
        return self.n_seen == len(self._moments) and not self.is_lost

    def note_optimizer(self):
        """One steps."""
        self._n_optimizer_steps += 1
        if not self.is_lost and self._n_optimizer_steps > self._recording.n_optimizer_steps:
            self._lose()

    def touch(self, tensor, is_handed_out):
        """Its memory is used beside the operators, up to the next moment."""
        storage = storage_of(tensor)
        number = self._number_of.get(self._pager.pages.get(storage._cdata)) if storage is not None else None
        if number in self._recording.uses and not self.is_lost and not (self._is_touched() and number in self._expected):
            i, entry = self._next(TOUCH)
            if entry is None or number not in entry.versions:
                self._lose()
            else:
                self._expected = entry.versions
                self._act(self._before.get(i, ()))
        self._pager.touch([tensor])

    assigned = staticmethod(lambda *_: None)

    def _is_touched(self):
        return self.n_seen > 0 and self._entries[self._moments[self.n_seen - 1]].kind == TOUCH

    def _note_return(self, page):
        """What is away is used. The plan may have it come only now."""
        if not self.is_lost and self._number_of.get(page) not in self._expected:
            self._lose()

    def _note_more(self, args, kwargs, results):
        """What is made after the last moment has to find room."""
        storages = [tensor.untyped_storage() for tensor in results if is_plain(tensor)]
        if storages:
            taken = {tensor.untyped_storage()._cdata for tensor in tensors_in([*args, *kwargs.values()]) if is_plain(tensor)}
            self._more.bury()
            for storage in storages:
                if storage._cdata not in taken:
                    self._more.see(storage)
            if self._more.live > self.spare_bytes and not self.is_lost:
                self._lose()

    def _leave(self, page):
        if not self._pager.out(page) and not expired(page.key):
            self._is_broken = True

    def _has_as_many_gradients(self, entry):
        return entry.gradient_bytes is None or entry.gradient_bytes == self._gradient_bytes()

    # ---- the step

    def begin_backward(self):
        """A hook may write what was made until now unseen, so its versions are noted."""
        for number in self._results:
            version = self._version_now(number) if number not in self._watched else None
            if version is not None:
                self._watched[number] = version

    def sees_backward(self):
        """Whether operators of the backward pass have to be looked at."""
        return self._recording.is_whole or self.is_guarded or self.measured is not None or \
            self._schedule.leaves_late or not self._slab.keeps_nothing() or self._room is not None

    def begin_optimizer(self, has_closure):
        """From now on operators use what rested."""
        if self.rests:
            self.rests, self.is_guarded, self.unseen = False, True, ()
            self.wake()

    end_optimizer = staticmethod(lambda: None)

    def sees_optimizer(self):
        return self.n_seen < len(self._moments) or self.sees_backward()

    def dispatch(self, func, types, args, kwargs):
        if types and is_made_of_tensors(types):
            return NotImplemented
        if self._process != os.getpid():
            if self.is_guarded:
                self._pager.use(list(repeat_of(func).operator.tensors(args, kwargs)))
            return func(*args, **kwargs)
        is_apart = not self._recording.is_whole and in_backward() != -1
        if is_apart and not (self._slab.leaving or self.is_guarded or self.is_lost or self.measured is not None):
            return func(*args, **kwargs)
        repeat = repeat_of(func)
        if self.is_lost:
            return self._call_lost(repeat, args, kwargs)
        return self._call(repeat, args, kwargs) if is_apart else self._run(repeat, args, kwargs)

    def _call_lost(self, repeat, args, kwargs):
        """What an operator gives after the plan was left."""
        result = self._call(repeat, args, kwargs)
        self._note_lost(repeat, args, kwargs, result)
        if self._is_compared and in_backward() == -1:
            self._compare_lost(repeat, shapes_of(args, kwargs), tensors_in(result))
        return result

    def _note_lost(self, repeat, args, kwargs, result):
        """What an operator wrote and made, after the plan was left."""
        if in_backward() == -1:
            self._note_changes(repeat, args, kwargs)
        if self._room is not None:
            with quietly():
                self._room.made(tensors_in(result))

    def _compare_lost(self, repeat, shapes, tensors):
        """A step that was left because tensors are larger than recorded may be like the recorded one in all else."""
        if repeat.is_bookkeeping or repeat.is_view or self.n_seen == len(self._moments):
            return
        entry = self._entries[self._moments[self.n_seen]]
        self.n_seen += 1
        self._is_compared = entry.func is repeat.func and are_alike(shapes, entry.shapes)
        for at, number in entry.births if self._is_compared else ():
            if at < len(tensors) and is_plain(tensors[at]):
                self._note_size(number, tensors[at].untyped_storage().nbytes())

    def _note_size(self, number, n_bytes):
        """Whether the budget may have no room for a storage that is larger than recorded."""
        recorded = self._recording.storages[number].n_bytes
        if n_bytes <= recorded:
            return False
        self.larger[number] = n_bytes
        return self.limit_bytes is not None and not self._recording.is_whole and \
            _schedule.peak(self._schedule) * n_bytes > self.limit_bytes * recorded

    def has_grown(self):
        """Whether the step was like the recorded one, but larger."""
        return bool(self.larger) and (not self.is_lost or self._is_compared and self.n_seen == len(self._moments))

    def _call(self, repeat, args, kwargs):
        """What an operator gives; counted, if the step is measured."""
        operator = repeat.operator
        if operator.writes and self._slab.leaving:
            for tensor, _, is_written in operator.tensors(args, kwargs):
                if is_written:
                    self._slab.settle_storage(storage_of(tensor))
        if operator.is_collective and self._pager is not None:
            self._pager.hold(tensors_in([*args, *kwargs.values()]))
        if not self.is_guarded and self.measured is None:
            return repeat.func(*args, **kwargs)
        if self.is_guarded:
            self._make_ready(operator, args, kwargs)
        result = self._counted(repeat.func, args, kwargs)
        if operator.is_collective and self._pager is not None:
            self._pager.hold(tensors_in(result))
        self._look(tensors_in(result))
        return result

    def _look(self, tensors):
        """At what an operator made."""
        for tensor in tensors:
            if self.is_guarded and tensor.layout is not torch.strided:
                self._pager.pin([tensor])
            if self.measured is not None and is_plain(tensor):
                self.measured.see(tensor.untyped_storage())

    def _counted(self, func, args, kwargs, is_again=False):
        """What an operator gives; what it has at once while it runs is counted, if the step is measured. Nothing that is computed
        again is kept by autograd."""
        if self.measured is None:
            return func(*args, **kwargs)
        self.measured.bury()
        for tensor in tensors_in([*args, *kwargs.values()]):  # one that no operator made, too
            if is_plain(tensor):
                self.measured.see(tensor.untyped_storage())
        result, _, most_bytes = _inside.run(func, args, kwargs)
        self.measured.ran(most_bytes, 0 if is_again else _inside.kept_bytes(func, args))
        return result

    def _make_ready(self, operator, args, kwargs):
        """What an operator uses is there; and is not the slab's copy any more, if the operator writes it."""
        taken, pager = list(operator.tensors(args, kwargs)), self._pager
        if self._recent is not None:
            needed = {storage._cdata: storage for storage in (storage_of(tensor) for tensor, _, _ in taken)
                      if storage is not None and pager.knows(storage)}
            for storage in needed.values():
                self._recent.use(storage)
            self._recent.make_room(self._recent.bytes() - self._room_bytes, needed)
        pager.use(taken)

    def _run(self, repeat, args, kwargs):
        func = repeat.func
        if repeat.is_bookkeeping or repeat.is_view and not self._recording.is_whole:
            return self._call(repeat, args, kwargs)
        if self.n_seen == len(self._moments):  # the last moment of the plan is over
            self._expected = ()
            result = self._call(repeat, args, kwargs)
            self._note_more(args, kwargs, tensors_in(result))
            return result
        i = self._moments[self.n_seen]
        entry = self._entries[i]
        shapes = shapes_of(args, kwargs)
        if entry.func is not func or entry.shapes != shapes or self.n_seen == 0 and not self._has_as_many_gradients(entry):
            doer = self._instead(entry, (OP, func, shapes), self.n_seen == 0)
            if doer is not self:
                return doer.dispatch(func, (), args, kwargs)
            if self.is_lost:
                return self._call_lost(repeat, args, kwargs)
        if repeat.operator.writes and not self._writes_as_recorded(repeat, entry, args, kwargs):
            self._lose()
            return self._call_lost(repeat, args, kwargs)
        self.n_seen += 1
        if i in self._before:
            self._act(self._before[i])
            if self.is_lost:
                return self._call_lost(repeat, args, kwargs)
        if i in self._schedule.captured:
            call = self._capture(repeat, i, entry, args, kwargs)
            if call is None:
                self._lose()
                return self._call_lost(repeat, args, kwargs)
        self._expected = entry.versions
        result = self._call(repeat, args, kwargs)
        if self.is_lost:  # it used what is away
            self._note_lost(repeat, args, kwargs, result)
            return result
        for number in entry.updates:
            if number in self._version:
                if number in self._saved:
                    self._note_changes(repeat, args, kwargs)
                version = self._version[number] = self._version[number] + 1
                self._made_by[number, version] = i
                self._watched.pop(number, None)
                if number in self._table:
                    self._table[number] = self._storage_written(repeat, args, kwargs, number), version
                    self._own.discard(number)
        is_alike = not entry.births and not entry.empties or self._note_births(i, entry, tensors_in(result))
        if not is_alike or self._is_too_large:
            self._lose(is_compared=is_alike)
            self._note_lost(repeat, args, kwargs, result)
            return result
        if i in self._after:
            self._act(self._after[i])
        return result

    def _instead(self, entry, known_by, is_first):
        """What follows the step where a moment is not the recorded entry (None: another kind of one was): this, where only sizes
        differ. If nothing does, the plan is left."""
        if is_first:
            doer = self._other(known_by)
        else:
            doer = self if entry is not None and known_by[1] is entry.func and are_alike(known_by[2], entry.shapes) else None
        self.has_sizes |= doer is self
        if doer is None:
            self._lose()
        return doer or self

    def _writes_as_recorded(self, repeat, entry, args, kwargs):
        """Whether an operator writes the same storages as in the recorded step, of those that something may be computed again from."""
        written = {self._numbers.get(tensor.untyped_storage()._cdata)
                   for tensor, _, is_written in repeat.operator.tensors(args, kwargs) if is_written and is_plain(tensor)}
        return written - {None} == {number for number in entry.updates if number in self._version}

    def _note_changes(self, repeat, args, kwargs):
        """What autograd saved is changed if an operator wrote it."""
        for tensor, _, is_written in repeat.operator.tensors(args, kwargs) if repeat.operator.writes else ():
            if not is_written or not is_plain(tensor):
                continue
            storage = tensor.untyped_storage()
            number = self._numbers.get(storage._cdata)
            if number in self._saved and number in self._table and self._table[number][0]._cdata == storage._cdata:
                note_written(self._saved[number], [tensor])
            elif self._room is not None:
                note_written(self._room.saved_of(storage), [tensor])

    def _storage_written(self, repeat, args, kwargs, number):
        """The program's own storage, which the operator wrote: the table may have had another one with the same bits."""
        written = (tensor.untyped_storage() for tensor, _, is_written in repeat.operator.tensors(args, kwargs)
                   if is_written and is_plain(tensor))
        return next((storage for storage in written if self._numbers.get(storage._cdata) == number),
                    self._table[number][0])

    def _note_births(self, i, entry, tensors):
        """Whether the results are those of the recorded step."""
        if any(at < len(tensors) and is_plain(tensors[at]) and tensors[at].untyped_storage().nbytes() > 0 for at in entry.empties):
            return False
        for at, number in entry.births:
            if at >= len(tensors) or not is_plain(tensors[at]):
                return False
            storage = tensors[at].untyped_storage()
            if storage.nbytes() == 0:
                return False
            self._is_too_large |= self._note_size(number, storage.nbytes())
            if self._recording.is_held(number):
                self._table[number], self._numbers[storage._weak_ref()] = (storage, 0), number
                self._version[number] = 0
                self._made_by[number, 0] = i
                self._results[number] = weakref.ref(tensors[at])
            elif number in self._recording.passing:
                self._note_page(number, self._pager.page(storage))
        return True

    def _next(self, kind):
        """(number, entry) of the moment that comes, if it is of this kind; else (-1, None)."""
        if self.n_seen < len(self._moments):
            i = self._moments[self.n_seen]
            if self._entries[i].kind == kind:
                self.n_seen += 1
                return i, self._entries[i]
        return -1, None

    def _capture(self, repeat, i, entry, args, kwargs):
        """None: its arguments are not those of the recorded step."""
        versions, is_known = entry.versions, True

        def replace(tensor):
            nonlocal is_known
            number = self._numbers.get(tensor.untyped_storage()._cdata) if is_plain(tensor) else None
            if number is None:
                return _Outside(tensor)
            if number not in versions:
                is_known = False
            argument = _Argument()
            argument.storage, argument.version, argument.place = number, self._version[number], geometry(tensor)
            return argument
        call = _Call()
        call.func, call.entry, call.state, call.flags = entry.func, entry, None, flags()
        arguments = repeat.arguments(args, kwargs)
        if arguments is None:
            return None
        call.args = tuple(map_tensors(arg, replace) for arg in arguments)
        call.kwargs = {name: map_tensors(value, replace) for name, value in kwargs.items()}
        if not is_known:
            return None
        if entry.random_bytes:
            call.device = device_of(args, kwargs)
            call.state = self._random_state(call.device)
        self._calls[i] = call
        return call

    # ---- what autograd saves

    def pack(self, tensor):
        if self.is_lost or self._process != os.getpid():
            return self._pack_lost(tensor)
        is_first = self.n_seen == 0
        i, entry = self._next(PACK)
        if entry is None or entry.shapes[0] != tensor.shape or is_first and not self._has_as_many_gradients(entry):
            doer = self._instead(entry, (PACK, None, [tensor.shape]), is_first)
            if doer is not self:
                return doer.pack(tensor)
            if self.is_lost:
                return self._pack_lost(tensor)
        number = entry.storage
        if number is None:  # no operator of the forward pass made it
            return without_graph(tensor)
        if not is_plain(tensor) or self._numbers.get(tensor.untyped_storage()._cdata) != number or \
                self._version[number] != entry.version:
            self._lose()
            return self._pack_lost(tensor)
        saved = _Saved(number, geometry(tensor), i)
        saved.bytes = tensor.untyped_storage() if number in self._over else None
        self._saved.setdefault(number, []).append(weakref.ref(saved))
        return saved

    def _pack_lost(self, tensor):
        """After the plan was left. What the step did not make stays anyway."""
        if self._is_compared and self.n_seen < len(self._moments):
            _, entry = self._next(PACK)
            self._is_compared = entry is not None and are_alike([tensor.shape], entry.shapes)
        if self.limit_bytes is None or in_backward() != -1 or self._process != os.getpid():
            return without_graph(tensor)
        if self._room is None:
            self._keep_saved()
        storage = tensor.untyped_storage() if is_plain(tensor) else None
        if storage is None or storage._cdata not in self._numbers and not self._room.is_made(storage):
            return without_graph(tensor)
        saved = _Saved(None, geometry(tensor), -1)
        with quietly():
            self._room.keep(saved, storage, tensor._version)
        return saved

    def unpack(self, saved):
        if self.measured is not None:
            self.measured.bury()
        i = -1
        if not self.is_lost and self._process == os.getpid():
            i, entry = self._next(UNPACK)
            if entry is None or (entry.pack != saved.entry if isinstance(saved, _Saved) else entry.storage is not None) or \
                    not self._has_unpacked and (entry.gradient_bytes or 0) < self._gradient_bytes():
                self._lose()
            self._has_unpacked = True
        elif self._is_compared and self.n_seen < len(self._moments):
            self._is_compared = self._next(UNPACK)[1] is not None
        if isinstance(saved, torch.Tensor):
            if self.is_over and self._pager is not None:  # a graph that outlived its step
                with quietly():
                    self._pager.touch([saved])
            return saved
        if saved.is_changed or self.is_over and self._was_written_since(self._at_the_end, saved.storage):
            raise RuntimeError(CHANGED)
        before, after = ((), ()) if self.is_lost else (self._before.get(i, ()), self._after.get(i, ()))
        if not before and not after and self._is_there(saved) and n_modes() == 0:
            return self._unpacked(saved)
        with quietly():
            self._do_all(before)
            result = self._unpacked(saved)
            self._do_all(after)
        return result

    def _version_now(self, number):
        """How often the program has written what an operator made; None: it has it no more, or PyTorch does not count."""
        result = self._results.get(number)
        tensor = result() if result is not None else None
        return version_of(tensor) if tensor is not None else None

    def _was_written_since(self, versions, number):
        """Whether the program has written it since these versions were noted."""
        now = self._version_now(number)
        return now is not None and now != versions.get(number, now)

    def _is_there(self, saved):
        held = self._table.get(saved.storage) if saved.kept is None else None
        return saved.bytes is not None or held is not None and held[1] == self._version[saved.storage]

    def _unpacked(self, saved):
        if saved.kept is not None:
            return over(self._room.give(saved.kept), saved.place)
        storage = self._bring_saved(saved)
        if storage._cdata not in self._numbers:  # a gradient of a gradient saves it again
            self._numbers[storage._weak_ref()] = saved.storage
        return over(storage, saved.place)

    def _lose(self, is_compared=False):
        """The step is not like the recorded one. In the forward pass an operator may soon write what would be needed
        to compute something again, so all that is gone and autograd wants is computed now."""
        self.is_longer = self.n_seen == len(self._moments)
        self.is_lost, self._is_compared = True, is_compared
        if self.is_guarded:  # else all is there, and stays
            self._recent = Recent(self._pager)
            self._recent.use_all()
        if in_backward() == -1:
            self._keep_saved()

    def finish(self):
        self.restore()
        self._slab.settle()
        self.is_over = True
        self._at_the_end = {saved.storage: self._version_now(saved.storage) for saved in self._all_saved()}
        if self._room is not None:
            self._room.close()

    # ---- without a plan

    def _keep_saved(self):
        """From now on all that autograd wants is there or in the slab."""
        if self.limit_bytes is None:
            self.restore()
            return
        reserve = max((entry.inside_bytes + sum(self._recording.storages[number].n_bytes for _, number in entry.births)
                       for entry in self._entries), default=0)
        self._room = Room(self._slab, self.limit_bytes, reserve, self._count_all())
        wanted = sorted((saved for saved in self._all_saved() if not saved.is_changed), key=lambda saved: saved.storage)
        with quietly():
            for saved in [saved for saved in wanted if not self._keep(saved)]:
                number = saved.storage
                self._make_room(self._bytes_to_bring(number, self._version[number], set()))
                storage = self._bring_newest(number)
                self._table[number] = storage, self._version[number]  # others may be computed from it
                self._room.keep(saved, storage, None)
        self._table.clear()
        self._own.clear()

    def _keep(self, saved):
        """Whether it is there or in the slab, where it is left."""
        slot = self._slots.get(saved.storage)
        if self._is_there(saved):
            self._room.keep(saved, self._bring_saved(saved), None)
        elif slot is not None and slot[1] == self._version[saved.storage]:
            self._room.keep_slot(saved, slot[0])
        saved.bytes = None
        return saved.kept is not None

    def _bytes_to_bring(self, number, version, seen):
        """What is made on the way when a storage is computed again, beside what was `seen` to be."""
        held, slot = self._table.get(number), self._slots.get(number)
        if (number, version) in seen or held is not None and held[1] == version:
            return 0
        seen.add((number, version))
        if slot is not None and slot[1] == version:
            return slot[0].n_bytes
        call = self._calls.get(self._made_by.get((number, version)))
        entry = call.entry if call is not None else Entry(OP, False)
        made = {*(other for _, other in entry.births), *entry.updates}
        return entry.inside_bytes + sum(self._recording.storages[other].n_bytes for other in made) + sum(
            self._bytes_to_bring(*other, seen) for other in entry.versions.items() if other[0] in self._version)

    def _make_room(self, n_bytes):
        """To compute something again."""
        left = self._room.make_room(n_bytes)
        for number, (storage, version) in tuple(self._table.items()) if left else ():
            if storage._cdata in left and number not in self._slots:
                del self._table[number]
                self._slots[number] = left[storage._cdata], version

    def _count_all(self):
        """What is there, from now on. If the step was like the recorded one so far, that is what the schedule says, and what is not
        held here is taken to stay; else it is counted."""
        is_known = self._moments and not self.has_sizes and in_backward() == -1
        count, self.measured = self.measured or (Bytes() if is_known else Bytes.of_all_tensors()), None
        for storage in (*(storage for storage, _ in self._table.values()), *(saved.bytes for saved in self._all_saved())):
            if storage is not None:
                count.see(storage)
        if is_known:
            at = self._moments[min(self.n_seen, len(self._moments) - 1)]
            count.live = max(count.live, _schedule.live_bytes(self._schedule)[at])
        if self._pager is not None:
            self._pager.count = count
        return count

    def _all_saved(self):
        """What autograd still holds of what was saved before the plan was left."""
        found = [reference() for references in self._saved.values() for reference in references]
        return [saved for saved in found if saved is not None]

    def restore(self):
        """Bring back all that autograd still wants."""
        with quietly():
            for saved in self._all_saved():
                if saved.bytes is None and saved.kept is None and not saved.is_changed:
                    saved.bytes = self._bring_newest(saved.storage)
                    self._table[saved.storage] = saved.bytes, self._version[saved.storage]

    # ---- the plan's actions

    def _act(self, actions):
        """At an operator, which autograd and autocast are done with. So only other modes would see what is called."""
        if n_modes() == 0:
            self._do_all(actions)
            return
        with quietly():
            self._do_all(actions)

    def _do_all(self, actions):
        for kind, target in actions:
            if self.is_lost:
                return
            if kind != AGAIN and target in self._apart:
                self._do_apart(kind, target)
            elif kind == LAST_DROP or kind == DROP:
                self._drop(kind, target)
            else:
                self._move_or_repeat(kind, target)
        if self._is_broken and not self.is_lost:
            self._lose()

    def _do_apart(self, kind, target):
        page = self._pages.get(target)
        if page is None:
            return
        if self.rests and kind != IN and not self.watch(page):
            self._is_broken = True
        elif kind == OUT:
            self._pager.send(page)
        elif kind == DROP:
            self._leave(page)
        else:
            self._pager.come(page)

    def _drop(self, kind, target):
        if target in self._slots:
            self._slots[target][0].wait()
        held = self._table.pop(target, None)
        self._own.discard(target)
        if kind == LAST_DROP:
            self._over.add(target)
            for reference in self._saved.get(target, ()):
                saved = reference()
                if saved is not None and held is not None and not saved.is_changed:
                    saved.bytes = held[0]

    def _move_or_repeat(self, kind, target):
        if kind == OUT:
            storage, version = self._table[target]
            if self._is_spoilt(target):
                self._spoilt.add(target)
            if target in self._slots:  # from which it may be coming in, which nothing else waits for
                self._slots[target][0].wait()
            self._slots[target] = self._slab.send(storage), version
        elif kind == IN:
            slot, version = self._slots[target]
            self._table[target] = self._see(slot.come()), version
            self._own.add(target)
        elif kind == AGAIN:
            for (number, version), storage in self._compute(self._calls[target], {}).items():
                if self._table.get(number, (None, None))[1] != version:
                    self._table[number] = storage, version
                    self._own.add(number)

    def _random_state(self, device):
        state = random_state(device)
        self._see(state.untyped_storage())
        return state

    def _see(self, storage):
        if self.measured is not None:
            self.measured.bury()
            self.measured.see(storage)
        return storage

    def _compute(self, call, made):
        """Compute an operator again; gives {(storage, version): storage}. made: what was made on the way."""
        if call.flags != flags():
            raise RuntimeError(f"ebb: {call.func} has to be computed again, but flags of PyTorch that choose its algorithm were changed "
                               "since; change them from the first step on, or between steps")
        written, expected = {}, self._expected
        self._expected = call.entry.versions
        args = [self._put(arg, call, written, made) for arg in call.args]
        kwargs = {name: self._put(value, call, written, made) for name, value in call.kwargs.items()}
        if call.state is not None:
            after = self._random_state(call.device)
            set_random_state(call.device, call.state)
        try:
            tensors = tensors_in(self._counted(call.func, args, kwargs, is_again=True))
        finally:
            self._expected = expected
            if call.state is not None:
                set_random_state(call.device, after)
        for at, number in call.entry.births:
            written[number, 0] = self._see(tensors[at].untyped_storage())
        return written

    def _put(self, value, call, written, made):
        """An argument as it was."""
        if isinstance(value, _Argument):
            if self._is_spoilt(value.storage):
                raise _was_changed(call)
            storage = self._take(value, written, made) if value.storage in call.entry.updates else \
                self._bring(value.storage, value.version, made)
            return over(storage, value.place)
        if isinstance(value, _Outside):
            if not value.is_as_it_was():
                raise _was_changed(call)
            if self._pager is not None:
                self._pager.touch([value.tensor])
            return value.tensor
        if isinstance(value, (list, tuple)):
            return type(value)(self._put(item, call, written, made) for item in value)
        return value

    def _is_spoilt(self, number):
        """Whether the backward pass wrote a storage of the program's own, in a hook that it did not have when it was recorded."""
        is_programs = number in self._table and number not in self._own
        return number in self._spoilt or is_programs and self._was_written_since(self._watched, number)

    def _take(self, value, written, made):
        """A storage that an operator writes in place once more: of its own, and not to be found at this version."""
        number, key = value.storage, (value.storage, value.version + 1)
        if key not in written:
            storage = self._bring(number, value.version, made)
            if made.pop((number, value.version), None) is None:  # it is the table's
                if number in self._own:
                    self._slab.settle_storage(storage)
                    del self._table[number]
                else:
                    storage = self._see(storage.clone())
            written[key] = storage
        return written[key]

    def _bring_saved(self, saved):
        return saved.bytes if saved.bytes is not None else self._bring_newest(saved.storage)

    def _bring_newest(self, number):
        return self._bring(number, self._version[number], {})

    def _bring(self, number, version, made):
        """A storage of the step at a version: as it is held, as it was moved out, or computed again with all that is
        missing for it."""
        held = self._table.get(number)
        slot = self._slots.get(number)
        if held is not None and held[1] == version:
            if slot is not None:
                slot[0].arrive()
            return held[0]
        if (number, version) not in made:
            if slot is not None and slot[1] == version:
                made[number, version] = self._see(slot[0].back())
            else:
                call = self._calls.get(self._made_by.get((number, version)))
                if call is None:
                    raise RuntimeError("ebb: a tensor that autograd saved is gone")
                made.update(self._compute(call, made))
        return made[number, version]


def _was_changed(call):
    return RuntimeError(f"ebb: {call.func} has to be computed again, but a tensor that it read was changed in place since")


class Watcher:
    """Follows a schedule of which nothing leaves: only whether autograd saves what it did is looked at."""

    is_lost = is_longer = is_guarded = rests = has_sizes = False
    measured = None
    has_grown = staticmethod(lambda: False)

    def __init__(self, recording, gradient_bytes):
        self._shapes, self._left = recording.saved_shapes, recording.n_optimizer_steps
        self._gradient_bytes = gradient_bytes
        self._first_bytes = next((entry.gradient_bytes for entry in recording.entries if entry.kind == PACK), None)
        self.n_seen = 0

    def is_whole(self):
        return self.n_seen == len(self._shapes) and not self.is_lost

    def note_optimizer(self):
        """One steps."""
        self._left -= 1
        if self._left < 0 and not self.is_lost:
            self.is_lost, self.is_longer = True, self.n_seen == len(self._shapes)

    def pack(self, tensor):
        n = self.n_seen
        self.n_seen = n + 1
        if not self.is_lost and (n >= len(self._shapes) or not within([tensor.shape], [self._shapes[n]]) or
                                 n == 0 and self._first_bytes != self._gradient_bytes()):
            self.is_lost = True
        self.has_sizes |= not self.is_lost and tensor.shape != self._shapes[n]
        return tensor if tensor.grad_fn is None else tensor.detach()

    @staticmethod
    def unpack(tensor):
        return tensor

    def finish(self):
        pass
