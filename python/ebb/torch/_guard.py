# SPDX-License-Identifier: Apache-2.0
"""Between steps: tensors whose bytes are away come back when the program uses them.

PyTorch's kernels crash on a storage that is away, or take it for an empty one. So between steps such a tensor has a class
whose `__torch_function__` brings it back, before anything that Python calls with it. A parameter brings back its gradient
too, because autograd adds to that without asking. Shapes, types and the like can be looked at without that.

Tensors that the model and the optimizer do not know, but that lie in the same storage (a state_dict that was kept, a
view), cannot be looked after in this way. Then the storage comes back before the step ends.
"""
import threading
import weakref

import torch

from .._interrupts import held, watched
from ._tensors import n_tensors_over

_LOOKS = {getattr(torch.Tensor, name).__get__ for name in (
    "shape", "dtype", "device", "layout", "requires_grad", "is_leaf", "grad_fn", "ndim", "nbytes", "grad", "_version")}
_LOOKS |= {getattr(torch.Tensor, name) for name in (
    "size", "numel", "dim", "stride", "storage_offset", "element_size", "is_floating_point", "is_complex", "get_device",
    "is_contiguous", "requires_grad_", "__hash__", "__len__")}
_LOOKS |= {torch.Tensor.grad.__set__, torch.is_floating_point, torch.is_complex, torch.numel}


def _tensors_in(value):
    if isinstance(value, _AWAY):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)


def _function(cls, func, types, args=(), kwargs=None):
    kwargs = kwargs or {}
    if func in _LOOKS:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    with torch._C.DisableTorchFunction():
        lift((*_tensors_in(args), *_tensors_in(kwargs)))
    return func(*args, **kwargs)


class _AwayTensor(torch.Tensor):
    __torch_function__ = classmethod(_function)

    def __deepcopy__(self, memo):
        self.untyped_storage()
        return self.__deepcopy__(memo)


class _AwayParameter(torch.nn.Parameter):
    __torch_function__ = classmethod(_function)

    def __deepcopy__(self, memo):
        self.untyped_storage()
        return self.__deepcopy__(memo)


_guarding = weakref.WeakSet()  # what looks after any tensor
_AWAY = _AwayTensor, _AwayParameter
_CLASSES = {torch.Tensor: _AwayTensor, torch.nn.Parameter: _AwayParameter}
_KINDS = {away: kind for kind, away in _CLASSES.items()}


def lift(tensors):
    """What is away comes back."""
    for tensor in tensors if _guarding else ():
        guard = tensor.__dict__.get("_ebb_guard")
        if guard is not None:
            guard.bring(tensor)


class Guard:
    def __init__(self, pager):
        self._pager, self._marked, self._hooks, self._lock = pager, [], {}, threading.RLock()
        self.held_bytes = 0  # of storages that other tensors lie in

    def begin(self, owned, parameters):
        """Until `end`, the owned tensors ({key of a storage: (storage, owner, tensors)}) are looked after."""
        self.held_bytes = 0
        for key, (storage, _, tensors) in owned.items():
            page = self._pager.away.get(key)
            if page is not None and n_tensors_over(storage) > len(tensors):
                self._pager.touch_storage(storage)
                self.held_bytes += page.n_bytes
            elif page is not None:
                for tensor in tensors:
                    self._mark(tensor)
        with torch._C.DisableTorchFunctionSubclass():  # which would bring back what is marked
            for parameter in parameters:
                if type(parameter.grad) is _AwayTensor and parameter.requires_grad:
                    self._mark(parameter)
                    self._hooks[id(parameter)] = parameter.register_hook(self._before_gradient(parameter))

    def watch(self, storage, tensors):
        """The tensors of a storage are looked after before it leaves. False: others lie in it, so it stays."""
        if n_tensors_over(storage) > len(tensors):
            return False
        for tensor in tensors:
            self._mark(tensor)
        return True

    def _before_gradient(self, parameter):
        """For a graph that outlived its step, and adds to a gradient that is away."""
        reference = weakref.ref(parameter)

        def bring(gradient):
            if self._marked and type(reference()) in _KINDS:
                self.bring(reference())
        return bring

    def _mark(self, tensor):
        kind = _CLASSES.get(type(tensor))
        if kind is not None:
            tensor.__dict__["_ebb_guard"] = self
            tensor.__class__ = kind
            self._marked.append(weakref.ref(tensor))
            _guarding.add(self)

    def _unmark(self, tensor):
        kind = _KINDS.get(type(tensor))
        if kind is not None:
            tensor.__class__ = kind
            del tensor.__dict__["_ebb_guard"]
            hook = self._hooks.pop(id(tensor), None)
            if hook is not None:
                hook.remove()

    def bring(self, tensor):
        with watched(), held(), self._lock:
            self._unmark(tensor)
            self._pager.touch([tensor])
            self._pager.wrote(tensor)  # it may be written between steps, which is not seen
            gradient = tensor.grad if tensor.is_leaf else None
            if type(gradient) in _KINDS:
                self.bring(gradient)

    def end(self):
        for reference in self._marked:
            tensor = reference()
            if tensor is not None and tensor.__dict__.get("_ebb_guard") is self:
                self._unmark(tensor)
        self._marked.clear()
        _guarding.discard(self)
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()
