"""The graph of units: which units of all layers a coupling, a table or a conditional joins.

Units, and the components of their values, are numbered over all layers, in the order of the layers
(`Units`). All weights other than 0 are listed together, by components. Pairs of coupled units, and
parents and children, follow from these lists and are computed where they are asked for.

Two units are neighbours if a table, an undirected coupling, or the conditional of a common child
joins them. The neighbours by couplings are kept as sparse rows. Tables and conditionals are kept as
factors with their members, because a factor of n units would have n^2 pairs.

Arrows inside a layer order its units by generation. Such a layer may be one chain of 100,000 units.
The functions about them therefore take time and memory proportional to the number of arrows, and
never visit the whole layer for each unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.equal_rows import distinct_pairs
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.cache import remembered
from pgmengine.model.couplings import Coupling
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure
from pgmengine.model.weights import acting, is_sparse

if TYPE_CHECKING:
    from pgmengine.model.parameters import Parameters


def acts(model: Parameters, c: Coupling, structural: bool) -> Weight:
    """Return 1 where a coupling acts and 0 elsewhere, in the shape of its weight.

    It acts where its weight is not zero. If `structural`, it acts at every parameter, because the
    derivative in a weight of zero is not zero.
    """
    weight = model.weight(c)
    if structural:
        return c.parameters(weight)
    other = weight != 0
    return (c.parameters(weight) * other).tocsr() if is_sparse(weight) else other * 1.0


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
        one, two = distinct_pairs(a.owners(rows), b.owners(columns))[0].T
    if c.a != c.b or c.directed:
        return one, two
    return one[one < two], two[one < two]


@dataclass(frozen=True, eq=False)
class Units:
    """The units of all layers of a structure, and their components, layer after layer.

    Attributes
    ----------
    states : (units,) the number of states of each unit, 0 if there are infinitely many.
    width : (units,) the number of its components.
    component : (units,) its first component.
    owner : (components,) the unit of each component.
    first_component : layer -> its first component.
    """

    states: Array
    width: Array
    component: Array
    owner: Array
    first_component: dict[str, int]


@remembered
def units_of(s: Structure) -> Units:
    """Return the units of a structure; they are computed once for it."""
    sizes = [layer.size for layer in s.layers.values()]
    states, width = (
        np.repeat(np.array(each, dtype=np.int64), sizes)
        for each in (list(s.state_counts.values()), [x.unit.width for x in s.layers.values()])
    )
    component = np.cumsum(width) - width
    first = {name: int(component[begin]) for name, begin in s.first_unit.items()}
    return Units(states, width, component, np.repeat(np.arange(len(width)), width), first)


@dataclass(frozen=True, eq=False)
class Rows:
    """The column numbers in the rows of a sparse matrix: row i has columns[start[i]:start[i+1]]."""

    start: Array
    columns: Array

    @classmethod
    def of_pairs(cls, row: Array, column: Array, count: int) -> Rows:
        """Return the different columns of each of `count` rows, ascending."""
        if not len(row):
            return cls(np.zeros(count + 1, dtype=np.int64), column)
        # Slow to import.
        import scipy.sparse as sp

        shape = count, int(column.max()) + 1
        found = sp.csr_array((np.ones(len(row), dtype=bool), (row, column)), shape=shape)
        found.sum_duplicates()
        return cls(found.indptr.astype(np.int64), found.indices)

    @classmethod
    def of_keys(cls, keys: Array, count: int) -> Rows:
        """Return the positions of each of the keys 0 .. count - 1, ascending."""
        start = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(keys, minlength=count), out=start[1:])
        return cls(start, np.argsort(keys, kind="stable"))

    def of(self, row: int) -> Array:
        """Return the columns of a row."""
        return self.columns[self.start[row] : self.start[row + 1]]

    @property
    def rows(self) -> Array:
        """The row of each column number."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


@dataclass(frozen=True, eq=False)
class JoinedWeights:
    """The weights of several couplings other than 0, with components numbered over all layers.

    The field or the input of component `to` gains `weight` times the value of component `source`.
    Weights of undirected couplings are here both ways.
    """

    source: Array
    to: Array
    weight: Array


