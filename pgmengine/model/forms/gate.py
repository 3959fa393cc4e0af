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
class Draws:
    """The contributions of steps: D for each state of the auxiliary variable and of the parent.

    Attributes
    ----------
    number : (n,) the number of each contribution, counted over all numbers of the gate.
    entry : (n,) the entry of the link, counted over the links of all steps, to which it leads.
    after : (n / D, D) the state after each contribution.
    """

    number: Array
    entry: Array
    after: Array


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

    def draws(self, numbers: int) -> Draws:
        """Return the contributions of the step, whose rows have D numbers."""
        cells = np.arange(self.rows.size).reshape(*self.rows.shape, 1)
        after = np.broadcast_to(self.after[:, None], (*self.rows.shape, numbers))
        number = self.rows[..., None] * numbers + np.arange(numbers)
        entry = cells * self.states + after
        return Draws(number.ravel(), entry.ravel(), after.reshape(-1, numbers))


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
        whole = _product(self.links(np.exp(numbers))).matrix.reshape(self.shape)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(whole))

    def counts(self, numbers: Array, counts: Array) -> Array:
        """Return the expected numbers of draws of each contribution, (rows, D)."""
        theta = np.exp(numbers)
        product = _product(self.links(theta))
        counts = counts.reshape(product.matrix.shape)
        whole = product.matrix
        share = np.divide(counts, whole, out=np.zeros_like(whole), where=whole > 0)
        found, draws = np.concatenate(product.slopes(share)), self.all_draws
        # Draws after which the state is the same for all possible contributions are left out.
        possible = theta.ravel()[draws.number].reshape(draws.after.shape) > 0
        lowest = np.where(possible, draws.after, draws.after.max() + 1).min(axis=1)
        some = np.repeat(lowest < np.where(possible, draws.after, -1).max(axis=1), self.size[1])
        slopes = np.bincount(draws.number[some], found[draws.entry[some]], theta.size)
        return np.asarray(theta * slopes.reshape(self.size))

    @cached_property
    def all_draws(self) -> Draws:
        """The contributions of all steps."""
        ends = np.cumsum([step.rows.size * step.states for step in self.steps])
        parts = [step.draws(self.size[1]) for step in self.steps]
        return Draws(
            np.concatenate([part.number for part in parts]),
            np.concatenate(
                [part.entry + end for part, end in zip(parts, [0, *ends[:-1]], strict=True)]
            ),
            np.concatenate([part.after for part in parts]),
        )

    def links(self, theta: Array) -> list[Array]:
        """Return the links of all steps."""
        draws = self.all_draws
        sizes = [step.rows.size * step.states for step in self.steps]
        whole = np.bincount(draws.entry, theta.ravel()[draws.number], sum(sizes))
        parts = np.split(whole, np.cumsum(sizes)[:-1])
        return [
            part.reshape(*step.rows.shape, step.states)
            for part, step in zip(parts, self.steps, strict=True)
        ]

    def log_prob(self, numbers: Array, states: Array) -> Array:
        """Return log p(child | parents) at states (rows, parents + 1)."""
        theta, parents = np.exp(numbers), iter(states.T[:-1])
        rows = np.ones((len(states), 1))
        for step, link in zip(self.steps, self.links(theta), strict=True):
            parent = next(parents) if step.has_parent else np.zeros(len(states), dtype=np.int64)
            # One row of the matrix of each row's parent.
            rows = np.einsum("rj,jrk->rk", rows, link[:, parent])
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


@dataclass(frozen=True, eq=False)
class Product:
    """The product of links, by two halves.

    One product of two halves is faster than n products with a growing number of rows.

    Attributes
    ----------
    matrix : (S_first, joint states of the parents, S_last) as a matrix; its rows are the states
        before and all parents.
    halves : the products of the two halves; () for a single link.
    """

    matrix: Array
    halves: tuple[Product, ...] = ()

    def slopes(self, share: Array) -> list[Array]:
        """Return the derivatives of sum of share * product in the entries of each link."""
        if not self.halves:
            return [share.ravel()]
        one, two = self.halves
        first, second = one.matrix, two.matrix.reshape(one.matrix.shape[1], -1)
        share = share.reshape(len(first), -1)
        return one.slopes(share @ second.T) + two.slopes(first.T @ share)


def _product(links: Sequence[Array]) -> Product:
    """Return the product of links."""
    if len(links) == 1:
        return Product(links[0].reshape(-1, links[0].shape[2]))
    half = len(links) // 2
    one, two = _product(links[:half]), _product(links[half:])
    whole = one.matrix @ two.matrix.reshape(one.matrix.shape[1], -1)
    return Product(whole.reshape(-1, two.matrix.shape[1]), (one, two))


def fits_as_table(gates: Sequence[Steps]) -> list[bool]:
    """Return whether each gate of a model is small enough to be also a table."""
    share = min(MAX_WHOLE_ENTRIES, MAX_ALL_WHOLE_ENTRIES // max(len(gates), 1))
    return [gate.entries <= share for gate in gates]
