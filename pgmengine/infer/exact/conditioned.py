"""The conditioned model of one evidence pattern: all of its factors.

`Conditioned` holds the terms of a pattern and the positions of their factors among all factors. It
computes the tables of any rows of the pattern. `condition` plans it from one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from pgmengine.base.types import Array
from pgmengine.graph.queries import acts, barren, barren_tables
from pgmengine.graph.target import Target
from pgmengine.infer.exact.factors import (
    FreeUnits,
    Scopes,
    Term,
    free_units,
    joined,
    observed_constant,
    pair_term,
    table_term,
    unit_term,
    whole_tables,
)
from pgmengine.infer.exact.summed import InfiniteTerm, child_term, infinite_term

T = TypeVar("T", bound=Term)


@dataclass(frozen=True, eq=False)
class JointTerm:
    """Scopes whose joint distributions are wanted; their entries add nothing."""

    scopes: Scopes
    entries: int

    def values(self, target: Target) -> Array:
        """Return zeros."""
        return np.zeros((self.entries, 1))


@dataclass(frozen=True, eq=False)
class Conditioned:
    """The factors of one evidence pattern.

    Attributes
    ----------
    free : its free units.
    terms : its factors by kind.
    scopes : the scopes of all factors, in the order of the terms.
    sizes : (factors,) the number of entries of each.
    counted : (tables,) whether each table of the model counts.
    whole : numbers of the tables that count and have no free unit.
    left_out : layer -> (size,) barren units, which are summed out to one.
    """

    free: FreeUnits
    terms: tuple[Term, ...]
    scopes: Scopes
    sizes: Array
    counted: Array
    whole: Array
    left_out: dict[str, Array]

    def tables(self, target: Target) -> list[Array]:
        """Return the entries of each term, (entries, rows) or (entries, 1)."""
        return [term.values(target) for term in self.terms]

    def constant(self, target: Target) -> Array:
        """Return the part (rows,) of the log density that has no free units."""
        return observed_constant(target, self.whole)

    @cached_property
    def for_means(self) -> Array:
        """The factors whose marginals means and joint distributions need, ascending.

        Means of units with infinitely many values are read from the factors of their neighbours.
        """
        places = [place for _, place in self.places((InfiniteTerm, JointTerm))]
        ranges = [np.arange(place.start, place.stop) for place in places]
        return np.concatenate([np.empty(0, dtype=np.int64), *ranges])

    def places(self, kind: type[T] | tuple[type[T], ...]) -> Iterator[tuple[T, slice]]:
        """Yield the terms of a kind, or of several, with the places of their factors."""
        first = 0
        for term in self.terms:
            count = len(term.scopes)
            if isinstance(term, kind):
                yield term, slice(first, first + count)
            first += count


def condition(
    target: Target, prune: bool, structural: bool, joints: tuple[tuple[int, ...], ...] = ()
) -> Conditioned:
    """Return the factors of a target with one row of evidence.

    Parameters
    ----------
    target : its first row stands for all rows of the pattern.
    prune : leave out barren units, which log_z alone does not need.
    structural : make a factor of every parameter of a coupling, zero or not.
    joints : sets of units, numbered over all layers, whose joint distribution is wanted.

    Raises
    ------
    PgmError if a term is no table, or too large a table.
    """
    s = target.structure
    left_out = {name: np.zeros(layer.size, dtype=bool) for name, layer in s.layers.items()}
    if prune:
        both = barren(target), barren_tables(target)
        left_out = {n: np.any([b[n].all(axis=0) for b in both], axis=0) for n in s.layers}
    counted = np.ones(len(s.table_index.child), dtype=bool)
    for name in s.layers if s.tables else ():
        gone = target.cut[name][0] | left_out[name]
        own = s.child_tables[name][gone]
        counted[own[own >= 0]] = False
    free = free_units(target, left_out)
    terms: list[Term | None] = [unit_term(free), table_term(target, free, counted)]
    for c in s.undirected:
        terms.append(pair_term(target, free, c, acts(target.model, c, structural)))
    for name, layer in s.layers.items():
        if name in s.directed_layers:
            children = ~(target.cut[name][0] | left_out[name])
            if layer.unit.support is None:
                children &= ~target.free[name][0]
            terms.append(child_term(target, free, name, children, structural))
        if layer.unit.support is None and (target.free[name][0] & ~left_out[name]).any():
            terms.append(infinite_term(target, free, name, structural))
    if joints:
        terms.append(_joint_term(free, joints))
    found = tuple(term for term in terms if term is not None)
    scopes = joined([term.scopes for term in found])
    states = free.states[scopes.scope]
    sizes = np.multiply.reduceat(np.append(states, 1), scopes.start[:-1]) if len(scopes) else states
    sizes[np.diff(scopes.start) == 0] = 1
    whole = whole_tables(target, counted)
    return Conditioned(free, found, scopes, sizes, counted, whole, left_out)


def _joint_term(free: FreeUnits, joints: tuple[tuple[int, ...], ...]) -> JointTerm:
    """Return the term of the free units of sets of units."""
    lists = [[int(free.number[u]) for u in units if free.number[u] >= 0] for units in joints]
    start = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    scope = np.array([u for one in lists for u in one], dtype=np.int32)
    entries = sum(int(np.prod(free.states[one], dtype=np.int64)) for one in lists)
    return JointTerm(Scopes(start, scope), entries)
