# SPDX-License-Identifier: Apache-2.0
"""Programs built in Python, and their plans: include/ebb/program.h and plan.h, whose words are used here.

    program = Program("a chain")
    x = program.tensor("x", 4096)
    program.step("layer", writes=[x], time_ns=1000)
    plan = program.plan(budget_bytes=1 << 20, machine=Machine())
    for kind, target, tier, held in plan.actions: ...

Everything is computed by libebb.
"""
import collections
import ctypes
import os
from ctypes import byref, c_size_t, c_uint32

from . import _interrupts, _lib

RUN, AGAIN, OUT, IN, MOVE, DROP = range(6)  # kinds of actions
EXACT, OTHER_BITS, NEVER = range(3)  # how a step can be repeated
DEVICE, HOST, DISK = range(3)  # tiers of every machine
READ, WRITE, UPDATE = 1, 2, 3
NO_LIMIT = (1 << 64) - 1

Action = collections.namedtuple("Action", ("kind", "target", "tier", "held"))


class NoFit(ValueError):
    """No plan keeps the budget. least_budget_bytes: one that has a plan; 0: not known. roomier: if a budget that is a little
    larger saves much time, (its bytes, its time over that of the least); None: not known."""

    roomier = None

    def __init__(self, message, least_budget_bytes):
        super().__init__(message)
        self.least_budget_bytes = least_budget_bytes


class Machine:
    """What a plan is made for: a machine file (docs/machine-format.md), or round figures of a desktop."""

    def __init__(self, path=None):
        self._handle, self.is_nominal = None, path is None
        library = _lib.lib()
        self._handle = _lib.create(library.ebb_machine_load, None, os.fsencode(path)) if path is not None else \
            _lib.create(library.ebb_machine_create, None)

    def set_link(self, tier, out_bytes_per_s, in_bytes_per_s, latency_ns):
        """How fast the device's bytes go to a tier and come back, as measured."""
        link = _lib.Link()
        if not _lib.lib().ebb_machine_link(self._handle, DEVICE, tier, byref(link)):
            raise ValueError(f"ebb: the machine has no way to tier {tier}")
        link.out.bytes_per_s, link.into.bytes_per_s = out_bytes_per_s, in_bytes_per_s
        link.out.latency_ns = link.into.latency_ns = latency_ns
        _lib.check(_lib.lib().ebb_machine_set_link(self._handle, byref(link)))

    def capacity_bytes(self, tier):
        """What a tier holds; None: it is not known."""
        topology = _lib.lib().ebb_machine_topology(self._handle).contents
        n_bytes = topology.tier[tier].capacity_bytes if tier < topology.n_tiers else NO_LIMIT
        return None if n_bytes == NO_LIMIT else n_bytes

    def step_ns(self, flops, traffic_bytes):
        """How long a step takes that was not measured, by the machine's rates."""
        choice = _lib.Choice(None, 0, 0, 0, flops, traffic_bytes)
        return _lib.lib().ebb_machine_step_time_ns(self._handle, byref(choice))

    def __del__(self):
        if self._handle is not None:
            _lib.lib().ebb_machine_destroy(self._handle)


