"""Posteriors that are mixtures of few products: one product of units for each state of the cover.

Given a state of the cover (cover.py) the other free units are independent. If the cover has few
states, all rows and all states are computed side by side, which suits small layers such as labels
(Yokoyama, Katsumata and Yasuda 2019, equations 25 to 28). The field of a unit is the sum of a part
that depends on the row and a part that depends on the state, so the large product with the observed
values is computed once for each row:

    eta[row, state] = rows[row] + states[state],
    log weight      = sum_cover x field + (pairs of the cover) + log h(x) + sum_rest A(eta).

Rows of several patterns may share the cover of all units that are free in any of them. States of
the cover that differ from a row's observed values have the weight 0, and a unit outside the cover
that a row observes keeps its value. Many patterns then take as many calls of numpy as one. Where
the field of a unit outside the cover does not depend on the row, as in a restricted Boltzmann
machine, sums over these units are products of matrices: of the mask of missing units, and of the
A(eta) or the means given each state.

The log density is multilinear. Its expected gradient is therefore the gradient at the means of each
row, plus a covariance for each coupling of two layers that both depend on the state.

Reference: Enumeration (test_mixtures.py).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pgmengine.base.equal_rows import distinct, spread
from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import log_sum, softmax
from pgmengine.base.types import Array, States
from pgmengine.base.work.division import blocks
from pgmengine.engine.packed import packed
from pgmengine.evidence.evidence import Evidence
from pgmengine.evidence.relevance import pattern_of
from pgmengine.evidence.target import Target, evidence_patterns, one_for_all
from pgmengine.infer.accumulator import Accumulator
from pgmengine.infer.exact.enumeration.cover import Cover, choose_cover
from pgmengine.infer.exact.gathered import Answer
from pgmengine.model.couplings import Coupling
from pgmengine.model.weights import is_sparse, plus

# log2 of the largest number of cover states that are computed side by side.
MAX_MIXTURE_BITS = 6.0

# The number of rows x states x units of a mixture for several patterns whose arithmetic takes as
# long as the calls of Python for one pattern: in general, and by products of matrices. The number
# that is computed at a time.
SHARED_NUMBERS_PER_PATTERN, PRODUCT_NUMBERS_PER_PATTERN = 2**15, 2**18
MAX_NUMBERS_AT_ONCE = 2**21

# The least sum of weights by which is divided.
TINY = float(np.finfo(np.float64).tiny)

# Natural parameters that are computed at a time.
MAX_PARAMETERS_AT_ONCE = 2**14


@dataclass(frozen=True, eq=False)
class Mixture:
    """The posteriors of rows whose free units share a cover, as mixtures of products.

    Parameters
    ----------
    cover : the units whose joint states are the components.
    precision : the precision of products and means.
    by_row : whether the field of a unit outside the cover depends on the row.
    """

    cover: Cover
    precision: type
    by_row: bool = True

    @property
    def numbers(self) -> float:
        """The most numbers of an array for each row."""
        sizes = [len(x) for x in self.cover.rest.values()] if self.by_row else []
        return float(2.0**self.cover.bits * max([1, *sizes]))

    def expect(self, target: Target, weights: Array, total: Accumulator) -> None:
        """Add the sum over rows of weight * E[d log_density | row] to the sum of a phase."""
        for rows in blocks(np.arange(target.rows), self.at_once()):
            some = target if len(rows) == target.rows else target.take(rows)
            m = _Components(some, self.cover, self.precision)
            total.points(m.mean, weights[rows])
            total.arrays(m.covariances(weights[rows]), 1.0, 0.0)

    def at_once(self) -> float:
        """Return the number of rows that are computed at a time."""
        return MAX_NUMBERS_AT_ONCE / self.numbers

    def answers(self, target: Target, wanted: Set[str]) -> tuple[Array, Answer]:
        """Return log Z of each row, and the wanted marginals and gradient."""
        m, out = _Components(target, self.cover, self.precision), Answer()
        if "marginals" in wanted:
            out["mean"], out["prob"] = m.mean, m.prob_of_states
        if "gradient" in wanted:
            weights = target.weighed(np.ones(target.rows))
            slopes = target.model.gradient(m.mean, weights)
            for name, more in target.model.in_parameters(m.covariances(weights)).items():
                slopes[name] = plus(slopes[name], more)
            out["gradient"] = slopes
        return log_sum(m.log_weight) + m.constant, out


def mixture_of(target: Target, precision: type) -> Mixture | None:
    """Return the mixtures of a target's rows, or None where this form does not apply."""
    patterns = evidence_patterns(target)
    if not _plain(target) or len(patterns) > 1:
        return None
    cover = choose_cover(one_for_all(target, patterns[0]), prune=False, structural=True)
    return Mixture(cover, precision) if 0 < cover.bits <= MAX_MIXTURE_BITS else None


