"""PseudoGradient: the gradient of the log pseudo-likelihood, without a normaliser.

The pseudo-likelihood of a row is the product over its units of p(x_i | all other units). With the
log density f,

    log PL(x) = sum over units i of [f(x) - log sum over states k of exp f(x with x_i = k)],

so that its gradient is the sum over i of (T(x) - E[T | all but x_i]), where T is the gradient of f.
The data phase gives T(x). The model phase is therefore

    T(x) + sum over i of (E[T | all but x_i] - T(x)),

and f(x) - log PL(x) stands in the place of the log normaliser. As T is linear in each unit, a
coupling needs only the conditional means m: x_a x_b' becomes m_a x_b' + x_a m_b' - x_a x_b'. A
table counts its entries at all states of one unit at a time, with their probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, States, Weight
from pgmengine.evidence.target import Target
from pgmengine.learn.contracts import ModelPhase
from pgmengine.learn.phases.batch import Batch
from pgmengine.learn.phases.statistics import Statistics
from pgmengine.model.weights import plus

# Entries of tables, over rows, axes and states, that are computed at a time.
ENTRIES_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class PseudoGradient:
    """The exact gradient of the log pseudo-likelihood, in place of that of the likelihood.

    Use it for Ising and Potts models, and other undirected models of observed units with finitely
    many states, that are too large for an exact normaliser. An update costs about as much as a
    sweep, whatever the width of the graph, and nothing is random. The estimate is consistent:
    with more rows it approaches the true parameters, with a larger error than maximum likelihood.
    It is also known as the composite likelihood of single units, and as node-wise logistic
    regression. `fit` takes LBFGS with it by default, because the objective is concave.

    With `given` units, the product is over the other units. Every row has to observe all units:
    hidden units have no pseudo-likelihood of their own, and are refused.

    Raises
    ------
    PgmError when learning starts, for directed layers and units with infinitely many values that
    are not given, and for a row that leaves a unit out.

    References
    ----------
    Besag (1975), Statistical analysis of non-lattice data.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> v = b.layer("v", pgm.Spin(), 3)
    >>> b.couple("v", "v")
    >>> x = [[1, 1, -1], [-1, -1, 1], [1, 1, 1], [-1, 1, 1], [1, -1, -1]]
    >>> steps = pgm.LBFGS(l2=1.0)
    >>> phase = pgm.PseudoGradient()
    >>> f = pgm.fit(b.build(rng=0), {"v": x}, phase, optimizer=steps, progress=False)
    >>> f.model.params["v-v.weight"][0].round(2)
    array([ 0.  ,  0.19, -0.52])
    """

    precision: ClassVar[type] = np.float64

    def start(self, given: Target, rng: np.random.Generator) -> ModelPhase:
        """Start the phase, which keeps nothing from update to update."""
        s = given.structure
        if s.arrows:
            raise PgmError(
                f"PseudoGradient needs undirected couplings or tables; {s.arrows[0].key!r} is an "
                "arrow"
            )
        for name, layer in s.layers.items():
            if layer.unit.support is None and given.free[name].any():
                raise PgmError(
                    f"PseudoGradient needs units with finitely many states, or given ones; "
                    f"{layer.title} has {layer.unit!r} units"
                )
        return _Phase()


class _Phase(ModelPhase):
    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Return the expectations with one unit at a time free."""
        return self.exact(batch)[0]

    def exact(self, batch: Batch) -> tuple[Statistics, float]:
        """Return the statistics, and the mean of log density - log pseudo-likelihood."""
        rows = _Rows(batch)
        weights = batch.weights / len(batch.weights)
        out = batch.nothing()
        out.arrays(rows.gradient(weights), 1.0, float(weights.sum()))
        density = rows.target.model.flat_log_density(rows.x)
        return out, float(weights @ (density - rows.log_pseudo_likelihood()))


