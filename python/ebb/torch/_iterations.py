# SPDX-License-Identifier: Apache-2.0
"""Where an iteration ends: behind an optimizer's step, or where the program says so; and what such a step leaves."""
from .. import trace
from ._operators import of_frame


class Iterations:
    def __init__(self, ledger, owners, places):
        self._ledger, self._owners, self._places = ledger, owners, places
        self._optimizer, self._first_of_step = None, 0
        self._marks_itself, self._is_open, self._n_ended = True, False, 0

    def settle(self, caller):
        """What ended and began since the operator before."""
        if caller.optimizer is None and self._optimizer is not None:
            self._end_step()
        elif caller.optimizer is not None and self._optimizer is None:
            self._optimizer = of_frame(caller.optimizer, "self", "obj")
            self._owners.begin_step(self._optimizer)
            self._first_of_step = self._ledger.writer.n_blocks
        if not self._is_open:
            self._is_open = True
            self._ledger.writer.mark(self._ledger.now(), trace.ITERATION_BEGIN, 0, self._n_ended)
        self._ledger.ask()

    def mark(self):
        """The program says it, and from now on nobody else does."""
        self._marks_itself = False
        self._end()

    def finish(self):
        if self._optimizer is not None:
            self._end_step()
        self._ledger.ask(everyone=True)
        self._owners.label_gradients()
        if self._n_ended == 0:
            self._end()

    def _end_step(self):
        """What an optimizer's step leaves is its state."""
        self._ledger.ask(everyone=True)
        if self._ledger.newest() >= self._first_of_step:
            self._owners.label_state(self._optimizer)
        self._optimizer = None
        if self._marks_itself:
            self._end()

    def _end(self):
        if self._is_open:
            self._ledger.writer.mark(self._ledger.now(), trace.ITERATION_END, 0, self._n_ended)
            self._n_ended += 1
        self._is_open = False
        self._places.begin_iteration()
