"""Elimination orders of factor graphs: c/orders.h, by one greedy search in Python."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array

FILL, FILL_LOG, FILL_STATES, WEIGHT, SIZE, WEIGHT_FILL = range(6)


def checked_factors(cards: Array, start: Array, scope: Array) -> int:
    """PgmError unless the scopes of a factor graph are in order; the number of factors."""
    n, factors = len(cards), len(start) - 1
    if (np.asarray(cards) < 1).any():
        raise PgmError("a variable has no states, expected at least 1")
    if factors < 0 or start[0] != 0 or start[-1] != len(scope) or (np.diff(start) < 0).any():
        raise PgmError(f"start must lead from 0 to the length of scope, {len(scope)}")
    if len(scope) and not 0 <= scope.min() <= scope.max() < n:
        raise PgmError(f"a factor names a variable that is not there, expected 0 to {n - 1}")
    for f in range(factors):
        members = scope[start[f] : start[f + 1]].tolist()
        if len(set(members)) < len(members):
            raise PgmError(f"factor {f} names a variable twice")
    return factors


def eliminated(
    cards: Array, scopes: list[tuple[int, ...]], order: list[int]
) -> Iterator[tuple[int, ...]]:
    """Yield the clique of each variable of an order: the variable, then the later ones."""
    position = {v: i for i, v in enumerate(order)}
    waiting: list[set[int]] = [set() for _ in order]
    for members in scopes:
        if members:
            waiting[min(position[v] for v in members)].update(members)
    for i, v in enumerate(order):
        rest = sorted(waiting[i] - {v}, key=position.__getitem__)
        if rest:
            waiting[position[rest[0]]].update(rest)
        yield (v, *rest)


def entries_of(cards: Array, clique: tuple[int, ...]) -> float:
    """Return the table entries of a clique."""
    return math.prod(float(cards[v]) for v in clique)


class Orders:
    """The best elimination order of a factor graph; there is one search for each rule."""

    def __init__(self, cards: Array, start: Array, scope: Array) -> None:
        factors = checked_factors(cards, start, scope)
        self.cards, self.variables = cards, len(cards)
        # No further searches are worth their time.
        self.parts = 0
        self.scopes = [tuple(scope[start[f] : start[f + 1]].tolist()) for f in range(factors)]
        self.found: Array | None = None
        self.entries = math.inf

    def greedy(self, rule: int, seed: int, noise: float, best: float) -> None:
        """Search by the number of edges to fill in, or by the entries of the next clique."""
        near: list[set[int]] = [set() for _ in range(self.variables)]
        for members in self.scopes:
            for v in members:
                near[v].update(members)
        for v, own in enumerate(near):
            own.discard(v)
        rng, order = np.random.default_rng(seed), []
        tie = rng.random(self.variables) if seed else np.arange(self.variables) * 1.0
        bits = np.log2(self.cards)

        def score(v: int) -> tuple[float, float, float]:
            size = float(bits[v] + sum(bits[w] for w in near[v]))
            if rule in (WEIGHT, SIZE) or len(near[v]) > 40:
                return size, size, float(tie[v])
            missing = sum(
                float(bits[a] + bits[b]) if rule != FILL else 1.0
                for a in near[v]
                for b in near[v]
                if a < b and b not in near[a]
            )
            return missing, size, float(tie[v])

        current = {v: score(v) for v in range(self.variables)}
        heap = [(value, v) for v, value in current.items()]
        heapq.heapify(heap)
        while heap:
            value, v = heapq.heappop(heap)
            if current.get(v) != value:
                continue
            del current[v]
            order.append(v)
            around = near[v]
            for w in around:
                near[w] |= around
                near[w] -= {v, w}
            again = (
                set(around)
                if rule in (WEIGHT, SIZE)
                else around.union(*(near[w] for w in around if len(near[w]) <= 40))
            )
            for w in again & current.keys():
                fresh = score(w)
                if fresh != current[w]:
                    current[w] = fresh
                    heapq.heappush(heap, (fresh, w))
        self._keep(np.array(order, dtype=np.int32), best)

    def improve(self, seed: int, rounds: int, window: int) -> None:
        """Do nothing: there is no local search."""

    def offer(self, order: Array) -> None:
        """Keep an order (n,) if it is better."""
        if sorted(order.tolist()) != list(range(self.variables)):
            raise PgmError(f"the order is no permutation of {self.variables} variables")
        self._keep(np.asarray(order, dtype=np.int32), math.inf)

    def _keep(self, order: Array, best: float) -> None:
        entries, _ = self.cost(order)
        if entries < min(best, self.entries) or (not self.variables and self.found is None):
            self.found, self.entries = order, entries

    def work(self) -> int:
        """Return no work: it limits searches that are not there."""
        return 0

    def best(self) -> Array | None:
        """Return the best order (n,) int32; None if no search has ended within its limit."""
        return self.found

    def cost(self, order: Array) -> tuple[float, float]:
        """Return the table entries of an order, and the log2 of those of its largest clique."""
        sizes = [
            entries_of(self.cards, clique)
            for clique in eliminated(self.cards, self.scopes, order.tolist())
        ]
        return sum(sizes), math.log2(max(sizes, default=1.0))

    def bound(self) -> float:
        """Return a lower bound on the bits of the largest clique: the largest factor."""
        return math.log2(max([entries_of(self.cards, s) for s in self.scopes], default=1.0))
