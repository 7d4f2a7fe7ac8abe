# SPDX-License-Identifier: Apache-2.0
"""Records what a PyTorch program does with each block of memory, as a trace of ebb.

    import ebb.torch

    with ebb.torch.record("step.trace"):
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()

`record` is a dispatch mode: it sees each operator behind autograd, with the tensors that it takes and gives, on the CPU,
on CUDA, and under FakeTensorMode, where nothing is computed or allocated (`record` goes inside of it). It changes no
result, keeps no tensor and compiles nothing. Blocks are storages; views and results in place are the same block. The
same code serves PyTorch 1.13 to 2.13. What it does not see stands in docs/record.md.
"""
import os
import sys
import threading
import time
import warnings
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import trace
from ._ledger import Ledger
from ._operators import Caller, Operator, of_frame
from ._owners import Owners
from ._places import Places

__all__ = ["record"]

_recording = weakref.WeakSet()


def _stop_in_child():
    for recorder in list(_recording):
        recorder._is_on = False  # the file is the parent's


os.register_at_fork(after_in_child=_stop_in_child)


def _tensors(value):
    """The tensors in what an operator takes or gives."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


class record(TorchDispatchMode):
    """Record what happens inside of the `with`, one iteration or many, to the trace file `path`.

    An iteration ends behind an optimizer's step, unless the program says where: `mark_iteration()`. Without `stacks` the
    program's lines are left out. `live_bytes` and `peak_bytes` are those of the storages so far."""

    def __init__(self, path, stacks=True):
        super().__init__()
        self.path = path
        self._wants_stacks, self._marks_itself = stacks, True
        self._lock, self._is_on, self._ledger = threading.RLock(), False, None
        self._operators, self._stacks, self._rows = {}, {}, {}
        self._optimizer, self._born_in_step = None, []
        self._in_iteration, self._n_iterations = False, 0

    live_bytes = property(lambda self: self._ledger.live_bytes)
    peak_bytes = property(lambda self: self._ledger.peak_bytes)

    def __enter__(self):
        if self._ledger is not None:
            raise RuntimeError("ebb: a recorder records once; make another")
        is_fake = isinstance(torch.empty(0), FakeTensor)
        tells = trace.TELLS_ACCESSES | trace.TELLS_ROLES | trace.TELLS_STEPS | trace.TELLS_BEFORE
        tells |= 0 if is_fake else trace.TELLS_TIMES | trace.TELLS_ADDRESSES
        tells |= trace.TELLS_STACKS if self._wants_stacks else 0
        self._writer = trace.Writer(self.path, tells, time.time_ns())
        self._ledger = Ledger(self._writer, is_fake)
        self._owners = Owners(self._ledger)
        self._places = Places(self._owners)
        self._is_on = True
        self._try(self._begin)
        _recording.add(self)
        return super().__enter__()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        _recording.discard(self)
        with self._lock:
            self._try(self._finish)
            self._is_on = False
            self._ledger.close()

    def mark_iteration(self):
        """An iteration ends here, and from now on only at such calls."""
        with self._lock:
            self._marks_itself = False
            self._try(self._end_iteration)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = Operator(func)
        if operator.is_pseudo or not self._is_on:
            return self._pass(func, args, kwargs)
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a tensor made of tensors: what it does with those comes here again
        caller = Caller(sys._getframe(1))
        with self._lock:
            self._try(self._settle, caller)
            begin_ns = self._ledger.now()
        result = func(*args, **kwargs)
        with self._lock:
            self._try(self._tell, operator, caller, begin_ns, args, kwargs, result)
        return result

    @staticmethod
    def _pass(func, args, kwargs):
        if func._schema.name.startswith("profiler::"):  # which FakeTensorMode of 1.13 refuses
            with no_dispatch():
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def _try(self, act, *args):
        """A full disk ends the recording, not the program."""
        if not self._is_on:
            return
        try:
            act(*args)
        except OSError as error:
            self._is_on = False
            self._writer.abandon()
            warnings.warn(f"ebb: the recording {self.path} ends here: {error}")

    def _begin(self):
        self._writer.note("source", "ebb.torch")
        self._writer.note("torch", torch.__version__)
        self._writer.note("fake", "yes" if self._ledger.is_fake else "no")
        self._owners.scan()
        self._ledger.begin()

    def _finish(self):
        if self._optimizer is not None:
            self._end_step()
        self._ledger.ask(everyone=True)
        self._owners.label_gradients()
        if self._in_iteration and self._n_iterations == 0:
            self._end_iteration()
        self._writer.close()

    def _settle(self, caller):
        """What ended and began since the operator before."""
        if caller.optimizer is None and self._optimizer is not None:
            self._end_step()
        elif caller.optimizer is not None and self._optimizer is None:
            self._optimizer = of_frame(caller.optimizer, "self", "obj")
            self._owners.begin_step(self._optimizer)
        if not self._in_iteration:
            self._in_iteration = True
            self._writer.mark(self._ledger.now(), trace.ITERATION_BEGIN, 0, self._n_iterations)
        self._ledger.ask()

    def _end_step(self):
        """What an optimizer's step leaves is its state."""
        self._ledger.ask(everyone=True)
        if any(block.tensor is not None for block in self._born_in_step):
            self._owners.label_state(self._optimizer)
        self._optimizer, self._born_in_step = None, []
        if self._marks_itself:
            self._end_iteration()

    def _end_iteration(self):
        if self._in_iteration:
            self._writer.mark(self._ledger.now(), trace.ITERATION_END, 0, self._n_iterations)
            self._n_iterations += 1
        self._in_iteration = False
        self._places.begin_iteration()

    def _tell(self, operator, caller, begin_ns, args, kwargs, result):
        ledger, writer, reads, writes = self._ledger, self._writer, {}, {}
        self._set_row()
        for index, argument, is_read, is_written in operator.arguments:
            for tensor in _tensors(args[index] if index < len(args) else kwargs.get(argument)):
                block = ledger.block(tensor, begin_ns)
                if block is not None and is_read:
                    reads[block] = None
                if block is not None and is_written:
                    writes[block] = None
        name, phase = self._places.find(caller, reads)
        fresh = [tensor for tensor in _tensors(result) if ledger.is_new(tensor)]
        if not fresh and not writes and isinstance(result, torch.Tensor):
            if operator.is_detach and phase == trace.BACKWARD:
                self._label_gradient(result)
            return  # a view
        short = operator.name.rpartition(".")[2]
        made = f"{name}.{short}" if name else short
        writer.step_begin(begin_ns, writer.string(name or operator.name), writer.string(operator.name), phase)
        for block in reads:
            writer.read(begin_ns, block.number)
        for tensor in fresh:
            stack = self._stack(caller)
            block = ledger.block(tensor, begin_ns, self._places.role(operator, caller, phase), made, stack)
            writes[block] = None
            if caller.optimizer is not None:
                self._born_in_step.append(block)
        end_ns = ledger.now()
        for block in writes:
            writer.write(end_ns, block.number)
        writer.step_end(end_ns)

    def _label_gradient(self, tensor):
        """Autograd detaches what it keeps as a parameter's gradient."""
        block = self._ledger.block(tensor, self._ledger.now())
        if block is not None and block.role == trace.TEMP:
            self._ledger.label(tensor, trace.GRADIENT, block.name)

    def _stack(self, caller):
        if not self._wants_stacks:
            return 0
        key = caller.key()
        stack = self._stacks.get(key)
        if stack is None:
            stack = self._stacks[key] = caller.stack(self._writer)
        return stack

    def _set_row(self):
        """A row of the timeline for each thread."""
        thread = threading.get_ident()
        row = self._rows.get(thread)
        if row is None:
            row = self._rows[thread] = min(len(self._rows), trace.MAX_ROWS - 1)
            self._writer.note(f"row.{row}", threading.current_thread().name)
        self._writer.row(row)
