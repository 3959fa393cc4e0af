"""The steps of an exploration, for undo and redo."""

from __future__ import annotations

from pgmengine.apps.explorer.exploration import Given

# The longest history, in steps.
MAX_HISTORY = 1000


class History:
    """The evidence of each step, and the step that is shown now."""

    def __init__(self, start: Given) -> None:
        self._steps, self._at = [start], 0

    @property
    def now(self) -> Given:
        """The evidence that is shown now."""
        return self._steps[self._at]

    @property
    def can_undo(self) -> bool:
        """Whether there is an earlier step."""
        return self._at > 0

    @property
    def can_redo(self) -> bool:
        """Whether a step was undone."""
        return self._at < len(self._steps) - 1

    def step(self, given: Given) -> None:
        """Make a step to what is given; what was undone before is forgotten."""
        if given.key != self.now.key:
            del self._steps[self._at + 1 :]
            self._steps = [*self._steps, given][-MAX_HISTORY:]
            self._at = len(self._steps) - 1

    def undo(self) -> None:
        """Go back a step, if there is one."""
        self._at = max(self._at - 1, 0)

    def redo(self) -> None:
        """Make the step that was undone again, if there is one."""
        self._at = min(self._at + 1, len(self._steps) - 1)
