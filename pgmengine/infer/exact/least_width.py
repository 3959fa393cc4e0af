"""Bounds of the width of a graph at a glance, which show quickly that a method cannot answer."""

from __future__ import annotations

import numpy as np

from pgmengine.base.equal_rows import distinct
from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.model.parameters import Parameters
from pgmengine.model.weights import is_sparse


def least_width(target: Target) -> float:
    """Return a lower bound of log2 of the largest clique, in the row with the most free units.

    It is the larger of two bounds of the treewidth: half the average number of neighbours, and the
    smallest number of neighbours within a dense coupling. All units count as binary, because other
    units have more states. Sparse couplings, tables and arrows are not counted.
    """
    s = target.structure
    if not s.undirected:
        return 0.0
    count = free_counts(target)
    row = int(np.argmax(count))
    edges, least = 0.0, 0.0
    for c in s.undirected:
        weight = target.model.weight(c)
        if is_sparse(weight):
            # A sparse coupling counts as 0, which keeps the bound valid. A low bound only means
            # that a junction tree is planned, as it should be for most sparse graphs.
            continue
        free = [target.free[n][row] for n in (c.a, c.b)]
        one, two = (s.layers[n].unit.width for n in (c.a, c.b))
        shape = (len(free[0]), one, len(free[1]), two)
        coupled = (np.reshape(weight, shape) != 0).any(axis=(1, 3))[free[0]][:, free[1]]
        edges += np.count_nonzero(coupled) / (2 if c.a == c.b else 1)
        neighbours = np.concatenate([coupled.sum(axis=1), coupled.sum(axis=0)])
        # Units without a neighbour would lower the minimum to 0. The bound holds for the graph
        # without them.
        least = max(least, float(min(neighbours[neighbours > 0], default=0)))
    return max(least, edges / max(float(count[row]), 1.0))


def free_counts(target: Target) -> Array:
    """Return the number of free units of each row, (rows,)."""
    each = [distinct(target.free[name]).sum(axis=1) for name in target.structure.layers]
    total = np.zeros(target.rows, dtype=np.int64)
    for count in each:
        total += count
    return total


def cycles(model: Parameters) -> int:
    """Return the number of pairs of units that couplings and tables join, less the units.

    A tree has -1. The larger the number, the more cycles a graph of pairs has.
    """
    s = model.structure
    pairs = np.count_nonzero(np.diff(s.table_index.start) == 2)
    for c in s.undirected:
        weight = model.weight(c)
        joined = weight.nnz if is_sparse(weight) else np.count_nonzero(weight)
        pairs += joined // 2 if c.a == c.b else joined
    return int(pairs) - s.units
