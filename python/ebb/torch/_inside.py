# SPDX-License-Identifier: Apache-2.0
"""What an operator takes while it runs, beside its results: copies in another layout, the workspace of a library.

PyTorch's allocators, a card's as well, tell its profiler of each block that they give and get back. So the profiler runs
for the length of one operator. The one that is used keeps a list and nothing else: no thread, no file, 10 microseconds.

Not seen: what a library allocates by itself, and what OpenMP's other threads do.
"""
import collections
import time

import torch
from torch.autograd import ProfilerConfig, ProfilerState

from ._operators import tensors_in
from ._repeat import device_of, repeat_of

_enable, _disable = (getattr(torch.autograd, f"_{what}_profiler_legacy", None) for what in ("enable", "disable"))
_SLEEP_CYCLES = 400000  # of a card: a fifth of a millisecond, in which the host gives it most operators
_EVENTS_NS = 3000  # between two events with nothing between them, at most
_CONFIG = ProfilerConfig(ProfilerState.CPU, False, True, False, False, False, torch._C._profiler._ExperimentalConfig())


def can_see():
    """Whether the profiler is there and free: a program that profiles itself has it."""
    return _enable is not None and not torch._C._autograd._profiler_enabled()


def why_unseen():
    return "this PyTorch lacks the profiler that ebb uses" if _enable is None else "PyTorch's profiler is in use (profile later steps)"


def run(func, args, kwargs):
    """What an operator gives, how long it took in ns, and the most bytes that it had taken at once, its results and what
    its caller makes of numbers among them; 0 bytes if it cannot be seen."""
    if not can_see():
        return *_timed(func, args, kwargs), 0
    _enable(_CONFIG)
    try:
        result, ns = _timed(func, args, kwargs)
    finally:
        events = _disable()
    changes = [event.cpu_memory_usage() + event.cuda_memory_usage() for thread in events for event in thread
               if event.kind() == "memory_alloc"]
    return result, ns, most_bytes(changes) + repeat_of(func).operator.number_bytes(args)


def kept_bytes(func, args):
    """Of the tensors that PyTorch makes of numbers and that autograd may save, which no hook is told. How long it keeps them
    is not seen; it is at most until the step ends."""
    n_bytes = repeat_of(func).operator.number_bytes(args)
    return n_bytes if n_bytes and torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in(args)) else 0


def _timed(func, args, kwargs):
    devices = [*(tensor.device for tensor in tensors_in([*args, *kwargs.values()])), device_of((), kwargs)]
    device = next((device for device in devices if device.type == "cuda"), None)
    if device is not None:
        return _timed_on_card(func, args, kwargs, device)
    clock_ns = _clock()
    begin_ns = clock_ns()
    result = func(*args, **kwargs)
    return result, clock_ns() - begin_ns


def _clock():
    """With one thread, the time that this thread had of a processor: it does not count what other programs took."""
    return time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns


def _timed_on_card(func, args, kwargs, device):
    """How long the card was at it. It is kept busy until the host has given it the operator: in a whole step the host is
    ahead, too. What gives the card nothing takes no time."""
    with torch.cuda.device(device):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_SLEEP_CYCLES)
        begin.record()
        result = func(*args, **kwargs)
        end.record()
        end.synchronize()
        return result, max(0, int(1e6 * begin.elapsed_time(end)) - _EVENTS_NS)


def most_bytes(changes):
    """The most bytes of blocks that were given (positive) and not yet got back. A block that was there before may be got
    back as well, of which the size is not known: only what has the size of a given block counts."""
    given, live, most = collections.Counter(), 0, 0
    for change in changes:
        if change > 0:
            given[change] += 1
        elif given[-change] > 0:
            given[-change] -= 1
        else:
            continue
        live += change
        most = max(most, live)
    return most
