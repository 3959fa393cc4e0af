"""States that no table makes impossible: c/possible.h, by repeated removal in numpy."""

from __future__ import annotations

import numpy as np

from pgmengine.base.numpy_routines.orders import checked_factors
from pgmengine.base.types import Array


def possible_states(cards: Array, start: Array, scope: Array, zeros: Array) -> tuple[Array, Array]:
    """Return the states that are left (states,), and the entries of tables at them."""
    factors = checked_factors(cards, start, scope)
    scopes = [scope[start[f] : start[f + 1]] for f in range(factors)]
    ends = np.cumsum([0, *(int(np.prod(cards[s])) for s in scopes)])
    zeros = np.asarray(zeros, dtype=bool)
    fine = [~zeros[ends[f] : ends[f + 1]].reshape(tuple(cards[s])) for f, s in enumerate(scopes)]
    left = [np.ones(n, dtype=bool) for n in cards]
    changed = True
    while changed:
        changed = False
        for table, members in zip(fine, scopes, strict=True):
            for axis, v in enumerate(members):
                rest = tuple(a for a in range(table.ndim) if a != axis)
                kept = left[v] & table.any(axis=rest)
                if (kept != left[v]).any():
                    left[v], changed = kept, True
                shape = [1] * table.ndim
                shape[axis] = -1
                table &= left[v].reshape(shape)
            if not members.size and not table.all() and left:
                # A constant of 0 leaves nothing.
                left, changed = [np.zeros_like(one) for one in left], False
                break
    if any(not one.any() for one in left):
        left, fine = [np.zeros_like(one) for one in left], [np.zeros_like(t) for t in fine]
    return (
        np.concatenate([np.zeros(0, bool), *left]),
        np.concatenate([np.zeros(0, bool), *(t.ravel() for t in fine)]),
    )
