"""A lower bound of the width of a graph, which shows quickly that a method cannot answer."""

from __future__ import annotations

import numpy as np

from pgmengine.base.rows import distinct
from pgmengine.evidence.target import Target
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
    counts = [distinct(target.free[name]).sum(axis=1) for name in s.layers]
    row = int(np.argmax(sum(np.broadcast_to(n, target.rows) for n in counts)))
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
    units = float(sum(np.broadcast_to(n, target.rows)[row] for n in counts))
    return max(least, edges / max(units, 1.0))
