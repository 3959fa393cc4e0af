"""TransSAP: persistent chains with tempered transitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.engine.kernels import Gibbs
from pgmengine.evidence.target import Target
from pgmengine.infer.sampling.ladders.temperatures import Betas, Linear, check_betas, fixed
from pgmengine.infer.sampling.methods.tempered_transitions import excursion
from pgmengine.learn.contracts import ModelPhase
from pgmengine.learn.negative.phase_chains import Kernels, Laddered, sweep
from pgmengine.learn.phases.batch import Batch
from pgmengine.learn.phases.statistics import Statistics


@dataclass(frozen=True)
class TransSAP:
    """Stochastic approximation with tempered transitions (Salakhutdinov 2009).

    This is PCD whose chains also make excursions. An excursion goes from beta = 1 down a ladder and
    back, and the state at its end is accepted or rejected.

    Parameters
    ----------
    betas : the ladder of an excursion: a schedule, or numbers in [0, 1] that reach 1.
    every : updates from one excursion to the next.
    k : sweeps of an update, besides excursions.
    chains : number of chains.
    kernel : a kernel, or a schedule of kernels, update -> kernel.

    Raises
    ------
    PgmError for settings out of their range.

    References
    ----------
    Salakhutdinov (2009), Learning in Markov random fields using tempered transitions.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.TransSAP(every=50).k
    1
    """

    betas: Betas = Linear(20)
    every: int = 1
    k: int = 1
    chains: int = 100
    kernel: Kernels = Gibbs()
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_whole(self, "every", "chains")
        check_whole(self, "k", least=0)
        check_betas(self)
        object.__setattr__(self, "betas", fixed(self.betas))

    def start(self, given: Target, rng: np.random.Generator) -> ModelPhase:
        """Start the chains, and find the ladder."""
        return _Phase(self, given, rng)


class _Phase(Laddered):
    def __init__(self, settings: TransSAP, given: Target, rng: np.random.Generator) -> None:
        chains, kernel, betas = settings.chains, settings.kernel, settings.betas
        super().__init__("TransSAP", given, chains, kernel, betas, rng)
        self.settings = settings

    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Make k sweeps, and an excursion of each chain at every `every`-th update."""
        chains = self.adopt(batch.model, update, rng)
        sweep(chains, self.settings.k)
        if (update + 1) % self.settings.every == 0:
            taken = excursion(chains, self.betas, rng)
            self.travels.excursions(len(taken), int(np.count_nonzero(taken)))
        return batch.mean(chains.values(dtype=batch.precision))
