#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is taken for the iteration of the programs of iteration_programs.py, beside what each program says itself:

    tests/e2e/torch_iterations.py EBB FOLDER [PROGRAM...]

Each is recorded in several kinds of recording, from which what the program says is taken out. A kind's answer is

    right   the iterations that are found are the program's, or none is found where it trains nothing
    none    nothing is found, though the program trains
    wrong   something else is found

A wrong answer at a confidence above one half fails. The table shows all, and the counts of each kind.
"""
import collections
import json
import os
import subprocess
import sys
import warnings

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import ebb.torch
import ebb.trace
import iteration_programs
import iteration_programs_unseen
import trace_reader
from ebb.torch import _operators
from iteration_programs import BEGIN, END, TURN

OPTIMIZER = "Optimizer.step#"
PROGRAMS = {**iteration_programs.PROGRAMS, **iteration_programs_unseen.PROGRAMS}
ebb_program, folder = sys.argv[1:3]
path_of = lambda name: os.path.join(folder, name)


# ---- recordings ------------------------------------------------------------------------------------

def note_iterations(recorder):
    def tell(what):
        writer = recorder._ledger.writer
        writer.mark(recorder._ledger.now(), ebb.trace.ANNOTATION, writer.string(what), 0)

    iteration_programs.listen(tell)


def record(run, all_frames):
    """By ebb.torch, with the program's lines or, as a snapshot has them, with PyTorch's too."""
    library = _operators._LIBRARY
    _operators._LIBRARY = "?" if all_frames else library
    _operators._kinds.clear()
    with ebb.torch.record(path_of("program.trace")) as recorder:
        note_iterations(recorder)
        run()
    _operators._LIBRARY = library
    _operators._kinds.clear()
    return trace_reader.Trace(path_of("program.trace"))


def imported(path):
    subprocess.run([ebb_program, "import", path, "-o", path_of("program.trace")], stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=True)
    return trace_reader.Trace(path_of("program.trace"))


def note_ranges():
    def tell(what):
        with torch.profiler.record_function(what):
            pass

    iteration_programs.listen(tell)


def profile(run, **options):
    note_ranges()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True,
                                **options) as profiler:
        run()
    profiler.export_chrome_trace(path_of("program.json"))
    return imported(path_of("program.json"))


def observe(run):
    note_ranges()
    observer = torch.profiler.ExecutionTraceObserver().register_callback(path_of("execution.json"))
    observer.start()
    run()
    observer.stop()
    observer.unregister_callback()
    return imported(path_of("execution.json"))


# ---- what the program says, and what is left of the trace ------------------------------------------

def take_out(trace):
    """The program's own words; by depth of its loops, the (begin, end) of its iterations among the other events."""
    spans, turns, begins, n_kept, open_steps, kept = {}, [], [], 0, {}, []
    for kind, it in trace.records:
        what = None
        if kind == "mark" and it["name"] in (BEGIN, TURN, END):
            what = it["name"]
        elif kind == "step_begin":
            open_steps.setdefault(it["row"], []).append(it["name"])
            what = it["name"] if it["name"] in (BEGIN, TURN, END) else None
        elif kind == "step_end" and open_steps[it["row"]].pop() in (BEGIN, TURN, END):
            continue
        if what == BEGIN:
            begins.append(n_kept)
        elif what == END and begins:
            spans.setdefault(len(begins), []).append((begins.pop(), n_kept))
        elif what == TURN:
            turns.append(n_kept)
        elif what is None:
            kept.append((kind, it))
            n_kept += kind not in ("string", "frame", "note")
    trace.records = kept
    return [spans[depth] for depth in sorted(spans)] + [list(zip(turns, turns[1:]))] * (len(turns) > 1)


def reduce(trace, spans, keeps, stack=lambda it: it["stack"]):
    """The same with the events alone that are kept."""
    n, n_kept, new_at, kept = 0, 0, [], []
    for kind, it in trace.records:
        if kind in ("string", "frame", "note"):
            kept.append((kind, it))
            continue
        new_at.append(n_kept)
        if keeps(kind, it):
            kept.append((kind, {**it, "stack": stack(it)}))
            n_kept += 1
    new_at.append(n_kept)
    trace.records = kept
    return [[(new_at[begin], new_at[end]) for begin, end in loop] for loop in spans]


def is_memory(kind, it):
    return kind in ("alloc", "free")


def without_marks(kind, it):
    return kind != "mark"


def in_backward(trace):
    """Stacks as a snapshot of CUDA has them: autograd's threads have no frames of Python."""
    engine = set()
    for number, frame in enumerate(trace.frames):
        if frame is not None and (frame[0] in engine or "_engine_run_backward" in frame[1]):
            engine.add(number)
    return engine


def as_recorder(run):
    trace = record(run, False)
    return trace, take_out(trace)


def as_unmarked(run):
    trace = record(run, False)
    return trace, reduce(trace, take_out(trace), without_marks)


