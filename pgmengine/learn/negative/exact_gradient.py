"""ExactGradient: the model expectation by enumeration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgmengine.graph.target import Target
from pgmengine.infer.exact.exact import Exact
from pgmengine.learn.batch import Batch
from pgmengine.learn.statistics import Statistics
from pgmengine.protocols import ModelPhase


@dataclass(frozen=True)
class ExactGradient:
    """The exact model expectation, by enumeration; with `given` layers, of each row.

    For small models, and for layers such as labels whose states are few (system 1, eqs. 25-28).

    Parameters
    ----------
    max_bits : log2 of the number of states that may be enumerated.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.ExactGradient()
    ExactGradient(max_bits=25)
    """

    max_bits: float = 25
    precision: ClassVar[type] = np.float64

    def start(self, given: Target, rng: np.random.Generator) -> ModelPhase:
        """Start: nothing is kept from update to update but the question."""
        return _Phase(Exact(self.max_bits), given)


class _Phase(ModelPhase):
    def __init__(self, method: Exact, given: Target) -> None:
        self.method, self.given = method, given

    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Enumerate each row, or the one that all rows share."""
        target, weights = batch.given, batch.weights / len(batch.weights)
        if target is None:
            target, weights = self.given.with_model(batch.model), np.array([batch.weights.mean()])
        out = batch.nothing()
        self.method.expect(target, weights, out, rng)
        return out
