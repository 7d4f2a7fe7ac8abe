# SPDX-License-Identifier: Apache-2.0
"""Allocations that PyTorch's allocators refused: what their errors say was asked for, and of which device."""
import re

import torch

_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_CPU = re.compile(r"CPUAllocator: .*you tried to allocate (\d+) bytes", re.S)
_ACCELERATOR = re.compile(r"(\w+) out of memory\. Tried to allocate ([\d.]+) (bytes|[KMG]iB)")
_NUMBER = re.compile(r"GPU (\d+)")


def refusal_of(error):
    """(device, bytes) that an error is about; None: it is another one. Accelerators tell two decimals of their unit."""
    text = str(error)
    found = _CPU.search(text)
    if found:
        return torch.device("cpu"), int(found[1])
    found = _ACCELERATOR.search(text)
    if not found:
        return None
    number, kind = _NUMBER.search(text), found[1].lower()
    try:
        device = torch.device("cuda" if kind == "hip" else kind, int(number[1]) if number else 0)
    except RuntimeError:  # a device that this PyTorch does not know
        return None
    return device, round(float(found[2]) * _UNITS[found[3]])
