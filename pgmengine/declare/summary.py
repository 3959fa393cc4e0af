"""Summary of a model as its user declared it: a title, counts, its variables and its layers.

Layers that hold variables, and groups of tables, are only storage, so that a summary shows the
variables themselves. The title is the first entry of `TITLES` whose condition the structure
fulfils. Only displays read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

import numpy as np

from pgmengine.base.display import MOST_LINES, MOST_ROWS, as_html, as_text, counted, few, plain
from pgmengine.base.types import Weight
from pgmengine.declare.pictures.svg import picture
from pgmengine.evidence.frames import Shown, shown_units
from pgmengine.evidence.names import Place
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure, first_of
from pgmengine.model.weights import count

TITLES: tuple[tuple[str, Callable[[Structure], bool]], ...] = (
    # Every unit is drawn from its parents.
    ("Bayesian network", lambda s: s.normalized),
    ("Factor graph", lambda s: bool(s.tables) and not s.couplings),
    ("Independent units", lambda s: not s.tables and not s.couplings),
    ("Restricted Boltzmann machine", lambda s: not s.tables and _two_sides(s)),
    ("Boltzmann machine", lambda s: not s.tables and not s.arrows),
    # Arrows or conditionals beside undirected couplings.
    ("Graphical model", lambda s: True),
)

SUMMARY_COLUMNS = ("name", "states", "units", "parents", "coupled with")


def _two_sides(structure: Structure) -> bool:
    """Whether the graph is two layers with one undirected coupling between them."""
    couplings = structure.couplings
    between = [c for c in couplings if c.a != c.b and not c.directed]
    return len(structure.layers) == 2 and len(between) == len(couplings) == 1


def headline(structure: Structure, params: Mapping[str, Weight]) -> str:
    """Return the title and the counts of a model on one line."""
    return ", ".join(headline_parts(structure, params))


def headline_parts(structure: Structure, params: Mapping[str, Weight]) -> list[str]:
    """Return the parts of the headline: the title with the first count, and the other counts."""
    title = next(name for name, holds in TITLES if holds(structure))
    variables, places = len(structure.variables), set(structure.variables)
    arrays = {name for name, layer in structure.layers.items() if layer.is_array}
    variables += sum(structure.layers[name].size for name in arrays)
    held = {name for name, _ in places} | arrays
    conditionals = [t for t in structure.tables_and_gates if t.conditional]
    # A variable at the end of a coupling is a layer of one unit.
    single = [c for c in structure.arrows if (c.a, 0) in places and (c.b, 0) in places]
    joined = [structure.parameters[key].directed for key in structure.weight_names]
    counts = (
        (variables, "variable"),
        (len(arrays), "array"),
        (len(structure.layers) - len(held), "layer"),
        (sum(t.index[:, 1:].size for t in conditionals) + len(single), "arrow"),
        (sum(joined) - len(single), "directed coupling"),
        (len(joined) - sum(joined), "coupling"),
        (sum(len(t.index) for t in structure.tables if not t.conditional), "table"),
        (sum(len(t.index) for t in structure.gates), "noisy gate"),
    )
    parts = [counted(number, word) for number, word in counts if number]
    first, *others = [*parts, counted(parameters(structure, params), "parameter")]
    return [f"{title}: {first}", *others]


def parameters(structure: Structure, params: Mapping[str, Weight]) -> int:
    """Return the number of free parameters.

    A row of K probabilities has K - 1 of them. In a row of a gate, probabilities of 0 are none,
    because learning keeps them. Biases without effect do not count. The bias of a
    variable in a potential counts only if it is not 0, because the potential contains it.
    """
    places, total, index = set(structure.variables), 0, structure.table_index
    weighted = np.zeros(sum(layer.size for layer in structure.layers.values()), dtype=bool)
    weighted[index.unit[index.child[index.table] < 0]] = True
    for key, t in structure.table_groups.items():
        if t.form and t.conditional:
            possible = np.isfinite(params[key]).sum(axis=-1)
            total += int(np.maximum(possible - 1, 0).sum())
            continue
        entries = count(params[key])
        total += entries - entries // structure.state_counts[t.layers[-1]] * t.conditional
    total += sum(count(params[key]) for key in first_of(structure.shared))
    for c in structure.weighted:
        weight = params[f"{c.key}.weight"]
        # Inside a layer, some entries are not parameters, and undirected ones are stored twice.
        own = count(weight) if c.a != c.b else int(c.parameters(weight).sum())
        total += own if c.a != c.b or c.directed else own // 2
    for name, layer in structure.layers.items():
        if structure.state_counts[name] == 1:
            continue
        bias = np.reshape(params[f"{name}.bias"], (layer.size, -1))
        first = structure.first_unit[name]
        variable = np.array([(name, i) in places for i in range(layer.size)])
        elsewhere = variable & weighted[first : first + layer.size]
        counts = structure.has_bias[name] & ~structure.conditioned[name]
        counts = counts & (~elsewhere | bias.any(axis=1))
        total += int(counts.sum()) * bias.shape[1]
    return total


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
    shown = shown_units(structure)
    layers = [_line(one) for one in shown if not one.variable][:MOST_LINES]
    kept = [*islice((x for x in shown if x.variable), MOST_LINES)]
    above = parents(structure, [(one.layer.name, one.units[0]) for one in kept])
    variables = [_with_parents(one, above[one.layer.name, one.units[0]]) for one in kept]
    joined = list(_couplings(structure))
    number = len(shown) + len(joined)
    return as_text(headline(structure, params), [*layers, *joined, *variables], number)


def model_html(structure: Structure, params: Mapping[str, Weight]) -> str:
    """Return a model for notebooks: a table of its layers and variables, then its picture."""
    shown = shown_units(structure)
    kept = shown[:MOST_ROWS]
    above = parents(structure, [(one.layer.name, one.units[0]) for one in kept if one.variable])
    rows = []
    for one in kept:
        name = one.layer.name
        near = [_end(structure, to) for _, to in structure.meetings[name]]
        text = _text(one)
        both = (text, "") if one.variable else ("", text)
        causes = above[name, one.units[0]] if one.variable else _layers_above(structure, name)
        rows.append((plain(one.name), *both, few(causes), few(dict.fromkeys(near))))
    table = as_html(headline(structure, params), SUMMARY_COLUMNS, rows, len(shown))
    return table + picture(structure)


def _layers_above(structure: Structure, name: str) -> list[str]:
    """Return the names of the layers and variables that are parents of a layer."""
    tables = [t for t in structure.tables if t.conditional and t.layers[-1] == name]
    of_tables = {layer for t in tables for layer in t.layers[:-1]}
    of_arrows = [_end(structure, c.a) for c in structure.arrows_into[name]]
    return list(dict.fromkeys([*map(str, structure.names.declared(of_tables)), *of_arrows]))


def _with_parents(shown: Shown, above: list[str]) -> str:
    """Return a variable with its states and its parents on one line."""
    return _line(shown) + (f" (given {few(above)})" if above else "")


def _line(shown: Shown) -> str:
    """Return a layer or a variable on one line."""
    return f"{plain(shown.name)}: {_text(shown)}"


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
