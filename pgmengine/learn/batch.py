"""What one update works on: a mini-batch of rows, and the gradient that its phases add up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.graph.evidence import Evidence
from pgmengine.graph.model import Model
from pgmengine.graph.queries import EvidencePattern
from pgmengine.graph.structure import Structure
from pgmengine.graph.target import Target
from pgmengine.graph.weights import plus
from pgmengine.infer.prepared import as_method
from pgmengine.infer.splitting import answer
from pgmengine.learn.settled import at_means


class Gradient(dict[str, Any]):
    """Parameter -> array; what is known of the phases besides.

    means: makes E[x | data] (width,) of undirected layers, for who wants them.
    idle: names of the parameters that act on nothing that is learned; theirs is 0.
    """

    means: Callable[[], States]
    idle: tuple[str, ...] = ()

    def copy(self) -> Gradient:
        """One that can be changed."""
        out = Gradient(self)
        out.means, out.idle = self.means, self.idle
        return out


@dataclass(frozen=True, eq=False)
class Batch:
    """A mini-batch as the model phase sees it, and its rows' weights, 1 on average."""

    given: Target  # the rows with only the `given` layers observed; one row when there are none
    weights: Array  # (rows,)
    complete: Callable[[], States]  # posterior draws of the unobserved units, (rows, width)
    outward: tuple[
        tuple[str, ...], tuple[str, ...]
    ]  # layers with data; the others by their distance from these

    @property
    def rows(self) -> int:
        """Rows of data."""
        return len(self.weights)

    @property
    def mass(self) -> float:
        """The rows' weight in both phases: 1, or near it where weights differ."""
        return float(self.weights.sum()) / self.rows

    @property
    def alike(self) -> bool:
        """Whether the model phase is the same for all rows."""
        return self.given.rows != self.rows


class GradientSum:
    """Adds up a gradient: points at which to take that of the log density, and gradients that are
    known as arrays.
    """

    def __init__(self, model: Model, precision: type) -> None:
        self.model, self.precision = model, precision
        self.x: list[States] = []
        self.weights: list[Array] = []
        self.known: list[tuple[Any, float]] = []
        self.mass = 0.0  # total weight so far
        self.settled: tuple[
            str, ...
        ] = ()  # layers that the states which follow leave to their means

    def points(self, x: States, weights: Array) -> None:
        """Add sum over rows of weight * d log_density at x."""
        x = at_means(self.model, x, self.settled) if self.settled else x
        self.x.append({name: value.astype(self.precision, copy=False) for name, value in x.items()})
        self.weights.append(weights.astype(self.precision))
        self.mass += float(weights.sum())

    def mean(self, x: States, mass: float) -> None:
        """Add mass * the mean over rows of d log_density at x."""
        rows = len(next(iter(x.values())))
        self.points(x, np.full(rows, mass / rows))

    def arrays(self, gradient: Any, factor: float, mass: float) -> None:
        """Add factor * gradient, which stands for the total weight `mass`."""
        self.known.append((gradient, factor))
        self.mass += mass

    def total(self) -> Gradient:
        """The sum."""
        out = Gradient()
        if self.x:
            x = {name: np.concatenate([part[name] for part in self.x]) for name in self.x[0]}
            out.update(self.model.gradient(x, np.concatenate(self.weights)))
        for gradient, factor in self.known:
            for name, value in gradient.items():
                out[name] = plus(out[name], value, factor) if name in out else factor * value
        return out

    def means(self) -> Callable[[], States]:
        """Makes E[x] of undirected layers under what has been added so far: after the data phase
        E[x | data].
        """
        return partial(
            _means,
            self.model.structure,
            list(zip(self.x, self.weights, strict=True)),
            list(self.known),
            self.mass,
        )


def _means(
    s: Structure, points: list[tuple[States, Array]], known: list[tuple[Any, float]], mass: float
) -> States:
    """The weighted mean of points and of gradients that are known as arrays, layer -> (width,); {}
    if nothing weighs.
    """
    out = {}
    for name in s.layers if mass else ():
        if name not in s.directed_layers:
            mean = sum((w @ x[name] for x, w in points), np.zeros(1))
            mean = mean + sum((f * np.ravel(g[f"{name}.bias"]) for g, f in known), np.zeros(1))
            out[name] = mean / mass
    return out


def only(target: Target, names: Sequence[str]) -> Target:
    """The target with evidence on the named layers only; a single row when that leaves all rows
    alike.
    """
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


def add_expected(
    method: Any,
    target: Target,
    weights: Array,
    total: GradientSum,
    rng: np.random.Generator,
    executor: Executor | None = None,
) -> Any:
    """Add sum over rows of weight * E[d log_density | row], as a method knows it; returns its Q if
    it has one.

    One that says `expect` adds it itself; one that says `gradient` takes the weights; any other
    answers for rows that weigh, on an executor if there is one.
    """
    if hasattr(method, "expect"):
        return method.expect(target, weights, total)
    if hasattr(method, "gradient"):
        total.arrays(method.gradient(target, weights), 1.0, float(weights.sum()))
    else:
        question = as_method(method).prepare(replace(target, weights=weights), ("gradient",))
        result = answer(executor, question, rng)
        total.arrays(result.gradient, 1.0, float(weights.sum()))
    return None