class Program:
    def __init__(self, name, alignment_bytes=1):
        self._handle = None
        self._handle = _lib.create(_lib.lib().ebb_program_create, None, name.encode(), alignment_bytes)
        self._is_finished = False

    def __del__(self):
        if self._handle is not None:
            _lib.lib().ebb_program_destroy(self._handle)

    def tensor(self, name, size_bytes, role=9, persistent=False, kept=False):
        """The number of a new tensor. role: of ebb.trace."""
        number = c_uint32()
        told = _lib.Tensor(name.encode(), size_bytes, role, 0, persistent, kept, 0)
        _lib.check(_lib.lib().ebb_program_add_tensor(self._handle, byref(told), byref(number)))
        return number.value

    def step(self, name, reads=(), writes=(), updates=(), phase=3, repeat=NEVER, scratch_bytes=0, time_ns=1, flops=0,
             traffic_bytes=0, copies_in=False):
        """With flops or traffic_bytes the machine says how long the step takes, else time_ns. copies_in: it only copies from
        the host, which an engine for copies does beside computing."""
        accesses = [(tensor, mode) for mode, those in ((READ, reads), (WRITE, writes), (UPDATE, updates))
                    for tensor in those]
        array = (_lib.Access * max(1, len(accesses)))(*accesses)
        choice = _lib.Choice(b"recorded", scratch_bytes, 0, 0 if flops or traffic_bytes else max(1, time_ns), flops,
                              traffic_bytes, copies_in)
        text = name.encode()
        told = _lib.Step(text, text, phase, repeat, len(accesses), 1, 0, 0)
        _lib.check(_lib.lib().ebb_program_add_step(self._handle, byref(told), array, byref(choice)))

    def keep_order(self):
        """No plan may run the steps in another order than this one: what they use does not tell all that they depend on."""
        _lib.check(_lib.lib().ebb_program_keep_order(self._handle))

    def _finish(self):
        if not self._is_finished:
            _lib.check(_lib.lib().ebb_program_finish(self._handle))
            self._is_finished = True

    def save(self, path):
        """Write the program file (docs/program-format.md), which `ebb plan` reads."""
        self._finish()
        _lib.check(_lib.lib().ebb_program_save(self._handle, os.fsencode(path)))

    def plan(self, budget_bytes, machine, tier_bytes=None, policy="best", effort=1, n_threads=1, no_recompute=False,
             margin=0):
        """A plan. tier_bytes: {tier: how much it may hold}; a tier that is not named holds nothing. margin: the share by which
        copies may be late (docs/best.md)."""
        self._finish()
        options = _lib.PlanOptions(size_bytes=ctypes.sizeof(_lib.PlanOptions), policy=policy.encode(),
                                   budget_bytes=budget_bytes, algorithms=b"given", effort=effort, n_threads=n_threads,
                                   no_recompute=no_recompute, no_parts=True, slowdown=-1, margin=margin)
        for tier, n_bytes in (tier_bytes or {}).items():
            options.tier_bytes[tier] = n_bytes
        handle, no_fit = ctypes.c_void_p(), _lib.NoFit()
        stop = _lib.Stop(lambda _: _interrupts.is_waiting())
        options.stop = ctypes.cast(stop, ctypes.c_void_p)
        with _interrupts.watched(), _interrupts.held():  # a signal ends the search, and is handled then
            status = _lib.lib().ebb_plan_make(self._handle, machine._handle, byref(options), byref(handle), byref(no_fit))
        if status == _lib.E_NO_FIT:
            raise NoFit(_lib.last_error(), no_fit.least_budget_bytes)
        _lib.check(status)
        return Plan(self, machine, handle)


class Plan:
    """actions: each an Action, in the plan's order: its kind; target, the step or tensor; tier; held, whether a copy waits for
    what is computed before it in the list, and not only for its bytes. Tensors are copied and dropped as a whole."""

    def __init__(self, program, machine, handle):
        self._program, self._machine, self._handle = program, machine, handle
        library, n = _lib.lib(), c_size_t()
        actions = library.ebb_plan_actions(handle, byref(n))
        self.actions = [Action(a.kind, a.target, a.tier, a.held) for a in actions[:n.value]]
        summary = library.ebb_plan_get_summary(handle)
        self.peak_bytes, self.tier_bytes = summary.peak_bytes, list(summary.tier_bytes)
        self.moved_out_bytes, self.n_recomputed_steps = summary.moved_out_bytes, summary.n_recomputed_steps
        self.bound_ns, self.bound_bytes = summary.certificate.bound_ns, summary.certificate.bound_bytes
        self.time(program, machine)

    def time(self, program, machine):
        """Predict the times anew, for a program that differs from the plan's in its times only, on a machine."""
        program._finish()
        times = _lib.Timeline()
        _lib.check(_lib.lib().ebb_plan_simulate(program._handle, self._handle, machine._handle, byref(times), None, None))
        self.iteration_ns, self.again_ns = times.iteration_ns, times.again_ns

    def save(self, path):
        """Write the plan file (docs/plan-format.md)."""
        _lib.check(_lib.lib().ebb_plan_save(self._handle, os.fsencode(path)))

    def __del__(self):
        _lib.lib().ebb_plan_destroy(self._handle)
