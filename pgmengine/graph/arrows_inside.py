"""Arrows inside a layer, in time and memory of the arrows that there are.

Such a layer may be one long chain, so nothing here costs its whole size for each of its units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from pgmengine.base.types import Array
from pgmengine.graph.couplings import Weight
from pgmengine.graph.layer import Layer

if TYPE_CHECKING:
    from pgmengine.graph.model import Model


def arrows_inside(model: Model, name: str) -> list[Weight]:
    """The weights of the arrows from a layer to itself: one or none."""
    return [model.weight(c) for c in model.structure.arrows_into[name] if c.a == name]


def generations(layer: Layer, weights: list[Weight]) -> list[Array]:
    """Return the units of a layer by generation: their parents in it are in earlier ones."""
    if not weights:
        return [np.arange(layer.size)]
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(range(layer.size))
    for weight in weights:
        ends = (layer.owners(x).tolist() for x in weight.nonzero())
        graph.add_edges_from(zip(*ends, strict=True))
    return [np.sort(np.array(units, dtype=np.int64)) for units in nx.topological_generations(graph)]


def by_child(weight: Any) -> Any:
    """A weight with the entries of each column together."""
    import scipy.sparse as sp  # slow to import, and of use to arrows inside a layer only

    return sp.csc_array(weight)


class Inputs:
    """What arrows inside a layer add to the inputs of its units.

    States are columns by rows here, so that those of a unit lie together.
    """

    def __init__(self, model: Model, name: str) -> None:
        self.weights = [by_child(weight) for weight in arrows_inside(model, name)]

    def add(self, x: Array, columns: Array, inputs: Array) -> None:
        """Add to inputs (len(columns), rows) what the states x (width, rows) send to columns."""
        for weight in self.weights:
            starts, ends = weight.indptr[columns].tolist(), weight.indptr[columns + 1].tolist()
            for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
                if start < end:
                    inputs[i] += weight.data[start:end] @ x[weight.indices[start:end]]


def ancestors(model: Model, name: str, active: Array, open_units: Array) -> Array:
    """The open units (rows, size) from which arrows inside a layer lead to an active one.

    On the way there are open units alone.
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
    return (reached & through).T
