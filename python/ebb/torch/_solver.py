# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's own partitioner of torch.compile can be given: the times of operators, and what to compute again.

It saves what a minimum cut of the joint graph says, and asks a solver which of the operators that it would never repeat
(matrix products and the like) may be repeated all the same. Its own solvers weigh the bytes of each such operator against
its time, so that the saved bytes keep a share. How high the peak is they do not know.

Here libebb plans the joint graph within budgets from the least on. The operators that a plan repeats are an answer, and so are
those that PyTorch's solver repeats at some shares. PyTorch's own functions cut the graph with each answer. Of the cuts whose
peak keeps the budget the one with the least time is taken. The cuts do not depend on the budget, so less memory never takes
less time.
"""
import warnings

from torch._functorch import config, partitioners
from torch._functorch._aot_autograd.descriptors import GradAOTOutput
from torch._inductor.custom_graph_pass import CustomKnapsackSolver, CustomRuntimeEstimator, get_hash_for_files
from torch.utils._pytree import tree_leaves

from .. import planning
from . import _arguments, _budget, _compile

_N = 12  # plans that are cut, and answers of PyTorch's solver


class RuntimeEstimator(CustomRuntimeEstimator):
    """The time of an operator by the rates of a machine file, or of a desktop in round figures:

        torch._functorch.config.activation_memory_budget_runtime_estimator = ebb.torch.RuntimeEstimator()

    PyTorch's default counts floating-point operations, so that reading and writing memory takes no time."""

    def __init__(self, machine=None):
        self.machine, self._key = planning.Machine(machine), _compile.content_of(machine)

    def __call__(self, node):
        return float(self.machine.step_ns(*_compile.work(node)))

    def uuid(self):
        return get_hash_for_files((__file__, _compile.__file__)) + self._key

    def __deepcopy__(self, memo):
        return self


class KnapsackSolver(CustomKnapsackSolver):
    """What PyTorch's own partitioner computes again, so that its graphs keep a budget in bytes:

        torch._functorch.config.activation_memory_budget = 0.01     # so that a solver is asked
        torch._functorch.config.activation_memory_budget_solver = ebb.torch.KnapsackSolver("6GiB")

    summary() tells what was chosen, graph by graph. DoesNotFit is raised by the first call of what was compiled, if no
    cut keeps the budget. A graph that cannot be planned is left to PyTorch's solver "dp", with a warning."""

    def __init__(self, budget, machine=None, effort=0):
        self._bytes, share = _arguments.bytes_of(budget)
        _arguments.check_effort(effort)
        if share is not None:
            raise ValueError(f"ebb: the budget of a KnapsackSolver is in bytes, or \"6GiB\", not {budget!r}")
        self._time, self._effort, self._graphs = RuntimeEstimator(machine), effort, []

    def __deepcopy__(self, memo):
        return self

    def uuid(self):
        return self._time.uuid() + repr((self._bytes, self._effort)).encode()

    def summary(self):
        return list(self._graphs)

    def __call__(self, memory, graph, max_memory, info, candidates):
        module, n_outputs = graph.owning_module, _n_outputs(graph)
        why = "its outputs are not described" if n_outputs is None else _compile.unreadable(module)
        if why is not None:
            warnings.warn(f"ebb: a graph is left to PyTorch's own solver: {why}", stacklevel=2)
            return partitioners.dp_knapsack(memory, [self._time(node) for node in candidates], max_memory)[1:]
        joint = _compile.Joint(module, info, n_outputs)
        cuts = self.cuts(joint, module, info, n_outputs, candidates, memory)
        kept = [cut for cut in cuts if cut.peak_bytes <= self._bytes]
        if not kept:
            raise self._refusal(len(cuts), min(cut.peak_bytes for cut in cuts))
        times = {node.name: self._time(node) for node in graph.nodes if node.op == "call_function" and joint.of[node] is node}
        best = min(kept, key=lambda cut: (cut.time(times), cut.peak_bytes))
        self._graphs.append({"budget_bytes": self._bytes, "peak_planned_bytes": best.peak_bytes,
                             "recomputed_s": (best.time(times) - sum(times.values())) / 1e9})
        again = [i for i, node in enumerate(candidates) if node.name in best.again]
        return sorted(set(range(len(candidates))).difference(again)), again

    def cuts(self, joint, module, info, n_outputs, candidates, memory):
        """All that are compared."""
        found = dict.fromkeys([*self._planned(joint, candidates), *self._packed(candidates, memory)])
        return [_Cut(module, info, n_outputs, again) for again in found]

    def _planned(self, joint, candidates):
        """Those of the candidates that each plan repeats, from none to those of the least budget."""
        program = joint.program()

        def plan(n_bytes):
            return program.plan(n_bytes, self._time.machine, effort=self._effort)

        plans = [plan(planning.NO_LIMIT)]
        try:
            plans.append(plan(1))
        except planning.NoFit as error:
            least, most = error.least_budget_bytes, plans[0].peak_bytes
            plans += [plan(least + (most - least) * i // _N) for i in reversed(range(_N))]
        for one in plans:
            nodes = joint.repeated(one.actions)
            yield frozenset(node for node in candidates if joint.of[node] in nodes)

    def _packed(self, candidates, memory):
        """Those that PyTorch's solver repeats to keep shares of the saved bytes, but for random operators."""
        times, most = [self._time(node) for node in candidates], sum(memory)
        for i in range(1, _N):
            _, _, again = partitioners.dp_knapsack(memory, times, most * i / _N)
            yield frozenset(candidates[k] for k in again if not _compile.is_rng_op(candidates[k]))

    def _refusal(self, n, least_bytes):
        return _compile.DoesNotFit("\n".join((
            f"ebb: none of {n} cuts keeps this graph within {self._bytes} bytes",
            f"the least that one keeps: ebb.torch.KnapsackSolver({least_bytes})",
            "it may be smaller with ebb.torch.compile, which also decides in which order the graphs compute")), least_bytes)


class _Cut:
    """What PyTorch's partitioner makes of a joint graph in which it may repeat `again`, of the candidates."""

    def __init__(self, module, info, n_outputs, again):
        self.again = {node.name for node in again}  # of any copy of the graph
        options = partitioners.MinCutOptions(False, False, False, False, config.ban_recompute_reductions)
        saved, _ = partitioners.solve_min_cut(module.graph, info, options, again)
        forward, backward = partitioners._extract_fwd_bwd_modules(
            module, saved, saved_sym_nodes=[], num_fwd_outputs=n_outputs,
            static_lifetime_input_nodes=info.static_lifetime_input_nodes)
        backward = partitioners.reordering_to_mimic_autograd_engine(backward)
        parts = [partitioners.raise_getitems(part) for part in (forward, backward)]
        self.peak_bytes = _compile.peak_bytes(*parts, n_outputs)
        self._names = [node.name for part in parts for node in part.graph.nodes if node.op == "call_function"]

    def time(self, times):
        return sum(times.get(name, 0.0) for name in self._names)


def _n_outputs(graph):
    """How many outputs of a joint graph are of its forward part; None: it does not say."""
    kinds = tree_leaves(graph.output_node().meta.get("desc", ()))
    return next((i for i, kind in enumerate(kinds) if isinstance(kind, GradAOTOutput)), None)
