"""How the chains of a trainer travel over its ladder of temperatures, for monitors and warnings."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.types import Array

log = logging.getLogger(__name__)
# A single chain that hops freely crosses a ladder in about levels^2 sweeps, so that one which has
# missed a level for ten times as long is held back, but for one case in ten thousand.
PATIENCE = 10


@dataclass(frozen=True, eq=False)
class Entry:
    """The travels since the last entry.

    `visits` (levels,) counts chains and sweeps, beta = 1 first; `trips` the ways of a chain from
    beta = 1 to the other end and back; `proposed` and `taken` the changes of level; `due` and
    `swapped` the exchanges with chains outside the ladder, of trainers that have such.
    """

    visits: Array
    trips: int
    proposed: int
    taken: int
    due: int
    swapped: int


class Travels:
    """Counts of visits, round trips, hops and exchanges of chains; levels ascend in beta.

    >>> import numpy as np
    >>> travels = Travels("CAST", 2, 3)
    >>> for level in (1, 0, 1):
    ...     travels.add(np.full(3, level), proposed=3, taken=2)
    >>> entry = travels.entry()
    >>> entry.visits, entry.trips, entry.taken / entry.proposed
    (array([6, 3]), 3, 0.6666666666666666)
    """

    def __init__(self, trainer: str, levels: int, chains: int) -> None:
        self.trainer, self.warned = trainer, False
        self.visits = np.zeros(levels, dtype=np.int64)
        # the step at which a level last had a chain
        self.seen = np.zeros(levels, dtype=np.int64)
        self.from_below = np.zeros(chains, dtype=bool)
        # steps in all; then, since the last entry, trips, proposed, taken, due, swapped
        self.counts = np.zeros(6, dtype=np.int64)

    def add(self, level: Array, proposed: int, taken: int, due: int = 0, swapped: int = 0) -> None:
        """Count one step that has brought the chains to these levels (chains,)."""
        here = np.bincount(level, minlength=len(self.visits))
        self.visits += here
        top = level == len(self.visits) - 1
        self.from_below |= level == 0
        trips = int(np.count_nonzero(self.from_below & top)) if len(self.visits) > 1 else 0
        self.from_below &= ~top
        self.counts += (1, trips, proposed, taken, due, swapped)
        self.seen[here > 0] = self.counts[0]
        self._warn()

    def _warn(self) -> None:
        """Say once that levels stay unvisited."""
        steps, levels = int(self.counts[0]), len(self.seen)
        missed = np.flatnonzero(steps - self.seen >= PATIENCE * levels**2)
        if len(missed) and not self.warned:
            self.warned = True
            log.warning(
                "%s: %d of %d temperatures have had no chain for %d sweeps, so that tempering does "
                "little; see pgm.Occupancy, and raise the floor of gamma, or take closer betas",
                self.trainer,
                len(missed),
                levels,
                PATIENCE * levels**2,
            )

    def excursions(self, proposed: int, taken: int) -> None:
        """Count excursions from beta = 1 over all levels and back, taken or not as a whole."""
        self.visits += proposed
        self.counts += (1, taken, proposed, taken, 0, 0)
        self.seen[:] = self.counts[0]

    def back(self) -> None:
        """Chains start at beta = 1 again, wherever they were."""
        self.from_below[:] = False

    def entry(self) -> Entry:
        """The counts since the last entry, which start again."""
        out = Entry(self.visits[::-1].copy(), *(int(n) for n in self.counts[1:]))
        self.visits[:], self.counts[1:] = 0, 0
        return out

    def state(self) -> dict[str, Any]:
        """All counts, under names that no layer has."""
        return {
            "/travels/visits": self.visits,
            "/travels/seen": self.seen,
            "/travels/from_below": self.from_below,
            "/travels/counts": self.counts,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        for name in ("visits", "seen", "from_below", "counts"):
            getattr(self, name)[...] = state[f"/travels/{name}"]
