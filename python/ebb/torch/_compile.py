# SPDX-License-Identifier: Apache-2.0
"""`compile`: torch.compile whose forward and backward graphs stay within a budget of memory.

PyTorch hands the joint graph of forward and backward to a partitioner. This one tells libebb the graph as a program: a
tensor is a storage, a step is a node that makes one, and the step "tangents" parts forward from backward. The plan's
actions are then written down as a joint graph again, in which a node that is computed again is a node of its own.
PyTorch's own code cuts that graph in two: what nodes of the backward part use of the forward part is saved.

The peak that is promised is that of the two graphs that came out, by the lives of their storages (`peak_bytes`): each
value lives from its node to its last use, and parameters, inputs, outputs and gradients to the end.
"""
import collections
import operator
import re
import warnings

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.exc import ShortenTraceback
from torch._functorch import partitioners
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput
from torch._inductor.custom_graph_pass import CustomPartitionerFn, get_hash_for_files
from torch.fx.experimental.symbolic_shapes import optimization_hint
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from .. import planning, trace
from . import _arguments, _budget, _fit

_TANGENTS = None  # the step that parts forward from backward
_UNKNOWN_SIZE = 4096  # what PyTorch takes for a size that only the data tells
_TRIES = 8  # of budgets for the plan, until the peak of the graphs is within the budget
_BATCH_NORM = torch.ops.aten._native_batch_norm_legit_functional.default
_BATCH_NORM_AGAIN = torch.ops.aten._native_batch_norm_legit.no_stats  # the same without the running statistics


def _is_rng_op(node):
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


is_rng_op = getattr(partitioners, "is_rng_op", _is_rng_op)  # PyTorch 2.13 has none


class DoesNotFit(_budget.DoesNotFit, ShortenTraceback):
    """As ebb.torch.DoesNotFit; torch.compile lets it through as it is."""

    __module__ = _budget.DoesNotFit.__module__

    def __init__(self, message, least_bytes):
        ShortenTraceback.__init__(self, message, first_useful_frame=None)
        self.least_bytes = least_bytes


def _tensors(node):
    return [value for value in tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor)]


def content_of(path):
    """Of a machine file, for the keys of PyTorch's cache of compiled code."""
    if path is None:
        return b""
    with open(path, "rb") as file:
        return file.read()


def _storage(tensor):
    return tensor.untyped_storage()._cdata


def _storages(node):
    """{number of a storage: its bytes}, of what a node gives."""
    return {_storage(tensor): tensor.untyped_storage().nbytes() for tensor in _tensors(node)}


def unreadable(joint):
    """Why a joint graph is no program that can be planned; None: it is one."""
    for node in joint.graph.nodes:
        if any(isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)
               for value in tree_leaves(node.meta.get("val"))) or any(
                   isinstance(n, torch.SymInt) for tensor in _tensors(node) for n in tensor.shape):
            return "its shapes are dynamic"
        if node.op == "placeholder" and not (partitioners._is_primal(node) or partitioners._is_tangent(node)):
            return f"it has the input {node.name}"
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace == "_c10d_functional":
            return f"it has the operator {node.target}"
        if node.target._schema.is_mutable and node.target is not torch.ops.aten.copy_.default:
            return f"{node.target} writes in place"
    return None


def refusal(joint, n_outputs):
    """Why a joint graph is left to PyTorch's own partitioner; None: it is not."""
    if partitioners.has_recomputable_ops(joint):
        return "it has regions of torch.utils.checkpoint"
    why = unreadable(joint)
    if why is not None:
        return why
    _, _, kinds, _ = partitioners._extract_fwd_bwd_outputs(joint, num_fwd_outputs=n_outputs)
    if any(isinstance(kind, InputMutationAOTOutput) for kind in kinds):
        return "it gives back an input that it changes"
    return None


