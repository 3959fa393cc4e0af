"""History: the values of monitors, by name and update."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.learn.contracts import ModelPhase, Monitor, PhaseMonitor, Stopping

# A number, or a row of numbers.
Value = float | Array


class History:
    """The values that monitors return."""

    def __init__(self, callbacks: Sequence[Monitor | PhaseMonitor], phase: ModelPhase) -> None:
        self.values: dict[str, list[tuple[int, Any]]] = {}
        self.monitors = [c.watching(phase) if isinstance(c, PhaseMonitor) else c for c in callbacks]
        known: Sequence[object] = callbacks
        self.stopping = [c for c in known if isinstance(c, Stopping)]

    def add(self, model: Model, update: int) -> str:
        """Keep the values of an update; return the reason to stop, or an empty string."""
        found: dict[str, Value] = {}
        for monitor in self.monitors:
            said = monitor(model, update)
            if said is not None:
                self._merge(found, _values(monitor, said))
        for name, value in found.items():
            self.values.setdefault(name, []).append((update, value))
        return self.stops() if self.stopping else ""

    def due(self, update: int) -> int:
        """Return the next update after this one at which a monitor may measure."""
        return min((_due(monitor, update) for monitor in self.monitors), default=sys.maxsize)

    def put(self, name: str, update: int, value: float) -> None:
        """Keep a value that the fit itself has measured."""
        self.values.setdefault(name, []).append((update, value))

    def _merge(self, found: dict[str, Value], more: Mapping[str, Value]) -> None:
        """Add values to those of this update; raise PgmError if two values of one name differ."""
        for name, value in more.items():
            if name in found and not np.array_equal(value, found[name], equal_nan=True):
                raise PgmError(f"two callbacks say {name!r}: give one of them another name")
            found[name] = value

    def stops(self) -> str:
        """Return the reason for which a monitor ends the fit, or an empty string."""
        for monitor in self.stopping:
            if why := monitor.stops(self.values):
                return why if isinstance(why, str) else f"{type(monitor).__name__} ended it"
        return ""

    def arrays(self) -> dict[str, dict[str, Array]]:
        """Return name -> {"update": (n,), "value": (n,)}; "value" is (n, numbers) for rows."""
        return {
            name: {
                "update": np.array([u for u, _ in pairs]),
                "value": np.array([v for _, v in pairs]),
            }
            for name, pairs in self.values.items()
        }


def _due(monitor: Monitor, update: int) -> int:
    """Return the next update after this one at which a monitor may measure.

    Every update may be one, unless the monitor says how many updates lie between two values.
    """
    every = max(int(getattr(monitor, "updates_apart", 1)), 1)
    return update + every - update % every


def _values(monitor: Monitor, said: object) -> dict[str, Value]:
    """Return the numbers, or rows of numbers, that a monitor returned."""
    if not isinstance(said, Mapping):
        raise PgmError(
            f"callback {monitor!r} returned {type(said).__name__}, expected a mapping of names to "
            "numbers, or None"
        )
    try:
        return {
            str(name): np.array(v, dtype=np.float64) if np.ndim(v) == 1 else float(v)
            for name, v in said.items()
        }
    except (TypeError, ValueError):
        raise PgmError(
            f"callback {monitor!r} returned {said!r}, expected one number, or one row of them, for "
            "each name"
        ) from None
