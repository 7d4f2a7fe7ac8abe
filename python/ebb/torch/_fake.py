# SPDX-License-Identifier: Apache-2.0
"""A training step on fake tensors, recorded as `_steps` records a real one: nothing is computed and nothing allocated.

A model and its optimizer are copied with a fake tensor in place of each of theirs, so that neither is changed, whether
their tensors are real, fake or on the meta device. Tensors that share a storage still do. What an operator takes is
estimated from its floating-point operations, as PyTorch counts them, and the bytes that it reads and writes, by the
rates of a machine. Bits cannot be compared: each operator that can be repeated is taken to give the same ones.
"""
import collections
import copy

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from . import _guard
from ._estimated import estimated_ns
from ._operators import tensors_in
from ._owned import Owned
from ._recording import Recording
from ._steps import Recorder
from ._tensors import over

_storage_of = torch.Tensor.untyped_storage


class Fakes:
    """Fake tensors of one mode for tensors of any kind. devices: those that were asked for; `moved`: of these, what
    this PyTorch cannot run, not even on fake tensors; they are on the CPU instead."""

    def __init__(self):
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.devices, self.moved, self._bases = set(), set(), {}

    def device(self, device):
        """Where the fakes of this device's tensors are: autograd wants a card for a card's tensors. Meta stands for any."""
        if device.type == "meta":
            return torch.device("cpu")
        self.devices.add(device.type)
        if device.type != "cpu" and not getattr(torch, device.type).is_available():
            self.moved.add(device.type)
            return torch.device("cpu")
        return device

    def tensor(self, real):
        _guard.lift([real])  # of a Budget, which may have it away between steps
        if type(real) not in (torch.Tensor, torch.nn.Parameter, FakeTensor) or real.layout != torch.strided:
            raise TypeError(f"ebb: a plan is for plain tensors, not {type(real).__name__} of layout {real.layout}")
        with self.mode, torch.no_grad():
            fake = self._over_storage(real)
        return torch.nn.Parameter(fake, real.requires_grad) if isinstance(real, torch.nn.Parameter) else \
            fake.requires_grad_(real.requires_grad)

    def _over_storage(self, real):
        storage = _storage_of(real)
        base, _ = self._bases.get(storage._cdata, (None, None))
        if base is None:
            base = torch.empty(storage.nbytes(), dtype=torch.uint8, device=self.device(real.device))
            self._bases[storage._cdata] = base, storage  # which keeps its key its own
        return torch.empty(0, dtype=real.dtype, device=base.device).set_(
            _storage_of(base), real.storage_offset(), real.size(), real.stride())

    def tree(self, value):
        return tree_map(lambda leaf: self.tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)

    def copy(self, model, optimizer):
        """Both, with fake tensors. The optimizer makes its state anew."""
        memo, held = {}, [*_held_by_modules(model), *model.parameters(), *model.buffers()]
        if optimizer is not None:
            held += [parameter for group in optimizer.param_groups for parameter in group["params"]]
            memo[id(optimizer.state)] = collections.defaultdict(dict)
        for tensor in held:
            if id(tensor) not in memo:
                memo[id(tensor)] = self.tensor(tensor)
        try:
            return copy.deepcopy((model, optimizer), memo)
        except (TypeError, RuntimeError) as error:
            raise TypeError(f"ebb: the model cannot be copied onto fake tensors: {error}") from error

    def free(self):
        """Forget what was copied, so that only those live that the copies have."""
        self._bases.clear()


class _Slot:
    """Where a fake storage goes that is moved out."""
    __slots__ = ("n_bytes",)

    def __init__(self, n_bytes):
        self.n_bytes = n_bytes

    def back(self):
        return torch.UntypedStorage(self.n_bytes, device="meta")


class _Slab:
    @staticmethod
    def out(storage):
        return _Slot(storage.nbytes())


class _Recorder(Recorder):
    def __init__(self, mode, machine):
        super().__init__(_Slab, False)
        self._mode, self._machine, self._devices = mode, machine, {}

    def begin(self, held, owned):
        """held: the fake tensors that are there before. owned: of these, what may leave by itself."""
        for tensor in held:
            self._number(tensor)
        self._note_owners(owned)

    def finish(self, owned):
        recording = super().finish(owned)
        return Recording(recording.entries, recording.storages, again_ns=0)

    def is_known(self, tensor):
        return type(tensor) is FakeTensor and tensor.fake_mode is self._mode and tensor.layout == torch.strided and \
            tensor.device.type != "meta"

    _is_plain, _kept_bytes = is_known, staticmethod(lambda func, args: 0)
    _without_graph = staticmethod(lambda tensor: tensor)  # fakes have no memory that could stay

    def _number(self, tensor, maker=None):
        number = super()._number(tensor, maker)
        if number is not None:
            self._devices.setdefault(number, tensor.device)
        return number

    def _over(self, storage, saved):
        return FakeTensor(self._mode, over(storage, saved.place), self._devices[saved.storage])

    def _run(self, func, args, kwargs):
        result = func(*args, **kwargs)
        return result, estimated_ns(self._machine, func, args, kwargs, result), 0


class _Step(TorchDispatchMode):
    def __init__(self, recorder):
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self._recorder.dispatch(func, types, args, kwargs or {})


def _held_by_modules(model):
    return [tensor for module in model.modules() for thing in module.__dict__.values() for tensor in tensors_in(thing)]


def _held(model, optimizer, batch):
    state = [list(values.values()) for values in optimizer.state.values()] if optimizer is not None else []
    parameters = list(model.parameters())
    return [*parameters, *model.buffers(), *_held_by_modules(model), *tensors_in(tree_leaves(batch)), *tensors_in(state),
            *(parameter.grad for parameter in parameters if parameter.grad is not None)]


def _checked(loss):
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise TypeError("ebb: the loss is to be one number that depends on the parameters; give "
                        "loss=lambda model, inputs: ...")
    return loss


def _make_state(optimizer, parameters):
    """What a step makes that has gradients of these (ids), and the gradients, which the next step finds."""
    optimizer.state.clear()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.empty_like(parameter) if id(parameter) in parameters else None
    try:
        optimizer.step()
    except TypeError as error:
        if "closure" not in str(error):
            raise
        raise TypeError(f"ebb: a plan cannot step {type(optimizer).__name__}, which needs a closure; leave the optimizer out") from None


def record(model, optimizer, batch_of, loss_of, machine, moves_all=False):
    """(recording, fakes) of a training step in which the optimizer has its state. batch_of: gives the batch, and gets
    the fakes. moves_all: what the model and the optimizer hold may leave by itself."""
    fakes = Fakes()
    model, optimizer = fakes.copy(model, optimizer)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    batch = batch_of(fakes)
    fakes.free()
    with fakes.mode:
        while True:
            if optimizer is not None:
                _make_state(optimizer, {id(parameter) for parameter in trained})
            recorder = _Recorder(fakes.mode, machine)
            owned = Owned(model if moves_all else None, optimizer if moves_all else None, recorder.is_known)
            recorder.begin(_held(model, optimizer, batch), owned.storages())
            with torch.autograd.graph.saved_tensors_hooks(recorder.pack, recorder.unpack), _Step(recorder):
                (optimizer or model).zero_grad()
                loss = _checked(loss_of(model, batch))
                loss.backward()
                if optimizer is not None:
                    optimizer.step()
            recording, loss = recorder.finish(owned.storages()), None
            n_trained, trained = len(trained), [parameter for parameter in trained if parameter.grad is not None]
            if optimizer is None or len(trained) == n_trained:  # else some have no gradient, and so no state
                return recording, fakes
