#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes recordings of other tools, seeded, and beside each FILE what is true of it, FILE.facts: allocs, frees, reads,
writes, the peak and what is live at the end, in bytes. The facts come from the run that the file tells of, not from
the file.

    make_imports.py FOLDER [SEED]
    make_imports.py --facts TRACE      the same of a trace
    make_imports.py --large FILE N     a Chrome trace of N allocs and frees and as many operators
"""
import gzip
import json
import os
import random
import sys

FACTS = ("alloc", "free", "read", "write", "peak", "live")


class Run:
    """Blocks that come and go: (kind, block, time in us, operator's number) in order."""

    def __init__(self, rng, n, with_accesses):
        self.events, self.size, self.address, live, free, time = [], {}, {}, [], list(range(1, 200)), 1000
        for block in range(n):
            time += rng.randint(1, 50)
            self.size[block] = rng.choice((4, 64, 512, 4096, 1 << 20)) * rng.randint(1, 9)
            self.address[block] = free.pop(rng.randrange(len(free))) * (1 << 28)
            self.events.append(("alloc", block, time))
            live.append(block)
            for _ in range(rng.randint(0, 4) if with_accesses else 0):
                time += rng.randint(1, 9)
                self.events.append((rng.choice(("read", "write")), rng.choice(live), time))
            while live and (len(live) > 100 or rng.random() < 0.45):
                time += rng.randint(1, 9)
                gone = live.pop(rng.randrange(len(live)))
                free.append(self.address[gone] >> 28)
                self.events.append(("free", gone, time))

    def facts(self):
        return facts_of((kind, self.size[block]) for kind, block, *_ in self.events)


def facts_of(events):
    facts, live = dict.fromkeys(FACTS, 0), 0
    for kind, size in events:
        facts[kind] += 1
        live += size if kind == "alloc" else -size if kind == "free" else 0
        facts["peak"] = max(facts["peak"], live)
    facts["live"] = live
    return facts


def facts_of_trace(path):
    from trace_reader import Trace
    trace, size = Trace(path), {}
    assert trace.is_whole
    for event in trace.events:
        if event["kind"] == "alloc":
            size[event["block"]] = event["size"]
    return facts_of((e["kind"], size[e["block"]]) for e in trace.events if e["kind"] in FACTS)


# ---- SINGA's logs -----------------------------------------------------------------------------------------------------

WORDS = {"alloc": "Malloc", "free": "Free", "read": "Read", "write": "Mutable"}


def singa_pool(run):
    for kind, block, time in run.events:
        size = "" if kind == "free" else f" {run.size[block]}"
        yield f"{WORDS[kind].upper().replace('MUTABLE', 'WRITE')}: {run.address[block]:#x}{size} {1607927705 * 10**9 + time * 1000}"


def singa_numbered(run):
    for i, (kind, block, time) in enumerate(run.events):
        size = f" {run.size[block]}" if kind == "alloc" else ""
        yield f"{i} {WORDS[kind]} {run.address[block]:#x}{size} {1512107272964 + time // 1000}"


def singa_plain(run):
    for kind, block, _ in run.events:
        yield f"{WORDS[kind]} {run.address[block]:#x} {run.size[block] if kind != 'free' else ''}"


# ---- lifetimes --------------------------------------------------------------------------------------------------------

def lifetimes(run):
    """Lines of a placement file. Times in it are those of order."""
    first, last = {}, {}
    for i, (kind, block, _) in enumerate(run.events):
        (first if kind == "alloc" else last).setdefault(block, i)
    end = len(run.events)
    lines = [f"b{b},{first[b]},{last.get(b, end)},{run.size[b]}" for b in first]
    random.Random(7).shuffle(lines)
    return ["id,lower,upper,size"] + lines


# ---- Chrome traces ----------------------------------------------------------------------------------------------------

def memory_event(time, size, address, device, total):
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": 9, "tid": 9, "ts": time, "args": {
        "Total Reserved": 1 << 40, "Total Allocated": total, "Bytes": size, "Device Id": device - 1,
        "Device Type": 1 if device else 0, "Addr": address}}


def chrome_events(run, rng):
    """The run's blocks are those of cuda:0; others of the processor are noise. In no order, as torch.profiler has them."""
    events, live = [], 0
    for kind, block, time in run.events:
        if kind in ("alloc", "free"):
            size = run.size[block] if kind == "alloc" else -run.size[block]
            live += size
            events.append(memory_event(time + 0.125, size, run.address[block], 1, live))
            if rng.random() < 0.2:
                events.append(memory_event(time, 64, rng.getrandbits(40), 0, 0))
        events.append({"ph": "X", "cat": rng.choice(("cpu_op", "kernel", "cuda_runtime")), "name": f"op{rng.randint(1, 9)}",
                       "pid": 9, "tid": rng.choice((9, "stream 7")), "ts": time, "dur": rng.randint(0, 90), "args": {}})
    rng.shuffle(events)
    return events


# ---- execution traces -------------------------------------------------------------------------------------------------

