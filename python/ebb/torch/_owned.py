# SPDX-License-Identifier: Apache-2.0
"""The tensors that a training step finds and leaves behind: parameters, buffers, gradients, the optimizer's state."""
import gc
import sys

import torch

from ._tensors import is_plain

GRADIENT, STATE = "gradient", "state"
_SHARDED = ("torch.distributed.fsdp", "FSDPModule"), ("torch.distributed.fsdp", "FullyShardedDataParallel"), \
    ("torch.distributed._composable.fsdp", "FSDPModule")  # (module, class), the last one before PyTorch 2.6
_SCRIPTED = (("torch.jit", "ScriptModule"),)
_HOOKED = (("torch.nn.parallel", "DistributedDataParallel"),)


def _alive(known):
    """The modules of these classes, if PyTorch has loaded them."""
    kinds = tuple(kind for kind in (getattr(sys.modules.get(module), name, None) for module, name in known) if kind)
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)] if kinds else []


def refuse_unseen(may_leave):
    """FSDP frees the memory of tensors that autograd saved and fills it anew, and DDP's communication hooks write gradients;
    neither is seen in the operators. may_leave: gradients may."""
    if "torch.distributed" not in sys.modules or not torch.distributed.is_available() or \
            not torch.distributed.is_initialized():
        return
    gc.collect()
    if _alive(_SHARDED):
        raise TypeError("ebb: a Budget cannot follow a step with FSDP, which frees and fills the memory of parameters by "
                        "itself, and a module of FSDP is alive; DistributedDataParallel works")
    if may_leave and any(ddp._get_ddp_logging_data().get("comm_hook") for ddp in _alive(_HOOKED)):
        raise TypeError("ebb: a Budget with model= or optimizer= and spill= cannot follow DistributedDataParallel with a "
                        "communication hook, which writes gradients by itself; leave out model= and optimizer=")


def _hidden():
    """The keys of the storages of scripted modules: their interpreter uses them unseen."""
    return {tensor.untyped_storage()._cdata for module in _alive(_SCRIPTED)
            for tensor in (*module.parameters(), *module.buffers()) if is_plain(tensor)}


class Owned:
    """Of a model and an optimizer, as they are whenever they are asked; either may be None. knows: whether a tensor is of
    a kind that may leave."""

    def __init__(self, model, optimizer, knows=is_plain):
        self._model, self._optimizer, self._knows, self.optimizer_id = model, optimizer, knows, id(optimizer)
        self.may_leave = model is not None or optimizer is not None
        self._hidden = _hidden() if self.may_leave else ()

    def parameters(self):
        found = {} if self._model is None else {id(tensor): tensor for tensor in self._model.parameters()}
        for group in self._optimizer.param_groups if self._optimizer is not None else ():
            found.update((id(tensor), tensor) for tensor in group["params"])
        return found.values()

    def tensors(self):
        """(name, tensor) of each one; names are the same in each step."""
        for i, parameter in enumerate(self.parameters()):
            if self._is_hidden(parameter):
                continue
            yield ("parameter", i), parameter
            if parameter.grad is not None:
                yield (GRADIENT, i), parameter.grad
            for key, value in self._state(parameter):
                yield (STATE, i, key), value
        for name, tensor in self._model.named_buffers() if self._model is not None else ():
            if not self._is_hidden(tensor):
                yield ("buffer", name), tensor

    def _is_hidden(self, tensor):
        return bool(self._hidden) and is_plain(tensor) and tensor.untyped_storage()._cdata in self._hidden

    def _state(self, parameter):
        state = self._optimizer.state if self._optimizer is not None else {}
        for key, value in state[parameter].items() if parameter in state else ():
            if isinstance(value, torch.Tensor):
                yield key, value

    def storages(self):
        """{key of a storage: (storage, name, its tensors)} of all that may leave."""
        found = {}
        for name, tensor in self.tensors() if self.may_leave else ():
            if self._knows(tensor) and not tensor.is_complex():  # its uses through conjugates are not seen
                storage = tensor.untyped_storage()
                if storage._cdata in found:
                    if all(tensor is not known for known in found[storage._cdata][2]):
                        found[storage._cdata][2].append(tensor)
                else:
                    found[storage._cdata] = storage, name, [tensor]
        return found
