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

    scope: set[int]
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
        groups = _grouped(v, waiting.pop(v), cards, most)
        if not groups:
            alone.append(v)
            continue
        buckets.append(tuple(range(len(parts), len(parts) + len(groups))))
        shared = set.intersection(*[g.scope for g in groups])
        common.append(tuple(sorted(shared, key=place.__getitem__)))
        for g in groups:
            scope = tuple(sorted(g.scope, key=place.__getitem__))
            if len(scope) > 1:
                waiting[scope[1]].append((frozenset(scope[1:]), len(parts), True))
            shape = tuple(int(cards[u]) for u in scope)
            parts.append(MiniBucket(scope, shape, tuple(g.factors), tuple(g.children)))
    return MiniBuckets(tuple(parts), tuple(buckets), tuple(common), tuple(alone), constants)


def _grouped(
    v: int, functions: list[tuple[frozenset[int], int, bool]], cards: Sequence[int], most: float
) -> list[_Group]:
    """Return the mini-buckets of a variable: each function joins the one that it enlarges least.

    The largest functions come first, so that small ones fill what is left. A function can share
    variables besides `v` with few mini-buckets, which `where` has by variable; all others it would
    enlarge by the same factor, so that the first one with room for it is the best of them.
    """
    sized = [(math.prod([cards[u] for u in f[0]]), f) for f in functions]
    groups, sizes = list[_Group](), list[int]()
    where: dict[int, list[int]] = {}
    # Mini-buckets before this one have no room for functions of the size of the last one.
    begin, last = 0, 0
    for size, (scope, number, message) in sorted(sized, key=lambda s: (-s[0], s[1][2], s[1][1])):
        others = scope - {v}
        whole = size // cards[v]
        shared: dict[int, int] = {}
        for u in others:
            for g in where.get(u, ()):
                shared[g] = shared.get(g, 1) * cards[u]
        begin, last = begin if whole == last else 0, whole
        room = most / whole if whole > 1 else math.inf
        while begin < len(sizes) and sizes[begin] > room:
            begin += 1
        found = [(whole // same, g) for g, same in shared.items()]
        for g in range(begin, len(sizes)):
            if sizes[g] <= room and g not in shared:
                found.append((whole, g))
                break
        fitting = [(by, g) for by, g in found if by == 1 or sizes[g] * by <= most]
        by, best = min(fitting, default=(size, len(groups)))
        if best == len(groups):
            groups.append(_Group(set(), [], []))
            sizes.append(1)
        group = groups[best]
        for u in others - group.scope:
            where.setdefault(u, []).append(best)
        sizes[best] *= by
        group.scope |= scope
        (group.children if message else group.factors).append(number)
    return groups


def table_of(values: Array, scope: Sequence[int], cards: Sequence[int], part: MiniBucket) -> Array:
    """Return the entries (entries, lanes) of a factor as axes of a mini-bucket's table."""
    shaped = values.reshape(*(int(cards[v]) for v in scope), values.shape[1])
    place = {v: i for i, v in enumerate(part.scope)}
    axes = sorted(range(len(scope)), key=lambda a: place[scope[a]])
    moved = shaped.transpose(*axes, len(scope))
    return np.ascontiguousarray(moved).reshape(*part.within(scope), values.shape[1])