def as_snapshot(run):
    trace = record(run, True)
    engine = in_backward(trace)
    return trace, reduce(trace, take_out(trace), is_memory, lambda it: 0 if it["stack"] in engine else it["stack"])


def as_annotated(run):
    """Allocations and the annotations of optimizers, as a newer snapshot without stacks."""
    trace = record(run, False)
    keeps = lambda kind, it: is_memory(kind, it) or kind == "mark" and it["name"].startswith(OPTIMIZER)
    return trace, reduce(trace, take_out(trace), keeps, lambda it: 0)


def as_memory(run):
    trace = record(run, False)
    return trace, reduce(trace, take_out(trace), is_memory, lambda it: 0)


def as_chrome(run):
    trace = profile(run)
    return trace, take_out(trace)


def as_execution(run):
    trace = observe(run)
    return trace, take_out(trace)


KINDS = {"recorder": as_recorder, "unmarked": as_unmarked, "snapshot": as_snapshot, "annotated": as_annotated,
         "execution": as_execution, "chrome": as_chrome, "malloc": as_memory}


# ---- answers ---------------------------------------------------------------------------------------

def ask(trace):
    if "ebb.bytes" in trace.notes:
        del trace.notes["ebb.bytes"]
    trace_reader.rewrite(trace, path_of("bare.trace"))
    report = subprocess.run([ebb_program, "report", path_of("bare.trace"), "--json", "-o", path_of("bare.html")],
                            stdout=subprocess.PIPE, check=True)
    with open(path_of("bare.html")) as file:
        page = file.read()
    begin = page.index('"parts": [') + len('"parts": ')
    parts, _ = json.JSONDecoder().raw_decode(page[begin:])
    return json.loads(report.stdout)["iteration"], [(part["first"], part["first"] + part["events"]) for part in parts
                                                    if part["kind"] == "iteration"]


def weight_of(trace):
    """Before each event, how many came that say what the program does; not frees, which come when they do."""
    weight, n = [0], 0
    for kind, it in trace.records:
        if kind not in ("string", "frame", "note"):
            n += kind in ("alloc", "read", "write", "step_begin") and not it.get("before")
            weight.append(n)
    return weight


MOSTLY = 0.75  # of two iterations that are the same one: the share that is in both


def is_same(weight, a, b):
    size = lambda span: weight[max(span)] - weight[span[0]]
    common = size((max(a[0], b[0]), max(min(a[1], b[1]), a[0], b[0])))
    return common > 0 and common >= MOSTLY * max(size(a), size(b))


def is_right(weight, spans, found):
    """Each found is one of the program's, but for a few, and half of the program's are found."""
    n_right, s = 0, 0
    sizes = [weight[end] - weight[begin] for begin, end in spans]
    spans = [span for span, size in zip(spans, sizes) if 4 * size > max(sizes)]
    for one in found:
        while s < len(spans) and spans[s][1] <= one[0]:
            s += 1
        n_right += any(is_same(weight, one, span) for span in spans[s:s + 2])
    n_odd = len(found) - n_right
    return n_right > 0 and n_odd <= min(2, n_right / 2) and 2 * n_right >= len(spans) - 1


def judge(weight, spans, answer, found):
    """Of loops in loops that both count, either is right."""
    spans = [loop for loop in spans if any(weight[end] > weight[begin] for begin, end in loop)]
    if not answer["found"]:
        return "none" if spans else "right"
    return "right" if any(is_right(weight, loop, found) for loop in spans) else "wrong"


def n_sure_and_wrong(counts):
    return sum(counts[kind, "sure", "wrong"] for kind in KINDS)


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    chosen = sys.argv[3:] or PROGRAMS
    counts = collections.Counter()
    for kind in KINDS:
        iteration_programs.listen()
    width = max(map(len, chosen))
    print(" " * width, *(f"{kind:>12}" for kind in KINDS))
    for name in chosen:
        row = []
        for kind, recorded in KINDS.items():
            torch.manual_seed(0)
            trace, spans = recorded(PROGRAMS[name])
            iteration_programs.listen()
            answer, found = ask(trace)
            verdict = judge(weight_of(trace), spans, answer, found)
            confidence = answer["confidence"] or 0.0
            counts[kind, verdict] += 1
            counts[kind, "sure", verdict] += answer["found"] and confidence > 0.5
            row.append(f"{verdict} {100 * confidence:.0f}" if answer["found"] else verdict)
        print(f"{name:{width}}", *(f"{cell:>12}" for cell in row), flush=True)
    print()
    for verdict in ("right", "none", "wrong"):
        print(f"{verdict:{width}}", *(f"{counts[kind, verdict]:>12}" for kind in KINDS))
    n_sure = [counts[kind, "sure", "wrong"] for kind in KINDS]
    print(f"{'wrong above 50':{width}}", *(f"{n:>12}" for n in n_sure))
    return counts


if __name__ == "__main__":
    sys.exit(n_sure_and_wrong(main()) > 0)
