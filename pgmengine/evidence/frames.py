"""pandas DataFrames as evidence, data and results, with a column for each unit."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.extras import needed_by
from pgmengine.base.names import nearest
from pgmengine.base.types import Array
from pgmengine.evidence.named_units import (
    StateNumbers,
    check_by_layer,
    numbers_of_layer,
    values_by_layer,
)
from pgmengine.model.containers import as_floats, is_frame
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import as_entries, state_numbers
from pgmengine.model.names.unit_names import Names
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    import pandas as pd

# Columns that a message names in its advice to drop them, at most.
MAX_COLUMNS_SHOWN = 5


def by_layer(
    structure: Structure, given: Any, what: str = "evidence", with_rows: bool = False
) -> StateNumbers:
    """Return values of layers and units, or of a DataFrame, as layer -> numbers.

    The columns of a DataFrame are (layer, label of the unit), or the label alone if no other layer
    has it; units without a column are NaN. The name of a layer of one unit also names the unit.
    Units without labels have numbers. Values may be names of states. If a DataFrame is given for
    one layer, its columns are units of this layer: see `units_of_columns`. `with_rows`: values
    always have an axis of rows.
    """
    if isinstance(given, StateNumbers):
        return given
    if isinstance(given, Mapping) and not is_frame(given):
        read = StateNumbers()
        if not structure.layers.keys() >= given.keys():
            given, read = values_by_layer(structure, given, what, are_data=with_rows)
        for name, values in given.items():
            read[name] = _given(structure.names, name, values, what, with_rows)
        return read
    if not is_frame(given):
        check_by_layer(structure, given, what)
    taken = dict[str, dict[int, int]]()
    if not len(given.columns):
        raise PgmError(f"{what}: the DataFrame has no columns")
    for i, column in enumerate(given.columns):
        if (place := structure.names.place(column)) is None:
            raise PgmError(
                f"{what}: column {column!r} is no unit's name{_advice(structure, column)}"
                f"{_dropping([x for x in given.columns if structure.names.place(x) is None])}"
            )
        _take(taken.setdefault(place[0], {}), place[1], i, given, what)
    layers = structure.layers
    return StateNumbers((n, _filled(layers[n], given, x, what, ":")) for n, x in taken.items())


def _take(units: dict[int, int], unit: int, number: int, frame: Any, what: str) -> None:
    """Add the column of a unit; PgmError if the unit has one already."""
    if unit in units:
        first, second = frame.columns[units[unit]], frame.columns[number]
        raise PgmError(f"{what}: columns {first!r} and {second!r} are the same unit")
    units[unit] = number


def _filled(layer: Layer, frame: Any, units: Mapping[int, int], what: str, mark: str) -> Array:
    """Return the values (rows, size[, k]) of a layer from unit -> column, NaN without a column.

    In messages, `mark` stands between `what` and the column.
    """
    out = np.full((len(frame), layer.size), np.nan)
    for unit, number in units.items():
        where = f"{what}{mark} column {frame.columns[number]!r}"
        entries = as_entries(layer, frame.iloc[:, number], where)
        out[:, unit] = state_numbers(layer, entries, where, ("row",))
    return layer.values_of(out, what) if layer.unit.width > 1 else out


def _given(names: Names, name: str, given: Any, what: str, with_rows: bool) -> Any:
    """Return values of a layer from a DataFrame or an array with names of states, or as given."""
    if name not in names.layers:
        return given
    layer = names.layers[name]
    if is_frame(given):
        what = f"{what}: {layer.title}"
        if (units := units_of_columns(names, layer, given, what)) is not None:
            return _filled(layer, given, units, what, ",")
        return numbers_of_layer(layer, given, what, with_rows)
    return numbers_of_layer(layer, given, f"{what}: {layer.title}", with_rows)


def data_by_layer(structure: Structure, data: Any) -> StateNumbers:
    """Return `by_layer` of data, which always have a rows axis.

    For units with several components, numbers (rows, size) are therefore labels.
    """
    given = by_layer(structure, data, "data", with_rows=True)
    for name, values in given.items():
        layer = structure.layers.get(name)
        if layer is None or layer.unit.width == 1:
            continue
        if np.ndim(values) == 2 and np.shape(values)[1] == layer.size:
            given[name] = layer.values_of(as_floats(values, f"data: {layer.title}"), "data")
    return given


def _dropping(extra: list[Any]) -> str:
    """Return the end of a message that says how to leave out columns."""
    if len(extra) > MAX_COLUMNS_SHOWN:
        return f"; {len(extra)} columns are no names, keep the others: data[[...]]"
    them = "it" if len(extra) == 1 else "them"
    return f"; to leave {them} out, give data.drop(columns={extra!r})"


def units_of_columns(names: Names, layer: Layer, frame: Any, what: str) -> dict[int, int] | None:
    """Return unit -> number of its column in a layer's DataFrame.

    Columns are the names of units, or their numbers. If the units have no names and no column is
    a number, the columns are the units in order; None if there are more or fewer of them.
    """
    columns, found = list(frame.columns), dict[int, int]()
    units = [names.unit_of(layer, column) for column in columns]
    unknown = [column for unit, column in zip(units, columns, strict=True) if unit is None]
    if len(unknown) == len(columns) and not layer.labels:
        return {i: i for i in range(layer.size)} if len(columns) == layer.size else None
    if unknown:
        some = len(unknown) < len(columns)
        instead = f"; the units are {listed([*map(repr, layer.labels or ())])}, in this order"
        raise PgmError(
            f"{what}: column {unknown[0]!r} is no unit's name{', where others are' if some else ''}"
            f"{nearest(unknown[0], layer.unit_texts)}{_dropping(unknown) if some else instead}"
        )
    for i, unit in enumerate(units):
        _take(found, int(unit or 0), i, frame, what)
    return found


def names_of_columns(given: Any, what: str) -> list[str] | None:
    """Return the names of the columns of a DataFrame, None where columns have no text as names.

    An estimator remembers them, as those of scikit-learn do, so that later frames are read by name.
    """
    if not is_frame(given) or not all(isinstance(name, str) for name in given.columns):
        return None
    names = list(given.columns)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PgmError(f"{what} has two columns {twice!r}")
    return names


def labels_of_columns(structure: Structure, data: Any) -> dict[str, tuple[str, ...]]:
    """Return layer -> names of its columns, for layers without names whose frame was read in order.

    A learned model takes them as labels, so that later frames are read by name.
    """
    found = dict[str, tuple[str, ...]]()
    for name, given in data.items() if isinstance(data, Mapping) and not is_frame(data) else ():
        layer = structure.layers.get(name) if isinstance(name, str) else None
        if layer is None or layer.labels or layer.is_array or not is_frame(given):
            continue
        columns = names_of_columns(given, f"data: {layer.title}") or []
        known = any(structure.names.unit_of(layer, column) is not None for column in columns)
        if len(columns) == layer.size and not known:
            found[name] = tuple(columns)
    return found


def in_order(given: Any, names: Sequence[str] | None, what: str) -> Any:
    """Return a DataFrame with its columns in the order of `names`; other values unchanged.

    PgmError for a frame with other names than those, if there are any.
    """
    if names is None or not is_frame(given):
        return given
    found = names_of_columns(given, what) or list(map(repr, given.columns))
    if found == names:
        return given
    parts = {
        "lacks": [repr(name) for name in names if name not in found],
        "also has": [repr(name) for name in found if name not in names],
    }
    if said := [f"{verb} {listed(some)}" for verb, some in parts.items() if some]:
        raise PgmError(
            f"{what}: the columns are not those of fit: this frame {' and '.join(said)}; give "
            f"the columns of fit, {listed([*map(repr, names)])}, in any order"
        )
    return given[list(names)]


def to_frame(
    structure: Structure, mean: Mapping[str, Array], prob: Mapping[str, Array], rows: int
) -> pd.DataFrame:
    """Return probabilities of states and means as a DataFrame with columns (layer, unit[state]).

    Variables, and units whose states have names, have a column for each state; other units have
    their means. For a variable, its name replaces that of the layer. If all units are variables,
    the columns are just variable[state].
    """
    with needed_by("to_frame()"):
        import pandas as pd

    parts = {}
    for shown in shown_units(structure):
        layer, by_state = shown.layer, shown.layer.name in structure.by_state
        names = state_keys(layer) if by_state else tuple(component_names(layer))
        values = np.reshape((prob if by_state else mean)[layer.name], (rows, -1, len(names)))
        for i, label in zip(shown.units, shown.labels, strict=True):
            for k, part in enumerate(different_texts(names)):
                text = f"{label}[{part}]" if by_state or layer.unit.width > 1 else label
                parts[shown.name, text] = values[:, i, k]
    frame = pd.DataFrame(parts)
    if len(structure.variables) == structure.units:
        frame.columns = pd.Index([text for _, text in parts], name="variable")
    else:
        frame.columns = pd.MultiIndex.from_tuples(frame.columns, names=["layer", "unit"])
    return frame.rename_axis("row")


def different_texts(names: Sequence[Hashable]) -> list[str]:
    """Return names as texts, and as Python literals if two texts would be equal."""
    texts = [str(name) for name in names]
    return texts if len(set(texts)) == len(texts) else [repr(name) for name in names]


@dataclass(frozen=True)
class Shown:
    """Units that results show under one name: the units of a layer, or one variable.

    Attributes
    ----------
    name : the name of the layer, or of the variable.
    layer : their layer.
    units : their numbers in it.
    labels : their names.
    variable : whether it is a variable.
    """

    name: str
    layer: Layer
    units: tuple[int, ...]
    labels: tuple[str | int, ...]
    variable: bool


def shown_units(structure: Structure) -> list[Shown]:
    """Return all units as results show them: layers in order, then variables in order."""
    of_variables = {name for name, _ in structure.variables}
    out = list[Shown]()
    for name, layer in structure.layers.items():
        if name not in of_variables:
            numbers = tuple(range(layer.size))
            plain = layer.labels is None and not layer.shape
            texts = numbers if plain else layer.unit_texts
            out.append(Shown(name, layer, numbers, texts, False))
    for place in structure.variables:
        name = structure.names.of(place)
        out.append(Shown(name, structure.layers[place[0]], (place[1],), (name,), True))
    return out


def state_keys(layer: Layer) -> tuple[Hashable, ...]:
    """Return the names of the states of a layer's units, or their numbers."""
    if layer.unit.support is None:
        raise PgmError(
            f"layer {layer.name!r} has {layer.unit!r} units: infinitely many values have no "
            "probabilities; read their means"
        )
    return layer.state_names or tuple(range(len(layer.unit.support)))


def component_names(layer: Layer) -> list[Hashable]:
    """Return the names of the components of a value: states of one-hot units, or numbers."""
    named = layer.state_names is not None and layer.unit.one_hot
    return list(layer.state_names or ()) if named else list(range(layer.unit.width))


def _advice(structure: Structure, column: object) -> str:
    """Return the end of a message about a column that names no unit."""
    layers = structure.layers.values()
    units = [(x.name, text) for x in layers if not x.holds_variables for text in x.unit_texts]
    if near := nearest(column, [*structure.names.unique, *structure.names.texts, *units]):
        return near
    return "" if all(x.holds_variables for x in layers) else ": name columns (layer, unit)"