def shared_mixture(target: Target, precision: type) -> Mixture | None:
    """Return one mixture for rows of several patterns if it is faster than enumerating each."""
    if target.rows == 1 or not _plain(target):
        return None
    pattern = target.pattern
    if pattern.alike or (count := len(evidence_patterns(target))) < 2:
        return None
    first = target.take(np.zeros(1, dtype=np.int64))
    seen: dict[str, Array] = {
        n: np.asarray(distinct(m).all(axis=0, keepdims=True)) for n, m in pattern.observed.items()
    }
    whole = pattern_of(target.structure, 1, seen, first.pattern.intervened)
    evidence = Evidence(True, first.evidence.values, whole)
    try:
        cover = choose_cover(replace(first, evidence=evidence), prune=False, structural=True)
    except PgmError:
        # Units with infinitely many values need a cover in some rows only.
        return None
    numbers = target.rows * 2.0 ** min(cover.bits, 1000.0) * target.structure.width
    by_row = precision is not np.float64 or _by_row(target, cover)
    fast = numbers <= count * (
        SHARED_NUMBERS_PER_PATTERN if by_row else PRODUCT_NUMBERS_PER_PATTERN
    )
    return Mixture(cover, precision, by_row) if 0 < cover.bits and fast else None


def _by_row(target: Target, cover: Cover) -> bool:
    """Return whether the field of a unit outside the cover depends on observed values."""
    seen = target.pattern.observed
    return any(
        distinct(seen[other]).any()
        for name, units in cover.rest.items()
        for _, other in target.structure.meetings[name]
        if len(units)
    )


def gives(target: Target, wanted: Set[str]) -> bool:
    """Return whether a mixture answers questions about some quantities besides log Z.

    The probabilities of states follow from means where a unit has two states or one-hot rows.
    """
    units = [layer.unit for layer in target.structure.layers.values()]
    linear = all(u.support is None or u.one_hot or len(u.support) == 2 for u in units)
    return wanted <= {"marginals", "gradient"} and (linear or "marginals" not in wanted)


def _plain(target: Target) -> bool:
    """Return whether the model has dense pair couplings of undirected layers alone."""
    s = target.structure
    plain = target.untempered and not (s.tables or s.directed_layers or target.soft)
    pairs = all(
        not (c.directed or c.lateral) and not is_sparse(target.model.weight(c)) for c in s.couplings
    )
    return plain and pairs


