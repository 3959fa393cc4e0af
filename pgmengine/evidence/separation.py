"""Separation: whether the graph alone makes units independent given others.

In a directed graph this is d-separation, in an undirected one that no path avoids the given units,
and in a mixed one what both have in common. A free unit whose conditional sums to one, and on which
nothing else depends, is barren and is left out with its conditional. Every other conditional joins
a child and its parents, as a table joins the units of its scope (the moral graph of the ancestors;
Lauritzen, Dawid, Larsen and Leimer 1990, Independence properties of directed Markov fields). Units
are separated if each path from one to the other, over such terms, meets a given unit.

A path goes from unit to term to unit, so that a term of n units takes n pairs and not n^2. A given
unit ends a path, and its terms still join all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.types import Array
from pgmengine.evidence.relevance import reached
from pgmengine.model.graph.unit_graph import unit_graph

if TYPE_CHECKING:
    from pgmengine.model.parameters import Parameters


def separated_units(model: Parameters, a: Array, b: Array, given: Array) -> bool:
    """Whether units `a` and `b` are separated by the units `given`; all are masks (units,)."""
    (child, parent), (unit, term) = _families(model), _undirected_terms(model)
    n, layers = len(a), model.structure.layers.values()
    # Input units have a value in every question.
    always = np.repeat([x.unit.observed_only for x in layers], [x.size for x in layers])
    given = given | (always & ~a & ~b)
    kept = a | b | given
    # No conditional of a unit in an undirected term sums to one by itself.
    kept[unit] = True
    kept = reached(kept, (child, parent))
    inside = kept[child]
    child, parent = child[inside], parent[inside]
    # The conditional of unit i is term i, and undirected terms come after all of these.
    units = np.concatenate([child, parent, unit])
    terms = n + np.concatenate([child, child, n + term])
    open_ones = ~given[units]
    units, terms = units[open_ones], terms[open_ones]
    edges = np.concatenate([units, terms]), np.concatenate([terms, units])
    return not (reached(a, edges) & b).any()


def _families(model: Parameters) -> tuple[Array, Array]:
    """Return the pairs of a child and one of its parents, as numbers of units."""
    s, index, arrows = model.structure, model.structure.table_index, unit_graph(model).parents
    child = index.child[index.table]
    some = (child >= 0) & (child != index.unit)
    parts = [(child[some], index.unit[some]), (arrows.rows, arrows.columns)]
    parts += [places[::-1] for places in _places(model, directed=True)]
    for gate in s.compact_gates:
        units = gate.index + [s.first_unit[name] for name in gate.layers]
        parts.append((np.repeat(units[:, -1], units.shape[1] - 1), units[:, :-1].ravel()))
    children, parents = zip(*parts, strict=True)
    return np.concatenate(children), np.concatenate(parents)


def _undirected_terms(model: Parameters) -> tuple[Array, Array]:
    """Return the pairs of a unit and an undirected term that it is in, which has a number."""
    index, links = model.structure.table_index, unit_graph(model).pairs
    some = (index.child < 0)[index.table]
    pairs = [(links.rows, links.columns), *_places(model, directed=False)]
    one, two = (np.concatenate(each) for each in zip(*pairs, strict=True))
    term = len(index.child) + np.arange(len(one))
    units = np.concatenate([index.unit[some], one, two])
    return units, np.concatenate([index.table[some], term, term])


def _places(model: Parameters, directed: bool) -> list[tuple[Array, Array]]:
    """Return the units of the places of arrows, or of couplings: also those of the weight 0."""
    s = model.structure
    return [
        (s.first_unit[t.layers[0]] + t.index[:, 0], s.first_unit[t.layers[1]] + t.index[:, 1])
        for t in s.shared
        if not t.is_bias and t.directed == directed
    ]
