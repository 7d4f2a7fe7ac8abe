#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.record() beside what is counted without it: run by test_ebb_torch.sh with count_alloc.c preloaded.

    tests/e2e/torch_record.py EBB FOLDER

The counter logs each allocation of PyTorch's CPU allocator. The recorder must have each of them that outlives the
operator that made it, at the same address and with the same bytes, and the peaks must be equal. One kind is left out,
and counted: 8 bytes for a number that takes part in an operator with tensors (`x / 8.0`), which PyTorch puts into a tensor of its
own behind the dispatch.
"""
import collections
import contextlib
import copy
import ctypes
import gc
import io
import json
import os
import shlex
import subprocess
import sys
import threading

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import ebb.torch
import torch_verdict
import trace_reader
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch_verdict import verdict

NUMBER_BYTES = 8
NODES = hasattr(torch._C, "_current_autograd_node")  # without, a backward operator's module is that of its parameters
ALL = "EBB_TEST_ALL" in os.environ  # the long form
ebb_program, folder = sys.argv[1:3]
path = os.path.join(folder, "trace")
torch_verdict.suffix = f", torch {torch.__version__}"


# ---- networks ------------------------------------------------------------------------------------

class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.embedding, self.layers = torch.nn.Embedding(1000, 64), torch.nn.TransformerEncoder(layer, 24)
        self.out = torch.nn.Linear(64, 1000)

    def forward(self, x):
        return self.out(self.layers(self.embedding(x)).mean(1))


def mlp():
    net = torch.nn.Sequential(torch.nn.Linear(100, 300), torch.nn.ReLU(inplace=True), torch.nn.Linear(300, 10))
    return net, torch.randn(64, 100), torch.randint(0, 10, (64,))


def resnet50(batch=2, side=64):
    import torchvision
    return torchvision.models.resnet50(num_classes=10), torch.randn(batch, 3, side, side), torch.randint(0, 10, (batch,))


def transformer():
    return Transformer(), torch.randint(0, 1000, (4, 16)), torch.randint(0, 1000, (4,))


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


def adam_foreach(net):
    return torch.optim.AdamW(net.parameters(), foreach=True)


class Training:
    def __init__(self, make, optimizer):
        torch.manual_seed(1)
        self.net, self.x, self.y = make()
        self.optimizer, self.loss = optimizer(self.net), torch.nn.CrossEntropyLoss()

    def step(self):
        self.optimizer.zero_grad()
        loss = self.loss(self.net(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def bits(self):
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        tensors = [*self.net.state_dict().values(), *(p.grad for p in self.net.parameters())]
        return [tensor.numpy().tobytes() for tensor in tensors + [s for s in state if isinstance(s, torch.Tensor)]]


# ---- the allocator's own count -------------------------------------------------------------------

class Entry(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("size", ctypes.c_uint64)]


class Counter(TorchDispatchMode):
    """Between which entries of the log each operator ran. Entered behind the recorder, so that it is called first."""

    library = ctypes.CDLL(None)
    library.count_alloc_log.restype = ctypes.POINTER(Entry)
    library.count_alloc_n.restype = ctypes.c_size_t

    def __init__(self):
        super().__init__()
        self.spans, self.begin = [], self.library.count_alloc_n()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        begin = self.library.count_alloc_n()
        result = func(*args, **(kwargs or {}))
        self.spans.append((begin, self.library.count_alloc_n()))
        return result

    def temporaries(self, log):
        """Entries that an operator makes and frees itself."""
        found = set()
        for begin, end in self.spans:
            made = {}
            for i in range(begin, end):
                if log[i].size:
                    made[log[i].address] = i
                elif log[i].address in made:
                    found.add(made.pop(log[i].address))
        return found

    def replay(self):
        """(bytes that lived at the beginning, peak, the allocations) without temporaries and numbers; of those left
        out the sizes that are no number's, outside of operators."""
        log, live, end = self.library.count_alloc_log(), {}, self.library.count_alloc_n()
        for i in range(self.begin):
            live[log[i].address] = log[i].size
        live = {address: size for address, size in live.items() if size not in (0, NUMBER_BYTES)}
        left_out, now = self.temporaries(log), sum(live.values())
        first, peak, made = now, now, collections.Counter()
        for i in range(self.begin, end):
            entry = log[i]
            if entry.size == 0:
                now -= live.pop(entry.address, 0)
            elif i not in left_out and entry.size != NUMBER_BYTES:
                live[entry.address] = entry.size
                now += entry.size
                peak = max(peak, now)
                made[entry.address, entry.size] += 1
        return first, peak, made