class _Components:
    """The mixtures of all rows, with their components, at the parameters of a model."""

    def __init__(self, target: Target, cover: Cover, precision: type) -> None:
        self.target, self.precision, s = target, precision, target.structure
        self.inside = {n: s.layers[n].columns(i).ravel() for n, i in cover.units.items() if len(i)}
        self.rest = {n: s.layers[n].columns(i).ravel() for n, i in cover.rest.items() if len(i)}
        self.states = _joint_states(target, cover, precision)
        self.origin = {name: self._origin(name) for name in s.layers}

    def _origin(self, name: str) -> Array:
        """Return the evidence (rows, width), 0 where a unit is free."""
        value: Array = self.target.evidence.values[name].astype(self.precision, copy=False)
        free = [self.inside[name]] if name in self.inside else []
        if free:
            value = value.copy()
            # Units outside the cover keep the values that some rows observe; free ones have 0.
            value[:, free[0]] = 0.0
        return value

    def field(self, name: str) -> tuple[Array, Array]:
        """Return the parts (rows or 1, width) and (states, width) of the field of a layer."""
        target, model = self.target, self.target.model
        width = target.structure.layers[name].width
        seen = target.pattern.observed
        meetings = target.structure.meetings[name]
        by_row = any([distinct(seen[other]).any() for _, other in meetings])
        own: Array = np.zeros((target.rows if by_row else 1, width), dtype=self.precision)
        own += model.bias(name).astype(self.precision)
        state: Array = np.zeros((len(self.shares), width), dtype=self.precision)
        for c, other in meetings:
            if distinct(seen[other]).any():
                self._add(c, name, self.origin[other], own)
            if other in self.states:
                self._add(c, name, self.states[other], state)
        return own, state

    def _add(self, c: Coupling, name: str, x: Array, field: Array) -> None:
        """Add the field that values of the other end of a coupling give to a layer."""
        if self.precision is np.float32:
            packed(self.target.model).add_product(c, name, x, field)
        else:
            weight = self.target.model.weight(c)
            field += x @ (weight if name == c.b else weight.T)

    @property
    def shares(self) -> range:
        """The numbers of the cover states, 0, 1, ..."""
        return range(len(next(iter(self.states.values()))))

    @cached_property
    def outside(self) -> tuple[Array, States]:
        """The sum of A(eta) of the units outside the cover, and their means given each state.

        They are (rows, states) and (rows or 1, states, columns). A few rows are computed at a time,
        so that temporary arrays stay in cache.
        """
        rows, count = self.target.rows, len(self.shares)
        total, means = np.zeros((rows, count)), {}
        for name, columns in self.rest.items():
            layer, (own, state) = self.target.structure.layers[name], self.field(name)
            if len(columns) < layer.width:
                own, state = own[:, columns], state[:, columns]
            if len(own) == 1 < rows and self.precision is np.float64:
                means[name] = self._alike(name, own + state, total)
                continue
            own = spread(own, rows)
            # NaN would show a row that was left out.
            mean: Array = np.full((rows, count, len(columns)), np.nan, dtype=self.precision)
            step = max(1, MAX_PARAMETERS_AT_ONCE // (count * len(columns)))
            for some in (slice(i, i + step) for i in range(0, rows, step)):
                eta = own[some, None] + state
                eta = eta if layer.unit.width == 1 else _by_unit(eta, layer.unit.width)
                log_sums, found = layer.unit.log_normalizer(eta), layer.unit.mean(eta)
                found = found.reshape(mean[some].shape)
                if (seen := self.seen(name, columns)) is not None:
                    units = seen[some][:, None, :: layer.unit.width]
                    log_sums = np.where(units, 0.0, log_sums)
                    value = self.target.evidence.values[name][some][:, columns]
                    found = np.where(seen[some][:, None], value[:, None], found)
                total[some] += log_sums.sum(axis=2)
                mean[some] = found
            means[name] = mean
        return total, means

    def _alike(self, name: str, eta: Array, total: Array) -> Array:
        """Return the means (1, states, columns) of units whose fields do not depend on the row.

        Their A(eta) (states, units) is added to the total of each row that does not observe them.
        """
        unit = self.target.structure.layers[name].unit
        seen = self.seen(name, self.rest[name])
        eta = eta[None] if unit.width == 1 else _by_unit(eta[None], unit.width)
        log_sums = unit.log_normalizer(eta)[0]
        if seen is None:
            total += log_sums.sum(axis=1)
        else:
            total += np.asarray(~seen[:, :: unit.width], dtype=np.float64) @ log_sums.T
        return np.asarray(unit.mean(eta)).reshape(1, len(log_sums), -1)

    def seen(self, name: str, columns: Array) -> Array | None:
        """Return a mask (rows, columns) of observed values, or None where nothing is observed."""
        layer, observed = self.target.structure.layers[name], self.target.pattern.observed[name]
        if not distinct(observed).any():
            return None
        seen: Array = observed.repeat(layer.unit.width, axis=1)[:, columns]
        return seen if seen.any() else None

    @cached_property
    def log_weight(self) -> Array:
        """The log weight (rows, states) of each state of the cover, without the constant."""
        s = self.target.structure
        log_weight = self.outside[0].copy()
        for name, columns in self.inside.items():
            layer, x = s.layers[name], self.states[name]
            own, state = self.field(name)
            # A half, because each pair of the cover is in the fields of both of its ends.
            base = layer.unit.log_h(layer.shaped(x))[:, np.unique(layer.owners(columns))]
            log_weight += own @ x.T + (0.5 * (x * state).sum(axis=1) + base.sum(axis=1))
            if (seen := self.seen(name, columns)) is not None:
                value = self.target.evidence.values[name][:, None, columns]
                other = ((value != x[:, columns]) & seen[:, None]).any(axis=2)
                log_weight[other] = -np.inf
        return log_weight

    @property
    def constant(self) -> Array:
        """The part (rows,) of the log density that is equal for all states: of observed units."""
        target, s, x = self.target, self.target.structure, self.origin
        total = np.zeros(target.rows)
        for name, layer in s.layers.items():
            observed = target.pattern.observed[name].copy()
            if name in self.inside:
                observed[:, np.unique(layer.owners(self.inside[name]))] = False
            base = layer.unit.log_h(layer.shaped(x[name]))
            total += x[name] @ target.model.bias(name) + np.where(observed, base, 0.0).sum(axis=1)
        for c in s.couplings:
            total += c.log_density(target.model.weight(c), x[c.a], x[c.b])
        return total

    @cached_property
    def prob(self) -> Array:
        """The probability (rows, states) of each state of the cover."""
        return softmax(self.log_weight)

    @property
    def prob_of_states(self) -> States:
        """The probabilities (rows, units, K) of the states of layers with finitely many states."""
        out: States = {}
        for name, layer in self.target.structure.layers.items():
            if layer.unit.one_hot:
                out[name] = layer.shaped(self.mean[name])
            elif layer.unit.support is not None:
                low, high = layer.unit.support
                share = (self.mean[name] - low) / (high - low)
                out[name] = np.stack([1.0 - share, share], axis=-1)
        return out

    @cached_property
    def _single(self) -> Array:
        """The probabilities in the precision of the products."""
        return self.prob.astype(self.precision)

    @property
    def means(self) -> States:
        """The means (rows or 1, states, columns) of the units outside the cover.

        Rows that share them may observe the units.
        """
        return self.outside[1]

    @cached_property
    def mean(self) -> States:
        """The means (rows, width) of all layers."""
        out: States = dict(self.origin)
        for name, x in self.states.items():
            out[name] = out[name] + self._single @ x
        for name, mean in self.means.items():
            columns = self.rest[name]
            if len(mean) == 1:
                found = self._single @ mean[0]
                if (seen := self.seen(name, columns)) is not None:
                    found = np.where(seen, self.target.evidence.values[name][:, columns], found)
            else:
                found = (self._single[:, None] @ mean)[:, 0]
            if name not in self.states and found.shape == out[name].shape:
                out[name] = found
            else:
                out[name] = out[name].copy()
                out[name][:, columns] = found
        return out

    def covariances(self, weights: Array) -> dict[str, Array]:
        """Return the sums over rows of weight * Cov(x_a, x_b | row), where they are not 0."""
        out: dict[str, Array] = {}
        s = self.target.structure
        heavy: Array = weights.astype(self.precision)[:, None] * self._single
        for c in s.couplings:
            if all(n in self.states or n in self.rest for n in (c.a, c.b)):
                small, large = sorted((c.a, c.b), key=lambda name: s.layers[name].width)
                if (found := self._by_products(c, heavy)) is not None:
                    out[f"{c.key}.weight"] = found
                    continue
                (one, here), (two, there) = self._deviations(small), self._values(large)
                one = heavy[..., None] * one
                product = one.reshape(-1, one.shape[-1]).T @ two.reshape(-1, two.shape[-1])
                found = np.zeros([s.layers[n].width for n in (small, large)], self.precision)
                found[np.ix_(here, there)] = product
                out[f"{c.key}.weight"] = found if small == c.a else found.T
        return out

    def _by_products(self, c: Coupling, heavy: Array) -> Array | None:
        """Return the covariance of a coupling by products of matrices, without axes rows x states.

        It is sum over states and rows of weight * prob * (x_s - mean of x) * y_s * missing, where x
        is a unit of the cover, and y one outside of it whose means do not depend on the row. None
        where units of the coupling are neither.
        """
        inner, outer = (c.a, c.b) if c.a in self.states else (c.b, c.a)
        alone = inner in self.states and inner not in self.rest and outer not in self.states
        if not alone or outer not in self.rest or len(self.means[outer]) != 1 < len(heavy):
            return None
        columns, y = self.rest[outer], self.means[outer][0]
        # Around a common centre, differences of sums lose no digits. Weights may have either sign.
        size = np.abs(heavy).sum(axis=0)
        x = self.states[inner] - (size / max(size.sum(), TINY)) @ self.states[inner]
        seen = self.seen(outer, columns)
        missing = np.ones((len(heavy), 1)) if seen is None else np.where(seen, 0.0, 1.0)
        found = np.zeros((x.shape[1], self.target.structure.layers[outer].width))
        found[:, columns] = x.T @ (y * (heavy.T @ missing))
        found[:, columns] -= (self.prob @ x).T @ (missing * (heavy @ y))
        return found if inner == c.a else found.T

    def _deviations(self, name: str) -> tuple[Array, Array]:
        """Return E[x | row, state] - E[x | row], (rows, states, columns), and the columns."""
        values, columns = self._values(name)
        return values - self.mean[name][:, None, columns], columns

    def _values(self, name: str) -> tuple[Array, Array]:
        """Return E[x | row, state] of the units that depend on the state, and their columns."""
        parts, columns = [], []
        if name in self.states:
            where = self.inside[name]
            shape = (self.target.rows, len(self.shares), len(where))
            parts.append(np.broadcast_to(self.states[name][:, where], shape))
            columns.append(where)
        if name in self.rest:
            parts.append(self._of_rows(name))
            columns.append(self.rest[name])
        if len(parts) == 1:
            return parts[0], columns[0]
        return np.concatenate(parts, axis=-1), np.concatenate(columns)

    def _of_rows(self, name: str) -> Array:
        """Return the means (rows, states, columns) of units outside the cover, by row."""
        mean, columns = self.means[name], self.rest[name]
        if len(mean) == self.target.rows:
            return mean
        seen = self.seen(name, columns)
        if seen is None:
            return np.broadcast_to(mean, (self.target.rows, *mean.shape[1:]))
        value = self.target.evidence.values[name][:, None, columns]
        return np.where(seen[:, None], value, mean)


def _by_unit(eta: Array, width: int) -> Array:
    """Return (rows, states, columns) as (rows, states, units, width)."""
    return eta.reshape(*eta.shape[:2], -1, width)


def _joint_states(target: Target, cover: Cover, precision: type) -> States:
    """Return the values (states, width) of each layer in every joint state, 0 outside the cover."""
    s = target.structure
    units = [(name, int(u)) for name, index in cover.units.items() for u in index]
    supports = [s.layers[name].unit.support for name, _ in units]
    index = np.indices([len(v) for v in supports if v is not None]).reshape(len(units), -1)
    out: States = {
        name: np.zeros((index.shape[1], s.layers[name].width), dtype=precision) for name, _ in units
    }
    for (name, unit), support, state in zip(units, supports, index, strict=True):
        assert support is not None
        columns = s.layers[name].columns(np.array([unit]))
        out[name][:, columns] = support.reshape(len(support), -1)[state]
    return out
