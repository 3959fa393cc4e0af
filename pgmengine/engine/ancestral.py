"""Draws of units with a conditional table from their parents, in arrays (rows, units).

    p(x_u = k | parents) = T_u[states of the parents, k]

The entry of state 0 follows from the states of the parents, and the entries of the other states lie
behind it, since the child is the last axis of its conditional.
"""

from __future__ import annotations

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.graph.tables import joined_states
from pgmengine.graph.target import Target
from pgmengine.units.base import choose


class Conditionals:
    """Complete states x, layer -> (rows, width), in which units with a conditional are drawn.

    `states` (rows, units) are the states of all units. `take` brings them up to date where others
    have changed x.
    """

    def __init__(self, target: Target, x: States) -> None:
        self.target, self.x, s = target, x, target.structure
        self.states = joined_states(s, x)
        for name in s.layers:
            if (s.child_tables[name] >= 0).any() and target.free[name].any():
                x[name] = np.array(x[name])

    def take(self, name: str) -> None:
        """Take notice of new values of a layer."""
        s = self.target.structure
        layer, first = s.layers[name], s.first_unit[name]
        if s.tabled[name].any():
            self.states[:, first : first + layer.size] = layer.states(self.x[name])

    def draw(self, name: str, units: Array, rng: np.random.Generator) -> Array:
        """Draw the free ones of some units; return log p (rows,) of the observed ones.

        Units that do() has set have no part in it.
        """
        target, s = self.target, self.target.structure
        layer, own = s.layers[name], s.first_unit[name] + units
        assert layer.unit.support is not None
        begin = self._first_entries(s.child_tables[name][units])
        free = target.free[name][:, units]
        if free.any():
            entries = begin[..., None] + np.arange(len(layer.unit.support))
            drawn = choose(np.exp(target.model.table_entries.take(entries)), rng)
            new = np.where(free, drawn, self.states[:, own])
            self.states[:, own] = new
            self.x[name][:, layer.columns(units)] = layer.unit.support[new].reshape(len(new), -1)
        weigh = ~free & ~target.cut[name][:, units]
        if not weigh.any():
            return np.zeros(target.rows)
        own_term = target.model.table_entries.take(begin + self.states[:, own])
        return np.asarray(np.where(weigh, own_term, 0.0).sum(axis=1))

    def _first_entries(self, tables: Array) -> Array:
        """Return the entry (rows, n) of state 0 of the children of conditionals."""
        index = self.target.structure.table_index
        counts = index.start[tables + 1] - index.start[tables]
        begin = np.cumsum(counts) - counts
        axes = np.repeat(index.start[tables] - begin, counts) + np.arange(counts.sum())
        # The last axis of each is the child.
        stride = index.stride[axes]
        stride[begin + counts - 1] = 0
        steps = self.states[:, index.unit[axes]] * stride
        found: Array = np.add.reduceat(steps, begin, axis=1) + index.first[tables]
        return found
