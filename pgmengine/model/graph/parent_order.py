"""Orders in which parents come before their children, over arrows and conditional tables.

Directed layers (the children of arrows, and their roots) are drawn as a whole. Units with a
conditional table are drawn one generation at a time, after their parents. Both are nodes of one
graph. Its levels are found by removing the nodes without parents again and again, with operations
on arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from pgmengine.base.types import Array

if TYPE_CHECKING:
    from pgmengine.model.structure import Structure

Node = TypeVar("Node")


@dataclass(frozen=True, eq=False)
class Step:
    """Layers and units whose parents are in earlier steps.

    Attributes
    ----------
    layers : names of directed layers.
    units : layer -> units with a conditional.
    """

    layers: tuple[str, ...]
    units: dict[str, Array]


def cycle_of(arrows: Iterable[tuple[Node, Node]]) -> list[Node]:
    """Return the nodes of a directed cycle, the first one again at its end; empty without one."""
    pairs = [(parent, child) for parent, child in arrows]
    nodes = list(dict.fromkeys(node for pair in pairs for node in pair))
    place = {node: i for i, node in enumerate(nodes)}
    if all([place[parent] < place[child] for parent, child in pairs]):
        return []
    if len(_ordered(nodes, pairs)) == len(nodes):
        return []
    import networkx as nx

    cycle = [edge[0] for edge in nx.find_cycle(nx.DiGraph(pairs))]
    return [*cycle, cycle[0]]


def parents_first(nodes: Sequence[Node], arrows: Iterable[tuple[Node, Node]]) -> tuple[Node, ...]:
    """Return nodes with parents before their children, else in the order in which they are."""
    found = _ordered(nodes, list(arrows))
    assert len(found) == len(nodes)
    return tuple(found)


def _ordered(nodes: Sequence[Node], arrows: Sequence[tuple[Node, Node]]) -> list[Node]:
    """Return nodes with parents first, and of those that are ready the first one in order.

    Nodes on cycles, and below them, are left out. networkx takes ten times as long, and its import
    as long as a hundred small models.
    """
    place = {node: i for i, node in enumerate(nodes)}
    below: list[list[int]] = [[] for _ in nodes]
    waits = [0] * len(nodes)
    for parent, child in set(arrows):
        below[place[parent]].append(place[child])
        waits[place[child]] += 1
    ready, out = [i for i, count in enumerate(waits) if not count], list[Node]()
    while ready:
        out.append(nodes[now := heappop(ready)])
        for i in below[now]:
            waits[i] -= 1
            if not waits[i]:
                heappush(ready, i)
    return out


def levels(nodes: Array, parent: Array, child: Array) -> list[Array]:
    """Return nodes by the length of the longest path to them; nodes on cycles are left out.

    Parameters
    ----------
    nodes : (n,) bool, whether each number is a node.
    parent, child : the ends of the edges, which are nodes.
    """
    order = np.argsort(parent, kind="stable")
    child, first = child[order], np.searchsorted(parent[order], np.arange(len(nodes) + 1))
    waits = np.bincount(child, minlength=len(nodes))
    now, out = np.flatnonzero(nodes & (waits == 0)), list[Array]()
    while len(now):
        out.append(now)
        counts = first[now + 1] - first[now]
        place = np.repeat(first[now] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        reached, times = np.unique(child[place], return_counts=True)
        waits[reached] -= times
        now = reached[waits[reached] == 0]
    return out


def conditional_generations(s: Structure) -> tuple[dict[str, Array], ...]:
    """Return the units with a conditional by generation, layer -> units; parents come first."""
    parent, child, has = _conditionals(s)
    among = has[parent]
    return tuple(_by_layer(s, units) for units in levels(has, parent[among], child[among]))


def drawing_steps(s: Structure) -> tuple[Step, ...]:
    """Return the steps that draw all directed layers and all units with a conditional.

    Other units are not drawn. A layer is missing if arrows and conditionals lead from it back to
    itself.
    """
    parent, child, has = _conditionals(s)
    if not has.any():
        return tuple(Step((name,), {}) for name in s.directed_layers)
    units, names = len(has), list(s.layers)
    # A directed layer is one node, numbered after the units.
    node = np.arange(units)
    for number, name in enumerate(names):
        if name in s.directed_layers:
            node[s.slices[name]] = units + number
    is_node = np.concatenate((has, [name in s.directed_layers for name in names]))
    parents, children = [node[parent]], [child]
    for c in s.arrows:
        if c.a == c.b:
            continue
        first = s.first_unit[c.a]
        above = np.unique(node[first : first + s.layers[c.a].size])
        parents.append(above)
        children.append(np.full(len(above), units + names.index(c.b)))
    one, two = np.concatenate(parents), np.concatenate(children)
    edges = is_node[one]
    return tuple(
        Step(
            tuple(names[i - units] for i in found[found >= units].tolist()),
            _by_layer(s, found[found < units]),
        )
        for found in levels(is_node, one[edges], two[edges])
    )


def _conditionals(s: Structure) -> tuple[Array, Array, Array]:
    """Return parent and child of each pair in a conditional, and the units that have one."""
    index = s.table_index
    child_of_axis = index.child[index.table]
    pairs = (child_of_axis >= 0) & (index.unit != child_of_axis)
    has = np.zeros(s.units, dtype=bool)
    has[index.child[index.child >= 0]] = True
    return index.unit[pairs], child_of_axis[pairs], has


def _by_layer(s: Structure, units: Array) -> dict[str, Array]:
    """Return ascending numbers of units over all layers as layer -> units."""
    begins = [*s.first_unit.values(), s.units]
    ends = np.searchsorted(units, begins)
    parts = zip(s.layers, begins, ends, ends[1:], strict=False)
    return {name: units[a:b] - begin for name, begin, a, b in parts if a < b}
