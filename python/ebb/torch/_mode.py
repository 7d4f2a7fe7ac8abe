# SPDX-License-Identifier: Apache-2.0
"""How operators and what autograd saves are seen while a step runs, and where they are not looked at.

PyTorch calls Python for each operator while a dispatch mode is active, which takes a few microseconds even if nothing is
to be done. If a plan moves only what autograd saves, this is so for the operators of the backward pass and of the
optimizer, so the mode is not active there. Optimizers have hooks for that. The engine has none, so the function of
torch.autograd that calls it is wrapped. Both are done once, when the first step begins: threads may train side by side.
"""
import functools
import threading

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode, _get_current_dispatch_mode_stack

from .._interrupts import held
from ._tensors import CHANGED, in_backward

active = {}  # {id of a Budget's optimizer: the mode of the step that runs}
# aside: (optimizer, the mode that is not active while it steps), or None. note: is told of each optimizer that steps, or None
_here = threading.local()


def tell_of_optimizers(note):
    """Of those that step on this thread; None: no more."""
    _here.note = note


class Mode(TorchDispatchMode):
    """Hands all that happens in a step to what does the step (`doer`), which may be another one after the first moment."""

    @classmethod
    def _should_skip_dynamo(cls):
        """PyTorch's compiler compiles nothing while a mode is active, so it need not be told at each operator."""
        return False

    def __init__(self, doer):
        super().__init__()
        self.doer, self._held = doer, held()
        _install()

    def __enter__(self):
        _here.aside = None
        return super().__enter__()

    def __exit__(self, *exception):
        if _here.aside is None:  # else the optimizer raised
            super().__exit__(*exception)
        _here.aside = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunction():
            if id(func) in self.doer.unseen:
                return func(*args, **kwargs or {})
            with self._held:
                return self.doer.dispatch(func, types, args, kwargs or {})

    def pack(self, tensor):
        """What stays a tensor gets its version with it, which PyTorch does not look at where there are hooks."""
        with torch._C.DisableTorchFunction(), self._held:
            saved = self.doer.pack(tensor)
            return (saved, saved._version) if isinstance(saved, torch.Tensor) else saved

    def unpack(self, saved):
        with torch._C.DisableTorchFunction(), self._held:
            if type(saved) is tuple:
                saved, version = saved
                if saved._version != version:
                    raise RuntimeError(CHANGED)
            return self.doer.unpack(saved)

    def touch(self, tensor, is_handed_out):
        with torch._C.DisableTorchFunction(), self._held:
            self.doer.touch(tensor, is_handed_out)

    def assigned(self, tensor, other):
        with torch._C.DisableTorchFunction(), self._held:
            self.doer.assigned(tensor, other)

    def leave(self):
        super().__exit__(None, None, None)

    def come_back(self):
        super().__enter__()


def _doers():
    """Of the steps that run on this thread."""
    return [mode.doer for mode in _get_current_dispatch_mode_stack() if isinstance(mode, Mode)]


def _begin_optimizer(optimizer, args, kwargs):
    note = getattr(_here, "note", None)
    if note is not None:
        note(optimizer)
    modes, own = _get_current_dispatch_mode_stack(), active.get(id(optimizer))
    has_closure = bool(args[1:] or kwargs)  # which computes a forward pass
    if own is not None and own.doer.is_guarded and own not in modes:
        raise RuntimeError("ebb: an optimizer whose state may be away steps on another thread than the step of its Budget")
    for doer in _doers() if in_backward() == -1 else ():  # in it a guard that ended would not come back
        doer.begin_optimizer(has_closure)
    mode = _get_current_dispatch_mode()
    if isinstance(mode, Mode) and not has_closure and not mode.doer.sees_optimizer():
        _here.aside = optimizer, mode
        mode.leave()


def _end_optimizer(optimizer, *_):
    for doer in _doers():
        doer.end_optimizer()
    aside = getattr(_here, "aside", None)
    if aside is not None and aside[0] is optimizer:
        _here.aside = None
        aside[1].come_back()


def _unseen(engine):
    """The engine, of whose operators nothing is seen if nothing has to be."""
    @functools.wraps(engine)
    def run(*args, **kwargs):
        for doer in _doers():
            doer.begin_backward()
        mode = _get_current_dispatch_mode()
        if not isinstance(mode, Mode) or mode.doer.sees_backward():
            return engine(*args, **kwargs)
        mode.leave()
        try:
            return engine(*args, **kwargs)
        finally:
            mode.come_back()
    return run


@functools.lru_cache(None)
def _install():
    register_optimizer_step_pre_hook(_begin_optimizer)
    register_optimizer_step_post_hook(_end_optimizer)
    if hasattr(torch.autograd, "_engine_run_backward"):  # else the mode stays active, which takes time only
        torch.autograd._engine_run_backward = _unseen(torch.autograd._engine_run_backward)
