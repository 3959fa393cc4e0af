"""Units that the command line shows one by one: variables, and the units of their arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pgmengine as pgm
from pgmengine.base.types import Array
from pgmengine.evidence.frames import shown_units
from pgmengine.infer.results.statistics import state_errors
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure


@dataclass(frozen=True)
class NamedUnit:
    """A unit with finitely many states, which has a name.

    Attributes
    ----------
    name : the name of the variable, with its index in an array.
    layer : its layer.
    number : its number in the layer.
    """

    name: str
    layer: Layer
    number: int


def named_units(structure: Structure) -> Iterator[NamedUnit]:
    """Yield the units of arrays of variables in the order of layers, then the variables."""
    for x in shown_units(structure):
        if x.layer.unit.support is not None and (x.variable or x.layer.is_array):
            for i in x.units:
                yield NamedUnit(structure.names.of((x.layer.name, i)), x.layer, i)


def error_of_states(result: pgm.Result, unit: NamedUnit) -> Array | None:
    """Return the standard error of each state's probability, (rows, states), or None."""
    errors = state_errors(result.stats, unit.layer)
    return None if errors is None else errors[:, unit.number]
