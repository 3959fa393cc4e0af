"""Evidence and hints by the names of units, gathered into arrays by layer."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import is_missing
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.limits import IN_RANGE, in_range
from pgmengine.base.names import nearest
from pgmengine.base.types import Array
from pgmengine.graph.layer import Layer
from pgmengine.graph.structure import Structure
from pgmengine.graph.validate import as_floats
from pgmengine.graph.variables import find

# Deviation of a number from the value of a state that is taken for rounding.
NEAR, RELATIVE = 1e-8, 1e-6


def check_by_layer(structure: Structure, given: Any, what: str) -> None:
    """PgmError unless values are a mapping; for an array it names the layers whose width fits."""
    if isinstance(given, Mapping):
        return
    try:
        shape = () if is_frame(given) else tuple(np.shape(given))
    except ValueError:
        # Lists of unequal lengths have no shape.
        shape = ()
    layers = [x for x in structure.layers.values() if not x.holds_variables]
    names = "names of variables to states" if structure.variables else "layer names to arrays"
    expected = f"{what} must map {names}"
    if not shape:
        raise PgmError(f"{expected}, not {type(given).__name__}")
    if len(shape) == 2 and shape[1] == len(structure.variables):
        advice = "give pandas.DataFrame(X, columns=model.variables), a column for each variable"
    elif not layers:
        advice = f"the variables are {listed([*map(str, structure.declared(structure.layers))])}"
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
    # A vector may also be the rows of a single unit.
    return wide or [x for x in layers if rows == 0 and x.size == 1]


def is_frame(given: object) -> bool:
    """Whether it is a DataFrame of pandas, or of a package with the same interface."""
    return hasattr(given, "columns") and hasattr(given, "iloc")


def _with_size(layer: Layer) -> str:
    """Return a layer and its number of units in words."""
    each = f" of {layer.unit.width} components" if layer.unit.width > 1 else ""
    return f"{layer.title} has {layer.size} unit{'s' * (layer.size > 1)}{each}"


def values_by_layer(structure: Structure, given: Mapping[Any, Any], what: str) -> dict[str, Any]:
    """Return evidence whose keys may be names of units as layer -> values, NaN where none is given.

    A value is the name of a state, a number, or an array of these with an axis of rows; None and
    NaN are not observed. Other entries are returned as they are.

    Raises
    ------
    PgmError for unknown names of states, with the nearest name, and for a unit that is given twice.
    """
    out, named = _apart(structure, given, what)
    rows: tuple[Any, int] | None = None
    for name, members in named.items():
        layer = structure.layers[name]
        parts = {}
        for i, (key, value) in members.items():
            parts[i] = _numbers(layer, value, f"{what}: {key!r}")
            _check_rows(parts[i], f"{what}: {key!r}")
            rows = _common_rows(rows, key, parts[i], what)
        gathered = _gathered(layer.size, parts, what, np.nan)
        if layer.unit.width > 1 and gathered.ndim == 2:
            # One row stays a vector of labels: its values, (size, k), could be rows of labels.
            gathered = layer.values_of(gathered, what)
        out[name] = gathered
    return out


def hints_by_layer(
    structure: Structure, given: Mapping[Any, Any], what: str = "soft"
) -> dict[str, Any]:
    """Return hints whose keys may be names of units as layer -> hints, 0 where none is given."""
    out, named = _apart(structure, given, what)
    rows: tuple[Any, int] | None = None
    for name, members in named.items():
        layer = structure.layers[name]
        parts: dict[int, Array] = {}
        for i, (key, value) in members.items():
            hint, k = _hint(layer, value, f"{what}: {key!r}"), layer.unit.width
            if hint.ndim > (k > 1):
                rows = _common_rows(rows, key, hint, what)
            by_state = hint if k > 1 else hint[..., None]
            for state, column in enumerate(layer.columns(np.array([i]))):
                parts[column] = by_state[..., state]
        flat = _gathered(layer.width, parts, what, 0.0)
        out[name] = flat.reshape(*flat.shape[:-1], *layer.bias_shape)
    return out


def _hint(layer: Layer, value: ArrayLike, what: str) -> Array:
    """Return the hints of one unit, ([rows,] [k]), checked: a number, or one for each state."""
    hint, k = as_floats(value, what), layer.unit.width
    _check_rows(hint, what)
    if k > 1 and hint.shape[-1:] != (k,):
        raise PgmError(
            f"{what} has shape {hint.shape}, expected (..., {k}), one number for each state"
        )
    if hint.ndim > 1 + (k > 1):
        each = "a number" if k == 1 else f"{k} numbers"
        raise PgmError(f"{what} has shape {hint.shape}, expected {each}, or as many for each row")
    if not in_range(hint).all():
        raise PgmError(f"{what}{_first(~in_range(hint), hint, k > 1)}, expected {IN_RANGE}")
    return hint


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


def _apart(
    structure: Structure, given: Mapping[Any, Any], what: str
) -> tuple[dict[str, Any], dict[str, Members]]:
    """Return the entries by layer, and layer -> unit -> (name, value) of the others."""
    out: dict[str, Any] = {}
    named: dict[str, Members] = {}
    for key, value in given.items():
        place = None if key in structure.layers else structure.places.get(key)
        if place is None and isinstance(key, tuple):
            place = find(structure, key, what)
        if place is None:
            # Also unknown names, which the reader of layers refuses.
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
    """Return values () or (rows,) of one unit as numbers, NaN where none is given.

    PgmError unless they are states of the unit.
    """
    if isinstance(value, (str, int, float)):
        found = np.asarray(state_number(layer, value, what))
    else:
        array = as_entries(value, what)
        # Rows of one unit each, as arrays of a layer of one unit have them.
        array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        if array.ndim > 1:
            raise PgmError(f"{what} has shape {array.shape}, expected a value, or one for each row")
        if array.dtype.kind in "biuf":
            found = array.astype(np.float64)
        elif array.ndim:
            each = [state_number(layer, x, f"{what}, row {row}") for row, x in enumerate(array)]
            found = np.array(each, dtype=np.float64)
        else:
            found = np.asarray(state_number(layer, array.item(), what))
    # The name of a state is one.
    if not (isinstance(value, str) and value in (layer.state_names or ())):
        _check_states(layer, found, what)
    return found


def _check_states(layer: Layer, numbers: Array, what: str) -> None:
    """PgmError unless the numbers () or (rows,) of one unit are states of it, or NaN."""
    unit, support = layer.unit, layer.unit.support
    if support is None:
        return
    known = np.arange(len(support)) if unit.width > 1 else support
    # The rule of np.isclose, in a fraction of its time.
    if not numbers.ndim:
        value = numbers.item()
        if value != value or any(abs(value - k) <= NEAR + RELATIVE * abs(k) for k in known):
            return
    near = np.abs(numbers[..., None] - known) <= NEAR + RELATIVE * np.abs(known)
    bad = ~(np.isnan(numbers) | near.any(axis=-1))
    if bad.any():
        row = f", row {np.flatnonzero(bad)[0]}" if numbers.ndim else ""
        value = np.ravel(numbers)[np.ravel(bad)][0]
        expected = ", ".join(map(repr, layer.state_names or known.tolist()[:8]))
        raise PgmError(f"{what}{row}: {value:g} is no state, expected one of {expected}")


def _common_rows(
    rows: tuple[Any, int] | None, key: Any, part: Array, what: str
) -> tuple[Any, int] | None:
    """Return the number of rows of the units so far, with the name of one of them."""
    if not part.ndim:
        return rows
    if rows is not None and rows[1] != len(part):
        raise PgmError(f"{what}: {rows[0]!r} has {rows[1]} rows, and {key!r} has {len(part)}")
    return key, len(part)


def as_entries(given: Any, what: str) -> Array:
    """Return values as an array: of numbers, or else of objects as they were given.

    Masked entries become NaN. PgmError for what is no array.
    """
    if isinstance(given, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(given.astype(object), np.nan))
    try:
        array = np.asarray(given)
        # Of names and numbers together numpy makes text.
        return array if array.dtype.kind in "biuf" else np.asarray(given, dtype=object)
    except ValueError:
        pass
    try:
        return np.asarray(given, dtype=object)
    except ValueError as error:
        raise PgmError(f"{what} is not an array of values: {error}") from None


def state_number(layer: Layer, value: Any, what: str) -> float:
    """Return one value of a unit as a number: names of states become states."""
    if is_missing(value):
        return float("nan")
    names = layer.state_names or ()
    value = str(value) if isinstance(value, np.str_) else value
    try:
        if value in names:
            state = names.index(value)
            support = layer.unit.support
            return float(state if support is None or layer.unit.width > 1 else support[state])
        if isinstance(value, (complex, np.complexfloating)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        expected = f"one of {', '.join(map(repr, names))}" if names else "a number of a state"
        # Shortened, because it may be anything.
        shown = repr(value) if isinstance(value, str) else reprlib.repr(value)
        raise PgmError(
            f"{what}: {shown} is no state, expected {expected}{nearest(value, names)}"
        ) from None


def numbers_of_layer(layer: Layer, given: Any, what: str) -> Any:
    """Return values of a layer with its names of states as numbers; numbers stay as they are.

    None and NaN are not observed. PgmError for a name that is no state, with row and index.
    """
    if not layer.state_names or isinstance(given, (int, float)):
        return given
    array = as_entries(given, what)
    if array.dtype.kind in "biuf":
        return given
    found = np.empty(array.shape)
    for place in np.ndindex(array.shape):
        where = "".join(f", {axis} {i}" for axis, i in zip(_axes(layer, array), place, strict=True))
        found[place] = state_number(layer, array[place], f"{what}{where}")
    return found


def _axes(layer: Layer, array: Array) -> tuple[str, ...]:
    """Return the names of the axes of values of a layer, for messages."""
    vector = ("row",) if layer.size == 1 else ("index",)
    return {0: (), 1: vector, 2: ("row", "index")}.get(array.ndim, ("axis",) * array.ndim)


def _gathered(size: int, parts: Mapping[int, Array], what: str, absent: float) -> Array:
    """Return the values of units as one array (size,) or (rows, size)."""
    rows = {len(part) for part in parts.values() if part.ndim}
    if len(rows) > 1:
        raise PgmError(f"{what}: arrays have {' and '.join(map(str, sorted(rows)))} rows")
    out = np.full((*rows, size), absent)
    for i, part in parts.items():
        out[..., i] = part
    return out
