"""The factor graph of one evidence pattern: its spanning trees, and factors with structure.

Variables and factors are the two kinds of vertices, and a factor has an edge to each variable of
its scope. If the graph is a forest, one sweep from the leaves and one back give exact answers.

A factor over two-state variables that depends on the number of ones alone has messages from a chain
of counts (c/messages.h), in n operations where it depends on their parity, and in n^2 otherwise.
Such factors are recognised by their entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine._kernels import Messages
from pgmengine.base.types import Array
from pgmengine.infer.exact.junction_tree.factors import Scopes

# Tables over fewer variables are visited entry by entry, which takes no longer: those of parity
# checks, and those of other functions of the count.
LEAST_OF_PARITY, LEAST_OF_COUNT = 3, 6
# The bytes of tables that are compared at a time.
COMPARED_BYTES = 2.0**26


@dataclass(frozen=True, eq=False)
class FactorGraph:
    """The factor graph of a conditioned model.

    Attributes
    ----------
    cards : (variables,) the numbers of states.
    scopes : the factors.
    sizes : (factors,) the number of entries of each.
    """

    cards: Array
    scopes: Scopes
    sizes: Array

    @cached_property
    def _searched(self) -> tuple[int, Array]:
        """The number of components, and all vertices, factors last, breadth first."""
        import scipy.sparse as sp
        from scipy.sparse.csgraph import breadth_first_order, connected_components

        n, factors = len(self.cards), len(self.scopes)
        owner = n + np.repeat(np.arange(factors), np.diff(self.scopes.start))
        pairs = np.ones(len(owner)), (self.scopes.scope, owner)
        joins = sp.csr_array(pairs, shape=(n + factors + 1, n + factors + 1))
        count, component = connected_components(joins, directed=False)
        # One more vertex is joined to the first one of each component, as the root of all.
        first = np.unique(component[:-1], return_index=True)[1]
        root = np.full(len(first), n + factors)
        joins = joins + sp.csr_array((np.ones(len(first)), (root, first)), shape=joins.shape)
        order = breadth_first_order(joins, n + factors, directed=False, return_predecessors=False)
        return int(count) - 1, order[1:].astype(np.int64)

    @property
    def forest(self) -> bool:
        """Whether the graph has no loops."""
        vertices = len(self.cards) + len(self.scopes)
        return bool(len(self.scopes.scope) + self._searched[0] == vertices)

    @property
    def variables_in_order(self) -> Array:
        """All variables, each one after those that are nearer to the root of its tree."""
        return self._searched[1][self._searched[1] < len(self.cards)]

    @property
    def factors_in_order(self) -> Array:
        """All factors, in the same order."""
        return self._searched[1][self._searched[1] >= len(self.cards)] - len(self.cards)

    def messages(self, entries: Array, maximum: bool) -> Messages:
        """Return the messages for entries (entries, lanes), as sums or as maxima."""
        graph = self.cards, self.scopes.start, self.scopes.scope
        return Messages(*graph, self.counts(entries), self.factors_in_order, maximum)

    def counts(self, entries: Array) -> Array:
        """Return (factors,) the number of counts of each factor with structure, 0 for tables.

        Parameters
        ----------
        entries : (entries, lanes) of all factors.
        """
        lengths, first = np.diff(self.scopes.start), np.cumsum(self.sizes) - self.sizes
        wide = np.repeat(np.arange(len(self.scopes)), lengths)[self.cards[self.scopes.scope] != 2]
        two = np.bincount(wide, minlength=len(self.scopes)) == 0
        out = np.zeros(len(self.scopes), dtype=np.int64)
        for n in np.unique(lengths[two & (lengths >= LEAST_OF_PARITY)]).tolist():
            ones = (np.arange(1 << n)[:, None] >> np.arange(n) & 1).sum(axis=1)
            some = np.flatnonzero(two & (lengths == n))
            each = max(1, int(COMPARED_BYTES / (8.0 * entries.shape[1] * (1 << n))))
            for part in np.split(some, np.arange(each, len(some), each)):
                found = entries[first[part][:, None] + np.arange(1 << n)]
                for states in (n + 1, 2) if n >= LEAST_OF_COUNT else (2,):
                    by_count = found[:, (1 << ones % states) - 1]
                    out[part[(found == by_count).all(axis=(1, 2))]] = states
        return out
