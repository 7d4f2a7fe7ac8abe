# SPDX-License-Identifier: Apache-2.0
"""The bytes that PyTorch's CPU allocator has given: tests/e2e/count_alloc.c, preloaded, for the benches beside it."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.join(HERE, "..", "tests", "e2e")
_COUNTER = "EBB_BENCH_COUNTER"

sys.path.append(TESTS)

import torch_counter


def preload():
    """Start this program again with the counter in front of the allocator, if it is not there yet."""
    if _COUNTER in os.environ:
        return
    path = os.path.join(tempfile.mkdtemp(), "count_alloc.so")
    subprocess.run(["cc", "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", path, os.path.join(TESTS, "count_alloc.c"),
                    "-ldl", "-pthread"], check=True)
    os.environ.update({"LD_PRELOAD": path, _COUNTER: path})
    os.execv(sys.executable, [sys.executable, *sys.argv])


def Counter():
    """A counter of this process."""
    return torch_counter.Counter(os.environ[_COUNTER])
