"""Removal of impossible states: states for which some table has no possible entry.

A state of a variable is impossible if a table is -inf at all entries with this state. Removing it
can make states of other variables impossible, and so on until nothing changes (generalised arc
consistency). The result does not depend on the order of removals. The sum over all states keeps its
value, because every term that is removed from it is 0.

Tables are visited in groups of equal shape, as boolean arrays (tables, *shape) of the possible
entries. A visit removes the entries of states that have been removed, and then the states that have
no entry left. Only tables with a member that has lost states since their last visit are visited
again.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from pgmengine._kernels import checked_factors
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array


@dataclass(frozen=True, eq=False)
class Possible:
    """Factors over the states that are left.

    Attributes
    ----------
    kept : tuple of (k,) int64
        The states of each variable that are left, in ascending order. All are empty, like the
        tables, if a variable has lost all states: the sum over all states is then 0.
    cards : (n,) int64
        Their numbers.
    start, scope
        The scopes of the same factors, without variables that have one state left. A scope can be
        empty, and its table then has one entry.
    stays : bool
        Whether each entry of the given tables is an entry of these tables. They have the same
        sequence, so that the tables of other values with the same possible states are a selection.
    values : float64
        The tables one after the other, last variable fastest.
    """

    kept: tuple[Array, ...]
    cards: Array
    start: Array
    scope: Array
    stays: Array
    values: Array


def remove_impossible(cards: Array, start: Array, scope: Array, values: Array) -> Possible:
    """Remove states that cannot occur, and the axes of variables with one state left.

    Parameters
    ----------
    cards : (n,) int64
        The number of states of each variable.
    start : (F + 1,) int64
    scope : (start[F],) int32
        The variables of factor f are scope[start[f]:start[f + 1]].
    values : float64
        Log values of the tables, one table after the other, last variable fastest; -inf is
        impossible.

    Raises
    ------
    PgmError
        If the tables do not fit the scopes, or a value is NaN or +inf.

    Examples
    --------
    >>> import numpy as np
    >>> table = np.array([0.5, -np.inf, 0.25, -np.inf])
    >>> left = remove_impossible(np.array([2, 2]), np.array([0, 2]), np.array([0, 1]), table)
    >>> left.kept, left.scope, left.values
    ((array([0, 1]), array([0])), array([0], dtype=int32), array([0.5 , 0.25]))
    """
    cards, start = np.asarray(cards, np.int64), np.asarray(start, np.int64)
    scope, values = np.asarray(scope, np.int32), np.asarray(values, np.float64)
    checked_factors(cards, start, scope)
    offset = _offsets(cards, start, scope, values)
    groups = _groups(cards, start, scope, values, offset)
    mask = np.arange(max(cards, default=0)) < cards[:, None]
    changed = np.ones(len(cards), dtype=bool)
    while changed.any():
        before = mask.copy()
        for group in groups:
            group.stale |= changed[group.members].any(axis=1)
            group.visit(mask)
        changed = (mask != before).any(axis=1)
    if not mask.any(axis=1).all():
        mask[:] = False
    return _reduced(mask, start, scope, values, groups)


class _Group:
    """The tables of one shape: their factors, places in the values, members, possible entries."""

    def __init__(self, shape: tuple[int, ...], place: Array, members: Array, values: Array) -> None:
        self.shape, self.place, self.members = shape, place, members
        self.possible = (values[place] > -np.inf).reshape(-1, *shape)
        self.stale = np.ones(len(place), dtype=bool)

    def left(self, mask: Array, which: Array) -> Array:
        """Return the entries of some tables whose states are all left, (tables, *shape)."""
        out = np.ones((len(which), *self.shape), dtype=bool)
        for axis, states in enumerate(self.shape):
            shape = [len(which), *(1 for _ in self.shape)]
            shape[axis + 1] = states
            out &= mask[self.members[which, axis], :states].reshape(shape)
        return out

    def visit(self, mask: Array) -> None:
        """Remove states without a possible entry in a stale table from the mask."""
        which = np.flatnonzero(self.stale)
        self.stale[:] = False
        possible = self.possible[which] & self.left(mask, which)
        self.possible[which] = possible
        axes = range(1, len(self.shape) + 1)
        for axis, states in enumerate(self.shape):
            some = possible.any(axis=tuple(a for a in axes if a != axis + 1))
            np.logical_and.at(mask[:, :states], self.members[which, axis], some)


def _offsets(cards: Array, start: Array, scope: Array, values: Array) -> Array:
    """Return the place of the first entry of each table, and check the values."""
    size = np.array(
        [math.prod(cards[scope[a:b]].tolist()) for a, b in itertools.pairwise(start.tolist())],
        dtype=np.int64,
    )
    offset = np.concatenate(([0], np.cumsum(size))).astype(np.int64)
    if values.ndim != 1 or len(values) != offset[-1]:
        raise PgmError(
            f"values has the shape {values.shape}, but the tables have {offset[-1]} entries in all"
        )
    bad = np.flatnonzero(np.isnan(values) | (values == np.inf))
    if len(bad):
        factor = int(np.searchsorted(offset, bad[0], side="right")) - 1
        raise PgmError(
            f"factor {factor}: entry {bad[0] - offset[factor]} of the table is {values[bad[0]]}, "
            "expected a finite logarithm, or -inf for an impossible state"
        )
    return offset


def _groups(cards: Array, start: Array, scope: Array, values: Array, offset: Array) -> list[_Group]:
    """Return the groups of tables of equal shape."""
    shapes: dict[tuple[int, ...], list[int]] = {}
    for f, (a, b) in enumerate(itertools.pairwise(start.tolist())):
        shapes.setdefault(tuple(cards[scope[a:b]].tolist()), []).append(f)
    groups = []
    for shape, factors in shapes.items():
        place = offset[factors][:, None] + np.arange(math.prod(shape))
        members = scope[start[factors][:, None] + np.arange(len(shape))]
        groups.append(_Group(shape, place, members, values))
    return groups


def _reduced(
    mask: Array, start: Array, scope: Array, values: Array, groups: list[_Group]
) -> Possible:
    """Return the tables over the states in the mask.

    Entries that stay keep their sequence, so that the reduced tables are a selection of the values.
    """
    stays = np.zeros(len(values), dtype=bool)
    for group in groups:
        left = group.left(mask, np.arange(len(group.place)))
        stays[group.place] = left.reshape(len(group.place), -1)
    cards = mask.sum(axis=1)
    several = cards[scope] > 1
    counts = np.concatenate(([0], np.cumsum(several)))
    kept = tuple(np.flatnonzero(states) for states in mask)
    return Possible(kept, cards, counts[start], scope[several], stays, values[stays])
