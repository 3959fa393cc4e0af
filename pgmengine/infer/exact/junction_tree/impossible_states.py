"""Removal of impossible states: states for which some table has no possible entry.

A state of a variable is impossible if a table is -inf at all entries with this state. Removing it
can make states of other variables impossible, and so on until nothing changes (generalised arc
consistency). The result does not depend on the order of removals. The sum over all states keeps its
value, because every removed term is 0.

Compiled in c/possible.h. Reference: repeated removal in numpy (test_orders.py).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from pgmengine._kernels import possible_states
from pgmengine.base.types import Array


@dataclass(frozen=True, eq=False)
class Possible:
    """Factors over the states that are left.

    Attributes
    ----------
    kept : tuple of (k,) int64
        The possible states of each variable, in ascending order. If a variable has none, the sum
        over all states is 0, and all these arrays and the tables are empty.
    cards : (n,) int64
        The number of possible states of each variable.
    start, scope
        The scopes of the same factors, without variables that have one possible state. A scope can
        be empty, and its table then has one entry.
    stays : bool
        Whether each entry of the given tables is kept. The kept entries have the same sequence, so
        that entries[stays] are the tables, also for other values with the same possible states.
    """

    kept: tuple[Array, ...]
    cards: Array
    start: Array
    scope: Array
    stays: Array


def remove_impossible(cards: Array, start: Array, scope: Array, zeros: Array) -> Possible:
    """Remove states that cannot occur, and the axes of variables with one state left.

    Parameters
    ----------
    cards : (n,) int64
        The number of states of each variable.
    start : (F + 1,) int64
    scope : (start[F],) int32
        The variables of factor f are scope[start[f]:start[f + 1]].
    zeros : bool
        Whether each entry of the tables is 0, one table after the other, last variable fastest.

    Raises
    ------
    PgmError
        If the tables do not fit the scopes.

    Examples
    --------
    >>> import numpy as np
    >>> table = np.array([0.5, 0.0, 0.25, 0.0])
    >>> left = remove_impossible(np.array([2, 2]), np.array([0, 2]), np.array([0, 1]), table == 0)
    >>> left.kept, left.scope, table[left.stays]
    ((array([0, 1]), array([0])), array([0], dtype=int32), array([0.5 , 0.25]))
    """
    cards, start = np.asarray(cards, np.int64), np.asarray(start, np.int64)
    left, stays = possible_states(cards, start, np.asarray(scope, np.int32), zeros)
    scope = np.asarray(scope, np.int32)
    first = np.concatenate(([0], np.cumsum(cards)))
    states, owner = np.flatnonzero(left), np.repeat(np.arange(len(cards)), cards)
    counts = np.bincount(owner[states], minlength=len(cards))
    own, ends = states - first[owner[states]], np.concatenate(([0], np.cumsum(counts))).tolist()
    kept = tuple(own[a:b] for a, b in itertools.pairwise(ends))
    several = counts[scope] > 1
    axes = np.concatenate(([0], np.cumsum(several)))
    return Possible(kept, counts, axes[start], scope[several], stays)
