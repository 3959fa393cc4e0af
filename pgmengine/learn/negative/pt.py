"""PT: persistent ladders of tempered chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.infer.sampling.parallel_tempering import Ladders
from pgmengine.infer.sampling.travels import Travels
from pgmengine.learn.batch import Batch, GradientSum
from pgmengine.learn.negative.base import NegativeRun, State, adopted, unconditioned
from pgmengine.learn.schedules import at


@dataclass(frozen=True)
class PT:
    """Parallel tempering, t-PT_k of system 2: `temperatures` chains at betas even in [0, 1], k
    sweeps, then swaps.

    `chains` ladders give as many states at beta = 1 for each update.

    >>> import pgmengine as pgm
    >>> pgm.PT(temperatures=20, k=10).chains
    100
    """

    temperatures: int = 10
    k: int = 1
    chains: int = 100
    kernel: Any = Gibbs()
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_whole(self, "temperatures", "k", "chains")

    def start(self, given: Target, rng: np.random.Generator) -> NegativeRun:
        """See Negative."""
        return _Run(self, given, rng)


class _Run(NegativeRun):
    travels: Travels

    def __init__(self, settings: PT, given: Target, rng: np.random.Generator) -> None:
        self.settings = settings
        betas = np.linspace(1.0, 0.0, settings.temperatures)[::-1].copy()
        self.ladders = Ladders(
            unconditioned("PT", given), betas, settings.chains, at(settings.kernel, 0), rng
        )
        self.travels = Travels("PT", len(betas), self.ladders.at.size)

    def add(self, total: GradientSum, batch: Batch, update: int, rng: np.random.Generator) -> None:
        """See NegativeRun."""
        ladders = self.ladders
        ladders.chains = adopted(
            ladders.chains, batch.given.model, at(self.settings.kernel, update), rng
        )
        ladders.rng = rng
        ladders.chains.sweep(self.settings.k - 1)
        pairs = ladders.at[..., ladders.sweeps % 2 : -1 : 2].size
        before = ladders.at.copy()
        ladders.step()
        level = np.empty(ladders.at.size, dtype=np.int64)
        level[ladders.at] = np.arange(len(ladders.betas))
        swapped = int(np.count_nonzero(ladders.at != before)) // 2
        self.travels.add(level, 2 * pairs, 2 * swapped)
        total.mean(ladders.chains.values(ladders.top(), dtype=total.precision), -batch.mass)

    def state(self) -> State:
        """Those of the ladders, and the travels over them."""
        return self.ladders.state() | self.travels.state()

    def load(self, state: State) -> None:
        """See NegativeRun."""
        self.ladders.load(state)
        self.travels.load(state)
