"""Counts of how chains travel over a ladder while a trainer runs, for monitors and warnings.

Rungs are numbered in ascending order of beta. A round trip of a chain goes from beta = 1 to the
other end of the ladder and back; it is counted on arrival at beta = 1.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.types import Array

log = logging.getLogger(__name__)

# A single chain that hops freely crosses a ladder in about rungs^2 sweeps. A chain that has missed
# a rung for ten times as long is held back, but for one case in ten thousand.
MAX_CROSSING_TIMES_WITHOUT_CHAIN = 10


@dataclass(frozen=True, eq=False)
class Entry:
    """Counts since the last entry.

    Attributes
    ----------
    visits : (rungs,), sweeps of chains on each rung, beta = 1 first.
    trips : round trips of chains.
    proposed, taken : changes of rung.
    due, swapped : exchanges with chains outside the ladder, 0 for trainers without such chains.
    """

    visits: Array
    trips: int
    proposed: int
    taken: int
    due: int
    swapped: int


class Travels:
    """Counts of visits, round trips, hops and exchanges of chains on a ladder.

    Parameters
    ----------
    trainer : name of the trainer, for the warning about rungs without chains.
    rungs : number of rungs.
    chains : number of chains.

    >>> import numpy as np
    >>> travels = Travels("CAST", 2, 3)
    >>> for rung in (1, 0, 1):
    ...     travels.add(np.full(3, rung), proposed=3, taken=2)
    >>> entry = travels.entry()
    >>> entry.visits, entry.trips, entry.taken / entry.proposed
    (array([6, 3]), 3, 0.6666666666666666)
    """

    def __init__(self, trainer: str, rungs: int, chains: int) -> None:
        self.trainer, self.warned = trainer, False
        self.visits = np.zeros(rungs, dtype=np.int64)
        # The step at which a rung last had a chain.
        self.seen = np.zeros(rungs, dtype=np.int64)
        self.from_below = np.zeros(chains, dtype=bool)
        # All steps; then, since the last entry: trips, proposed, taken, due, swapped.
        self.counts = np.zeros(6, dtype=np.int64)

    def add(self, rung: Array, proposed: int, taken: int, due: int = 0, swapped: int = 0) -> None:
        """Count one step after which the chains are on these rungs (chains,)."""
        here = np.bincount(rung, minlength=len(self.visits))
        self.visits += here
        top = rung == len(self.visits) - 1
        self.from_below |= rung == 0
        trips = int(np.count_nonzero(self.from_below & top)) if len(self.visits) > 1 else 0
        self.from_below &= ~top
        self.counts += (1, trips, proposed, taken, due, swapped)
        self.seen[here > 0] = self.counts[0]
        self._warn()

    def _warn(self) -> None:
        """Warn once about rungs that stay without chains."""
        steps, rungs = int(self.counts[0]), len(self.seen)
        missed = np.flatnonzero(steps - self.seen >= MAX_CROSSING_TIMES_WITHOUT_CHAIN * rungs**2)
        if len(missed) and not self.warned:
            self.warned = True
            log.warning(
                "%s: %d of %d temperatures have had no chain for %d sweeps, so that tempering does "
                "little; see pgm.Occupancy, and raise the floor of gamma, or take closer betas",
                self.trainer,
                len(missed),
                rungs,
                MAX_CROSSING_TIMES_WITHOUT_CHAIN * rungs**2,
            )

    def excursions(self, proposed: int, taken: int) -> None:
        """Count excursions from beta = 1 over all rungs and back, and how many were accepted."""
        self.visits += proposed
        self.counts += (1, taken, proposed, taken, 0, 0)
        self.seen[:] = self.counts[0]

    def back(self) -> None:
        """Forget the ways of all chains, which start at beta = 1 again."""
        self.from_below[:] = False

    def entry(self) -> Entry:
        """Return the counts since the last entry, and start them again."""
        out = Entry(self.visits[::-1].copy(), *(int(n) for n in self.counts[1:]))
        self.visits[:], self.counts[1:] = 0, 0
        return out

    def state(self) -> dict[str, Any]:
        """Return a snapshot of all counts, under names that no layer has."""
        return {
            "/travels/visits": self.visits,
            "/travels/seen": self.seen,
            "/travels/from_below": self.from_below,
            "/travels/counts": self.counts,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        for name in ("visits", "seen", "from_below", "counts"):
            getattr(self, name)[...] = state[f"/travels/{name}"]
