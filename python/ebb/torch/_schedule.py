# SPDX-License-Identifier: Apache-2.0
"""What is done when a recorded step is followed: the actions of a plan of ebb, at the moments at which they can be done.

`peak` follows the actions over the recorded step, storage by storage; this peak is the promise, not the plan's.
"""
import itertools
from collections import defaultdict

from .. import planning
from ._recording import OP, PACK, TOUCH, UNPACK

LAST_DROP = 6  # beside the kinds of planning: a drop after which a storage is not needed; autograd may still name it


class Schedule:
    """before, after: {entry: actions (kind, storage; of AGAIN: entry)}. captured: the entries that are computed again.
    away: the storages that are away when the step begins. leaves_late: something is copied out in the backward pass.
    recording: what it is for. course: what `_follow` found, or None. leftovers: gradients that leave after their last use, each
    with the one of the step before, or None."""

    def __init__(self, recording, actions, steps, leftovers=()):
        self.before, self.after = defaultdict(list), defaultdict(list)
        self.recording, self.captured, self.course = recording, set(), None
        actions, gone = _adapted(actions, recording, steps, leftovers)
        self.away = _away_first(actions, recording) | {leftovers[number] for number in gone} - {None}
        last, waiting, is_leading = -1, [], True
        for kind, target in actions:
            if kind == planning.RUN:
                entry = steps[target]
                if entry is None or entry == last:
                    continue
                if waiting:
                    self.before[entry] += waiting
                last, waiting, is_leading = entry, [], True
            elif kind in (planning.DROP, LAST_DROP, planning.OUT) and is_leading and self._has_end(last):
                self.after[last].append((kind, target))
            else:
                is_leading = False
                waiting.append((kind, steps[target] if kind == planning.AGAIN else target))
                if kind == planning.AGAIN:
                    self.captured.add(steps[target])
        if waiting and self._has_end(last):  # for the next step
            self.after[last] += waiting
        self.leaves_late = any(kind == planning.OUT for at in (self.before, self.after) for i, found in at.items()
                               if self._is_late(i) for kind, _ in found)

    def _has_end(self, i):
        """Whether it is known when a moment is over: memory that was touched may be used up to the next one."""
        return i >= 0 and self.recording.entries[i].kind != TOUCH

    def _is_late(self, i):
        entry = self.recording.entries[i]
        return entry.is_backward or entry.kind == UNPACK


def _adapted(actions, recording, steps, leftovers):
    """The actions as they are done, and the leftovers that leave for good. A passing one that is not needed any more dies
    by itself."""
    seen, found, gone = set(), [], set()
    for kind, target in reversed(actions):
        if kind in (planning.DROP, planning.OUT) and target in recording.uses:
            is_last, is_passing = target not in seen, target in recording.passing
            if is_last and is_passing and target not in leftovers:
                continue
            if is_last and is_passing and kind == planning.DROP:
                gone.add(target)
        elif kind == planning.DROP and target not in seen:
            kind = LAST_DROP
        if kind in (planning.DROP, LAST_DROP, planning.IN):
            seen.add(target)
        elif kind == planning.AGAIN:
            entry = recording.entries[steps[target]]
            seen.update([number for _, number in entry.births], entry.updates)
        found.append((kind, target))
    return found[::-1], gone


def _away_first(actions, recording):
    """The lasting storages that a plan brings in before it drops them."""
    first = {}
    for kind, target in actions:
        if kind in (planning.DROP, planning.IN) and target in recording.lasting:
            first.setdefault(target, kind)
    return {number for number, kind in first.items() if kind == planning.IN}


def plain(recording):
    """What a step without a plan does: autograd keeps what it saves until it has got it back for the last time."""
    saved = {entry.storage for entry in recording.entries if entry.kind == PACK and entry.storage is not None}
    last = {entry.storage: i for i, entry in enumerate(recording.entries) if entry.kind == UNPACK}
    schedule = Schedule(recording, (), ())
    for number, storage in enumerate(recording.storages):
        if number in last:
            schedule.after[last[number]].append((LAST_DROP, number))
        elif storage.maker is not None and number not in saved:
            schedule.after[storage.maker].append((LAST_DROP, number))
    return schedule


def first_bytes(schedule):
    """Of the storages that are there when a step that follows the schedule begins."""
    apart = _Apart(schedule)
    return apart.live + sum(storage.n_bytes for number, storage in enumerate(schedule.recording.storages)
                            for life in storage.lives if life[0] < 0 and number not in apart.numbers)


class _Copy:
    __slots__ = ("n_bytes", "n_holders", "is_own")

    def __init__(self, n_bytes, is_own):
        self.n_bytes, self.n_holders, self.is_own = n_bytes, 1, is_own


class _Apart:
    """Whether what may leave by itself is there, in `peak`."""

    def __init__(self, schedule):
        recording = schedule.recording
        self._storages, self._uses = recording.storages, recording.uses
        self.numbers = {*recording.uses, *schedule.away}
        self._absent, self._alive = set(schedule.away), {n for n in self.numbers if self._storages[n].lives[0][0] < 0}
        self.live = sum(self._storages[number].n_bytes for number in self._alive - self._absent)

    def begin(self, number):
        self._alive.add(number)
        self.live += self._storages[number].n_bytes

    def end(self, number):
        self._alive.remove(number)
        if number not in self._absent:
            self.live -= self._storages[number].n_bytes

    def leave(self, number):
        if number in self._alive and number not in self._absent:
            self._absent.add(number)
            self.live -= self._storages[number].n_bytes

    def come(self, numbers):
        for number in numbers:
            if number in self._absent and number in self._alive:
                self._absent.remove(number)
                self.live += self._storages[number].n_bytes


