"""A mini-batch as the model phase sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.graph.evidence import Evidence
from pgmengine.graph.model import Model
from pgmengine.graph.queries import EvidencePattern
from pgmengine.graph.target import Target
from pgmengine.learn.settled import at_means
from pgmengine.learn.statistics import Statistics


@dataclass(frozen=True, eq=False)
class Batch:
    """A mini-batch as the model phase sees it.

    Attributes
    ----------
    model : the model at the present parameters.
    weights : (rows,) weights of the rows, 1 on average over all data.
    given : the rows with only the `given` layers observed; None where no layer is given, so that
        the model phase is the same for all rows.
    complete : draws the unobserved units of each row from the posterior, layer -> (rows, width).
    outward : the layers with data; the other layers by their distance from these.
    precision : precision of the statistics.
    settled : layers that chains leave out, whose conditional means take their place.
    """

    model: Model
    weights: Array
    given: Target | None
    complete: Callable[[], States]
    outward: tuple[tuple[str, ...], tuple[str, ...]]
    precision: type
    settled: tuple[str, ...] = ()

    def nothing(self) -> Statistics:
        """Return statistics without anything in them."""
        return Statistics(self.precision)

    def at_rows(self, x: States) -> Statistics:
        """Return the mean over rows of d log_density at x, a state for each row of the batch."""
        return self._at(x, self.weights / len(self.weights))

    def mean(self, x: States) -> Statistics:
        """Return the mean of d log_density over states x, which stands for every row."""
        count = len(next(iter(x.values())))
        return self._at(x, np.full(count, self.mass / count))

    @property
    def mass(self) -> float:
        """The mean weight of the rows: 1, or near it where weights differ."""
        return float(self.weights.sum()) / len(self.weights)

    def _at(self, x: States, weights: Array) -> Statistics:
        out = Statistics(self.precision)
        out.points(at_means(self.model, x, self.settled) if self.settled else x, weights)
        return out


def only(target: Target, names: Sequence[str]) -> Target:
    """Return the target with evidence on the named layers only, one row if none."""
    s, e = target.structure, target.evidence
    keep = set(names)
    nothing = {
        n: np.broadcast_to(np.zeros(layer.width), (e.rows, layer.width))
        for n, layer in s.layers.items()
    }
    unseen = {
        n: np.broadcast_to(np.zeros(layer.size, dtype=bool), (e.rows, layer.size))
        for n, layer in s.layers.items()
    }
    values = {n: e.values[n] if n in keep else nothing[n] for n in s.layers}
    seen = {n: e.observed[n] if n in keep else unseen[n] for n in s.layers}
    pattern = EvidencePattern(s, e.rows, seen, target.cut)
    out = replace(target, evidence=Evidence(e.has_rows, values, pattern))
    return out if keep else out.take(np.zeros(1, dtype=int))
