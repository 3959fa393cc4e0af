"""Evidence and fields by the names of units, collected into arrays by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import IN_RANGE, SINGLE_ROUNDING, in_range
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array
from pgmengine.model.containers import as_floats, is_frame
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import (
    as_entries,
    state_number,
    state_numbers,
    text_of_number,
)
from pgmengine.model.structure import Structure


class StateNumbers(dict[str, Any]):
    """Values by layer whose names of states are already numbers."""


class ValuesInRows(dict[str, Any]):
    """Values by layer and unit from a file, where a vector has a state for each row."""


def check_by_layer(structure: Structure, given: Any, what: str) -> None:
    """PgmError unless values are a mapping; for an array it names the layers whose width fits."""
    if isinstance(given, Mapping):
        return
    try:
        shape = () if is_frame(given) else tuple(np.shape(given))
    except ValueError:
        # Nested lists of unequal lengths have no shape.
        shape = ()
    layers = [x for x in structure.layers.values() if not x.holds_variables]
    names = "names of variables to states" if structure.variables else "layer names to arrays"
    expected = f"{what} must map {names}"
    if not shape:
        file = isinstance(given, PathLike) or (isinstance(given, str) and "." in given)
        read = "; give pandas.read_csv(...) of a file" if file else ""
        if hasattr(given, "x_train") and layers:
            read = f'; give {{"{layers[0].name}": data.x_train}}'
        raise PgmError(f"{expected}, not {type(given).__name__}{read}")
    if len(shape) == 2 and shape[1] == len(structure.variables):
        advice = "give pandas.DataFrame(X, columns=model.variables), a column for each variable"
    elif not layers:
        advice = f"the variables are {listed([*map(str, structure.names.declared())])}"
    elif fitting := _fitting(layers, shape):
        ways = listed([f'{{"{x.name}": X}}' for x in fitting], " or ")
        advice = f"give {ways}, since {listed([_with_size(x) for x in fitting])}"
    else:
        advice = f"no layer is so wide, {listed([_with_size(x) for x in layers])}"
    raise PgmError(f"{expected}, not an array {shape}: {advice}")


def _fitting(layers: Sequence[Layer], shape: tuple[int, ...]) -> list[Layer]:
    """Return the layers whose values or labels, (size[, k]) or (rows, size[, k]), have a shape."""
    rows = len(shape) - 1
    wide = [
        x
        for x in layers
        if (rows < 2 and shape[-1] == x.size)
        or (x.unit.width > 1 and rows in (1, 2) and shape[-2:] == x.bias_shape)
    ]
    # A vector may also have a row for each value of a single unit.
    return wide or [x for x in layers if rows == 0 and x.size == 1]


def _with_size(layer: Layer) -> str:
    """Return a layer and its number of units in words."""
    each = f" of {layer.unit.width} components" if layer.unit.width > 1 else ""
    return f"{layer.title} has {layer.size} unit{'s' * (layer.size > 1)}{each}"


def values_by_layer(
    structure: Structure, given: Mapping[Any, Any], what: str, are_data: bool = False
) -> tuple[dict[str, Any], StateNumbers]:
    """Return entries by layer unchanged, and entries by names of units as layer -> numbers.

    A value is the name of a state, a number, or an array of these with an axis of rows; None and
    NaN are not observed. Data may have numbers between states, such as grey levels.

    Raises
    ------
    PgmError for unknown names of states, with the nearest name, and for a unit that is given twice.
    """
    out, named = apart(structure, given, what)
    rows: tuple[Any, int] | None = None
    read = StateNumbers()
    for name, members in named.items():
        layer = structure.layers[name]
        parts = {}
        for i, (key, value) in members.items():
            parts[i] = _numbers(layer, value, f"{what}: {key!r}")
            # Names of states have been checked when they were read.
            if layer.state_table is None and not are_data:
                check_states(layer, parts[i], f"{what}: {key!r}")
            _check_rows(parts[i], f"{what}: {key!r}")
            rows = _common_rows(rows, key, parts[i], what)
        gathered = _gathered(layer.size, parts, np.nan)
        if layer.unit.width > 1 and gathered.ndim == 2:
            # One row stays a vector of labels: its values (size, k) could be read as rows of
            # labels.
            gathered = layer.values_of(gathered, what)
        read[name] = gathered
    return out, read


def fields_by_layer(structure: Structure, given: Mapping[Any, Any], what: str) -> dict[str, Any]:
    """Return natural parameters by layer, 0 by default; keys may be names of units."""
    out, named = apart(structure, given, what)
    rows: tuple[Any, int] | None = None
    for name, members in named.items():
        layer = structure.layers[name]
        parts: dict[int, Array] = {}
        for i, (key, value) in members.items():
            field, k = _field(layer, value, f"{what}: {key!r}"), layer.unit.width
            if field.ndim > (k > 1):
                rows = _common_rows(rows, key, field, what)
            by_state = field if k > 1 else field[..., None]
            for state, column in enumerate(layer.columns(np.array([i]))):
                parts[column] = by_state[..., state]
        flat = _gathered(layer.width, parts, 0.0)
        out[name] = flat.reshape(*flat.shape[:-1], *layer.bias_shape)
    return out


def _field(layer: Layer, value: ArrayLike, what: str) -> Array:
    """Return the field of one unit, ([rows,] [k]), checked: a number, or one for each state."""
    field, k = as_floats(value, what), layer.unit.width
    _check_rows(field, what)
    if k > 1 and field.shape[-1:] != (k,):
        raise PgmError(
            f"{what} has shape {field.shape}, expected (..., {k}), one number for each state"
        )
    if field.ndim > 1 + (k > 1):
        each = "a number" if k == 1 else f"{k} numbers"
        raise PgmError(f"{what} has shape {field.shape}, expected {each}, or as many for each row")
    if not in_range(field).all():
        raise PgmError(f"{what}{_first(~in_range(field), field, k > 1)}, expected {IN_RANGE}")
    return field


def _check_rows(values: Array, what: str) -> None:
    """PgmError for an array without rows."""
    if values.ndim and not len(values):
        raise PgmError(f"{what} has no rows, expected at least one")


def _first(bad: Array, values: Array, by_state: bool) -> str:
    """Return the place of the first bad value and what it is, for a message."""
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    axes = (*["row"] * (len(place) - by_state), *["state"] * by_state)
    where = "".join(f", {axis} {i}" for axis, i in zip(axes, place, strict=True))
    return f"{where} is {values[place]}"


Members = dict[int, tuple[Any, Any]]


def apart(
    structure: Structure, given: Mapping[Any, Any], what: str
) -> tuple[dict[str, Any], dict[str, Members]]:
    """Return the entries by layer, and layer -> unit -> (name, value) of all other entries."""
    out: dict[str, Any] = {}
    named: dict[str, Members] = {}
    for key, value in given.items():
        place = None if key in structure.layers else structure.names.place(key)
        if place is None and isinstance(key, tuple):
            place = structure.names.unit(key, what)
        if place is None:
            # This includes unknown names, which the parser of layers refuses.
            out[key] = value
            continue
        units = named.setdefault(place[0], {})
        if place[1] in units:
            raise PgmError(f"{what}: {units[place[1]][0]!r} and {key!r} are the same unit")
        units[place[1]] = key, value
    for name, members in named.items():
        if name in out:
            key = next(iter(members.values()))[0]
            raise PgmError(f"{what}: unit {key!r} is given by its name, and with layer {name!r}")
    return out, named


def _numbers(layer: Layer, value: ArrayLike, what: str) -> Array:
    """Return values () or (rows,) of one unit as numbers, NaN where none is given."""
    if isinstance(value, (str, int, float)):
        return np.asarray(state_number(layer, value, what))
    array = as_entries(layer, value, what)
    # (rows, 1), the shape of a layer of one unit.
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim > 1:
        raise PgmError(f"{what} has shape {array.shape}, expected a value, or one for each row")
    return state_numbers(layer, array, what, ("row",))


def check_states(layer: Layer, numbers: Array, what: str) -> None:
    """PgmError unless the numbers () or (rows,) of one unit are states of it, or NaN."""
    unit, support = layer.unit, layer.unit.support
    if support is None:
        return
    known = np.arange(len(support)) if unit.width > 1 else support
    # Labels are integers, which single precision represents exactly.
    rounding = 0.0 if unit.width > 1 else SINGLE_ROUNDING
    if not numbers.ndim:
        value = numbers.item()
        if value != value or any([abs(value - k) <= rounding * abs(k) for k in known.tolist()]):
            return
    near = np.abs(numbers[..., None] - known) <= rounding * np.abs(known)
    bad = ~(np.isnan(numbers) | near.any(axis=-1))
    if bad.any():
        row = f", row {np.flatnonzero(bad)[0]}" if numbers.ndim else ""
        value = np.ravel(numbers)[np.ravel(bad)][0]
        expected = ", ".join(map(repr, known.tolist()[:8]))
        raise PgmError(
            f"{what}{row}: {text_of_number(value)} is no state, expected one of {expected}"
        )


def _common_rows(
    rows: tuple[Any, int] | None, key: Any, part: Array, what: str
) -> tuple[Any, int] | None:
    """Return the common number of rows so far, with the name of a unit that has them."""
    if not part.ndim:
        return rows
    if rows is not None and rows[1] != len(part):
        raise PgmError(f"{what}: {rows[0]!r} has {rows[1]} rows, and {key!r} has {len(part)}")
    return key, len(part)


def in_line(layer: Layer, given: Any, what: str) -> Array:
    """Return values of a layer, in its shape if that has several axes, as (..., size[, k])."""
    array = as_entries(layer, given, what)
    found = layer.in_line(array)
    return found if found is not array else layer.in_line(array, (layer.unit.width,))


def numbers_of_layer(layer: Layer, given: Any, what: str, with_rows: bool = False) -> Array:
    """Return values of a layer with its names of states as numbers, NaN where not observed.

    Values of all components of units, such as one-hot rows, stay as they are, and so do numbers of
    states without names. Data are always `with_rows`: an array with two axes is then rows of
    labels.

    Raises
    ------
    PgmError for a value that is no state, with row and index.
    """
    named = layer.state_table is not None
    array = in_line(layer, given, what)
    if not named and array.dtype.kind in "biuf":
        return array
    wide = layer.unit.width > 1
    if wide and _of_components(layer, array, with_rows):
        return array
    found = state_numbers(layer, array, what, _axes(layer, array))
    if wide and found.ndim == 2 and found.shape[1] == layer.size:
        # If there are as many rows as states, labels could be read as values of components.
        return layer.values_of(found, what)
    return found


def _of_components(layer: Layer, array: Array, with_rows: bool) -> bool:
    """Whether an array has numbers for each component of each unit, and no names of states.

    Text that might be either is read as names.
    """
    shape = layer.bias_shape
    if array.shape[-2:] != shape or (with_rows and array.ndim == 2):
        return False
    try:
        values = array.astype(np.float64)
    except (TypeError, ValueError):
        return False
    if array.ndim > 2 or shape[0] != shape[1]:
        return True
    named = layer.state_table is not None and any(isinstance(x, str) for x in array.flat)
    return not named and values_of_units(layer, values)


def values_of_units(layer: Layer, array: Array) -> bool:
    """Whether there are rows without NaN, and all of them are values of the layer's units."""
    known = array[~np.isnan(array).all(axis=1)]
    return bool(len(known)) and bool(layer.unit.contains(known).all())


def _axes(layer: Layer, array: Array) -> tuple[str, ...]:
    """Return the names of the axes of values of a layer, for messages."""
    vector = ("row",) if layer.size == 1 else ("index",)
    return {0: (), 1: vector, 2: ("row", "index")}.get(array.ndim, ("axis",) * array.ndim)


def _gathered(size: int, parts: Mapping[int, Array], absent: float) -> Array:
    """Return the values of units, of equal length, as one array (size,) or (rows, size)."""
    rows = {len(part) for part in parts.values() if part.ndim}
    out = np.full((*rows, size), absent)
    for i, part in parts.items():
        out[..., i] = part
    return out
