#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The policy that ebb.torch.compile tells, given to torch.utils.checkpoint in an eager loop: its names are those of the
operators that run there, what it saves is not computed again, and gradients have the same bits."""
import collections
import contextlib
import json
import os
import runpy
import sys
import tempfile
import types

import torch
from torch import nn
from torch._functorch import partitioners
from torch.fx.traceback import annotate_fn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))

import ebb.torch
import torch_verdict
from ebb.torch import _compile
from torch_verdict import verdict


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(32), nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(self.act(self.up(h))) * torch.sigmoid(h) + torch.sigmoid(x)


class Net(nn.Module):
    def __init__(this):  # the names do not depend on what `self` is called
        super().__init__()
        this.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(this, x):
        for block in this.blocks:
            x = block(x)
        return torch.tanh(x)


class Named(TorchDispatchMode):
    """A policy by name. seen: names in the forward pass; again: how often operators were computed once more, by name without
    the number of the call. As a mode below the one that has what was saved, it sees only these."""

    def __init__(self, policy):
        super().__init__()
        self.policy, self.modules = policy, []  # the modules that are being called
        self.calls, self.seen, self.again = collections.Counter(), set(), collections.Counter()

    def follow(self, model):
        for path, module in model.named_modules():
            module.register_forward_pre_hook(lambda *_, path=path: self.modules.append(path))
            module.register_forward_hook(lambda *_: self.modules.__delitem__(-1), always_call=True)  # a repetition ends early

    def contexts(self):
        forward, again = create_selective_checkpoint_contexts(self.decide)

        @contextlib.contextmanager
        def below():
            with self, again:
                yield
        return forward, below()

    def name(self, operator):
        path, name = self.modules[-1], str(operator).partition(".")[2]
        return f"{path}_{name}" if path else name

    def decide(self, context, operator, *args, **kwargs):
        name = self.name(operator)
        key = f"{name}_{self.calls[name]}"
        self.calls[name] += 1
        self.seen.add(key)
        return CheckpointPolicy[self.policy.get(key, "PREFER_RECOMPUTE")]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.again[self.name(func)] += 1
        return func(*args, **kwargs or {})


def gradients(around):
    torch.manual_seed(3)
    model, x = Net(), torch.randn(256, 32)
    loss = around(model)(x).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


torch.set_num_threads(1)
plain = gradients(lambda model: model)
compiled = []


def compile(model):
    compiled.append(ebb.torch.compile(model, "60%", backend="aot_eager"))
    return compiled[0]


within = gradients(compile)
told, = compiled[0].summary()
again = {name for name, found in told["policy"].items() if found == "MUST_RECOMPUTE"}
verdict("the policy has what the plan computes again", len(again) == told["recomputed_ops"] > 0, told)
verdict("and what it saves", set(told["policy"].values()) == {"MUST_SAVE", "MUST_RECOMPUTE"}, told)
named = Named(told["policy"])


def checkpointed(model):
    named.follow(model)
    return lambda x: checkpoint(model, x, use_reentrant=False, context_fn=named.contexts)


eager = gradients(checkpointed)
verdict("gradients have the same bits", same(plain, eager) and same(plain, within))
verdict("its names are those of eager operators", set(told["policy"]) <= named.seen, set(told["policy"]) - named.seen)
counts = collections.Counter(name.rpartition("_")[0] for name in again)
verdict("what it computes again is computed again", counts <= named.again, counts - named.again)
kept = {name.rpartition("_")[0] for name in told["policy"]} - {name.rpartition("_")[0] for name in named.seen if
        told["policy"].get(name) != "MUST_SAVE"}
verdict("what it saves is not", len(kept) > 8 and not kept & set(named.again), kept & set(named.again))

# ---- the example for torchtitan, with a stand-in for its registry

registry, policies = types.ModuleType("torchtitan.experiments.graph_trainer.registry"), {}
registry.register_memory_policy = lambda name: lambda policy: policies.setdefault(name, policy)
sys.modules.update({registry.__name__.rsplit(".", n)[0]: types.ModuleType("torchtitan") for n in (1, 2, 3)})
sys.modules[registry.__name__] = registry
runpy.run_path(os.path.join(ROOT, "examples", "torchtitan_policy.py"))
verdict("torchtitan's registry has the policy", list(policies) == ["ebb"], policies)


class Tagged:
    """A partitioner: PyTorch's own, after the policy has seen the graph with the marks that torchtitan makes."""

    def __init__(self, policy):
        self.policy, self.saved, self.again, self.peak = policy, set(), set(), 0

    def __call__(self, module, inputs, *, num_fwd_outputs, **how):
        for node in module.graph.nodes:
            node.meta["autograd_backward"] = node.meta.get("partitioner_tag") == "is_backward"
            node.meta["ac_graph_id"] = 0
        if self.policy is not None:
            self.policy(module, config=None)
        kinds = {node.name: node.meta.get("recompute") for node in module.graph.nodes}
        parts = partitioners.min_cut_rematerialization_partition(module, inputs, num_fwd_outputs=num_fwd_outputs, **how)
        names = [{node.name for node in part.graph.nodes if node.op == "call_function"} for part in parts]
        self.again = {name for name in names[0] & names[1] if kinds[name] == CheckpointPolicy.MUST_RECOMPUTE}
        self.saved = {name for name in names[0] - names[1] if kinds[name] == CheckpointPolicy.MUST_SAVE}
        self.counts = collections.Counter(kinds.values())
        self.peak = _compile.peak_bytes(*parts, num_fwd_outputs)
        return parts


def tagged(policy):
    partition = Tagged(policy)
    torch._dynamo.reset()
    backend = _compile.aot_autograd(fw_compiler=_compile.boxed_nop, bw_compiler=_compile.boxed_nop, partition_fn=partition)

    def compiling(model):
        for path, module in model.named_modules():
            module.forward = annotate_fn({"module_fqn": path})(module.forward)
        return torch.compile(model, backend=backend, dynamic=False)
    return partition, gradients(compiling)


with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    json.dump(told["policy"], file)
    file.flush()
    os.environ["EBB_POLICY"] = file.name
    titan, got = tagged(policies["ebb"])
untouched, _ = tagged(None)
verdict("torchtitan's policy: gradients have the same bits", same(plain, got))
verdict("torchtitan's policy: all that the plan computes again is tagged so, and is", len(titan.again) == len(again) ==
        titan.counts[CheckpointPolicy.MUST_RECOMPUTE] - sum("getitem" in name for name in titan.again), titan.counts, len(again))
verdict("torchtitan's policy: what the plan saves is not computed again", len(titan.saved) > 8 and
        len(titan.saved) == titan.counts[CheckpointPolicy.MUST_SAVE], titan.counts, len(titan.saved))
verdict("torchtitan's policy: it needs less memory", titan.peak < untouched.peak, titan.peak, untouched.peak)

free = ebb.torch.compile(Net(), "200%", backend="aot_eager")
free(torch.randn(256, 32)).sum().backward()
verdict("a budget that is enough has no policy", free.summary()[0]["policy"] == {}, free.summary())
sys.exit(torch_verdict.status)
