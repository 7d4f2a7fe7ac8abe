# SPDX-License-Identifier: Apache-2.0
"""Whose the blocks are: names of modules and parameters, gradients, the state of optimizers."""
import gc
import weakref

import torch

from .. import trace


class Owners:
    def __init__(self, ledger):
        self._ledger = ledger
        self._modules = weakref.WeakKeyDictionary()  # to their names
        self._parameters = {}  # name: a reference
        self._optimizers = weakref.WeakSet()  # whose state is known
        self._prefixes = False  # there is more than one network
        self._nets = []  # their classes

    def scan(self):
        """Tell what is there when the recording begins: all that Python has."""
        things = gc.get_objects()
        modules = [thing for thing in things if issubclass(type(thing), torch.nn.Module) and "_modules" in vars(thing)]
        children = {id(child) for module in modules for child in module.children()}
        roots = [module for module in modules if id(module) not in children]
        self._prefixes = sum(any(True for _ in root.parameters()) for root in roots) > 1
        for root in roots:
            self._name(root)
        self.label_gradients()
        for thing in things:
            if issubclass(type(thing), torch.optim.Optimizer) and "state" in vars(thing):  # else not yet made
                self.label_state(thing)
        for thing in things:
            if issubclass(type(thing), torch.Tensor):
                self._ledger.block(thing, 0)

    def _name(self, root):
        prefix = type(root).__name__ + "." if self._prefixes else ""
        for name, module in root.named_modules():
            if module in self._modules:
                continue
            self._modules[module] = prefix + name if name else type(root).__name__
            if name:
                self._ledger.writer.note(f"class.{prefix}{name}", type(module).__name__)
        if any(True for _ in root.parameters()):
            self._nets.append(type(root).__name__)
            self._ledger.writer.note("net", ", ".join(self._nets))
        for name, parameter in root.named_parameters():
            self._parameters[prefix + name] = weakref.ref(parameter)
            self._ledger.label(parameter, trace.PARAMETER, prefix + name)
        for name, buffer in root.named_buffers():
            self._ledger.label(buffer, trace.BUFFER, prefix + name)
        self._prefixes = self._prefixes or bool(self._parameters)

    def name_of(self, module, root):
        name = self._modules.get(module)
        if name is None:
            self._name(root)
            name = self._modules.setdefault(module, type(module).__name__)
        return name

    def label_gradients(self):
        for name, reference in self._parameters.items():
            parameter = reference()
            if parameter is not None and parameter.grad is not None:
                self._ledger.label(parameter.grad, trace.GRADIENT, name + ".grad")

    def keep_gradient(self, tensor):
        """Autograd detaches what it keeps as a parameter's gradient."""
        block = self._ledger.block(tensor, self._ledger.now())
        if block is not None and block.role == trace.TEMP:
            self._ledger.label(tensor, trace.GRADIENT, block.name)

    def begin_step(self, optimizer):
        self.label_gradients()
        if optimizer not in self._optimizers:
            self.label_state(optimizer)

    def label_state(self, optimizer):
        self._optimizers.add(optimizer)
        self._ledger.writer.note(f"optimizer.{type(optimizer).__name__}", type(optimizer).__module__)
        names = {id(reference()): name for name, reference in self._parameters.items()}
        for parameter, state in optimizer.state.items():
            for key, value in state.items() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor):
                    name = names.get(id(parameter), type(optimizer).__name__)
                    self._ledger.label(value, trace.OPTIMIZER_STATE, f"{name}.{key}")
