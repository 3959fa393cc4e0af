"""Soft evidence: log-likelihoods of states, as linear fields added to natural parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.errors import PgmError
from pgmengine.base.limits import IN_RANGE, in_range
from pgmengine.base.types import States
from pgmengine.graph.frames import is_frame, places_of
from pgmengine.graph.layer import Layer
from pgmengine.graph.rows import common_rows
from pgmengine.graph.structure import Structure
from pgmengine.graph.validate import as_floats


def parse_soft(
    structure: Structure, soft: Mapping[str, ArrayLike] | None
) -> tuple[States, int | None]:
    """Return the linear field (rows or 1, width) of each layer, and the number of rows.

    The number of rows is None if no array had a rows axis.
    """
    fields: States = {}
    rows: int | None = None
    if soft is not None and not isinstance(soft, Mapping):
        raise PgmError(f"soft must map layer names to arrays, not {type(soft).__name__}")
    for name, given in (soft or {}).items():
        layer = structure.layer(name, what="soft: layer")
        unit = layer.unit
        two_valued = unit.support is not None and unit.width == 1 and len(unit.support) == 2
        if not two_valued and unit.width == 1:
            raise PgmError(
                f"soft: layer {name!r} has {unit!r} units; soft evidence is a log-odds for "
                "two-valued units or log weights for Categorical units"
            )
        array = as_floats(_columns_in_order(layer, given), f"soft: layer {name!r}")
        if (
            array.shape[-len(layer.bias_shape) :] != layer.bias_shape
            or array.ndim > len(layer.bias_shape) + 1
        ):
            raise PgmError(
                f"soft: layer {name!r} has shape {array.shape}, expected {layer.bias_shape} or "
                "(rows, ...)"
            )
        flat = layer.flat(array)
        if not len(flat):
            raise PgmError(f"soft: layer {name!r} has no rows, expected at least one")
        if not in_range(flat).all():
            row, index = (int(i) for i in np.argwhere(~in_range(flat))[0])
            raise PgmError(
                f"soft: layer {name!r}, row {row}, index {index // unit.width} is "
                f"{flat[row, index]}, expected {IN_RANGE}; 0 is no hint"
            )
        if two_valued and unit.support is not None:
            flat = flat / (unit.support[1] - unit.support[0])
        fields[name] = flat
        if array.ndim > len(layer.bias_shape):
            rows = (
                len(flat)
                if rows is None
                else common_rows({"soft": len(flat), "another soft layer": rows})
            )
    return fields, rows


def _columns_in_order(layer: Layer, given: Any) -> Any:
    """Return the hints of a DataFrame as (rows, size), 0 without a column; others as they are."""
    if (
        not is_frame(given)
        or layer.unit.width > 1
        or (places := places_of(layer, given, "soft")) is None
    ):
        return given
    out = np.zeros((len(given), layer.size))
    out[:, places] = as_floats(given, f"soft: layer {layer.name!r}")
    return out
