# SPDX-License-Identifier: Apache-2.0
"""How operators and what autograd saves are seen while a step runs, and where they are not looked at.

PyTorch calls Python for each operator while a dispatch mode is active, which takes a few microseconds even if nothing is
to be done. If a plan moves only what autograd saves, this is so for the operators of the backward pass and of the
optimizer, so the mode is not active there. Optimizers have hooks for that. The engine has none, so the function of
torch.autograd that calls it is wrapped when the first step begins.
"""
import functools

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode


class Mode(TorchDispatchMode):
    """Hands all that happens in a step to what does the step (`doer`), which may be another one after the first moment."""

    @classmethod
    def _should_skip_dynamo(cls):
        """PyTorch's compiler compiles nothing while a mode is active, so it need not be told at each operator."""
        return False

    def __init__(self, doer):
        super().__init__()
        self.doer, self._optimizer, self._hooks = doer, None, ()
        _wrap_engine()

    def __enter__(self):
        self._hooks = (register_optimizer_step_pre_hook(self._begin_optimizer),
                       register_optimizer_step_post_hook(self._end_optimizer))
        return super().__enter__()

    def __exit__(self, *exception):
        for hook in self._hooks:
            hook.remove()
        if self._optimizer is None:  # else it raised, and the mode is not active
            super().__exit__(*exception)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunction():
            return self.doer.dispatch(func, types, args, kwargs or {})

    def pack(self, tensor):
        with torch._C.DisableTorchFunction():
            return self.doer.pack(tensor)

    def unpack(self, saved):
        with torch._C.DisableTorchFunction():
            return self.doer.unpack(saved)

    def run_engine(self, engine, args, kwargs):
        if self.doer.sees_backward():
            return engine(*args, **kwargs)
        super().__exit__(None, None, None)
        try:
            return engine(*args, **kwargs)
        finally:
            super().__enter__()

    def _begin_optimizer(self, optimizer, args, kwargs):
        if not (args[1:] or kwargs) and _get_current_dispatch_mode() is self and not self.doer.sees_optimizer():
            self._optimizer = optimizer  # not with a closure, which computes a forward pass
            super().__exit__(None, None, None)

    def _end_optimizer(self, optimizer, *_):
        if self._optimizer is optimizer:
            self._optimizer = None
            super().__enter__()


@functools.cache
def _wrap_engine():
    engine = getattr(torch.autograd, "_engine_run_backward", None)
    if engine is None:  # then the mode stays active, which takes time only
        return

    @functools.wraps(engine)
    def run(*args, **kwargs):
        mode = _get_current_dispatch_mode()
        return mode.run_engine(engine, args, kwargs) if isinstance(mode, Mode) else engine(*args, **kwargs)
    torch.autograd._engine_run_backward = run
