#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The iterations of PyTorch programs, found in recordings of ebb.torch.record() from which all marks were taken, beside
what the marks said:

    tests/e2e/torch_iteration.py EBB FOLDER [CASE...]

Then, where this PyTorch can record them all, those programs of torch_iterations.py. Without EBB_TEST_ALL networks are
smaller and fewer. Each program is a row of parts, and marks where one ends: 't' is an iteration of training, anything else is not.
"""
import json
import os
import subprocess
import sys

import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import ebb.torch
import ebb.trace
import torch_verdict
import trace_reader
from torch_verdict import verdict

ebb_program, folder = sys.argv[1:3]
marked, bare = os.path.join(folder, "marked.trace"), os.path.join(folder, "bare.trace")
torch_verdict.suffix = f", torch {torch.__version__}"
ALL = "EBB_TEST_ALL" in os.environ  # the long form
N_LAYERS = 24 if ALL else 8
SURE, LIKELY = 1.0, 0.5  # the most that blocks can say: an optimizer's state was made, or only gradients are


# ---- programs ------------------------------------------------------------------------------------

def mlp():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


def transformer():
    layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, N_LAYERS), nn.Linear(32, 10))


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 36, 10))


SHAPES = {mlp: (16, 64), transformer: (4, 12, 32), convolutions: (8, 3, 16, 16)}


class Program:
    def __init__(self, make, optimizer=torch.optim.SGD, n_micro=1, **options):
        torch.manual_seed(0)
        self.net, self.shape, self.n_micro = make(), SHAPES[make], n_micro
        self.optimizer = optimizer(self.net.parameters(), lr=0.01, **options)

    def loss(self, shape):
        y = self.net(torch.randn(shape))
        return y.square().mean()

    def train(self, shape=None):
        self.optimizer.zero_grad()
        for _ in range(self.n_micro):
            (self.loss(shape or self.shape) / self.n_micro).backward()
        self.optimizer.step()

    def evaluate(self, n_batches):
        self.net.eval()
        with torch.no_grad():
            for _ in range(n_batches):
                self.loss((2 * self.shape[0], *self.shape[1:]))
        self.net.train()

    def play(self, part):
        """'t': train. 'e7': evaluate 7 batches. 's': save."""
        if part[0] == "t":
            self.train()
        elif part[0] == "e":
            self.evaluate(int(part[1:]))
        elif part == "s":
            {name: value.clone() for name, value in self.net.state_dict().items()}


# ---- what is found, what is true -------------------------------------------------------------------

def record(program, parts):
    with ebb.torch.record(marked, stacks=False) as recorder:
        for part in parts:
            program.play(part)
            recorder.mark_iteration()


def strip(trace, only_memory):
    """Without marks and labels; its events, and where marked iterations end in them."""
    keeps = lambda kind: kind in ("alloc", "free") if only_memory else kind not in ("mark", "label")
    kept, ends = [], []
    for event in trace.events:
        if keeps(event["kind"]):
            kept.append((event["kind"], event.get("size"), event.get("op")))
        elif event["kind"] == "mark" and event["mark"] == ebb.trace.ITERATION_END:
            ends.append(len(kept))
    trace_reader.rewrite(trace, bare, keeps)
    return kept, ends


def behind_frees(kept, at):
    """What dies with one iteration, the next one's first operator may see: a row of frees belongs to either."""
    while at < len(kept) and kept[at][0] == "free":
        at += 1
    return at


