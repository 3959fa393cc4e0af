"""Callbacks: objects called as callback(model, update) -> mapping of monitored names to values, or None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgmengine.methods.exact import Exact
from pgmengine.model import Model


@dataclass(frozen=True, eq=False)
class ExactLogLikelihood:
    """Monitor the exact mean log-likelihood of a data set, in nats a row, every `every` updates.

    >>> import pgmengine as pgm
    >>> monitor = pgm.ExactLogLikelihood({"v": [[0, 1]]}, name="train")
    >>> sorted(monitor(pgm.rbm(2, 1, rng=0), 0))
    ['train']
    """

    data: Mapping[str, Any]
    name: str = "log_likelihood"
    every: int = 100

    def __call__(self, model: Model, update: int) -> Mapping[str, float] | None:
        """The mean of log p(row), or None between."""
        if update % self.every:
            return None
        result = Exact().run(model.given(self.data), ("log_prob",))
        return {self.name: float(result.log_prob.mean())}
