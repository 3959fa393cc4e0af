"""The conditioned model as factors over its free units, for elimination.

Given the evidence, every term of the log density is a table over a few free units:

    unit        u_i(x) of a free unit: bias, soft evidence, base measure, and bilinear couplings to
                observed units
    pair        beta x_i W_ij x_j of two free units that an undirected coupling joins
    table       beta log T at the states of its observed units, over its free units
                (table_terms.py)
    seen        0 at the observed state of a unit that other rows leave free, and -inf elsewhere
    constant    terms without a free unit

Free units are numbered 0, 1, ..., in the order of the layers. Rows of one evidence pattern and one
beta share the scopes, which do not depend on the observed values. The method `values` of a term
returns its entries for a target: (entries, rows), or (entries, 1) if all rows are equal. Entries
are logarithms, and -inf where a state is impossible. They are in C order: the last unit of a scope
varies fastest.

Reference: the brute-force oracle of the tests (test_elimination.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from pgmengine.base.equal_rows import distinct
from pgmengine.base.types import Array, Weight
from pgmengine.evidence.target import Target
from pgmengine.model.couplings import Coupling
from pgmengine.model.graph.unit_graph import joined_units
from pgmengine.model.weights import is_sparse

# The largest sparse weight, in numbers, from which blocks are read as from a dense one: an index of
# a sparse matrix takes longer than to fill so many numbers.
MAX_DENSE_NUMBERS = 2**14


@dataclass(frozen=True, eq=False)
class Scopes:
    """Scopes of factors in one array: factor f has the units scope[start[f]:start[f+1]]."""

    start: Array
    scope: Array

    def __len__(self) -> int:
        return len(self.start) - 1


NO_SCOPES = Scopes(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32))


def joined(parts: list[Scopes]) -> Scopes:
    """Return the factors of several terms, in order."""
    starts, last = [NO_SCOPES.start], 0
    for part in parts:
        starts.append(part.start[1:] + last)
        last += len(part.scope)
    return Scopes(
        np.concatenate(starts), np.concatenate([NO_SCOPES.scope, *[p.scope for p in parts]])
    )


def of_equal_length(scope: Array) -> Scopes:
    """Return scopes (factors, units) of one length."""
    n, m = scope.shape
    return Scopes(m * np.arange(n + 1, dtype=np.int64), scope.ravel().astype(np.int32))


@dataclass(frozen=True, eq=False)
class FreeUnits:
    """The free units of one evidence pattern.

    Attributes
    ----------
    number : (units of all layers,) the number of each free unit, -1 for observed ones.
    layers : layer with finitely many states -> its free units.
    states : (n,) the number of states of each free unit.
    """

    number: Array
    layers: dict[str, Array]
    states: Array

    def of(self, target: Target, name: str, units: Array) -> Array:
        """Return the numbers of units of a layer."""
        return np.asarray(self.number[target.structure.first_unit[name] + units])


def free_units(target: Target, left_out: dict[str, Array]) -> FreeUnits:
    """Return the free units of a target whose rows share one evidence pattern.

    `left_out` holds masks, layer -> (size,), of units that count as neither free nor observed, such
    as barren ones.
    """
    s, free = target.structure, target.pattern.free
    masks, layers = list[Array](), dict[str, Array]()
    for name, states in s.state_counts.items():
        mask = free[name][0] if states else np.zeros(s.layers[name].size, dtype=bool)
        if states and name in left_out:
            mask = mask & ~left_out[name]
        masks.append(mask)
        units = mask.nonzero()[0]
        if len(units):
            layers[name] = units
    joint = np.concatenate(masks)
    number = joint.cumsum()
    number -= 1
    number[~joint] = -1
    lengths = list(map(len, layers.values()))
    each = np.array([s.state_counts[name] for name in layers], dtype=np.int64).repeat(lengths)
    return FreeUnits(number, layers, each)


class Term(Protocol):
    """One kind of factors of the conditioned model."""

    @property
    def by_row(self) -> bool:
        """Whether the entries may differ between rows of one pattern."""

    @property
    def scopes(self) -> Scopes:
        """The scopes of its factors."""

    def values(self, target: Target) -> Array:
        """Return the entries of all factors, (entries, rows), or (entries, 1) for equal rows."""


@dataclass(frozen=True, eq=False)
class UnitTerm:
    """The log weights of the states of each free unit, without its free neighbours."""

    free: FreeUnits
    scopes: Scopes

    by_row = True

    def values(self, target: Target) -> Array:
        """Return the sum of bias, soft evidence, base measure and field of observed units."""
        parts, s, soft = [], target.structure, target.soft
        # Free units have the value 0, so that observed units alone reach the field.
        seen, neighbours = target.evidence.values, target.model.neighbours
        for name, units in self.free.layers.items():
            layer = s.layers[name]
            if target.untempered and name not in soft and not neighbours[name]:
                own = target.model.own_weights[name]
                some = own if len(own) == len(units) else own[units]
                parts.append(some.reshape(-1, 1))
                continue
            field = distinct(target.outer_field(seen, name))
            logs = layer.unit.log_weights(layer.shaped(field))[:, units]
            parts.append(logs.reshape(len(logs), -1).T)
        rows = max([part.shape[1] for part in parts])
        if rows == 1:
            return np.concatenate(parts)
        return np.concatenate([np.broadcast_to(part, (len(part), rows)) for part in parts])


def weighs_units(target: Target) -> bool:
    """Whether states of free units may have log weights of their own, besides those of tables."""
    s = target.structure
    weighed = s.couplings or s.with_base or target.soft or target.model.biased
    return bool(weighed) or not target.untempered


def unit_term(target: Target, free: FreeUnits) -> UnitTerm | None:
    """Return the term of all free units, or None where all its entries would be 0."""
    n = len(free.states) if weighs_units(target) else 0
    scopes = Scopes(np.arange(n + 1, dtype=np.int64), np.arange(n, dtype=np.int32))
    return UnitTerm(free, scopes) if n else None


@dataclass(frozen=True, eq=False)
class SeenTerm:
    """The likelihoods of the states of each free unit, for rows of which some observe it."""

    free: FreeUnits

    by_row = True

    @cached_property
    def scopes(self) -> Scopes:
        """The scopes of its factors: each free unit."""
        n = len(self.free.states)
        return Scopes(np.arange(n + 1, dtype=np.int64), np.arange(n, dtype=np.int32))

    def values(self, target: Target) -> Array:
        """Return the log likelihoods of a row that observes none of the units."""
        return np.zeros((int(self.free.states.sum()), 1))

    def likelihoods(self, seen: Array) -> Array:
        """Return log likelihoods (entries, rows): -inf at states other than the observed one."""
        unit = np.arange(len(self.free.states)).repeat(self.free.states)
        state = np.arange(len(unit)) - (self.free.states.cumsum() - self.free.states)[unit]
        at = np.ascontiguousarray(seen.T).take(unit, 0)
        return np.where((at < 0) | (at == state[:, None]), 0.0, -np.inf)


@dataclass(frozen=True, eq=False)
class PairTerm:
    """beta x_i W_ij x_j for pairs of free units that an undirected coupling joins."""

    coupling: Coupling
    first: Array
    second: Array
    scopes: Scopes

    by_row = False

    def values(self, target: Target) -> Array:
        """Return the entries of all pairs, which no evidence changes."""
        c, s = self.coupling, target.structure
        a, b = s.layers[c.a], s.layers[c.b]
        blocks = weights_between(
            target.model.weight(c), self.first, self.second, a.unit.width, b.unit.width
        )
        one, two = (_rows_of_values(x.unit.support) for x in (a, b))
        entries = np.einsum("ki,nij,lj->nkl", one, blocks, two)
        return np.asarray(float(target.beta[0]) * entries.reshape(-1, 1))


def _rows_of_values(support: Array | None) -> Array:
    """Return the values of a unit as rows (K, width)."""
    assert support is not None
    return support.reshape(len(support), -1)


def weights_between(weight: Weight, first: Array, second: Array, wide: int, high: int) -> Array:
    """Return the blocks (n, wide, high) of a weight between pairs of units."""
    rows = first[:, None] * wide + np.arange(wide)
    columns = second[:, None] * high + np.arange(high)
    at = np.broadcast_arrays(rows[:, :, None], columns[:, None, :])
    if is_sparse(weight) and math.prod(weight.shape) <= MAX_DENSE_NUMBERS:
        weight = weight.toarray()
    if not is_sparse(weight):
        return np.asarray(weight[at[0], at[1]])
    # Copies, because older versions of scipy set flags of the indices.
    return np.asarray(weight[at[0].flatten(), at[1].flatten()]).reshape(at[0].shape)


def pair_term(target: Target, free: FreeUnits, c: Coupling, weight: Weight) -> PairTerm | None:
    """Return the term of a coupling, or None if it joins no free units.

    `weight` has numbers other than 0 where the coupling acts.
    """
    if c.a not in free.layers or c.b not in free.layers:
        return None
    first, second = joined_units(target.structure, c, weight)
    scope = np.stack([free.of(target, c.a, first), free.of(target, c.b, second)], axis=1)
    both = (scope >= 0).all(axis=1)
    if not both.any():
        return None
    return PairTerm(c, first[both], second[both], of_equal_length(scope[both]))
