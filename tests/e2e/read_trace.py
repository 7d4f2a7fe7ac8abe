#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says what is in a trace file, read by its description (trace_reader.py), as read_snapshot.py does of a snapshot: one
number a line.

    read_trace.py FILE
"""
import sys

from trace_reader import Trace


def depth(trace, stack):
    n = 0
    while stack:
        stack = trace.frames[stack][0]
        n += 1
    return n


def main():
    trace = Trace(sys.argv[1])
    assert trace.is_whole
    live, held = {}, {}
    now = peak = reserved = most = frees = blocks = before = marks = frames = 0
    for event in trace.events:
        kind = event["kind"]
        if kind == "alloc":
            live[event["block"]] = event["size"]
            now += event["size"]
            blocks += 1
            before += event["before"]
            frames += 0 if event["before"] else depth(trace, event["stack"])
        elif kind == "free":
            now -= live.pop(event["block"])
            frees += 1
            frames += depth(trace, event["stack"])
        elif kind == "mark":
            marks += 1
        elif kind == "segment_alloc":
            held[event["address"]] = event["size"]
            reserved += event["size"]
        elif kind == "segment_free":
            reserved -= held.pop(event["address"])
        elif kind not in ("read", "write"):
            raise ValueError(f"{kind} in a snapshot's trace")
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
