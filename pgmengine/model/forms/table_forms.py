"""Forms: tables whose entries follow from fewer numbers, which are the parameter.

A table of a function with few different results, or of sparse rows, has leaves: joint states that
share one row of a conditional, or one entry of a potential. A noisy gate has a row for each state
of each parent (gate.py). The numbers of a form are learned, and the entries follow from them,
so that learning keeps what the declaration ties together.

The parameter holds logarithms of numbers. Methods read the entries (`Parameters.table_entries`),
and counts of entries become counts of numbers, of which the gradient is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pgmengine.base.types import Array

# The ends of the names of parameters of tables that users have not named.
KINDS = (".table", ".gate", ".leaves")


class TableForm(Protocol):
    """The way from the numbers of a parameter to the entries of one table."""

    @property
    def kind(self) -> str:
        """The last part of the name of the parameter."""

    @property
    def size(self) -> tuple[int, ...]:
        """The shape of the parameter. In a conditional, its last axis sums to one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""

    @property
    def draws(self) -> int:
        """The number of rows of numbers that are drawn from at each place."""

    @property
    def closed(self) -> bool:
        """Whether counts of entries give counts of numbers, whatever the numbers are."""

    def logs(self, numbers: Array) -> Array:
        """Return the logarithms of the entries from those of the numbers."""

    def counts(self, numbers: Array, counts: Array) -> Array:
        """Return the expected counts of the numbers, given their logarithms and counts of entries.

        Draws on which no entry depends are left out.
        """


@dataclass(frozen=True, eq=False)
class Formed:
    """The values of a table that follow from fewer numbers.

    Attributes
    ----------
    form : the way from the numbers to the entries.
    numbers : the numbers, in the shape of the form: probabilities, or entries of a potential.
    """

    form: TableForm
    numbers: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""
        return self.form.shape

    def whole(self) -> Array:
        """Return the table."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.exp(self.form.logs(np.log(self.numbers))))


@dataclass(frozen=True, eq=False)
class Leaves:
    """A table in which joint states share a row, or an entry: a leaf of a decision tree.

    Attributes
    ----------
    leaf : the number of the leaf of each joint state: of the parents of a conditional, and of the
        whole scope of another table.
    size : (leaves, K) for a conditional of a child with K states, else (leaves,).
    """

    leaf: Array
    size: tuple[int, ...]
    kind = "leaves"
    draws = 1
    closed = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""
        return (*self.leaf.shape, *self.size[1:])

    def logs(self, numbers: Array) -> Array:
        """Return the logarithms of the entries: each joint state has those of its leaf."""
        return np.asarray(numbers[self.leaf])

    @property
    def number_of_entry(self) -> Array:
        """The number in the flat parameter of each entry, in the shape of the table."""
        return self.logs(np.arange(math.prod(self.size)).reshape(self.size))

    def counts(self, numbers: Array, counts: Array) -> Array:
        """Return the sum of the counts of all joint states of each leaf."""
        total = np.zeros(self.size)
        np.add.at(total, self.leaf.ravel(), counts.reshape(self.leaf.size, *self.size[1:]))
        return total
