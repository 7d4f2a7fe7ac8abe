# SPDX-License-Identifier: Apache-2.0
"""Schedules that keep a budget: libebb plans a recorded step until the peak fits, which is followed storage by storage."""
import os

from .. import planning
from ._layout import ESTIMATED, MEASURED, NONE, Layout
from ._recording import NOTHING, STATES
from ._schedule import peak, plain

_POLICIES = "budget", "best"
_QUICK_TRIES, _TRIES = 12, 3  # of budgets for the plan, until the peak is below the budget
_ROOMIER, _CLEARLY = (1.02, 1.05, 1.1), 0.96  # of the least budget, of the time within it
_NEAR = 1.02  # times as long a plan may take in which less leaves by itself: the backward pass is then not looked at


def n_search_threads():
    """How many threads a search for a plan takes while a program waits for it."""
    return min(4, os.cpu_count() or 1)


class Fit:
    """A schedule that keeps a budget: its peak, and the plan that it follows (None: nothing leaves)."""

    excess_bytes = layout = 0

    def __init__(self, schedule, peak_bytes, plan):
        self.schedule, self.peak_bytes, self.plan = schedule, peak_bytes, plan

    def timed(self, layout, machine):
        """With the times of a layout, if its plan was made without: no plan is faster than all steps once."""
        if self.plan is not None:
            self.plan.time(layout.program, machine)
            self.plan.bound_ns = layout.steps_ns
        return self


def fit(recording, budget_bytes, machine, tier_bytes, effort, n_threads=1, outside_bytes=0):
    """The fastest schedule that is found whose peak is at most the budget, less what lies outside of the step's storages.
    planning.NoFit names the least."""
    without = plain(recording)
    bytes_without = peak(without)
    room_bytes = budget_bytes - outside_bytes
    if bytes_without <= room_bytes:
        return Fit(without, bytes_without, None)
    layouts = layouts_of(recording)
    found = None
    if layouts[0].steps:  # else it is a backward pass of which nothing may leave
        found = _fastest(recording, layouts, room_bytes, machine, tier_bytes, effort, n_threads)
    if found is not None:
        return found
    tight = [one.timed(layouts[one.layout], machine) for one in _tight(recording, tier_bytes)]
    found = [one for one in tight if one.peak_bytes <= room_bytes]
    if found:
        return min(found, key=_time)
    least = min([Fit(without, bytes_without, None), *tight], key=lambda one: one.peak_bytes)
    error = planning.NoFit(f"ebb: no plan keeps this step within {budget_bytes} bytes", least.peak_bytes + outside_bytes)
    if least.plan is not None and not tier_bytes:  # where something moves, less memory seldom takes longer
        error.roomier = _roomier(layouts, least, bytes_without, machine, outside_bytes)
    raise error


def _roomier(layouts, least, bytes_without, machine, outside_bytes):
    """A budget a little above the least with which a step takes clearly less time: (bytes, by which its time is multiplied), or
    None."""
    for share in _ROOMIER:
        room_bytes = int(share * least.peak_bytes)
        found = fitted(layouts, room_bytes, machine, {}, 0) if room_bytes < bytes_without else None
        if found is not None and _time(found) <= _CLEARLY * _time(least):
            return room_bytes + outside_bytes, _time(found) / _time(least)
    return None


def _time(fit):
    return fit.plan.iteration_ns


def _fastest(recording, layouts, *asked):
    """Three kinds of plans are made: one moves only what autograd saves, one the optimizer's state too, one everything. Gives the
    first that is near the fastest. None: there is no plan."""
    found = []
    for part in (recording.of(NOTHING), recording.of(STATES)) if recording.is_whole else ():
        light = fitted(layouts_of(part), *asked) if part.uses or not found else None
        if light is not None and light.plan.iteration_ns <= _NEAR * layouts[0].steps_ns:
            return light  # whatever the others are
        found.append(light)
    found = [one for one in (*found, fitted(layouts, *asked)) if one is not None]
    least_ns = min((one.plan.iteration_ns for one in found), default=0)
    return next((one for one in found if one.plan.iteration_ns <= _NEAR * least_ns), None)


