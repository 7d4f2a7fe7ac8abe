#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes memory snapshots in which PyTorch's caching allocator, by its rules, serves a network in training.

    make_reserved.py FOLDER        one file for each setting, FOLDER/NAME.pickle

The rules are told here once more, as lists that are searched from end to end: rounding, the two pools of each stream,
segments, best fit, splitting, max_split_size, roundup_power2_divisions, expandable segments. No capacity, so nothing
is collected or given back but by empty_cache. Each file states what is reserved at its end.
"""
import os
import pickle
import random
import sys

MIB = 1 << 20


class Allocator:
    def __init__(self, max_split=0, divisions=0, expandable=False):
        self.max_split, self.divisions, self.expandable = max_split, divisions, expandable
        self.segments = []  # {"address", "size", "small", "stream", "blocks": [[address, size, requested or None]]}
        self.stream = 0
        self.events, self.next_address, self.now_us = [], 1 << 40, 1_700_000_000_000_000

    def note(self, action, address, size):
        self.now_us += 7
        self.events.append({"action": action, "addr": address, "size": size, "stream": self.stream,
                            "time_us": self.now_us, "frames": []})

    def round(self, size):
        if self.divisions > 1 and size > 512 * self.divisions:
            power = 1 << (size.bit_length() - 1)
            step = power // self.divisions
            return size if size == power else -(-size // step) * step
        return max(512, -(-size // 512) * 512)

    def find(self, size, small):
        best = None
        for segment in self.segments:
            for at, (address, n, requested) in enumerate(segment["blocks"]):
                if (segment["small"], segment["stream"]) != (small, self.stream) or requested is not None or n < size:
                    continue
                end = self.expandable and at == len(segment["blocks"]) - 1
                if best is None or (end, n, address) < best[0]:
                    best = (end, n, address), segment, at
        if best and self.max_split:
            n = best[0][1]
            if size < self.max_split <= n or (size >= self.max_split and n >= size + 20 * MIB):
                return None
        return best

    def grow(self, size, small):
        page = 2 * MIB if small else 20 * MIB
        if self.expandable:
            segment = next((s for s in self.segments if (s["small"], s["stream"]) == (small, self.stream)), None)
            if segment is None:
                segment = {"address": self.next_address, "size": 0, "small": small, "stream": self.stream, "blocks": []}
                self.next_address += 1 << 44
                self.segments.append(segment)
            blocks = segment["blocks"]
            free = blocks[-1][1] if blocks and blocks[-1][2] is None else 0
            more = -(-(size - free) // page) * page
            for at in range(segment["address"] + segment["size"], segment["address"] + segment["size"] + more, page):
                self.note("segment_map", at, page)
            if free:
                blocks[-1][1] += more
            else:
                blocks.append([segment["address"] + segment["size"], more, None])
            segment["size"] += more
            return
        more = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        self.note("segment_alloc", self.next_address, more)
        self.segments.append({"address": self.next_address, "size": more, "small": small, "stream": self.stream,
                              "blocks": [[self.next_address, more, None]]})
        self.next_address += more + 2 * MIB

    def alloc(self, requested):
        size = self.round(requested)
        small = size <= MIB
        found = self.find(size, small)
        if found is None:
            self.grow(size, small)
            segment = self.segments[-1]
            if self.expandable:
                segment = next(s for s in self.segments if (s["small"], s["stream"]) == (small, self.stream))
            at = len(segment["blocks"]) - 1
        else:
            _, segment, at = found
        block = segment["blocks"][at]
        rest = block[1] - size
        splits = rest >= 512 if small or self.expandable else rest > MIB and not 0 < self.max_split <= size
        if splits:
            segment["blocks"].insert(at + 1, [block[0] + size, rest, None])
            block[1] = size
        block[2] = requested
        self.note("alloc", block[0], requested)
        return block[0]

    def free(self, address):
        for segment in self.segments:
            blocks = segment["blocks"]
            for at, block in enumerate(blocks):
                if block[0] != address or block[2] is None:
                    continue
                self.note("free_requested", address, block[2])
                self.note("free_completed", address, block[2])
                block[2] = None
                if at + 1 < len(blocks) and blocks[at + 1][2] is None:
                    block[1] += blocks.pop(at + 1)[1]
                if at > 0 and blocks[at - 1][2] is None:
                    blocks[at - 1][1] += blocks.pop(at)[1]
                return
        raise KeyError(address)

    def empty_cache(self):
        for segment in list(self.segments):
            if not self.expandable and len(segment["blocks"]) == 1 and segment["blocks"][0][2] is None:
                self.note("segment_free", segment["address"], segment["size"])
                self.segments.remove(segment)

    def tree(self, settings):
        segments = []
        for s in self.segments:
            used = sum(n for _, n, requested in s["blocks"] if requested is not None)
            segments.append({
                "device": 0, "address": s["address"], "total_size": s["size"], "allocated_size": used,
                "active_size": used, "requested_size": sum(r for _, _, r in s["blocks"] if r is not None),
                "stream": s["stream"],
                "segment_type": "small" if s["small"] else "large", "segment_pool_id": (0, 0),
                "is_expandable": self.expandable, "frames": [],
                "blocks": [{"address": a, "size": n, "requested_size": r or 0, "frames": [],
                            "state": "inactive" if r is None else "active_allocated"} for a, n, r in s["blocks"]]})
        return {"segments": segments, "device_traces": [self.events], "external_annotations": [],
                "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": settings,
                                       "max_split_size": self.max_split or -1, "garbage_collection_threshold": 0.0,
                                       "expandable_segments": self.expandable}}


def train(allocator, rng, streams, n_iterations=6):
    sizes = [rng.choice([rng.randrange(1, 4096), rng.randrange(1 << 14, 3 * MIB), rng.randrange(MIB, 30 * MIB)])
             for _ in range(60)]
    weights, gradients, state = [allocator.alloc(n) for n in sizes], [], []
    for k in range(n_iterations):
        batch = rng.choice([1, 1, 2])  # an odd last batch is what fragments
        kept = []
        for n in sizes:
            allocator.stream = rng.choice(streams)
            kept.append(allocator.alloc(n * batch))
            allocator.free(allocator.alloc(n // 2 * batch + 1))
        for n in reversed(sizes):
            gradients.append(allocator.alloc(n))
            allocator.free(kept.pop())
        if not state:
            state = [allocator.alloc(n) for n in sizes]
        while gradients:
            allocator.free(gradients.pop(rng.randrange(len(gradients))))
        if k == 3:
            allocator.empty_cache()
    return weights, state


CASES = {
    "defaults": ("", {}),
    "split": ("max_split_size_mb:24", {"max_split": 24 * MIB}),
    "roundup": ("roundup_power2_divisions:4", {"divisions": 4}),
    "streams": ("", {}),
    "streams_expandable": ("expandable_segments:True", {"expandable": True}),
    "expandable": ("expandable_segments:True", {"expandable": True}),
    "untold": ("", {"divisions": 2}),  # a setting that the snapshot does not tell
}


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    for seed, (name, (settings, arguments)) in enumerate(CASES.items()):
        allocator = Allocator(**arguments)
        train(allocator, random.Random(seed), (0, 0x7F52C4B3D2A0) if name.startswith("streams") else (0,))
        with open(os.path.join(sys.argv[1], name + ".pickle"), "wb") as file:
            pickle.dump(allocator.tree(settings), file, protocol=4)


main()
