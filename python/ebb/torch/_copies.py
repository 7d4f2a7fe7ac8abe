# SPDX-License-Identifier: Apache-2.0
"""Copies that run beside computing, each way one after the other.

A thread makes them, outside of Python's lock. Between a card and pinned memory it is a stream of the card: then what
computes on the card waits for a copy, and the host does not.
"""
import os
from concurrent.futures import ThreadPoolExecutor

import torch


class Thread:
    """One way, by a thread. A process that was forked has no such thread and makes its copies at once, as are small ones,
    which take no longer than to wake the thread."""

    def __init__(self):
        self._pool, self._process = ThreadPoolExecutor(1, _NAME), os.getpid()

    def begin(self, copy, n_bytes):
        if self._process != os.getpid() or n_bytes < _SMALL_BYTES:
            return _Done(copy)
        try:
            return _Promise(self._pool.submit(copy))
        except RuntimeError:  # no thread can be started; the pool would make the copy later
            self._pool = ThreadPoolExecutor(1, _NAME)
            return _Done(copy)


_SMALL_BYTES, _NAME = 1 << 18, "ebb copies"


class _Done:
    """A copy that was made at once; that it failed is told to who waits for it."""

    def __init__(self, copy):
        self._error = None
        try:
            copy()
        except Exception as error:
            self._error = error

    def wait(self):
        """What computes from now on comes after the copy."""
        if self._error is not None:
            raise self._error

    finish = wait


class _Promise:
    def __init__(self, future):
        self._future, self._process = future, os.getpid()

    def wait(self):
        if self._process != os.getpid() and not self._future.done():
            raise RuntimeError("ebb: a copy was under way when this process was forked, and does not end here")
        self._future.result()

    finish = wait


_streams = {}  # by what PyTorch knows them by


def _computing(index):
    """The stream that computes on a card; torch.cuda.current_stream makes an object each time, which takes longer."""
    key = torch._C._cuda_getCurrentStream(index)
    stream = _streams.get(key)
    if stream is None:
        stream = _streams[key] = torch.cuda.current_stream(index)
    return stream


class Stream:
    """One way, by a stream of a card."""

    def __init__(self, device):
        self._index, self._stream, self._computed = device.index, torch.cuda.Stream(device), torch.cuda.Event()

    def begin(self, copy, _):
        """Copies what the card has computed by then. The card's streams are switched by hand: torch.cuda.stream takes
        longer than to give the card the copy."""
        computing, own, device = _computing(self._index), self._stream, torch.cuda.current_device()
        self._computed.record(computing)
        self._computed.wait(own)
        torch.cuda.set_stream(own)
        try:
            copy()
        finally:
            torch.cuda.set_stream(computing)
            if device != self._index:  # set_stream switches to the card of the stream
                torch.cuda.set_device(device)
        done = torch.cuda.Event()
        done.record(own)
        return _Event(done, self._index)


class _Event:
    __slots__ = "_event", "_index"

    def __init__(self, event, index):
        self._event, self._index = event, index

    def wait(self):
        self._event.wait(_computing(self._index))

    def finish(self):
        """The host waits, too."""
        self._event.synchronize()
        self.wait()
