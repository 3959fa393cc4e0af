"""CAST: coupled adaptive simulated tempering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.infer.sampling.coupled import CoupledTempering
from pgmengine.infer.sampling.levels import OneOverT, check_gamma
from pgmengine.infer.sampling.schedules import fixed, ladder
from pgmengine.learn.batch import Batch, GradientSum
from pgmengine.learn.negative.base import NegativeRun, State, adopted, unconditioned, with_ladder
from pgmengine.learn.schedules import at


@dataclass(frozen=True)
class CAST:
    """Coupled adaptive simulated tempering (system 3, section 6.1; see CoupledTempering).

    `chains` slow chains give the gradient; as many fast ones wander over `betas` (a schedule, or
    numbers that reach 1; the default suits large models, small ones need lower temperatures) with
    adaptive weights, and every `swap_every` updates the two of a pair change places, where the fast
    one is at beta = 1 just then.

    The weights have to follow a model that learns, so the rate of their schedule has a floor. All
    pairs share them. (The paper has weights for each chain: those follow the valley that the chain
    is in as well, and bias the shares of valleys more.) The floor has a price: at fixed parameters
    the shares of valleys that chains rarely leave are off by the more, the higher the floor and the
    fewer the chains, and learning suffers (see the results); OneOverT() has no such error, and
    stands still. Watch `Occupancy`: levels without chains ask for a higher floor, or for more or
    closer betas.

    >>> import pgmengine as pgm
    >>> pgm.CAST(chains=50, swap_every=50).k
    1
    """

    chains: int = 100
    betas: Any = tuple(np.linspace(0.9, 1.0, 20).tolist())
    swap_every: int = 50
    k: int = 1
    kernel: Any = Gibbs()
    gamma: Any = OneOverT(floor=0.05)
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_gamma(self)
        check_whole(self, "chains", "swap_every", "k")
        object.__setattr__(self, "betas", fixed(self.betas))

    def start(self, given: Target, rng: np.random.Generator) -> NegativeRun:
        """See Negative."""
        return _Run(self, given, rng)


class _Run(NegativeRun):
    def __init__(self, settings: CAST, given: Target, rng: np.random.Generator) -> None:
        one, kernel, self.settings = unconditioned("CAST", given), at(settings.kernel, 0), settings
        many, betas = (
            one.take(np.zeros(settings.chains, dtype=int)),
            ladder(settings.betas, one, kernel, rng),
        )
        self.coupled = CoupledTempering(
            many, betas, kernel, settings.gamma, settings.swap_every * settings.k, rng
        )
        self.travels = self.coupled.travels

    def add(self, total: GradientSum, batch: Batch, update: int, rng: np.random.Generator) -> None:
        """See NegativeRun."""
        coupled = self.coupled
        coupled.chains = adopted(
            coupled.chains, batch.given.model, at(self.settings.kernel, update), rng
        )
        coupled.rng = rng
        for _ in range(self.settings.k):
            coupled.step()
        total.mean(coupled.chains.values(coupled.slow, dtype=total.precision), -batch.mass)

    def state(self) -> State:
        """See CoupledTempering."""
        return self.coupled.state()

    def load(self, state: State) -> None:
        """See NegativeRun."""
        self.coupled.load(with_ladder(self.settings, self.coupled.betas, state))
