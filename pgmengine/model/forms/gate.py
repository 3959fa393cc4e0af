r"""Gates: a conditional with causal independence, as a chain of contributions.

The conditional of a child with n parents has a row for each of their joint states. In a noisy-or,
and in all conditionals with causal independence, the child is reached in steps instead. Each step
draws a contribution d from a row of numbers, which the state of at most one parent x chooses, and
the contribution changes an auxiliary variable a:

    d_i ~ theta[row_i(a_i-1, x_i)],    a_i = after_i(a_i-1, d_i),    the child is the last a.

In a noisy-max, `after` is the maximum, and the row depends on x alone. The probability that a step
leads from a to a' given x is a small table, the link

    link_i[a, x, a'] = sum over d with after_i(a, d) = a' of theta[row_i(a, x), d],

    p(child | x) = product over i of link_i[., x_i, .].

The links have S_i-1 K_i S_i entries, so that the size of a gate grows linearly with the number of
parents. All numbers are probabilities and none is subtracted, so that no digits cancel. The rows
theta are the parameter of the gate, one for each parent and state, and for the leak.

Learning needs the expected counts of contributions. With N the counts of the entries of p(child |
x), the derivative of sum N log p in theta, times theta, is the expected number of draws of each
contribution. A draw after which a' is the same for all contributions says nothing about its row and
is left out: the state of the chain is then known without it, so that it need not be drawn at all.

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
from functools import cached_property

import numpy as np

from pgmengine.base.types import Array

# The most entries of a gate's conditional for which the structure also has the whole table: 20
# parents with two states, and a child with four. Chains on the table mix well, where chains on the
# auxiliary variables need thousands of sweeps to move from one cause to another. All gates of a
# model together get MAX_ALL_WHOLE_ENTRIES, in equal shares.
MAX_WHOLE_ENTRIES, MAX_ALL_WHOLE_ENTRIES = 2**22, 2**24


@dataclass(frozen=True, eq=False)
class Step:
    """A step of a gate: a contribution is drawn, and changes the auxiliary variable.

    Attributes
    ----------
    rows : (S, K) the row of numbers from which the contribution is drawn, for each state of the
        auxiliary variable before the step and each state of the parent; K = 1 without a parent.
    after : (S, D) the state after the step, for each state before it and each contribution.
    states : the number of states after the step.
    has_parent : whether the step has a parent.
    """

    rows: Array
    after: Array
    states: int
    has_parent: bool

    def link(self, theta: Array) -> Array:
        """Return the small table (S, K, states) of the step."""
        before, parent = self.rows.shape
        out = np.zeros((before, parent, self.states))
        drawn, each = theta[self.rows], np.arange(before)
        for d in range(self.after.shape[1]):
            out[each, :, self.after[:, d]] += drawn[:, :, d]
        return out

    def add_slopes(self, theta: Array, link_slopes: Array, out: Array) -> None:
        """Add derivatives in the numbers, from those in the link, to `out`, (rows, D).

        Draws after which the state is the same for all possible contributions are left out.
        """
        # (S, K, D): the state after each contribution, and whether it is possible.
        after = np.broadcast_to(self.after[:, None], (*self.rows.shape, theta.shape[1]))
        possible = theta[self.rows] > 0
        lowest = np.where(possible, after, self.states).min(axis=-1)
        highest = np.where(possible, after, -1).max(axis=-1)
        some = lowest < highest
        slopes = np.take_along_axis(link_slopes, after, axis=-1)
        np.add.at(out, self.rows[some], slopes[some])


@dataclass(frozen=True, eq=False)
class Steps:
    """The form of a gate, or of a part of one: the steps of its chain.

    Attributes
    ----------
    steps : the steps in order. The parents are those of the steps.
    size : (rows, D) the shape of the parameter.
    """

    steps: tuple[Step, ...]
    size: tuple[int, int]
    kind = "gate"
    closed = False

    @property
    def draws(self) -> int:
        """The number of steps."""
        return len(self.steps)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The numbers of states of the variable before, if it has several, of parents and child."""
        before = self.steps[0].rows.shape[0]
        parents = (step.rows.shape[1] for step in self.steps if step.has_parent)
        return (*([before] if before > 1 else []), *parents, self.steps[-1].states)

    @property
    def entries(self) -> int:
        """The number of entries of the whole conditional."""
        return math.prod(self.shape)

    @property
    def parents(self) -> int:
        """The number of parents."""
        return sum(step.has_parent for step in self.steps)

    def logs(self, numbers: Array) -> Array:
        """Return the logarithms of the conditional from those of the numbers."""
        whole = _product(self._links(np.exp(numbers))).reshape(self.shape)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(whole))

    def counts(self, numbers: Array, counts: Array) -> Array:
        """Return the expected numbers of draws of each contribution, (rows, D)."""
        theta = np.exp(numbers)
        links = self._links(theta)
        whole = _product(links)
        counts = counts.reshape(whole.shape)
        share = np.divide(counts, whole, out=np.zeros_like(whole), where=whole > 0)
        slopes = np.zeros(self.size)
        for step, found in zip(self.steps, _slopes(links, share), strict=True):
            step.add_slopes(theta, found, slopes)
        return np.asarray(theta * slopes)

    def _links(self, theta: Array) -> list[Array]:
        return [step.link(theta) for step in self.steps]

    def log_prob(self, numbers: Array, states: Array) -> Array:
        """Return log p(child | parents) at states (rows, parents + 1)."""
        theta, parents = np.exp(numbers), iter(states.T[:-1])
        rows = np.ones((len(states), 1))
        for step in self.steps:
            parent = next(parents) if step.has_parent else np.zeros(len(states), dtype=np.int64)
            # One row of the matrix of each row's parent.
            rows = np.einsum("rj,jrk->rk", rows, step.link(theta)[:, parent])
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(rows[np.arange(len(states)), states[:, -1]]))

    def parts(self) -> tuple[Steps, ...]:
        """Return the gate as one part for each parent, each of them with one parent.

        Steps without a parent join the next one that has one, or the last. A gate without parents
        has one part.
        """
        ends = [i + 1 for i, step in enumerate(self.steps) if step.has_parent]
        ends = [*ends[:-1], len(self.steps)]
        begins = [0, *ends[:-1]]
        return tuple(Steps(self.steps[a:b], self.size) for a, b in zip(begins, ends, strict=True))


