"""The factors of rows of one evidence pattern, as tables of mini-buckets of a chosen size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.infer.bounds.mini_buckets import MiniBuckets, mini_buckets, table_of
from pgmengine.infer.bounds.weighted_sums import Tables, size_of
from pgmengine.infer.exact.junction_tree.conditioned_model import Conditioned
from pgmengine.infer.exact.junction_tree.elimination_order import Order, best_order
from pgmengine.infer.exact.junction_tree.impossible_states import remove_impossible

# Seconds of a step of both bounds: for a table entry in a lane, and for a mini-bucket.
ENTRY_SECONDS, PART_SECONDS = 8e-8, 3e-4
# The largest memory of the tables of a pass, in bytes, and the arrays that an entry needs in each
# lane: the tables, the conditionals of both bounds, and copies of the largest table.
MAX_BYTES, ARRAYS, COPIES = 2.0**30, 3, 8
# The longest search for an elimination order, as a share of the time of the call.
SEARCH_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class Problem:
    """Factors of some rows over their possible states.

    Attributes
    ----------
    conditioned : the factors of the pattern.
    target : the rows.
    cards : the number of possible states of each variable; some are 0 where all is impossible.
    scopes : the variables of each factor.
    values : the log entries (entries, rows or 1) of each factor.
    kept : the possible states of each variable.
    order : an elimination order.
    known : the mini-buckets of each largest size that have been made: it takes seconds for models
        with many factors.
    """

    conditioned: Conditioned
    target: Target
    cards: Array
    scopes: tuple[tuple[int, ...], ...]
    values: tuple[Array, ...]
    kept: tuple[Array, ...]
    order: Order
    known: dict[float, MiniBuckets] = field(default_factory=dict)

    @property
    def impossible(self) -> bool:
        """Whether some variable has no possible state in any row."""
        return not self.cards.all()

    def at_most(self, most: float) -> MiniBuckets:
        """Return mini-buckets of at most `most` entries."""
        if most not in self.known:
            order = self.order.order.tolist()
            self.known[most] = mini_buckets(self.cards.tolist(), self.scopes, order, most)
        return self.known[most]

    def within(self, most: float, seconds: float, lanes: int, at_once: int) -> MiniBuckets:
        """Return the largest mini-buckets of at most `most` entries with steps of `seconds`.

        A step is about `lanes` lanes, of which `at_once` are in memory together.
        """

        def fits(found: MiniBuckets) -> bool:
            small = bytes_of(found, at_once) <= MAX_BYTES
            return small and step_seconds(found, lanes) <= seconds

        # Larger mini-buckets have more entries, so that halving the range finds the largest ones.
        low, high = -1, int(math.log2(max(most, 1.0)))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(self.at_most(2.0**middle)) else (low, middle - 1)
        if low >= 0:
            return self.at_most(2.0**low)
        # Small mini-buckets are many, so that the smallest need not be the quickest.
        tried = [g for g in self.known.values() if bytes_of(g, at_once) <= MAX_BYTES]
        return min(tried or [self.at_most(1.0)], key=lambda g: step_seconds(g, lanes))

    def tables(self, graph: MiniBuckets, rows: Array, fixed: dict[int, Array]) -> Tables:
        """Return the tables of mini-buckets for lanes that have the factors of some rows."""
        own, sizes = [], []
        for part in graph.parts:
            values, size = np.zeros((*[1] * len(part.scope), 1)), np.zeros(len(rows))
            for f in part.factors:
                taken = self.values[f] if self.values[f].shape[1] == 1 else self.values[f][:, rows]
                values = values + table_of(taken, self.scopes[f], self.cards.tolist(), part)
                size = size + size_of(taken)
            own.append(values)
            sizes.append(size)
        return Tables(tuple(own), tuple(sizes), len(rows), fixed)

    def constant(self, graph: MiniBuckets, rows: Array) -> Array:
        """Return the log weight (rows,) of factors without variables, for clamped lanes alike."""
        total = np.asarray(self.conditioned.constant(self.target))
        total = np.broadcast_to(total, (self.target.rows,))[rows]
        for f in graph.constants:
            values = self.values[f]
            total = total + (values[0] if values.shape[1] == 1 else values[0, rows])
        return total

    @property
    def states(self) -> list[tuple[int, int]]:
        """The possible states of all free units, as pairs of a variable and a state."""
        units = range(len(self.conditioned.free.states))
        return [(v, k) for v in units for k in range(int(self.cards[v]))]


def problem(conditioned: Conditioned, target: Target, order: Order, most: float) -> Problem:
    """Return the factors of some rows, without states that are impossible in all of them."""
    states, scopes = conditioned.states, conditioned.scopes
    values = list(_factors(conditioned, target))
    cards, start, scope = states, scopes.start, scopes.scope
    kept = tuple(np.arange(k) for k in cards)
    zeros = conditioned.impossible(target)
    if zeros.any():
        p = remove_impossible(states, start, scope, zeros)
        ends = np.cumsum([0, *conditioned.sizes])
        values = [x[p.stays[a:b]] for x, a, b in zip(values, ends[:-1], ends[1:], strict=True)]
        cards, start, scope, kept = p.cards, p.start, p.scope, p.kept
        if cards.all():
            order = best_order(cards, start, scope, 0.0)
    if cards.all() and order.largest > math.log2(max(most, 1.0)):
        order = best_order(cards, start, scope, SEARCH_SHARE * 10.0)
    lists = [tuple(scope[a:b].tolist()) for a, b in zip(start[:-1], start[1:], strict=True)]
    return Problem(conditioned, target, cards, tuple(lists), tuple(values), kept, order)


def _factors(conditioned: Conditioned, target: Target) -> Iterator[Array]:
    """Yield the entries (entries, rows or 1) of each factor."""
    first = 0
    for term, table in zip(conditioned.terms, conditioned.tables(target), strict=True):
        sizes = conditioned.sizes[first : first + len(term.scopes)]
        ends = np.cumsum([0, *sizes])
        first += len(sizes)
        for a, b in zip(ends[:-1], ends[1:], strict=True):
            yield table[a:b]


def step_seconds(graph: MiniBuckets, lanes: int) -> float:
    """Return about the seconds of a step of both bounds."""
    return ENTRY_SECONDS * graph.entries * lanes + PART_SECONDS * len(graph.parts)


def bytes_of(graph: MiniBuckets, lanes: int) -> float:
    """Return the memory of a pass in bytes."""
    largest = max([part.entries for part in graph.parts], default=1)
    return 8.0 * lanes * (ARRAYS * graph.entries + COPIES * largest)
