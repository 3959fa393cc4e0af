"""Summary of a model as its user declared it: a title, counts, its variables and its layers.

Layers that hold variables, and groups of tables, are only storage, so that a summary shows the
variables themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np

from pgmengine.base.display import MOST_LINES, MOST_ROWS, as_html, as_text, counted, few, plain
from pgmengine.base.types import Weight
from pgmengine.declare.pictures.svg import picture
from pgmengine.evidence.frames import Shown, shown_units
from pgmengine.model.headline import headline
from pgmengine.model.layer import Layer
from pgmengine.model.names.origin import Origin
from pgmengine.model.names.unit_names import Place
from pgmengine.model.structure import Structure

# Lines of a model that was declared from data, all columns of which people may want to check.
MOST_COLUMNS = 40

SUMMARY_COLUMNS = ("name", "states", "units", "parents", "coupled with")


def parents(structure: Structure, places: Iterable[Place]) -> dict[Place, list[str]]:
    """Return the names of the parents of units, by conditionals and by arrows."""
    found: dict[Place, list[str]] = {place: [] for place in places}
    wanted: dict[str, list[int]] = {}
    for name, unit in found:
        wanted.setdefault(name, []).append(unit)
    for t in structure.tables_and_gates:
        if not t.conditional or t.layers[-1] not in wanted:
            continue
        for units in t.index[np.isin(t.index[:, -1], wanted[t.layers[-1]])].tolist():
            *before, child = zip(t.layers, units, strict=True)
            found[child] += [structure.names.of(place) for place in before]
    for (name, _), names in found.items():
        names += [_end(structure, c.a) for c in structure.arrows_into[name]]
    return found


def model_text(structure: Structure, params: Mapping[str, Weight]) -> str:
    """Return a model as text: the headline, then its layers, couplings and variables."""
    shown, origin = shown_units(structure), structure.origin
    most = MOST_COLUMNS if origin else MOST_LINES
    layers = [_line(one, origin) for one in shown if not one.variable][:most]
    kept = [*islice((x for x in shown if x.variable), most)]
    above = parents(structure, [(one.layer.name, one.units[0]) for one in kept])
    variables = [_with_parents(one, above[one.layer.name, one.units[0]], origin) for one in kept]
    data, joined = [*origin.lines()] if origin else [], list(_couplings(structure))
    number = len(shown) + len(joined) + len(data)
    lines = [*data, *layers, *joined, *variables]
    return as_text(headline(structure, params), lines, number, most)


def model_html(structure: Structure, params: Mapping[str, Weight]) -> str:
    """Return a model for notebooks: a table of its layers and variables, then its picture."""
    shown = shown_units(structure)
    kept = shown[:MOST_ROWS]
    above = parents(structure, [(one.layer.name, one.units[0]) for one in kept if one.variable])
    rows = []
    for one in kept:
        name = one.layer.name
        near = [_end(structure, to) for _, to in structure.meetings[name]]
        text = _text(one) + (structure.origin.column(one.name) if structure.origin else "")
        both = (text, "") if one.variable else ("", text)
        causes = above[name, one.units[0]] if one.variable else _layers_above(structure, name)
        rows.append((plain(one.name), *both, few(causes), few(dict.fromkeys(near))))
    notes = structure.origin.lines() if structure.origin else ()
    table = as_html(headline(structure, params), SUMMARY_COLUMNS, rows, len(shown), notes)
    return table + picture(structure)


def _layers_above(structure: Structure, name: str) -> list[str]:
    """Return the names of the layers and variables that are parents of a layer."""
    tables = [t for t in structure.tables if t.conditional and t.layers[-1] == name]
    of_tables = {layer for t in tables for layer in t.layers[:-1]}
    of_arrows = [_end(structure, c.a) for c in structure.arrows_into[name]]
    return list(dict.fromkeys([*map(str, structure.names.declared(of_tables)), *of_arrows]))


def _with_parents(shown: Shown, above: list[str], origin: Origin | None) -> str:
    """Return a variable with its states and its parents on one line."""
    return _line(shown, origin) + (f" (given {few(above)})" if above else "")


def _line(shown: Shown, origin: Origin | None) -> str:
    """Return a layer or a variable on one line, with the kind of its column."""
    column = origin.column(shown.name) if origin else ""
    return f"{plain(shown.name)}: {_text(shown)}{column}"


def _text(shown: Shown) -> str:
    """Return the states of a variable, or the size of a layer with its units."""
    layer = shown.layer
    if shown.variable:
        return few(layer.state_names) if layer.state_names else _states(layer)
    text = layer_text(layer)
    if layer.is_array:
        return text
    for word, names in (("state", layer.state_names), ("unit", layer.labels)):
        if names and names != (layer.name,):
            text += f"; {word}{'s' * (len(names) > 1)} {few(names)}"
    return text


def layer_text(layer: Layer) -> str:
    """Return the number of units of a layer and their type, or the states of an array."""
    size = " x ".join(f"{n:,}" for n in layer.grid)
    if not layer.is_array:
        return f"{size} {repr(layer.unit).removesuffix('()')}"
    own = few(layer.state_names) if layer.state_names else _states(layer)
    return f"{size} variables: {own}"


def _states(layer: Layer) -> str:
    """Return the number of states of a variable without names of states, as text."""
    return counted(0 if layer.unit.support is None else len(layer.unit.support), "state")


def _couplings(structure: Structure) -> Iterator[str]:
    """Yield lines with the names of the couplings, and of shared biases, if there are any."""
    terms = structure.parameters.items()
    weights = [key.removesuffix(".weight") for key, t in terms if key in structure.weight_names]
    if weights:
        yield f"couplings: {few(weights)}"
    if biases := [key.removesuffix(".bias") for key, t in terms if t.is_bias and not t.whole]:
        yield f"shared biases: {few(biases)}"


def _end(structure: Structure, name: str) -> str:
    """Return the name of the layer or of the variable at an end of a coupling."""
    one = (name, 0) in structure.variables
    return structure.names.of((name, 0)) if one else name
