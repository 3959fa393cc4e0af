r"""Gates: a conditional with causal independence, as a chain of small tables.

The conditional of a child with n parents has a row for each of their joint states. In a noisy-or,
and in all conditionals with causal independence, the child is reached in n steps instead. Each step
has one parent x_i, and changes an auxiliary variable a_i:

    p(a_0) = start,    p(a_i | a_i-1, x_i) = links[i],    the child is a_n

    p(child | x) = sum over a_0 .. a_n-1 of start[a_0] product over i of links[i][a_i-1, x_i, a_i]

The n tables have (S_i-1, K_i, S_i) entries, so that the size of a gate grows linearly with the
number of parents. All numbers are probabilities and none is subtracted, so that no digits cancel.

A structure holds its gates beside its tables. If the whole conditional is small, the structure also
has it as a table, which every method reads, and elimination takes whichever form is cheaper. The
conditional of a compact gate is too large for a table. Its auxiliary variables are then declared
when a target is made (unfolding.py).

References: Heckerman and Breese (1996); Diez (1993); Diez and Druzdzel (2006).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.base.work.memory import no_room

# The most entries of a gate's conditional for which the structure also has the whole table: 20
# parents with two states, and a child with four. Chains on the table mix well, where chains on the
# auxiliary variables need thousands of sweeps to move from one cause to another. All gates of a
# model together get MAX_ALL_WHOLE_ENTRIES, in equal shares.
MAX_WHOLE_ENTRIES, MAX_ALL_WHOLE_ENTRIES = 2**22, 2**24


@dataclass(frozen=True, eq=False)
class Gate:
    """A conditional p(child | parents) as a chain of small tables.

    Attributes
    ----------
    start : (S_0,) the distribution of the first auxiliary variable.
    links : for each parent, (S_before, K_parent, S_after); the last S_after counts the states of
        the child.
    """

    start: Array
    links: tuple[Array, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of states of the parents, then of the child."""
        last = self.links[-1] if self.links else self.start
        return (*(link.shape[1] for link in self.links), last.shape[-1])

    @property
    def entries(self) -> int:
        """The number of entries of the whole conditional."""
        return math.prod(self.shape)

    def whole(self, what: str = "a gate") -> Array:
        """Return the conditional as one table; `what` names it in the message of a PgmError."""
        if why := no_room(16 * self.entries, "take fewer parents"):
            raise PgmError(f"{what} as one table with {self.entries:.3g} entries: {why}")
        # One product of two halves is faster than n products with a growing number of rows.
        half = len(self.links) // 2
        first = _product(self.start[None], self.links[:half])
        second = _product(np.eye(first.shape[1]), self.links[half:])
        rest = second.reshape(first.shape[1], -1)
        return np.asarray(first @ rest).reshape(self.shape)

    def small_tables(self) -> tuple[Array, ...]:
        """Return a conditional for each parent: p(a_1 | x_1), then p(a_i | a_i-1, x_i).

        The first auxiliary variable is marginalised. A gate without parents has one table.
        """
        if not self.links:
            return (self.start,)
        return (np.tensordot(self.start, self.links[0], axes=1), *self.links[1:])

    def log_prob(self, states: Array) -> Array:
        """Return log p(child | parents) at states (rows, parents + 1)."""
        rows = np.broadcast_to(self.start, (len(states), len(self.start)))
        for link, parent in zip(self.links, states.T[:-1], strict=True):
            # One row of the matrix of each row's parent.
            rows = np.einsum("rj,jrk->rk", rows, link[:, parent])
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(rows[np.arange(len(states)), states[:, -1]]))


def _product(rows: Array, links: Sequence[Array]) -> Array:
    """Return rows (R, S) times some links: (R times the joint states of the parents, S_after)."""
    for link in links:
        rows = np.tensordot(rows, link, axes=1).reshape(-1, link.shape[2])
    return rows


@dataclass(frozen=True, eq=False)
class PlacedGate:
    """A gate of a structure.

    Attributes
    ----------
    name : the name of its table, as "c|a,b".
    scope : the places (layer, unit) of the parents in order, then of the child.
    gate : the small tables.
    """

    name: str
    scope: tuple[tuple[str, int], ...]
    gate: Gate


def fits_as_table(gates: Sequence[Gate]) -> list[bool]:
    """Return whether each gate of a model is small enough to be also a table."""
    share = min(MAX_WHOLE_ENTRIES, MAX_ALL_WHOLE_ENTRIES // max(len(gates), 1))
    return [gate.entries <= share for gate in gates]
