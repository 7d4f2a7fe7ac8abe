# SPDX-License-Identifier: Apache-2.0
"""ebb beside PyTorch: `Budget` keeps training steps within a budget of memory, and `plan` says before anything runs what
that costs (docs/pytorch.md); `record` writes what a program does with each block of memory, as a trace of ebb:

    import ebb.torch

    with ebb.torch.record("step.trace"):
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()

`record` is a dispatch mode: it sees each operator below autograd, with the tensors that it takes and gives, on the CPU,
on CUDA, and under FakeTensorMode, where nothing is computed or allocated (`record` goes inside of it). It changes no
result, keeps no tensor and compiles nothing. Blocks are storages; views and results in place are the same block. The
same code serves PyTorch 1.13 to 2.15. What it does not see stands in docs/record.md.
"""
import os
import shlex
import sys
import threading
import warnings

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import trace
from . import _say
from ._iterations import Iterations
from ._ledger import Ledger
from ._operators import Caller, Operator, tensor_of, tensors_in
from ._owners import Owners
from ._places import Places
from ._refusals import refusal_of, room_of

__all__ = ["Budget", "DoesNotFit", "KnapsackSolver", "RuntimeEstimator", "compile", "plan", "record"]


def __getattr__(name):
    """What needs libebb and PyTorch 2.4 is imported when it is asked for: `record` needs neither."""
    if name in ("Budget", "DoesNotFit"):
        from . import _budget
        return getattr(_budget, name)
    if name == "compile":
        from . import _compile
        return _compile.compile
    if name in ("KnapsackSolver", "RuntimeEstimator"):
        from . import _solver
        return getattr(_solver, name)
    if name == "plan":
        from . import _plan
        return _plan.plan
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__


class record(TorchDispatchMode):
    """Record what happens inside of the `with`, one iteration or many, to the trace file `path`.

    An iteration ends after an optimizer's step, unless the program says where: `mark_iteration()`. Without `stacks` the
    program's lines are left out. `live_bytes` and `peak_bytes` are those of the storages so far. At the end a line on
    stderr says where the recording is, unless `quiet`."""

    def __init__(self, path, stacks=True, quiet=False):
        super().__init__()
        self.path, self._wants_stacks, self._ledger, self._operators = path, stacks, None, {}
        self._quiet = quiet
        self._lock, self._process = threading.RLock(), None  # the one that records; a child's file is its parent's

    live_bytes = property(lambda self: self._ledger.live_bytes if self._ledger else 0)
    peak_bytes = property(lambda self: self._ledger.peak_bytes if self._ledger else 0)

    def __enter__(self):
        if self._ledger is not None:
            raise RuntimeError("ebb: a recorder records once; make another")
        self._ledger = Ledger(self.path, self._wants_stacks)
        self._owners = Owners(self._ledger)
        self._places = Places(self._owners)
        self._iterations = Iterations(self._ledger, self._owners, self._places)
        self._process = os.getpid()
        self._try(self._begin)
        return super().__enter__()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        self._try(self._finish)
        is_whole = self._process == os.getpid()  # else it is another process's, or has ended with a warning
        self._process = None
        self._ledger.close()
        if is_whole and not self._quiet:
            self._say_where()

    def mark_iteration(self):
        """An iteration ends here, and from now on only at such calls."""
        if self._ledger is None:
            raise RuntimeError("ebb: mark_iteration is called while it records, inside of the `with`")
        self._try(self._iterations.mark)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        operator = self._operators.get(func) or self._operators.setdefault(func, Operator(func))
        if operator.is_profiler:
            self._try(self._note_range, operator, args)
            with no_dispatch():  # FakeTensorMode of 1.13 refuses it
                return func(*args, **kwargs)
        if operator.is_primitive or self._process != os.getpid():
            return func(*args, **kwargs)
        if operator.is_detach and not isinstance(args[0], torch.Tensor):
            with no_dispatch():  # 1.13 gives a number that autograd has saved as a number, and wants a tensor for it
                return func(tensor_of(args[0]))
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a tensor made of tensors: what it does with those comes here again
        caller = Caller(sys._getframe(1))
        self._try(self._iterations.settle, caller, lambda: self._stack(caller))
        begin_ns = self._ledger.now()
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            self._try(self._tell_refusal, operator, caller, refusal_of(error), room_of(error))
            raise
        self._try(self._tell, operator, caller, begin_ns, operator.tensors(args, kwargs), result)
        return result

    def _try(self, act, *args):
        """Another process leaves the file alone. A full disk ends the recording, not the program; Ctrl-C in it, both."""
        if self._process != os.getpid():
            return
        with self._lock:
            try:
                if self._process is not None:
                    act(*args)
            except BaseException as error:
                self._process = None
                self._ledger.writer.abandon()
                if not isinstance(error, OSError):
                    raise
                warnings.warn(f"ebb: the recording {self.path} ends here: {error}")

    def _begin(self):
        self._owners.scan()
        self._ledger.begin()

    def _finish(self):
        self._iterations.finish()
        self._ledger.writer.close()

    def _say_where(self):
        n_events, path = self._ledger.writer.n_events, os.fsdecode(self.path)
        _say.line(f"recorded {n_events} events to {path}; see it with: ebb report {shlex.quote(path)}")

    def _stack(self, caller):
        return caller.stack(self._ledger.writer) if self._wants_stacks else 0

    def _note_range(self, operator, args):
        if "_enter" in operator.name:
            self._iterations.enter(args[0] if args else None)
        elif "_exit" in operator.name:
            self._iterations.leave()

    def _tell_refusal(self, operator, caller, refusal, room):
        if refusal is not None:
            self._ledger.set_row()
            self._ledger.refuse(*refusal, room, operator.name, self._stack(caller))

    def _tell(self, operator, caller, begin_ns, arguments, result):
        ledger, writer, reads, writes = self._ledger, self._ledger.writer, {}, {}
        ledger.set_row()
        for tensor, is_read, is_written in arguments:
            block = ledger.block(tensor, begin_ns)
            if block is not None and is_read:
                reads[block] = None
            if block is not None and is_written:
                writes[block] = None
        name, phase = self._places.find(caller, reads)
        fresh = [tensor for tensor in tensors_in(result) if ledger.is_new(tensor)]
        if not fresh and not writes and isinstance(result, torch.Tensor):
            if operator.is_detach and phase == trace.BACKWARD:
                self._owners.keep_gradient(result)
            return  # a view
        short = operator.name.rpartition(".")[2]
        made = f"{name}.{short}" if name else short
        writer.step_begin(begin_ns, writer.string(name or operator.name), writer.string(operator.name), phase)
        for block in reads:
            writer.read(begin_ns, block.number)
        for tensor in fresh:
            role = self._places.role(operator, caller, phase)
            writes[ledger.block(tensor, begin_ns, role, made, self._stack(caller))] = None
        end_ns = ledger.now()
        for block in writes:
            writer.write(end_ns, block.number)
        writer.step_end(end_ns)
