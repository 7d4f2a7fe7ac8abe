# SPDX-License-Identifier: Apache-2.0
"""Reads ebb's trace files in Python, from docs/trace-format.md alone: for tests, beside the readers in C.

    tests/e2e/trace_reader.py FILE          prints a line an event
    tests/e2e/trace_reader.py FILE COPY     writes the file again with python/ebb/trace.py; the copy has the same bytes
"""
import os
import sys

KINDS = ("alloc free read write label step_begin step_end copy_begin copy_end mark segment_alloc segment_free").split()
ROLES = "parameter buffer gradient activation optimizer_state temp input other workspace unknown".split()


class Trace:
    """`events`: dicts. `notes`. `is_whole`: the end record was there."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        assert self.data[:8] == b"\x89ebbtr\r\n", f"{path} is no trace"
        number = lambda at, n: int.from_bytes(self.data[at:at + n], "little")
        self.version, self.tells, self.start_unix_ns = (number(8, 2), number(10, 2)), number(12, 4), number(16, 8)
        self.at = number(24, 4)
        self.strings, self.frames, self.notes, self.events, self.records = [""], [None], {}, [], []
        self.is_whole, self.n_blocks, self.row, self.stack, self.time, self.address = False, 0, 0, 0, 0, 0
        self.live = {}
        while self.at < len(self.data):
            begin = self.at
            try:
                self.record()
            except IndexError:
                self.at = begin
                break

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
        self.address = (self.address + (x >> 1 ^ -(x & 1))) % 2**64
        return self.address

    def record(self):
        kind = self.data[self.at]
        self.at += 1
        if 0x10 <= kind <= 0x1b:
            self.event(KINDS[kind - 0x10])
        elif kind == 0:
            assert (self.number(), self.number()) == (len(self.events), self.n_blocks), "the end counts wrong"
            assert self.at == len(self.data), "bytes behind the end"
            self.is_whole = True
        elif kind == 1:
            n = self.number()
            if self.at + n > len(self.data):
                raise IndexError
            self.strings.append(self.data[self.at:self.at + n].decode())
            self.at += n
            self.records.append(("string", self.strings[-1]))
        elif kind == 2:
            frame = (self.number(), self.strings[self.number()], self.strings[self.number()], self.number())
            self.frames.append(frame)
            self.records.append(("frame", frame))
        elif kind == 3:
            key, value = self.strings[self.number()], self.strings[self.number()]
            self.notes[key] = value
            self.records.append(("note", (key, value)))
        elif kind == 4:
            self.row = self.number()
        elif kind == 5:
            self.stack = self.number()
        elif kind >= 0x40:
            n = self.number()
            self.at += n
        else:
            raise AssertionError(f"kind {kind} at {self.at - 1}")

    def block(self):
        block = self.n_blocks - 1 - self.number()
        assert block in self.live, f"block {block} is not live"
        return block

    def event(self, kind):
        self.time += self.number()
        event = {"kind": kind, "time": self.time, "row": self.row, "stack": self.stack}
        self.stack = 0
        if kind == "alloc":
            flags = self.number()
            event.update(block=self.n_blocks, size=self.number(), role=ROLES[flags >> 4], before=bool(flags & 8))
            event["name"] = self.strings[self.number()] if flags & 1 else ""
            event["address"] = self.signed() if flags & 2 else None
            event["space"] = self.number() if flags & 4 else 0
            self.live[self.n_blocks] = event
            self.n_blocks += 1
        elif kind in ("free", "read", "write"):
            event["block"] = self.block()
            if kind == "free":
                del self.live[event["block"]]
        elif kind == "label":
            event.update(block=self.block(), role=ROLES[self.number()], name=self.strings[self.number()])
        elif kind == "step_begin":
            event.update(name=self.strings[self.number()], op=self.strings[self.number()], phase=self.number(),
                         index=self.number() - 1)
        elif kind == "copy_begin":
            event.update(block=self.block(), size=self.number(), direction=self.number(), tier=self.number())
        elif kind == "mark":
            event.update(mark=self.number(), name=self.strings[self.number()], number=self.number())
        elif kind.startswith("segment"):
            event.update(space=self.number(), address=self.signed())
            if kind == "segment_alloc":
                event["size"] = self.number()
        self.events.append(event)
        self.records.append((kind, event))

    def stack_lines(self, stack):
        """function (file:line) of each frame, the innermost first."""
        lines = []
        while stack:
            stack, function, file, line = self.frames[stack]
            lines.append(f"{function} ({file}:{line})")
        return lines

    def curve(self, only=lambda alloc: True):
        """(event's index, live bytes behind it) for each alloc and free."""
        live, sizes, points = 0, {}, []
        for i, event in enumerate(self.events):
            if event["kind"] == "alloc" and only(event):
                sizes[event["block"]] = event["size"]
                live += event["size"]
            elif event["kind"] == "free":
                live -= sizes.pop(event["block"], 0)
            else:
                continue
            points.append((i, live))
        return points

    def peak(self, only=lambda alloc: True):
        return max((live for _, live in self.curve(only)), default=0)


def rewrite(source, path, keeps=lambda kind: True):
    """The same trace again, or the events of it whose kind is kept."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
    from ebb import trace
    assert tuple(ROLES) == trace.ROLES
    writer = trace.Writer(path, source.tells, source.start_unix_ns)
    for kind, it in source.records:
        if kind in ("string", "note", "frame"):
            getattr(writer, kind)(*(it if kind != "string" else (it,)))
            continue
        if not keeps(kind):
            continue
        writer.row(it["row"])
        writer.stack(it["stack"])
        time, text = it["time"], lambda key: writer.string(it[key])
        if kind == "alloc":
            block = writer.alloc(time, it["size"], ROLES.index(it["role"]), text("name"), it["address"], it["space"],
                                 it["before"])
            assert block == it["block"]
        elif kind in ("free", "read", "write"):
            getattr(writer, kind)(time, it["block"])
        elif kind == "label":
            writer.label(time, it["block"], ROLES.index(it["role"]), text("name"))
        elif kind == "step_begin":
            writer.step_begin(time, text("name"), text("op"), it["phase"], it["index"] if it["index"] >= 0 else None)
        elif kind == "copy_begin":
            writer.copy_begin(time, it["block"], it["size"], it["direction"], it["tier"])
        elif kind == "mark":
            writer.mark(time, it["mark"], text("name"), it["number"])
        elif kind == "segment_alloc":
            writer.segment_alloc(time, it["space"], it["address"], it["size"])
        elif kind == "segment_free":
            writer.segment_free(time, it["space"], it["address"])
        else:
            getattr(writer, kind)(time)
    if source.is_whole:
        writer.close()
    else:
        writer.flush()


def main():
    trace = Trace(sys.argv[1])
    if len(sys.argv) > 2:
        rewrite(trace, sys.argv[2])
        return
    for event in trace.events:
        print(" ".join(f"{key}={value}" for key, value in event.items()))
    print(f"notes {trace.notes}", "whole" if trace.is_whole else "cut", f"peak {trace.peak()}")


if __name__ == "__main__":
    main()
