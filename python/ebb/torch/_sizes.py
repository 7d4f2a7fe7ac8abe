# SPDX-License-Identifier: Apache-2.0
"""Steps that do the same as a recorded one with tensors of other sizes: sequences of other lengths, a last batch.

A plan says when a tensor leaves and comes back, not how large it is. So it can also be followed in a step with the same operators
and other sizes, and no bit depends on it. It keeps its budget if the tensors are no larger than the recorded ones. If some turn out
to be larger, the plan is made anew for a step that is as large in each of its parts as what was seen.

That an operator gives the same bits when it runs again was seen at the recorded sizes. On a card its algorithm may be another one
at other sizes, so there this holds only if PyTorch was told to be deterministic.
"""
import copy
import functools
import itertools
import math

import torch

from ._recording import Recording


def are_alike(shapes, others):
    """Whether two calls of an operator (`shapes_of`) may differ in sizes only. The numbers that it is given, as the length of a
    part, may be any."""
    return (torch.are_deterministic_algorithms_enabled() or not _has_card()) and len(shapes) == len(others) and all(
        type(a) is type(b) and (type(a) is not torch.Size or len(a) == len(b)) for a, b in zip(shapes, others))


def within(shapes, most):
    """Whether the tensors of a call are no larger than those of another one; of one that takes no tensors, what it makes."""
    return are_alike(shapes, most) and all(mine <= others for mine, others in _sizes(shapes, most))


def _sizes(shapes, others):
    kind = torch.Size if any(isinstance(shape, torch.Size) for shape in shapes) else tuple
    return [(math.prod(a), math.prod(b)) for a, b in zip(shapes, others) if isinstance(a, kind)]


_has_card = functools.lru_cache(None)(torch.cuda.is_available)


def begins_alike(recording, known_by, gradient_bytes):
    """Whether a step whose first moment is this one may be one like the recorded one, of any size."""
    first = recording.first
    return first is not None and known_by[:2] == (first.kind, first.func) and are_alike(known_by[2], first.shapes) and \
        first.gradient_bytes in (None, gradient_bytes)


def serves(recording, known_by, gradient_bytes):
    """Whether a step whose first moment is this one may be one like the recorded one, but smaller."""
    return begins_alike(recording, known_by, gradient_bytes) and within(known_by[2], recording.first.shapes)


def shrinkage(recording, known_by):
    """How many times the most that any tensor of a step's first moment is smaller than the recorded one."""
    return _most_times((most, mine) for mine, most in _sizes(known_by[2], recording.first.shapes))


def growth(recording, known_by):
    """How many times the most that any tensor of a step's first moment is larger than the recorded one."""
    return _most_times(_sizes(known_by[2], recording.first.shapes))


def _most_times(pairs):
    return max((a / max(1, b) for a, b in pairs), default=1)


def structure(recording):
    """What two recordings have in common if they differ in sizes and times only."""
    return recording.n_optimizer_steps, *((entry.kind, entry.func, entry.is_backward, tuple(used))
                                          for entry, used in _uses(recording))


def _uses(recording):
    """Each entry with the storages that it uses, numbered in the order of their first use."""
    order = {}
    for entry in _entries(recording):
        yield entry, [order.setdefault(number, len(order)) for number in _used(entry)]


def _entries(recording):
    """From the first that makes something: a recording that begins with a step's first moment has no views before it."""
    return itertools.dropwhile(lambda entry: entry.is_view, recording.entries)


def _used(entry):
    return *entry.versions, *(number for _, number in entry.births)


def is_within(recording, other):
    """Whether no storage of a recording is larger than that of another one of the same structure."""
    return all(mine.n_bytes <= others.n_bytes for mine, others in _pairs(recording, other).values())


def _pairs(recording, other):
    """{number in a recording: its storage, and that of another recording of the same structure}"""
    return {a: (recording.storages[a], other.storages[b]) for mine, others in zip(_entries(recording), _entries(other))
            for a, b in zip(_used(mine), _used(others))}


def enclosing(recording, other):
    """A recording of a step in which nothing is smaller than in either. None: that is one of them, or their storages do not live
    alike."""
    pairs = _pairs(recording, other)
    if len(recording.entries) != len(other.entries) or not all(_live_alike(*pair) for pair in pairs.values()) or \
            is_within(recording, other) or is_within(other, recording):
        return None
    storages = [_larger_storage(*pairs[number]) if number in pairs else storage
                for number, storage in enumerate(recording.storages)]
    entries = [_larger_entry(*pair) for pair in zip(recording.entries, other.entries)]
    return Recording(entries, storages, recording.again_ns, n_optimizer_steps=recording.n_optimizer_steps)


def grown(recording, larger):
    """A recording of a step in which these storages have more bytes ({storage: bytes}). What was not seen, because it is the
    backward pass's or lies within an operator, is taken to grow as much as the one that grew most; gradients do not."""
    share = max(n_bytes / recording.storages[number].n_bytes for number, n_bytes in larger.items())
    storages = [copy.copy(storage) for storage in recording.storages]
    for number, storage in enumerate(storages):
        is_backward = storage.maker is not None and recording.entries[storage.maker].is_backward
        is_left = storage.lives[-1][1] is None
        storage.n_bytes = larger.get(number, math.ceil(share * storage.n_bytes) if is_backward and not is_left else storage.n_bytes)
    entries = [_grown_entry(entry, share) for entry in recording.entries]
    return Recording(entries, storages, recording.again_ns, n_optimizer_steps=recording.n_optimizer_steps)


def _live_alike(a, b):
    return (a.maker, a.first_owner, a.last_owner) == (b.maker, b.first_owner, b.last_owner) and \
        [(life[0], life[2]) for life in a.lives] == [(life[0], life[2]) for life in b.lives]


def _larger_storage(a, b):
    storage = copy.copy(a)
    storage.n_bytes = max(a.n_bytes, b.n_bytes)
    storage.lives = [[begin, None if None in (end, others[1]) else max(end, others[1]), is_back]
                     for (begin, end, is_back), others in zip(a.lives, b.lives)]
    storage.is_hidden, storage.is_shared = a.is_hidden or b.is_hidden, a.is_shared or b.is_shared
    return storage


_GROWING = "ns", "estimated_ns", "inside_bytes", "kept_bytes"  # what an entry has more of, if its tensors are larger


def _grown_entry(entry, share):
    found = copy.copy(entry)
    for name in _GROWING:
        setattr(found, name, math.ceil(share * getattr(entry, name)))
    return found


def _numel(shape):
    """-1: a nested tensor's, of which some sizes are none."""
    return math.prod(shape) if all(type(n) is int for n in shape) else -1


def _larger_entry(a, b):
    entry = copy.copy(a)
    for name in _GROWING:
        setattr(entry, name, max(getattr(a, name), getattr(b, name)))
    entry.is_exact = a.is_exact and b.is_exact
    if a.shapes is not None:
        entry.shapes = [max(pair, key=_numel) if isinstance(pair[0], torch.Size) else pair[0]
                        for pair in zip(a.shapes, b.shapes)]
    entry.gone = None if None in (a.gone, b.gone) else max(a.gone, b.gone)
    return entry
