"""Arrows inside a layer: generations of units, and the inputs that the arrows add.

Such a layer may be one chain of 100,000 units. Every function here therefore takes time and memory
proportional to the number of arrows, and never visits the whole layer for each unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx
import numpy as np

from pgmengine.base.types import Array, Weight
from pgmengine.model.layer import Layer

if TYPE_CHECKING:
    from pgmengine.model.parameters import Parameters


def arrows_inside(model: Parameters, name: str) -> list[Weight]:
    """Return the weights of the arrows from a layer to itself: one or none."""
    return [model.weight(c) for c in model.structure.arrows_into[name] if c.a == name]


def generations(layer: Layer, weights: list[Weight]) -> list[Array]:
    """Return the units of a layer by generation; parents in the layer are in earlier generations.

    `weights` are the result of `arrows_inside`.
    """
    if not weights:
        return [np.arange(layer.size)]
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(range(layer.size))
    for weight in weights:
        ends = (layer.owners(x).tolist() for x in weight.nonzero())
        graph.add_edges_from(zip(*ends, strict=True))
    return [np.sort(np.array(units, dtype=np.int64)) for units in nx.topological_generations(graph)]


def by_child(weight: Weight) -> Weight:
    """Return a weight as a sparse array in which the entries of each child are consecutive."""
    # Slow to import, and only arrows inside a layer need it.
    import scipy.sparse as sp

    return sp.csc_array(weight)


class Inputs:
    """The inputs that arrows inside a layer add to its units.

    Here states have the axes (columns, rows), so that the states of a unit are contiguous.
    """

    def __init__(self, model: Parameters, name: str) -> None:
        self.weights = [by_child(weight) for weight in arrows_inside(model, name)]

    def add(self, x: Array, columns: Array, inputs: Array) -> None:
        """Add the inputs (len(columns), rows) of some columns from states x (width, rows)."""
        for weight in self.weights:
            starts, ends = weight.indptr[columns].tolist(), weight.indptr[columns + 1].tolist()
            for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
                if start < end:
                    inputs[i] += weight.data[start:end] @ x[weight.indices[start:end]]


def ancestors(model: Parameters, name: str, active: Array, open_units: Array) -> Array:
    """Return the open units (rows, size) from which arrows in a layer lead to an active unit.

    All units on the path between the two have to be open as well.
    """
    layer = model.structure.layers[name]
    reached, through = np.array(active.T, order="C"), np.ascontiguousarray(open_units.T)
    for weight in arrows_inside(model, name):
        linked = by_child(weight != 0)
        starts = linked.indptr[:: layer.unit.width].tolist()
        for child in reversed(np.concatenate(model.generations[name]).tolist()):
            if reached[child].any():
                above = layer.owners(linked.indices[starts[child] : starts[child + 1]])
                reached[above] |= through[above] & reached[child]
    found: Array = (reached & through).T
    return found
