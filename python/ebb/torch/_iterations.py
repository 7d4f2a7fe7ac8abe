# SPDX-License-Identifier: Apache-2.0
"""Where an iteration ends: after an optimizer's step, or where the program says so; and what such a step leaves."""
from .. import trace
from ._operators import of_frame

OPTIMIZER = "Optimizer.step#"  # what PyTorch's profiler calls a step, and then the class


class Iterations:
    def __init__(self, ledger, owners, places):
        self._ledger, self._owners, self._places = ledger, owners, places
        self._optimizer, self._first_of_step, self._name = None, 0, 0
        self._ranges = []  # of the profiler's ranges that are open, whether each is a step
        self._marks_itself, self._is_open, self._n_ended = True, False, 0

    def enter(self, name):
        """The profiler's range: each step of an optimizer is one, so that two are two without an operator between."""
        is_step = isinstance(name, str) and name.startswith(OPTIMIZER)
        if is_step and not any(self._ranges) and self._optimizer is not None:
            self._end_step()
        self._ranges.append(is_step)

    def leave(self):
        if self._ranges:
            self._ranges.pop()

    def settle(self, caller, stack):
        """What ended and began since the operator before. stack() is that of the program's lines."""
        if caller.optimizer is None and self._optimizer is not None:
            self._end_step()
        elif caller.optimizer is not None and self._optimizer is None:
            self._optimizer = of_frame(caller.optimizer, "self", "obj")
            self._owners.begin_step(self._optimizer)
            self._first_of_step = self._ledger.writer.n_blocks
            self._name = self._ledger.writer.string(f"{OPTIMIZER}{type(self._optimizer).__name__}.step")
            self._begin()
            self._mark(trace.ANNOTATION, self._name, 0, stack())
        self._begin()
        self._ledger.ask()

    def mark(self):
        """The program says it, and from now on it alone."""
        self._marks_itself = False
        self._end()

    def finish(self):
        if self._optimizer is not None:
            self._end_step()
        self._ledger.ask(everyone=True)
        self._owners.label_gradients()
        if self._n_ended == 0:
            self._end(self._guess())

    def _end_step(self):
        """What an optimizer's step leaves is its state."""
        self._ledger.ask(everyone=True)
        if self._ledger.newest() >= self._first_of_step:
            self._owners.label_state(self._optimizer)
        self._optimizer = None
        self._mark(trace.ANNOTATION, self._name, 1)
        if self._marks_itself:
            self._end(self._guess())

    def _mark(self, mark, name, number, stack=0):
        self._ledger.writer.stack(stack)
        self._ledger.writer.mark(self._ledger.now(), mark, name, number)

    def _guess(self):
        """The name of an end that the program did not say itself."""
        return self._ledger.writer.string("after an optimizer's step") if self._marks_itself else 0

    def _begin(self):
        if not self._is_open:
            self._is_open = True
            self._mark(trace.ITERATION_BEGIN, 0, self._n_ended)

    def _end(self, name=0):
        if self._is_open:
            self._mark(trace.ITERATION_END, name, self._n_ended)
            self._n_ended += 1
        self._is_open = False
        self._places.begin_iteration()
