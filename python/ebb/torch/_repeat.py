# SPDX-License-Identifier: Apache-2.0
"""Operators that are called once more: what they are known by, how they are computed again, with which random state."""
import torch

from ._operators import Operator, tensors_in


_NUMBERS = {int, float, bool, type(None)}  # most of what is no tensor


def shapes_of(args, kwargs):
    """What a call of an operator is known by: the shapes of its tensors, and the sizes that it is given."""
    found = []
    for arg in (*args, *kwargs.values()) if kwargs else args:
        if type(arg) in _NUMBERS:
            continue
        if isinstance(arg, torch.Tensor):
            found.append(arg.shape)
        elif isinstance(arg, (list, tuple)) and arg and isinstance(arg[0], int):
            found.append(tuple(arg))
    return found


def map_tensors(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(item, change) for item in value)
    return value


def _without_statistics(args):
    """Batch-norm in training: its result does not depend on the running statistics, which must move only once."""
    return (*args[:3], None, None, *args[5:])


_BATCH_NORMS = ("aten.native_batch_norm", "aten.cudnn_batch_norm", "aten.miopen_batch_norm")
_UNSURE = ("aten.rrelu_with_noise", "aten.set_", "aten.resize_", "aten.as_strided_", "aten._local_scalar_dense",
           "aten._cudnn_rnn", "aten.miopen_rnn")  # the last two have a random state of their own
_UNWRITTEN = ("aten.empty", "aten.new_empty")  # their contents mean nothing
_SIZES_ONLY = ("aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.rand", "aten.new_")  # is all that they ask of a tensor
_C = torch._C
_FLAGS = [getattr(_C, name) for name in (
    "_get_float32_matmul_precision", "_get_mkldnn_enabled", "_get_mkldnn_deterministic", "_get_onednn_allow_tf32", "_get_nnpack_enabled",
    "_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic", "_get_cudnn_allow_tf32", "_get_cublas_allow_tf32",
    "_get_cublas_allow_fp16_reduced_precision_reduction", "_get_cublas_allow_bf16_reduced_precision_reduction",
    "_get_cublas_allow_fp16_accumulation", "_get_flash_sdp_enabled", "_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled",
    "_get_cudnn_sdp_enabled", "_get_deterministic_algorithms") if hasattr(_C, name)]


class Repeat:
    """How an operator is computed again: which of its arguments it writes, whether it draws random numbers."""

    def __init__(self, func):
        self.func, self.operator = func, Operator(func)
        self.name = self.operator.name
        self.is_bookkeeping = self.operator.is_primitive or self.operator.is_profiler  # no moment of a step
        self.is_batch_norm = self.name in _BATCH_NORMS
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags
        self.is_view = not func._schema.is_mutable and any(result.alias_info is not None for result in func._schema.returns)
        self.is_unwritten = self.name.startswith(_UNWRITTEN)
        self.reads_bytes = not (self.is_view or self.is_unwritten or self.name.startswith(_SIZES_ONLY))
        self.written = [i for i, argument in enumerate(func._schema.arguments)
                        if argument.alias_info is not None and argument.alias_info.is_write]
        self.is_sure = func.namespace == "aten" and not self.name.startswith(_UNSURE) and \
            all(not func._schema.arguments[i].kwarg_only for i in self.written)

    def arguments(self, args, kwargs):
        """Those with which it is computed again, or None: it cannot be."""
        if not self.is_sure or kwargs.get("out") is not None:
            return None
        if any(isinstance(arg, torch.Generator) for arg in (*args, *kwargs.values())):
            return None
        if self.is_batch_norm:
            return _without_statistics(args) if len(args) > 5 and args[5] else args
        return args


_repeats = {}  # by the id of an operator, which it keeps: operators hash slowly
passes = set()  # the ids of those that are no moment of a step in which nothing leaves but what autograd saves


def repeat_of(func):
    known = _repeats.get(id(func))
    if known is None:
        known = _repeats[id(func)] = Repeat(func)
        if known.is_bookkeeping or known.is_view:
            passes.add(id(func))
    return known


def random_state(device):
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def device_of(args, kwargs):
    """The device that an operator computes on, and whose random numbers it draws."""
    made_on = kwargs.get("device")
    return next((tensor.device for arg in args for tensor in tensors_in(arg)), torch.device("cpu" if made_on is None else made_on))


def _value(flag):
    try:
        return flag()
    except RuntimeError:  # a program that uses PyTorch's newer names for it
        return None


def flags():
    """What decides, beside its arguments, which algorithm an operator takes."""
    return [_value(flag) for flag in _FLAGS] + [torch.get_num_threads(), torch.get_default_dtype()]


def set_random_state(device, state):
    torch.cuda.set_rng_state(state, device) if device.type == "cuda" else torch.set_rng_state(state)
