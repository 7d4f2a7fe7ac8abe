# SPDX-License-Identifier: Apache-2.0
"""libebb through ctypes: the functions and structs of include/ebb that Python needs, and where the library is found.

Classes and fields have the names of the headers: class NoFit is ebb_no_fit. tests/e2e/c_layout.py compares them."""
import ctypes
import ctypes.util
import os
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_size_t, c_uint8, c_uint16, c_uint32, \
    c_uint64, c_void_p

MAX_TIERS, MAX_ENGINES, NAME_BYTES = 8, 16, 32
OK, E_NO_FIT = 0, -3


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("size_bytes", c_uint64), ("role", c_uint32), ("marks", c_uint32),
                ("persistent", c_bool), ("kept", c_bool), ("released", c_uint32)]


class Access(Structure):
    _fields_ = [("tensor", c_uint32), ("mode", c_uint32)]


class Choice(Structure):
    _fields_ = [("name", c_char_p), ("scratch_bytes", c_uint64), ("key", c_uint64), ("time_ns", c_uint64),
                ("flops", c_double), ("traffic_bytes", c_double), ("copies_in", c_bool)]


class Step(Structure):
    _fields_ = [("name", c_char_p), ("kind", c_char_p), ("phase", c_uint32), ("repeat", c_uint32),
                ("n_accesses", c_uint32), ("n_choices", c_uint32), ("first_access", c_uint64),
                ("first_choice", c_uint64)]


class Way(Structure):
    _fields_ = [("bytes_per_s", c_double), ("latency_ns", c_uint64), ("engine", c_uint32)]


class Link(Structure):
    _fields_ = [("near", c_uint32), ("far", c_uint32), ("out", Way), ("into", Way), ("both_rate", c_double),
                ("work_rate", c_double * 2), ("copy_rate", c_double * 2)]


class Tier(Structure):
    _fields_ = [("name", c_char * NAME_BYTES), ("store", c_uint32), ("capacity_bytes", c_uint64)]


class Topology(Structure):
    _fields_ = [("n_tiers", c_uint32), ("n_engines", c_uint32), ("tier", Tier * MAX_TIERS),
                ("engine", c_char * NAME_BYTES * MAX_ENGINES), ("way", c_uint8 * MAX_TIERS * MAX_TIERS)]


class Progress(Structure):
    _fields_ = [("tell", c_void_p), ("ctx", c_void_p)]


Stop = ctypes.CFUNCTYPE(c_bool, c_void_p)


class PlanOptions(Structure):
    _fields_ = [("size_bytes", c_size_t), ("mem", c_void_p), ("policy", c_char_p), ("budget_bytes", c_uint64),
                ("tier_bytes", c_uint64 * MAX_TIERS), ("algorithms", c_char_p), ("granule_bytes", c_uint64),
                ("effort", c_uint32), ("no_recompute", c_bool), ("as_coded", c_bool), ("n_threads", c_uint32),
                ("slowdown", c_double), ("margin", c_double), ("progress", Progress),
                ("stop", c_void_p), ("stop_ctx", c_void_p), ("no_parts", c_bool)]


class NoFit(Structure):
    _fields_ = [("least_budget_bytes", c_uint64), ("step", c_uint32), ("step_bytes", c_uint64),
                ("least_host_bytes", c_uint64)]


class Action(Structure):
    _fields_ = [("kind", c_uint32), ("target", c_uint32), ("choice", c_uint32), ("tier", c_uint16), ("to", c_uint16),
                ("begin", c_uint64), ("size_bytes", c_uint64), ("held", c_bool)]


class Timeline(Structure):
    _fields_ = [("iteration_ns", c_uint64), ("again_ns", c_uint64), ("busy_ns", c_uint64 * MAX_ENGINES),
                ("stall_ns", c_uint64 * MAX_ENGINES)]


class Certificate(Structure):
    _fields_ = [("bound_bytes", c_uint64), ("bound_ns", c_uint64), ("bytes_rule", c_char_p), ("ns_rule", c_char_p)]


