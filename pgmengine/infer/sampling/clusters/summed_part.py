"""The part of a graph that a junction tree can sum, where a ladder of cluster moves begins.

The units are cut into blocks of neighbouring numbers, in the order in which they were declared or
in the order of Cuthill and McKee (1969), which follows breadth-first search. Without the edges
between blocks, the junction tree of a lattice is as wide as a block. There are as few blocks as the
limit of table entries allows, and at least two. The log Z of all blocks is exact. A ladder then has
to join them only, and the work for an error of log Z falls as the sum of squares of the couplings
that it joins: a lattice of 64x64 has 8 blocks, and 448 of 8,064 couplings between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pgmengine._kernels import JunctionTree
from pgmengine.base.types import Array
from pgmengine.infer.exact.junction_tree.elimination_order import (
    ELIMINATED_ENTRY_SECONDS,
    best_order,
    has_order,
)
from pgmengine.infer.sampling.clusters.moves import Part

# Largest number of table entries of the blocks: 64 MiB, and less than a tenth of a second.
MAX_SUMMED_ENTRIES = 2.0**23

# The factor from one number of blocks to the next that is tried.
MORE_BLOCKS = 1.25

# Seconds of the search for an order of the blocks.
SEARCH_SECONDS = 0.1


@dataclass(frozen=True, eq=False)
class SummedPart:
    """The blocks of a graph.

    Attributes
    ----------
    cut : (edges,) whether each edge joins two blocks.
    order : (units,) the elimination order of the rest.
    entries : its number of table entries.
    """

    cut: Array
    order: Array
    entries: float

    @property
    def seconds(self) -> float:
        """The time of `log_z`."""
        return ELIMINATED_ENTRY_SECONDS * self.entries

    def log_z(self, part: Part) -> float:
        """Return log Z of one row without the couplings that are cut."""
        q, kept = part.states, ~self.cut
        agree = 2.0 * np.eye(q).ravel() - 1.0
        tables = np.concatenate([part.h[:, :, 0].ravel(), np.outer(part.J[kept, 0], agree).ravel()])
        tree = JunctionTree(*_factors(part, kept), self.order)
        return float(tree.run(tables)["log_z"][0] + part.constant[0])


def summed_part(part: Part) -> SummedPart:
    """Return the blocks with the fewest edges between them, of two orders of the units."""
    found = [_blocks(part, place) for place in _places(part)]
    cut = min(found, key=np.count_nonzero)
    best = best_order(*_factors(part, ~cut), seconds=SEARCH_SECONDS)
    return SummedPart(cut, best.order, best.entries)


def _blocks(part: Part, place: Array) -> Array:
    """Return which edges are between the fewest blocks, for one order of the units."""
    units, count = len(part.h), 2
    while count < units and len(part.edges):
        block = place * count // units
        cut: Array = np.not_equal(*block[part.edges].T)
        if has_order(*_factors(part, ~cut), MAX_SUMMED_ENTRIES):
            return cut
        count = int(np.ceil(MORE_BLOCKS * count))
    return np.ones(len(part.edges), dtype=bool)


def _places(part: Part) -> Iterator[Array]:
    """Yield the place (units,) of each unit, as declared and by the order of Cuthill and McKee."""
    import scipy.sparse as sp

    units = len(part.h)
    yield np.arange(units)
    if not len(part.edges):
        return
    shape, ones = (units, units), np.ones(len(part.edges))
    joins = sp.csr_array((ones, tuple(part.edges.T)), shape=shape)
    order = sp.csgraph.reverse_cuthill_mckee((joins + joins.T).tocsr(), symmetric_mode=True)
    place = np.empty(units, dtype=np.int64)
    place[order] = np.arange(units)
    yield place


def _factors(part: Part, kept: Array) -> tuple[Array, Array, Array]:
    """Return states, starts and scopes of a factor of each unit and of each edge that is kept."""
    units, pairs = len(part.h), int(kept.sum())
    start = np.concatenate([np.arange(units), units + 2 * np.arange(pairs + 1)])
    scope = np.concatenate([np.arange(units), part.edges[kept].ravel()])
    return np.full(units, part.states), start.astype(np.int64), scope.astype(np.int32)
