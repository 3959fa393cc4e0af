"""ExactGradient: the model expectation by enumeration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pgmengine.base.checks import check_limit, check_truth
from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.enumeration.product_mixture import Mixture, mixture_of
from pgmengine.infer.exact.exact import Exact
from pgmengine.learn.contracts import ModelPhase
from pgmengine.learn.phases.batch import Batch
from pgmengine.learn.phases.statistics import Statistics

# The smallest number of parameters with which matrix products take most of an update.
MIN_LARGE_PARAMETERS = 10_000


@dataclass(frozen=True)
class ExactGradient:
    """The exact model expectation, by enumeration; with `given` layers, of each row.

    Use it for small models, and for layers with few states such as labels (Yokoyama et al. 2019,
    equations 25 to 28).

    Parameters
    ----------
    max_bits : log2 of the number of states that may be enumerated.
    single : whether rows with few states each (`given` layers, complete) are computed in single
        precision, at twice the speed; by default with at least 10,000 parameters, because smaller
        models gain nothing. Everything else is computed in double precision.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.ExactGradient()
    ExactGradient(max_bits=25, single=None)
    """

    max_bits: float = 25
    single: bool | None = None
    precision: ClassVar[type] = np.float64

    def __post_init__(self) -> None:
        check_limit(self, "max_bits")
        if self.single is not None:
            check_truth(self, "single")

    def start(self, given: Target, rng: np.random.Generator) -> ModelPhase:
        """Start the phase; only the prepared question is kept from update to update."""
        numbers = sum(np.size(value) for value in given.model.params.values())
        single = numbers >= MIN_LARGE_PARAMETERS if self.single is None else self.single
        few = mixture_of(given, np.float32 if single else np.float64)
        whole = _Phase(Exact(self.max_bits), given)
        if few is not None and given.rows > 1 and few.cover.bits <= self.max_bits:
            return _MixturePhase(few, whole)
        return whole


class _Phase(ModelPhase):
    def __init__(self, method: Exact, given: Target) -> None:
        self.method, self.given = method, given

    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Enumerate each row, or the single row of the model phase."""
        out = batch.nothing()
        self.method.expect(*self._rows(batch), out, rng)
        return out

    def exact(self, batch: Batch) -> tuple[Statistics, float]:
        """Return the expectation with the mean log normaliser."""
        target, weights = self._rows(batch)
        question = self.method.prepare(replace(target, weights=weights), ("log_z", "gradient"))
        result, out = question.run(), batch.nothing()
        out.arrays(result.gradient, 1.0, float(weights.sum()))
        return out, float(weights @ result.log_z)

    def _rows(self, batch: Batch) -> tuple[Target, Array]:
        """Return the rows of the model phase, and their weights."""
        if batch.given is not None:
            return batch.given, batch.weights / len(batch.weights)
        return self.given.with_model(batch.model), np.array([batch.weights.mean()])


class _MixturePhase(ModelPhase):
    """The phase of rows of one evidence pattern with few states each.

    `whole` answers where the log normaliser is wanted, too.
    """

    def __init__(self, mixture: Mixture, whole: _Phase) -> None:
        self.mixture, self.precision, self.whole = mixture, mixture.precision, whole

    def exact(self, batch: Batch) -> tuple[Statistics, float]:
        """Return the expectation with the mean log normaliser."""
        return self.whole.exact(batch)

    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Compute all states of all rows in one array."""
        assert batch.given is not None
        out = batch.nothing()
        self.mixture.expect(batch.given, batch.weights / len(batch.weights), out)
        return out
