# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's allocator for cards has given beside the storages of tensors: workspaces that libraries keep, and what
blocks have more than was asked for. A budget is for all that the allocator has given, so a plan has this much less.
"""
import torch

from ._tensors import parts_of, storage_of, tensors_alive


def outside_bytes():
    """Between two steps, on all cards that tensors lie on; 0: on none, or the allocator does not tell."""
    storages = {}
    for tensor in tensors_alive() if torch.cuda.is_initialized() else ():
        for storage in (storage_of(tensor), *parts_of(tensor)) if tensor.is_cuda else ():
            if storage is not None:
                storages[storage._cdata] = tensor.device, storage.nbytes()
    return sum(_of_card(torch.cuda.memory_stats(device), sum(n_bytes for where, n_bytes in storages.values() if where == device))
               for device in {device for device, _ in storages.values()})


def _of_card(stats, held_bytes):
    """held_bytes: of storages. What is asked for beyond these is a library's. Blocks are larger than was asked for; most so at
    the peak."""
    asked, most_asked, most_given = (stats.get(f"{kind}_bytes.all.{when}", 0) for kind, when in (
        ("requested", "current"), ("requested", "peak"), ("allocated", "peak")))
    return max(0, asked - held_bytes) + max(0, most_given - most_asked) if asked else 0