class Joint:
    """A joint graph as a program. steps: of each step of the program, its node; a tuple with the node for the second step
    of a batch-norm, which makes its running statistics. of: of each node, the one that makes its storage."""

    def __init__(self, module, info, n_outputs):
        self.graph, self._info = module.graph, info
        outputs, gradients, _, _ = partitioners._extract_fwd_bwd_outputs(module, num_fwd_outputs=n_outputs)
        self.outputs = [node for node in outputs if isinstance(node, torch.fx.Node)]
        self.gradients = [node for node in gradients if isinstance(node, torch.fx.Node)]
        self.of, self._views, self._makers, self.steps = {}, set(), {}, []
        for node in self.graph.nodes:
            self._classify(node)
        nodes = [node for node in self.graph.nodes if node.op == "call_function" and self.of[node] is node]
        first = next((i for i, node in enumerate(nodes) if node in info.tangents_closure), len(nodes))
        self._forward = [node for i, node in enumerate(nodes) if i < first or node in info.required_fw_nodes]
        early = set(self._forward)
        self._backward = [node for node in nodes if node not in early]
        self._changed = set().union(*(_storages(node.args[0]) for node in nodes if _is_copy(node)))
        self._ends = {storage for node in self.outputs + self.gradients for storage in _storages(node)}

    def _classify(self, node):
        """What a node is: one that makes storages or writes one, an element of its tuple, or a view."""
        fresh = [storage for storage in _storages(node) if storage not in self._makers]
        if node.target is operator.getitem and self.of[node.args[0]] is node.args[0]:
            self.of[node] = node.args[0]
        elif node.op != "call_function" or fresh or _is_copy(node):
            self.of[node] = node
            self._makers.update(dict.fromkeys(fresh, node))
        else:
            self.of[node] = self._makers[next(iter(_storages(node)))]
            self._views.add(node)

    def _reads_changed(self, node):
        """Whether a node reads an input that the forward part changes at its end."""
        return any(self._changed & set(_storages(value)) for value in node.all_input_nodes)

    def is_late_reader(self):
        return any(self._reads_changed(node) for node in self._backward)

    def _is_exact(self, node):
        if is_rng_op(node) or _is_copy(node) or node in self._info.tangents_closure:
            return False
        if self._ends & set(_storages(node)).difference(_statistics(node)):
            return False
        return bool(node.args[5]) if node.target is _BATCH_NORM else not self._reads_changed(node)

    def program(self):
        """A program that libebb plans. Parameters and inputs stay; so do outputs, tangents and gradients once they are
        there, as the program outside may hold them."""
        program, numbers, self.steps = planning.Program("joint graph"), {}, []
        random = program.tensor("random state", 1, persistent=True)  # random operators keep their order

        def tensors(node, which, role=trace.ACTIVATION, **how):
            for storage, n_bytes in which.items():
                if storage not in numbers:
                    kept = how or {"kept": storage in self._ends}
                    numbers[storage] = program.tensor(f"{node.name}.{len(numbers)}", max(1, n_bytes), role, **kept)
            return [numbers[storage] for storage in which]

        def step(node, phase):
            fresh = {s: n for s, n in _storages(node).items() if self._makers[s] is node}
            taken = {s for user in node.users for s in _storages(user)} if _is_tuple(node) else set(fresh)
            late = {s: fresh[s] for s in _statistics(node) if s in taken}
            reads = {numbers[s] for value in node.all_input_nodes for s in _storages(value) if s in numbers}
            updates = {numbers[s] for s in _storages(node.args[0])} if _is_copy(node) else set()
            writes = tensors(node, {s: n for s, n in fresh.items() if s in taken and s not in late})
            scratch = sum(n for s, n in fresh.items() if s not in taken)
            flops, traffic = work(node)
            program.step(node.name, reads - updates, writes, updates | ({random} if is_rng_op(node) else set()),
                         phase, planning.EXACT if self._is_exact(node) else planning.NEVER, scratch, flops=flops,
                         traffic_bytes=traffic)
            self.steps.append(node)
            if late:
                program.step(node.name + ".statistics", writes[-1:], tensors(node, late), phase=phase)
                self.steps.append((node,))

        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        held = [random]
        for node in inputs:
            if partitioners._is_primal(node):
                held += tensors(node, _storages(node), trace.PARAMETER, persistent=True)
        for node in self._forward:
            step(node, trace.FORWARD)
        held += [numbers[s] for node in self.outputs for s in _storages(node)]
        fresh = {s: n for node in inputs if partitioners._is_tangent(node) for s, n in _storages(node).items()}
        program.step("tangents", set(held), tensors(inputs[-1], fresh, trace.GRADIENT, kept=True), phase=trace.BACKWARD)
        self.steps.append(_TANGENTS)
        for node in self._backward:
            step(node, trace.BACKWARD)
        return program

    def repeats(self, forward, backward):
        """Whether two graphs that PyTorch cut compute something in both."""
        steps = {node.name for node in self._forward}
        return bool(steps.intersection(*({node.name for node in part.graph.nodes if node.op == "call_function"}
                                         for part in (forward, backward))))

    def repeated(self, actions):
        """The nodes that are computed again."""
        steps = (self.steps[target] for kind, target, *_ in actions if kind == planning.AGAIN)
        return {node for node in steps if not isinstance(node, tuple)}

    def policy(self, actions):
        """{name of an operator of the forward part: "MUST_SAVE" or "MUST_RECOMPUTE"}, as `actions` have it, of those whose results
        the backward part uses. Names are those of torch.utils.checkpoint's policies: module, operator, and which of its calls."""
        again = self.repeated(actions)
        used = {self.of[value] for node in (*again, *self._backward) for value in node.all_input_nodes}
        found, calls, forward = {}, collections.Counter(), set(self._forward)
        for node in self.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                name = _name(node)
                if node in forward and (node in again or node in used):
                    found[f"{name}_{calls[name]}"] = "MUST_RECOMPUTE" if node in again else "MUST_SAVE"
                calls[name] += 1
        return found

    def written(self, actions):
        """(a plan's actions as a joint graph, what its backward part takes from its forward part)."""
        graph, env, early, ends = torch.fx.Graph(), {}, set(), {}
        for node in self.graph.nodes:
            if node.op == "placeholder":
                env[node] = graph.node_copy(node)

        def fetch(node):
            if node not in env:
                assert self.of[node] is not node or node.op == "get_attr", f"ebb: {node} is not there"
                env[node] = graph.node_copy(node, fetch)
            return env[node]

        def compute(node, is_again):
            elements = [user for user in node.users if self.of[user] is node and user not in self._views]
            if is_again and _statistics(node):
                elements = [user for user in elements if user.args[1] < 3]
            for other in [other for other in env if other in self._views and self.of[other] is node]:
                del env[other]
            new = env[node] = graph.node_copy(node, fetch)
            if is_again and _statistics(node):
                new.target, new.args = _BATCH_NORM_AGAIN, (*new.args[:3], *new.args[5:])
            for user in elements:
                env[user] = graph.node_copy(user, fetch)

        for kind, target, *_ in actions:
            node = self.steps[target] if kind in (planning.RUN, planning.AGAIN) else ()
            if node is _TANGENTS:
                ends = {node: fetch(node) for node in self.outputs}
                early = set(graph.nodes)
                env = {node: new for node, new in env.items() if node not in self._views}
            elif not isinstance(node, tuple):
                compute(node, kind == planning.AGAIN)
        output = self.graph.output_node()
        new = graph.output(torch.fx.map_arg(output.args[0], lambda node: ends.get(node) or fetch(node)))
        new.meta.update(output.meta)
        made = {ends.get(node) or env[node] for node in self.gradients}
        return graph, [node for node in graph.nodes if node in early and not partitioners._is_tangent(node) and
                       (node in made or any(user not in early and user.op != "output" for user in node.users))]


