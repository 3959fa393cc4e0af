"""Elimination orders of factor graphs: several searches, compared by their number of table entries.

A search of cython_ext/c/orders.h takes microseconds to milliseconds. The work of elimination is
proportional to the number of table entries, which differs by powers of ten between orders. The
search continues while its cost is a small share of the cost of elimination by the best order so
far. Its steps are:

1. one greedy search by each rule, with ties broken by a second score;
2. rounds of randomised greedy searches (random ties; scores with noise), and of local search in
   the best order;
3. the package goatd, if it is installed, where the elimination is expensive. It minimises numbers
   of variables, not of states, so its orders are compared like all others.

The searches are limited by counted work, not by the clock, so that the orders are the same on every
computer. There are two exceptions: `seconds` ends the search on a slow computer, and goatd has a
time limit.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pgmengine import _kernels
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.infer.exact.junction_tree.goatd_order import order_by_goatd

# Seconds of elimination for a table entry (3 passes of 3 ns each), and of a search for each list
# entry that it reads.
ELIMINATED_ENTRY_SECONDS = 9e-9
SEARCHED_ENTRY_SECONDS = 5e-9
# The share of the time of the elimination that the search may take.
MAX_SEARCH_SHARE = 0.05
# Orders with more table entries are taken to be infeasible. The search then uses all of its
# seconds, unless the largest clique is proven to be as small as possible.
MAX_FEASIBLE_ENTRIES = 2.0**27
# goatd runs if the search may take at least MIN_GOATD_SECONDS, and gets about the share GOATD_SHARE
# of the seconds of the search.
MIN_GOATD_SECONDS, GOATD_SHARE = 0.2, 0.25
# The search ends if the order of goatd has more table entries. For a lattice of 32x32 it has 2^39,
# which two more seconds of local search did not improve. The limit of `Exact` is 2^30.
MAX_ENTRIES_AFTER_GOATD = 2.0**34
RULES = {
    "min-fill by logarithms of states": _kernels.FILL_LOG,
    "min-fill by states": _kernels.FILL_STATES,
    "min-fill": _kernels.FILL,
    "min-weight": _kernels.WEIGHT,
}
RANDOMISED_RULES = tuple(RULES.items())[:3]
SHARES_OF_NOISE = (0.0, 0.05, 0.2, 0.5)
# Numbers of variables in the windows of local search, and about the seconds that a window takes.
WINDOW_SIZES, WINDOW_SECONDS = (20, 40, 80), 1e-3


@dataclass(frozen=True, eq=False)
class Order:
    """An elimination order, and its cost.

    Attributes
    ----------
    order : (n,) int32
        The variables in the order of elimination.
    entries : float
        The sum over the maximal cliques of their numbers of table entries.
    largest : float
        log2 of the table entries of the largest clique.
    rule : str
        The search that has found the order, or its last improvement.
    bound : float
        log2 of the table entries of a clique that every order needs.
    """

    order: Array
    entries: float
    largest: float
    rule: str
    bound: float


class _Search:
    """The best order so far, and the limits of a search."""

    def __init__(
        self, cards: Array, start: Array, scope: Array, seconds: float, passes: float
    ) -> None:
        self.orders = _kernels.Orders(cards, start, scope)
        self.graph, self.bound = (cards, start, scope), self.orders.bound()
        self.end = time.monotonic() + seconds
        self.seconds, self.rule, self.entries, self.largest = seconds, "", math.inf, math.inf
        self.passes = passes
        self.order: Array | None = None

    def note(self, rule: str) -> None:
        """Record the best order so far, after a search by `rule`."""
        order = self.orders.best()
        if order is not None:
            entries, largest = self.orders.cost(order)
            if self.order is None or entries < self.entries:
                self.order, self.entries, self.largest, self.rule = order, entries, largest, rule

    def allowed(self) -> float:
        """Return the seconds that the search may take in all."""
        if self.entries > MAX_FEASIBLE_ENTRIES and self.largest > self.bound + 1e-6:
            return self.seconds
        return min(
            self.seconds, MAX_SEARCH_SHARE * ELIMINATED_ENTRY_SECONDS * self.entries * self.passes
        )

    def left(self) -> float:
        """Return the seconds that are left for further searches."""
        late = time.monotonic() >= self.end
        return 0.0 if late else self.allowed() - SEARCHED_ENTRY_SECONDS * self.orders.work()


def best_order(
    cards: Array,
    start: Array,
    scope: Array,
    seconds: float = 10.0,
    offered: Array | None = None,
    passes: float = 1.0,
) -> Order:
    """Return the best elimination order of a factor graph that a limited search finds.

    The search takes about 5 % of the time that elimination by the best order would take, and at
    most `seconds`. If that order has more than 2^27 table entries, it takes all of `seconds`. The
    number of repeats follows from counted work. Only the end after `seconds` and the orders of
    goatd depend on the speed of the computer.

    Parameters
    ----------
    cards : (n,) int64
        The number of states of each variable.
    start : (F + 1,) int64
    scope : (start[F],) int32
        The variables of factor f are scope[start[f]:start[f + 1]], each once.
    seconds : float
        The longest time of the search, after the first pass.
    offered : (n,) int32, optional
        An order to start from.
    passes : float
        The number of eliminations that will use the order.

    Raises
    ------
    PgmError
        If the arrays do not describe a factor graph, or if every order that was tried has more than
        2^1023 table entries.

    Examples
    --------
    >>> import numpy as np
    >>> cycle = np.array([0, 1, 1, 2, 2, 3, 3, 0], dtype=np.int32)
    >>> found = best_order(np.full(4, 2), np.arange(0, 10, 2), cycle)
    >>> found.entries, found.largest
    (16.0, 3.0)
    """
    cards, start = np.ascontiguousarray(cards, np.int64), np.ascontiguousarray(start, np.int64)
    scope = np.ascontiguousarray(scope, np.int32)
    search = _Search(cards, start, scope, seconds, passes)
    if offered is not None:
        search.orders.offer(offered)
        search.note("offered")
    for step in _steps(search):
        search.note(step)
        if not search.orders.parts or search.left() <= 0.0:
            break
    if search.order is None:
        # The number of table entries exceeds the largest double.
        raise PgmError("each elimination order that was tried has more than 2^1023 table entries")
    return Order(search.order, search.entries, search.largest, search.rule, search.bound)


def has_order(cards: Array, start: Array, scope: Array, most: float) -> bool:
    """Return whether one of the quick rules finds an order of at most `most` table entries.

    The other arguments are those of `best_order`. A search ends as soon as its order needs more
    entries.
    """
    orders = _kernels.Orders(
        np.ascontiguousarray(cards, np.int64),
        np.ascontiguousarray(start, np.int64),
        np.ascontiguousarray(scope, np.int32),
    )
    for rule in RULES.values():
        orders.greedy(rule, 0, 0.0, most)
        if orders.best() is not None:
            return True
    return False


def _steps(search: _Search) -> Iterator[str]:
    """Run one search after the other, and yield the name of each."""
    for name, rule in RULES.items():
        search.orders.greedy(rule, 0, 0.0, math.inf)
        yield name
    for seed, (noise, (name, rule)) in enumerate(
        itertools.product(SHARES_OF_NOISE, RANDOMISED_RULES), 1
    ):
        search.orders.greedy(rule, seed, noise, math.inf)
        yield f"{name}, randomised"
    with_goatd = True
    for seed in itertools.count(1):
        rounds = min(20, 1 + int(search.left() / WINDOW_SECONDS))
        search.orders.improve(seed, rounds, WINDOW_SIZES[seed % 3])
        yield "local search"
        if with_goatd and search.left() > MIN_GOATD_SECONDS:
            with_goatd = False
            order = order_by_goatd(search.graph, GOATD_SHARE * search.left())
            if order is not None:
                search.orders.offer(order)
                yield "goatd"
                if search.entries > MAX_ENTRIES_AFTER_GOATD:
                    return
