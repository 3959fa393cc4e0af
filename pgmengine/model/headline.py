"""Headline of a model: its title, and how much of each kind it has.

The title is the first entry of `TITLES` whose condition the structure fulfils. Only displays read
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from pgmengine.base.display import counted
from pgmengine.base.types import Weight
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

    A row of K probabilities has K - 1 of them. In a row of a gate, probabilities of 0 do not count,
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
