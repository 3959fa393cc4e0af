"""Checkpoints of a fit under way: a disk that is full or broken does not end the fit."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pgmengine.base.errors import PgmError
from pgmengine.learn.checkpoint import place_of, write
from pgmengine.learn.history import History
from pgmengine.learn.lock import Lock
from pgmengine.learn.mark import JSON
from pgmengine.learn.run import Run

log = logging.getLogger(__name__)


def alone(path: str | Path | None) -> AbstractContextManager[object]:
    """Return a context in which no other fit has the checkpoint; PgmError if one has it."""
    return nullcontext() if path is None else Lock(place_of(path))


class Saver:
    """Writes checkpoints every so many seconds and at the end.

    A failure is logged at once; the next time tries again, and the last one reports it.
    """

    def __init__(self, path: str | Path, mark: Mapping[str, JSON], every: float) -> None:
        self.path, self.mark, self.every, self.last = path, mark, every, time.monotonic()
        self.place = place_of(path)
        # Number of failures, and the reason of the last attempt if that failed.
        self.failed, self.why = 0, ""

    def now_and_then(self, run: Run, history: History) -> None:
        """Write if it is time."""
        if time.monotonic() - self.last > self.every:
            self._write(run, history)

    def at_the_end(self, run: Run, history: History) -> str:
        """Write; return why the checkpoint is not that of the last update, or an empty string."""
        self._write(run, history)
        if self.why:
            said = f"the checkpoint {self.path} could not be written at the end ({self.why})"
            log.warning("%s: save the model and the state of this Fit elsewhere", said)
            return said
        if self.failed:
            log.warning(
                "the checkpoint %s is whole; it could not be written %d times before",
                self.path,
                self.failed,
            )
        return ""

    def _write(self, run: Run, history: History) -> None:
        """Write the checkpoint, or log the reason for which it cannot be written."""
        try:
            state = run.state()
            notes = {"rng": state.pop("rng"), "by": state.pop("by"), "history": history.values}
            # They are in the file.
            del state["parameters"]
            write(self.place, self.mark, {**run.params(), **state}, notes)
            self.why = ""
        except (OSError, MemoryError, PgmError) as error:
            self.failed, self.why = self.failed + 1, str(error) or type(error).__name__
            log.warning(
                "update %d: the checkpoint %s could not be written (%s); learning goes on, and "
                "tries again in %g seconds or at the end",
                run.count,
                self.path,
                self.why,
                self.every,
            )
        self.last = time.monotonic()