def compare(name, training):
    gc.collect()
    with ebb.torch.record(path) as recorder, Counter() as counter:
        for _ in range(2):
            training.step()
    first, peak, made = counter.replay()
    trace = trace_reader.Trace(path)
    allocs = [event for event in trace.events if event["kind"] == "alloc" and event["size"] != NUMBER_BYTES]
    before = sum(event["size"] for event in allocs if event["before"])
    mine = collections.Counter((event["address"], event["size"]) for event in allocs if not event["before"])
    verdict(f"{name}: what is there before", before == first, before, first)
    verdict(f"{name}: each allocation that outlives its operator", mine == made, mine - made, made - mine)
    numbers = {e["block"] for e in trace.events if e["kind"] == "alloc" and e["size"] == NUMBER_BYTES}
    verdict(f"{name}: the peak", trace.peak(lambda alloc: alloc["block"] not in numbers) == peak, trace.peak(), peak)
    verdict(f"{name}: the recorder says the peak", trace.is_whole and recorder.peak_bytes == trace.peak())
    return trace


# ---- cases ---------------------------------------------------------------------------------------

def live_by_role(trace, at=None):
    """Bytes by role, and names, of what lives behind the event `at`."""
    live = {}
    for event in trace.events[:at]:
        if event["kind"] == "alloc":
            live[event["block"]] = [event["role"], event["size"], event["name"]]
        elif event["kind"] == "label":
            live[event["block"]][0], live[event["block"]][2] = event["role"], event["name"]
        elif event["kind"] == "free":
            del live[event["block"]]
    total = collections.Counter()
    for role, size, _ in live.values():
        total[role] += size
    return total, {name for _, _, name in live.values()}


def check_roles(name, trace, training):
    total, names = live_by_role(trace)
    size = lambda tensors: sum(t.numel() * t.element_size() for t in tensors)
    parameters = list(training.net.parameters())
    state = [t for values in training.optimizer.state.values() for t in values.values() if isinstance(t, torch.Tensor)]
    verdict(f"{name}: parameters", total["parameter"] == size(parameters), total)
    verdict(f"{name}: gradients", total["gradient"] == size(p.grad for p in parameters), total)
    verdict(f"{name}: the optimizer's state", total["optimizer_state"] == size(state), total, size(state))
    verdict(f"{name}: names", all(n in names and n + ".grad" in names for n, _ in training.net.named_parameters()))
    marks = [e for e in trace.events if e["kind"] == "mark" and e["mark"] != ebb.trace.ANNOTATION]
    marks = [(e["mark"], e["number"]) for e in marks]
    verdict(f"{name}: an iteration a step", marks[:4] == [(0, 0), (1, 0), (0, 1), (1, 1)], marks)
    steps = [e for e in trace.events if e["kind"] == "step_begin"]
    outside = ("aten.ones_like", "aten.zeros", "aten.zero_", "aten._foreach_zero_", "aten._local_scalar_dense")
    unnamed = [e["op"] for e in steps if e["phase"] == 0 and e["name"] == e["op"] and e["op"] not in outside]
    verdict(f"{name}: modules of forward steps", not unnamed, unnamed[:5])
    verdict(f"{name}: three phases", {e["phase"] for e in steps} == {0, 1, 2})
    layers = {e["name"] for e in steps if e["phase"] == 0}
    backward = {e["name"] for e in steps if e["phase"] == 1}
    verdict(f"{name}: modules of backward steps", len(backward & layers) >= (0.5 * len(layers) if NODES else 1), len(backward & layers))


