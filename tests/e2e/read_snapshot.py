#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a memory snapshot of PyTorch with Python's own unpickler, and says what is in it: one number a line.

It shares nothing with the reader in C, nor its way: from the state at the end it undoes the events, last to first,
which gives the live bytes of every moment.

    read_snapshot.py FILE [DEVICE]
"""
import pickle
import sys


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} in a snapshot")


def size_of(block):
    if "requested_size" in block:
        return block["requested_size"]
    return block["history"][0]["real_size"] if "history" in block else block["size"]


def final_blocks(segments):
    """Bytes by address of what is allocated at the end."""
    live = {}
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                live[block.get("address", address)] = size_of(block)
            address += block["size"]
    return live


def undo(events, live, death):
    """The most bytes of any moment, and the blocks at the beginning."""
    now = peak = sum(live.values())
    for event in reversed(events):
        if event["action"] == "alloc":
            now -= live.pop(event["addr"])
        elif event["action"] in death:
            live[event["addr"]] = event["size"]
            now += event["size"]
        peak = max(peak, now)
    return peak, live


def most_reserved(events, reserved):
    most = reserved
    for event in reversed(events):
        if event["action"] in ("segment_alloc", "segment_map"):
            reserved -= event["size"]
        elif event["action"] in ("segment_free", "segment_unmap"):
            reserved += event["size"]
        most = max(most, reserved)
    return most


def main():
    with open(sys.argv[1], "rb") as file:
        tree = Plain(file).load()
    if isinstance(tree, list):
        tree = {"segments": tree}
    traces = tree.get("device_traces", [[]])
    busiest = max(range(len(traces)), key=lambda i: (len(traces[i]), -i))
    device = int(sys.argv[2]) if len(sys.argv) > 2 else busiest
    events = traces[device]
    segments = [s for s in tree.get("segments", []) if s["device"] == device]
    actions = [e["action"] for e in events]
    death = ("free_requested", "free") if {"free_requested", "free"} & set(actions) else ("free_completed",)
    final = final_blocks(segments)
    if "segments" not in tree:  # what the events leave
        for event in events:
            if event["action"] == "alloc":
                final[event["addr"]] = event["size"]
            elif event["action"] in death:
                final.pop(event["addr"], None)
    end_bytes = sum(final.values())
    peak, before = undo(events, dict(final), death)
    reserved = sum(s["total_size"] for s in segments)
    print("device", device)
    print("blocks", actions.count("alloc") + len(before))
    print("before", len(before))
    print("frees", sum(a in death for a in actions))
    print("peak", peak)
    print("live", end_bytes)
    if "segments" in tree:
        print("reserved", reserved)
        print("most reserved", most_reserved(events, reserved))
    print("marks", sum(a in ("oom", "snapshot") for a in actions) +
          sum(a["device"] == device for a in tree.get("external_annotations", [])))
    print("frames", sum(len(e.get("frames", [])) for e in events if e["action"] in ("alloc", *death)))


main()