class _Rows:
    """Complete rows, and the conditional distribution of each unit given all others."""

    def __init__(self, batch: Batch) -> None:
        assert batch.data is not None
        self.target = target = batch.data.with_model(batch.model)
        for name, layer in target.structure.layers.items():
            if target.free[name].any():
                row, index = np.argwhere(target.free[name])[0]
                raise PgmError(
                    f"PseudoGradient: {layer.place(int(index), int(target.row_numbers[row]))} is "
                    "not observed, expected complete rows"
                )
        self.x: States = target.evidence.values
        s = target.structure
        # Layer -> (rows, size) bool: the units of which the product is taken.
        self.scored = {
            name: np.ones((target.rows, layer.size), dtype=bool)
            if batch.given is None
            else batch.given.free[name]
            for name, layer in s.layers.items()
        }
        self.logs = {
            name: layer.unit.log_weights(layer.shaped(target.outer_field(self.x, name)))
            for name, layer in s.layers.items()
            if layer.unit.support is not None
        }
        self.entry = s.table_index.entries(target.states) if s.tables else None
        self._add_tables()
        for logs in self.logs.values():
            logs -= log_sum(logs)[..., None]

    def _axes(self) -> list[tuple[str, Array, Array]]:
        """Return (layer, units of the layer, axes of these units) for all layers in tables."""
        s, index = self.target.structure, self.target.structure.table_index
        out = []
        for name, layer in s.layers.items():
            mine = index.unit - s.first_unit[name]
            axes = np.flatnonzero((mine >= 0) & (mine < layer.size))
            axes = axes[np.argsort(mine[axes], kind="stable")]
            if len(axes):
                out.append((name, mine[axes], axes))
        return out

    def _blocks(self, axes: Array, count: int) -> list[slice]:
        """Return blocks of rows whose entries at all states fit into memory."""
        step = max(1, ENTRIES_AT_ONCE // (len(axes) * count))
        return [slice(i, i + step) for i in range(0, self.target.rows, step)]

    def _entries(self, axes: Array, count: int, rows: slice) -> Array:
        """Return the entries (rows, axes, states) at all states of the unit of each axis."""
        index = self.target.structure.table_index
        assert self.entry is not None
        states = self.target.states[rows][:, index.unit[axes]]
        base = self.entry[rows][:, index.table[axes]] - states * index.stride[axes]
        found: Array = base[..., None] + np.arange(count) * index.stride[axes][:, None]
        return found

    def _add_tables(self) -> None:
        """Add the terms of tables to the log weights of the states of each unit."""
        terms = self.target.model.table_terms
        for name, units, axes in self._axes() if self.entry is not None else []:
            first = np.flatnonzero(np.diff(units, prepend=-1))
            for rows in self._blocks(axes, count := self.logs[name].shape[-1]):
                found = terms.take(self._entries(axes, count, rows))
                self.logs[name][rows, units[first]] += np.add.reduceat(found, first, axis=1)

    def log_pseudo_likelihood(self) -> Array:
        """Return the log pseudo-likelihood of each row, (rows,)."""
        total = np.zeros(self.target.rows)
        for name, logs in self.logs.items():
            states = self.target.structure.layers[name].states(self.x[name])
            found = np.take_along_axis(logs, states[..., None], axis=-1)[..., 0]
            total += np.where(self.scored[name], found, 0.0).sum(axis=1)
        return total

    def gradient(self, weights: Array) -> dict[str, Weight]:
        """Return T(x) + sum over units of (E[T | others] - T(x)), summed over weighted rows."""
        s, model, x = self.target.structure, self.target.model, self.x
        mean = {name: self._mean(name) for name in s.layers}
        out: dict[str, Weight] = {}
        for name, layer in s.layers.items():
            biased = layer.components(s.child_tables[name] < 0)
            out[f"{name}.bias"] = (weights @ mean[name] * biased).reshape(layer.bias_shape)
        for c in s.undirected:
            weight, heavy = model.weight(c), weights[:, None]
            out[f"{c.key}.weight"] = plus(
                c.statistics(weight, mean[c.a], heavy * x[c.b]),
                c.statistics(weight, x[c.a], heavy * (mean[c.b] - x[c.b])),
            )
        return out | (model.table_slopes(self._counts(weights)) if s.tables else {})

    def _mean(self, name: str) -> Array:
        """Return the conditional means (rows, width); the values of units without a term."""
        layer, x = self.target.structure.layers[name], self.x[name]
        if name not in self.logs:
            return x
        assert layer.unit.support is not None
        support = layer.unit.support.reshape(len(layer.unit.support), -1)
        mean = layer.flat(np.exp(self.logs[name]) @ support)
        return np.where(layer.components(self.scored[name]), mean, x)

    def _counts(self, weights: Array) -> Array:
        """Return the expected counts of all table entries."""
        assert self.entry is not None
        size = len(self.target.model.table_terms)
        each = np.broadcast_to(weights[:, None], self.entry.shape)
        total = np.bincount(self.entry.ravel(), each.ravel(), size)
        for name, units, axes in self._axes():
            table = self.target.structure.table_index.table[axes]
            for rows in self._blocks(axes, count := self.logs[name].shape[-1]):
                scored = weights[rows, None] * self.scored[name][rows][:, units]
                prob = scored[..., None] * np.exp(self.logs[name][rows][:, units])
                entries = self._entries(axes, count, rows)
                total += np.bincount(entries.ravel(), prob.ravel(), size)
                total -= np.bincount(self.entry[rows][:, table].ravel(), scored.ravel(), size)
        return total
