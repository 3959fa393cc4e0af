"""A score that compares rows with changed rows, for models whose log Z is unknown.

A pair is a row and the same row with another value of one unit. The difference of their log
densities, with hidden units marginalised, does not depend on log Z. Where the posterior of a row is
a product of its units, it is computed from one row of each weight matrix. Elsewhere it is the
difference of two mean-field bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.infer.variational.mean_field import MeanField
from pgmengine.infer.variational.unit_families import Factors
from pgmengine.model.layer import Layer
from pgmengine.model.weights import is_sparse

BOUND_METHOD = MeanField(updates=5, tolerance=1e-4, precision=np.float32)
# The share of changes that is divided evenly among all units; the other changes go to units in
# proportion to their uncertainty.
EVEN_SHARE = 0.1
# The number of changes of each row, where a change needs one row of weights, and where it needs a
# mean-field bound.
CHANGES_BY_WEIGHTS, CHANGES_BY_BOUND = 8, 1
# The smallest number of changes of all rows together, where each needs one row of weights.
MIN_CHANGES_BY_WEIGHTS = 800


@dataclass(frozen=True, eq=False)
class Change:
    """Changes of units of one layer.

    Attributes
    ----------
    name : the layer.
    pair, row, unit : (n,) numbers of the pairs, of their rows, and of the changed units.
    value : (n, components) the new values.
    """

    name: str
    pair: Array
    row: Array
    unit: Array
    value: Array


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a row and a changed row, scored by how well a model tells the two apart.

    Attributes
    ----------
    rows : the rows.
    changes : the changes, of one layer each.
    row : (pairs,) the row of each pair.
    count : (pairs,) the number of units that the changed unit represents.
    base : (pairs,) the log odds of the row against the changed row for independent units at base
        rates.
    drawn : (pairs,) log probability that the value in the row is drawn as a change, less that of
        the new value.
    entropy : the entropy of these units in nats: minus the mean log probability of a row.
    """

    rows: Target
    changes: tuple[Change, ...]
    row: Array
    count: Array
    base: Array
    drawn: Array
    entropy: float

    def of(self, model: Model) -> Array:
        """Return the score of each row, (rows,)."""
        target = self.rows.with_model(model)
        odds = self._by_products(target) if by_products(target) else self._by_bounds(target)
        by_model, by_base = (-np.logaddexp(0.0, self.drawn - o) for o in (odds, self.base))
        each = self.count * (by_model - by_base)
        total = np.bincount(self.row, each, minlength=target.rows)
        score: Array = total / np.bincount(self.row, minlength=target.rows)
        return score

    def _by_bounds(self, target: Target) -> Array:
        """Return the log odds (pairs,) of rows and changed rows, by mean field."""
        changed = self._changed.with_model(target.model)
        here, there = (BOUND_METHOD.run(t, ("log_z",)).log_z for t in (target, changed))
        odds: Array = here[self.row] - there
        return odds

    @cached_property
    def _changed(self) -> Target:
        """The changed row of each pair."""
        target = self.rows.take(self.row)
        values = dict(target.evidence.values)
        for c in self.changes:
            layer = target.structure.layers[c.name]
            new = np.array(values[c.name])
            new[c.pair[:, None], _columns(layer, c.unit)] = c.value
            values[c.name] = new
        return replace(target, evidence=replace(target.evidence, values=values))

    def _by_products(self, target: Target) -> Array:
        """Return the log odds (pairs,) where hidden units are independent, by changed inputs."""
        q, odds = Factors(target, np.float32), np.zeros(len(self.row))
        q.settle(1, 0.0)
        layers = target.structure.layers
        whole = {name: _log_normalizer(layers[name], eta) for name, eta in q.eta.items()}
        for c in self.changes:
            layer, rows = layers[c.name], c.row[:, None]
            columns = _columns(layer, c.unit)
            old = target.evidence.values[c.name][rows, columns].astype(np.float64)
            step = c.value - old
            gain = (step * q.constant_field(c.name)[rows, columns]).sum(axis=1)
            gain += _log_h(layer, c.value) - _log_h(layer, old)
            for coupling, other in target.structure.meetings[c.name]:
                if other in q.eta:
                    weight = np.asarray(target.model.weight(coupling))
                    block = (weight if c.name == coupling.a else weight.T)[columns]
                    more = np.einsum("nk,nkj->nj", step, block).astype(np.float32)
                    eta = q.eta[other][c.row] + more
                    gain += _log_normalizer(layers[other], eta) - whole[other][c.row]
            odds[c.pair] = -gain
        return odds


