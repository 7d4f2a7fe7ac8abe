# SPDX-License-Identifier: Apache-2.0
"""Writes the trace file of docs/trace-format.md: what happened to every block of memory, in time order.

The page is the definition; `include/ebb/trace.h` is the same in C. Numbers of strings, stacks and blocks are what the
methods return; 0 is no string and no stack. Times are nanoseconds since the trace's time 0 and never go back: an event
that comes too early gets the time of the one before. The file grows while events are added, so that a killed process
leaves what it has recorded. A writer is one thread's at a time.
"""

MAGIC = b"\x89ebbtr\r\n"
MAJOR, MINOR, HEADER_BYTES = 1, 1, 32
(PARAMETER, BUFFER, GRADIENT, ACTIVATION, OPTIMIZER_STATE, TEMP, INPUT, OTHER, WORKSPACE, UNKNOWN) = range(10)
ROLES = ("parameter", "buffer", "gradient", "activation", "optimizer_state", "temp", "input", "other", "workspace",
         "unknown")
FORWARD, BACKWARD, UPDATE, NO_PHASE = range(4)

# What a source tells, as bits of the header; what it does not tell is unknown, not zero.
(TELLS_TIMES, TELLS_ACCESSES, TELLS_ADDRESSES, TELLS_ROLES, TELLS_STEPS, TELLS_SEGMENTS, TELLS_STACKS,
 TELLS_BEFORE) = (1 << bit for bit in range(8))

MAX_ROWS = 256
ITERATION_BEGIN, ITERATION_END, ANNOTATION = 0, 1, 2  # marks

_END, _STRING, _FRAME, _NOTE, _ROW, _STACK = range(6)
(_ALLOC, _FREE, _READ, _WRITE, _LABEL, _STEP_BEGIN, _STEP_END, _COPY_BEGIN, _COPY_END, _MARK, _SEGMENT_ALLOC,
 _SEGMENT_FREE) = range(0x10, 0x1c)
_HAS_NAME, _HAS_ADDRESS, _HAS_SPACE, _BEFORE, _ROLE_SHIFT = 1, 2, 4, 8, 4
_MASK = (1 << 64) - 1
_BUFFER_BYTES = 1 << 16
_MAX_STRING_BYTES = 1 << 20


def _varint(out, x):
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    out.append(x)


