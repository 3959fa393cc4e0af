"""Counts of table entries: of complete rows by counting, and of other rows as expectations.

The count of an entry is the sum over rows of weight * P(units of the table are at this entry |
row). A conditional that belongs to a barren unit has no counts in a row: its expected counts would
be those of its parents times its present probabilities, which moves nothing. Any method that
answers a gradient also gives expected counts, because the gradient of a table without the
constraint that its rows sum to one is its counts. `CountingModel` leaves this constraint out.
Counts of entries that follow from fewer numbers, as in a gate, become counts of these numbers.
"""

from __future__ import annotations

import numpy as np

from pgmengine.base.equal_rows import distinct, equal_rows
from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.model.structure import Structure

# Rows times axes of tables whose entries are computed at a time.
AXES_AT_ONCE = 2_000_000


class CountingModel(Model):
    """A model whose gradient in each table is the expected counts of its numbers."""

    def table_slopes(self, counts: Array) -> dict[str, Array]:
        """Return the counts by parameter."""
        return self.parameter_counts(counts)


def counted(structure: Structure, states: Array, weights: Array) -> Array:
    """Return the counts of all entries in complete rows, in the order of `table_entries`.

    Parameters
    ----------
    structure : the tables.
    states : (rows, units) states of all units.
    weights : (rows,) weight of each row.
    """
    index = structure.table_index
    total = np.zeros(structure.stored_entries)
    step = max(1, AXES_AT_ONCE // max(len(index.unit), 1))
    for first in range(0, len(states), step):
        some, heavy = np.ascontiguousarray(states[first : first + step].T), weights[first:][:step]
        for table, (begin, end) in enumerate(zip(index.start[:-1], index.start[1:], strict=True)):
            entry = some[index.unit[begin]] * index.stride[begin]
            for axis in range(begin + 1, end):
                entry += some[index.unit[axis]] * index.stride[axis]
            place = slice(index.first[table], index.first[table] + index.size[table])
            total[place] += np.bincount(entry, heavy, place.stop - place.start)
    return total


def merged(target: Target, weights: Array) -> tuple[Target, Array]:
    """Return the distinct rows of data, and the sum of the weights of the rows equal to each.

    Rows are equal if they observe the same units in the same states; rows of weight 0 are left out.
    Data of units with infinitely many values are returned as they are.
    """
    if not all(target.structure.state_counts.values()):
        return target, weights
    kept = np.flatnonzero(weights > 0)
    if len(kept) < target.rows:
        target, weights = target.take(kept), weights[kept]
    free = np.concatenate([target.free[name] for name in target.structure.layers], axis=1)
    # In the order of the data, so that equal data give equal bits.
    first, same = equal_rows(np.where(free, -1, target.states).astype(np.int32))
    if len(first) == target.rows:
        return target, weights
    return target.take(first), np.bincount(same, weights, len(first))


def is_complete(target: Target) -> bool:
    """Return whether every row observes all units."""
    return not any(distinct(free).any() for free in target.free.values())