class Execution:
    """A straight-line program of two operators, fill and add, whose results are new blocks. A storage's number is its
    address, which is taken again. The parameter was there before, and stays."""

    def __init__(self, rng, n):
        self.nodes, self.events, self.next_id, self.free, self.tensor = [], [], 2, [], 10**6
        self.last_address = 10**7
        parameter = self.new_address(4096)
        self.events.append(("alloc", 4096))
        live = [parameter]
        for _ in range(n):
            a, b = rng.choice(live), rng.choice(live)
            result = self.new_address(4 * rng.randint(1, 1 << 18))
            self.add(a, b, result, rng.random() < 0.5)
            live.append(result)
            if len(live) > 20:
                self.drop(live.pop(rng.randrange(1, len(live))))
        for block in live[1:]:
            self.drop(block)
        self.add(parameter, parameter, self.new_address(4), False)

    def new_address(self, size):
        if self.free and len(self.nodes) % 3:
            return self.free.pop(0), size
        self.last_address += 1
        return self.last_address, size

    def value(self, block):
        self.tensor += 1
        return [self.tensor, block[0], 0, block[1] // 4, 4, "cpu"]

    def node(self, name, number, parent, schema, inputs, outputs):
        self.nodes.append((name, number, parent, schema, inputs, outputs))

    def take_id(self):
        self.next_id += 1
        return self.next_id

    def add(self, a, b, result, has_empty):
        outer, inner = self.take_id(), self.take_id()
        out = self.value(result)
        if has_empty:
            self.node("aten::empty", inner, outer, "aten::empty(int[] size) -> Tensor", [[result[1] // 4]], [out])
        self.node("aten::add", outer, 1, "aten::add.Tensor(Tensor self, Tensor other) -> Tensor",
                  [self.value(a), self.value(b)], [out])
        self.events += [("alloc", result[1]), ("read", 0)] + ([("read", 0)] if a != b else []) + [("write", 0)]

    def drop(self, block):
        """A last reading, behind which the block is over."""
        self.node("aten::item", self.take_id(), 1, "aten::item(Tensor self) -> Scalar", [self.value(block)], [])
        self.events += [("read", 0), ("free", block[1])]
        self.free.append(block[0])

    def facts(self):
        # The last result has no reader, and so is over with its operator.
        return facts_of(self.events + [("free", 4)])

    def flat(self):
        return {"schema": "1.0.1", "pid": 1, "time": "x", "start_ts": 1, "nodes": [
            {"name": n, "id": i, "rf_id": i, "parent": p, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0,
             "op_schema": s, "inputs": ins, "input_shapes": [], "input_types": [], "outputs": outs, "output_shapes": [],
             "output_types": []} for n, i, p, s, ins, outs in self.nodes], "finish_ts": 2}

    def apart(self):
        group = lambda values: {"values": values, "shapes": [], "types": []}
        attr = lambda name, value: {"name": name, "type": "x", "value": value}
        return {"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": [
            {"id": i, "name": n, "ctrl_deps": p, "inputs": group(ins), "outputs": group(outs),
             "attrs": [attr("rf_id", i), attr("seq_id", -1), attr("tid", 1), attr("op_schema", s)]}
            for n, i, p, s, ins, outs in self.nodes]}


# ---- files ------------------------------------------------------------------------------------------------------------

def put(folder, name, text, facts):
    path = os.path.join(folder, name)
    with (gzip.open if name.endswith(".gz") else open)(path, "wt") as file:
        file.write(text)
    with open(path + ".facts", "w") as file:
        print_facts(facts, file)


def print_facts(facts, file):
    for key in FACTS:
        print(key, facts[key], file=file)


def make(folder, seed):
    rng = random.Random(seed)
    os.makedirs(folder, exist_ok=True)
    for form in (singa_pool, singa_numbered, singa_plain):
        run = Run(rng, 500, True)
        put(folder, form.__name__ + ".log", "\n".join(form(run)) + "\n", run.facts())
    run = Run(rng, 500, False)
    # In a placement file all lifetimes end.
    facts = run.facts()
    put(folder, "lifetimes.csv", "\n".join(lifetimes(run)), {**facts, "free": facts["alloc"], "live": 0})
    for name, wrap in (("list.json", lambda e: e), ("object.json.gz", lambda e: {"schemaVersion": 1, "traceEvents": e})):
        run = Run(rng, 2000, False)
        put(folder, name, json.dumps(wrap(chrome_events(run, rng)), indent=1), run.facts())
    execution = Execution(rng, 400)
    put(folder, "flat.json", json.dumps(execution.flat()), execution.facts())
    execution = Execution(rng, 400)
    put(folder, "apart.json.gz", json.dumps(execution.apart(), indent=2), execution.facts())


def make_large(path, n):
    """Not held in memory."""
    rng, live, time = random.Random(1), [], 0
    with open(path, "w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        for i in range(n):
            time += 3
            if live and (len(live) > 1000 or rng.random() < 0.49):
                address, size = live.pop(rng.randrange(len(live)))
                size = -size
            else:
                address, size = (i + 1) << 20, rng.randint(1, 1 << 20)
                live.append((address, size))
            op = {"ph": "X", "cat": "cpu_op", "name": f"aten::op{i % 97}", "pid": 9, "tid": 9, "ts": time, "dur": 2,
                  "args": {"External id": i, "Record function id": 0, "Ev Idx": i}}
            json.dump(op, file, indent=2)
            file.write(",\n")
            json.dump(memory_event(time + 1, size, address, 1, 0), file, indent=2)
            file.write(",\n" if i + 1 < n else "\n")
        file.write("]}\n")


if sys.argv[1] == "--facts":
    print_facts(facts_of_trace(sys.argv[2]), sys.stdout)
elif sys.argv[1] == "--large":
    make_large(sys.argv[2], int(sys.argv[3]))
else:
    make(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
