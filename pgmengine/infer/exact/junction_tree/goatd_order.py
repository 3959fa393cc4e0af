"""Elimination orders by the optional package goatd, which decomposes graphs into trees of bags.

goatd may exceed its time budget by a factor of two, so it is given half of the time that is
allowed. It runs in a daemon thread, which is abandoned if it has not ended after twice the allowed
time, so that a question can never hang. Orders of goatd minimise the number of variables in the
largest bag.
"""

from __future__ import annotations

import itertools
import threading
from importlib.util import find_spec

import numpy as np

from pgmengine.base.types import Array


def order_by_goatd(graph: tuple[Array, Array, Array], seconds: float) -> Array | None:
    """Return an order of goatd, or None if it is not installed or has not ended in time.

    `graph` is (cards, start, scope) as in `best_order`.
    """
    try:
        import goatd
    except ImportError:
        return None
    cards, start, scope = graph
    found: list[Array] = []

    def run() -> None:
        try:
            pairs = goatd.Graph(len(cards), _pairs(start, scope))
            tree = goatd.decompose(pairs, seed=1, budget_ms=max(1, int(500 * seconds)))
            found.append(_leaves_first(len(cards), tree.bags, tree.edges))
        except goatd.Error:
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(2.0 * seconds)
    return found[0] if found else None


def is_installed() -> bool:
    """Return whether goatd is installed."""
    return find_spec("goatd") is not None


def _pairs(start: Array, scope: Array) -> list[tuple[int, int]]:
    """Return the edges of the graph, each once."""
    pairs: set[tuple[int, int]] = set()
    for first, last in itertools.pairwise(start.tolist()):
        pairs.update(itertools.combinations(sorted(scope[first:last].tolist()), 2))
    return sorted(pairs)


def _leaves_first(n: int, bags: list[list[int]], edges: list[tuple[int, int]]) -> Array:
    """Return an order that eliminates leaf after leaf of a tree of bags.

    A leaf is eliminated with the variables that its parent does not have.
    """
    near: list[set[int]] = [set() for _ in bags]
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)
    order: list[int] = []
    leaves = [bag for bag, others in enumerate(near) if len(others) <= 1]
    for leaf in leaves:
        parent = next(iter(near[leaf]), None)
        kept = set() if parent is None else set(bags[parent])
        order.extend(v for v in bags[leaf] if v not in kept)
        if parent is not None:
            near[parent].discard(leaf)
            near[leaf].clear()
            if len(near[parent]) == 1:
                leaves.append(parent)
    order += sorted(set(range(n)).difference(order))
    return np.array(order, dtype=np.int32)
