"""Factors over at most two two-state units each, as fields and couplings of spins.

With s = -1 for the first state of a unit and s = 1 for the second, every log factor is

    f(s_a, s_b) = c + h_a s_a + h_b s_b + J s_a s_b

A field h_i is a coupling to one more spin, the ghost, because the log weights stay the same if all
spins change sign, and those of the ghost up and down are then equal: Z is half the sum over the
states of all spins and the ghost, and E[s_i] = E[s_i s_ghost].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine.base.equal_rows import distinct_pairs
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.evidence.target import Target, one_for_all
from pgmengine.infer.exact.junction_tree.conditioned_model import Conditioned, Form, condition

# Sums of terms that cancel leave fields of about this share of the sizes of the terms.
FIELD_ROUNDING = 2.0**-50

# The signs of the two units of a factor, in the order of its entries.
FIRST, SECOND = np.array([-1.0, -1.0, 1.0, 1.0]), np.array([-1.0, 1.0, -1.0, 1.0])


@dataclass(frozen=True, eq=False)
class Spins:
    """The free units of one evidence pattern as spins.

    Attributes
    ----------
    conditioned : the factors of the pattern, over at most two two-state units each.
    """

    conditioned: Conditioned

    @cached_property
    def _starts(self) -> tuple[Array, Array]:
        """The number of units of each factor, and its first entry among all entries."""
        sizes = self.conditioned.sizes
        return np.diff(self.conditioned.scopes.start), sizes.cumsum() - sizes

    @cached_property
    def alone(self) -> tuple[Array, Array]:
        """The unit, and the entries (factors, 2), of each factor over one unit."""
        lengths, first = self._starts
        one, scopes = lengths == 1, self.conditioned.scopes
        return scopes.scope[scopes.start[:-1][one]], first[one][:, None] + np.arange(2)

    @cached_property
    def joint(self) -> tuple[Array, Array, Array]:
        """The units a and b, and the entries (factors, 4), of each factor over two units."""
        lengths, first = self._starts
        two, scopes = lengths == 2, self.conditioned.scopes
        at = scopes.start[:-1][two]
        return scopes.scope[at], scopes.scope[at + 1], first[two][:, None] + np.arange(4)

    @cached_property
    def _edges(self) -> tuple[Array, Array]:
        """The different pairs (edges, 2) of units that factors join, and the edge of each one."""
        a, b, _ = self.joint
        return distinct_pairs(np.minimum(a, b), np.maximum(a, b))

    @property
    def edges(self) -> Array:
        """The different pairs (edges, 2) of units that factors join."""
        return self._edges[0]

    def terms(self, entries: Array) -> tuple[Array, Array, Array]:
        """Return c (rows,), h (units, rows) and J (edges, rows) of log factors (entries, rows)."""
        count, rows = len(self.conditioned.states), entries.shape[1]
        h, size = np.zeros((count, rows)), np.zeros((count, rows))
        unit, where = self.alone
        one = entries[where]
        a, b, where = self.joint
        two = entries[where]
        np.add.at(h, unit, (one[:, 1] - one[:, 0]) / 2.0)
        np.add.at(h, a, np.einsum("k,nkr->nr", FIRST, two) / 4.0)
        np.add.at(h, b, np.einsum("k,nkr->nr", SECOND, two) / 4.0)
        for units, part in ((unit, one), (a, two), (b, two)):
            np.add.at(size, units, np.abs(part).max(axis=1, initial=0.0))
        h[np.abs(h) <= FIELD_ROUNDING * size] = 0.0
        edges, which = self._edges
        couplings = np.zeros((len(edges), rows))
        np.add.at(couplings, which, np.einsum("k,nkr->nr", FIRST * SECOND, two) / 4.0)
        lengths, first = self._starts
        constant = entries[first[lengths == 0]].sum(axis=0)
        return constant + one.mean(axis=1).sum(axis=0) + two.mean(axis=1).sum(axis=0), h, couplings

    def marginals(self, means: Array, correlations: Array) -> tuple[Array, Array]:
        """Return the marginals of units (2 units, rows), and of factors (entries, rows).

        Parameters
        ----------
        means : (units, rows) E[s_i].
        correlations : (edges, rows) E[s_a s_b].
        """
        units = np.stack([1.0 - means, 1.0 + means], axis=1) / 2.0
        factors = np.ones((int(self.conditioned.sizes.sum()), means.shape[1]))
        unit, where = self.alone
        factors[where] = units[unit]
        a, b, where = self.joint
        both = correlations[self._edges[1]]
        for k, (first, second) in enumerate(zip(FIRST, SECOND, strict=True)):
            total = 1.0 + first * means[a] + second * means[b] + first * second * both
            factors[where[:, k]] = total / 4.0
        # Rounding can leave a probability of 0 slightly negative.
        return units.reshape(-1, means.shape[1]).clip(0.0, 1.0), factors.clip(0.0, 1.0)


def conditioned_spins(target: Target, form: Form) -> tuple[Spins, Array, Array, Array]:
    """Return the free units as spins, with c (rows,), h (units, rows) and J (edges, rows).

    `rows` is 1 if these are the same in all rows of the target, which share one evidence pattern.
    PgmError if the free units are not pairs of two-state units, or a state is impossible.
    """
    conditioned = condition(one_for_all(target, np.arange(target.rows)), form)
    if (conditioned.states != 2).any():
        raise PgmError("free units have more than two states, and only units of two are spins")
    if (np.diff(conditioned.scopes.start) > 2).any():
        raise PgmError("factors join more than two units, and only pairs are couplings of spins")
    spins = Spins(conditioned)
    return spins, *spins.terms(conditioned.finite_entries(target))