def check_bits(name, make, optimizer):
    plain, recorded = Training(make, optimizer), Training(make, optimizer)
    torch.manual_seed(2)
    losses = [plain.step() for _ in range(2)]
    torch.manual_seed(2)
    with ebb.torch.record(path):
        mine = [recorded.step() for _ in range(2)]
    verdict(f"{name}: the same bits", losses == mine and plain.bits() == recorded.bits(), losses, mine)


def check_fake(name, make, optimizer):
    """Under fake tensors: the same allocations in the same order as with real ones, and no memory."""
    def sizes(fake):
        training = Training(make, optimizer)
        gc.collect()
        with ebb.torch.record(path):
            for _ in range(2):
                loss = training.loss(training.net(training.x), training.y)
                loss.backward()
                training.optimizer.step()
                training.optimizer.zero_grad()
                del loss
        trace = trace_reader.Trace(path)
        verdict(f"{name}: {'fake' if fake else 'real'}", trace.is_whole and (trace.tells & 1 == 0) == fake)
        large = [e["size"] for e in trace.events if e["kind"] == "alloc" and not e["before"] and e["size"] > 64]
        return large, trace.peak(lambda alloc: alloc["size"] > 64 and not (alloc["before"] and alloc["role"] == "input"))
    real = sizes(False)
    with FakeTensorMode():
        fake = sizes(True)
    verdict(f"{name}: fake as real", real == fake, real[1], fake[1], len(real[0]), len(fake[0]))


def check_full_size():
    with FakeTensorMode():
        training = Training(lambda: resnet50(64, 224), sgd)
        with ebb.torch.record(path) as recorder:
            loss = training.loss(training.net(training.x), training.y)
            loss.backward()
            training.optimizer.step()
    verdict("resnet50 at full size: a peak of GiB", 5 << 30 < recorder.peak_bytes < 9 << 30, recorder.peak_bytes)


