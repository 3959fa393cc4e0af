"""PCD: persistent chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.learn.negative.base import NegativeRun, Persistent, moved


@dataclass(frozen=True)
class PCD:
    """Persistent contrastive divergence (Tieleman 2008; SAP): chains that go on, k sweeps an
    update.

    `kernel` may be a schedule, update -> kernel.

    >>> import pgmengine as pgm
    >>> pgm.PCD(k=1, chains=100).chains
    100
    """

    k: int = 1
    chains: int = 100
    kernel: Any = Gibbs()
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_whole(self, "k", "chains")

    def start(self, given: Target, rng: np.random.Generator) -> NegativeRun:
        """See Negative."""
        return Persistent(
            "PCD",
            given,
            self.chains,
            self.kernel,
            rng,
            lambda chains, t, rng: moved(chains, self.k),
        )