def found():
    told = subprocess.run([ebb_program, "report", bare, "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(told.stdout)["iteration"]


def is_warm_up(kept, first, second):
    """Whether the first iteration does anything else than the second; frees come in any order."""
    work = lambda span: [event for event in kept[slice(*span)] if event[0] != "free"]
    return first[1] - first[0] != second[1] - second[0] or work(first) != work(second)


def usual_length(lengths):
    """The most frequent length; if none comes twice, the last one: the first iterations make what then stays."""
    return max(lengths, key=lengths.count) if len(set(lengths)) < len(lengths) else lengths[-1]


def bound(program, only_memory):
    """No name tells of an optimizer. Phases alone say little; an optimizer's state tells of it."""
    return SURE if only_memory and program.optimizer.state else LIKELY


def check(name, program, parts, kinds=(False, True)):
    record(program, parts)
    trace = trace_reader.Trace(marked)
    for only_memory in kinds:
        kept, ends = strip(trace, only_memory)
        assert len(ends) == len(parts)
        before = sum(event["before"] for event in trace.events if event["kind"] == "alloc")
        ends = [behind_frees(kept, end) for end in ends]
        spans = [span for span, part in zip(zip([before] + ends, ends), parts) if part[0] == "t"]
        spans = spans[is_warm_up(kept, *spans[:2]):]
        lengths = [end - begin for begin, end in spans]
        want = {"found": True, "first_event": spans[0][0], "length_events": usual_length(lengths),
                "count": len(spans)}
        have = found()
        have["first_event"] = behind_frees(kept, have["first_event"])
        sure = have["found"] and have["regularity"] * (1 - 4.0 ** (1 - have["count"]))
        want["confidence"] = min(bound(program, only_memory), sure)
        good = all(have[key] == value for key, value in want.items() if key != "confidence")
        good = good and abs(have["confidence"] - want["confidence"]) < 1e-6
        verdict(f"{name}{': malloc and free' if only_memory else ''}", good, have, want, lengths[:9], spans[:4])


CASES = {
    "mlp": lambda name: check(name, Program(mlp), ["t"] * 6),
    "mlp, momentum": lambda name: check(name, Program(mlp, momentum=0.9), ["t"] * 6),
    "mlp, Adam": lambda name: check(name, Program(mlp, torch.optim.Adam), ["t"] * 6),
    "convolutions": lambda name: check(name, Program(convolutions, torch.optim.Adam), ["t"] * 6),
    "equal layers": lambda name: check(name, Program(transformer, torch.optim.Adam), ["t"] * 5),
    "equal layers, three steps": lambda name: check(name, Program(transformer, torch.optim.Adam), ["t"] * 3),
    "mlp, evaluation": lambda name: check(name, Program(mlp, torch.optim.Adam), (["t"] * 4 + ["e3"]) * 3),
    "mlp, evaluation every 7": lambda name: check(name, Program(mlp), (["t"] * 7 + ["e11"]) * 3 + ["t"] * 2),
    "equal layers, evaluation": lambda name: check(name, Program(transformer), (["t"] * 3 + ["e5"]) * 2 + ["t"]),
    "parts of a batch": lambda name: check(name, Program(mlp, momentum=0.9, n_micro=4), ["t"] * 6, kinds=(False,)),
    "saved every 10": lambda name: check(name, Program(mlp), (["t"] * 10 + ["s"]) * 3, kinds=(True,)),
}


MOST_WRONG = 2  # answers on the programs of iteration_programs_unseen.py, whose recordings differ from run to run
QUICK_PROGRAMS = ["sgd", "gan_sgd", "lbfgs", "evaluation_only", "backward_only"]
QUICK = "mlp", "mlp, momentum", "equal layers, three steps", "mlp, evaluation", "parts of a batch"


def count_programs(names):
    """Of those: the wrong iterations that are claimed above 50 %, and the recordings by ebb.torch that are right."""
    import torch_iterations
    sys.argv[3:] = names
    counts = torch_iterations.main()
    return torch_iterations.n_sure_and_wrong(counts), counts["recorder", "right"]


def check_programs():
    import iteration_programs
    import iteration_programs_unseen
    names = list(iteration_programs.PROGRAMS) if ALL else QUICK_PROGRAMS
    n_wrong, n_right = count_programs(names)
    verdict("no wrong iteration is claimed above 50 %", n_wrong == 0, n_wrong)
    if not ALL:
        verdict("recordings have their iterations", n_right == len(names), n_right)
        return
    n_wrong, _ = count_programs(list(iteration_programs_unseen.PROGRAMS))
    verdict("hardly one of the programs that were written later", n_wrong <= MOST_WRONG, n_wrong)


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[3:] or (CASES if ALL else QUICK)
    if unknown := set(wanted) - set(CASES):
        sys.exit(f"no case is called {', '.join(sorted(unknown))}")
    for name, case in CASES.items():
        if name in wanted:
            case(name)
    if len(sys.argv) < 4 and hasattr(torch.profiler, "ExecutionTraceObserver"):
        check_programs()
    sys.exit(torch_verdict.status)


if __name__ == "__main__":
    main()
