"""pandas DataFrames as evidence, data and results, with a column for each unit, named after it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.checks import is_missing
from pgmengine.base.errors import PgmError
from pgmengine.base.extras import needed_by
from pgmengine.base.names import nearest
from pgmengine.base.types import Array
from pgmengine.graph.layer import Layer
from pgmengine.graph.named_units import check_by_layer, is_frame, numbers_of_layer, values_by_layer
from pgmengine.graph.structure import Structure
from pgmengine.graph.validate import as_floats
from pgmengine.graph.variables import unit_name

if TYPE_CHECKING:
    import pandas as pd


def by_layer(structure: Structure, given: Any, what: str = "evidence") -> Any:
    """Return a DataFrame as layer -> (rows, size), NaN in units without a column.

    A column is (layer, label of the unit), or the label alone
    if no other layer has it; a layer of one unit may be named in place of its unit. Units without
    labels are numbered. Values may be names of states. The columns of a DataFrame for one layer are
    its units, by name if one of them is the name of a unit, else in order. Names close to labels of
    units are refused as mistyped.
    """
    if isinstance(given, Mapping) and not is_frame(given):
        if not structure.layers.keys() >= given.keys():
            given = values_by_layer(structure, given, what)
        return {name: _given(structure.layers.get(name), x, what) for name, x in given.items()}
    if not is_frame(given):
        check_by_layer(structure, given, what)
    places, out, taken = _places(structure), dict[str, Array](), dict[tuple[str, int], Any]()
    if not len(given.columns):
        raise PgmError(f"{what}: the DataFrame has no columns")
    for i, column in enumerate(given.columns):
        if column not in places:
            raise PgmError(
                f"{what}: column {column!r} is no unit's name"
                f"{nearest(column, places) or ': name columns (layer, unit)'}"
            )
        layer, index = places[column]
        if (layer.name, index) in taken:
            raise PgmError(
                f"{what}: columns {taken[layer.name, index]!r} and {column!r} are the same unit"
            )
        taken[layer.name, index] = column
        if layer.name not in out:
            out[layer.name] = np.full((len(given), layer.size), np.nan)
        out[layer.name][:, index] = _numbers(
            layer, given.iloc[:, i].to_numpy(), f"{what}: column {column!r}"
        )
    wide = {name: structure.layers[name] for name in out if structure.layers[name].unit.width > 1}
    return out | {name: layer.values_of(out[name], what) for name, layer in wide.items()}


def _given(layer: Layer | None, given: Any, what: str) -> Any:
    """Return values of a layer from a DataFrame or an array with names of states, or as given."""
    if layer is None:
        return given
    if is_frame(given):
        return _of_layer(layer, given, f"{what}: {layer.title}")
    return numbers_of_layer(layer, given, f"{what}: {layer.title}")


def data_by_layer(structure: Structure, data: Any) -> Any:
    """Return `by_layer` of data, which always have a rows axis.

    (rows, size) numbers for units with several components are therefore labels.
    """
    given = by_layer(structure, data, "data")
    wide = {n for n in given if n in structure.layers and structure.layers[n].unit.width > 1}
    labels = {
        n
        for n in wide
        if np.ndim(given[n]) == 2 and np.shape(given[n])[1] == structure.layers[n].size
    }
    return {
        n: structure.layers[n].values_of(as_floats(x, f"data: layer {n!r}"), "data")
        if n in labels
        else x
        for n, x in given.items()
    }


def _of_layer(layer: Layer, frame: Any, what: str) -> Any:
    """Return the values (rows, size[, k]) of a DataFrame for one layer, NaN without a column."""
    places = places_of(layer, frame, what)
    if places is None:
        return frame
    out = np.full((len(frame), layer.size), np.nan)
    for i, (index, column) in enumerate(zip(places, frame.columns, strict=True)):
        out[:, index] = _numbers(layer, frame.iloc[:, i].to_numpy(), f"{what}, column {column!r}")
    return layer.values_of(out, what) if layer.unit.width > 1 else out


def places_of(layer: Layer, frame: Any, what: str) -> list[int] | None:
    """Return the units of the columns of a layer's DataFrame.

    Columns are taken by name, else in order; None if there are not as many as units.
    """
    known = dict[Hashable, int]()
    for i, (label, text) in enumerate(
        zip(layer.labels or range(layer.size), unit_names(layer), strict=True)
    ):
        known |= {
            name: i for name in (str(text), text, label, (layer.name, text), (layer.name, label))
        }
    columns = list(frame.columns)
    named = any(column in known for column in columns)
    if not named and not (layer.labels and any(nearest(column, known) for column in columns)):
        return list(range(layer.size)) if len(columns) == layer.size else None
    for i, column in enumerate(columns):
        if column not in known and (named or nearest(column, known)):
            others = ", where others are" if named else ""
            raise PgmError(
                f"{what}: column {column!r} is no unit's name{others}{nearest(column, known)}"
            )
        if known[column] in [known[other] for other in columns[:i]]:
            raise PgmError(f"{what}: two columns are the unit {column!r}")
    return [known[column] for column in columns]


def to_frame(structure: Structure, mean: Mapping[str, Array], rows: int) -> pd.DataFrame:
    """Return means as a DataFrame with columns (layer, unit[, state]).

    A variable stands for its layer as well. Where all units are variables, the columns are their
    names alone.
    """
    with needed_by("to_frame()"):
        import pandas as pd

    parts = {}
    for shown in shown_units(structure):
        layer, wide = shown.layer, shown.layer.unit.width
        flat = np.reshape(mean[layer.name], (rows, layer.width))
        for i, label in zip(shown.units, shown.labels, strict=True):
            for k, part in enumerate(component_names(layer)):
                text = label if wide == 1 else f"{label}[{part}]"
                parts[shown.name, text] = flat[:, i * wide + k]
    frame = pd.DataFrame(parts)
    if len(structure.variables) == sum(layer.size for layer in structure.layers.values()):
        frame.columns = pd.Index([text for _, text in parts], name="variable")
    else:
        frame.columns = pd.MultiIndex.from_tuples(frame.columns, names=["layer", "unit"])
    return frame.rename_axis("row")


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
    out = [
        Shown(name, layer, tuple(range(layer.size)), tuple(unit_names(layer)), False)
        for name, layer in structure.layers.items()
        if name not in of_variables
    ]
    for place in structure.variables:
        name = unit_name(structure.layers, place)
        out.append(Shown(name, structure.layers[place[0]], (place[1],), (name,), True))
    return out


def unit_names(layer: Layer) -> list[str] | list[int]:
    """Return the names of units: their labels as text, or their numbers.

    Labels with the same text are written as in Python.
    """
    if layer.labels is None:
        return list(range(layer.size))
    texts = [str(label) for label in layer.labels]
    return texts if len(set(texts)) == len(texts) else [repr(label) for label in layer.labels]


def component_names(layer: Layer) -> list[str] | list[int]:
    """Return the names of the components of a value: states of one-hot units, or numbers."""
    named = layer.state_names is not None and layer.unit.one_hot
    return list(layer.state_names or ()) if named else list(range(layer.unit.width))


def _places(structure: Structure) -> dict[Hashable, tuple[Layer, int]]:
    """Return column -> (layer, unit)."""
    out: dict[Hashable, tuple[Layer, int]] = {}
    short: dict[Hashable, set[tuple[str, int]]] = {}
    for layer in structure.layers.values():
        for i, (label, text) in enumerate(
            zip(layer.labels or range(layer.size), unit_names(layer), strict=True)
        ):
            out.setdefault((layer.name, text), (layer, i))
            out[layer.name, label] = layer, i
            names: set[Hashable] = {label, text} if layer.labels else set()
            for name in names | ({layer.name} if layer.size == 1 else set()):
                short.setdefault(name, set()).add((layer.name, i))
    for name, found in short.items():
        if len(found) == 1:
            ((owner, i),) = found
            out.setdefault(name, (structure.layers[owner], i))
    # A variable stands for its layer in the columns of results.
    for owner, i in structure.variables:
        variable = unit_name(structure.layers, (owner, i))
        out.setdefault((variable, variable), (structure.layers[owner], i))
    return out


def _numbers(layer: Layer, values: Array, what: str) -> Array:
    """Return values as floats: names of states as values or labels, missing ones as NaN."""
    if values.dtype.kind in "biuf" and not layer.state_names:
        return values.astype(np.float64)
    out = np.full(len(values), np.nan)
    support = (
        None
        if layer.unit.support is None
        else (np.arange(len(layer.unit.support)) if layer.unit.width > 1 else layer.unit.support)
    )
    known = (
        dict(zip(layer.state_names, support, strict=True))
        if layer.state_names and support is not None
        else {}
    )
    # Where a name of a state is a number, all numbers have to be names.
    named = any(isinstance(name, Real) for name in known)
    if values.dtype.kind in "biuf" and not named:
        return values.astype(np.float64)
    for row, value in enumerate(values):
        if is_missing(value):
            continue
        try:
            out[row] = known[value] if value in known or named else float(value)
        except (KeyError, TypeError, ValueError, OverflowError):
            expected = f"one of {', '.join(map(str, known))}" if known else "a number"
            raise PgmError(f"{what}, row {row}: {value!r} is not {expected}") from None
    return out
