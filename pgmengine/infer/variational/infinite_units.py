"""Mean-field factors of free units with infinitely many values, beside tables of probabilities.

    q(x) ~ h(x) e^(eta x)
    eta = beta (bias + soft evidence + sum over neighbours of J E[x]) + (1 - beta) r

is the best factor of a unit given all others, in its own family, as in factors.py; r is its
reference. To the bound it adds A(eta) - eta E[x] + (1 - beta) r E[x], and the terms of its bias,
soft evidence and couplings at the means. These units have undirected couplings only, because the
bound of directed children takes expectations over tables of their parents.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.evidence.target import Target, times
from pgmengine.infer.variational.lateral import Inside
from pgmengine.infer.variational.saddles import nudged


def infinite_layers(target: Target) -> tuple[str, ...]:
    """Return the layers of free units with infinitely many values that have no arrows."""
    s = target.structure
    return tuple(
        name
        for name, layer in s.layers.items()
        if layer.unit.support is None
        and target.free[name].any()
        and name not in s.directed_layers
        and not s.arrows_from[name]
    )


class Infinite:
    """Factors of the free units of these layers.

    Attributes
    ----------
    mean : layer -> (rows, width), the means of free units and the values of observed ones.
    eta : layer -> (rows, width), the natural parameters.

    Parameters
    ----------
    target : the model under evidence.
    names : the result of `infinite_layers`.
    start : the means of another fixed point, to start from.
    rng : random numbers for a random start; none by default.
    """

    def __init__(
        self,
        target: Target,
        names: tuple[str, ...],
        start: States | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.target = target
        self.eta, self.mean = dict[str, Array](), dict[str, Array]()
        self.inside = dict[str, Inside]()
        for name in names:
            layer = target.structure.layers[name]
            eta = np.zeros((target.rows, layer.width)) + target.reference.get(name, 0.0)
            if rng is not None:
                eta += rng.normal(0, 2, eta.shape)
            self.eta[name] = eta
            mean = layer.unit.mean(eta) if start is None else start[name]
            self.mean[name] = np.where(target.free[name], mean, target.evidence.values[name])
            if any(other == name for _, other in target.structure.meetings[name]):
                self.inside[name] = Inside(target, name)

    def update(self, mean_of: Callable[[str], Array]) -> float:
        """Update every unit by the means of its neighbours; return the largest change of a mean.

        `mean_of` returns the means (rows, width) of other layers.
        """
        moved = 0.0
        for name, old in self.mean.items():
            unit, field = self.target.structure.layers[name].unit, self._field(name, mean_of)
            if name in self.inside:
                eta, mean = self.inside[name].update(field, old)
            else:
                eta = self._tempered(name, field)
                mean = np.where(self.target.free[name], unit.mean(eta), old)
            self.eta[name], self.mean[name] = eta, mean
            moved = max(moved, float(np.abs(mean - old).max(initial=0.0)))
        return moved

    def nudged(self, size: float, rng: np.random.Generator) -> States:
        """Return means at a distance `size` from these means, in the same direction in all rows."""
        layers = self.target.structure.layers
        return {
            name: np.where(
                self.target.free[name],
                layers[name].unit.mean(nudged(layers[name], eta, size, rng)),
                self.mean[name],
            )
            for name, eta in self.eta.items()
        }

    def bound(self) -> Array:
        """Return the part of the bound from entropies, base measures and references, (rows,)."""
        target, total = self.target, np.zeros(self.target.rows)
        for name, eta in self.eta.items():
            x, unit = self.mean[name], target.structure.layers[name].unit
            tilt = (1.0 - target.beta[:, None]) * target.reference.get(name, 0.0)
            own = unit.log_normalizer(eta) + x * (tilt - eta)
            total += np.where(target.free[name], own, 0.0).sum(axis=1)
        return total

    def _field(self, name: str, mean_of: Callable[[str], Array]) -> Array:
        """Return the natural parameters (rows, width) at beta = 1, without couplings inside."""
        target = self.target
        field: Array = np.zeros_like(self.mean[name]) + target.model.bias(name)
        field += target.soft.get(name, 0.0)
        for c in target.structure.undirected:
            for to, other, block in c.blocks(target.model.weight(c)):
                if to == name != other:
                    field += mean_of(other) @ block
        return field

    def _tempered(self, name: str, field: Array) -> Array:
        """Return the natural parameters at beta from those at 1."""
        beta = self.target.beta[:, None]
        return times(beta, field) + (1.0 - beta) * self.target.reference.get(name, 0.0)
