"""Statistics of a phase of learning, and the gradient, their difference.

The gradient of the log-likelihood is E[d log_density | data] - E[d log_density | given]. A phase
gives its expectation as weighted points, at which the log density is differentiated, or as arrays.
Points of both phases are kept until their difference is asked for: one product of the stacked rows
is faster than two, and rounds once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from pgmengine.base.types import Array, Params, States, Weight
from pgmengine.declare.model import Model
from pgmengine.model.couplings import weighted_sum
from pgmengine.model.structure import Structure
from pgmengine.model.weights import plus


@dataclass(eq=False)
class Statistics:
    """A weighted sum of d log_density / d parameters, held as points and as arrays.

    `mass` is the total weight.
    """

    precision: type
    mass: float = 0.0
    _points: list[tuple[States, Array]] = field(default_factory=list)
    _arrays: list[tuple[Params, float]] = field(default_factory=list)

    def points(self, x: States, weights: Array) -> None:
        """Add the sum over rows of weight * d log_density at x."""
        to = self.precision
        x = {name: value.astype(to, copy=False) for name, value in x.items()}
        self._points.append((x, weights.astype(to)))
        self.mass += float(weights.sum())

    def arrays(self, gradient: Params, factor: float, mass: float) -> None:
        """Add factor * gradient, a sum of terms with the total weight `mass`."""
        self._arrays.append((gradient, factor))
        self.mass += mass

    def __sub__(self, other: Statistics) -> Statistics:
        return Statistics(
            self.precision,
            self.mass - other.mass,
            self._points + [(x, -weights) for x, weights in other._points],
            self._arrays + [(array, -factor) for array, factor in other._arrays],
        )

    def total(self, model: Model) -> dict[str, Weight]:
        """Return the sum at the parameters of a model, parameter by parameter."""
        out: dict[str, Weight] = {}
        if self._points:
            found = _shared(model, self._points) or _stacked(model, self._points)
            out = model.in_parameters(found)
        for gradient, factor in self._arrays:
            for name, value in model.in_parameters(gradient).items():
                out[name] = plus(out[name], value, factor) if name in out else factor * value
        return out

    def means(self, s: Structure) -> States:
        """Return E[x] of undirected layers, layer -> (width,); {} if nothing has a weight."""
        out = {}
        for name in s.layers if self.mass else ():
            if name not in s.directed_layers:
                mean = sum((w @ x[name] for x, w in self._points), np.zeros(1))
                key = f"{name}.bias"
                biases = (f * np.ravel(g[key]) for g, f in self._arrays if key in g)
                out[name] = (mean + sum(biases, np.zeros(1))) / self.mass
        return out


Points: TypeAlias = list[tuple[States, Array]]


def _stacked(model: Model, points: Points) -> dict[str, Weight]:
    """Return the sum of weight * d log_density over points, by one product of all rows."""
    states, weights = zip(*points, strict=True)
    x = {name: np.concatenate([each[name] for each in states]) for name in states[0]}
    return model.gradient(x, np.concatenate(weights))


def _shared(model: Model, points: Points) -> dict[str, Weight] | None:
    """Return the sum if all points have the same values of some layer, else None.

    The product of this layer with another one is then computed once, with the sum of the values of
    the other. The result is None for models with arrows or tables, which are not multilinear.
    """
    s, (first, _) = model.structure, points[0]
    common = {name for name in first if all(x[name] is first[name] for x, _ in points)}
    if len(points) < 2 or not common or s.tables or s.directed_layers:
        return None
    total = np.sum([weights for _, weights in points], axis=0)
    heavy = {
        name: [weights[:, None] * x[name] for x, weights in points]
        for name in first
        if name not in common
    }
    out: dict[str, Weight] = {}
    for name in first:
        shape = model.params[f"{name}.bias"].shape
        each = (weighted_sum(weights, x[name]) for x, weights in points)
        found = weighted_sum(total, first[name]) if name in common else sum(each)
        out[f"{name}.bias"] = np.reshape(found, shape)
    for c in s.couplings:
        weight = model.weight(c)
        if c.a in common or c.b in common:
            xa = first[c.a] if c.a in common else np.sum(heavy[c.a], axis=0)
            xb = first[c.b] if c.b in common else np.sum(heavy[c.b], axis=0)
            if c.a in common and c.b in common:
                xb = total[:, None] * xb
        else:
            xa = np.concatenate([x[c.a] for x, _ in points])
            xb = np.concatenate(heavy[c.b])
        out[f"{c.key}.weight"] = c.statistics(weight, xa, xb)
    return out


class Gradient(dict[str, Any]):
    """The gradient of an update, parameter -> array.

    Attributes
    ----------
    data : the statistics of the data phase.
    idle : parameter -> mask of its stored numbers that stay as they are, because they act on given
        units only, or because no row informs them; their gradient is 0.
    """

    def __init__(
        self, values: Params, data: Statistics, idle: Mapping[str, Array] | None = None
    ) -> None:
        super().__init__(values)
        self.data, self.idle = data, idle or {}

    def replaced(self, values: Mapping[str, Weight]) -> Gradient:
        """Return the gradient with some arrays replaced."""
        return Gradient({**self, **values}, self.data, self.idle)
