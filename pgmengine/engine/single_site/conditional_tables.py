"""Children of arrows whose conditionals sweeps read from tables.

If the parents of a child have few joint states, log p(x | zeta) - log h(x) has few values. They are
listed once for a model, like a conditional table, so that a sweep reads an entry instead of adding
up inputs and computing exponentials. Log densities still add up inputs, because importance weights
marginalise children.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.equal_rows import rows_by_kind
from pgmengine.base.types import Array
from pgmengine.model.graph.unit_graph import Rows
from pgmengine.model.tables import TableIndex, index_scopes
from pgmengine.units import Unit

if TYPE_CHECKING:
    import scipy.sparse as sp

# The most joint states of a child and its parents for which its conditional is listed.
MAX_LISTED_ENTRIES = 64


@dataclass(frozen=True, eq=False)
class Children:
    """The children of a model, as packed_units.py packs them.

    Attributes
    ----------
    sites, kinds : the units, and the unit type of each kind.
    parents : the parents of each unit.
    bias : (components,) of all units.
    arrows : weights from parents, csr (components, values).
    """

    sites: Array
    kinds: dict[int, Unit]
    parents: Rows
    bias: Array
    arrows: sp.csr_array

    def listed(self) -> tuple[TableIndex, Array]:
        """Return the tables of children with few entries, parents first, and their entries."""
        states, counts = self.sites["states"], np.diff(self.parents.start)
        own = np.log2(states)
        # bincount returns integers if there are no parents.
        bits = own + np.bincount(self.parents.rows, own[self.parents.columns], len(states))
        few = (bits <= np.log2(MAX_LISTED_ENTRIES) + 1e-9) & (self.sites["directed"] > 0)
        scopes, terms = list[Array](), [np.empty(0)]
        for scope in self._alike(np.flatnonzero(few), counts):
            scopes.append(scope)
            terms.append(self._terms(scope).ravel())
        index = index_scopes((scope, states[scope[0]], True) for scope in scopes)
        return index, np.concatenate(terms)

    def _alike(self, some: Array, counts: Array) -> Iterator[Array]:
        """Yield the scopes (children, members) of children of one kind with parents of one kind."""
        for count in np.unique(counts[some]):
            own = some[counts[some] == count]
            places = self.parents.start[own][:, None] + np.arange(count)
            scope = np.column_stack((self.parents.columns[places], own))
            for alike in rows_by_kind(self.sites["support"][scope]):
                yield scope[alike]

    def _terms(self, scope: Array) -> Array:
        """Return log p(x | zeta) - log h(x) at the joint states of parents and child.

        The axes are children, joint states of the parents, and states of the child.
        """
        *parents, child = (self.kinds[k] for k in self.sites["support"][scope[0]].tolist())
        supports = [_rows(unit) for unit in parents]
        joint = np.array(list(product(*(range(len(rows)) for rows in supports))), dtype=np.int64)
        x = [rows[states] for rows, states in zip(supports, joint.T, strict=True)]
        values = np.concatenate([np.empty((len(joint), 0)), *x], axis=1)
        row = self.sites["component"][scope[:, -1]][:, None] + np.arange(child.width)
        weight: Array = np.empty((len(scope), child.width, 0))
        if parents:
            columns = [
                self.sites["value"][scope[:, i]][:, None] + np.arange(unit.width)
                for i, unit in enumerate(parents)
            ]
            column = np.concatenate(columns, axis=1)
            at = np.broadcast_arrays(row[:, :, None], column[:, None, :])
            entries = self.arrows[at[0].flatten(), at[1].flatten()]
            weight = np.asarray(entries, dtype=float).reshape(at[0].shape)
        zeta = weight @ values.T + self.bias[row][:, :, None]
        zeta = zeta.swapaxes(1, 2)[:, :, None]
        support = _rows(child)
        shape = np.broadcast_shapes(zeta.shape, support.shape)
        zeta, support = np.broadcast_to(zeta, shape), np.broadcast_to(support, shape)
        if child.width == 1:
            zeta, support = zeta[..., 0], support[..., 0]
        return np.asarray(child.log_conditional(support, zeta) - child.log_h(support))


def _rows(unit: Unit) -> Array:
    """Return the values of a unit as rows (K, width)."""
    assert unit.support is not None
    return unit.support.reshape(len(unit.support), -1)


def joined(one: TableIndex, two: TableIndex) -> TableIndex:
    """Return the tables of both children, those of `one` first."""
    return TableIndex(
        np.concatenate([one.start, two.start[1:] + one.start[-1]]),
        np.concatenate([one.unit, two.unit]),
        np.concatenate([one.stride, two.stride]),
        np.concatenate([one.first, two.first + (one.first + one.size).max(initial=0)]),
        np.concatenate([one.size, two.size]),
        np.concatenate([one.child, two.child]),
        np.concatenate([one.states, two.states]),
    )
