"""AdaptiveSAP: persistent chains that now and then wander over temperatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.engine.chains import Chains
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.infer.sampling.levels import OneOverT, Weights, check_gamma, hop
from pgmengine.infer.sampling.schedules import fixed, ladder
from pgmengine.infer.sampling.travels import Travels
from pgmengine.learn.negative.base import NegativeRun, Persistent, State, moved, with_ladder
from pgmengine.learn.schedules import at


@dataclass(frozen=True)
class AdaptiveSAP:
    """Stochastic approximation with adaptive simulated tempering (system 3, section 6).

    After every `every` plain updates the chains wander over `betas` by Wang-Landau simulated
    tempering, all from beta = 1 and with common weights, until they have been at beta = 1 again
    steps / len(betas) times, and go on from there: a number of visits that does not depend on the
    states, so with fixed weights these stay draws from the model. (The last state at beta = 1 of a
    fixed number of steps is none.) A chain that has not come back so often in 10 * steps goes on
    from its last visit. The rate of the weights has a floor, as in CAST; watch `Occupancy`.

    >>> import pgmengine as pgm
    >>> pgm.AdaptiveSAP(every=50).steps
    100
    """

    betas: Any = tuple(np.linspace(0.9, 1.0, 20).tolist())
    every: int = 50
    steps: int = 100
    k: int = 1
    chains: int = 100
    kernel: Any = Gibbs()
    gamma: Any = OneOverT(floor=0.05)
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_gamma(self)
        check_whole(self, "every", "steps", "chains")
        check_whole(self, "k", least=0)
        object.__setattr__(self, "betas", fixed(self.betas))

    def start(self, given: Target, rng: np.random.Generator) -> NegativeRun:
        """See Negative."""
        return _Run(self, given, rng)


class _Run(Persistent):
    travels: Travels

    def __init__(self, settings: AdaptiveSAP, given: Target, rng: np.random.Generator) -> None:
        super().__init__("AdaptiveSAP", given, settings.chains, settings.kernel, rng, self._moved)
        self.settings, self.betas = (
            settings,
            ladder(settings.betas, self.one, at(settings.kernel, 0), rng),
        )
        self.weights = Weights(1, len(self.betas), settings.gamma)
        self.travels = Travels("AdaptiveSAP", len(self.betas), settings.chains)

    def _moved(self, chains: Chains, update: int, rng: np.random.Generator) -> None:
        moved(chains, self.settings.k)
        if (update + 1) % self.settings.every == 0:
            self._wander(chains, rng)

    def _wander(self, chains: Chains, rng: np.random.Generator) -> None:
        top = len(self.betas) - 1
        level = np.full((1, len(chains.beta)), top)
        last, left = (
            chains.values(),
            np.full(len(chains.beta), max(1, self.settings.steps // len(self.betas))),
        )
        self.travels.back()
        for _ in range(10 * self.settings.steps):
            before, power = level, chains.sweep_path()[1][None]
            level = hop(level, power, self.betas, self.weights.log_g, rng)
            self.weights.adapt(level)
            proposed = level.size if top else 0
            self.travels.add(level[0], proposed, int(np.count_nonzero(level != before)))
            chains.beta[:] = self.betas[level[0]]
            home = np.flatnonzero((level[0] == top) & (left > 0))
            left[home] -= 1
            for name, value in chains.values(home).items():
                last[name][home] = value
            if not left.any():
                break
        chains.beta[:] = 1.0
        chains.place_at(last)

    def state(self) -> State:
        """The chains' states, the ladder, the weights of its levels, and the travels over it."""
        ladder = {"/betas": self.betas} | self.weights.state() | self.travels.state()
        return super().state() | ladder

    def load(self, state: State) -> None:
        """See NegativeRun."""
        super().load(state)
        self.betas = np.array(with_ladder(self.settings, self.betas, state)["/betas"])
        self.weights.load(state)
        self.travels.load(state)
