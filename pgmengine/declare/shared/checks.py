"""Checks of the values of shared couplings and biases."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.limits import IN_RANGE, in_range
from pgmengine.base.types import Array
from pgmengine.evidence.containers import as_floats
from pgmengine.model.layer import Layer
from pgmengine.model.shared.shared_term import SharedTerm


def check_shared(
    layers: Mapping[str, Layer], term: SharedTerm, values: object, what: str = ""
) -> Array:
    """Return the parameter of a shared term as float64; PgmError unless it fits the places.

    Noisy-or units need values of at least 0. `what` is the declaration, for messages.
    """
    what = what or f"parameter {term.key!r}"
    array = np.array(as_floats(values, what), order="C")
    if array.shape != (shape := term.shape(layers)):
        raise PgmError(f"{what} has shape {array.shape}, expected {shape}")
    bounded = (term.is_bias or term.directed) and layers[term.layers[-1]].unit.nonnegative
    for bad, expected in (
        (~in_range(array), IN_RANGE),
        ((array < 0) & bounded, ">= 0 for noisy-or units"),
    ):
        if bad.any():
            at = np.argwhere(bad)[0].tolist()
            place = f"entry {at} " if at else ""
            raise PgmError(f"{what}: {place}is {array[tuple(at)]}, expected {expected}")
    return array
