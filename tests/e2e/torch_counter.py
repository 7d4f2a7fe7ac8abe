# SPDX-License-Identifier: Apache-2.0
"""The bytes that PyTorch's CPU allocator has given, by count_alloc.c, which is preloaded."""
import ctypes


class Counter:
    """bytes: given and not got back. path: of the preloaded library."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
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