def by_products(target: Target) -> bool:
    """Return whether all hidden units are independent given the row, in layers without evidence."""
    s, pattern = target.structure, target.pattern
    return (
        pattern.independent
        and all(pattern.all_free[name] for name in pattern.moving)
        and not s.tables
        and not s.directed_layers
        and not any(is_sparse(target.model.weight(c)) for c in s.couplings)
    )


def changed_units(
    target: Target,
    learned: Mapping[str, Array],
    etas: Mapping[str, Array],
    each: Mapping[str, Array],
) -> Pairs | None:
    """Return pairs of rows and changed rows; None if a row has no unit to change.

    Parameters
    ----------
    learned : layer -> (rows, size), the observed units whose probability is learned.
    etas : layer -> their natural parameters at base rates.
    each : layer -> (rows, size), the log probabilities of their values at base rates.
    """
    rng = np.random.default_rng(0)
    share = np.concatenate([_chances(learned[name], each[name]) for name in learned], axis=1)
    total = share.sum(axis=1, keepdims=True)
    if not (total > 0).all():
        return None
    share /= total
    each_row = (
        max(CHANGES_BY_WEIGHTS, -(-MIN_CHANGES_BY_WEIGHTS // target.rows))
        if by_products(target)
        else CHANGES_BY_BOUND
    )
    row = np.repeat(np.arange(target.rows), each_row)
    past = share.cumsum(axis=1)[row] > rng.random((len(row), 1))
    chosen = np.where(past.any(axis=1), past.argmax(axis=1), share[row].argmax(axis=1))
    changes, first = [], 0
    base, drawn = np.zeros(len(row)), np.zeros(len(row))
    for name in learned:
        layer, eta = target.structure.layers[name], etas[name]
        pair = np.flatnonzero((chosen >= first) & (chosen < first + layer.size))
        unit, first = chosen[pair] - first, first + layer.size
        if not len(pair):
            continue
        old = layer.shaped(target.evidence.values[name])[row[pair], unit].astype(np.float64)
        new = _another(layer, old, eta[unit], rng)
        base[pair] = each[name][row[pair], unit] - log_rate(layer, new, eta[unit])
        if layer.unit.support is None:
            drawn[pair] = base[pair]
        changes.append(Change(name, pair, row[pair], unit, new.reshape(len(pair), -1)))
    entropy = abs(float(sum(np.where(learned[n], each[n], 0.0).sum() for n in learned)))
    count = 1 / share[row, chosen]
    return Pairs(target, tuple(changes), row, count, base, drawn, entropy / target.rows)


def log_rate(layer: Layer, x: Array, eta: Array) -> Array:
    """Return the log probability of values (..., [k]) of units with these natural parameters."""
    linear = x * eta if layer.unit.width == 1 else (x * eta).sum(axis=-1)
    found: Array = linear + layer.unit.log_h(x) - layer.unit.log_normalizer(eta)
    return found


def _chances(mask: Array, log_rates: Array) -> Array:
    """Return how often units are changed, (rows, size): in proportion to their uncertainty."""
    unsure = -np.where(mask, log_rates, 0.0).sum(axis=0) / np.maximum(mask.sum(axis=0), 1)
    unsure = np.maximum(unsure, 0.0)
    return np.where(mask, unsure + EVEN_SHARE * unsure.mean() + 1e-9, 0.0)


def _another(layer: Layer, value: Array, eta: Array, rng: np.random.Generator) -> Array:
    """Return another state of each unit; for infinitely many values, a draw at base rates."""
    support = layer.unit.support
    if support is None:
        return layer.unit.sample(eta, rng)
    states = layer.unit.state_of(value) + rng.integers(1, len(support), len(value))
    found: Array = np.asarray(support)[states % len(support)]
    return found


def _columns(layer: Layer, unit: Array) -> Array:
    """Return the columns (n, components) of units."""
    return layer.columns(unit).reshape(len(unit), -1)


def _log_h(layer: Layer, value: Array) -> Array:
    """Return the log base measure (n,) of values (n, components)."""
    return layer.unit.log_h(value if layer.unit.width > 1 else value[:, 0])


def _log_normalizer(layer: Layer, eta: Array) -> Array:
    """Return the sum (rows,) of A over the units of a layer."""
    each = layer.unit.log_normalizer(layer.shaped(eta))
    total: Array = each.sum(axis=1, dtype=np.float64)
    return total