def _name(node):
    """Of the module that calls an operator, and the operator."""
    modules = list(node.meta.get("nn_module_stack", {}).values())
    inside = re.sub(r"^L\[.*?\]", "", modules[-1][0]) if modules else ""  # of the model, whatever its `forward` calls it
    path = re.sub(r"(?:\._modules)?\['?(.+?)'?\]", r".\1", inside).lstrip(".")
    operator_name = str(node.target).split(".", 1)[1]
    return f"{path}_{operator_name}" if path else operator_name


def _is_copy(node):
    return node.target is torch.ops.aten.copy_.default


def _is_tuple(node):
    return isinstance(node.meta.get("val"), (tuple, list))


def _statistics(node):
    """The storages of a batch-norm's new running statistics."""
    return [_storage(value) for value in node.meta["val"][3:]] if node.target is _BATCH_NORM else []


def work(node):
    """(floating-point operations, bytes read and written). It may be asked where no dispatch mode works."""
    traffic = sum(tensor.numel() * tensor.element_size() for value in (*node.all_input_nodes, node) for tensor in
                  _tensors(value))
    count = flop_registry.get(getattr(node.target, "overloadpacket", None))
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda value: value.meta.get("val"))
    flops = count(*args, **kwargs, out_val=node.meta.get("val")) if count is not None else 0
    return tuple(float(optimization_hint(value, fallback=_UNKNOWN_SIZE)) for value in (flops, traffic))


# ---- the peak of what comes out

