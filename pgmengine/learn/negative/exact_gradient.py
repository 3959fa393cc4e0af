"""ExactGradient: the model expectation by enumeration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgmengine.graph.target import Target
from pgmengine.infer.exact.method import Exact
from pgmengine.learn.batch import Batch, GradientSum, add_expected
from pgmengine.learn.negative.base import NegativeRun


@dataclass(frozen=True)
class ExactGradient:
    """The model expectation by enumeration; for `given` layers that of each row (system 1, eqs.
    25-28).

    >>> import pgmengine as pgm
    >>> pgm.ExactGradient()
    ExactGradient(max_bits=25)
    """

    max_bits: float = 25
    precision: ClassVar[type] = np.float64

    def start(self, given: Target, rng: np.random.Generator) -> NegativeRun:
        """See Negative."""
        return _Run(Exact(self.max_bits))


class _Run(NegativeRun):
    def __init__(self, method: Exact) -> None:
        self.method = method

    def add(self, total: GradientSum, batch: Batch, update: int, rng: np.random.Generator) -> None:
        """See NegativeRun."""
        weights = np.array([batch.mass]) if batch.alike else batch.weights / batch.rows
        add_expected(self.method, batch.given, -weights, total, rng)
