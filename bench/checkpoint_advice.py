#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How near the peak that a report promises for checkpoints is: the advice is applied as it is printed, and the program is
recorded again.

    bench/checkpoint_advice.py --ebb build/release/ebb [--models NAME,...] [--sources NAME,...] [--within PERCENT]

Each model trains two steps and is recorded by ebb.torch (with fake tensors), as a memory snapshot, and by PyTorch's
ExecutionTraceObserver, with ranges around modules. Snapshots need CUDA, so they are written here from a recording with
all frames of Python: blocks, stacks, and nothing else. An execution trace does not say when a storage is freed, and a
number that comes again may make a life longer than it was: of three recordings the one with the lowest peak counts. Then
the modules that the report names run through torch.utils.checkpoint. CSV goes to stdout, a row for each recording: peak
without, promised, measured, and how far the promise is off. --within ends with an error if one is further off, or if a
report gives no advice.
"""
import argparse
import csv
import functools
import gc
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "python"), os.path.join(HERE, "..", "tests", "e2e"), HERE]
sys.dont_write_bytecode = True

import torch
import torch.utils.checkpoint
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import ebb.torch
import ebb.torch._operators as operators
import trace_reader

N_STEPS = 2

# ---- models --------------------------------------------------------------------------------------


class MlpBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.blocks, self.last = nn.Linear(64, 128), nn.ModuleList(MlpBlock(128) for _ in range(8)), nn.Linear(128, 10)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class LstmBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.lstm, self.dropout = nn.LayerNorm(width), nn.LSTM(width, width, batch_first=True), nn.Dropout(0.1)

    def forward(self, x):
        y, _ = self.lstm(self.norm(x))
        return x + self.dropout(y)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.last = nn.Embedding(500, 96), nn.Linear(96, 100)
        self.blocks = nn.ModuleList(LstmBlock(96) for _ in range(6))

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x).flatten(0, 1)


class DoubleConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out)
        self.conv2, self.norm2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out)

    def forward(self, x):
        x = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(x)))


class UNet(nn.Module):
    def __init__(self, width=16, depth=3):
        super().__init__()
        sizes = [width << i for i in range(depth + 1)]
        self.down = nn.ModuleList(DoubleConv(3 if i == 0 else sizes[i - 1], sizes[i]) for i in range(depth))
        self.middle = DoubleConv(sizes[depth - 1], sizes[depth])
        self.up = nn.ModuleList(nn.ConvTranspose2d(sizes[i + 1], sizes[i], 2, 2) for i in reversed(range(depth)))
        self.join = nn.ModuleList(DoubleConv(2 * sizes[i], sizes[i]) for i in reversed(range(depth)))
        self.pool, self.last = nn.MaxPool2d(2), nn.Conv2d(width, 5, 1)

    def forward(self, x):
        skips = []
        for down in self.down:
            skips.append(down(x))
            x = self.pool(skips[-1])
        x = self.middle(x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([skips.pop(), up(x)], 1))
        return self.last(x)


def images(batch, side, classes=10):
    return torch.randn(batch, 3, side, side), torch.randint(0, classes, (batch,))


def of_torchvision(name, batch, side):
    def make():
        import torchvision
        more = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
        return (getattr(torchvision.models, name)(num_classes=10, **more), *images(batch, side))
    return make


def vit():
    import torchvision
    net = torchvision.models.VisionTransformer(image_size=64, patch_size=8, num_layers=12, num_heads=4, hidden_dim=128,
                                               mlp_dim=512, num_classes=10)
    return (net, *images(8, 64))


class Logits(nn.Module):
    """A language model of transformers', which gives more than logits."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x, use_cache=False).logits.flatten(0, 1)


def gpt2():
    import transformers
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    return Logits(net), torch.randint(0, 50257, (2, 256)), torch.randint(0, 50257, (512,))