def _product(links: Sequence[Array]) -> Array:
    """Return the product of links, (S_first, joint states of the parents, S_last), as a matrix.

    Its rows are the states before and all parents. One product of two halves is faster than n
    products with a growing number of rows.
    """
    if len(links) == 1:
        return links[0].reshape(-1, links[0].shape[2])
    first, second = (_product(half) for half in _halves(links))
    states = first.shape[1]
    return np.asarray(first @ second.reshape(states, -1)).reshape(-1, second.shape[1])


def _halves(links: Sequence[Array]) -> tuple[Sequence[Array], Sequence[Array]]:
    """Return the two halves of several links."""
    return links[: len(links) // 2], links[len(links) // 2 :]


def _slopes(links: Sequence[Array], share: Array) -> list[Array]:
    """Return the derivatives of sum of share * product in each link, in the shapes of the links."""
    if len(links) == 1:
        return [share.reshape(links[0].shape)]
    one, two = _halves(links)
    first, second = _product(one), _product(two)
    second = second.reshape(first.shape[1], -1)
    share = share.reshape(len(first), -1)
    return _slopes(one, share @ second.T) + _slopes(two, first.T @ share)


def fits_as_table(gates: Sequence[Steps]) -> list[bool]:
    """Return whether each gate of a model is small enough to be also a table."""
    share = min(MAX_WHOLE_ENTRIES, MAX_ALL_WHOLE_ENTRIES // max(len(gates), 1))
    return [gate.entries <= share for gate in gates]
