"""pandas DataFrames: columns that a fit remembers, and results with a column for each unit."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array
from pgmengine.model.containers import is_frame
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    import pandas as pd


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