def _lives(graph):
    """[bytes, first, last] of each storage that a graph's nodes make, and {node: {storage: its entry}}. A value is freed
    after its last use. An output lives to the end."""
    cells, holds = [], {}
    for i, node in enumerate(graph.nodes):
        known = {}
        for value in node.all_input_nodes:
            known.update(holds[value])
        for cell in known.values():
            cell[2] = i
        holds[node] = {}
        for storage, n_bytes in _storages(node).items() if node.op != "output" else ():
            if storage not in known:
                cells.append([n_bytes, i, i])
            holds[node][storage] = known.get(storage) or cells[-1]
    return cells, holds


def _most(cells, n, base):
    change = [0] * (n + 2)
    for n_bytes, first, last in cells:
        change[first] += n_bytes
        change[last + 1] -= n_bytes
    most = live = base
    for one in change:
        live += one
        most = max(most, live)
    return most


def peak_bytes(forward, backward, n_outputs):
    """The most bytes of storages alive in the two graphs, the first n_outputs of forward's outputs being the caller's."""
    def named(nodes):
        return {s: n for node in nodes if isinstance(node, torch.fx.Node) for s, n in _storages(node).items()}

    inputs = named(forward.graph.find_nodes(op="placeholder"))
    outputs = forward.graph.output_node().args[0]
    kept = {**inputs, **named(outputs[:n_outputs])}
    tangents = [node for node in backward.graph.find_nodes(op="placeholder") if partitioners._is_tangent(node)]
    peaks = []
    for graph, held in ((forward.graph, inputs), (backward.graph, {**kept, **named(tangents)})):
        cells, holds = _lives(graph)
        seen = {}
        for node in graph.find_nodes(op="placeholder"):  # views of one storage are one
            for storage, cell in holds[node].items():
                other = seen.setdefault(storage, cell)
                other[1], other[2] = 0, max(other[2], cell[2])
                if other is not cell or storage in held:
                    cell[0] = 0 if other is not cell else cell[0]
        for storage, cell in seen.items():
            if storage in held:
                cell[0] = 0
        peaks.append(_most(cells, len(graph.nodes), sum(held.values())))
    return max(peaks)


# ---- the partitioner

def _cut(module, joint, info, n_outputs, plan):
    """The forward and the backward graph of a plan."""
    original = module.graph
    try:
        module.graph, saved = joint.written(plan.actions)
        return partitioners._extract_fwd_bwd_modules(module, saved, saved_sym_nodes=[], num_fwd_outputs=n_outputs,
                                                     static_lifetime_input_nodes=info.static_lifetime_input_nodes)
    finally:
        module.graph = original


class Partitioner(CustomPartitionerFn):
    """What torch.compile calls with a joint graph. graphs: what was planned, a dict for each."""

    def __init__(self, budget, machine, effort, fuses):
        self._bytes, self._share = _arguments.bytes_of(budget)  # above all of PyTorch's, less is computed again than by PyTorch
        _arguments.check_effort(effort)
        self._machine, self._effort, self._fuses, self.graphs = machine, effort, fuses, []
        self._key = (str(budget), content_of(machine), effort)

    def __deepcopy__(self, memo):
        return self  # inductor copies its options

    def uuid(self):
        return get_hash_for_files((__file__, planning.__file__)) + repr(self._key).encode()

    def __call__(self, module, inputs, *, num_fwd_outputs, static_lifetime_input_indices=None, compiler="inductor", **how):
        why = refusal(module, num_fwd_outputs)
        plain = partitioners.min_cut_rematerialization_partition(
            module, inputs, compiler, num_fwd_outputs=num_fwd_outputs,
            static_lifetime_input_indices=static_lifetime_input_indices, **how)
        info = partitioners.classify_nodes(module, static_lifetime_input_indices or [], num_fwd_outputs)
        joint = Joint(module, info, num_fwd_outputs) if why is None else None
        if why is None and joint.is_late_reader():
            why = "its backward part reads an input that the forward part changes"
        if why is not None:
            warnings.warn(f"ebb: a graph is left to PyTorch's own partitioner: {why}", stacklevel=2)
            return plain
        plain_bytes = peak_bytes(*plain, num_fwd_outputs)
        budget = self._bytes or int(self._share * plain_bytes)
        return self.planned(module, joint, info, num_fwd_outputs, budget, plain)

    def planned(self, module, joint, info, n_outputs, budget, plain):
        """The two graphs: PyTorch's own, `plain`, where these are within the budget and cost nothing, else ebb's."""
        plain_bytes = peak_bytes(*plain, n_outputs)
        is_free = self._fuses or not joint.repeats(*plain)
        if plain_bytes <= budget and is_free:
            self._tell(budget, plain_bytes, plain_bytes, None, {})
            return plain
        program, machine = joint.program(), planning.Machine(self._machine)

        def found_for(limit, effort):
            plan = _plan(program, machine, limit, effort)
            parts = _cut(module, joint, info, n_outputs, plan)
            return _Found(limit, plan, parts, peak_bytes(*parts, n_outputs))
        found = self._within(budget, budget, lambda limit: found_for(limit, 0))
        if found.peak_bytes > budget:
            raise self._refusal(budget, plain_bytes, min(found.peak_bytes, plain_bytes) if is_free else found.peak_bytes)
        if self._effort > 0:
            longer = self._within(budget, found.limit, lambda limit: found_for(limit, self._effort))
            if longer.peak_bytes <= budget and longer.plan.iteration_ns < found.plan.iteration_ns:
                found = longer
        self._tell(budget, plain_bytes, found.peak_bytes, found.plan, joint.policy(found.plan.actions))
        return found.parts

    @staticmethod
    def _within(budget, limit, found_for):
        """What is found for the largest limit, from this one down, whose graphs are within the budget; or for the least that there
        is."""
        for left in reversed(range(_TRIES)):
            found = found_for(limit if left else 1)
            if found.peak_bytes <= budget or found.plan.peak_bytes > limit:
                break
            limit = max(1, limit - (found.peak_bytes - budget))
        return found

    @staticmethod
    def _refusal(budget, plain_bytes, least_bytes):
        """What to type next."""
        return DoesNotFit("\n".join((
            f"ebb: no plan keeps this graph within {budget} bytes",
            f"the graphs that PyTorch makes without a budget need {plain_bytes} bytes",
            f"the least that a plan keeps: ebb.torch.compile(model, {least_bytes})",
            "it may be smaller with ebb.torch.Budget in an eager loop, which can also move tensors out")), least_bytes)

    def _tell(self, budget, plain_bytes, peak, plan, policy):
        self.graphs.append({
            "budget_bytes": budget, "plain_bytes": plain_bytes, "peak_planned_bytes": peak,
            "recomputed_ops": plan.n_recomputed_steps if plan else 0, "recomputed_s": plan.again_ns / 1e9 if plan else 0.0,
            "policy": policy})


