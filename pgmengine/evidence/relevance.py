"""Facts about a graph and its evidence that exact answers, sweeps, mean field and learning need.

An evidence pattern is the set of observed units, and of units that do() has set, without their
values. Facts about whole layers follow from the structure and the pattern alone: which layers have
free units, which of them a sweep visits unit by unit, whether the free units are independent. They
are properties of `EvidencePattern`, and each is computed once. One pattern object serves every
target with the same evidence. A fit therefore also computes them once, although its model changes
at each update.

Facts about single units, such as whether they are barren, and which parents affect which children,
also depend on the positions of zero weights, on soft evidence and on beta. They are functions of a
target. The normaliser of a child couples all its parents. It is absent if do() sets the child. It
is also absent if the child is barren, because its conditional then sums to one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.equal_rows import distinct, equal_rows, rows_of, spread
from pgmengine.base.types import Array
from pgmengine.base.work.cache import Cache
from pgmengine.model.couplings import Coupling
from pgmengine.model.graph.unit_graph import acts, ancestors, joined_units
from pgmengine.model.structure import Structure
from pgmengine.model.weights import is_sparse

if TYPE_CHECKING:
    from pgmengine.evidence.target import Target
    from pgmengine.model.parameters import Parameters

# The largest number of evidence patterns of a structure that are kept for further questions.
MAX_PATTERNS = 64


@dataclass(frozen=True, eq=False)
class EvidencePattern:
    """The observed units of every row, with the facts about layers that follow from them."""

    structure: Structure
    rows: int
    # Layer -> (rows, size) bool.
    observed: dict[str, Array]
    # Layer -> (rows, size) bool: observed units that do() has set.
    intervened: dict[str, Array]

    @cached_property
    def _resized(self) -> Cache[EvidencePattern]:
        """Number of rows -> the same pattern with this number of rows, if all rows are equal.

        A fit uses batches of two or three sizes again and again.
        """
        return Cache(most=16)

    @cached_property
    def free(self) -> dict[str, Array]:
        """Layer -> (rows, size) bool: the units that are not observed."""
        if self.rows == 1:
            return {name: ~seen for name, seen in self.observed.items()}
        return {name: spread(~distinct(seen), self.rows) for name, seen in self.observed.items()}

    @cached_property
    def some_free(self) -> dict[str, bool]:
        """Layer -> whether it has a free unit in some row."""
        return {name: bool(distinct(free).any()) for name, free in self.free.items()}

    @cached_property
    def all_free(self) -> dict[str, bool]:
        """Layer -> whether all its units are free in all rows."""
        return {name: bool(distinct(free).all()) for name, free in self.free.items()}

    @cached_property
    def moving(self) -> tuple[str, ...]:
        """Layers with a free unit in some row."""
        return tuple(name for name, free in self.some_free.items() if free)

    @cached_property
    def alike(self) -> bool:
        """Whether all rows are known to have the same pattern."""
        return self.rows == 1 or all(
            m.strides[0] == 0 for part in (self.observed, self.intervened) for m in part.values()
        )

    @cached_property
    def acting_arrows(self) -> tuple[Coupling, ...]:
        """Arrows to a layer with a unit that do() has not set in some row."""
        return tuple(c for c in self.structure.arrows if not distinct(self.intervened[c.b]).all())

    @cached_property
    def free_parents(self) -> bool:
        """Whether the normaliser of a child depends on a free unit."""
        return any(self.some_free[c.a] for c in self.acting_arrows)

    @cached_property
    def independent(self) -> bool:
        """Whether the free units are independent given the evidence."""
        free = self.some_free
        return (
            not self.free_parents
            and not any(free[c.a] and free[c.b] for c in self.structure.couplings)
            and not self.in_tables
        )

    @cached_property
    def in_tables(self) -> frozenset[str]:
        """Layers with a free unit in the scope of a table."""
        if not self.structure.tables:
            return frozenset()
        tabled = self.structure.tabled
        return frozenset(n for n, free in self.free.items() if (distinct(free) & tabled[n]).any())

    @cached_property
    def by_unit(self) -> frozenset[str]:
        """Layers with free units that depend on each other given all other layers.

        They do if a coupling or a table inside the layer joins them, or the normaliser of a common
        child. A sweep visits these layers unit by unit, and all others in one step.
        """
        inside = {c.a for c in self.structure.couplings if c.a == c.b}
        joined = inside | {c.a for c in self.acting_arrows} | self.in_tables
        return frozenset(name for name in joined if self.some_free[name])

    @cached_property
    def cut(self) -> Array | None:
        """The mask (rows or 1, units) of units that do() has set; None where there are none."""
        for mask in self.intervened.values():
            if mask.any():
                break
        else:
            return None
        masks = [distinct(mask) for mask in self.intervened.values()]
        rows = max(map(len, masks))
        return np.concatenate([spread(mask, rows) for mask in masks], axis=1)

    @cached_property
    def memo(self) -> Cache[Any]:
        """Results that follow from the pattern and from little else, by keys of their users."""
        return Cache(most=16)

    @property
    def first(self) -> EvidencePattern:
        """The pattern of the first row."""
        if self.rows == 1:
            return self
        observed, intervened = (
            {name: mask[:1] for name, mask in part.items()}
            for part in (self.observed, self.intervened)
        )
        return pattern_of(self.structure, 1, observed, intervened)

    def take(self, index: Array) -> EvidencePattern:
        """Return the pattern of the rows `index`; if all rows are equal, one object per length."""
        if self.alike and len(index) == self.rows:
            return self

        def taken() -> EvidencePattern:
            observed, intervened = rows_of(self.observed, index), rows_of(self.intervened, index)
            return EvidencePattern(self.structure, len(index), observed, intervened)

        return self._resized.recall(len(index), taken) if self.alike else taken()


def pattern_of(
    structure: Structure, rows: int, observed: dict[str, Array], intervened: dict[str, Array]
) -> EvidencePattern:
    """Return the pattern of some masks; questions of one row with equal masks share one object."""
    if rows > 1:
        return EvidencePattern(structure, rows, observed, intervened)
    known: Cache[EvidencePattern] = structure.memo.recall(
        "evidence patterns", lambda: Cache(most=MAX_PATTERNS)
    )
    none = structure.no_evidence
    # The mask of a layer without observed units is mostly the one of the structure. Loops take
    # fewer calls than comprehensions, which count in the first question of a small model.
    masks: list[bytes | None] = []
    for part in (observed, intervened):
        for name, mask in part.items():
            masks.append(None if mask is none[name][1] else mask.tobytes())
    key = tuple(masks)
    return known.recall(key, lambda: EvidencePattern(structure, rows, observed, intervened))


def parents_of(target: Target, arrow: Coupling, children: Array, structural: bool = False) -> Array:
    """Return the parents (rows, size) on which an arrow makes the children (rows, size) depend."""
    a, b = (target.structure.layers[name] for name in (arrow.a, arrow.b))
    if not children.any():
        return np.zeros((len(children), a.size), dtype=bool)
    linked = acts(target.model, arrow, structural).T
    found = np.asarray(b.components(children).astype(np.float64) @ linked > 0)
    return np.asarray(found.reshape(len(children), a.size, -1).any(axis=-1))


def of_free_parents(target: Target, name: str) -> Array:
    """Return the units (rows, size) of a layer with an arrow from a free unit."""
    layer = target.structure.layers[name]
    found = np.zeros((1, layer.size), dtype=bool)
    for c in target.structure.arrows_into[name]:
        if target.pattern.some_free[c.a]:
            free = target.components(c.a, distinct(target.free[c.a])).astype(np.float64)
            linked = np.asarray(free @ acts(target.model, c, False) > 0)
            found = found | linked.reshape(len(free), layer.size, -1).any(axis=-1)
    return spread(found, target.rows)


def has_soft(target: Target, name: str) -> Array:
    """Return the units (rows, size) of a layer that have soft evidence."""
    layer = target.structure.layers[name]
    if name not in target.soft:
        return np.zeros((target.rows, layer.size), dtype=bool)
    given = target.soft[name] != 0
    return np.asarray(given.reshape(target.rows, layer.size, -1).any(axis=-1))


def barren(target: Target, tables: bool = True, structural: bool = False) -> dict[str, Array]:
    """Return the barren units of each row at beta = 1: layer -> (rows, size) bool.

    They are free units whose conditional, by arrows or by a table, sums to 1. They have neither
    soft evidence nor undirected couplings, and their children are barren or set by do(). Units
    whose conditional comes from arrows are in no table. Units with a conditional table are in no
    table except their own and those of their children. `tables`:
    whether to find them as well, pattern by pattern. `structural`: whether an arrow with the weight
    0 counts, as in a gradient.
    """
    found = _barren_by_arrows(target, structural)
    if tables and any(t.conditional for t in target.structure.tables):
        by_tables = _barren_by_tables(target, found, structural)
        found = {name: found[name] | mask for name, mask in by_tables.items()}
    return {name: spread(mask, target.rows) for name, mask in found.items()}


def _without_evidence(target: Target, name: str) -> Array:
    """Return the free units (rows or 1, size) without soft evidence, in the rows with beta = 1."""
    # One row is enough if pattern, soft evidence and beta are equal in all rows.
    free = distinct(target.free[name])
    if name in target.soft:
        free = free & ~has_soft(target, name)
    return free if target.untempered else free & (target.beta == 1)[:, None]


def _barren_by_arrows(target: Target, structural: bool) -> dict[str, Array]:
    """Return the barren units of directed layers; see `barren`."""
    s, pattern = target.structure, target.pattern
    out = {name: np.zeros((1, layer.size), dtype=bool) for name, layer in s.layers.items()}
    for name in reversed(s.directed_layers):
        if name in s.undirected_layers or not pattern.some_free[name]:
            continue
        mine = _without_evidence(target, name)
        if s.tables:
            mine = mine & ~s.tabled[name]
        inside = False
        for c in s.arrows_from[name] if mine.any() else ():
            inside |= c.b == name
            if c.b != name:
                active = ~out[c.b] & ~distinct(target.intervened[c.b])
                mine = mine & ~parents_of(target, c, active, structural)
        if inside and structural:
            # Weights of 0 may join the units of a layer in any order.
            mine = np.zeros_like(mine)
        if inside and mine.any():
            active, mine = np.broadcast_arrays(~mine & ~distinct(target.intervened[name]), mine)
            mine = mine & ~ancestors(target.model, name, active, mine)
        out[name] = mine
    return out


def _barren_by_tables(
    target: Target, by_arrows: Mapping[str, Array], structural: bool
) -> dict[str, Array]:
    """Return the barren units with conditional tables; see `barren`.

    Their layers have no undirected couplings and no arrows into them. `by_arrows` has the barren
    units of directed layers.
    """
    s = target.structure
    coupled = {name for c in s.undirected for name in (c.a, c.b)} | {c.b for c in s.arrows}
    parts = []
    for name, tables in s.child_tables.items():
        able = np.zeros((1, len(tables)), dtype=bool)
        if name not in coupled:
            able = _without_evidence(target, name) & (tables >= 0)
            for c in s.arrows_from[name]:
                active = ~by_arrows[c.b] & ~distinct(target.intervened[c.b])
                able = able & ~parents_of(target, c, active, structural)
        parts.append(able)
    parts += [distinct(target.intervened[name]) for name in s.layers]
    rows = max(map(len, parts))
    masks = np.concatenate([spread(mask, rows) for mask in parts], axis=1)
    group = np.zeros(rows, dtype=int)
    if rows > 1:
        first, group = equal_rows(np.packbits(masks, axis=1))
        masks = masks[first]
    found = _barren_in(s, *np.split(masks, 2, axis=1))[group]
    return {name: found[:, own] for name, own in s.slices.items()}


def _barren_in(s: Structure, able: Array, intervened: Array) -> Array:
    """Return the units (patterns, units) of `able` that are only in their own and barren tables.

    Tables of children that do() has set, `intervened`, do not count. The patterns are the bits of
    whole numbers, so that one operation serves all of them.
    """
    patterns, units = able.shape
    every, free, cut = (1 << patterns) - 1, _bits(able), _bits(intervened)
    # The patterns in which each unit is in a table that counts, besides its own.
    used, found = [0] * units, [0] * units
    order, parents, joined = s.memo.recall("children first", lambda: _children_first(s))
    for unit in joined:
        used[unit] = every
    for unit in order:
        found[unit] = free[unit] & ~used[unit]
        active = every & ~(found[unit] | cut[unit])
        for parent in parents[unit]:
            used[parent] |= active
    size = (patterns + 7) // 8
    packed = np.frombuffer(b"".join([x.to_bytes(size, "little") for x in found]), dtype=np.uint8)
    bits = np.unpackbits(packed.reshape(units, size), axis=1, count=patterns, bitorder="little")
    return bits.T.astype(bool)


def _bits(mask: Array) -> list[int]:
    """Return the columns of a mask (patterns, units) as whole numbers."""
    packed = np.packbits(mask.T, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def _children_first(s: Structure) -> tuple[list[int], list[list[int]], list[int]]:
    """Return the units with conditional tables after all their children, and parents by unit.

    The third item are the units in tables that are no conditionals.
    """
    index = s.table_index
    parents: list[list[int]] = [[] for _ in range(s.units)]
    children = index.child[index.table].tolist()
    for unit, child in zip(index.unit.tolist(), children, strict=True):
        if child >= 0 and unit != child:
            parents[child].append(unit)
    first: TopologicalSorter[int] = TopologicalSorter()
    for child in np.unique(index.child[index.child >= 0]).tolist():
        first.add(child, *parents[child])
    order = [*first.static_order()][::-1]
    return order, parents, np.unique(index.unit[(index.child < 0)[index.table]]).tolist()


def informed_units(target: Target, given: Mapping[str, Array]) -> Array:
    """Return which units (units,) some row informs, in the order of the layers.

    A row informs the units that it observes, all their ancestors, and the units that undirected
    terms join to these, with their ancestors. Other units of directed parts are barren in it, and
    their conditionals get no information from it; undirected parts that no path joins to the data
    get none either. The answer holds at every value of the parameters: a weight of 0 joins its
    units, because it may change. A unit that do() has set informs nothing, and neither does a row
    that observes only `given` units.
    """
    seen = _observed_in_some_row(target, given)
    if seen.all():
        return seen
    families, undirected = _families(target.model), _undirected_terms(target.model)
    joined = undirected[0][undirected[0] < len(seen)]
    if not len(joined):
        return reached(seen, families)
    # No conditional of a unit in an undirected term sums to one, so that it counts as observed.
    active = seen.copy()
    active[joined] = True
    active = reached(active, families)
    child, parent = families
    # Nodes between whole layers have numbers above those of the units.
    inside = np.append(active, np.ones(len(target.structure.arrows), dtype=bool))
    some = inside[child] & inside[parent]
    child, parent = child[some], parent[some]
    first, second = undirected
    both = [child, parent, first, second], [parent, child, second, first]
    return reached(seen, (np.concatenate(both[0]), np.concatenate(both[1]))) & active


def reached(units: Array, edges: tuple[Array, Array]) -> Array:
    """Return the units (units,) to which a path of edges leads from some units, and these.

    Paths may lead over further nodes, with numbers above those of the units.
    """
    # Slow to import, and complete data do not need it.
    import scipy.sparse as sp
    from scipy.sparse.csgraph import breadth_first_order

    start, end = edges
    # One more node, from which the search begins, leads to all units.
    begin = max(int(max(start.max(initial=-1), end.max(initial=-1))) + 1, len(units))
    first = np.flatnonzero(units)
    start, end = np.append(start, np.full(len(first), begin)), np.append(end, first)
    graph = sp.csr_array((np.ones(len(start)), (start, end)), shape=(begin + 1, begin + 1))
    found = breadth_first_order(graph, begin, return_predecessors=False)
    out = units.copy()
    out[found[found < len(units)]] = True
    return out


def _observed_in_some_row(target: Target, given: Mapping[str, Array]) -> Array:
    """Return the units (units,) with a value or soft evidence in a row with more than given units.

    Units that do() has set do not count.
    """
    s = target.structure
    seen = {
        name: distinct(~target.free[name]) & ~distinct(target.intervened[name])
        | (has_soft(target, name) if name in target.soft else np.False_)
        for name in s.layers
    }
    told = np.zeros((1, 1), dtype=bool)
    for name, units in seen.items():
        told = told | (units & ~given.get(name, np.False_)).any(axis=1, keepdims=True)
    return np.concatenate([(units & told).any(axis=0) for units in seen.values()])


def _families(model: Parameters) -> tuple[Array, Array]:
    """Return the pairs of a child and one of its parents, as numbers of units.

    Between two whole layers stands a node of its own, with a number above those of the units.
    """
    s, index = model.structure, model.structure.table_index
    child = index.child[index.table]
    some = (child >= 0) & (child != index.unit)
    parts = [(child[some], index.unit[some])]
    nodes = s.units
    for c in s.arrows:
        joined, above, below = acts(model, c, True), s.slices[c.a], s.slices[c.b]
        if c.a != c.b and not is_sparse(joined):
            parts += [_to_node(below, nodes), _to_node(above, nodes)[::-1]]
            nodes += 1
        else:
            one, two = joined_units(s, c, joined)
            parts.append((below.start + two, above.start + one))
    for gate in s.compact_gates:
        units = gate.index + [s.first_unit[name] for name in gate.layers]
        parts.append((np.repeat(units[:, -1], units.shape[1] - 1), units[:, :-1].ravel()))
    below_all, above_all = (np.concatenate(each) for each in zip(*parts, strict=True))
    return below_all, above_all


def _undirected_terms(model: Parameters) -> tuple[Array, Array]:
    """Return the pairs that undirected terms join, a unit first, and a unit or a node of the term.

    Nodes have numbers above those of the nodes of `_families`.
    """
    s, index = model.structure, model.structure.table_index
    first = s.units + len(s.arrows)
    some = (index.child < 0)[index.table]
    parts = [(index.unit[some], first + index.table[some])]
    nodes = first + len(index.child)
    for c in s.undirected:
        joined = acts(model, c, True)
        if not is_sparse(joined):
            parts += [_to_node(s.slices[name], nodes) for name in {c.a, c.b}]
            nodes += 1
        else:
            one, two = joined_units(s, c, joined)
            parts.append((s.first_unit[c.a] + one, s.first_unit[c.b] + two))
            parts.append(parts[-1][::-1])
    units, others = (np.concatenate(each) for each in zip(*parts, strict=True))
    return units, others


def _to_node(units: slice, node: int) -> tuple[Array, Array]:
    """Return the pairs of each of some units and a node."""
    return np.arange(units.start, units.stop), np.full(units.stop - units.start, node)


def forced_units(target: Target, active: dict[str, Array], structural: bool) -> dict[str, Array]:
    """Return the free units that exact answers have to enumerate: layer -> (size,) bool.

    They are the parents of active children whose normaliser counts. They also are noisy-or units at
    beta < 1, because enumeration has no formula for (1 - e^-z)^beta + e^(-beta z). All rows share
    the pattern; `active` (size,) are the units that are not marginalised beforehand.
    """
    s = target.structure
    out = {name: np.zeros(layer.size, dtype=bool) for name, layer in s.layers.items()}
    for arrow in s.arrows:
        children = (active[arrow.b] & ~target.intervened[arrow.b][0])[None]
        out[arrow.a] |= parents_of(target, arrow, children, structural)[0]
    if not target.untempered:
        for name in s.directed_layers:
            if not s.layers[name].unit.canonical:
                out[name][:] = True
    return {name: mask & active[name] & target.free[name][0] for name, mask in out.items()}
