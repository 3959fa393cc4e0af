"""Mean field inside a layer whose units are coupled with each other.

    eta_u = beta (field_u + sum_v W_uv E[x_v]) + (1 - beta) reference_u,    E[x_u] = A'(eta_u)

Units are updated one after another, so that the bound never decreases. The compiled round
(lateral.h) supports units of up to MOST_STATES states and units on [-1, 1]. Other units are updated
by `Inside.plain`, the reference implementation.
"""

from __future__ import annotations

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.threads import parts
from pgmengine.evidence.target import Target, times
from pgmengine.model.couplings import MIN_PRODUCTS_A_THREAD
from pgmengine.model.weights import add_rows, count, is_sparse
from pgmengine.units.unit import Draw, Unit


def compiled(unit: Unit) -> bool:
    """Return whether the compiled round supports the units."""
    if unit.support is None:
        return unit.draw is Draw.INTERVAL
    return max(len(unit.support), unit.width) <= _kernels.MOST_STATES


class Inside:
    """The undirected couplings inside a layer, with the natural parameters of its units.

    Parameters
    ----------
    target : the model under evidence.
    name : the layer.
    quiet : smaller changes of means are not passed on to other units.
    """

    def __init__(self, target: Target, name: str, quiet: float = 0.0) -> None:
        self.layer, self.quiet = target.structure.layers[name], quiet
        weights: list[Weight] = [
            target.model.weight(c) for c, other in target.structure.meetings[name] if other == name
        ]
        # A sum of one weight would be a copy.
        self.weight: Weight = weights[0] if len(weights) == 1 else sum(weights)
        self.free = np.ascontiguousarray(target.free[name]).view(np.uint8)
        self.reference = np.zeros(self.layer.width) + target.reference.get(name, 0.0)
        self.beta = np.ascontiguousarray(target.beta, dtype=np.float64)
        self.parts = parts(float(count(self.weight)) * target.rows, MIN_PRODUCTS_A_THREAD)
        self.eta = np.full((target.rows, self.layer.width), np.nan)
        self.stale = np.ones(self.free.shape, dtype=np.uint8)
        self.field = np.full(self.eta.shape, np.nan)
        self._describe()

    def update(self, field: Array, mean: Array) -> tuple[Array, Array]:
        """Update every unit once; return the natural parameters and new means, (rows, width).

        Parameters
        ----------
        field : (rows, width), the natural parameters at beta = 1 without these couplings.
        mean : (rows, width), the means after the last update, or the first means.
        """
        if not compiled(self.layer.unit):
            return self.plain(field, mean)
        changed = self.layer.shaped(field != self.field)
        self.stale |= changed.any(axis=-1) if changed.ndim > 2 else changed
        self.field, new = np.array(field, dtype=np.float64, order="C"), _copy(mean)
        _kernels.update_inside(
            self.value,
            self.log_base,
            self.entries,
            self.start,
            self.column,
            self.field,
            self.beta,
            self.reference,
            self.free,
            self.stale,
            new,
            self.eta,
            self.quiet,
            self.parts,
        )
        return self.eta, new

    def plain(self, field: Array, mean: Array) -> tuple[Array, Array]:
        """Return the same as `update` in Python, for every unit type and without `quiet`."""
        layer, beta, mean = self.layer, self.beta[:, None], _copy(mean)
        u = field + mean @ self.weight
        eta = np.zeros_like(u)
        for index in range(layer.size):
            columns = layer.columns(np.array([index]))
            eta[:, columns] = times(beta, u[:, columns]) + (1 - beta) * self.reference[columns]
            one = eta[:, columns] if layer.unit.width > 1 else eta[:, index]
            new: Array = layer.unit.mean(one).reshape(len(u), -1)
            new = np.where(self.free[:, [index]] > 0, new, mean[:, columns])
            add_rows(u, new - mean[:, columns], self.weight, columns)
            mean[:, columns] = new
        return eta, mean

    def _describe(self) -> None:
        """Set the values of the units and the entries of the weight for the compiled round."""
        unit, self.value, self.log_base = self.layer.unit, None, None
        if unit.support is not None:
            values = np.asarray(unit.support, dtype=np.float64)
            self.value = np.ascontiguousarray(values.reshape(len(values), -1))
            base = 0.0 if unit.log_base is None else unit.log_base
            self.log_base = np.zeros(len(values)) + base
        self.start, self.column = None, None
        entries: Array = self.weight
        if is_sparse(self.weight):
            rows = self.weight.tocsr()
            self.start = np.asarray(rows.indptr, dtype=np.int64)
            self.column, entries = np.asarray(rows.indices, dtype=np.int32), rows.data
        self.entries = np.ascontiguousarray(entries, dtype=np.float64).reshape(-1)


def _copy(mean: Array) -> Array:
    return np.array(mean, dtype=np.float64, order="C")