class _Found:
    """A plan that was asked for within a limit, its two graphs, and their peak."""

    def __init__(self, limit, plan, parts, peak):
        self.limit, self.plan, self.parts, self.peak_bytes = limit, plan, parts, peak


def _plan(program, machine, limit, effort):
    """A plan of at most so many bytes, or of the least that there is."""
    n_threads = _fit.n_search_threads()
    try:
        return program.plan(limit, machine, effort=effort, n_threads=n_threads)
    except planning.NoFit as error:
        if not error.least_budget_bytes:
            raise DoesNotFit(str(error), 0) from None
        return program.plan(error.least_budget_bytes, machine, effort=effort, n_threads=n_threads)


def _inductor_options(how, dynamic):
    """Those that are given or that a mode stands for: torch.compile takes one of the two."""
    mode, options = how.pop("mode", None), how.get("options") or {}
    if mode is not None and options:
        raise ValueError("ebb: torch.compile takes a mode or options, not both")
    return torch._inductor.list_mode_options(mode, dynamic) if mode is not None else options


def compile(model, budget, backend="inductor", machine=None, effort=1, dynamic=False, **how):
    """torch.compile(model, **how) whose forward and backward graphs stay within a budget of memory: bytes, "6GiB", or per
    cent of what torch.compile's own graphs need. summary() of what comes back tells what was planned, graph by graph.

    backend: "inductor" or "aot_eager". machine: a machine file for the times of operators. effort: of the search for a
    plan (docs/best.md). DoesNotFit is raised by the first call if no plan keeps the budget."""
    if not callable(model):
        raise TypeError(f"ebb: model is a torch.nn.Module or a function, not {type(model).__name__}")
    if backend == "inductor":
        partitioner = Partitioner(budget, machine, effort, True)
        how["options"] = {**_inductor_options(how, dynamic), "custom_partitioner_fn": partitioner}
    elif backend == "aot_eager":
        partitioner = Partitioner(budget, machine, effort, False)
        backend = aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=partitioner,
                               keep_inference_input_mutations=True)
    else:
        raise ValueError(f"ebb: the backends are \"inductor\" and \"aot_eager\", not {backend!r}")
    compiled = torch.compile(model, backend=backend, dynamic=dynamic, **how)
    object.__setattr__(compiled, "summary", lambda: list(partitioner.graphs))
    return compiled