class Writer:
    def __init__(self, path, tells, start_unix_ns=0):
        self.n_events = self.n_blocks = 0
        self._out = bytearray(MAGIC)
        for number, n_bytes in ((MAJOR, 2), (MINOR, 2), (tells, 4), (start_unix_ns, 8), (HEADER_BYTES, 4), (0, 4)):
            self._out += number.to_bytes(n_bytes, "little")
        self._time_ns = self._address = self._row = 0
        self._n_whole = len(self._out)  # bytes, of records that are whole
        self._strings, self._frames = {"": 0}, {}
        self._file = open(path, "wb", buffering=0)

    def string(self, text):
        """The number of a text; each distinct one is written once."""
        number = self._strings.get(text)
        if number is None:
            data = text.replace("\0", "\ufffd").encode("utf-8", "replace")
            if len(data) > _MAX_STRING_BYTES:
                data = data[:_MAX_STRING_BYTES].decode("utf-8", "ignore").encode()
            self._out.append(_STRING)
            _varint(self._out, len(data))
            self._out += data
            number = self._strings[text] = len(self._strings)
            self._n_whole = len(self._out)
        return number

    def frame(self, caller, function, file, line):
        """The number of the stack that has one frame more than the stack `caller` (0: none)."""
        key = (caller, self.string(function), self.string(file), line)
        number = self._frames.get(key)
        if number is None:
            self._record(_FRAME, key)
            number = self._frames[key] = len(self._frames) + 1
        return number

    def note(self, key, value):
        self._record(_NOTE, (self.string(key), self.string(value)))

    def row(self, row):
        """The events that follow belong to this row of the timeline."""
        if row != self._row:
            self._record(_ROW, (row,))
            self._row = row

    def stack(self, stack):
        """The next event was made by this call stack."""
        if stack:
            self._record(_STACK, (stack,))

    def alloc(self, time_ns, size_bytes, role, name=0, address=None, space=0, before=False):
        """The number of the new block. `before`: it was there before the recording."""
        flags = role << _ROLE_SHIFT
        fields = [flags, size_bytes]
        if name:
            flags |= _HAS_NAME
            fields.append(name)
        if address is not None:
            flags |= _HAS_ADDRESS
            fields.append(self._delta(address))
        if space:
            flags |= _HAS_SPACE
            fields.append(space)
        fields[0] = flags | (_BEFORE if before else 0)
        self._event(_ALLOC, time_ns, fields)
        self.n_blocks += 1
        return self.n_blocks - 1

    def free(self, time_ns, block):
        self._event(_FREE, time_ns, (self.n_blocks - 1 - block,))

    def read(self, time_ns, block):
        self._event(_READ, time_ns, (self.n_blocks - 1 - block,))

    def write(self, time_ns, block):
        self._event(_WRITE, time_ns, (self.n_blocks - 1 - block,))

    def label(self, time_ns, block, role, name=0):
        """A live block has another role and name, known only now."""
        self._event(_LABEL, time_ns, (self.n_blocks - 1 - block, role, name))

    def step_begin(self, time_ns, name, op, phase, index=None):
        self._event(_STEP_BEGIN, time_ns, (name, op, phase, 0 if index is None else index + 1))

    def step_end(self, time_ns):
        self._event(_STEP_END, time_ns, ())

    def copy_begin(self, time_ns, block, size_bytes, direction, tier):
        self._event(_COPY_BEGIN, time_ns, (self.n_blocks - 1 - block, size_bytes, direction, tier))

    def copy_end(self, time_ns):
        self._event(_COPY_END, time_ns, ())

    def mark(self, time_ns, mark, name=0, number=0):
        self._event(_MARK, time_ns, (mark, name, number))
        self.flush()  # an iteration is what a reader of a cut file wants whole

    def segment_alloc(self, time_ns, space, address, size_bytes):
        self._event(_SEGMENT_ALLOC, time_ns, (space, self._delta(address), size_bytes))

    def segment_free(self, time_ns, space, address):
        self._event(_SEGMENT_FREE, time_ns, (space, self._delta(address)))

    def flush(self):
        left = memoryview(bytes(self._out))
        self._n_whole = 0
        self._out.clear()
        while left:
            left = left[self._file.write(left):]

    def close(self):
        """End the file; without this it is one that was cut off."""
        if not self._file.closed:
            self._record(_END, (self.n_events, self.n_blocks))
            try:
                self.flush()
            finally:
                self._file.close()

    def abandon(self):
        """End the file without an end, whatever was interrupted: what is whole goes into it where there is room."""
        try:
            del self._out[self._n_whole:]
            self.flush()
        except OSError:
            pass
        finally:
            self._file.close()

    def _delta(self, address):
        """An address as the signed difference to the one before, modulo 2^64, the sign folded into the lowest bit."""
        delta = (address - self._address) & _MASK
        self._address = address
        return (delta << 1 & _MASK) ^ (_MASK if delta >> 63 else 0)

    def _record(self, kind, fields):
        self._out.append(kind)
        for x in fields:
            _varint(self._out, x)
        self._n_whole = len(self._out)

    def _event(self, kind, time_ns, fields):
        out, dt = self._out, time_ns - self._time_ns
        if dt > 0:
            self._time_ns = time_ns
        else:
            dt = 0
        out.append(kind)
        while dt > 127:
            out.append(dt & 127 | 128)
            dt >>= 7
        out.append(dt)
        for x in fields:
            while x > 127:
                out.append(x & 127 | 128)
                x >>= 7
            out.append(x)
        self.n_events += 1
        self._n_whole = len(out)
        if self._n_whole > _BUFFER_BYTES:
            self.flush()
