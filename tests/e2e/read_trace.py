#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a trace file by its description (docs/trace-format.md) and says what is in it, as read_snapshot.py does of a
snapshot: one number a line.

    read_trace.py FILE
"""
import sys


class Trace:
    def __init__(self, data):
        self.data, self.at = data, int.from_bytes(data[24:28], "little")
        self.strings, self.frames, self.notes = [""], [0], {}
        assert data[:8] == b"\x89ebbtr\r\n"
        self.tells = int.from_bytes(data[12:16], "little")

    def number(self):
        x = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            x |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return x

    def signed(self):
        x = self.number()
        return x >> 1 if x % 2 == 0 else -(x >> 1) - 1

    def events(self):
        """(kind, fields) of each event; fields begin with the depth of its stack."""
        address = blocks = stack = 0
        mask = (1 << 64) - 1
        while True:
            kind = self.data[self.at]
            self.at += 1
            if kind == 0x00:
                return
            if kind == 0x01:
                n = self.number()
                self.strings.append(self.data[self.at:self.at + n].decode())
                self.at += n
            elif kind == 0x02:
                caller = self.number()
                self.number(), self.number(), self.number()
                self.frames.append(self.frames[caller] + 1)
            elif kind == 0x03:
                key = self.strings[self.number()]
                self.notes[key] = self.strings[self.number()]
            elif kind == 0x04:
                self.number()
            elif kind == 0x05:
                stack = self.frames[self.number()]
            elif kind >= 0x40:
                n = self.number()
                self.at += n
            else:
                self.number()
                fields = [stack]
                stack = 0
                if kind == 0x10:
                    flags, size = self.number(), self.number()
                    name = self.number() if flags & 1 else 0
                    address = (address + self.signed()) & mask if flags & 2 else address
                    space = self.number() if flags & 4 else 0
                    fields += [blocks, size, flags, name, space]
                    blocks += 1
                elif kind in (0x11, 0x12, 0x13):
                    fields.append(blocks - 1 - self.number())
                elif kind == 0x19:
                    fields += [self.number(), self.strings[self.number()], self.number()]
                elif kind in (0x1a, 0x1b):
                    self.number()
                    address = (address + self.signed()) & mask
                    fields += [address, self.number() if kind == 0x1a else 0]
                else:
                    raise ValueError(f"kind {kind:#x} at {self.at}")
                yield kind, fields


def main():
    with open(sys.argv[1], "rb") as file:
        trace = Trace(file.read())
    live, held = {}, {}
    now = peak = reserved = most = frees = blocks = before = marks = frames = 0
    for kind, f in trace.events():
        if kind == 0x10:
            live[f[1]] = f[2]
            now += f[2]
            blocks += 1
            before += f[3] >> 3 & 1
            frames += 0 if f[3] >> 3 & 1 else f[0]
        elif kind == 0x11:
            now -= live.pop(f[1])
            frees += 1
            frames += f[0]
        elif kind == 0x19:
            marks += 1
        elif kind == 0x1a:
            held[f[1]] = f[2]
            reserved += f[2]
        elif kind == 0x1b:
            reserved -= held.pop(f[1])
        peak, most = max(peak, now), max(most, reserved)
    print("device", trace.notes.get("device", "none"))
    print("blocks", blocks)
    print("before", before)
    print("frees", frees)
    print("peak", peak)
    print("live", now)
    if trace.tells >> 7 & 1:
        print("reserved", reserved)
        print("most reserved", most)
    print("marks", marks)
    print("frames", frames)


main()
