"""Rows of inputs: parameters whose rows are the whole inputs of children, by state of a parent.

Where a child has one parent with finitely many states, and arrows with a row for each of them, the
row of state k is the input zeta_k of the child, and nothing else is added to it. Given the states
of parents, each row is then learned on its own, from the expected sums of its children over all
rows of data, and over all places that share it:

    sums of a row    N = sum of q(k),  then the sums of q(k) times the deviations of x at zeta_k

with q(k) = weight of the row of data * P(parent of the child in state k | row) of an observed
child (`Unit.deviations`). A row of a table of probabilities is learned from counts in the same way.

The numbers of all parameters of places are one vector, in the order of `first_of(shared)`. A row is
known by the number of its first component in this vector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.numerics import add_at
from pgmengine.base.types import Array, Params
from pgmengine.base.work.cache import remembered
from pgmengine.model.structure import Structure, first_of
from pgmengine.model.terms.term import Term
from pgmengine.units import Unit

if TYPE_CHECKING:
    from pgmengine.model.parameters import Parameters


@remembered
def rows_of_inputs(structure: Structure) -> dict[str, Unit]:
    """Return the parameters whose rows are the whole inputs of children, and their unit type.

    Of several types, it is the one with the smallest inputs.
    """
    out = dict[str, Unit]()
    for key in first_of(structure.shared):
        terms = [t for t in structure.shared if t.key == key]
        if all(_rows_are_inputs(structure, t) for t in terms):
            units = [structure.layers[t.layers[-1]].unit for t in terms]
            out[key] = min(units, key=lambda unit: unit.least_inputs)
    return out


def _rows_are_inputs(s: Structure, term: Term) -> bool:
    """Return whether each row of the weight of arrows is the whole input of its children."""
    child = term.layers[-1]
    if not term.has_all_rows(s.layers) or any(c in s.weighted for c in s.arrows_into[child]):
        return False
    ends = np.concatenate([t.index[:, -1] for t in s.shared if t.layers[-1] == child])
    return len(np.unique(ends)) == len(ends)


@dataclass(frozen=True, eq=False)
class ChildRows:
    """The rows of the children of a layer, (size,) of each attribute but `unit`.

    Attributes
    ----------
    unit : the type of the children.
    first : the row of each child in state 0 of its parent, as the number of its first component;
        -1 for units without such rows. Rows of further states follow.
    parent : the parent, as a number among all units.
    states : the number of states of the parent.
    """

    unit: Unit
    first: Array
    parent: Array
    states: Array

    def of(self, children: Array, states: int) -> Array:
        """Return the rows (n, states) of some children."""
        return np.asarray(self.first[children][:, None] + self.unit.width * np.arange(states))


@dataclass(frozen=True, eq=False)
class InputRows:
    """The rows of inputs that sums determine.

    Attributes
    ----------
    units : parameter -> the unit type of its children.
    layers : layer -> the rows of its children.
    places : parameter -> its numbers in the vector of all.
    """

    units: Mapping[str, Unit]
    layers: Mapping[str, ChildRows]
    places: Mapping[str, slice]

    def zeros(self) -> Array:
        """Return sums of 0, (numbers, 1 + most components of a unit), at the rows among numbers."""
        count = max((place.stop for place in self.places.values()), default=0)
        return np.zeros((count, 1 + max((unit.width for unit in self.units.values()), default=0)))

    def by_parameter(self, total: Array, params: Params) -> dict[str, Array]:
        """Return sums by parameter, (..., states, 1 + components), from those of all numbers."""
        out = dict[str, Array]()
        for key, unit in self.units.items():
            own = total[self.places[key]][:: unit.width, : unit.width + 1]
            out[key] = own.reshape(*np.shape(params[key])[:-1], unit.width + 1)
        return out


@remembered
def input_rows(s: Structure) -> InputRows:
    """Return the rows of inputs that sums determine: those of unit types that `refit` them."""
    units, places, begin = dict[str, Unit](), dict[str, slice](), 0
    for key, term in first_of(s.shared).items():
        places[key] = slice(begin, begin + math.prod(term.shape(s.layers)))
        begin = places[key].stop
    for key in rows_of_inputs(s):
        kinds = {s.layers[t.layers[-1]].unit for t in s.shared if t.key == key}
        if len(kinds) == 1 and (unit := kinds.pop()).refits:
            units[key] = unit
    layers = dict[str, ChildRows]()
    for t in s.shared:
        if t.key in units:
            above, child, unit = s.layers[t.layers[0]], t.layers[-1], units[t.key]
            none = np.full((3, s.layers[child].size), -1)
            own = layers.setdefault(child, ChildRows(unit, *none))
            at, each = t.index[:, 1], above.state_count * unit.width
            own.first[at] = places[t.key].start + t.numbers * each
            own.parent[at] = s.first_unit[t.layers[0]] + t.index[:, 0]
            own.states[at] = above.state_count
    return InputRows(units, layers, places)


def add_sums(total: Array, rows: Array, sums: Array) -> None:
    """Add sums (..., 1 + components) of rows (...) to those of all numbers."""
    for component in range(sums.shape[-1]):
        add_at(total[:, component], rows, sums[..., component])


def shared_numbers(model: Parameters) -> Array:
    """Return the numbers of all parameters that places share, in order."""
    groups = first_of(model.structure.shared)
    return np.concatenate([np.empty(0), *(np.ravel(model.params[key]) for key in groups)])
