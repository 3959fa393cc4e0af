"""Units that the command line shows one by one: variables, and the units of their arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import pgmengine as pgm
from pgmengine.base.types import Array
from pgmengine.evidence.frames import shown_units
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
    """Return the standard error of the probability of each state, (rows, states).

    None for answers that are no estimates, and where the errors of means do not determine it.
    """
    errors = result.stats.get("mcse", {}).get(unit.layer.name)
    support = unit.layer.unit.support
    if errors is None or support is None:
        return None
    if unit.layer.unit.one_hot:
        return np.asarray(errors)[..., unit.number, :]
    if len(support) != 2:
        return None
    # The mean of two values is a linear function of the probability of either.
    one = np.asarray(errors)[..., unit.number] / (support[1] - support[0])
    return np.stack([one, one], axis=-1)
