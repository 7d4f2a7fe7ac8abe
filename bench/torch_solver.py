#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own partitioner with its own knapsack solvers and with ebb.torch.KnapsackSolver: peaks and recomputed work.

    EBB_LIBRARY=build/release/libebb.so PYTHON bench/torch_solver.py [-o FILE.csv] [--nets gpt2,unet] [--batch 8]

PYTHON has torch 2.15, transformers, and scipy for the solver "ilp". The joint graph of a training step of a network of
torch_models.py is captured once, as inductor has it: random operators have seeds there, so that they can be repeated.
Graphs of less than 100 nodes are left out. At nine values of `activation_memory_budget`
the partitioner makes graphs with each of PyTorch's solvers, with its count of operations and with
ebb.torch.RuntimeEstimator; ebb's solver is then asked for graphs within each of these peaks. Peaks and work are those of
bench/torch_compile.py.
"""
import argparse
import contextlib
import csv
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "python")]

import torch
from torch._dynamo.exc import ShortenTraceback
from torch._functorch import config, partitioners
from torch._inductor.custom_graph_pass import CustomPartitionerFn

import torch_compile
import torch_models
from ebb.torch import DoesNotFit, KnapsackSolver, RuntimeEstimator, _compile
from provenance import commit

COLUMNS = ("commit", "torch", "net", "nodes", "solver", "times", "asked", "peak_bytes", "plain_bytes", "recomputed_us",
           "recomputed_flops", "repeats_random", "seconds")
SHARES = [i / 10 for i in range(1, 10)]
ASKED = 0.01  # PyTorch's budget, with which the solver is asked


class Remembering(KnapsackSolver):
    """Its cuts do not depend on the budget: they are made once for a graph."""

    def __init__(self, n_bytes, cuts):
        super().__init__(n_bytes)
        self._known = cuts

    def cuts(self, *graph):
        if not self._known:
            self._known += super().cuts(*graph)
        return self._known


class Done(ShortenTraceback):
    """What torch.compile lets through: nothing has to be compiled."""


class Race(CustomPartitionerFn):
    """The partitioner that torch.compile is given: it tries each solver on the joint graph that it gets."""

    def uuid(self):
        return None

    def __deepcopy__(self, memo):
        return self

    def __init__(self, net, writer, commit):
        self._net, self._writer, self._commit, self._peaks = net, writer, commit, {}

    def __call__(self, module, inputs, *, num_fwd_outputs, static_lifetime_input_indices=None, **how):
        static = static_lifetime_input_indices or []

        def cut(budget, solver, times):
            begin = time.perf_counter()
            with config.patch(activation_memory_budget=budget, activation_memory_budget_solver=solver,
                              activation_memory_budget_runtime_estimator=times):
                parts = partitioners.min_cut_rematerialization_partition(
                    module, inputs, num_fwd_outputs=num_fwd_outputs, static_lifetime_input_indices=static)
            return parts, time.perf_counter() - begin

        first, _ = cut(1.0, "dp", "flops")
        if len(module.graph.nodes) < 100:
            return first
        self._n_outputs, self._once, self._n = num_fwd_outputs, torch_compile.work([module.graph]), len(module.graph.nodes)
        self._plain_bytes = self._peak(first)
        for solver in "dp", "greedy", "ilp":
            for named, times in ("flops", "flops"), ("ebb", RuntimeEstimator()):
                for share in SHARES:
                    self._tell(solver, named, share, *cut(share, solver, times))
        cuts = []
        for peak in sorted(self._peaks):
            try:
                self._tell("ebb", "ebb", peak, *cut(ASKED, Remembering(peak, cuts), "testing"))
            except DoesNotFit as error:
                print(f"{self._net}: {peak / self._plain_bytes:.3f} of the plain peak is refused; the least is "
                      f"{error.least_bytes / self._plain_bytes:.3f}", flush=True)
        raise Done("", first_useful_frame=None)

    def _peak(self, parts):
        return _compile.peak_bytes(*parts, self._n_outputs)

    def _tell(self, solver, times, asked, parts, seconds):
        forward, backward = ({node.name: node for node in part.graph.nodes} for part in parts)
        random = sum(partitioners.is_rng_op(node) for name, node in backward.items() if name in forward)
        peak, (us, flops) = self._peak(parts), torch_compile.again(parts, self._once)
        if solver != "ebb":
            self._peaks[peak] = None
        self._writer.writerow((self._commit, torch.__version__, self._net, self._n, solver, times, asked, peak,
                               self._plain_bytes, f"{us:.6g}", f"{flops:.6g}", random, f"{seconds:.3g}"))
        asked = f"{asked:.1f}" if solver != "ebb" else f"{asked / self._plain_bytes:.3f}"
        print(f"{self._net}: {solver} with times of {times} at {asked}: {peak / self._plain_bytes:.3f} of the plain peak, "
              f"{us:.0f} us, {random} random operators repeated, {seconds:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", default="/dev/null")
    parser.add_argument("--nets", default="gpt2,unet")
    parser.add_argument("--batch", type=int, default=8)
    args, tree = parser.parse_args(), commit()
    with open(args.output, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for net in args.nets.split(","):
            torch.manual_seed(0)
            model, batch_of, loss_of, _, _ = torch_models.NETS[net](args.batch)
            compiled = torch.compile(lambda batch, model=model, loss_of=loss_of: loss_of(model, batch), dynamic=False,
                                     options={"custom_partitioner_fn": Race(net, writer, tree)})
            with contextlib.suppress(Done):
                compiled(batch_of(0))
            file.flush()


if __name__ == "__main__":
    main()
