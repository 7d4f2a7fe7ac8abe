# SPDX-License-Identifier: Apache-2.0
"""What is known of an operator before and beside its tensors: what its schema says, and who called it.

Who calls is read off the interpreter's frames: the innermost module being called, an optimizer's step, the lines of the
program. No hook is set, so nothing has to be undone when an exception passes.
"""
import os
import sys

import torch


def tensors_in(value):
    """The tensors in what an operator takes or gives."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def tensor_of(number):
    """As autograd has it: in the widest type of its kind, which makes no other operand wider."""
    return torch.tensor(number, dtype={float: torch.float64, complex: torch.complex128}.get(type(number)))


# Written in training, which their schemas do not say.
_STATISTICS = "running_mean", "running_var"
_WRITE_STATISTICS = {f"aten.{name}" for name in (
    "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm_update_stats", "batch_norm_gather_stats",
    "batch_norm_gather_stats_with_counts")}
_COLLECTIVES = "c10d.", "c10d_functional.", "_c10d_functional.", "_dtensor.", "symm_mem."
_READ_ONLY = "c10d.send", "c10d.barrier", "c10d.monitored_barrier_", "c10d.check_for_nan"
_NUMBER_BYTES = {bool: 1, int: 8, float: 8, complex: 16}


class Operator:
    """What an operator's schema says: its name, and which of its arguments it reads and writes. writes: whether it writes
    any. is_collective: it may still be at work in its tensors when it has returned."""

    OVERWRITES = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_")

    def __init__(self, func):
        schema = func._schema
        self.name = schema.name.replace("::", ".")
        self.is_primitive, self.is_profiler = self.name.startswith("prim."), self.name.startswith("profiler.")
        self.is_detach = self.name == "aten.detach"
        self.is_collective = self.name.startswith(_COLLECTIVES)
        self._arguments = []  # (index, name, is read, is written) of each one that holds tensors
        for index, argument in enumerate(schema.arguments):
            if "Tensor" not in str(argument.type):
                continue
            writes = argument.alias_info is not None and argument.alias_info.is_write
            writes = writes or argument.name in _STATISTICS and self.name in _WRITE_STATISTICS or \
                self._is_result_of_c10d(argument.name)
            overwrites = writes and (argument.kwarg_only or self.name.endswith(self.OVERWRITES))
            self._arguments.append((index, argument.name, not overwrites, writes))
        self.writes = any(is_written for *_, is_written in self._arguments)

    def _is_result_of_c10d(self, argument):
        """Whether an operator of c10d writes this argument, which its schema does not say."""
        return self.name.startswith("c10d.") and self.name not in _READ_ONLY and argument.startswith(("output", "tensor"))

    def tensors(self, args, kwargs):
        """(tensor, is read, is written) of all that it takes."""
        for index, name, is_read, is_written in self._arguments:
            for tensor in tensors_in(args[index] if index < len(args) else kwargs.get(name)):
                yield tensor, is_read, is_written

    def number_bytes(self, args):
        """Of the tensors that PyTorch makes of the numbers that are given in place of tensors."""
        numbers = (type(args[index]) for index, *_ in self._arguments if index < len(args))
        return sum(_NUMBER_BYTES.get(kind, 0) for kind in numbers)


_SHOWN, _HIDDEN, _CALL, _STEP, _ENGINE = range(5)
_LIBRARY = os.path.dirname(torch.__file__) + os.sep
_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_OPTIMIZERS = sys.modules[torch.optim.Optimizer.__module__].__file__
_ENTRIES = {torch.nn.Module._call_impl.__code__: _CALL, torch.autograd.backward.__code__: _ENGINE,
            torch.autograd.grad.__code__: _ENGINE}
_kinds = {}  # id of a code: what a frame of it means, and the code, so that the id stays its own


def _kind_of(code):
    if code in _ENTRIES:
        return _ENTRIES[code]
    if code.co_name == "wrapper" and code.co_filename == _OPTIMIZERS:
        return _STEP
    return _HIDDEN if code.co_filename.startswith((_LIBRARY, _HERE, "<")) else _SHOWN


class Caller:
    """`module` and `root`: the innermost and the outermost one that is being called (inside of the engine, where
    there is one). `optimizer`: whose step it is. All three are frames or None. `lines`: the program's, as frames."""

    def __init__(self, frame):
        self.module = self.root = self.optimizer = None
        self.in_engine = frame is None  # a thread of autograd's own has no frame above
        self.lines = []
        while frame is not None:
            code = frame.f_code
            known = _kinds.get(id(code))
            if known is None:
                known = _kinds[id(code)] = _kind_of(code), code
            kind = known[0]
            if kind == _SHOWN:
                self.lines.append(frame)
            elif kind == _CALL and not self.in_engine:
                self.module = self.module or frame
                self.root = frame
            elif kind == _STEP:
                self.optimizer = self.optimizer or frame
            elif kind == _ENGINE:
                self.in_engine = True
            frame = frame.f_back

    def stack(self, writer):
        """The number of the program's lines as a stack of the trace."""
        stack = 0
        for frame in reversed(self.lines):
            stack = writer.frame(stack, frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno or 0)
        return stack


def of_frame(frame, *names):
    """The first of these local variables that a frame has."""
    found = frame.f_locals
    return next((found[name] for name in names if name in found), None)
