"""A state in which every factor is possible, by depth-first search with propagation of zeros.

A variable is fixed at one of its states, and every state that has become impossible is removed
(impossible_states.py). Where a variable has no state left, the search goes back and removes the
state that it had tried. The next variable is the one with the fewest states for each time that its
removal has ended in failure (Boussemart, Hemery, Lecoutre and Sais 2004, "Boosting systematic
search by weighting constraints", for variables in place of constraints). States with larger entries
come first, so that good states are found early. The search ends with a state, with the proof that
there is none, or after a number of steps.

Reference: all states, one by one (test_modes_of_any_graph.py).
"""

from __future__ import annotations

import numpy as np

from pgmengine._kernels import possible_states
from pgmengine.base.types import Array
from pgmengine.infer.modes.mode_factors import LogFactors, strides

# Numbers of a search: entries that are propagated over in all, and the largest number of steps.
MAX_PROPAGATED, MAX_STEPS = 2e9, 20_000


def possible_state(factors: LogFactors) -> Array | None:
    """Return a state (n,) of the variables, an empty array where none exists, None if not found."""
    search = _Search(factors)
    steps = int(min(MAX_STEPS, MAX_PROPAGATED / max(len(search.zeros), 1)))
    return search.run(steps)


class _Search:
    """The factors, and one more of each variable, whose zeros are the states that are removed."""

    def __init__(self, factors: LogFactors) -> None:
        n, scopes = len(factors.cards), factors.scopes
        self.cards = np.asarray(factors.cards, np.int64)
        ends = scopes.start[-1] + np.arange(1, n + 1)
        self.start = np.concatenate([scopes.start, ends]).astype(np.int64)
        self.scope = np.concatenate([scopes.scope, np.arange(n)]).astype(np.int32)
        self.first = np.concatenate(([0], np.cumsum(self.cards)))
        self.zeros = np.isneginf(factors.logs)
        self.best = _best_entries(factors, self.first)
        self.failures = np.ones(n)

    def left(self, removed: Array) -> Array:
        """Return the states (all states,) that are possible without the removed ones."""
        zeros = np.concatenate([self.zeros, removed])
        return np.asarray(possible_states(self.cards, self.start, self.scope, zeros)[0], bool)

    def run(self, steps: int) -> Array | None:
        """Return what `possible_state` does after at most so many steps."""
        owner = np.repeat(np.arange(len(self.cards)), self.cards)
        # Each level has the removed states, and the state that is tried next.
        removed = np.zeros(self.first[-1], dtype=bool)
        levels: list[tuple[Array, int]] = []
        for _ in range(steps):
            left = self.left(removed)
            counts = np.bincount(owner[left], minlength=len(self.cards))
            if (counts > 0).all():
                if (counts == 1).all():
                    return np.asarray(np.flatnonzero(left) - self.first[:-1])
                open_ = np.flatnonzero(counts > 1)
                v = int(open_[np.argmin(counts[open_] / self.failures[open_])])
                own = np.arange(self.first[v], self.first[v + 1])
                state = int(own[np.where(left[own], self.best[own], -np.inf).argmax()])
                levels.append((~left, state))
                removed = ~left
                removed[own] = True
                removed[state] = False
                continue
            if not levels:
                return np.empty(0, dtype=np.int64)
            removed, state = levels.pop()
            self.failures[owner[state]] += 1
            removed = removed.copy()
            removed[state] = True
        return None


def _best_entries(factors: LogFactors, first: Array) -> Array:
    """Return the sum over factors of the largest entry at each state (all states,) of a variable.

    Impossible states, which have no finite entry somewhere, are removed before the numbers count.
    """
    out = np.zeros(first[-1])
    step, scopes = strides(factors.cards, factors.scopes), factors.scopes
    begin = factors.sizes.cumsum() - factors.sizes
    for f in range(len(scopes)):
        entries = factors.logs[begin[f] : begin[f] + factors.sizes[f]]
        for at in range(scopes.start[f], scopes.start[f + 1]):
            v = int(scopes.scope[at])
            k = np.arange(len(entries)) // step[at] % factors.cards[v]
            top = np.full(factors.cards[v], -np.inf)
            np.maximum.at(top, k, entries)
            out[first[v] : first[v + 1]] += np.maximum(top, -1e300)
    return out
