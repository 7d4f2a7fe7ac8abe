# SPDX-License-Identifier: Apache-2.0
"""Schedules that keep a budget: libebb plans a recorded step until the peak fits, which is followed storage by storage."""
from .. import planning
from ._layout import Layout
from ._recording import NOTHING, STATES
from ._schedule import peak, plain

_QUICK_TRIES, _TRIES = 12, 3  # of budgets for the plan, until the peak is below the budget
_NEAR = 1.02  # times as long a plan may take in which less leaves by itself: the backward pass is then not looked at


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
    found = tightest(recording, tier_bytes, bytes_without)
    if found.peak_bytes <= room_bytes:
        return found.timed(layouts[found.layout], machine)
    raise planning.NoFit(f"ebb: no plan keeps this step within {budget_bytes} bytes",
                         found.peak_bytes + outside_bytes)


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


def layouts_of(recording, is_timed=True):
    """The layouts of a recording, the fastest one first."""
    return [Layout(recording, is_timed, lets_go) for lets_go in ((False, True) if recording.leftovers() else (False,))]


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
    return min((fit for fit in (long, quick) if fit is not None), key=lambda fit: fit.plan.iteration_ns)


class _Tries:
    """Plans with less and less, until the peak is below the budget. _least: no plan can be asked for less."""

    def __init__(self, layout, budget_bytes, machine, tier_bytes, n_threads, excess_bytes):
        self._layout, self._budget, self._machine, self._tiers = layout, budget_bytes, machine, tier_bytes
        self._n_threads, self._excess, self._least = n_threads, excess_bytes, 1

    def fit(self, effort, n_tries):
        """A schedule that keeps the budget, or None."""
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
            self._excess += found.peak_bytes - self._budget
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


def tightest(recording, tier_bytes, bytes_without, policies=("budget", "best")):
    """The least peak that is found. It does not depend on times, so a budget that it names can be kept next time."""
    found = Fit(plain(recording), bytes_without, None)
    for number, layout in enumerate(layouts_of(recording, is_timed=False)):
        for policy in policies if layout.steps else ():
            fit = _least(layout, tier_bytes, policy)
            if fit is not None and fit.peak_bytes < found.peak_bytes:
                found, found.layout = fit, number
    return found


def _least(layout, tier_bytes, policy):
    least = 1
    for _ in range(2):  # the first is refused, and told the least
        try:
            return _followed(layout, layout.program.plan(least, planning.Machine(), tier_bytes, policy, effort=0))
        except planning.NoFit as error:
            least = error.least_budget_bytes
    return None