MODELS = {
    "mlp": lambda: (Mlp(), torch.randn(512, 64), torch.randint(0, 10, (512,))),
    "lstm": lambda: (Lstm(), torch.randint(0, 500, (32, 32)), torch.randint(0, 100, (1024,))),
    "unet": lambda: (UNet(), torch.randn(2, 3, 64, 64), torch.randint(0, 5, (2, 64, 64))),
    "resnet18": of_torchvision("resnet18", 24, 96),
    "resnet50": of_torchvision("resnet50", 8, 96),
    "vit": vit,
    "gpt2": gpt2,
    "densenet121": of_torchvision("densenet121", 8, 64),
    "googlenet": of_torchvision("googlenet", 16, 64),
}


class Training:
    def __init__(self, name):
        torch.manual_seed(0)
        self.net, self.x, self.y = MODELS[name]()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)

    def step(self):
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.net(self.x), self.y).backward()
        self.optimizer.step()

    def steps(self):
        for _ in range(N_STEPS):
            self.step()


# ---- sources -------------------------------------------------------------------------------------


def by_recorder(training, path):
    with ebb.torch.record(path):
        training.steps()


def frames_of(trace, stack):
    """A stack as a snapshot has it. A thread of autograd's has no frames of the program around it."""
    frames = []
    while stack:
        stack, function, file, line = trace.frames[stack]
        if "torch/autograd/" in file and function in ("backward", "_engine_run_backward"):
            return frames + [{"name": "torch::autograd::Engine::thread_main(...)", "filename": "??", "line": 0}]
        frames.append({"name": function, "filename": file, "line": line})
    return frames


