"""Blocks of units whose exact conditional given all other units is cheap.

A block grows from a free unit to random neighbours in the graph of units
(model/graph/unit_graph.py). Its units are eliminated in the reverse order of its growth: `back`
holds the earlier neighbours of each unit. Eliminating a unit joins its earlier neighbours with
each other, so that the latest of them inherits the others. All cliques {unit} + back of a block
may have a limited number of states together. A unit enters the block if no clique then has more
than MAX_CLIQUE_SHARE of this limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.model.graph.unit_graph import UnitGraph, unit_graph

# The largest number of states of one clique, as a share of the limit for all cliques together. With
# 1/16 and 1/64 the comparison found fewer of the chains that could not leave their part of the
# space.
MAX_CLIQUE_SHARE = 1 / 4

# The number of blocks that each free unit is part of.
BLOCKS_PER_UNIT = 4


def blocks(target: Target, states: float, rng: np.random.Generator) -> Iterator[tuple[Array, bool]]:
    """Yield blocks of free units until each free unit has been in BLOCKS_PER_UNIT of them.

    Each block grows from one of the units that have been in the fewest blocks so far. The cliques
    of a block have up to `states` states together. The second value says whether the block is
    closed, which means that no free unit outside it is a neighbour. The conditional of a closed
    block does not depend on the draws.
    """
    graph, names = unit_graph(target.model), target.structure.layers
    free = np.concatenate([target.free[name].any(axis=0) for name in names])
    visits = np.where(free, 0.0, np.inf)
    while visits.min(initial=np.inf) < BLOCKS_PER_UNIT:
        first = rng.choice(np.flatnonzero(visits == visits.min()))
        block, closed = _Block(graph, states).grown(free, int(first), rng)
        visits[block] += np.inf if closed else 1.0
        yield block, closed


@dataclass(eq=False)
class _Block:
    """A block while it grows.

    Attributes
    ----------
    most : the limit of the number of states of all its cliques together.
    back : unit -> its earlier neighbours, including the ones that elimination adds.
    rank : unit -> its place in the order of growth.
    """

    graph: UnitGraph
    most: float
    back: dict[int, set[int]] = field(default_factory=dict)
    rank: dict[int, int] = field(default_factory=dict)

    def grown(self, free: Array, first: int, rng: np.random.Generator) -> tuple[Array, bool]:
        """Return a block that has grown from a first unit, and whether it is closed."""
        states, waiting, all_taken = 0.0, [first], True
        open_, inside = free.copy(), np.zeros(len(free), dtype=bool)
        open_[first] = False
        while waiting and states < self.most:
            # Take a random waiting unit, and move the last one to its place in the list.
            at = int(rng.integers(len(waiting)))
            waiting[at], waiting[-1] = waiting[-1], waiting[at]
            unit = waiting.pop()
            near = self.graph.neighbours(unit)
            changed = self._with(unit, set(near[inside[near]].tolist()))
            if changed is None:
                all_taken = False
                continue
            self.rank[unit] = len(self.rank)
            self.back |= changed
            states += 2.0 ** self._bits(unit, self.back[unit])
            inside[unit] = True
            fresh = near[open_[near]]
            open_[fresh] = False
            waiting += fresh.tolist()
        return np.sort(np.array(list(self.back))), all_taken and not waiting

    def _bits(self, unit: int, back: set[int]) -> float:
        """Return log2 of the states of a clique."""
        bits = self.graph.bits
        return bits[unit] + sum(map(bits.__getitem__, back))

    def _with(self, unit: int, near: set[int]) -> dict[int, set[int]] | None:
        """Return the entries of `back` that a new unit changes; None if a clique is too large."""
        changed, limit = {unit: near}, math.log2(self.most * MAX_CLIQUE_SHARE)
        while self._bits(unit, changed[unit]) <= limit:
            if not changed[unit]:
                return changed
            latest = max(changed[unit], key=self.rank.__getitem__)
            inherited = self.back[latest] | changed[unit] - {latest}
            if inherited == self.back[latest]:
                return changed
            changed[latest] = inherited
            unit = latest
        return None
