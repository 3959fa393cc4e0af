"""A layer: a named array of units of one type, the node of every graph."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array
from pgmengine.evidence.state_names import StateNames
from pgmengine.units import Unit


@dataclass(frozen=True)
class Layer:
    """A named array of `size` units of one type.

    `labels` are names of the units, `state_names` names of the states of each unit, in the order of
    unit.support. `holds_variables` says that no user declared the layer: it stores variables with
    the same states, and messages name them in place of it.
    """

    name: str
    unit: Unit
    size: int
    labels: tuple[Hashable, ...] | None = None
    state_names: tuple[Hashable, ...] | None = None
    holds_variables: bool = False

    @cached_property
    def state_table(self) -> StateNames | None:
        """The table that reads names of states, or None where the states have none."""
        return StateNames(self.state_names) if self.state_names else None

    @cached_property
    def width(self) -> int:
        """Rows or columns of the layer in a weight matrix: size, or size * k for Categorical(k)."""
        return self.size * self.unit.width

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """Shape of the bias: (size,), or (size, k) for Categorical(k)."""
        return (self.size,) if self.unit.width == 1 else (self.size, self.unit.width)

    def flat(self, values: Array) -> Array:
        """Reshape (rows, size[, k]) to (rows, width), the components of a unit side by side."""
        return np.asarray(values).reshape(-1, self.width)

    def shaped(self, flat: Array) -> Array:
        """Reshape (..., width) to (..., size[, k]), which the functions of the unit take."""
        return (
            flat
            if self.unit.width == 1
            else flat.reshape(*flat.shape[:-1], self.size, self.unit.width)
        )

    def states(self, flat: Array) -> Array:
        """Return the states (..., size) that are nearest to flat values (..., width)."""
        return self.unit.state_of(self.shaped(np.asarray(flat)))

    def one_hot(self, flat: Array) -> Array:
        """Return the states of flat values as (..., size, K) with 1 for the state, 0 for others."""
        assert self.unit.support is not None
        # `take` is ten times as fast as an index.
        return np.eye(len(self.unit.support)).take(self.states(flat), axis=0)

    def components(self, mask: Array) -> Array:
        """Return a mask of units (..., size) as a mask of components (..., width)."""
        return mask if self.unit.width == 1 else np.repeat(mask, self.unit.width, axis=-1)

    def columns(self, index: Array) -> Array:
        """Return the columns of the units `index` in a weight matrix, in order."""
        k = self.unit.width
        return index if k == 1 else (index[:, None] * k + np.arange(k)).ravel()

    def owners(self, columns: Array) -> Array:
        """Return the units to which columns of a weight matrix belong."""
        return columns // self.unit.width

    @property
    def is_variable(self) -> bool:
        """Whether it is the layer of a single variable of the same name."""
        return self.labels == (self.name,)

    def place(self, index: int, row: int | None = None) -> str:
        """Return a unit in words for a message, with its label if it has one."""
        before = "" if row is None else f", row {row}"
        if self.is_variable:
            return f"{self.title}{before}"
        if self.holds_variables and self.labels:
            return f"variable {self.labels[index]!r}{before}"
        label = f" ({self.labels[index]!r})" if self.labels else ""
        return f"{self.title}{before}, index {index}{label}"

    @property
    def title(self) -> str:
        """The layer in words for a message, or the variables that it holds."""
        if self.holds_variables and self.labels:
            several = "s" if len(self.labels) > 1 else ""
            return f"variable{several} {listed([repr(name) for name in self.labels])}"
        return f"{'variable' if self.is_variable else 'layer'} {self.name!r}"

    def values_of(self, labels: Array, what: str) -> Array:
        """Return the values (rows, size, width) of labels (rows, size), NaN where a label is NaN.

        PgmError names the first that is no label.
        """
        support = self.unit.support
        if support is None:
            raise PgmError(
                f"{what}: {self.title} has shape {labels.shape}, expected "
                f"(..., {self.size}, {self.unit.width})"
            )
        missing = np.isnan(labels)
        seen = np.where(missing, 0.0, labels)
        bad = ~((seen >= 0) & (seen < len(support)) & (seen == np.floor(seen)))
        if bad.any():
            row, index = (int(i) for i in np.argwhere(bad)[0])
            raise PgmError(
                f"{what}: {self.place(index, row)}: {labels[row, index]:g} is "
                f"not a label of {self.unit!r}, expected 0..{len(support) - 1}"
            )
        return np.where(missing[..., None], np.nan, support.take(seen.astype(int), axis=0))
