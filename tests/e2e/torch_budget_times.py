#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget: which times plans are made with.

    tests/e2e/torch_budget_times.py FOLDER
"""
import os
import sys
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import torch_budget
from ebb.torch import _inside
from torch_budget import verdict

PAUSE_S = 0.05


def clocks():
    """With one thread the time of others does not count."""
    n_threads, found = torch.get_num_threads(), {}
    for n in 1, 2:
        torch.set_num_threads(n)
        found[n] = _inside._timed(time.sleep, (PAUSE_S,), {})[1]
    torch.set_num_threads(n_threads)
    verdict("one thread: the processor's time counts", found[1] < PAUSE_S * 5e8, found)
    verdict("several threads: all time counts", found[2] >= PAUSE_S * 9e8, found)


if __name__ == "__main__":
    clocks()
    sys.exit(torch_budget.status)
