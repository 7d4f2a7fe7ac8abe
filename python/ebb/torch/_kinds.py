# SPDX-License-Identifier: Apache-2.0
"""When a step is recorded though there is a plan for one that begins like it.

Steps that begin alike (with the same key) may go on differently: of some steps that accumulate gradients, the last one also
has the optimizer's step. Such steps come in turn, so it is remembered which of a run of steps was another one.
"""


class Kinds:
    """key: what the last step began with. Its number counts the steps with that key, from 0 where the key changed or after a step
    that was not like its plan."""

    def __init__(self):
        self.key, self._number, self._unlike_number = None, 0, 0  # of the last step; of the last one that was unlike
        self._keys, self._longer = set(), {}  # of which the next one is recorded; {key: numbers of steps that went on}

    def begin(self, key):
        self._number = self._number + 1 if key == self.key else 0
        self.key = key

    def is_wanted(self):
        """Whether the step that begins is to be recorded."""
        return self.key in self._keys or self._number in self._longer.get(self.key, ())

    def want(self):
        """The next step that begins like this one is to be recorded."""
        self._keys.add(self.key)

    def note_recorder(self):
        self._keys.discard(self.key)

    def note_short(self):
        """What was recorded is the start of a longer step: the kind that was to be recorded comes as late as last time."""
        self._longer.setdefault(self.key, set()).add(self._unlike_number)

    def note_recorded(self):
        self._longer.get(self.key, set()).discard(self._number)

    def note_unlike(self, is_longer, is_seen):
        """The step was not like its plan. is_longer: it went on where the plan ended. is_seen: its operators were looked at."""
        self._unlike_number, self._number = self._number, -1
        if is_longer:
            self.note_short()
        elif is_seen:  # else the next one like it is recorded as it begins
            self.want()
