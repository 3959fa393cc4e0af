"""Everything that is given about units, as columns; every public function reads values by them.

    containers    mappings by layer or unit, frames with a column for each unit, frames of a layer:
                  `by_name` and `framed` return what they have about each layer or unit
    columns       `columns_of` makes arrays (rows or 1, units) of them, with what their shape says
    values        `gathered` returns layer -> values (rows or 1, size[, k]), NaN where not observed

Names of states are read by the table of their layer (state_names.py), soft evidence by soft.py from
the same containers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from pgmengine.base.checks import is_missing
from pgmengine.base.display import counted
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.names import is_several, nearest
from pgmengine.base.types import Array
from pgmengine.model.containers import PLAIN, array_of, as_floats, columns_in, is_frame
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import StateNames, number_of, plain
from pgmengine.model.names.unit_names import Names
from pgmengine.model.structure import Structure

# Columns that a message names in its advice to drop them, at most.
MAX_COLUMNS_SHOWN = 5

# Types of the numbers of one-hot rows.
NUMBERS = bool, int, float, np.number, np.bool_


class Values(dict[str, Array]):
    """Layer -> values (rows or 1, size[, k]), NaN where not observed, as `gathered` returns them.

    `has_rows` says whether any of them was given with an axis of rows.
    """

    has_rows = True


class ValuesInRows(dict[str, Any]):
    """Values by layer and unit from a file, where a vector has a state for each row."""


class Named(NamedTuple):
    """Something given about a unit, or about all units of a layer, as its container holds it."""

    layer: Layer
    # None: all units.
    unit: int | None
    value: Any
    # The name for messages.
    where: str
    # Whether it is a column of a table, whose entries are rows.
    in_rows: bool = False
    # Whether the unit was named by its place in the layer, not by a name of its own.
    by_place: bool = False


class Column(NamedTuple):
    """Entries of a unit, or of all units of a layer.

    Attributes
    ----------
    layer, unit, where : as in Named.
    entries : (rows or 1, units) numbers, or names of states; or values (rows or 1, units[, k]).
    are_values : whether the entries are values of units.
    has_rows : whether they were given with an axis of rows.
    doubt : a message about a vector that may also be a one-hot row, else empty.
    """

    layer: Layer
    unit: int | None
    where: str
    entries: Array
    are_values: bool
    has_rows: bool
    doubt: str = ""

    def numbers(self) -> Array:
        """Return the entries as numbers, which are values of units or labels of states."""
        entries = self.entries
        if entries.size == 1 and entries.dtype.kind == "O":
            return np.array([[self._single(entries.item())]])
        if entries.dtype.kind not in "biuf":
            return self._distinct(entries.ravel().tolist()).reshape(entries.shape)
        if self.are_values or self.layer.state_table is None:
            # Integers would take eight times the memory as doubles.
            return entries
        # Many numbers are equal, and looking up names is slow.
        known, first, where = np.unique(entries, return_index=True, return_inverse=True)
        order = np.argsort(first)
        found = np.empty(len(known))
        found[order] = self._distinct(known[order].tolist(), first[order].tolist())
        return found[where].reshape(entries.shape)

    def _single(self, value: Any) -> float:
        """Return the only entry as a number."""
        try:
            return state_number(self.layer, value, self.where)
        except PgmError:
            state_number(self.layer, value, self.place(0, 0))
            raise

    def _distinct(self, values: list[Any], places: Sequence[int] | None = None) -> Array:
        """Return values as numbers; each different one is read once, in their order.

        `places` are their positions in the column, by default 0, 1, ...
        """
        kinds = set(map(type, values))
        # Values of different types may be equal, as True and 1 are, and mean different states.
        # Text, None and fractions never are.
        apart = len(kinds) == 1 or kinds <= {str, float, type(None)}
        keys: Sequence[Any] = values if apart else [*zip(map(type, values), values, strict=True)]
        try:
            numbers = dict(zip(keys, values, strict=True))
        except TypeError:
            # Some values cannot be hashed, as arrays of one number.
            keys = range(len(values))
            numbers = dict(enumerate(values))
        for key, value in numbers.items():
            try:
                numbers[key] = state_number(self.layer, value, self.where)
            except PgmError:
                index = keys.index(key)
                place = divmod(places[index] if places else index, self.entries.shape[1])
                state_number(self.layer, value, self.place(*place))
                raise
        return np.fromiter(map(numbers.__getitem__, keys), dtype=np.float64, count=len(keys))

    def place(self, row: int, unit: int) -> str:
        """Return the name of the column with the position of an entry."""
        where = f"{self.where}, row {row}" if self.has_rows else self.where
        if self.unit is not None or self.layer.size == 1:
            return where
        label = f" ({self.layer.labels[unit]!r})" if self.layer.labels else ""
        return f"{where}, index {unit}{label}"


# ---- containers ----


def by_column(structure: Structure, given: Any, what: str) -> list[Named]:
    """Return the columns of a frame, which have the names of units.

    Columns that `pgm.network` has left out of the model are left out here as well.
    """
    if (found := columns_in(given)) is None:
        check_mapping(structure, given, what)
    found = [x for x in found or () if x[0] not in structure.left_out]
    columns, names = [name for name, _ in found], structure.names
    if not columns:
        raise PgmError(f"{what}: the DataFrame has no columns")
    places = [place for x in columns if (place := names.place(x)) is not None]
    if len(places) < len(columns):
        unknown = [x for x in columns if names.place(x) is None]
        raise PgmError(
            f"{what}: column {unknown[0]!r} is no unit's name{_advice(structure, unknown[0])}"
            f"{_dropping(unknown)}"
        )
    _check_frame(given, columns, places, what, f"{what}: {names.described(places[0][0])}")
    return [
        Named(structure.layers[x[0]], x[1], part, f"{what}: column {column!r}", in_rows=True)
        for x, (column, part) in zip(places, found, strict=True)
    ]


def by_name(structure: Structure, given: Mapping[Any, Any], what: str) -> list[Named]:
    """Return what a mapping has about layers and units, by their names.

    Raises
    ------
    PgmError for unknown names, with the nearest name, and for a unit that is given twice.
    """
    layers, names = structure.layers, structure.names
    out, taken = list[Named](), dict[str, dict[int | None, Any]]()
    for key, value in given.items():
        unit = None
        if key in layers:
            layer = layers[key]
        elif (place := names.place(key)) is not None or isinstance(key, tuple):
            name, unit = place or names.unit(key, what)
            layer = layers[name]
        else:
            layer = names.layer(key, what=f"{what}: layer")
        known = taken.setdefault(layer.name, {})
        if unit in known:
            raise PgmError(f"{what}: {known[unit]!r} and {key!r} are the same unit")
        if known and (unit is None or None in known):
            one = next(iter(known.values())) if unit is None else key
            raise PgmError(
                f"{what}: unit {one!r} is given by its name, and with layer {layer.name!r}"
            )
        known[unit] = key
        title = layer.title if unit is None else repr(key)
        by_place = isinstance(key, tuple) or key not in names.unique
        out.append(Named(layer, unit, value, f"{what}: {title}", by_place=by_place))
    return out


def framed(names: Names, one: Named) -> list[Named]:
    """Return the columns of a frame that was given for a layer, or the frame itself.

    Columns are the names of units, or their numbers. If the units have no names and no column is
    a number, the columns are the units in order; with more or fewer of them it stays a frame.
    """
    layer, columns = one.layer, list(one.value.columns)
    units = [names.unit_of(layer, column) for column in columns]
    unknown = [column for unit, column in zip(units, columns, strict=True) if unit is None]
    if len(unknown) == len(columns) and not (layer.labels and columns):
        if len(columns) != layer.size:
            return [one]
        units = list(range(layer.size))
    elif unknown:
        some = len(unknown) < len(columns)
        instead = f"; the units are {listed([*map(repr, layer.labels or ())])}, in this order"
        raise PgmError(
            f"{one.where}: column {unknown[0]!r} is no unit's name"
            f"{', where others are' if some else ''}"
            f"{nearest(unknown[0], layer.unit_texts)}{_dropping(unknown) if some else instead}"
        )
    _check_frame(one.value, columns, units, one.where, one.where)
    return [
        Named(layer, unit, one.value.iloc[:, i], f"{one.where}, column {columns[i]!r}", True, True)
        for i, unit in enumerate(units)
    ]


def _check_frame(
    frame: Any, columns: Sequence[Any], units: Sequence[Any], what: str, title: str
) -> None:
    """PgmError for a frame without rows, or with two columns of one unit."""
    if not len(frame):
        raise PgmError(f"{title} has no rows, expected at least one")
    first = dict[Any, Any]()
    for column, unit in zip(columns, units, strict=True):
        if unit in first:
            raise PgmError(f"{what}: columns {first[unit]!r} and {column!r} are the same unit")
        first[unit] = column


def _dropping(extra: Sequence[Any]) -> str:
    """Return the end of a message that says how to leave out columns."""
    if len(extra) > MAX_COLUMNS_SHOWN:
        return f"; {len(extra)} columns are no names, keep the others: data[[...]]"
    them = "it" if len(extra) == 1 else "them"
    return f"; to leave {them} out, give data.drop(columns={extra!r})"


def _advice(structure: Structure, column: object) -> str:
    """Return the end of a message about a column that names no unit."""
    layers = structure.layers.values()
    units = [(x.name, text) for x in layers if not x.holds_variables for text in x.unit_texts]
    if near := nearest(column, [*structure.names.unique, *structure.names.texts, *units]):
        return near
    return "" if all(x.holds_variables for x in layers) else ": name columns (layer, unit)"


def check_mapping(structure: Structure, given: Any, what: str) -> None:
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


# ---- columns ----


def columns_of(structure: Structure, given: Any, what: str, are_data: bool = False) -> list[Column]:
    """Return columns of everything in a mapping or a frame; None has none, but is no data.

    Data always have an axis of rows: an array with two axes is then rows of labels.

    Raises
    ------
    PgmError with the layer or the unit for unknown names and wrong shapes.
    """
    if given is None and not are_data:
        return []
    if isinstance(given, Values):
        rows = max(map(len, given.values()), default=1) if given.has_rows else 0
        read = [(structure.layers[name], values) for name, values in given.items()]
        return [Column(x, None, f"{what}: {x.title}", v, True, len(v) == rows) for x, v in read]
    sure = are_data or isinstance(given, ValuesInRows)
    out = list[Column]()
    mapping = isinstance(given, Mapping)
    if mapping and structure.left_out:
        # A column of rows belongs to a table; a single value would be evidence, and is refused.
        left = structure.left_out
        given = {k: x for k, x in given.items() if k not in left or not (are_data or is_several(x))}
    for one in (by_name if mapping else by_column)(structure, given, what):
        whole = one.unit is None and is_frame(one.value)
        for part in framed(structure.names, one) if whole else (one,):
            out.append(column_of(part, are_data, sure or part.in_rows))
    return out


def column_of(one: Named, are_data: bool = False, in_rows: bool = False) -> Column:
    """Return something given about a unit or a layer as a column."""
    layer, unit, where = one.layer, one.unit, one.where
    n, k = (layer.size if unit is None else 1), layer.unit.width
    single, doubt, values = type(one.value) in PLAIN, "", None
    if single and n == 1:
        return Column(layer, unit, where, np.array([[one.value]], object), False, False)
    entries = np.array(one.value, object) if single else entries_of(layer, one.value, where)
    if unit is None and layer.shape:
        line = layer.in_line(entries)
        entries = line if line is not entries else layer.in_line(entries, (k,))
    shape = entries.shape
    if layer.unit.cells:
        return _of_cells(one, entries)
    if unit is None and k > 1 and shape[-2:] == (n, k):
        values = _by_component(layer, entries, are_data, where)
    axes = 1 if values is None else 2
    if n == axes == 1 and len(shape) < 2:
        # A vector of one number is one row for a variable; for a declared layer of one unit it is
        # the value of this unit.
        has_rows = len(shape) == 1 and (shape[0] != 1 or unit is not None or layer.is_variable)
        doubt = "" if in_rows or not has_rows else _doubt(layer, entries, where)
        entries = entries.reshape(-1, 1)
    else:
        has_rows = len(shape) > axes
        entries = entries if values is None else values
        entries = entries if has_rows else entries[None]
    if entries.ndim != axes + 1 or entries.shape[1] != n:
        raise PgmError(f"{where} has shape {shape}, expected {_expected(one)}")
    if not len(entries):
        raise PgmError(f"{where} has no rows, expected at least one")
    return Column(layer, unit, where, entries, values is not None, has_rows, doubt)


def _of_cells(one: Named, entries: Array) -> Column:
    """Return a column of values of units with cells, which are along the last axis."""
    unit, n = one.layer.unit, 1 if one.unit is not None else one.layer.size
    shape = entries.shape
    entries = one.layer.in_line(entries, (unit.cells,)) if one.unit is None else entries
    if n == 1 and entries.ndim in (1, 2) and entries.shape[-1] == unit.cells:
        entries = entries[..., None, :]
    if entries.ndim not in (2, 3) or entries.shape[-2:] != (n, unit.cells):
        inside = "" if n == 1 else ", ".join(map(str, one.layer.grid)) + ", "
        raise PgmError(
            f"{one.where} has shape {shape}, expected ({inside}{unit.cells}) or "
            f"(rows, {inside}{unit.cells}): a number for each column"
        )
    has_rows = entries.ndim == 3
    numbers = as_floats(entries if has_rows else entries[None], one.where)
    values = unit.values_of(numbers)
    assert values is not None
    return Column(one.layer, one.unit, one.where, values, True, has_rows)


def _expected(one: Named) -> str:
    """Return the shapes of the values of a unit, or of a layer, in words."""
    if one.unit is not None:
        return "a value, or one for each row"
    k, inside = one.layer.unit.width, ", ".join(map(str, one.layer.grid))
    alone = f"({inside})" if one.layer.shape else f"({inside},)"
    if k == 1:
        return f"{alone} or (rows, {inside})"
    return f"labels {alone} or (rows, {inside}), or one-hot (..., {inside}, {k})"


def _by_component(layer: Layer, array: Array, are_data: bool, where: str) -> Array | None:
    """Return values (..., size, k) of all components of units; None for labels and names of states.

    Text that might be either is read as names.
    """
    named, square = layer.state_table is not None, array.ndim == 2 and layer.size == array.shape[1]
    if are_data and square:
        return None
    try:
        values = array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        return None
    if not square:
        return values
    rows = values[~np.isnan(values).all(axis=1)]
    texts = named and any(isinstance(x, str) for x in array.flat)
    if texts or not len(rows) or not layer.unit.contains(rows).all():
        return None
    n = layer.size
    raise PgmError(
        f"{where}: an array {(n, n)} whose rows are values of {n} units may also be labels of {n} "
        f"rows of evidence; give values with an axis of rows, as (rows, {n}, {n})"
    )


def _doubt(layer: Layer, entries: Array, where: str) -> str:
    """Return a message about a vector of one unit that may be a one-hot row, else empty."""
    k = layer.unit.width
    if not layer.unit.one_hot or k == 1 or len(entries) != k:
        return ""
    ones = [x == 1 for x in entries if isinstance(x, NUMBERS) and x in (0, 1)]
    if len(ones) != k or sum(ones) != 1:
        return ""
    row, table = [int(one) for one in ones], layer.state_table
    state = row.index(1) if table is None else table.names[row.index(1)]
    in_rows = table is None or all(table.matches(entry) for entry in entries)
    other = f", or the rows {[[entry] for entry in row]}" if in_rows else ""
    return (
        f"{where}: {row} may be a one-hot row, or a state in each of {k} rows: give the state, "
        f"{state!r}{other}"
    )


# ---- values ----


def with_rows(columns: Sequence[Column], what: str) -> list[Column]:
    """Return the columns that have an axis of rows; PgmError if their numbers of rows differ."""
    several = [column for column in columns if column.has_rows]
    for column in several[1:]:
        first, n, m = several[0], len(several[0].entries), len(column.entries)
        if n != m:
            raise PgmError(
                f"{first.where} has {counted(n, 'row')}, and {column.where.removeprefix(what)} "
                f"has {counted(m, 'row')}; expected the same number of rows"
            )
    return several


def gathered(
    columns: Sequence[Column],
    what: str,
    others: Sequence[Column] = (),
    soft_rows: int | None = None,
) -> Values:
    """Return the values of columns by layer.

    If something else of the question has rows, a vector has a state for each row: `others` are its
    other columns, and `soft_rows` is the number of rows of soft evidence.

    Raises
    ------
    PgmError for unequal numbers of rows, for a vector that may be a one-hot row, and for entries
    that are no states, with row and index.
    """
    out = Values()
    several = with_rows(columns, f"{what}: ")
    out.has_rows = bool(several)
    if len(several) == 1 and several[0].doubt and (soft_rows or 1) == 1:
        if not any(column.has_rows for column in others):
            raise PgmError(several[0].doubt)
    for column in columns:
        name, numbers = column.layer.name, column.numbers()
        if column.unit is None:
            out[name] = numbers
            continue
        if name not in out or len(out[name]) < len(numbers):
            whole = len(numbers), column.layer.size, *numbers.shape[2:]
            out[name] = np.full(whole, out.get(name, np.nan))
        out[name][:, column.unit] = numbers[:, 0]
    for name, layer in {x.layer.name: x.layer for x in columns if not x.are_values}.items():
        if layer.unit.width > 1:
            out[name] = layer.values_of(out[name], what)
    return out


def data_by_layer(structure: Structure, data: Any) -> Values:
    """Return the values of data, which always have an axis of rows, by layer."""
    if isinstance(data, Values):
        return data
    return gathered(columns_of(structure, data, "data", are_data=True), "data")


def state_number(layer: Layer, value: Any, what: str) -> float:
    """Return one value of a unit as a number, NaN where it is not observed.

    A name becomes the value of the state for units of one component, else the number of the state.

    Raises
    ------
    PgmError with the names of the states, and with the most similar name.
    """
    if type(value) is not str and is_missing(value):
        return float("nan")
    if layer.state_table is None:
        return number_of(value, what)
    state = layer.state_table.state(value, what)
    support = layer.unit.support
    return float(state if support is None or layer.unit.width > 1 else support[state])


def entries_of(layer: Layer, given: Any, what: str) -> Array:
    """Return values of a layer as an array of numbers, or of objects, from any container.

    PgmError for what is no array of values, for times that name no states, and for cells in which
    pandas may have lost the name of a state.
    """
    is_value = None
    if (table := layer.state_table) is not None:
        _check_not_lost(table, given, what)
        is_value = partial(table.is_one, what=what) if table.tuples else None
    array = array_of(given, what, is_value)
    if array.dtype.kind not in "mM":
        return array
    if (times := _times(layer, array)) is not None:
        return times
    raise PgmError(f"{what} is not an array of numbers or names: it has dates or times")


def _times(layer: Layer, array: Array) -> Array | None:
    """Return times as objects if names of states are times; None for other arrays."""
    names = layer.state_names or ()
    if array.dtype.kind != "M" or not any(isinstance(plain(x), datetime) for x in names):
        return None
    times = array.astype("datetime64[us]")
    same = (times == array) | np.isnat(array)
    return times.astype(object) if same.all() else None


def _check_not_lost(table: StateNames, column: Any, what: str) -> None:
    """PgmError for NaN in a column of pandas that may have been the name of a state.

    pandas converts such texts to NaN when it reads a file, so that they look like empty cells.
    """
    if not hasattr(column, "isna") or not (names := table.names_like_missing):
        return
    entries = column.astype(object).to_numpy()
    lost = [row for row, value in enumerate(entries) if isinstance(value, float) and value != value]
    if lost:
        raise PgmError(
            f"{what}, row {lost[0]}: NaN may be not observed, or the state {names[0]!r}, of which "
            "pandas makes NaN: read files with pandas.read_csv(..., keep_default_na=False), and "
            "give None in columns of objects, frame.astype(object).where(frame.notna(), None), "
            "where nothing is observed"
        )
