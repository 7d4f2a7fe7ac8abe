# SPDX-License-Identifier: Apache-2.0
"""The bytes that PyTorch's CPU allocator has given: tests/e2e/count_alloc.c, preloaded, for the benches beside it. And by how much
a process grew, as the operating system says."""
import ctypes
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


_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of mallopt
_OWN_MAPPING_BYTES = 1 << 16  # a block of this size is mapped by itself, and unmapped when it is freed


class Growth:
    """By how much this process grows. From now on malloc gives back what is freed, so that the process is as large as what
    it uses."""

    def __init__(self):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)
        libc.malloc_trim(0)
        self._before = 0

    def begin(self):
        """Forget what was most."""
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        self._before = _status("VmRSS:")

    def bytes(self):
        """The most since, beyond what was resident then."""
        return _status("VmHWM:") - self._before


def _status(name):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name))
