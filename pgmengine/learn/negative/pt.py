"""PT: persistent ladders of tempered chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.base.types import Array, Snapshot
from pgmengine.engine.kernels import Gibbs
from pgmengine.evidence.target import Target
from pgmengine.infer.sampling.ladders.replicas import Ladders
from pgmengine.infer.sampling.ladders.round_trips import Travels
from pgmengine.learn.contracts import ModelPhase
from pgmengine.learn.negative.phase_chains import Kernels, adopted, unconditioned
from pgmengine.learn.phases.batch import Batch
from pgmengine.learn.phases.statistics import Statistics
from pgmengine.learn.steps.schedules import at


@dataclass(frozen=True)
class PT:
    """Parallel tempering: persistent ladders of chains that swap places.

    Use it for models whose modes plain chains rarely leave. An update makes k sweeps of all chains,
    then swaps between neighbours on each ladder; the chains at beta = 1 give the gradient.

    Parameters
    ----------
    temperatures : number of chains of a ladder, at evenly spaced inverse temperatures in [0, 1].
    k : sweeps of an update.
    chains : number of ladders, and so of states at beta = 1.
    kernel : a kernel, or a schedule of kernels, update -> kernel.

    Raises
    ------
    PgmError if a number is not an integer of at least 1.

    References
    ----------
    Desjardins, Courville, Bengio, Vincent and Delalleau (2010), Tempered Markov chain Monte Carlo
    for training of restricted Boltzmann machines.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.PT(temperatures=20, k=10).chains
    100
    """

    temperatures: int = 10
    k: int = 1
    chains: int = 100
    kernel: Kernels = Gibbs()
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_whole(self, "temperatures", "k", "chains")

    def start(self, given: Target, rng: np.random.Generator) -> ModelPhase:
        """Start the ladders."""
        return _Phase(self, given, rng)


class _Phase(ModelPhase):
    travels: Travels

    def __init__(self, settings: PT, given: Target, rng: np.random.Generator) -> None:
        self.settings = settings
        betas = np.linspace(1.0, 0.0, settings.temperatures)[::-1].copy()
        self.ladders = Ladders(
            unconditioned("PT", given), betas, settings.chains, at(settings.kernel, 0), rng
        )
        self.travels = Travels("PT", len(betas), self.ladders.at.size)

    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Make k sweeps and a round of swaps; the chains now at beta = 1 give the expectation."""
        ladders = self.ladders
        ladders.chains = adopted(ladders.chains, batch.model, self.settings.kernel, update, rng)
        ladders.rng = rng
        before, parity = ladders.at.copy(), ladders.sweeps % 2
        ladders.chains.sweep(self.settings.k - 1)
        # This step makes the last of the k sweeps, and the swaps.
        ladders.step()
        self._count(before, parity)
        return batch.mean(ladders.chains.values(ladders.top(), dtype=batch.precision))

    def _count(self, before: Array, parity: int) -> None:
        """Count how the chains have moved on the ladders; two of them take part in each swap."""
        chain_at = self.ladders.at
        level = np.empty(chain_at.size, dtype=np.int64)
        level[chain_at] = np.arange(len(self.ladders.betas))
        pairs = chain_at[..., parity:-1:2].size
        swapped = int(np.count_nonzero(chain_at != before)) // 2
        self.travels.add(level, 2 * pairs, 2 * swapped)

    def snapshot(self) -> Snapshot:
        """Return the snapshots of the ladders, and the counts of moves on them."""
        return self.ladders.state() | self.travels.state()

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot."""
        self.ladders.load(snapshot)
        self.travels.load(snapshot)
