# SPDX-License-Identifier: Apache-2.0
"""The plans of a `Budget`, and which of them serves a step.

When a step begins, only its key is known: how many bytes of gradients and of optimizer state are there. Its first moment
tells the first operator and the shapes of its tensors. A plan also serves steps with smaller tensors than the recorded
one (_sizes.py). So where sizes vary there is a plan for the largest step so far, and there may be some for much smaller ones, which
are faster.
"""
from . import _schedule, _sizes

_SMALLER, _SLOWER = 1.5, 1.02  # how many times smaller a step with a plan of its own is; how much slower a slow plan is than none


class Planned:
    """A recorded step with what was planned for it. key: what it began with. outside_bytes: what a card's allocator has given
    beside tensors; the plan's budget is smaller by that, and the peaks that are told are larger. more_bytes: what the first
    step that followed found beside what it owns, more than the recorded one; the plan's budget is smaller by that, too.
    early_bytes: of gradients with which a step begins, but which were gone when its recording began, at the first moment."""

    def __init__(self, fit, plain_bytes, budget_bytes, key, outside_bytes, early_bytes):
        self.plain_bytes, self.budget_bytes = plain_bytes, budget_bytes
        self.outside_bytes, self.early_bytes, self.more_bytes = outside_bytes, early_bytes, 0
        self.take(fit)
        self.key, self.step_s, self.peak_measured_bytes, self.n_followed, self.n_lost, self.n_mended = key, None, None, 0, 0, 0

    def take(self, fit):
        self.recording, self.fit, self.spare_bytes = fit.schedule.recording, fit, _schedule.spare_bytes(fit.schedule)
        self.structure = _sizes.structure(self.recording)

    @property
    def peak_bytes(self):
        return self.fit.peak_bytes + self.outside_bytes + self.more_bytes

    def is_slow_for(self, known_by):
        """Whether a plan of its own may be much faster for a step with this first moment."""
        plain_ns = sum(entry.ns for entry in self.recording.entries)
        return self.fit.plan is not None and self.fit.plan.iteration_ns > _SLOWER * plain_ns and \
            _sizes.shrinkage(self.recording, known_by) >= _SMALLER

    def may_grow_for(self, known_by, gradient_bytes, can_record):
        """Whether a step with this first moment may be followed though it is larger: no more are recorded, or it does not seem to
        need a plan either."""
        return _sizes.begins_alike(self.recording, known_by, gradient_bytes) and (not can_record or self.fit.plan is None and
            self.plain_bytes * _sizes.growth(self.recording, known_by) <= self.budget_bytes)

    def replaces(self, other):
        """Whether this serves all steps that another one of the same key does. One for much smaller steps is faster, and stays."""
        if other.recording.is_start_of(self.recording):
            return True
        return self.structure == other.structure and self.plain_bytes < _SMALLER * other.plain_bytes and \
            _sizes.is_within(other.recording, self.recording)


def _largest(found):
    return max(found, key=lambda planned: planned.plain_bytes, default=None)


class Plans:
    """In the order in which they were made."""

    def __init__(self):
        self._all = []

    def __len__(self):
        return len(self._all)

    def __iter__(self):
        return iter(self._all)

    def of(self, key):
        return [planned for planned in self._all if planned.key == key]

    def likely(self, key, last):
        """For a step of which only the key is known: as the last one or else as the newest plan's, but the largest. None: there
        is none."""
        found = self.of(key)
        like = last if last in found else found[-1] if found else None
        return self.largest(key, like.structure) if like is not None else None

    def largest(self, key, structure):
        return _largest(planned for planned in self.of(key) if planned.structure == structure)

    def serving(self, key, known_by, gradient_bytes, last):
        """For a step with this first moment: one for just such steps, like the last one if there is the choice, or else the one for
        the smallest that are larger. None: there is none."""
        just = [planned for planned in self.of(key) if planned.recording.begins_with(known_by, gradient_bytes)]
        if just:
            like = last if last in just else just[-1]
            return _largest(planned for planned in just if planned.structure == like.structure)
        larger = [planned for planned in self.of(key) if _sizes.serves(planned.recording, known_by, gradient_bytes)]
        return min(larger, key=lambda one: (_sizes.shrinkage(one.recording, known_by), one.plain_bytes), default=None)

    def longer(self, key, recording):
        """One for steps of which this is the start, which serves it as well; or None."""
        return next((planned for planned in self.of(key) if recording.is_start_of(planned.recording)), None)

    def add(self, planned):
        self._all = [one for one in self._all if one.key != planned.key or not planned.replaces(one)] + [planned]

    def remove(self, planned):
        self._all.remove(planned)
