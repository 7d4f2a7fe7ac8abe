# SPDX-License-Identifier: Apache-2.0
"""The bytes that PyTorch's CPU allocator has given: tests/e2e/count_alloc.c, preloaded, for the benches beside it."""
import ctypes
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.join(HERE, "..", "tests", "e2e")
_COUNTER = "EBB_BENCH_COUNTER"


def preload():
    """Start this program again with the counter in front of the allocator, if it is not there yet."""
    if _COUNTER in os.environ:
        return
    path = os.path.join(tempfile.mkdtemp(), "count_alloc.so")
    subprocess.run(["cc", "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", path, os.path.join(TESTS, "count_alloc.c"),
                    "-ldl", "-pthread"], check=True)
    os.environ.update({"LD_PRELOAD": path, _COUNTER: path})
    os.execv(sys.executable, [sys.executable, *sys.argv])


class Counter:
    """The peak of the bytes that PyTorch's allocator has given and not got back."""

    def __init__(self):
        library = ctypes.CDLL(os.environ[_COUNTER])
        library.count_alloc_log.restype = ctypes.POINTER(ctypes.c_uint64)
        library.count_alloc_n.restype = ctypes.c_size_t
        self._library, self._log, self._at, self._live, self.bytes = library, library.count_alloc_log(), 0, {}, 0

    def peak(self):
        """Since the last call."""
        most, n = self.bytes, self._library.count_alloc_n()
        for i in range(self._at, n):
            address, size = self._log[2 * i], self._log[2 * i + 1]
            self.bytes += size - self._live.pop(address, 0)
            if size:
                self._live[address] = size
            most = max(most, self.bytes)
        self._at = n
        return most