def joined_weights(model: Parameters, couplings: Iterable[Coupling]) -> JoinedWeights:
    """Return the weights of some couplings of a model."""
    first, none = units_of(model.structure).first_component, np.zeros(0, dtype=np.int64)
    parts = [(none, none, np.zeros(0))]
    for c in couplings:
        row, column, weight = acting(model.weight(c))
        row, column = row + first[c.a], column + first[c.b]
        parts.append((row, column, weight))
        # The weight of a coupling inside a layer is symmetric.
        if not c.directed and c.a != c.b:
            parts.append((column, row, weight))
    return JoinedWeights(*(np.concatenate(some) for some in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class UnitGraph:
    """The units of a model, and the weights and factors that join them.

    Attributes
    ----------
    structure : the layers and tables of the model.
    links, arrows : the weights of its undirected couplings, and of its arrows.
    """

    structure: Structure
    links: JoinedWeights
    arrows: JoinedWeights

    @cached_property
    def bits(self) -> list[float]:
        """[unit] log2 of the number of states; 1 for units with infinitely many values."""
        states = units_of(self.structure).states
        bits: list[float] = np.log2(np.where(states == 0, 2, states)).tolist()
        return bits

    @cached_property
    def pairs(self) -> Rows:
        """The units to which undirected couplings join each unit, ascending."""
        return self._by_unit(self.links)

    @cached_property
    def parents(self) -> Rows:
        """The parents of each unit by arrows, ascending."""
        return self._by_unit(self.arrows)

    def _by_unit(self, weights: JoinedWeights) -> Rows:
        """Return the units from which weights lead to each unit."""
        owner = units_of(self.structure).owner
        return Rows.of_pairs(owner[weights.to], owner[weights.source], self.structure.units)

    @cached_property
    def members(self) -> Rows:
        """The units in each table, and then each child of arrows with its parents, by unit."""
        s, index, parents = self.structure, self.structure.table_index, self.parents
        every = np.arange(s.units)
        own = np.concatenate([every[:0], *(every[s.slices[name]] for name in s.directed_layers)])
        row, column = np.append(own, parents.rows), np.append(own, parents.columns)
        families = Rows.of_pairs(row, column, s.units)
        start = np.append(index.start, index.start[-1] + families.start[1:])
        return Rows(start, np.append(index.unit, families.columns))

    @cached_property
    def factors(self) -> Rows:
        """The tables and conditionals of each unit."""
        return Rows.of_pairs(self.members.columns, self.members.rows, self.structure.units)

    def neighbours(self, unit: int) -> Array:
        """Return the neighbours of a unit, and the unit itself if it is in a factor."""
        factors = self.factors.of(unit).tolist()
        if not factors:
            return self.pairs.of(unit)
        joint = [self.members.of(f) for f in factors]
        return np.unique(np.concatenate([self.pairs.of(unit), *joint]))

    @cached_property
    def near(self) -> Rows:
        """The neighbours of each unit, ascending, without the unit itself."""
        # Slow to import.
        import scipy.sparse as sp

        members, pairs, units = self.members, self.pairs, self.structure.units
        of_factors = sp.csr_array(
            (np.ones(len(members.columns), dtype=np.int32), members.columns, members.start),
            shape=(len(members.start) - 1, units),
        )
        joint = (of_factors.T @ of_factors).tocoo()
        one = np.concatenate([joint.row, pairs.rows])
        two = np.concatenate([joint.col, pairs.columns])
        apart = one != two
        return Rows.of_pairs(one[apart], two[apart], units)


@remembered
def unit_graph(model: Parameters) -> UnitGraph:
    """Return the graph of the units of a model; it is computed once for each model."""
    s = model.structure
    return UnitGraph(s, joined_weights(model, s.undirected), joined_weights(model, s.arrows))


def arrows_inside(model: Parameters, name: str) -> list[Weight]:
    """Return the weights of the arrows from a layer to itself: one or none."""
    return [model.weight(c) for c in model.structure.arrows_into[name] if c.a == name]


def generations(layer: Layer, weights: list[Weight]) -> list[Array]:
    """Return the units of a layer by generation; parents in the layer are in earlier generations.

    `weights` are the result of `arrows_inside`.
    """
    if not weights:
        return [np.arange(layer.size)]
    import networkx as nx

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
