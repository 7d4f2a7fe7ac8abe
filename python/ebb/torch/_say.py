# SPDX-License-Identifier: Apache-2.0
"""What people read: bytes and times with units, a summary that prints as a table, and a line on stderr while ebb is at work."""
import contextlib
import os
import sys
import threading
import time

_DELAY_S = 2.0  # of work that nothing is said of, where stderr is no terminal
_UNITS = "B", "KiB", "MiB", "GiB", "TiB"


def bytes_text(n_bytes):
    """As the command line writes it: "185.20 MiB"."""
    value, unit = float(n_bytes), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.2f} {_UNITS[unit]}" if unit else f"{n_bytes} B"


def seconds_text(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def line(text):
    """On stderr, if there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # closed, or full
            print(f"ebb: {text}", file=sys.stderr, flush=True)


def _is_terminal():
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none; closed
        return False


class Teller:
    """Says what ebb is doing, each kind of work once: at once where stderr is a terminal, else as soon as the work has
    taken two seconds in all. EBB_PROGRESS_S=0 turns it off, as on the command line."""

    def __init__(self, is_quiet):
        self._is_quiet = is_quiet or os.environ.get("EBB_PROGRESS_S") == "0"
        self._left_s = 0.0 if _is_terminal() else _DELAY_S
        self._told, self._timer, self._begin_s = set(), None, None

    def begin(self, kind, text):
        """Work begins, and the one before it ends."""
        self.end()
        self._begin_s = time.perf_counter()
        if self._left_s <= 0:
            self._say(kind, text)
        if self._left_s <= 0 or self._is_quiet or kind in self._told:
            return
        timer = threading.Timer(self._left_s, self._say, (kind, text))
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # a process that may start no thread trains without the line
            timer.start()
            self._timer = timer

    def end(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._begin_s is not None:
            self._left_s -= time.perf_counter() - self._begin_s
            self._begin_s = None

    def result(self, kind, text):
        """What the work came to, if it took long."""
        self.end()
        if self._left_s <= 0:
            self._say(kind, text)

    def _say(self, kind, text):
        if not self._is_quiet and kind not in self._told:
            self._told.add(kind)
            line(text)


class Summary(dict):
    """What `Budget.summary` gives: a dict, which prints as a table."""

    def __str__(self):
        rows = _rows(self)
        return "\n".join(f"{name:<16}{value}" for name, value in rows)


def _rows(told):
    if not told["is_planned"]:
        return [("steps", f"{told['steps']}, and no plan yet: the first two are recorded")]
    rows = [("budget", bytes_text(told["budget_bytes"])),
            ("without a plan", bytes_text(told["plain_bytes"])),
            ("peak", bytes_text(told["peak_planned_bytes"]) + " planned" + (
                f", {bytes_text(told['peak_measured_bytes'])} measured" if told["peak_measured_bytes"] else "")),
            ("moved out", f"{bytes_text(told['moved_out_bytes'])} per step"),
            ("computed again", f"{told['recomputed_ops']} operators per step")]
    times = [seconds_text(told[key]) + word for key, word in (("step_planned_s", " planned"), ("step_measured_s", " measured"))
             if told[key] is not None]
    if times:
        rows.append(("time of a step", ", ".join(times)))
    if told["step_planned_s"] is not None:
        rows.append(("gap", f"{100 * told['gap']:.1f} % above what no plan can be faster than"))
    if told["held_bytes"]:
        rows.append(("held", f"{bytes_text(told['held_bytes'])}, in which other tensors lie"))
    plans = "1 plan" if told["plans"] == 1 else f"{told['plans']} plans"
    rows.append(("steps", f"{told['steps']}, {told['steps_unlike']} unlike a recorded one; {plans}"))
    return rows
