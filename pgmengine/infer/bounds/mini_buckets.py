"""Mini-buckets: the factors of each eliminated variable in groups whose tables are small enough.

Variable elimination multiplies all factors of a variable, its bucket, and sums the variable out. A
bucket whose product is too large is split into mini-buckets (Dechter and Rish 2003). Each has a
table over its own scope, and sends a message over the scope without the variable to a later bucket.

Scopes are sorted by the elimination order, so that the variable of the bucket is the first axis of
each table, and that a message fits into a later table by axes of one state, without transposing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array


@dataclass(frozen=True, eq=False)
class MiniBucket:
    """One group of the factors of a variable.

    Attributes
    ----------
    scope : its variables in the elimination order; the first one is summed out.
    shape : their numbers of states.
    factors : the numbers of the given factors in it.
    children : the numbers of the mini-buckets whose messages it receives.
    """

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    factors: tuple[int, ...]
    children: tuple[int, ...]

    @property
    def entries(self) -> int:
        """The number of entries of its table."""
        return math.prod(self.shape)

    def within(self, scope: Sequence[int]) -> tuple[int, ...]:
        """Return its shape with one state for the variables that are not in a scope."""
        own = set(scope)
        return tuple(k if v in own else 1 for v, k in zip(self.scope, self.shape, strict=True))

    def without(self, scope: Sequence[int]) -> tuple[int, ...]:
        """Return the axes of the variables that are not in a scope."""
        own = set(scope)
        return tuple(axis for axis, v in enumerate(self.scope) if v not in own)


@dataclass(frozen=True, eq=False)
class MiniBuckets:
    """The mini-buckets of a factor graph, in the order of elimination.

    Attributes
    ----------
    parts : all mini-buckets.
    buckets : the numbers of the mini-buckets of each variable that has factors, in order.
    common : the variables that all mini-buckets of each of these share, in order.
    alone : the variables without a factor.
    constants : the factors without a variable.
    """

    parts: tuple[MiniBucket, ...]
    buckets: tuple[tuple[int, ...], ...]
    common: tuple[tuple[int, ...], ...]
    alone: tuple[int, ...]
    constants: tuple[int, ...]

    @property
    def entries(self) -> float:
        """The number of entries of all tables."""
        return float(sum(part.entries for part in self.parts))

    @property
    def split(self) -> int:
        """The number of buckets with more than one mini-bucket; 0 where the sum is exact."""
        return sum(len(numbers) > 1 for numbers in self.buckets)


@dataclass(eq=False)
class _Group:
    """A mini-bucket that still grows."""

    scope: frozenset[int]
    factors: list[int]
    children: list[int]


def mini_buckets(
    cards: Sequence[int], scopes: Sequence[Sequence[int]], order: Sequence[int], most: float
) -> MiniBuckets:
    """Return the mini-buckets of factors; only single factors and messages exceed `most` entries.

    Parameters
    ----------
    cards : the number of states of each variable.
    scopes : the variables of each factor.
    order : all variables in the order of elimination.
    most : the largest number of entries of a table that joins several factors.
    """
    place = {v: i for i, v in enumerate(order)}
    waiting: dict[int, list[tuple[frozenset[int], int, bool]]] = {v: [] for v in order}
    constants = tuple(f for f, scope in enumerate(scopes) if not len(scope))
    for f, scope in enumerate(scopes):
        if len(scope):
            waiting[min(scope, key=place.__getitem__)].append((frozenset(scope), f, False))
    parts, buckets, common, alone = list[MiniBucket](), [], [], []
    for v in order:
        groups = _grouped(waiting.pop(v), cards, most)
        if not groups:
            alone.append(v)
            continue
        buckets.append(tuple(range(len(parts), len(parts) + len(groups))))
        shared = frozenset.intersection(*[g.scope for g in groups])
        common.append(tuple(sorted(shared, key=place.__getitem__)))
        for g in groups:
            scope = tuple(sorted(g.scope, key=place.__getitem__))
            if len(scope) > 1:
                waiting[scope[1]].append((g.scope - {v}, len(parts), True))
            shape = tuple(int(cards[u]) for u in scope)
            parts.append(MiniBucket(scope, shape, tuple(g.factors), tuple(g.children)))
    return MiniBuckets(tuple(parts), tuple(buckets), tuple(common), tuple(alone), constants)


def _grouped(
    functions: list[tuple[frozenset[int], int, bool]], cards: Sequence[int], most: float
) -> list[_Group]:
    """Return the mini-buckets of a bucket: each function joins the one that it enlarges least.

    The largest functions come first, so that small ones fill what is left.
    """

    def size(scope: frozenset[int]) -> int:
        return math.prod(int(cards[u]) for u in scope)

    groups = list[_Group]()
    for scope, number, message in sorted(functions, key=lambda f: (-size(f[0]), f[2], f[1])):
        best, least = None, math.inf
        for group in groups:
            own = size(group.scope)
            joint = size(group.scope | scope)
            if (joint <= most or joint == own) and joint / own < least:
                best, least = group, joint / own
        if best is None:
            best = _Group(scope, [], [])
            groups.append(best)
        best.scope |= scope
        (best.children if message else best.factors).append(number)
    return groups


def table_of(values: Array, scope: Sequence[int], cards: Sequence[int], part: MiniBucket) -> Array:
    """Return the entries (entries, lanes) of a factor as axes of a mini-bucket's table."""
    shaped = values.reshape(*(int(cards[v]) for v in scope), values.shape[1])
    place = {v: i for i, v in enumerate(part.scope)}
    axes = sorted(range(len(scope)), key=lambda a: place[scope[a]])
    moved = shaped.transpose(*axes, len(scope))
    return np.ascontiguousarray(moved).reshape(*part.within(scope), values.shape[1])