def snapshot_of(trace):
    """What torch.cuda.memory._snapshot() gives, of blocks at addresses that come once."""
    frames, events, live, at = functools.lru_cache(None)(lambda stack: frames_of(trace, stack)), [], {}, 1 << 40
    for event in trace.events:
        if event["kind"] == "alloc":
            live[event["block"]] = block = {"addr": at, "size": event["size"], "stream": 0, "time_us": event["time"] // 1000}
            at += -(-event["size"] // 512) * 512
            if not event["before"]:
                events.append({"action": "alloc", "frames": frames(event["stack"]), **block})
        elif event["kind"] == "free":
            block = {**live.pop(event["block"]), "time_us": event["time"] // 1000, "frames": frames(event["stack"])}
            events += [{"action": "free_requested", **block}, {"action": "free_completed", **block}]
    segments = [{"device": 0, "address": b["addr"], "total_size": -(-b["size"] // 512) * 512, "allocated_size": b["size"],
                 "active_size": b["size"], "requested_size": b["size"], "stream": 0, "segment_type": "large",
                 "blocks": [{"address": b["addr"], "size": -(-b["size"] // 512) * 512, "requested_size": b["size"],
                             "state": "active_allocated", "frames": []}]} for b in live.values()]
    return {"segments": segments, "device_traces": [events]}


def by_snapshot(training, path):
    kept, operators._LIBRARY = operators._LIBRARY, "\0"  # all frames
    operators._kinds.clear()
    with ebb.torch.record(path + ".all"):
        training.steps()
    operators._LIBRARY = kept
    operators._kinds.clear()
    with open(path, "wb") as file:
        pickle.dump(snapshot_of(trace_reader.Trace(path + ".all")), file)


def add_ranges(net):
    """A range by its name around each module's forward, as docs/import.md says."""
    for name, module in net.named_modules():
        if name:
            ranges = []
            module.register_forward_pre_hook(lambda *_, name=name, ranges=ranges: (
                ranges.append(torch.profiler.record_function(name)), ranges[-1].__enter__())[:0] or None)
            module.register_forward_hook(lambda *_, ranges=ranges: ranges.pop().__exit__(None, None, None), always_call=True)


def by_execution_trace(training, path):
    from torch.profiler import ExecutionTraceObserver
    add_ranges(training.net)
    observer = ExecutionTraceObserver().register_callback(path)
    observer.start()
    training.steps()
    observer.stop()
    observer.unregister_callback()


NOT_FAKE = ("vit",)  # they look at what they initialize

# (how it is recorded, whether tensors may be fake, the end of the file's name, how many recordings)
SOURCES = {"recorder": (by_recorder, True, ".trace", 1), "snapshot": (by_snapshot, True, ".pickle", 1),
           "execution": (by_execution_trace, False, ".json", 3)}


def report_of(program, source, model, names, folder):
    """The report of a recording, with the modules of these names checkpointed; of several the one with the lowest peak."""
    reports = [report_once(program, source, model, names, folder) for _ in range(SOURCES[source][3])]
    return min(reports, key=lambda report: report["peak_bytes"])


def report_once(program, source, model, names, folder):
    record, may_be_fake, end, _ = SOURCES[source]
    path = os.path.join(folder, "recording" + end)
    gc.collect()
    with FakeTensorMode() if may_be_fake and model not in NOT_FAKE else torch.enable_grad():
        training = Training(model)
        for module in modules_of(training.net, names):
            add_checkpoint(module)
        record(training, path)
    del training
    gc.collect()
    return json.loads(subprocess.run([program, "report", path, "--json"], stdout=subprocess.PIPE, check=True).stdout)


# ---- advice --------------------------------------------------------------------------------------


def has_forward(module, file, line):
    code = inspect.unwrap(type(module).forward).__code__
    last = max((at for _, _, at in code.co_lines() if at), default=0)
    return code.co_filename.endswith(file) and code.co_firstlineno <= line <= last


def modules_of(net, names):
    """The modules that a report means: by their names, or by a line of their forward."""
    modules = []
    for name in names:
        frame = re.fullmatch(r"forward \((.*):(\d+)\)", name)
        if frame:
            found = [m for m in net.modules() if has_forward(m, frame[1], int(frame[2]))]
            assert found, f"no module has {name}"
        else:
            found = [net.get_submodule(name.split(" (")[0])]
            assert type(found[0]).forward is not nn.Module.forward, f"{name} cannot be called"
        modules += [m for m in found if m not in modules]
    assert net not in modules, "the whole network"
    return modules


def add_checkpoint(module):
    """A list that the caller extends later, as DenseNet does, has to be copied."""
    forward = module.forward
    module.forward = lambda *args, **kwargs: torch.utils.checkpoint.checkpoint(
        forward, *(list(arg) if isinstance(arg, list) else arg for arg in args), use_reentrant=False, **kwargs)


def compare(program, model, source, folder):
    before = report_of(program, source, model, (), folder)
    tip = next((tip for tip in before["advice"] if tip["key"] == "checkpoint"), None)
    if tip is None:
        return [model, source, before["peak_bytes"], "", "", "", 0, ""]
    promised = before["peak_bytes"] - tip["won_bytes"]
    try:
        after = report_of(program, source, model, tip["names"], folder)["peak_bytes"]
    except (AssertionError, AttributeError) as error:  # a name that is none of a module that can be called
        return [model, source, before["peak_bytes"], promised, "", "", len(tip["names"]), str(error)]
    return [model, source, before["peak_bytes"], promised, after, f"{100 * (promised / after - 1):+.2f}", len(tip["names"]),
            tip["names"][0]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--within", type=float)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    import provenance
    begin, n_wrong = [provenance.commit(), provenance.processor(), torch.__version__], 0
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow("commit machine torch model source peak_bytes promised_bytes measured_bytes error_percent modules first".split())
    for model in arguments.models.split(","):
        for source in arguments.sources.split(","):
            with tempfile.TemporaryDirectory() as folder:
                row = compare(os.path.abspath(arguments.ebb), model, source, folder)
            writer.writerow(begin + row)
            sys.stdout.flush()
            n_wrong += arguments.within is not None and (row[5] == "" or abs(float(row[5])) > arguments.within)
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
