"""A layer: a named array of units of one type, the node of every graph."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array
from pgmengine.units import Unit


@dataclass(frozen=True)
class Layer:
    """A named array of `size` units of one type.

    `labels` are the variables' names, `state_names` those of the states of each, in the order of
    unit.support, if any.
    """

    name: str
    unit: Unit
    size: int
    labels: tuple[Hashable, ...] | None = None
    state_names: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """Numbers the layer counts in a weight matrix: size, or size * k for Categorical(k)."""
        return self.size * self.unit.width

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """(size,), or (size, k) for Categorical(k)."""
        return (self.size,) if self.unit.width == 1 else (self.size, self.unit.width)

    def flat(self, values: Array) -> Array:
        """(rows, size[, k]) -> (rows, width), unit major."""
        return np.asarray(values).reshape(-1, self.width)

    def shaped(self, flat: Array) -> Array:
        """(..., width) -> (..., size[, k]): the shape in which the unit's functions take it."""
        return (
            flat
            if self.unit.width == 1
            else flat.reshape(*flat.shape[:-1], self.size, self.unit.width)
        )

    def states(self, flat: Array) -> Array:
        """Numbers (..., size) of the states of a finite unit that flat values (..., width) are, or
        are nearest to.
        """
        return self.unit.state_of(self.shaped(np.asarray(flat)))

    def one_hot(self, flat: Array) -> Array:
        """The states of flat values as (..., size, K)."""
        assert self.unit.support is not None
        return np.eye(len(self.unit.support)).take(
            self.states(flat), axis=0
        )  # a tenth of the time of [...]

    def components(self, mask: Array) -> Array:
        """A mask of units (..., size) as one of components (..., width)."""
        return mask if self.unit.width == 1 else np.repeat(mask, self.unit.width, axis=-1)

    def columns(self, index: Array) -> Array:
        """Columns of the weight matrix that the units `index` own, in order."""
        k = self.unit.width
        return index if k == 1 else (index[:, None] * k + np.arange(k)).ravel()

    def owners(self, columns: Array) -> Array:
        """The units that own columns of the weight matrix."""
        return columns // self.unit.width