def layouts_of(recording, times=MEASURED):
    """The layouts of a recording, the fastest one first."""
    return [Layout(recording, times, lets_go) for lets_go in ((False, True) if recording.leftovers() else (False,))]


def fitted(layouts, budget_bytes, machine, tier_bytes, effort, n_threads=1, excess_bytes=0):
    """The fastest schedule of a plan that the search finds whose peak is at most the budget; None: it finds none.
    excess_bytes: by how much peaks are expected to be above what the plan says, as `Fit.excess_bytes` of another budget."""
    found = (_fitted(layout, budget_bytes, machine, tier_bytes, effort, n_threads, excess_bytes) for layout in layouts)
    return next((fit for fit in found if fit is not None), None)


def _fitted(layout, budget_bytes, machine, tier_bytes, effort, n_threads, excess_bytes):
    """Quick plans find out by how much the peak will be above what a plan says, and the least that a plan can be asked for;
    then there are few long searches."""
    tries = _Tries(layout, budget_bytes, machine, tier_bytes, n_threads, excess_bytes)
    quick = tries.fit(0, _QUICK_TRIES)
    if quick is None or effort == 0:
        return quick
    long = tries.fit(effort, _TRIES)
    return min((fit for fit in (long, quick) if fit is not None), key=_time)


class _Tries:
    """Plans with less and less, until the peak is below the budget. _least: no plan can be asked for less."""

    def __init__(self, layout, budget_bytes, machine, tier_bytes, n_threads, excess_bytes):
        self._layout, self._budget, self._machine, self._tiers = layout, budget_bytes, machine, tier_bytes
        self._n_threads, self._excess, self._least = n_threads, excess_bytes, 1

    def fit(self, effort, n_tries):
        """A schedule that keeps the budget, or None."""
        last = None  # of the plan before: its peak
        for _ in range(n_tries):
            aim = max(self._least, self._budget - self._layout.base_bytes - self._excess)
            try:
                found = self._planned(aim, effort)
            except planning.NoFit as error:
                # A step of the program is all that happens up to the next one, so it may seem to need more than it does.
                if not error.least_budget_bytes:
                    return None
                aim = self._least = error.least_budget_bytes
                found = self._planned(aim, effort)
            if found.peak_bytes <= self._budget:
                return found
            if aim == self._least:
                return None
            step = found.peak_bytes - self._budget
            if found.plan.peak_bytes == last:  # which would be found again for whatever is not below it
                step = max(step, aim - last + 1)
            self._excess, last = self._excess + step, found.plan.peak_bytes
        return None

    def _planned(self, aim_bytes, effort):
        plan = self._layout.program.plan(aim_bytes, self._machine, self._tiers, effort=effort, n_threads=self._n_threads)
        plan.bound_ns = max(plan.bound_ns, self._layout.steps_ns)  # the plan's may be for round figures in place of times
        found = _followed(self._layout, plan)
        found.excess_bytes = self._excess
        return found


def _followed(layout, plan):
    schedule = layout.schedule(plan)
    return Fit(schedule, peak(schedule), plan)


def tightest(recording, tier_bytes, bytes_without, policies=_POLICIES):
    """The least peak that is found."""
    found = _tight(recording, tier_bytes, policies)
    return min([Fit(plain(recording), bytes_without, None), *found], key=lambda one: one.peak_bytes)


def _tight(recording, tier_bytes, policies=_POLICIES):
    """Schedules that need little. They do not depend on measured times, so a budget that they keep can be kept next time."""
    found = []
    for times in (NONE, ESTIMATED):
        for number, layout in enumerate(layouts_of(recording, times)):
            for policy in policies if layout.steps else ():
                fit = _least(layout, tier_bytes, policy) if times == NONE or policy == "best" else None
                if fit is not None:  # the times make no difference to the other policy
                    fit.layout = number
                    found.append(fit)
    return found


def _least(layout, tier_bytes, policy):
    least = 1
    for _ in range(2):  # the first is refused, and told the least
        try:
            return _followed(layout, layout.program.plan(least, planning.Machine(), tier_bytes, policy, effort=0))
        except planning.NoFit as error:
            least = error.least_budget_bytes
    return None
