#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes memory snapshots in which PyTorch's caching allocator, by its rules, serves a network in training.

    make_reserved.py FOLDER [SEED [NAME...]]        one file for each setting, FOLDER/NAME.pickle

The rules are told here once more, as lists that are searched from end to end: rounding, the two pools of each stream,
segments, best fit, splitting, max_split_size, roundup_power2_divisions, garbage_collection_threshold. Expandable
segments are sets of pages and of used blocks. Memory is given back by empty_cache, and where a capacity is reached. Each file states what is reserved at
its end.
"""
import os
import pickle
import random
import sys

MIB = 1 << 20


class Allocator:
    """What every setting shares: rounding, events, and frees that wait for another stream."""

    def __init__(self, max_split=0, divisions=0, capacity=0, threshold=0.0):
        self.max_split, self.divisions, self.capacity, self.threshold = max_split, divisions, capacity, threshold
        self.n_large = 0  # requests to large pools
        self.stream, self.held, self.peak, self.waiting = 0, 0, 0, []
        self.events, self.now_us = [], 1_700_000_000_000_000

    def note(self, action, address, size):
        self.now_us += 7
        self.events.append({"action": action, "addr": address, "size": size, "stream": self.stream,
                            "time_us": self.now_us, "frames": []})

    def take(self, action, address, size):
        self.held += size
        self.peak = max(self.peak, self.held)
        self.note(action, address, size)

    def give(self, action, address, size):
        self.held -= size
        self.note(action, address, size)

    def round(self, size):
        if self.divisions > 1 and size > 512 * self.divisions:
            power = 1 << (size.bit_length() - 1)
            step = power // self.divisions
            return size if size == power else -(-size // step) * step
        return max(512, -(-size // 512) * 512)

    def alloc(self, requested):
        size = self.round(requested)
        self.n_large += size > MIB
        address = self.find(size, size <= MIB, self.stream)
        if address is None:
            address = self.grow(size, size <= MIB, self.stream)
        self.put(address, size, requested)
        self.note("alloc", address, requested)
        return address

    def free(self, address, waits=False):
        self.note("free_requested", address, self.requested_of(address))
        self.waiting.append(address)
        if not waits:
            self.complete()

    def complete(self):
        for address in self.waiting:
            self.note("free_completed", address, self.requested_of(address))
            self.drop(address)
        self.waiting = []

    def empty_cache(self):
        self.complete()
        self.release()


class Segments(Allocator):
    """Each segment is a cudaMalloc, at the lowest address where it has room."""
    expandable = False

    def __init__(self, **settings):
        super().__init__(**settings)
        self.segments = []  # {"address", "size", "small", "stream", "blocks": [[address, size, requested or None]]}

    def find(self, size, small, stream):
        best = None
        for segment in self.segments:
            for address, n, requested in segment["blocks"]:
                if (segment["small"], segment["stream"]) != (small, stream) or requested is not None or n < size:
                    continue
                if best is None or (n, address) < best:
                    best = n, address
        if best is None:
            return None
        if self.max_split and (size < self.max_split <= best[0] or size + 20 * MIB <= best[0] >= self.max_split <= size):
            return None
        return best[1]

    def grow(self, size, small, stream):
        more = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.capacity and self.threshold:
            self.collect()
        if self.capacity and self.held + more > self.capacity:
            if not self.release_oversize(size, small, stream) or self.held + more > self.capacity:
                self.empty_cache()
        address = 1 << 40
        for segment in sorted(self.segments, key=lambda s: s["address"]):
            if address + more <= segment["address"]:
                break
            address = segment["address"] + segment["size"]
        self.take("segment_alloc", address, more)
        self.segments.append({"address": address, "size": more, "small": small, "stream": stream,
                              "blocks": [[address, more, None]]})
        return address

    def at(self, address):
        for segment in self.segments:
            for at, block in enumerate(segment["blocks"]):
                if block[0] == address:
                    return segment, at, block
        raise KeyError(address)

    def is_free(self, segment):
        return len(segment["blocks"]) == 1 and segment["blocks"][0][2] is None

    def give_segment(self, segment):
        self.give("segment_free", segment["address"], segment["size"])
        self.segments.remove(segment)

    def collect(self):
        """All of the average age or older, in rounds, until no more than the threshold is held."""
        aged = [s for s in self.segments if not s["small"] and self.is_free(s)]
        while aged and self.held > self.threshold * self.capacity:
            ages = [self.n_large - s["freed_at"] for s in aged]
            old = [s for s, age in zip(aged, ages) if age >= sum(ages) / len(ages)]
            for segment in old:
                self.give_segment(segment)
            aged = [s for s in aged if s not in old]

    def release_oversize(self, size, small, stream):
        if not self.max_split:
            return False
        least = max(size, self.max_split)
        large = sorted((s for s in self.segments if self.is_free(s) and s["size"] >= self.max_split and
                        (s["small"], s["stream"]) == (small, stream)), key=lambda s: (s["size"], s["address"]))
        enough = [s for s in large if s["size"] >= least]
        freed = 0
        for segment in enough[:1] or large[::-1]:
            if freed < least:
                freed += segment["size"]
                self.give_segment(segment)
        return freed >= least

    def put(self, address, size, requested):
        segment, at, block = self.at(address)
        rest = block[1] - size
        if rest >= 512 if segment["small"] else rest > MIB and not 0 < self.max_split <= size:
            segment["blocks"].insert(at + 1, [address + size, rest, None])
            block[1] = size
        block[2] = requested

    def requested_of(self, address):
        return self.at(address)[2][2]

    def drop(self, address):
        segment, at, block = self.at(address)
        blocks = segment["blocks"]
        block[2] = None
        segment["freed_at"] = self.n_large
        if at + 1 < len(blocks) and blocks[at + 1][2] is None:
            block[1] += blocks.pop(at + 1)[1]
        if at > 0 and blocks[at - 1][2] is None:
            blocks[at - 1][1] += blocks.pop(at)[1]

    def release(self):
        for segment in [s for s in self.segments if self.is_free(s)]:
            self.give_segment(segment)

    def told(self):
        return self.segments


class Pages(Allocator):
    """expandable_segments: for each pool of each stream the pages that are mapped and the blocks that are used. All
    else, which blocks are free and where it can grow, is found anew each time."""
    expandable = True

    def __init__(self, **settings):
        super().__init__(**settings)
        self.pools = {}  # (small, stream): {"base", "page", "mapped": {page number}, "used": {address: (size, requested)}}

    def pool(self, small, stream):
        base = (1 << 42) + (len(self.pools) << 40)
        return self.pools.setdefault((small, stream), {"base": base, "page": 2 * MIB if small else 20 * MIB,
                                                       "mapped": set(), "used": {}})

    def gaps(self, pool):
        """[[address, end]] of what no block uses, the last one without end."""
        at, gaps = pool["base"], []
        for address, (size, _) in sorted(pool["used"].items()):
            if address > at:
                gaps.append((at, address))
            at = address + size
        return gaps + [(at, 1 << 60)]

    def runs(self, pool):
        """(address, size, mapped, room behind that is not mapped) in order, of what no block uses."""
        page, base, runs = pool["page"], pool["base"], []
        last = base + page * (max(pool["mapped"], default=-1) + 1)
        for begin, end in self.gaps(pool):
            parts = []
            at = begin
            while at < end:
                mapped = (at - base) // page in pool["mapped"]
                until = end if at >= last else min(end, base + page * ((at - base) // page + 1))
                if parts and parts[-1][2] == mapped:
                    parts[-1][1] += until - at
                else:
                    parts.append([at, until - at, mapped])
                at = until
            for k, (address, size, mapped) in enumerate(parts):
                runs.append((address, size, mapped, parts[k + 1][1] if mapped and k + 1 < len(parts) else 0))
        return runs

    def find(self, size, small, stream):
        free = sorted((n, a, n + behind) for a, n, mapped, behind in self.runs(self.pool(small, stream))
                      if mapped and n >= size)
        if not free:
            return None
        while len(free) > 1 and free[1][2] < free[0][2]:  # each counts with what it could grow to
            free.pop(0)
        return free[0][1]

    def grow(self, size, small, stream):
        pool = self.pool(small, stream)
        page, base = pool["page"], pool["base"]
        for attempt in range(2):
            gap_of = {at: end for at, end in self.gaps(pool)}
            runs, address = self.runs(pool), None
            for k, (at, n, mapped, _) in enumerate(runs):
                if mapped:
                    continue
                begin = runs[k - 1][0] if k > 0 and runs[k - 1][2] and sum(runs[k - 1][:2]) == at else at
                end = min(e for e in gap_of.values() if e > begin)
                if end - begin >= size:
                    address = begin
                    break
            more = [i for i in range((address - base) // page, -(-(address + size - base) // page))
                    if i not in pool["mapped"]]
            if attempt == 0 and self.capacity and self.held + len(more) * page > self.capacity:
                self.empty_cache()
            else:
                break
        for i in more:
            self.take("segment_map", base + i * page, page)
        pool["mapped"].update(more)
        return address

    def at(self, address):
        return next(p for p in self.pools.values() if address in p["used"])

    def put(self, address, size, requested):
        key = (size <= MIB, self.stream)
        self.pools[key]["used"][address] = size, requested

    def requested_of(self, address):
        return self.at(address)["used"][address][1]

    def drop(self, address):
        del self.at(address)["used"][address]

    def release(self):
        for pool in self.pools.values():
            page, base = pool["page"], pool["base"]
            needed = {i for address, (size, _) in pool["used"].items()
                      for i in range((address - base) // page, (address + size - 1 - base) // page + 1)}
            for i in sorted(pool["mapped"] - needed):
                self.give("segment_unmap", base + i * page, page)
            pool["mapped"] &= needed

    def told(self):
        """A segment for each run of pages that are mapped, as PyTorch tells them."""
        segments = []
        for (small, stream), pool in self.pools.items():
            page, base = pool["page"], pool["base"]
            blocks = sorted([[a, n, r] for a, (n, r) in pool["used"].items()] +
                            [[a, n, None] for a, n, mapped, _ in self.runs(pool) if mapped])
            for i in sorted(pool["mapped"]):
                if i - 1 in pool["mapped"]:
                    segments[-1]["size"] += page
                else:
                    segments.append({"address": base + i * page, "size": page, "small": small, "stream": stream})
            for s in segments:
                if base <= s["address"] < base + (1 << 40):
                    s["blocks"] = [b for b in blocks if s["address"] <= b[0] < s["address"] + s["size"]]
        return segments


def tree(allocator, settings):
    segments = []
    for s in allocator.told():
        used = sum(n for _, n, requested in s["blocks"] if requested is not None)
        segments.append({
            "device": 0, "address": s["address"], "total_size": s["size"], "allocated_size": used,
            "active_size": used, "requested_size": sum(r for _, _, r in s["blocks"] if r is not None),
            "stream": s["stream"],
            "segment_type": "small" if s["small"] else "large", "segment_pool_id": (0, 0),
            "is_expandable": allocator.expandable, "frames": [],
            "blocks": [{"address": a, "size": n, "requested_size": r or 0, "frames": [],
                        "state": "inactive" if r is None else "active_allocated"} for a, n, r in s["blocks"]]})
    return {"segments": segments, "device_traces": [allocator.events], "external_annotations": [],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": settings,
                                   "max_split_size": allocator.max_split or -1, "garbage_collection_threshold": allocator.threshold,
                                   "expandable_segments": allocator.expandable}}


def train(allocator, rng, streams, often, n_iterations=6):
    """often: empty_cache() as a careful program calls it, in the midst of passes too."""
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
            if often and rng.randrange(12) == 0:
                allocator.empty_cache()
        for n in reversed(sizes):
            gradients.append(allocator.alloc(n))
            allocator.free(kept.pop())
            if often and rng.randrange(12) == 0:
                allocator.empty_cache()
        if not state:
            state = [allocator.alloc(n) for n in sizes]
        while gradients:
            allocator.free(gradients.pop(rng.randrange(len(gradients))))
        if k == 3 or often:
            allocator.empty_cache()
    return weights, state


SPLIT, EXPANDABLE = "max_split_size_mb:24", "expandable_segments:True"
COLLECT = "garbage_collection_threshold:0.6"
CASES = {  # the settings, which of them PyTorch is told, whether the cache is emptied often
    "defaults": (Segments, "", {}, False),
    "split": (Segments, SPLIT, {"max_split": 24 * MIB}, False),
    "roundup": (Segments, "roundup_power2_divisions:4", {"divisions": 4}, False),
    "streams": (Segments, "", {}, False),
    "streams_expandable": (Pages, EXPANDABLE, {}, False),
    "expandable": (Pages, EXPANDABLE, {}, False),
    "untold": (Segments, "", {"divisions": 2}, False),  # a setting that the snapshot does not tell
    "often": (Segments, "", {}, True),
    "streams_often": (Segments, "", {}, True),
    "split_often": (Segments, SPLIT, {"max_split": 24 * MIB}, True),
    "expandable_often": (Pages, EXPANDABLE, {}, True),
    "streams_expandable_often": (Pages, EXPANDABLE, {}, True),
    "mute": (Segments, "", {}, False),
    "full": (Segments, "", {}, False),  # less memory than it would take: all that is free is given back in between
    "expandable_full": (Pages, EXPANDABLE, {}, False),
    "collected": (Segments, COLLECT, {"threshold": 0.6}, False),  # a part of what is free is given back in between
    "streams_collected": (Segments, COLLECT, {"threshold": 0.6}, False),
    "split_full": (Segments, SPLIT, {"max_split": 24 * MIB}, False),
}


def without_segments(tree):
    """As recorded by a program that writes down blocks alone."""
    events = [e for e in tree["device_traces"][0] if not e["action"].startswith("segment_")]
    return {**tree, "segments": [], "device_traces": [events]}


def record(kind, arguments, seed, name, often):
    allocator = kind(**arguments)
    streams = (0, 0x7F52C4B3D2A0) if name.startswith("streams") else (0,)
    train(allocator, random.Random(seed), streams, often)
    return allocator


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for seed, (name, (kind, settings, arguments, often)) in enumerate(CASES.items(), first):
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        allocator = record(kind, arguments, seed, name, often)
        if name.endswith(("full", "collected")):
            allocator = record(kind, {**arguments, "capacity": allocator.peak * 9 // 10}, seed, name, often)
        with open(os.path.join(sys.argv[1], name + ".pickle"), "wb") as file:
            snapshot = tree(allocator, settings)
            pickle.dump(without_segments(snapshot) if name == "mute" else snapshot, file, protocol=4)


main()
