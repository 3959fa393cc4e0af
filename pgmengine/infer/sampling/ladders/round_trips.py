"""Counts of the moves of chains over a ladder while a trainer runs, for monitors and warnings.

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

# A chain whose proposals are all accepted crosses a ladder in about rungs^2 sweeps. If no chain has
# been on a rung for this many times as long, something holds the chains back: by chance it happens
# in one case of ten thousand.
MAX_CROSSING_TIMES_WITHOUT_CHAIN = 10

# A rung with less than this share of the sweeps that it has where all rungs have as many counts as
# hardly visited.
MIN_VISIT_SHARE = 0.2

# The counts that a snapshot holds.
STORED = ("visits", "seen", "from_below", "counts")


@dataclass(frozen=True, eq=False)
class Entry:
    """Counts of the moves on a ladder since the last entry.

    Attributes
    ----------
    visits : (rungs,), sweeps of chains on each rung, beta = 1 first.
    trips : round trips of chains.
    proposed, taken : numbers of proposed and of accepted changes of rung.
    due, swapped : numbers of exchanges with chains outside the ladder that were due and that were
        made; 0 for trainers without such chains.
    """

    visits: Array
    trips: int
    proposed: int
    taken: int
    due: int
    swapped: int


class Travels:
    """Counts of visits, round trips, changes of rung and exchanges of chains on a ladder.

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
        # The visits of earlier entries.
        self.before = np.zeros(rungs, dtype=np.int64)
        # The last step at which each rung had a chain.
        self.seen = np.zeros(rungs, dtype=np.int64)
        self.from_below = np.zeros(chains, dtype=bool)
        # The number of all steps; then the counts of an entry: trips, proposed, taken, due,
        # swapped.
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
        self.warn()

    def warn(self) -> None:
        """Warn once if a rung has had no chain for long."""
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

    def hardly_visited(self) -> str:
        """Return a sentence if chains were hardly ever on some rungs, or an empty string.

        Fewer sweeps than a chain needs to cross the ladder say nothing.
        """
        visits, rungs = self.before + self.visits, len(self.visits)
        few = int(np.count_nonzero(rungs * visits < MIN_VISIT_SHARE * visits.sum()))
        if not few or self.counts[0] < rungs**2:
            return ""
        return (
            f"{self.trainer}: {few} of {rungs} temperatures had less than "
            f"{100 * MIN_VISIT_SHARE / rungs:.2g} % of the sweeps each, so that tempering did "
            "little: the log weights of the rungs have not followed the model; take a higher floor "
            "of gamma, fewer rungs, or smaller steps of learning (pgm.Occupancy shows the shares)"
        )

    def excursions(self, proposed: int, taken: int) -> None:
        """Count excursions from beta = 1 over all rungs and back, and how many were accepted."""
        self.visits += proposed
        self.counts += (1, taken, proposed, taken, 0, 0)
        self.seen[:] = self.counts[0]

    def back(self) -> None:
        """Forget the round trips under way, because all chains start at beta = 1 again."""
        self.from_below[:] = False

    def entry(self) -> Entry:
        """Return the counts since the last entry, and set them to 0."""
        out = Entry(self.visits[::-1].copy(), *(int(n) for n in self.counts[1:]))
        self.before += self.visits
        self.visits[:], self.counts[1:] = 0, 0
        return out

    def state(self) -> dict[str, Any]:
        """Return a snapshot of all counts; its names differ from all layers."""
        return {f"/travels/{name}": getattr(self, name) for name in STORED}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        for name in STORED:
            getattr(self, name)[...] = state[f"/travels/{name}"]