class PlanSummary(Structure):
    _fields_ = [("policy", c_char_p), ("budget_bytes", c_uint64), ("peak_bytes", c_uint64), ("bound_bytes", c_uint64),
                ("tier_bytes", c_uint64 * MAX_TIERS), ("moved_out_bytes", c_uint64), ("moved_in_bytes", c_uint64),
                ("moved_on_bytes", c_uint64), ("n_recomputed_steps", c_uint64), ("alignment_bytes", c_uint64), ("fingerprint", c_uint64),
                ("algorithms", c_char_p), ("has_nominal_times", c_bool), ("certificate", Certificate)]


_PLACES = (("lib",), ("..", "..", "build", "release"), ("..", "..", "..", "lib"))  # wheel, source tree, installed
_NAMES = ("libebb.so.0", "libebb.so")
_library = None


def _open():
    given, here = os.environ.get("EBB_LIBRARY"), os.path.dirname(os.path.abspath(__file__))
    if given is not None and not os.path.exists(given):
        raise OSError(f"ebb: EBB_LIBRARY names {given!r}, which does not exist")
    named = [given] if given is not None else [os.path.join(here, *place, name) for place in _PLACES for name in _NAMES]
    for path in named:
        if os.path.exists(path):
            return ctypes.CDLL(path)
    for name in _NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    raise OSError("ebb: libebb is not found in " + ", ".join(named) +
                  "; install the wheel, build it with make, or set EBB_LIBRARY")


def lib():
    """The library, opened at the first call."""
    global _library
    if _library is None:
        found, handle = _open(), POINTER(c_void_p)
        for name, result, arguments in (
                ("ebb_last_error", c_char_p, ()),
                ("ebb_program_create", None, (c_void_p, c_char_p, c_uint64, handle)),
                ("ebb_program_add_tensor", None, (c_void_p, POINTER(Tensor), POINTER(c_uint32))),
                ("ebb_program_add_step", None, (c_void_p, POINTER(Step), POINTER(Access), POINTER(Choice))),
                ("ebb_program_keep_order", None, (c_void_p,)),
                ("ebb_program_finish", None, (c_void_p,)),
                ("ebb_program_save", None, (c_void_p, c_char_p)),
                ("ebb_program_destroy", "void", (c_void_p,)),
                ("ebb_machine_create", None, (c_void_p, handle)),
                ("ebb_machine_load", None, (c_void_p, c_char_p, handle)),
                ("ebb_machine_link", c_bool, (c_void_p, c_uint32, c_uint32, POINTER(Link))),
                ("ebb_machine_set_link", None, (c_void_p, POINTER(Link))),
                ("ebb_machine_topology", POINTER(Topology), (c_void_p,)),
                ("ebb_machine_step_time_ns", c_uint64, (c_void_p, POINTER(Choice))),
                ("ebb_machine_destroy", "void", (c_void_p,)),
                ("ebb_plan_make", None, (c_void_p, c_void_p, POINTER(PlanOptions), handle, POINTER(NoFit))),
                ("ebb_plan_actions", POINTER(Action), (c_void_p, POINTER(c_size_t))),
                ("ebb_plan_get_summary", PlanSummary, (c_void_p,)),
                ("ebb_plan_save", None, (c_void_p, c_char_p)),
                ("ebb_plan_simulate", None, (c_void_p, c_void_p, c_void_p, POINTER(Timeline), c_void_p, c_void_p)),
                ("ebb_plan_destroy", "void", (c_void_p,))):
            function = getattr(found, name)
            function.restype = None if result == "void" else result or ctypes.c_int
            function.argtypes = arguments
        _library = found
    return _library


def last_error():
    return lib().ebb_last_error().decode("utf-8", "replace")


class Error(RuntimeError):
    """libebb refused; the text is its message."""


def check(status):
    if status != OK:
        raise Error(last_error())


def create(function, *arguments):
    """What a function makes as its last output, as a handle."""
    handle = c_void_p()
    check(function(*arguments, byref(handle)))
    return handle
