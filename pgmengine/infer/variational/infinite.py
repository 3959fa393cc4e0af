"""Mean-field factors of free units with infinitely many values, beside tables of probabilities.

    q(x) ~ h(x) e^(eta x),  eta = beta (bias + hint + sum over neighbours of J E[x]) + (1 - beta) r

is the best factor of a unit given all others, in its own family, as in factors.py; r is its
reference. It adds A(eta) - eta E[x] + (1 - beta) r E[x] to the bound, beside the terms of its bias,
hint and couplings at the means. These units have undirected couplings only: the bound of directed
children has expectations over tables of their parents.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.graph.target import Target, times


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
    start : the means of another fixed point, to start from.
    rng : random numbers for random parameters to start from.
    """

    def __init__(
        self, target: Target, start: States | None = None, rng: np.random.Generator | None = None
    ) -> None:
        self.target = target
        self.eta, self.mean = dict[str, Array](), dict[str, Array]()
        for name in infinite_layers(target):
            layer = target.structure.layers[name]
            eta = np.zeros((target.rows, layer.width)) + target.reference.get(name, 0.0)
            if rng is not None:
                eta += rng.normal(0, 2, eta.shape)
            self.eta[name] = eta
            mean = layer.unit.mean(eta) if start is None else start[name]
            self.mean[name] = np.where(target.free[name], mean, target.evidence.values[name])

    def update(self, mean_of: Callable[[str], Array]) -> float:
        """Update every unit by the means of its neighbours; return the largest change of a mean.

        `mean_of` returns the means (rows, width) of other layers.
        """
        moved = 0.0
        for name, old in self.mean.items():
            unit, s = self.target.structure.layers[name].unit, self.target.structure
            inside = any(other == name for _, other in s.meetings[name])
            every = np.arange(old.shape[1])
            # Units that are coupled move one after the other, so that the bound never decreases.
            for columns in every[:, None] if inside else [every]:
                eta = self._natural(name, mean_of)[:, columns]
                free = self.target.free[name][:, columns]
                mean = self.mean[name].copy()
                mean[:, columns] = np.where(free, unit.mean(eta), mean[:, columns])
                self.eta[name][:, columns], self.mean[name] = eta, mean
            moved = max(moved, float(np.abs(self.mean[name] - old).max(initial=0.0)))
        return moved

    def bound(self) -> Array:
        """Return what entropies, base measures and references add to the bound, (rows,)."""
        target, total = self.target, np.zeros(self.target.rows)
        for name, eta in self.eta.items():
            x, unit = self.mean[name], target.structure.layers[name].unit
            tilt = (1.0 - target.beta[:, None]) * target.reference.get(name, 0.0)
            own = unit.log_normalizer(eta) + x * (tilt - eta)
            total += np.where(target.free[name], own, 0.0).sum(axis=1)
        return total

    def _natural(self, name: str, mean_of: Callable[[str], Array]) -> Array:
        """Return the natural parameters (rows, width) given the means of all other units."""
        target = self.target
        field: Array = np.zeros_like(self.mean[name]) + target.model.bias(name)
        field += target.soft.get(name, 0.0)
        for c in target.structure.undirected:
            for to, other, block in c.blocks(target.model.weight(c)):
                if to == name:
                    field += mean_of(other) @ block
        beta = target.beta[:, None]
        return times(beta, field) + (1.0 - beta) * target.reference.get(name, 0.0)
