#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes memory snapshots as PyTorch writes them, without PyTorch: of each generation of the format, of any size.

    make_snapshot.py FOLDER [--seed N]     one file of each generation, FOLDER/GENERATION.pickle
    make_snapshot.py FILE --bytes N        one of about N bytes, written as it is made

A model of the caching allocator serves the allocations of a small network in training: weights and their optimizer's
state from the first iteration on, activations that go in the opposite order, temporaries that go at once, gradients
that are freed at the end of an iteration. What a generation does not have is left out of the records.
"""
import argparse
import io
import os
import pickle
import random
import struct
import sys

MIB = 1 << 20
START_US = 1_748_730_219_595_970


class Allocator:
    """One device: blocks in segments, best fit, split and merged; or one segment that grows by pages of 2 MiB."""

    def __init__(self, base, expandable=False):
        self.base, self.expandable = base, expandable
        self.segments = {}  # address -> size
        self.free_blocks = {}  # address -> size
        self.used = {}  # address -> (size, requested, stack)
        self.events = []  # (action, address, size, stack)

    def segment_of(self, address):
        return max(a for a in self.segments if a <= address)

    def note(self, action, address, size, stack):
        self.events.append((action, address, size, stack))

    def grow(self, size, stack):
        if self.expandable and self.segments:
            start, old = next(iter(self.segments.items()))
            more = -(-size // (2 * MIB)) * 2 * MIB
            for at in range(start + old, start + old + more, 2 * MIB):
                self.note("segment_map", at, 2 * MIB, stack)
            self.segments[start] = old + more
            self.give_back(start + old, more)
            return
        more = 2 * MIB if size <= MIB else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        address = self.base
        self.base += more + 2 * MIB
        if self.expandable:
            self.base += 1 << 40
        self.note("segment_map" if self.expandable else "segment_alloc", address, more, stack)
        self.segments[address] = more
        self.free_blocks[address] = more

    def give_back(self, address, size):
        start = self.segment_of(address)
        for other, n in list(self.free_blocks.items()):
            if other + n == address and self.segment_of(other) == start:
                del self.free_blocks[other]
                address, size = other, size + n
            elif address + size == other and self.segment_of(other) == start:
                del self.free_blocks[other]
                size += n
        self.free_blocks[address] = size

    def alloc(self, requested, stack):
        size = -(-requested // 512) * 512
        fits = [(n, a) for a, n in self.free_blocks.items() if n >= size]
        if not fits:
            self.grow(size, stack)
            fits = [(n, a) for a, n in self.free_blocks.items() if n >= size]
        n, address = min(fits)
        del self.free_blocks[address]
        if n > size:
            self.free_blocks[address + size] = n - size
        self.used[address] = (size, requested, stack)
        self.note("alloc", address, requested, stack)
        return address

    def free(self, address, stack, between=()):
        size, requested, _ = self.used.pop(address)
        self.note("free_requested", address, requested, stack)
        for other in between:  # the stream is still busy with the block
            self.free(other, stack)
        self.note("free_completed", address, requested, stack)
        self.give_back(address, size)

    def empty_cache(self, stack):
        """What no block lies in goes back to the device: whole segments, or pages at the end of an expandable one."""
        for start, n in list(self.segments.items()):
            if self.free_blocks.get(start) == n and not self.expandable:
                del self.free_blocks[start], self.segments[start]
                self.note("segment_free", start, n, stack)
            elif self.expandable:
                tail = max((a for a in self.free_blocks if a + self.free_blocks[a] == start + n), default=None)
                first = None if tail is None else -(-(tail - start) // (2 * MIB)) * 2 * MIB + start
                if first is not None and start < first < start + n:
                    self.note("segment_unmap", first, start + n - first, stack)
                    self.free_blocks[tail] -= start + n - first
                    if self.free_blocks[tail] == 0:
                        del self.free_blocks[tail]
                    self.segments[start] = first - start


class Network:
    """Stacks of frames, and the allocations of one iteration."""

    def __init__(self, rng, n_layers, depth):
        self.rng, self.n_layers = rng, n_layers
        self.frames, self.stacks = [], []  # frames: (name, filename, line); stacks: innermost first
        shared = [self.frame(f"_call_impl", "torch/nn/modules/module.py", 1500 + i) for i in range(depth)]
        main = self.frame("<module>", "/home/user/train.py", 40)
        self.of = {}
        for layer in range(n_layers):
            for op in ("linear", "relu", "grad", "step"):
                inner = [self.frame(f"at::native::{op}", "??", 0), self.frame(f"{op}_{layer}", "model.py", 10 * layer)]
                self.stacks.append([*inner, *shared[: depth - layer % 3], main])
                self.of[layer, op] = len(self.stacks) - 1
        self.sizes = [rng.choice([1, 300, 4096, 70_000, 900_000, 3 * MIB, 11 * MIB]) + rng.randrange(4096)
                      for _ in range(n_layers)]
        self.weights, self.state = [], []

    def frame(self, *what):
        self.frames.append(what)
        return len(self.frames) - 1

    def setup(self, allocator):
        self.weights = [allocator.alloc(size, self.of[i, "linear"]) for i, size in enumerate(self.sizes)]

    def iteration(self, allocator):
        kept, gradients = [], []
        for i, size in enumerate(self.sizes):
            scratch = allocator.alloc(size // 3 + 1, self.of[i, "linear"])
            kept.append(allocator.alloc(2 * size, self.of[i, "linear"]))
            allocator.free(scratch, self.of[i, "relu"])
            kept.append(allocator.alloc(2 * size, self.of[i, "relu"]))
        for i in reversed(range(self.n_layers)):
            gradients.append(allocator.alloc(self.sizes[i], self.of[i, "grad"]))
            allocator.free(kept.pop(), self.of[i, "grad"], between=[kept.pop()])
        if not self.state:
            self.state = [allocator.alloc(2 * n, self.of[i, "step"]) for i, n in enumerate(self.sizes)]
        for i, gradient in enumerate(gradients):
            allocator.free(gradient, self.of[i, "step"])


# ---- one file of each generation ------------------------------------------------------------------

DEFAULTS = {"times": True, "split": True, "address": True, "history": False, "annotations": True, "contexts": True,
            "extras": False, "expandable": False, "devices": 1, "ring": 0, "requests": True, "traces": True,
            "protocol": 4, "jit": False, "settings": True, "categories": False, "segments": True, "list": False,
            "idle": False}
GENERATIONS = {
    "list": {"list": True, "traces": False, "times": False, "address": False, "history": True, "protocol": 3},
    "history": {"times": False, "address": False, "history": True, "annotations": False, "contexts": False,
                "settings": False, "protocol": 3},
    "no_split": {"times": False, "split": False, "annotations": False, "contexts": False, "protocol": 4},
    "plain": {"annotations": False, "contexts": False},
    "jit": {"jit": True, "protocol": 2, "annotations": False, "contexts": False},
    "jit_devices": {"jit": True, "protocol": 2, "annotations": False, "contexts": False, "devices": 3, "idle": True},
    "annotations": {"contexts": False, "protocol": 5},
    "contexts": {},
    "extras": {"extras": True, "categories": True, "protocol": 5},
    "expandable": {"expandable": True},
    "ring": {"ring": 150},
    "devices": {"devices": 3},
    "completed": {"requests": False},
    "state": {"traces": False, "protocol": 5},
    "no_segments": {"segments": False},
}
CATEGORIES = {"linear": "PARAMETER", "relu": "ACTIVATION", "grad": "GRADIENT", "step": "OPTIMIZER_STATE"}


class Snapshot:
    """The tree of dictionaries of one generation."""

    def __init__(self, options, seed):
        self.o = {**DEFAULTS, **options}
        self.rng = random.Random(seed)
        self.net = Network(self.rng, 9, 12)
        self.frames = [dict(zip(("name", "filename", "line"), f)) for f in self.net.frames]
        self.role = {}
        for (_, op), stack in self.net.of.items():
            self.role[stack] = CATEGORIES[op]
        self.time, self.annotations = START_US, []
        if self.o["extras"]:
            self.frames[1].update(fx_node_op="call_function", fx_node_name="linear", fx_original_trace="File model.py")
        self.devices = [self.train(i) for i in range(self.o["devices"])]

    def frames_of(self, stack):
        return [self.frames[i] for i in self.net.stacks[stack]]

    def annotate(self, name, stage, device):
        self.annotations.append({"stage": stage, "name": name, "device": device, "time_us": self.time})

    def train(self, device):
        allocator = Allocator(0x7f0000000000 + (device << 44), self.o["expandable"])
        net = self.net
        net.state = []
        net.setup(allocator)
        n_before = len(allocator.events) if device != 1 else 0
        events = [self.event(*e) for e in allocator.events[n_before:]]
        for k in range(2 + device % 2):
            first = len(allocator.events)
            net.iteration(allocator)
            half = first + (len(allocator.events) - first) // 2
            events += [self.event(*e) for e in allocator.events[first:half]]
            self.annotate("Optimizer.step#SGD.step", "START", device)
            events += [self.event(*e) for e in allocator.events[half:]]
            self.annotate("Optimizer.step#SGD.step", "END", device)
        first = len(allocator.events)
        allocator.empty_cache(0)
        events += [self.event(*e) for e in allocator.events[first:]]
        events += [self.oom(device), self.event("snapshot", 0, 0, 0)]
        return allocator, [e for e in events if e][-self.o["ring"]:]

    def tick(self, event):
        self.time += self.rng.randrange(40)
        if self.o["times"]:
            event["time_us"] = self.time
        return event

    def event(self, action, address, size, stack):
        if action == "free_requested" and (not self.o["split"] or not self.o["requests"]):
            return None
        if action == "free_completed" and not self.o["split"]:
            action = "free"
        event = {"action": action, "addr": address, "size": size, "stream": 0}
        self.tick(event)
        if self.o["contexts"]:
            event["compile_context"] = "N/A" if self.rng.random() < 0.8 else "0/0 (forward)"
            event["user_metadata"] = "" if self.rng.random() < 0.9 else "warm-up"
        if self.o["categories"] and action == "alloc":
            event["category"] = self.role[stack]
        if self.o["extras"]:
            event["pool_id"] = (0, 0)
            event["forward_frames"] = ["File model.py, line 3, in forward", "x = f(x)"]
        event["frames"] = self.frames_of(stack)
        return event

    def oom(self, device):
        return self.tick({"action": "oom", "device_free": 12345678901, "size": 1 << 36, "stream": 0,
                          "frames": self.frames_of(device)})

    def block(self, address, size, used):
        block = {"size": size, "state": "active_allocated" if used else "inactive"}
        requested, stack = used or (size, None)
        if self.o["address"]:
            block["address"] = address
        if not self.o["history"]:
            block["requested_size"] = requested
            block["frames"] = [] if stack is None else self.frames_of(stack)
        elif used:
            block["history"] = [{"addr": address, "real_size": requested, "frames": self.frames_of(stack)},
                                {"addr": address, "real_size": 7, "frames": []}]
        return block

    def segment(self, device, allocator, start):
        end = start + allocator.segments[start]
        blocks = [(a, n, None) for a, n in allocator.free_blocks.items() if start <= a < end]
        blocks += [(a, n, (r, s)) for a, (n, r, s) in allocator.used.items() if start <= a < end]
        used = [b for b in allocator.used if start <= b < end]
        active = sum(allocator.used[a][0] for a in used)
        segment = {"device": device, "address": start, "total_size": end - start, "allocated_size": active,
                   "active_size": active, "stream": 0, "segment_type": "small" if end - start == 2 * MIB else "large"}
        if not self.o["history"]:
            segment["requested_size"] = sum(allocator.used[a][1] for a in used)
            segment["segment_pool_id"] = (0, 0)
            segment["is_expandable"] = self.o["expandable"]
            segment["frames"] = []
        segment["blocks"] = [self.block(*b) for b in sorted(blocks)]
        return segment

    def tree(self):
        segments = [self.segment(i, allocator, start)
                    for i, (allocator, _) in enumerate(self.devices) for start in sorted(allocator.segments)]
        if self.o["list"]:
            return segments
        tree = {"segments": segments} if self.o["segments"] else {}
        tree["device_traces"] = [events if self.o["traces"] else [] for _, events in self.devices]
        if self.o["idle"]:  # since before the recording began
            tree["device_traces"][0] = []
        if self.o["settings"]:
            tree["allocator_settings"] = {
                "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True" if self.o["expandable"] else "",
                "max_split_size": -1, "garbage_collection_threshold": 0.0, "expandable_segments": self.o["expandable"],
                "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False,
                "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)}}
        if self.o["annotations"]:
            tree["external_annotations"] = self.annotations
        return tree


class JitPickler:
    """What writes the snapshots of programs in C++: protocol 2, lists and dictionaries in one piece each, explicit
    memo entries for texts and containers, integers of four or eight bytes."""

    def __init__(self, out):
        self.out, self.memo = out, {}

    def put(self, key):
        n = self.memo[key] = len(self.memo)
        self.out.write(b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<I", n))

    def get(self, key):
        n = self.memo[key]
        self.out.write(b"h" + bytes([n]) if n < 256 else b"j" + struct.pack("<I", n))

    def dump(self, tree):
        self.out.write(b"\x80\x02")
        self.push(tree)
        self.out.write(b".")

    def push(self, value):
        key = (type(value), value) if isinstance(value, str) else id(value)
        if isinstance(value, (str, list, dict)) and key in self.memo:
            self.get(key)
        elif isinstance(value, bool):
            self.out.write(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            small = -(1 << 31) <= value < 1 << 31
            self.out.write(b"J" + struct.pack("<i", value) if small else b"\x8a\x08" + struct.pack("<q", value))
        elif isinstance(value, float):
            self.out.write(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            self.out.write(b"X" + struct.pack("<I", len(value.encode())) + value.encode())
            self.put(key)
        elif isinstance(value, tuple):
            for item in value:
                self.push(item)
            self.out.write(b"\x86")
        else:
            self.out.write(b"]" if isinstance(value, list) else b"}")
            self.put(key)
            self.out.write(b"(")
            for item in value if isinstance(value, list) else [x for pair in value.items() for x in pair]:
                self.push(item)
            self.out.write(b"e" if isinstance(value, list) else b"u")


def write_generation(path, options, seed):
    snapshot = Snapshot(options, seed)
    with open(path, "wb") as file:
        if snapshot.o["jit"]:
            JitPickler(file).dump(snapshot.tree())
        else:
            pickle.dump(snapshot.tree(), file, protocol=snapshot.o["protocol"])


# ---- one large file -------------------------------------------------------------------------------

class Stream:
    """The opcodes of protocol 4 as CPython writes them, with the memo's numbers kept."""

    def __init__(self, out):
        self.out, self.n_memo, self.texts = out, 0, {}

    def memoize(self):
        self.n_memo += 1
        return b"\x94"

    def text(self, text):
        if text in self.texts:
            return self.reference(self.texts[text])
        self.texts[text] = self.n_memo
        return b"\x8c" + bytes([len(text)]) + text.encode() + self.memoize()

    def reference(self, n):
        return b"h" + bytes([n]) if n < 256 else b"j" + struct.pack("<I", n)

    @staticmethod
    def number(n):
        return b"K" + bytes([n]) if n < 256 else b"\x8a\x08" + struct.pack("<q", n)

    def dictionary(self, pairs):
        body = b"}" + self.memoize() + b"("
        for key, value in pairs:
            body += self.text(key)
            body += value() if callable(value) else self.text(value) if isinstance(value, str) else self.number(value)
        return body + b"u"