def peak(schedule):
    """The most bytes of storages and inside of operators at once when a step follows the schedule."""
    return _follow(schedule)[0]


def live_bytes(schedule):
    """What is there after each entry of a step that follows the schedule."""
    return _follow(schedule)[1]


def spare_bytes(schedule):
    """How much a step may make after its last moment, when it is not compared any more, without more than the peak."""
    recording = schedule.recording
    most, after = _follow(schedule)
    end = after[recording.last_use] if recording.last_use >= 0 else first_bytes(schedule)
    change = defaultdict(int)  # by what the recorded step makes then; it may have less of other things by that time
    for storage in recording.storages:
        for begin, gone, _ in storage.lives:
            if begin > recording.last_use:
                change[begin] += storage.n_bytes
                change[len(recording.entries) if gone is None else gone] -= storage.n_bytes
    return max([most - end, *itertools.accumulate(change[i] for i in sorted(change))])


def _follow(schedule):
    """The peak, and what is there after each entry."""
    if schedule.course is None:
        schedule.course = _course(schedule)
    return schedule.course


def _course(schedule):
    recording, apart = schedule.recording, _Apart(schedule)
    storages, entries = recording.storages, recording.entries
    starts, ends, backs, apart_ends = defaultdict(list), defaultdict(list), {}, defaultdict(list)
    referred = {number for i in schedule.captured for number in entries[i].versions if not recording.is_held(number)}
    for number, storage in enumerate(storages):
        if number in apart.numbers:
            if number not in referred:
                apart_ends[storage.lives[0][1]].append(number)
            starts[storage.lives[0][0]].append((number, None))
            continue
        for life in storage.lives:
            if life[1] is not None and number not in referred:  # which live to the end of the step
                ends[life[1]].append(life)
            if life[2]:
                backs[life[0], number] = life
            elif life[0] >= 0:
                starts[life[0]].append((number, life))
    before = [(life, storage.n_bytes) for number, storage in enumerate(storages) for life in storage.lives
              if life[0] < 0 and number not in apart.numbers]
    natural = {id(life): [_Copy(n_bytes, False)] for life, n_bytes in before}
    live = sum(n_bytes for _, n_bytes in before)
    most, after = live + apart.live, []
    held, last_back, saved = {}, {}, defaultdict(list)
    for entry in entries:
        if entry.kind == PACK and entry.storage is not None:
            saved[entry.storage].append(entry)
            ends[entry.gone].append(entry)

    def release(copy):
        nonlocal live
        copy.n_holders -= 1
        if copy.n_holders == 0:
            live -= copy.n_bytes

    def act(kind, target, i):
        nonlocal live, most
        if kind == planning.DROP and target in apart.numbers:
            apart.leave(target)
        elif kind == planning.IN and target in apart.numbers:
            apart.come([target])
        elif kind in (planning.DROP, LAST_DROP):
            copy = held.pop(target, None)
            for entry in saved[target] if kind == LAST_DROP and copy is not None else ():
                if entry.gone is None or entry.gone > i:  # autograd keeps it
                    natural[id(entry)] = [copy]
                    copy.n_holders += 1
            if copy is not None:
                release(copy)
        elif kind == planning.IN:
            held[target] = _Copy(storages[target].n_bytes, True)
            live += storages[target].n_bytes
        elif kind == planning.AGAIN:
            passing = 0
            for number in entries[target].updates:
                if number in held and not held[number].is_own:
                    held[number].is_own, passing = True, passing + storages[number].n_bytes
            apart.come(entries[target].versions)
            for _, number in entries[target].births:
                if number in held:
                    passing += storages[number].n_bytes
                else:
                    held[number] = _Copy(storages[number].n_bytes, True)
                    live += storages[number].n_bytes
            most = max(most, live + apart.live + passing + entries[target].inside_bytes + entries[target].random_bytes)
        most = max(most, live + apart.live)

    for i, entry in enumerate(entries):
        for life in ends[i]:
            for copy in natural.pop(id(life), ()):
                release(copy)
        for number in apart_ends[i]:
            apart.end(number)
        for action in schedule.before.get(i, ()):
            act(*action, i)
        if i in schedule.captured:
            live += entry.random_bytes
        if recording.uses and entry.kind in (OP, TOUCH):
            apart.come(entry.versions)
            most = max(most, live + apart.live)
        for number, life in starts[i]:
            if life is None:
                apart.begin(number)
                continue
            copy = _Copy(storages[number].n_bytes, False)
            natural[id(life)] = [copy]
            live += copy.n_bytes
            if entry.kind == OP and recording.is_held(number):
                held[number] = copy
                copy.n_holders += 1
        if entry.kind == UNPACK and entry.storage is not None:
            number = entry.storage
            life = backs.get((i, number)) or last_back.get(number)
            copy = held.get(number)
            if life is not None and copy is not None and (life[1] is None or life[1] > i):
                copies = natural.setdefault(id(life), [])
                if copy not in copies:
                    copies.append(copy)
                    copy.n_holders += 1
                last_back[number] = life
        most = max(most, live + apart.live + entry.inside_bytes)
        live += entry.kept_bytes
        for number in entry.updates if not entry.is_backward and i <= recording.last_unpack else ():
            if number in held and held[number].is_own:  # the program writes its own storage, which is held from now on
                own = next((natural[id(life)][0] for life in storages[number].lives
                            if not life[2] and id(life) in natural), None)
                if own is not None:
                    release(held[number])
                    own.n_holders += 1
                    held[number] = own
        for action in schedule.after.get(i, ()):
            act(*action, i)
        after.append(live + apart.live)
    return most, after
