"""Evidence, parsed into complete arrays with a mask for each row.

Hard evidence consists of observed values. Soft evidence consists of log-likelihoods of states,
which are added to the natural parameters of units as linear fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.limits import IN_RANGE, in_range
from pgmengine.base.types import Array, LayerValues, States
from pgmengine.graph.frames import by_layer, places_of
from pgmengine.graph.layer import Layer
from pgmengine.graph.named_units import check_by_layer, hints_by_layer, is_frame
from pgmengine.graph.queries import EvidencePattern
from pgmengine.graph.rows import common_rows, rows_of, spread
from pgmengine.graph.structure import Structure
from pgmengine.graph.validate import as_floats
from pgmengine.graph.variables import described

# Relative error of single precision.
ROUNDING = 2.0**-24


@dataclass(frozen=True, eq=False)
class Evidence:
    """Values of every layer, 0 where not observed, and the evidence pattern of every row."""

    # Whether any array had a rows axis.
    has_rows: bool
    # Layer -> (rows, width).
    values: dict[str, Array]
    pattern: EvidencePattern

    def take(self, index: Array) -> Evidence:
        """Return the evidence of the rows `index`."""
        return Evidence(self.has_rows, rows_of(self.values, index), self.pattern.take(index))


def parse_evidence(
    structure: Structure, evidence: LayerValues | None, what: str = "evidence"
) -> Evidence:
    """Parse evidence into complete arrays.

    Parameters
    ----------
    structure : the layers.
    evidence : layer -> (size,) or (rows, size), NaN = not observed; of Categorical layers labels
        of this shape, or one-hot rows (..., size, k). Or a DataFrame with a column for each unit
        that is observed in some row; see frames.by_layer.
    what : the name of the evidence in messages.

    Raises
    ------
    PgmError with layer, row and index for values outside the support of a unit, wrong shapes, and
    unequal numbers of rows.
    """
    evidence = {} if evidence is None else by_layer(structure, evidence, what)
    parsed, with_rows = {}, {}
    for name, given in evidence.items():
        flat, has_rows = parse_layer(structure.layer(name, what=f"{what}: layer"), given, what)
        parsed[name] = flat
        if has_rows:
            with_rows[name] = flat.shape[0]
    if len(set(with_rows.values())) > 1:
        counts = ", ".join(
            f"{described(structure, name, _seen(structure.layers[name], parsed[name]))} has {n}"
            for name, n in with_rows.items()
        )
        raise PgmError(f"{what}: layers differ in their number of rows: {counts}")
    rows = next(iter(with_rows.values()), 1)
    if rows == 0:
        empty = described(structure, next(iter(with_rows)))
        raise PgmError(f"{what}: {empty} has no rows, expected at least one")
    values, observed = {}, {}
    for name, layer in structure.layers.items():
        value, seen = structure.blank[name]
        if name in parsed:
            missing = np.isnan(parsed[name])
            value, seen = np.where(missing, 0.0, parsed[name]), ~missing[:, :: layer.unit.width]
            # Equal rows are kept once.
            seen = seen[:1].copy() if len(seen) > 1 and (seen == seen[:1]).all() else seen
        values[name], observed[name] = spread(value, rows), spread(seen, rows)
    cut = {name: spread(mask, rows) for name, (_, mask) in structure.blank.items()}
    return Evidence(bool(with_rows), values, EvidencePattern(structure, rows, observed, cut))


def _seen(layer: Layer, values: Array) -> Array:
    """Return which units (size,) of a layer have a value in some row of values (rows, width)."""
    return np.logical_not(np.isnan(values).all(axis=0))[:: layer.unit.width]


def parse_layer(layer: Layer, given: ArrayLike, what: str) -> tuple[Array, bool]:
    """Return values (rows or 1, width), NaN where not observed, and whether it had a rows axis."""
    array = as_floats(given, f"{what}: {layer.title}")
    values, has_rows = _with_rows(layer, array, what)
    # A value of which a component is NaN is no value; all NaN is not observed.
    nan = np.asarray(np.isnan(values))
    if layer.unit.width > 1:
        nan = np.all(nan, axis=-1)
    filled = (
        np.where(nan[..., None] if layer.unit.width > 1 else nan, 0.0, values)
        if nan.any()
        else values
    )
    good = layer.unit.contains(filled)
    if not good.all() and not (good := good | nan).all():
        values, good = _rounded(layer, values, good)
        if not good.all():
            row, index = (int(i) for i in np.argwhere(~good)[0])
            raise PgmError(
                f"{what}: {layer.place(index, row if has_rows or layer.size > 1 else None)}: "
                f"{values[row, index].tolist()} is not a value of {layer.unit!r}{_expected(layer)}"
            )
    return values.reshape(values.shape[0], layer.width), has_rows


def _rounded(layer: Layer, values: Array, good: Array) -> tuple[Array, Array]:
    """Undo the rounding of values such as 0.2 by single precision.

    Returns the values, and which of them are values of the unit.
    """
    unit, wide = layer.unit, layer.unit.width > 1
    if unit.support is None:
        return values, good
    nearest = unit.support[unit.state_of(values)]
    near = np.abs(values - nearest) <= ROUNDING * np.abs(nearest)
    close = ~good & (near.all(axis=-1) if wide else near)
    return np.where(close[..., None] if wide else close, nearest, values), good | close


def _expected(layer: Layer) -> str:
    """Return the values of a unit in words, for a message."""
    unit = layer.unit
    if layer.state_names and unit.support is not None:
        return f", expected one of {listed([repr(name) for name in layer.state_names])}"
    if unit.one_hot:
        return f", expected a label 0..{unit.width - 1} or a one-hot row of {unit.width}"
    if unit.width > 1 and unit.support is not None:
        return f", expected a label 0..{len(unit.support) - 1} or one of the rows of its support"
    if unit.support is None:
        return f", expected {IN_RANGE}" if not unit.bounded else ", expected a number in [-1, 1]"
    shown = ", ".join(f"{v:g}" for v in unit.support[:8])
    return f", expected one of {shown}{', ...' if len(unit.support) > 8 else ''}"


def _with_rows(layer: Layer, array: Array, what: str) -> tuple[Array, bool]:
    """Return (rows, size[, k]) and whether the rows axis was given; labels become values."""
    n, k = layer.size, layer.unit.width
    square = k > 1 and array.shape == (n, n) == (n, k)
    if square and _values_of_units(layer, array):
        raise PgmError(
            f"{what}: {layer.title}: an array {(n, k)} whose rows are values of {n} units "
            f"may also be labels of {n} rows of evidence; give values with an axis of rows, as "
            f"(rows, {n}, {k})"
        )
    if k > 1 and array.shape[-2:] == (n, k) and not square:
        return (array[None], False) if array.ndim == 2 else _checked(layer, array, 3, what)
    # Of a layer of one unit a vector is one value per row. A vector of one number is the unit of
    # the layer, but a row of a variable.
    column = n == 1 and array.ndim == 1 and (array.shape[0] != 1 or layer.is_variable)
    array = array[:, None] if column else array
    if array.ndim == 0 and n == 1:
        array = array[None]
    has_rows = array.ndim == 2
    array, _ = _checked(layer, array if has_rows else array[None], 2, what)
    return (layer.values_of(array, what), has_rows) if k > 1 else (array, has_rows)


def _values_of_units(layer: Layer, array: Array) -> bool:
    """Whether there are rows without NaN, and all of them are values of the layer's units."""
    known = array[~np.isnan(array).all(axis=1)]
    return bool(len(known)) and bool(layer.unit.contains(known).all())


