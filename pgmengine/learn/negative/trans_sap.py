"""TransSAP: persistent chains with tempered transitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.engine.chains import Chains
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.infer.sampling.schedules import Linear, fixed, ladder
from pgmengine.infer.sampling.tempered_transitions import excursion
from pgmengine.infer.sampling.travels import Travels
from pgmengine.learn.negative.base import NegativeRun, Persistent, State, moved, with_ladder
from pgmengine.learn.schedules import at


@dataclass(frozen=True)
class TransSAP:
    """Stochastic approximation with tempered transitions (system 3, section 7).

    An update makes k sweeps. Every `every` updates each chain makes one excursion over `betas`,
    accepted or not as a whole.

    >>> import pgmengine as pgm
    >>> pgm.TransSAP(every=50).k
    1
    """

    betas: Any = Linear(20)
    every: int = 1
    k: int = 1
    chains: int = 100
    kernel: Any = Gibbs()
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_whole(self, "every", "chains")
        check_whole(self, "k", least=0)
        object.__setattr__(self, "betas", fixed(self.betas))

    def start(self, given: Target, rng: np.random.Generator) -> NegativeRun:
        """See Negative."""
        return _Run(self, given, rng)


class _Run(Persistent):
    travels: Travels

    def __init__(self, settings: TransSAP, given: Target, rng: np.random.Generator) -> None:
        super().__init__("TransSAP", given, settings.chains, settings.kernel, rng, self._moved)
        self.settings = settings
        self.betas = ladder(settings.betas, self.one, at(settings.kernel, 0), rng)
        self.travels = Travels("TransSAP", len(self.betas), settings.chains)

    def _moved(self, chains: Chains, update: int, rng: np.random.Generator) -> None:
        moved(chains, self.settings.k)
        if (update + 1) % self.settings.every == 0:
            taken = excursion(chains, self.betas, rng)
            self.travels.excursions(len(taken), int(np.count_nonzero(taken)))

    def state(self) -> State:
        """The chains' states, the travels, and the ladder, perhaps an earlier model's."""
        return super().state() | {"/betas": self.betas} | self.travels.state()

    def load(self, state: State) -> None:
        """See NegativeRun."""
        super().load(state)
        self.betas = np.array(with_ladder(self.settings, self.betas, state)["/betas"])
        self.travels.load(state)
