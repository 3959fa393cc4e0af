"""CAST: coupled adaptive simulated tempering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pgmengine.kernels import Gibbs
from pgmengine.learn.batch import Batch, GradientSum
from pgmengine.learn.negative.base import NegativeRun, State, adopted, unconditioned
from pgmengine.learn.schedules import at
from pgmengine.methods.coupled import CoupledTempering
from pgmengine.methods.levels import OneOverT
from pgmengine.methods.schedules import fixed, ladder
from pgmengine.settings import check_whole
from pgmengine.target import Target


@dataclass(frozen=True)
class CAST:
    """Coupled adaptive simulated tempering (system 3, section 4.2; see CoupledTempering).

    `chains` slow chains give the gradient; as many fast ones wander over `betas` (a schedule, or numbers that reach 1;
    the default suits large machines, small ones need lower temperatures) with adaptive weights, and every `swap_every`
    updates the two of a pair change places, where the fast one is at beta = 1 just then.

    >>> import pgmengine as pgm
    >>> pgm.CAST(chains=50, swap_every=50).k
    1
    """

    chains: int = 50
    betas: Any = tuple(np.linspace(0.9, 1.0, 20).tolist())
    swap_every: int = 50
    k: int = 1
    kernel: Any = Gibbs()
    gamma: Any = OneOverT()
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_whole(self, "chains", "swap_every", "k")
        object.__setattr__(self, "betas", fixed(self.betas))

    def start(self, given: Target, rng: np.random.Generator) -> NegativeRun:
        """See Negative."""
        return _Run(self, given, rng)


class _Run(NegativeRun):
    def __init__(self, settings: CAST, given: Target, rng: np.random.Generator) -> None:
        many, kernel = unconditioned("CAST", given, settings.chains), at(settings.kernel, 0)
        betas = ladder(settings.betas, given, kernel, rng)
        self.settings = settings
        self.coupled = CoupledTempering(many, betas, kernel, settings.gamma, settings.swap_every * settings.k, rng)

    def add(self, total: GradientSum, batch: Batch, update: int, rng: np.random.Generator) -> None:
        """See NegativeRun."""
        coupled, count = self.coupled, self.settings.chains
        coupled.chains = adopted(coupled.chains, batch.given.model, at(self.settings.kernel, update), rng)
        coupled.rng = rng
        for _ in range(self.settings.k):
            coupled.step()
        total.points(coupled.chains.values(coupled.slow, dtype=total.precision), np.full(count, -batch.mass / count))

    def state(self) -> State:
        """All chains, their roles, and the weights of the levels."""
        c = self.coupled
        return {**c.chains.values(), "/level": c.level, "/slow": c.slow, "/fast": c.fast,
                "/steps": c.steps, **c.weights.state()}

    def load(self, state: State) -> None:
        """See NegativeRun."""
        c = self.coupled
        c.chains.place_at(state)
        c.level, c.slow, c.fast = (np.array(state[f"/{k}"]) for k in ("level", "slow", "fast"))
        c.steps = int(state["/steps"])
        c.chains.beta[c.slow] = 1.0
        c.chains.beta[c.fast] = c.betas[c.level[0]]
        c.weights.load(state)