def write_large(path, n_bytes, seed):
    rng = random.Random(seed)
    net, allocator = Network(rng, 400, 60), Allocator(0x7f0000000000)
    net.setup(allocator)
    events = [("segment_alloc", 0, 0, 0)]
    while any(event[0].startswith("segment") for event in events):  # until it has what it needs of the device
        first = len(allocator.events)
        net.iteration(allocator)
        events = allocator.events[first:]  # the blocks behind them are those before, so they can go on for ever
    with open(path, "wb") as out:
        stream = Stream(out)
        out.write(b"\x80\x04}" + stream.memoize() + b"(")
        frame_number = []
        out.write(stream.text("segments") + b"]" + stream.memoize())
        for start in sorted(allocator.segments):
            out.write(large_segment(stream, allocator, start))
        out.write(stream.text("device_traces") + b"]" + stream.memoize() + b"]" + stream.memoize())
        # The first frames and keys of a stream bring their texts; from then on all are references.
        out.write(b"(")
        for name, filename, line in net.frames:
            frame_number.append(stream.n_memo)
            out.write(stream.dictionary([("name", name), ("filename", filename), ("line", line)]) + b"0")
        out.write(stream.text("action") + b"0")
        for text in ("alloc", "free_requested", "free_completed", "addr", "size", "stream", "time_us", "frames"):
            out.write(stream.text(text) + b"0")
        out.write(b"1")
        stacks = [b"".join(stream.reference(frame_number[i]) for i in stack) for stack in net.stacks]
        expect = write_events(stream, out, events, stacks, n_bytes)
        out.write(b"au.")
    live = peak = sum(requested for _, requested, _ in allocator.used.values())
    for action, _, size, _ in events:
        live += size if action == "alloc" else -size if action == "free_requested" else 0
        peak = max(peak, live)
    print("bytes %d events %d peak %d live %d" % (os.path.getsize(path), expect, peak, live))


