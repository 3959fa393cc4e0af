"""A layer: a named array of units of one type, the node of every graph."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.names import hashable
from pgmengine.base.types import Array
from pgmengine.model.names.state_names import StateNames, position, text_of_number
from pgmengine.units.unit import Unit, one_hot_rows

# The number of a unit as Python writes it: 0, '0', or np.int64(0).
NUMBER_AS_WRITTEN = re.compile(r"(?:np\.\w+\()?'?(\d{1,18})'?\)?", re.ASCII)


@dataclass(frozen=True)
class Layer:
    """A named array of `size` units of one type.

    `labels` are names of the units, `state_names` names of the states of each unit, in the order of
    unit.support. `holds_variables` says that no user declared the layer. It stores variables with
    the same states, and messages name the variables instead of the layer. `shape` are the axes of a
    layer with more than one, () for others. `is_array` says that the layer is an array of
    variables: its units have no biases, and answers show the probabilities of their states.
    """

    name: str
    unit: Unit
    size: int
    labels: tuple[Hashable, ...] | None = None
    state_names: tuple[Hashable, ...] | None = None
    holds_variables: bool = False
    shape: tuple[int, ...] = ()
    is_array: bool = False

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of the array of units."""
        return self.shape or (self.size,)

    @cached_property
    def state_table(self) -> StateNames | None:
        """The table that reads names of states, or None if the states have no names."""
        return StateNames(self.state_names) if self.state_names else None

    @cached_property
    def unit_texts(self) -> tuple[str, ...]:
        """The names of the units as text: their labels, or their numbers.

        Labels with the same text are written as Python literals.
        """
        names: Sequence[Hashable] = self.labels or range(self.size)
        if self.shape and not self.labels:
            names = [",".join(map(str, at)) for at in np.ndindex(self.shape)]
        texts = tuple(map(str, names))
        return texts if len(set(texts)) == len(texts) else tuple(map(repr, names))

    @cached_property
    def _units(self) -> dict[Hashable, int]:
        """Label -> unit, and text of a label -> unit unless the text is another label."""
        labels = self.labels or ()
        texts = self.unit_texts if labels or self.shape else ()
        out: dict[Hashable, int] = {text: i for i, text in enumerate(texts)}
        return out | {label: i for i, label in enumerate(labels)}

    def unit_of(self, given: object) -> int | None:
        """Return the unit with this label or number, also as text; None if there is none."""
        if not hashable(given):
            return None
        if (found := self._units.get(given)) is not None:
            return found
        if isinstance(given, str):
            return self._units.get(given.replace(" ", "")) if self.shape else self._numbered(given)
        if isinstance(given, tuple) and self.shape and not self.labels:
            # Positions, as (2, 3) in a layer of shape (20, 20).
            axes = [position(part) for part in given]
            return self._units.get(",".join(map(str, axes)))
        number = position(given)
        return number if number is not None and number < self.size else None

    def _numbered(self, text: str) -> int | None:
        """Return the number of a unit that is written in a text, or None."""
        number = int(text[:20]) if text.isascii() and text.isdigit() else -1
        return number if 0 <= number < self.size and str(number) == text else None

    @cached_property
    def _written(self) -> dict[str, int]:
        """Label as a Python literal -> unit."""
        return {repr(label): i for i, label in enumerate(self.labels or ())}

    def unit_in(self, text: str) -> int | None:
        """Return the unit named by a column such as 'v[0]' or "('v', 0)", or None."""
        if text.startswith(f"{self.name}[") and text.endswith("]"):
            return self.unit_of(text[len(self.name) + 1 : -1])
        begin = f"({self.name!r}, "
        if not (text.startswith(begin) and text.endswith(")")):
            return None
        inner = text[len(begin) : -1]
        number = NUMBER_AS_WRITTEN.fullmatch(inner)
        return self._written.get(inner, self._numbered(number[1]) if number else None)

    @cached_property
    def width(self) -> int:
        """Rows or columns of the layer in a weight matrix: size, or size * k for Categorical(k)."""
        return self.size * self.unit.width

    @cached_property
    def state_count(self) -> int:
        """The number of states of its units, 0 if there are infinitely many."""
        support = self.unit.support
        return 0 if support is None else len(support)

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """Shape of the bias: (size,), or (size, k) for Categorical(k)."""
        return (self.size,) if self.unit.width == 1 else (self.size, self.unit.width)

    def in_shape(self, values: Array, axis: int) -> Array:
        """Return an array whose `axis` has the units, with this axis in the shape of the layer."""
        if not self.shape:
            return values
        axis %= values.ndim
        return values.reshape(*values.shape[:axis], *self.shape, *values.shape[axis + 1 :])

    def in_line(self, values: Array, last: tuple[int, ...] = ()) -> Array:
        """Return values (..., *shape, *last) as (..., size, *last), and others unchanged."""
        whole = (*self.shape, *last)
        if not self.shape or values.shape[-len(whole) :] != whole:
            return values
        return values.reshape(*values.shape[: -len(whole)], self.size, *last)

    def flat(self, values: Array) -> Array:
        """Reshape (rows, size[, k]) to (rows, width), with the components of a unit in a row."""
        return np.asarray(values).reshape(-1, self.width)

    def shaped(self, flat: Array) -> Array:
        """Reshape (..., width) to (..., size[, k]), which the functions of the unit take."""
        if self.width == self.size:
            return flat
        return flat.reshape(*flat.shape[:-1], self.size, self.unit.width)

    def states(self, flat: Array) -> Array:
        """Return the states (..., size) that are nearest to flat values (..., width)."""
        return self.unit.state_of(self.shaped(np.asarray(flat)))

    def one_hot(self, flat: Array) -> Array:
        """Return states of flat values as one-hot rows (..., size, K)."""
        assert self.unit.support is not None
        # `take` is ten times as fast as indexing.
        return one_hot_rows(len(self.unit.support)).take(self.states(flat), axis=0)

    def components(self, mask: Array) -> Array:
        """Return a mask of units (..., size) as a mask of components (..., width)."""
        return mask if self.width == self.size else np.repeat(mask, self.unit.width, axis=-1)

    def columns(self, index: Array) -> Array:
        """Return the columns of the units `index` in a weight matrix, in order."""
        if self.width == self.size:
            return index
        return (index[:, None] * self.unit.width + np.arange(self.unit.width)).ravel()

    def owners(self, columns: Array) -> Array:
        """Return the units to which columns of a weight matrix belong."""
        return columns if self.width == self.size else columns // self.unit.width

    @property
    def is_variable(self) -> bool:
        """Whether the layer holds a single variable of the same name."""
        return self.labels == (self.name,)

    def place(self, index: int, row: int | None = None) -> str:
        """Return a unit in words for a message, with its label if it has one."""
        before = "" if row is None else f", row {row}"
        if self.is_variable:
            return f"{self.title}{before}"
        if self.is_array:
            return f"variable '{self.name}[{self.unit_texts[index]}]'{before}"
        if self.holds_variables and self.labels:
            return f"variable {self.labels[index]!r}{before}"
        label = f" ({self.labels[index]!r})" if self.labels else ""
        return f"{self.title}{before}, index {index}{label}"

    @cached_property
    def title(self) -> str:
        """The layer, or the variables that it holds, in words for a message."""
        if self.holds_variables and self.labels:
            several = "s" if len(self.labels) > 1 else ""
            return f"variable{several} {listed([repr(name) for name in self.labels])}"
        own = self.is_variable or self.is_array
        return f"{'variable' if own else 'layer'} {self.name!r}"

    def values_of(self, labels: Array, what: str) -> Array:
        """Return the values (rows, size, width) of labels (rows, size), NaN where a label is NaN.

        Where values are infinitely many, the labels are the numbers of which the unit makes values.

        PgmError names the first number that is not a label.
        """
        support = self.unit.support
        if support is None:
            if (values := self.unit.values_of(labels)) is not None:
                return values
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
                f"{what}: {self.place(index, row)}: "
                f"{text_of_number(labels[row, index])} is not a label of {self.unit!r}, "
                f"expected 0..{len(support) - 1}"
            )
        return np.where(missing[..., None], np.nan, support.take(seen.astype(int), axis=0))
