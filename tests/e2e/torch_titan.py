#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/torchtitan_policy.py with torchtitan itself: its tracer, its registry of memory policies, and its pass that computes
again what a policy says. The step has the same bits, and peaks where ebb planned.

    tests/e2e/torch_titan.py

The peak is that of the storages when the graph runs node by node.
"""
import json
import os
import runpy
import sys
import tempfile
import types

import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))

import ebb.torch
import torch_verdict
from ebb.torch._bytes import Bytes
from torchtitan.experiments.graph_trainer.common_utils import annotate_module_fqns
from torchtitan.experiments.graph_trainer.make_fx_tracer import minimal_fx_tracer
from torchtitan.experiments.graph_trainer.memory_policy import tag_with_memory_policy_pass
from torchtitan.experiments.graph_trainer.selective_activation_remat import selective_activation_remat_pass
from torch_verdict import verdict

WIDTH, N_WORDS = 128, 500


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.parts, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        query, key, value = self.parts(self.first(x)).unflatten(2, (3, 4, WIDTH // 4)).permute(2, 0, 3, 1, 4)
        found = (query @ key.transpose(-1, -2)).softmax(-1) @ value
        x = x + self.out(found.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(N_WORDS, WIDTH)
        self.layers = nn.ModuleDict({str(i): Block() for i in range(4)})
        self.norm, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, N_WORDS)

    def forward(self, words):
        x = self.tok_embeddings(words)
        for layer in self.layers.values():
            x = layer(x)
        return self.output(self.norm(x))


class Run(torch.fx.Interpreter):
    """Lets go of each result after its last use, as the graph's own code does."""

    def __init__(self, graph):
        super().__init__(graph)
        self.storages = Bytes()

    def run_node(self, node):
        result = super().run_node(node)
        self.storages.bury()
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.storages.see(tensor.untyped_storage())
        return result


def trained(model, batch, policy):
    """(loss and gradients, peak, how many nodes compute again) of a step within a memory policy of torchtitan, or None."""
    def step(words, labels):
        loss = functional.cross_entropy(model(words).flatten(0, 1), labels.flatten())
        return [loss, *torch.autograd.grad(loss, list(model.parameters()))]  # the tracer's own
    graph = minimal_fx_tracer(step, module=model)(*batch).gm
    if policy is not None:
        kinds = types.SimpleNamespace
        config = kinds(compile=kinds(memory_policy=policy),
                       parallelism=kinds(fsdp_reshard_after_forward="never", pipeline_parallel_degree=1))
        graph = selective_activation_remat_pass(tag_with_memory_policy_pass(graph, config=config))
    run = Run(graph)
    with torch.no_grad():
        found = run.run(*model.parameters(), *batch)
    return found, run.storages.peak, sum("recomputed" in node.name for node in graph.graph.nodes)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    batch = torch.randint(0, N_WORDS, (4, 128)), torch.randint(0, N_WORDS, (4, 128))
    model = Net()
    compiled = ebb.torch.compile(model, "60%", backend="aot_eager")
    compiled(batch[0]).sum().backward()
    told = compiled.summary()[0]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(told["policy"], file)
        file.flush()
        os.environ["EBB_POLICY"] = file.name
        runpy.run_path(os.path.join(ROOT, "examples", "torchtitan_policy.py"))
        annotate_module_fqns(model)
        plain, full, ours = (trained(model, batch, policy) for policy in (None, "full", "ebb"))
    verdict("torchtitan: gradients have the same bits", all(torch.equal(a, b) for a, b in zip(plain[0], ours[0])))
    verdict("torchtitan: the step keeps the budget", ours[1] <= told["budget_bytes"] < plain[1], ours[1:], plain[1:], told)
    verdict("torchtitan: it computes less again than if it saved nothing", 0 < ours[2] < full[2], ours[2], full[2])


main()
sys.exit(torch_verdict.status)
