# SPDX-License-Identifier: Apache-2.0
"""Tensors as views of storages: where a tensor lies in its storage, and the same tensor over another storage.

No dispatch mode sees these calls; they save nothing for autograd and cast nothing.
"""
import ctypes
import gc
import hashlib

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

expired, forget = torch.UntypedStorage._expired, torch.UntypedStorage._free_weak_ref
alive = torch.UntypedStorage._new_with_weak_ptr  # the storage of a weak reference; None: it is gone
in_backward = torch._C._current_graph_task_id  # -1: not
n_modes = torch._C._len_torch_dispatch_stack  # dispatch modes that are active
_set_grad = torch._C._set_grad_enabled
CHANGED = "ebb: a tensor that autograd saved was changed in place before it was used (perhaps through .data, where PyTorch lets it pass)"
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class quietly:
    """No dispatch mode sees what is called within, nothing is saved for autograd or cast. Entered for each action of a plan, so
    it is short."""
    __slots__ = "_no_dispatch", "_no_cast", "_had_grad"

    def __enter__(self):
        self._had_grad = torch.is_grad_enabled()
        self._no_dispatch, self._no_cast = torch._C._DisableTorchDispatch(), torch._C._DisableAutocast()
        self._no_cast.__enter__()
        _set_grad(False)

    def __exit__(self, *_):
        _set_grad(self._had_grad)
        self._no_cast.__exit__(None, None, None)
        self._no_dispatch = None


_PLAIN_TYPES = torch.Tensor, torch.nn.Parameter
_keys_of, _plain_keys = torch._C._dispatch_keys, {}  # which say all of this but the type: {their bits: whether it is plain}


def is_plain(tensor):
    """A tensor that its storage and geometry tell all about."""
    if type(tensor) not in _PLAIN_TYPES:
        return False
    keys = _keys_of(tensor).raw_repr()
    known = _plain_keys.get(keys)
    if known is None:
        known = _plain_keys[keys] = tensor.layout == torch.strided and not tensor.is_conj() and not tensor.is_neg() and \
            not tensor.is_quantized and not tensor._is_zerotensor() and tensor.device.type != "meta"
    return known


def is_made_of_tensors(types):
    """Whether one of these classes wraps other tensors. Its operators come again, as operators on those tensors."""
    return any(hasattr(kind, "__tensor_flatten__") for kind in types)


def tensors_alive():
    """All tensors that Python has, and their gradients; not fake ones, which are beside any real step."""
    things = gc.get_objects()
    kinds = {kind for kind in set(map(type, things)) if issubclass(kind, torch.Tensor) and not issubclass(kind, FakeTensor)}
    for thing in [thing for thing in things if type(thing) in kinds]:
        yield thing
        if thing.is_leaf and thing.requires_grad and thing.grad is not None:
            yield thing.grad


def version_of(tensor):
    """How often a tensor was written; None: PyTorch does not count it."""
    return None if tensor.is_inference() else tensor._version


def is_overwritten(tensor):
    """Whether others may write its memory unseen, as NumPy does. What a loader's processes share stays as it is."""
    storage = storage_of(tensor)
    return storage is not None and tensor.device.type == "cpu" and not storage.resizable() and not storage.is_shared()


def storage_of(tensor):
    """None: it has none."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


_PARTS = {torch.sparse_coo: ("_indices", "_values"), torch.sparse_csr: ("crow_indices", "col_indices", "values"),
          torch.sparse_bsr: ("crow_indices", "col_indices", "values"), torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
          torch.sparse_bsc: ("ccol_indices", "row_indices", "values")}


def parts_of(tensor):
    """The storages that a sparse tensor is made of."""
    with quietly():
        return [getattr(tensor, name)().untyped_storage() for name in _PARTS.get(tensor.layout, ())]


def _count_users():
    """What PyTorch counts as users of a storage that one tensor lies in."""
    tensor = torch.empty(1)
    storage = tensor.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata)


_UNSHARED = _count_users()


def n_tensors_over(storage):
    """How many tensors lie in a storage, among them those that only autograd has."""
    return torch._C._storage_Use_Count(storage._cdata) - _UNSHARED + 1


def bytes_view(storage):
    """The bytes of a storage in the host's memory."""
    return memoryview((ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())).cast("B")


def digest(tensor):
    """Of all bytes of its storage, on a CPU."""
    return hashlib.blake2b(bytes_view(tensor.untyped_storage())).digest()


def is_resident_only(storage):
    """Memory that others may know by its address: NumPy's, shared with other processes, mapped from a file."""
    return not storage.resizable() or storage.device.type == "cpu" and storage.is_shared()


def geometry(tensor):
    return tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride()


def without_graph(tensor):
    """What a hook may keep of a tensor that autograd saves: an operator's own result has the operator, which has the hook's
    answer. No collector sees that circle, so the memory would stay for good if the graph is kept."""
    if tensor.grad_fn is None:
        return tensor
    if type(tensor) in _PLAIN_TYPES:
        with quietly():
            return tensor.detach()
    with _disable_current_modes(), torch.no_grad():  # what a tensor made of tensors does needs their dispatch
        return tensor.detach()


def over(storage, place):
    """The tensor of this geometry over a storage."""
    dtype, offset, size, stride = place
    return torch.empty((0,), dtype=dtype, device=storage.device).set_(storage, offset, size, stride)


def _span(place):
    """The bytes of a storage between which a tensor lies."""
    dtype, offset, size, stride = place
    if 0 in size:
        return 0, 0
    last = offset + sum((n - 1) * step for n, step in zip(size, stride))
    return offset * dtype.itemsize, (last + 1) * dtype.itemsize


def overlap(a, b):
    """Whether two tensors of one storage (geometries) have a byte in common."""
    spans = _span(a), _span(b)
    if spans[0][1] <= spans[1][0] or spans[1][1] <= spans[0][0]:
        return False
    if a[0].itemsize != b[0].itemsize:
        return True
    seen = torch.zeros(max(spans[0][1], spans[1][1]) // a[0].itemsize, dtype=torch.bool)
    seen.as_strided(a[2], a[3], a[1]).fill_(True)
    return bool(seen.as_strided(b[2], b[3], b[1]).any())


def same_bits(a, b):
    """Two results of one operator are the same in each bit, and lie alike."""
    if geometry(a) != geometry(b) or a.untyped_storage().nbytes() != b.untyped_storage().nbytes():
        return False
    bits = _BITS.get(a.element_size())
    return bits is not None and torch.equal(a.view(bits), b.view(bits))
