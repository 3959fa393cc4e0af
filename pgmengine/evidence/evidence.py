"""Evidence, parsed into complete arrays with a mask for each row.

Evidence consists of observed values. Soft evidence, log weights of states, is read by soft.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import IN_RANGE, SINGLE_ROUNDING
from pgmengine.base.equal_rows import rows_of, spread
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array, LayerValues
from pgmengine.evidence.frames import by_layer
from pgmengine.evidence.named_units import StateNumbers, ValuesInRows, in_line, values_of_units
from pgmengine.evidence.relevance import EvidencePattern, pattern_of
from pgmengine.model.containers import as_floats, is_frame
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import as_entries, text_of_number
from pgmengine.model.structure import Structure


@dataclass(frozen=True, eq=False)
class Evidence:
    """Values of every layer, 0 where not observed, and the evidence pattern of every row."""

    # Whether any array had an axis of rows.
    has_rows: bool
    # Layer -> (rows, width).
    values: dict[str, Array]
    pattern: EvidencePattern

    def take(self, index: Array) -> Evidence:
        """Return the evidence of the rows `index`."""
        return Evidence(self.has_rows, rows_of(self.values, index), self.pattern.take(index))


# Types of values that have no axes.
SCALAR_TYPES = str, int, float, np.generic, type(None)


def parse_evidence(
    structure: Structure,
    evidence: LayerValues | None,
    what: str = "evidence",
    rows_known: bool = False,
) -> Evidence:
    """Parse evidence into complete arrays.

    Parameters
    ----------
    structure : the layers.
    evidence : layer -> (size,) or (rows, size), NaN = not observed; of Categorical layers labels
        of this shape, or one-hot rows (..., size, k). Or a DataFrame with a column for each unit
        that is observed in some row; see frames.by_layer.
    what : the name of the evidence in messages.
    rows_known : whether another part of the question has an axis of rows.

    Raises
    ------
    PgmError with layer, row and index for values outside the support of a unit, wrong shapes, and
    unequal numbers of rows.
    """
    evidence = {} if evidence is None else evidence
    rows_known = rows_known or isinstance(evidence, (StateNumbers, ValuesInRows))
    if isinstance(evidence, Mapping) and not rows_known:
        _check_one_hot(structure, evidence, what)
    evidence = by_layer(structure, evidence, what)
    names = structure.names
    parsed, with_rows = dict[str, tuple[Array, Array]](), dict[str, int]()
    for name, given in evidence.items():
        layer = names.layer(name, what=f"{what}: layer")
        value, seen, has_rows = parse_layer(layer, given, what)
        parsed[name] = value, seen
        if has_rows:
            with_rows[name] = len(value)
    if len(set(with_rows.values())) > 1:
        counts = ", ".join(
            f"{names.described(name, np.any(parsed[name][1], axis=0))} has {n}"
            for name, n in with_rows.items()
        )
        raise PgmError(f"{what}: layers differ in their number of rows: {counts}")
    rows = next(iter(with_rows.values()), 1)
    if rows == 0:
        empty = names.described(next(iter(with_rows)))
        raise PgmError(f"{what}: {empty} has no rows, expected at least one")
    values, observed, intervened = {}, {}, {}
    for name, (value, none) in structure.no_evidence.items():
        seen = none
        if name in parsed:
            value, seen = parsed[name]
            # Equal rows are stored once.
            seen = seen[:1].copy() if len(seen) > 1 and (seen == seen[:1]).all() else seen
        if rows > 1:
            value, seen, none = (spread(array, rows) for array in (value, seen, none))
        values[name], observed[name], intervened[name] = value, seen, none
    return Evidence(bool(with_rows), values, pattern_of(structure, rows, observed, intervened))


def _check_one_hot(structure: Structure, evidence: Mapping[Any, Any], what: str) -> None:
    """PgmError for a vector that may be a one-hot row, or a state in each of many rows.

    If other evidence has rows, the vector contains a state for each row.
    """
    for key, given in evidence.items():
        why = None if isinstance(given, SCALAR_TYPES) else _as_one_hot(structure, key, given, what)
        if why is not None and not tells_rows(structure, {**evidence, key: None}):
            raise PgmError(why)


def tells_rows(structure: Structure, given: LayerValues | None) -> bool:
    """Whether evidence or interventions have an axis of rows."""
    if not isinstance(given, Mapping):
        return given is not None
    return any(_has_rows(structure, key, x) for key, x in given.items())


def _has_rows(structure: Structure, key: Any, given: Any) -> bool:
    """Whether the values of a layer or of a unit have an axis of rows."""
    layer = None if isinstance(given, SCALAR_TYPES) else structure.names.layer_of(key)
    if layer is None:
        return False
    if is_frame(given):
        return True
    try:
        given = in_line(layer, given, "") if key == layer.name else given
        axes = given.ndim if hasattr(given, "ndim") else as_entries(layer, given, "").ndim
    except PgmError:
        return False
    return bool(axes > int(key == layer.name and layer.size > 1))


def _as_one_hot(structure: Structure, key: Any, given: Any, what: str) -> str | None:
    """Return a message about a vector of one unit that may be a one-hot row, else None."""
    layer = structure.names.layer_of(key)
    if layer is None or not layer.unit.one_hot or (layer.name == key and layer.size > 1):
        return None
    k = layer.unit.width
    if k == 1 or getattr(given, "ndim", 1) != 1 or not isinstance(given, Sized) or len(given) != k:
        return None
    entries = as_entries(layer, given, f"{what}: {key!r}")
    if entries.ndim != 1:
        return None
    kinds = (bool, int, float, np.number, np.bool_)
    ones = [entry == 1 for entry in entries if isinstance(entry, kinds) and entry in (0, 1)]
    if len(ones) != k or sum(ones) != 1:
        return None
    row, table = [int(one) for one in ones], layer.state_table
    state = row.index(1) if table is None else table.names[row.index(1)]
    in_rows = table is None or all(table.matches(entry) for entry in entries)
    other = f", or the rows {[[entry] for entry in row]}" if in_rows else ""
    return (
        f"{what}: {key!r}: {row} may be a one-hot row, or a state in each of {k} rows: give the "
        f"state, {state!r}{other}"
    )


def parse_layer(layer: Layer, given: ArrayLike, what: str) -> tuple[Array, Array, bool]:
    """Return values (rows or 1, width), 0 where not observed, as a copy.

    Also returns a mask (rows or 1, size) of the observed units, and whether there were rows.
    """
    values, has_rows = _with_rows(layer, as_floats(given, f"{what}: {layer.title}"), what)
    # If all components are NaN, the unit is not observed; if only some are, the value is refused.
    nan, wide = np.asarray(np.isnan(values)), layer.unit.width > 1
    if wide:
        nan = np.all(nan, axis=-1)
    values = np.where(nan[..., None] if wide else nan, 0.0, values)
    good = layer.unit.contains(values)
    if not good.all() and not (good := good | nan).all():
        values, good = _rounded(layer, values, good)
        if not good.all():
            row, index = (int(i) for i in np.argwhere(~good)[0])
            raise PgmError(
                f"{what}: {layer.place(index, row if has_rows or layer.size > 1 else None)}: "
                f"{values[row, index].tolist()} is not a value of {layer.unit!r}{_expected(layer)}"
                f"{_as_probability(layer, values[row, index], index, what)}"
            )
    return values.reshape(values.shape[0], layer.width), ~nan, has_rows


def _rounded(layer: Layer, values: Array, good: Array) -> tuple[Array, Array]:
    """Undo the rounding of values such as 0.2 to single precision.

    Return the values, and a mask of those that the unit can have.
    """
    unit, wide = layer.unit, layer.unit.width > 1
    if unit.support is None:
        return values, good
    nearest = unit.support[unit.state_of(values)]
    near = np.abs(values - nearest) <= SINGLE_ROUNDING * np.abs(nearest)
    close = ~good & (near.all(axis=-1) if wide else near)
    return np.where(close[..., None] if wide else close, nearest, values), good | close


def is_binary(layer: Layer) -> bool:
    """Whether the values of the units of a layer are 0 and 1."""
    support = layer.unit.support
    return support is not None and support.tolist() == [0.0, 1.0]


def _as_probability(layer: Layer, value: Array, index: int, what: str) -> str:
    """Return how `fit` reads a number between 0 and 1, as the end of a message about data."""
    if what != "data" or layer.state_names or not (is_binary(layer) and 0 < value < 1):
        return ""
    name = layer.labels[index] if layer.holds_variables and layer.labels else layer.name
    return f"; fit(..., probabilities=({name!r},)) reads it as the probability of 1"


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
    shown = ", ".join(text_of_number(v) for v in unit.support[:8])
    return (
        f", expected one of {shown}{', ...' if len(unit.support) > 8 else ''}; if the numbers are "
        "measurements, divide them at thresholds first, or give the layer Gaussian() units"
    )


def _with_rows(layer: Layer, array: Array, what: str) -> tuple[Array, bool]:
    """Return (rows, size[, k]), and whether rows were given; labels become values."""
    n, k = layer.size, layer.unit.width
    square = k > 1 and array.shape == (n, n) == (n, k)
    if square and values_of_units(layer, array):
        raise PgmError(
            f"{what}: {layer.title}: an array {(n, k)} whose rows are values of {n} units "
            f"may also be labels of {n} rows of evidence; give values with an axis of rows, as "
            f"(rows, {n}, {k})"
        )
    if k > 1 and array.shape[-2:] == (n, k) and not square:
        has_rows = array.ndim != 2
        array = array if has_rows else array[None]
        _check_shape(layer, array, 3, what)
        return array, has_rows
    # For a layer of one unit, a vector has one value for each row. A vector of one number is
    # ambiguous: for a variable it is one row, for a declared layer the value of its unit.
    column = n == 1 and array.ndim == 1 and (array.shape[0] != 1 or layer.is_variable)
    array = array[:, None] if column else array
    if array.ndim == 0 and n == 1:
        array = array[None]
    has_rows = array.ndim == 2
    array = array if has_rows else array[None]
    _check_shape(layer, array, 2, what)
    return (layer.values_of(array, what), has_rows) if k > 1 else (array, has_rows)


def _check_shape(layer: Layer, array: Array, ndim: int, what: str) -> None:
    """PgmError unless the rows of an array have the shape of the layer."""
    if array.ndim != ndim or array.shape[1] != layer.size:
        k, inside = layer.unit.width, ", ".join(map(str, layer.grid))
        one = f"({inside})" if layer.shape else f"({inside},)"
        expected = (
            f"{one} or (rows, {inside})"
            if k == 1
            else f"labels {one} or (rows, {inside}), or one-hot (..., {inside}, {k})"
        )
        shape = array.shape if array.ndim != ndim or array.shape[0] != 1 else array.shape[1:]
        raise PgmError(f"{what}: {layer.title} has shape {shape}, expected {expected}")
