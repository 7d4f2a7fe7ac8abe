# SPDX-License-Identifier: Apache-2.0
"""What users give: budgets, models, folders; and one clear exception for what is none of these."""
import numbers
import os
import re
from fractions import Fraction

import torch

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_NO_MEMORY = 1 << 63  # has so many bytes


def bytes_of(text):
    """(bytes, None) or (None, share) of what a user gives as a budget."""
    n_bytes = share = None
    if isinstance(text, numbers.Integral) and not isinstance(text, bool):
        n_bytes = int(text)
    elif isinstance(text, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|[kKmMgGtT]?i?[bB]?)\s*", text)
        if found is not None and found[2] == "%":
            share = float(Fraction(found[1]) / 100)
        elif found is not None:
            unit = _UNITS.get(found[2].upper(), 0)
            n_bytes = int(Fraction(found[1]) * unit) if unit > 1 or "." not in found[1] else None
    if share or n_bytes is not None and 0 < n_bytes < _NO_MEMORY:
        return n_bytes, share
    raise ValueError(f"ebb: a budget is a number of bytes, \"6GiB\" or \"60%\", not {text!r}")


def bytes_or_share(text):
    """bytes_of, where a share above all would do nothing."""
    n_bytes, share = bytes_of(text)
    if share is not None and share > 1:
        raise ValueError(f"ebb: a budget of {text!r} is more than a step needs; give at most \"100%\", or bytes")
    return n_bytes, share


def check_spill(spill, words):
    """ValueError, unless it is None, a folder, or one of these words."""
    if spill is None or isinstance(spill, str) and spill in words:
        return
    listed = ", ".join(f'"{word}"' for word in words[:-1]) + f' or "{words[-1]}"'
    if not isinstance(spill, (str, os.PathLike)):
        raise ValueError(f"ebb: spill is a folder, {listed}, not {spill!r}")
    if not os.path.isdir(spill):
        is_file = os.path.exists(spill)
        raise ValueError(f"ebb: spill is a folder, {listed}, and {os.fspath(spill)!r} is " + (
            "a file" if is_file else "a folder that does not exist"))


def check_model(model):
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"ebb: model is a torch.nn.Module, not {type(model).__name__}")


def check_optimizer(optimizer):
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"ebb: optimizer is a torch.optim.Optimizer, not {type(optimizer).__name__}")


def check_effort(effort):
    if not isinstance(effort, int) or isinstance(effort, bool) or effort < 0:
        raise ValueError(f"ebb: effort is a whole number from 0 up, not {effort!r}")
