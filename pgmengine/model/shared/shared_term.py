"""A coupling or a bias that many places share: one parameter, and the units of each place.

    log density gains  sum over places p of  x_i(p) W[n(p)] y_j(p)    for a coupling
                       sum over places p of  value[n(p)] . x_i(p)     for a bias

n(p) is the number of the weight or value of a place, counted over the leading axes of the
parameter. An arrow adds x_i W to the input of unit j instead. The weight of one place has the shape
() if both units have one component, else (components of x, components of y).

A parent of two states s_0, s_1 has one component, and may have a row of numbers for each of its
states, as a parent of three or more has. The input of the child is linear in x_i:

    W_0 + (W_1 - W_0) (x_i - s_0) / (s_1 - s_0),

so that the rows act on the weight of x_i, and on the bias of the child.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array
from pgmengine.model.layer import Layer


@dataclass(frozen=True, eq=False)
class SharedTerm:
    """The places of a shared coupling, or of a shared bias.

    Attributes
    ----------
    key : the name of the parameter. Terms with the same key share it.
    layers : the layers of the two ends of a coupling, or the layer of a bias.
    index : (n, m) units of these layers, a row for each place.
    which : (n,) the number of the weight of each place, counted over `lead`.
    lead : the leading axes of the parameter; () for one weight, which all places share.
    directed : whether it is a coupling of arrows from the first unit to the second.
    by_state : whether a parent of two states has a row for each of them.
    """

    key: str
    layers: tuple[str, ...]
    index: Array
    which: Array
    lead: tuple[int, ...] = ()
    directed: bool = False
    by_state: bool = False

    @property
    def is_bias(self) -> bool:
        """Whether it is a bias."""
        return len(self.layers) == 1

    def shape(self, layers: Mapping[str, Layer]) -> tuple[int, ...]:
        """Return the shape of the parameter."""
        return (*self.lead, *self.place_shape(layers))

    def place_shape(self, layers: Mapping[str, Layer]) -> tuple[int, ...]:
        """Return the shape of the weight or bias of one place."""
        if self.by_state:
            return rows_by_state(layers, self.layers)
        return place_shape(layers, self.layers)

    def has_all_rows(self, layers: Mapping[str, Layer]) -> bool:
        """Return whether arrows have a row for each state of the parent, which contain a bias."""
        return self.directed and (self.by_state or layers[self.layers[0]].unit.one_hot)

    def places_a_weight(self) -> float:
        """Return the mean number of places in which each weight is used."""
        return len(self.index) / max(math.prod(self.lead), 1)

    def entries(self, layers: Mapping[str, Layer]) -> tuple[tuple[Array, ...], Array]:
        """Return the components of all places, and their numbers in the flat parameter.

        The components are one array for each layer: the columns of the layer that an entry joins.
        With rows by state, the numbers are those of the first row.
        """
        widths = [layers[name].unit.width for name in self.layers]
        size = math.prod(widths)
        parts = np.unravel_index(np.arange(size), widths)
        columns = tuple(
            (self.index[:, axis, None] * width + part).ravel()
            for axis, (width, part) in enumerate(zip(widths, parts, strict=True))
        )
        rows = 2 if self.by_state else 1
        return columns, (self.which[:, None] * (rows * size) + np.arange(size)).ravel()


def place_shape(layers: Mapping[str, Layer], names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the shape of the weight or bias of one place between units of these layers."""
    widths = tuple(layers[name].unit.width for name in names)
    return () if set(widths) == {1} else widths


def rows_by_state(layers: Mapping[str, Layer], names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the shape of a weight of one place with a row for each of two states of the parent."""
    return 2, layers[names[1]].unit.width