def large_segment(stream, allocator, start):
    end = start + allocator.segments[start]
    blocks = sorted([(a, n, n, "inactive") for a, n in allocator.free_blocks.items() if start <= a < end] +
                    [(a, n, r, "active_allocated") for a, (n, r, _) in allocator.used.items() if start <= a < end])

    def blocks_list():
        body = b"]" + stream.memoize() + b"("
        for address, size, requested, state in blocks:
            body += stream.dictionary([("address", address), ("size", size), ("requested_size", requested),
                                       ("state", state), ("frames", lambda: b"]" + stream.memoize())])
        return body + b"e"

    return stream.dictionary([("device", 0), ("address", start), ("total_size", end - start), ("stream", 0),
                              ("blocks", blocks_list)]) + b"a"


def write_events(stream, out, events, stacks, n_bytes):
    """Iterations until there are n_bytes. A free's two events share their list of frames."""
    keys = {text: stream.reference(n) for text, n in stream.texts.items()}
    heads = [b"}\x94(" + keys["action"] + keys[action] + keys["addr"] + stream.number(address) + keys["size"] +
             stream.number(size) + keys["stream"] + b"K\x00" + keys["time_us"] + b"\x8a\x08"
             for action, address, size, _ in events]
    lists = [keys["frames"] + b"]\x94(" + stacks[stack] + b"eu" for *_, stack in events]
    written, n_events, time = 0, 0, START_US
    while written < n_bytes:
        parts, n_batch, requested = [], 0, {}
        for (action, address, _, _), head, frames in zip(events, heads, lists):
            if n_batch % 1000 == 0:
                parts.append(b"(" if n_batch == 0 else b"e(")
            n_batch += 1
            time += 3
            stream.n_memo += 1
            if action == "free_completed":
                frames = keys["frames"] + stream.reference(requested.pop(address)) + b"u"
            else:
                requested[address] = stream.n_memo
                stream.n_memo += 1
            parts += (head, struct.pack("<q", time), frames)
        parts.append(b"e")
        batch = b"".join(parts)
        out.write(batch)
        written += len(batch)
        n_events += n_batch
    return n_events


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--bytes", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.bytes:
        write_large(args.path, args.bytes, args.seed)
        return
    os.makedirs(args.path, exist_ok=True)
    for name, options in GENERATIONS.items():
        write_generation(os.path.join(args.path, name + ".pickle"), options, args.seed)


if __name__ == "__main__":
    main()
