# SPDX-License-Identifier: Apache-2.0
"""How long an operator takes, estimated: the longer of its floating-point operations and its bytes, by a machine's rates.

A measured time is another one each time. Plans that have to come out the same each time are made with these.
"""
import torch
from torch.utils.flop_counter import flop_registry

from ._operators import tensors_in
from ._repeat import repeat_of
from ._tensors import parts_of


def estimated_ns(machine, func, args, kwargs, result):
    repeat = repeat_of(func)
    if repeat.is_view or repeat.is_unwritten:
        return 0
    n_bytes = sum(_bytes_of(tensor) * (is_read + is_written)
                  for tensor, is_read, is_written in repeat.operator.tensors(args, kwargs))
    if not func._schema.is_mutable:
        n_bytes += sum(_bytes_of(tensor) for tensor in tensors_in(result))
    return machine.step_ns(_flops(func, args, kwargs, result), n_bytes)


def _bytes_of(tensor):
    """Those of a sparse tensor are those of its parts; PyTorch has none for the whole."""
    return tensor.nbytes if tensor.layout == torch.strided else sum(part.nbytes() for part in parts_of(tensor))


def _flops(func, args, kwargs, result):
    count = flop_registry.get(func._overloadpacket)
    if count is None:
        return 0
    try:
        return count(*args, **kwargs, out_val=result)
    except Exception:  # PyTorch's formulas do not know all that its operators take
        return 0
