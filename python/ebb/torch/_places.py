# SPDX-License-Identifier: Apache-2.0
"""In which module and phase of an iteration an operator runs, and what for is what it makes.

A backward operator's module is that of the forward operator whose node of autograd's graph it runs: nodes are numbered,
and the forward operators of a module note which they made.
"""
import torch

from .. import trace
from ._operators import of_frame

_MAX_NODES = 1 << 20
# Of PyTorch 2; before, frames tell the phase, and the parameters that a backward operator reads its module.
_graph_task = getattr(torch._C, "_current_graph_task_id", None)
_node = getattr(torch._C, "_current_autograd_node", None)
_next_node = getattr(torch._C._autograd, "_get_sequence_nr", None)
_has_nodes = None not in (_graph_task, _node, _next_node)


class Places:
    def __init__(self, owners):
        self._owners = owners
        self._name_of_node = {}
        self.begin_iteration()

    def begin_iteration(self):
        self._is_update = self._saw_module = False
        self._last_name = ""
        self._name_of_node.clear()

    def find(self, caller, reads):
        """(the name of the module, the phase) in which an operator runs."""
        name = ""
        if caller.module is not None:
            name = self._owners.name_of(of_frame(caller.module, "self"), of_frame(caller.root, "self"))
        if _graph_task() != -1 if _has_nodes else caller.in_engine:
            self._is_update = True  # what comes after it outside of a module: clipping, steps
            if not name and _has_nodes and _node() is not None:
                name = self._name_of_node.get(_node()._sequence_nr(), "")
            elif not name:
                names = (block.name.rpartition(".")[0] for block in reads if block.role == trace.PARAMETER)
                name = self._last_name = next(names, self._last_name)
            return name, trace.BACKWARD
        if _has_nodes and len(self._name_of_node) < _MAX_NODES:
            self._name_of_node.setdefault(_next_node() - 1, name)
        if name:
            self._saw_module, self._is_update = True, False
        is_update = not name and (self._is_update or caller.optimizer is not None)
        return name, trace.UPDATE if is_update else trace.FORWARD

    def role(self, operator, caller, phase):
        """Of what an operator makes."""
        if caller.optimizer is not None and operator.name == "aten.zeros_like":
            return trace.OPTIMIZER_STATE
        if caller.module is not None or phase == trace.FORWARD and self._saw_module:
            return trace.ACTIVATION
        return trace.INPUT if phase == trace.FORWARD else trace.TEMP
