#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three steps of training in PyTorch, recorded by its profiler and by its observer of executions:

    torch_traces.py FOLDER      writes chrome.json and execution.json
    torch_traces.py --facts CHROME_TRACE
"""
import json
import os
import sys


def record(folder):
    import torch
    import torch.profiler as profiler
    from torch import nn
    observer = getattr(profiler, "ExecutionTraceObserver", None) or profiler.ExecutionGraphObserver
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
                        nn.Linear(16 * 32 * 32, 100), nn.GELU(), nn.Linear(100, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(torch.randn(8, 3, 32, 32)), torch.randint(0, 10, (8,)))
        loss.backward()
        optimizer.step()

    step()
    executions = observer()
    executions.register_callback(os.path.join(folder, "execution.json"))
    executions.start()
    for _ in range(3):
        step()
    executions.stop()
    executions.unregister_callback()
    optimizer.zero_grad(set_to_none=True)
    export = lambda p: p.export_chrome_trace(os.path.join(folder, "chrome.json"))
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True, on_trace_ready=export,
                          schedule=profiler.schedule(wait=0, warmup=0, active=3, repeat=1)) as p:
        for _ in range(3):
            step()
            p.step()


def facts(path):
    """Allocs, frees and the most that was live, of what the trace's memory events say; and its iterations."""
    with open(path) as file:
        trace = json.load(file)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    live, most, size, n = 0, 0, {}, {"alloc": 0, "free": 0}
    for event in sorted((e for e in events if e.get("name") == "[memory]"), key=lambda e: e["ts"]):
        number, address = event["args"]["Bytes"], event["args"]["Addr"]
        if number < 0 and address not in size:
            continue
        n["alloc" if number > 0 else "free"] += 1
        live += number
        most = max(most, live)
        size[address] = number
    print("alloc", n["alloc"])
    print("free", n["free"])
    print("most", most)
    print("steps", sum(e.get("name", "").startswith("ProfilerStep#") and e["ph"] == "X" for e in events))


if sys.argv[1] == "--facts":
    facts(sys.argv[2])
else:
    record(sys.argv[1])
