"""AdaptiveSAP: persistent chains that at times move over a ladder of temperatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.base.types import Snapshot
from pgmengine.engine.chains import Chains
from pgmengine.engine.kernels import Gibbs
from pgmengine.evidence.target import Target
from pgmengine.infer.sampling.ladders.temperatures import Betas, check_betas, fixed
from pgmengine.infer.sampling.ladders.wandering import (
    GammaSchedule,
    OneOverT,
    Weights,
    check_gamma,
    hop,
)
from pgmengine.learn.contracts import ModelPhase
from pgmengine.learn.negative.phase_chains import Kernels, Laddered, sweep
from pgmengine.learn.phases.batch import Batch
from pgmengine.learn.phases.statistics import Statistics


@dataclass(frozen=True)
class AdaptiveSAP:
    """Stochastic approximation with adaptive simulated tempering (Salakhutdinov 2010).

    This is PCD whose chains also make excursions over a ladder by Wang-Landau simulated tempering.
    The chains share the weights of the rungs. An excursion starts at beta = 1, and ends when the
    chain has been at beta = 1 again steps / len(betas) times. This number of visits does not depend
    on the states, so that with fixed weights the states stay draws from the model. (The last state
    at beta = 1 within a fixed number of steps would not be a draw.) A chain that has not returned
    so often within 10 * steps goes on from the state of its last visit. Watch `Occupancy`.

    Parameters
    ----------
    betas : the ladder: a schedule, or numbers in [0, 1] that reach 1.
    every : updates from one excursion to the next.
    steps : approximate number of steps of an excursion; see above.
    k : sweeps of an update, besides excursions.
    chains : number of chains.
    kernel : a kernel, or a schedule of kernels, update -> kernel.
    gamma : schedule of the weights of the rungs. Its rate needs a floor, as in CAST; without one
        the weights cannot follow a model that learns.

    Raises
    ------
    PgmError for settings out of their range.

    References
    ----------
    Salakhutdinov (2010), Learning deep Boltzmann machines using adaptive MCMC.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.AdaptiveSAP(every=50).steps
    100
    """

    betas: Betas = tuple(np.linspace(0.9, 1.0, 20).tolist())
    every: int = 50
    steps: int = 100
    k: int = 1
    chains: int = 100
    kernel: Kernels = Gibbs()
    gamma: GammaSchedule = OneOverT(floor=0.05)
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_gamma(self)
        check_whole(self, "every", "steps", "chains")
        check_whole(self, "k", least=0)
        check_betas(self)
        object.__setattr__(self, "betas", fixed(self.betas))

    def start(self, given: Target, rng: np.random.Generator) -> ModelPhase:
        """Start the chains, and find the ladder."""
        return _Phase(self, given, rng)


class _Phase(Laddered):
    def __init__(self, settings: AdaptiveSAP, given: Target, rng: np.random.Generator) -> None:
        chains, kernel, betas = settings.chains, settings.kernel, settings.betas
        super().__init__("AdaptiveSAP", given, chains, kernel, betas, rng)
        self.settings, self.weights = settings, Weights(1, len(self.betas), settings.gamma)

    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Make k sweeps, and an excursion over the ladder at every `every`-th update."""
        chains = self.adopt(batch.model, update, rng)
        sweep(chains, self.settings.k)
        if (update + 1) % self.settings.every == 0:
            self._wander(chains, rng)
        return batch.mean(chains.values(dtype=batch.precision))

    def _wander(self, chains: Chains, rng: np.random.Generator) -> None:
        """Move over the ladder from beta = 1 until each chain has been there again often enough."""
        top, count = len(self.betas) - 1, len(chains.beta)
        level, last = np.full((1, count), top), chains.values()
        left = np.full(count, max(1, self.settings.steps // len(self.betas)))
        self.travels.back()
        for _ in range(10 * self.settings.steps):
            before, power = level, chains.sweep_path()[1][None]
            level = hop(level, power, self.betas, self.weights.log_g, rng)
            self.weights.adapt(level)
            chains.beta[:] = self.betas[level[0]]
            proposed = count if top else 0
            self.travels.add(level[0], proposed, int(np.count_nonzero(level != before)))
            home = np.flatnonzero((level[0] == top) & (left > 0))
            left[home] -= 1
            for name, value in chains.values(home).items():
                last[name][home] = value
            if not left.any():
                break
        chains.beta[:] = 1.0
        chains.place_at(last)

    def snapshot(self) -> Snapshot:
        """Return the chains, the ladder, the weights of its rungs, and the counts of moves."""
        return super().snapshot() | self.weights.state()

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot."""
        super().restore(snapshot)
        self.weights.load(snapshot)
