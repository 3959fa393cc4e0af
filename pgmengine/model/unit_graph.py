"""The graph of units: which units of all layers a coupling, a table or a conditional joins.

Units are numbered over all layers, in the order of the layers. Two units are neighbours if a table,
an undirected coupling, or the conditional of a common child joins them. The neighbours by couplings
are kept as sparse rows. Tables and conditionals are kept as factors with their members, because a
factor of n units would have n^2 pairs.

Arrows inside a layer order its units by generation. Such a layer may be one chain of 100,000 units.
The functions about them therefore take time and memory proportional to the number of arrows, and
never visit the whole layer for each unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np

from pgmengine.base.types import Array, Weight
from pgmengine.base.work.cache import remembered
from pgmengine.model.couplings import Coupling
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure
from pgmengine.model.weights import is_sparse

if TYPE_CHECKING:
    from pgmengine.model.parameters import Parameters


def acts(model: Parameters, c: Coupling, structural: bool) -> Weight:
    """Return 1 where a coupling acts and 0 elsewhere, in the shape of its weight.

    It acts where its weight is not zero. If `structural`, it acts at every parameter, because the
    derivative in a weight of zero is not zero.
    """
    weight = model.weight(c)
    parameters = c.parameters(weight)
    if structural:
        return parameters
    return (parameters * (weight != 0)).tocsr() if is_sparse(weight) else (weight != 0) * 1.0


def joined_units(structure: Structure, c: Coupling, weight: Weight) -> tuple[Array, Array]:
    """Return the pairs of units between which a weight is not 0, as numbers in the two layers.

    Each pair occurs once, in ascending order. An undirected coupling inside a layer gives each pair
    with the smaller number first.
    """
    a, b = structure.layers[c.a], structure.layers[c.b]
    rows, columns = weight.nonzero()
    if a.unit.width == b.unit.width == 1 and not is_sparse(weight):
        one, two = rows, columns
    else:
        one, two = np.divmod(np.unique(a.owners(rows) * b.size + b.owners(columns)), b.size)
    if c.a != c.b or c.directed:
        return one, two
    return one[one < two], two[one < two]


@dataclass(frozen=True, eq=False)
class Rows:
    """The column numbers in the rows of a sparse matrix: row i has columns[start[i]:start[i+1]]."""

    start: Array
    columns: Array

    def of(self, row: int) -> Array:
        """Return the columns of a row."""
        return self.columns[self.start[row] : self.start[row + 1]]


def _rows(row: list[Array], column: list[Array], count: int) -> Rows:
    """Return the different columns of each of `count` rows, ascending."""
    rows, columns = np.concatenate(row), np.concatenate(column)
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (np.diff(rows) != 0) | (np.diff(columns) != 0)
    rows, columns = rows[first], columns[first]
    return Rows(np.searchsorted(rows, np.arange(count + 1)), columns)


@dataclass(frozen=True, eq=False)
class UnitGraph:
    """The units of a model and the factors that join them.

    Attributes
    ----------
    bits : [unit] log2 of the number of states; 1 for units with infinitely many values.
    pairs : the units to which undirected couplings join each unit, ascending.
    members : the units in each table, and in the conditional of each child of arrows.
    factors : the tables and conditionals of each unit.
    """

    bits: list[float]
    pairs: Rows
    members: Rows
    factors: Rows

    def neighbours(self, unit: int) -> Array:
        """Return the neighbours of a unit, and the unit itself if it is in a factor."""
        factors = self.factors.of(unit).tolist()
        if not factors:
            return self.pairs.of(unit)
        joint = [self.members.of(f) for f in factors]
        return np.unique(np.concatenate([self.pairs.of(unit), *joint]))


@remembered
def unit_graph(model: Parameters) -> UnitGraph:
    """Return the graph of the units of a model; it is computed once for each model."""
    s, index = model.structure, model.structure.table_index
    units, tables = sum(layer.size for layer in s.layers.values()), len(index.child)
    one, two = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for c in s.undirected:
        a, b = _joined(model, c)
        one, two = [*one, a, b], [*two, b, a]
    # Factors are numbered: first the tables, then the conditionals of children of arrows.
    factor, member = [index.table], [index.unit]
    for name in s.directed_layers:
        children = s.first_unit[name] + np.arange(s.layers[name].size)
        factor, member = [*factor, tables + children], [*member, children]
        for arrow in s.arrows_into[name]:
            parent, child = _joined(model, arrow)
            factor, member = [*factor, tables + child], [*member, parent]
    bits = [
        np.full(layer.size, np.log2(s.state_counts[name] or 2)) for name, layer in s.layers.items()
    ]
    return UnitGraph(
        np.concatenate(bits).tolist(),
        _rows(one, two, units),
        _rows(factor, member, tables + units),
        _rows(member, factor, units),
    )


def _joined(model: Parameters, c: Coupling) -> tuple[Array, Array]:
    """Return the pairs of units that a coupling joins, numbered over all layers."""
    s = model.structure
    one, two = joined_units(s, c, acts(model, c, structural=False))
    return s.first_unit[c.a] + one, s.first_unit[c.b] + two


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
    """Return the units (rows, size) of `open_units` from which arrows lead to an `active` unit.

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
