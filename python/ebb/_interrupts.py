# SPDX-License-Identifier: Apache-2.0
"""A signal that comes while ebb moves memory, or plans, is handled right after that.

Ctrl-C raises KeyboardInterrupt between any two instructions of Python, so also between those that begin a copy and those that note
that it was begun. While a step runs, the program's handlers are called through one that waits until what is `held` is done:
one operator, the copies that end a step, or a plan, whose search ends early then.
"""
import contextlib
import signal
import threading

_NUMBERS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
            if hasattr(signal, name)]
_handlers, _waiting = {}, []  # of the program, by number; (number, frame) of those that came meanwhile


class _Held:
    """Of the main thread, which is the one that Python handles signals on."""
    depth = 0

    def __enter__(self):
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1
        if _waiting and self.depth == 0:
            _run_waiting()


_held = _Held()


def _run_waiting():
    """All of them, also where one raises. The same signal counts once, as for the system."""
    number, frame = _waiting.pop(0)
    _waiting[:] = [other for other in _waiting if other[0] != number]
    try:
        _handlers[number](number, frame)
    finally:
        if _waiting and _held.depth == 0:
            _run_waiting()


def is_waiting():
    """Whether a signal waits until what is held is done."""
    return bool(_waiting)


def _handle(number, frame):
    if _held.depth > 0:
        _waiting.append((number, frame))
    else:
        _handlers[number](number, frame)


def _is_main():
    return threading.current_thread() is threading.main_thread()


def held():
    """Within it signals wait."""
    return _held if _is_main() else contextlib.nullcontext()


@contextlib.contextmanager
def watched():
    """Within it `held` is heeded."""
    watched = {}
    try:
        with held():
            for number in _NUMBERS if _is_main() else ():
                handler = signal.getsignal(number)
                if callable(handler) and handler is not _handle:
                    watched[number] = _handlers[number] = handler
                    signal.signal(number, _handle)
        yield
    finally:
        with held():
            for number, handler in watched.items():
                if signal.getsignal(number) is _handle:  # else the program has another one since
                    signal.signal(number, handler)