def _checked(layer: Layer, array: Array, ndim: int, what: str) -> tuple[Array, bool]:
    """Return the array and True; PgmError unless it has rows of the layer's shape."""
    if array.ndim != ndim or array.shape[1] != layer.size:
        n, k = layer.size, layer.unit.width
        expected = (
            f"({n},) or (rows, {n})"
            if k == 1
            else f"labels ({n},) or (rows, {n}), or one-hot (..., {n}, {k})"
        )
        shape = array.shape if array.ndim != ndim or array.shape[0] != 1 else array.shape[1:]
        raise PgmError(f"{what}: {layer.title} has shape {shape}, expected {expected}")
    return array, True


def parse_soft(
    structure: Structure, soft: Mapping[str, ArrayLike] | None
) -> tuple[States, int | None]:
    """Return the linear field (rows or 1, width) of each layer, and the number of rows.

    The number of rows is None if no array had a rows axis.
    """
    fields: States = {}
    rows: int | None = None
    if soft is not None:
        check_by_layer(structure, soft, "soft")
    if soft is not None and not structure.layers.keys() >= soft.keys():
        soft = hints_by_layer(structure, soft)
    for name, given in (soft or {}).items():
        layer = structure.layer(name, what="soft: layer")
        unit = layer.unit
        two_valued = unit.support is not None and unit.width == 1 and len(unit.support) == 2
        if not two_valued and unit.width == 1:
            raise PgmError(
                f"soft: {layer.title} has {unit!r} units; soft evidence is a log-odds for "
                "two-valued units or log weights for Categorical units"
            )
        array = as_floats(_columns_in_order(layer, given), f"soft: {layer.title}")
        array = _with_units(layer, array)
        if (
            array.shape[-len(layer.bias_shape) :] != layer.bias_shape
            or array.ndim > len(layer.bias_shape) + 1
        ):
            raise PgmError(
                f"soft: {layer.title} has shape {array.shape}, expected {layer.bias_shape} or "
                "(rows, ...)"
            )
        flat = layer.flat(array)
        if not len(flat):
            raise PgmError(f"soft: {layer.title} has no rows, expected at least one")
        if not in_range(flat).all():
            row, index = (int(i) for i in np.argwhere(~in_range(flat))[0])
            raise PgmError(
                f"soft: {layer.place(index // unit.width, row)} is "
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


def _with_units(layer: Layer, hints: Array) -> Array:
    """Return hints with an axis of units, which a layer of one unit may leave out, as in evidence.

    A hint is then a number, or one number for each state; with an axis of rows in front.
    """
    own, k = len(layer.bias_shape), layer.unit.width
    # A vector of one number is one row for a variable, and the unit of another layer.
    one = hints.shape in ((1,), layer.bias_shape) and not (layer.is_variable and hints.ndim == own)
    if layer.size > 1 or one or hints.ndim not in (own - 1, own):
        return hints
    if k > 1:
        return hints[..., None, :] if hints.shape[-1] == k else hints
    return hints[..., None]


def _columns_in_order(layer: Layer, given: Any) -> Any:
    """Return the hints of a DataFrame as (rows, size), 0 without a column; others as they are."""
    if (
        not is_frame(given)
        or layer.unit.width > 1
        or (places := places_of(layer, given, "soft")) is None
    ):
        return given
    out = np.zeros((len(given), layer.size))
    out[:, places] = as_floats(given, f"soft: {layer.title}")
    return out
