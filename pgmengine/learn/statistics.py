"""Statistics of a phase of learning, and the gradient, their difference.

The gradient of the log-likelihood is E[d log_density | data] - E[d log_density | given]. A phase
knows its expectation as weighted points, at which the log density is to be differentiated, or as
arrays. Points of both phases are kept until their difference is asked for: one product of the
stacked rows is faster than two, and rounds once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pgmengine.base.types import Array, States, Weight
from pgmengine.graph.model import Model
from pgmengine.graph.structure import Structure
from pgmengine.graph.weights import plus
from pgmengine.protocols import Params


@dataclass(eq=False)
class Statistics:
    """A weighted sum of d log_density / d parameters, of points and of arrays.

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
        """Add factor * gradient, which stands for the total weight `mass`."""
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
            states, weights = zip(*self._points, strict=True)
            x = {name: np.concatenate([each[name] for each in states]) for name in states[0]}
            out = model.gradient(x, np.concatenate(weights))
        for gradient, factor in self._arrays:
            for name, value in gradient.items():
                out[name] = plus(out[name], value, factor) if name in out else factor * value
        return out

    def means(self, s: Structure) -> States:
        """Return E[x] of undirected layers, layer -> (width,); {} if nothing has a weight."""
        out = {}
        for name in s.layers if self.mass else ():
            if name not in s.directed_layers:
                mean = sum((w @ x[name] for x, w in self._points), np.zeros(1))
                biases = (f * np.ravel(g[f"{name}.bias"]) for g, f in self._arrays)
                out[name] = (mean + sum(biases, np.zeros(1))) / self.mass
        return out


class Gradient(dict[str, Any]):
    """The gradient of an update, parameter -> array.

    Attributes
    ----------
    data : the statistics of the data phase.
    idle : parameter -> mask of its stored numbers that act on nothing that is learned; their
        gradient is 0.
    """

    def __init__(
        self, values: Params, data: Statistics, idle: Mapping[str, Array] | None = None
    ) -> None:
        super().__init__(values)
        self.data, self.idle = data, idle or {}

    def replaced(self, values: Mapping[str, Weight]) -> Gradient:
        """Return the gradient with some of its arrays replaced."""
        return Gradient({**self, **values}, self.data, self.idle)
