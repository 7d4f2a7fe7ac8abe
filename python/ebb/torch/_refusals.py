# SPDX-License-Identifier: Apache-2.0
"""Allocations that PyTorch's allocators refused: what their errors say was asked for, and of which device."""
import re

import torch

_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_CPU = re.compile(r"CPUAllocator: .*you tried to allocate (\d+) bytes", re.S)
_ACCELERATOR = re.compile(r"(\w+) out of memory\. Tried to allocate ([\d.]+) (bytes|[KMG]iB)")
_NUMBER = re.compile(r"GPU (\d+)")
# Of 2.x: "a total capacity of 79.25 GiB of which 1 MiB is free"; of 1.13: "31.75 GiB total capacity; ...; 20 MiB free".
_CAPACITY = re.compile(r"total capacity of ([\d.]+) (bytes|[KMG]iB)|([\d.]+) (bytes|[KMG]iB) total capacity")
_FREE = re.compile(r"of which ([\d.]+) (bytes|[KMG]iB) is free|([\d.]+) (bytes|[KMG]iB) free")


def room_of(error):
    """(free bytes, capacity) of the device, as the error tells them; None: it does not."""
    found = [pattern.search(str(error)) for pattern in (_FREE, _CAPACITY)]
    if None in found:
        return None
    return tuple(round(float(one[1] or one[3]) * _UNITS[one[2] or one[4]]) for one in found)


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
