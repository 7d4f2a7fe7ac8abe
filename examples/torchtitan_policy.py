# SPDX-License-Identifier: Apache-2.0
"""A memory policy for torchtitan's graph trainer: it saves and computes again what a plan of ebb does.

Plan once, where ebb is, for the model as one process of the training has it:

    compiled = ebb.torch.compile(model, "60%", backend="aot_eager")
    compiled(tokens).sum().backward()
    json.dump(compiled.summary()[0]["policy"], open("policy.json", "w"))

Then import this file where the trainer begins, and train with EBB_POLICY=policy.json and `--compile.memory_policy ebb`.
"""
import collections
import json
import operator
import os

from torch.utils.checkpoint import CheckpointPolicy
from torchtitan.experiments.graph_trainer.registry import register_memory_policy


@register_memory_policy("ebb")
def as_planned(gm, *, config):
    with open(os.environ["EBB_POLICY"]) as file:
        plan, calls = json.load(file), collections.Counter()
    for node in gm.graph.nodes:
        if node.target is operator.getitem and "recompute" in node.args[0].meta:
            node.meta["recompute"] = node.args[0].meta["recompute"]
        elif node.op == "call_function" and not node.meta.get("autograd_backward"):
            module, name = node.meta.get("custom", {}).get("module_fqn", ""), str(node.target).partition(".")[2]
            key = f"{module}_{name}" if module else name
            node.meta["recompute"] = CheckpointPolicy[plan.get(f"{key}_{calls[key]}", "PREFER_RECOMPUTE")]
            calls[key] += 1
    return gm
