"""PCD: persistent contrastive divergence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.engine.kernels import Gibbs
from pgmengine.evidence.target import Target
from pgmengine.learn.contracts import ModelPhase
from pgmengine.learn.negative.phase_chains import Kernels, Persistent, record_sweeps, sweep
from pgmengine.learn.phases.batch import Batch
from pgmengine.learn.phases.statistics import Statistics
from pgmengine.learn.recorded.recorder import Recorder


@dataclass(frozen=True)
class PCD:
    """Persistent contrastive divergence: chains that go on from update to update.

    It is the usual choice for undirected models. While parameters change slowly, the chains stay
    close to the distribution of the model. If this has modes that chains rarely leave, take a phase
    with tempering (PT, CAST).

    Parameters
    ----------
    k : sweeps of an update.
    chains : number of chains.
    kernel : a kernel, or a schedule of kernels, update -> kernel.

    Raises
    ------
    PgmError if `k` or `chains` is not an integer of at least 1.

    References
    ----------
    Tieleman (2008), Training restricted Boltzmann machines using approximations to the likelihood
    gradient. Also known as stochastic approximation (Younes 1989).

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.PCD(k=1, chains=100).chains
    100
    """

    k: int = 1
    chains: int = 100
    kernel: Kernels = Gibbs()
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_whole(self, "k", "chains")

    def start(self, given: Target, rng: np.random.Generator) -> ModelPhase:
        """Start the chains."""
        return _Phase(self, given, rng)


class _Phase(Persistent):
    def __init__(self, settings: PCD, given: Target, rng: np.random.Generator) -> None:
        super().__init__("PCD", given, settings.chains, settings.kernel, rng)
        self.k = settings.k

    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Move the chains by k sweeps; the mean over them is the expectation."""
        chains = self.adopt(batch.model, update, rng)
        sweep(chains, self.k)
        return batch.mean(chains.values(dtype=batch.precision))

    def record(self, recorder: Recorder) -> None:
        """Append the sweeps of the chains."""
        record_sweeps(recorder, self.chains, self.kernel, self.k)