def report(name, peak_bytes):
    """What the reader in C makes of the trace."""
    told = subprocess.run([ebb_program, "report", path, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if told.returncode != 0:
        verdict(name, False, told.stderr)
        return
    told = json.loads(told.stdout)
    verdict(name, told["peak_bytes"] == peak_bytes and told["source"] == "ebb.torch", told["peak_bytes"], peak_bytes)


def plan(name):
    """What it needs as a program, in at most the bytes of the recording, and how long the plan takes."""
    told = subprocess.run([ebb_program, "plan", path, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if told.returncode != 0:
        verdict(name, False, told.stderr)
        return
    told = json.loads(told.stdout)
    verdict(name, 0 < told["liveness_bytes"] <= told["recording_peak_bytes"] and
            told["program_made_s"] + told["plan_made_s"] < 2, told)


def check_exception():
    net = torch.nn.Linear(1000, 1000)

    class Breaks(torch.nn.Module):
        def forward(self, x):
            y = x * 2
            raise ValueError("on purpose")
    try:
        with ebb.torch.record(path):
            net(torch.ones(10, 1000))
            Breaks()(torch.ones(3))
    except ValueError:
        pass
    trace = trace_reader.Trace(path)
    verdict("an exception passes, and the trace is whole", trace.is_whole and len(trace.events) > 5)
    with ebb.torch.record(path):
        torch.ones(50) * 2
    steps = [e for e in trace_reader.Trace(path).events if e["kind"] == "step_begin"]
    verdict("nothing is left of it", [e["name"] for e in steps] == ["aten.ones", "aten.mul"], steps)


def check_refusal():
    """An operator that wants more than there is, in a module whose name is a number."""
    class Wants(torch.nn.Module):
        def forward(self, x):
            return x.new_empty(10**14) + 1
    net = torch.nn.Sequential(torch.nn.Linear(100, 100), Wants())
    try:
        with ebb.torch.record(path):
            net(torch.ones(100, 100))
    except RuntimeError:
        pass
    told = json.loads(subprocess.run([ebb_program, "report", path, "--json"], stdout=subprocess.PIPE).stdout)
    refused = told["refused"]
    verdict("an allocation that was refused", len(refused) == 1 and refused[0]["bytes"] == 4 * 10**14, refused)
    verdict("what was live then", refused and refused[0]["live_bytes"] == 4 * (100 * 100 * 3 + 100), refused)
    verdict("who asked for it", refused and "forward" in refused[0]["stack"][0], refused)
    trace = trace_reader.Trace(path)
    verdict("classes of modules", [trace.notes[f"class.{i}"] for i in (0, 1)] == ["Linear", "Wants"], trace.notes)
    verdict("a device that ran out", trace.notes["oom.0"] == "1", trace.notes)


def check_refusals_words():
    """What PyTorch's allocators say, of 1.13 and of 2.13."""
    from ebb.torch._refusals import refusal_of
    old = "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 31.75 GiB total capacity; 1 GiB already allocated)"
    new = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1 MiB is free."
    verdict("words of 1.13", refusal_of(RuntimeError(old)) == (torch.device("cuda", 1), 20 << 20))
    verdict("words of 2.13", refusal_of(RuntimeError(new)) == (torch.device("cuda", 0), 3 << 29))
    verdict("other words", refusal_of(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None)


def check_interrupts():
    """At whichever line of the recorder Ctrl-C comes, the program gets it, and the trace reads up to there."""
    ours, n_lines, stop_at, n_cut = os.path.dirname(ebb.__file__), 0, 1, 0

    def watch(frame, event, _):
        nonlocal n_lines
        if not frame.f_code.co_filename.startswith(ours):
            return None
        n_lines += event == "line"
        if n_lines == stop_at:
            raise KeyboardInterrupt
        return watch

    training, interrupted = Training(mlp, sgd), True
    while interrupted:
        n_lines, interrupted = 0, False
        try:
            with ebb.torch.record(path):
                sys.settrace(watch)
                training.step()
        except KeyboardInterrupt:
            interrupted = True
        sys.settrace(None)
        n_cut += not trace_reader.Trace(path).is_whole  # which refuses what makes no sense
        stop_at += 101 if ALL else 701
    verdict("interrupted anywhere", n_cut > 10, n_cut, stop_at)


def check_not_begun():
    recorder = ebb.torch.record(path)
    verdict("no bytes before it records", recorder.live_bytes == recorder.peak_bytes == 0)
    try:
        recorder.mark_iteration()
        verdict("no iteration ends before it records", False)
    except RuntimeError as error:
        verdict("no iteration ends before it records", str(error).startswith("ebb: "), error)


def check_nested():
    inner_path = path + ".inner"
    with ebb.torch.record(path) as outer:
        a = torch.ones(1000)
        with ebb.torch.record(inner_path, stacks=False):
            b = a + 1
        c = b * 2
    allocs = lambda at: [e["size"] for e in trace_reader.Trace(at).events if e["kind"] == "alloc" and not e["before"]]
    verdict("one in another", allocs(path) == [4000] * 3 and allocs(inner_path) == [4000], allocs(path))
    verdict("without stacks", not any(e["stack"] for e in trace_reader.Trace(inner_path).events))
    lines = [trace_reader.Trace(path).stack_lines(e["stack"]) for e in trace_reader.Trace(path).events if e["stack"]]
    verdict("with stacks", len(lines) == 3 and "check_nested" in lines[0][0] and "main" in lines[0][1], lines)
    try:
        with outer:
            verdict("a recorder records once", False)
    except RuntimeError:
        verdict("a recorder records once", True)
    del c


def check_says():
    """At the end one line tells where the recording is, unless it is to be quiet or has not been written."""
    def said(**options):
        with contextlib.redirect_stderr(io.StringIO()) as stderr, ebb.torch.record(path, **options):
            torch.ones(1000)
        return stderr.getvalue()

    n_events = len(trace_reader.Trace(path).events) if said(quiet=True) == "" else None
    line = said()
    verdict("it says where the recording is", line == f"ebb: recorded {n_events} events to {path}; see it with: "
            f"ebb report {shlex.quote(path)}\n", line, n_events)
    stderr, sys.stderr = sys.stderr, None
    with ebb.torch.record(path):
        torch.ones(1000)
    sys.stderr = stderr
    verdict("without a stderr it is silent", trace_reader.Trace(path).is_whole)


def check_views_and_places():
    with ebb.torch.record(path) as recorder:
        a = torch.ones(1000)
        b = a.view(10, 100).t()[3:]
        b.add_(1)
        a.zero_()
        live = [recorder.live_bytes]
        del a
        torch.ones(1)
        live.append(recorder.live_bytes)
        del b
        torch.ones(1)
        live.append(recorder.live_bytes)
        c = torch.empty(0)
        torch.add(torch.ones(500), 1, out=c)
        d = torch.ones(100)
        d.resize_(300)
        d.data = torch.ones(700)
    trace = trace_reader.Trace(path)
    kinds = [e["kind"] for e in trace.events if e.get("block") == next(
        x["block"] for x in trace.events if x["kind"] == "alloc" and not x["before"])]
    verdict("views share, and writes in place", kinds == ["alloc", "write", "read", "write", "write", "free"], kinds)
    verdict("a view keeps its storage", live[0] - live[1] == -4 and live[1] - live[2] == 4000, live)
    sizes = [e["size"] for e in trace.events if e["kind"] == "alloc" and not e["before"]]
    last, _ = live_by_role(trace)
    verdict("resized storages, and swapped ones", 2000 in sizes and 1200 in sizes and 2800 in sizes and
            sum(last.values()) == recorder.live_bytes, sizes)


def check_ways():
    torch.manual_seed(3)
    net = torch.nn.Sequential(*[torch.nn.Sequential(*[torch.nn.Linear(50, 50), torch.nn.Tanh()] * 3) for _ in range(4)])
    peaks, grads = [], []
    for use in (False, True):
        net.zero_grad(set_to_none=True)
        x = torch.ones(20000, 50, requires_grad=True)
        with ebb.torch.record(path) as recorder:
            y = x
            for block in net:
                y = checkpoint(block, y, **({"use_reentrant": False} if torch.__version__ > "2" else {})) if use else block(y)
            y.sum().backward()
        peaks.append(recorder.peak_bytes)
        grads.append([p.grad.clone() for p in net.parameters()])
    verdict("checkpoints: a lower peak, the same gradients", peaks[1] < peaks[0] and
            all(torch.equal(a, b) for a, b in zip(*grads)), peaks)
    layer, grads = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), []
    for use in (False, True):
        layer.zero_grad(set_to_none=True)
        torch.manual_seed(4)
        with ebb.torch.record(path) if use else contextlib.nullcontext():
            checkpoint(layer, torch.ones(4, 16, 64, requires_grad=True), use_reentrant=False).sum().backward()
        grads.append([p.grad.clone() for p in layer.parameters()])
    verdict("a checkpoint of attention, not reentrant: the same gradients", all(map(torch.equal, *grads)))
    with ebb.torch.record(path) as recorder, torch.inference_mode():
        net(torch.ones(100, 50))
    trace = trace_reader.Trace(path)
    marks = [e for e in trace.events if e["kind"] == "mark"]
    verdict("inference", trace.is_whole and len(marks) == 2 and sum(e["kind"] == "step_begin" for e in trace.events) == 25,
            marks)
    with ebb.torch.record(path) as recorder:
        for _ in range(3):
            net(torch.ones(100, 50)).sum().backward()
            recorder.mark_iteration()
    marks = [(e["mark"], e["number"]) for e in trace_reader.Trace(path).events if e["kind"] == "mark"]
    verdict("marks of the program's own", marks == [(m, n) for n in range(3) for m in (0, 1)], marks)


class Wrapper(torch.Tensor):
    """A tensor around a tensor, that says so to nobody."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(func(*(arg.inner if isinstance(arg, cls) else arg for arg in args), **(kwargs or {})))


def check_strange():
    half_made = torch.nn.Module.__new__(torch.nn.Module), torch.optim.SGD.__new__(torch.optim.SGD)
    with ebb.torch.record(path) as recorder:
        torch.nn.Linear(1000, 1000, device="meta")(torch.empty(5, 1000, device="meta")).sum().backward()
        wrapper = Wrapper(torch.ones(1000)) + 1
    verdict("tensors without memory, and what is half made", 4000 <= recorder.peak_bytes < 20000 and len(half_made) == 2 and
            torch.equal(wrapper.inner, torch.ones(1000) + 1), recorder.peak_bytes)


KILLED = """
import os, torch, ebb.torch
with ebb.torch.record({path!r}):
    kept = [torch.ones(50) for _ in range(20)]
    {wait}
    large = torch.empty({large}, dtype=torch.uint8)
    os.kill(os.getpid(), 9)
"""


def check_killed():
    """What was told is in the file: up to a new peak, and up to a second ago."""
    for name, wait, large, at_least in (("at a peak", "pass", 100 << 20, 100 << 20),
                                        ("a while after", "import time; time.sleep(1.1)", 8, 4000)):
        if os.path.exists(path):
            os.remove(path)
        killed = subprocess.run([sys.executable, "-W", "ignore", "-c", KILLED.format(path=path, wait=wait, large=large)],
                                env={**os.environ, "PYTHONPATH": sys.path[1]})
        trace = trace_reader.Trace(path)
        peak = trace.peak(lambda alloc: not alloc["before"])
        verdict(f"killed {name}", killed.returncode == -9 and not trace.is_whole and peak >= at_least, killed, peak)


def check_document():
    """The example of docs/record.md needs no GPU."""
    with open(os.path.join(HERE, "..", "..", "docs", "record.md")) as page:
        example = page.read().split("**Without memory.**")[1].split("```python\n")[1].split("```")[0]
    before = os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(None):
            exec(example, {"__name__": "example"})
    finally:
        os.chdir(before)
    trace = trace_reader.Trace(os.path.join(folder, "step.trace"))
    total, _ = live_by_role(trace)
    verdict("the example without memory", trace.is_whole and total["parameter"] > 1 << 30 and
            total["optimizer_state"] >= 2 * total["parameter"] and {0, 1, 2} <= {
                e["phase"] for e in trace.events if e["kind"] == "step_begin"}, total)


def check_threads_and_forks():
    with ebb.torch.record(path) as recorder:
        loss = (torch.ones(1000, requires_grad=True) * 2).sum()
        other = threading.Thread(target=loss.backward)
        other.start()
        other.join()
        child = os.fork()
        if child == 0:
            torch.ones(5000)
            os._exit(0)
        os.waitpid(child, 0)
        torch.ones(10)
    trace = trace_reader.Trace(path)
    verdict("threads and forks", trace.is_whole and not any(e.get("size") == 20000 for e in trace.events))
    if os.path.exists("/dev/full"):
        import warnings
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with ebb.torch.record("/dev/full"):
                x = torch.ones(10) + 1
        verdict("a full disk ends the recording alone", len(said) == 1 and "ends here" in str(said[0].message) and
                x.sum() == 20, [str(w.message) for w in said])


def main():
    torch.set_num_threads(1)
    check_refusal()  # before there are fake tensors: 1.13 keeps numbers that they are made of, which then are live too
    for name, make, optimizer in (("mlp", mlp, sgd), ("mlp, AdamW", mlp, adam_foreach), ("resnet50", resnet50, sgd),
                                  ("transformer", transformer, adam_foreach)):
        training = Training(make, optimizer)
        trace = compare(name, training)
        check_roles(name, trace, training)
        report(f"{name}: the reader in C", trace.peak())
        plan(f"{name}: as a program")
        if name != "mlp":
            check_bits(name, make, optimizer)
        del training, trace
    check_fake("mlp under fake tensors", mlp, sgd)
    check_full_size()
    check_exception()
    check_refusals_words()
    check_interrupts()
    check_not_begun()
    check_nested()
    check_says()
    check_views_and_places()
    check_ways()
    check_strange()
    check_killed()
    check_document()
    check_threads_and_forks()
    sys.exit(torch_verdict.status)


if __name__ == "__main__":
    main()
