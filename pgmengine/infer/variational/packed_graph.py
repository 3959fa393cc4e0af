"""The graph of a model with directed children, as compiled mean-field rounds read it (net.h).

The rounds of a single row have terms as lanes instead of rows ("by term"): up to LANES terms of one
kind are a group, and an edge of the group joins a parent to all of its terms. The weight is 0 where
a term has no such parent.

The tables of a structure are stored in arrays, as in `TableIndex`, with units numbered as here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pgmengine import _kernels
from pgmengine._kernels import LANES
from pgmengine.base.types import Array, Weight
from pgmengine.model.couplings import Coupling
from pgmengine.model.graph.unit_graph import Rows
from pgmengine.model.layer import Layer
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure
from pgmengine.model.weights import is_sparse, like, numbers

# Values (sets, K, width) and log base (K,) of the terms log sum_k h_k e^(y_k z) of each child.
Sums = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Group:
    """The places of the units of a layer, or of their terms, and of their states and components."""

    kind: int
    # Number of terms of each child; 1 in a group of units.
    sets: int
    count: int
    first: int
    first_state: int
    first_comp: int
    states: int
    width: int

    @property
    def items(self) -> slice:
        """Places of the units, or terms."""
        return slice(self.first, self.first + self.count)

    @property
    def all_states(self) -> slice:
        """Places of their states."""
        return slice(self.first_state, self.first_state + self.count * self.states)

    @property
    def comps(self) -> slice:
        """Places of their components."""
        return slice(self.first_comp, self.first_comp + self.count * self.width)


# Largest logarithm of the growth of a parent's odds, from one state of a child to the other, for
# which two states need one exponential (net.h): PGM_FLUSH factors of 1 + e^5.5 do not overflow.
MAX_LOG_GROWTH = 5.5

# The arrays of the rounds: first those that start from numbers that are given, in the order of
# BELIEF_SOURCES in kernels.pyx, then those that only the rounds compute.
SOURCES: tuple[str, ...] = (
    *("q", "open", "barren", "live", "beta", "power"),
    *("base", "gain", "still", "on", "pull", "xi"),
)
FOUND = ("log_q", "mean", "phi", "f", "input")

EMPTY_GROUP = Group(0, 1, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, eq=False)
class Edges:
    """The pairs (parent unit, child unit) of an arrow.

    The (width of parent, width of child) weights of a pair are contiguous, in C order.
    """

    arrow: Coupling
    parent: Array
    child: Array
    # The place of each entry of the weight among the weights of these edges.
    place: Array
    # The place of the first weight of these edges among the weights of all arrows.
    begin: int
    count: int

    def gathered(self, weight: Weight, numbers: Array) -> Weight:
        """Return the `numbers` at the weights of this arrow, in the form of its weight."""
        found = numbers[self.begin + self.place]
        return self.arrow.projected(
            weight, like(weight, found) if is_sparse(weight) else found.reshape(weight.shape)
        )


class Net:
    """Units with tables of probabilities, terms, and the edges and links between them.

    The terms of a child are contiguous. Their number is the number of sets of its layer in `sums`.
    """

    def __init__(self, model: Parameters, tables: Iterable[str], sums: Mapping[str, Sums]) -> None:
        s, self.layers = model.structure, model.structure.layers
        self.kinds: list[tuple[int, int, float, Array, Array]] = []
        self.units: dict[str, Group] = {}
        self.terms: dict[str, Group] = {}
        for name in tables:
            unit = s.layers[name].unit
            assert unit.support is not None and unit.log_base is not None
            self._append(self.units, s.layers[name], 1, unit.support[None], unit.log_base)
        for name, (values, base) in sums.items():
            self._append(self.terms, s.layers[name], len(values), values, base)
        self.edges: list[Edges] = []
        self.links = [c for c in s.couplings if c.a in self.units and c.b in self.units]
        self.arrays = self._describe(self.units, "unit") | self._describe(self.terms, "term")
        self.arrays |= self._edges(s.arrows, model) | self._links(model) | self._own()
        first = {name: g.first for name, g in self.units.items()}
        self.arrays |= scope_arrays(s, first, len(self.arrays["unit_kind"]))
        # Edges and axes that a round visits.
        self.work = len(self.arrays["edge_unit"]) + len(self.arrays["axis_unit"]) + 1
        # The number of items of each array of the rounds, in the order in which they are stored.
        n = self.arrays
        units, terms = len(n["unit_kind"]), len(n["term_kind"])
        states, comps, term_comps = n["states"], n["comps"], n["term_comps"]
        sizes: list[int] = [states, units, units, terms, 1, len(n["table_entry"])]
        sizes += [comps, comps, term_comps, terms, term_comps, term_comps]
        sizes += [states, comps, n["term_states"], terms, term_comps]
        ends = np.cumsum(sizes).tolist()
        self.places = {
            name: slice(end - size, end)
            for name, end, size in zip((*SOURCES, *FOUND), ends, sizes, strict=True)
        }
        self.sources = ends[len(SOURCES) - 1]

    @cached_property
    def graph(self) -> _kernels.Graph:
        """The compiled graph."""
        return _kernels.Graph(self.kinds, self.arrays)

    def rounds_by_term(self, rows: int) -> bool:
        """Return whether rounds of some rows take less time by term, one row after the other."""
        # By term, an edge with rows as lanes is at least an eighth of an edge. Rows that are
        # computed together often need more rounds than each of them alone.
        edges = len(self.arrays["edge_unit"])
        if rows == 1 or not edges or rows > LANES // 2 or len(self.arrays["table_entry"]):
            # Tables have no lanes by term.
            return rows == 1 and edges > 0
        return 2 * rows * len(self._grouped[0]["edge_unit"]) <= edges

    @cached_property
    def by_term(self) -> _kernels.Graph:
        """The compiled graph with terms as lanes."""
        return _kernels.Graph(self.kinds, self.arrays | self._grouped[0])

    @cached_property
    def _grouped(self) -> tuple[dict[str, Any], Array]:
        """The arrays of the graph by term, and the weight of each lane (none: behind the last)."""
        n, units = self.arrays, len(self.arrays["unit_kind"])
        own, kind, begin = np.zeros(len(n["term_kind"]), dtype=np.int64), [], 0
        for g in self.terms.values():
            number = np.arange(g.count)
            # Terms of a child have different kinds.
            child, part = np.divmod(number, g.sets)
            chunks = -(-g.count // g.sets // LANES)
            group = begin + part * chunks + child // LANES
            own[g.items] = group * LANES + child % LANES
            kind.append(g.kind + np.repeat(np.arange(g.sets, dtype=np.int32), chunks))
            begin += g.sets * chunks
        term_kind = _joined(kind, np.int32)
        states, width, _ = self._kind_columns()
        pairs, edge = np.unique(
            own[n["edge_term"]] // LANES * units + n["edge_unit"], return_inverse=True
        )
        group, unit = np.divmod(pairs, max(units, 1))
        parent = n["unit_kind"][unit]
        each = width[parent] * width[term_kind[group]]
        first = np.cumsum(each) - each
        place = np.full(int(each.sum()) * LANES, self.weight_count)
        for i in range(int(each.max(initial=0))):
            some = each[edge] > i
            lane = own[n["edge_term"][some]] % LANES
            place[(first[edge[some]] + i) * LANES + lane] = n["edge_weight"][some] + i
        down = Rows.of_keys(unit, units)
        load = np.bincount(unit, weights=states[parent] * states[term_kind[group]], minlength=units)
        return {
            "term_kind": term_kind,
            "term_state": np.cumsum(states[term_kind]) - states[term_kind],
            "term_comp": np.cumsum(width[term_kind]) - width[term_kind],
            "term_states": int(states[term_kind].sum()),
            "term_comps": int(width[term_kind].sum()),
            **self._plain(group, parent, term_kind),
            "edge_unit": unit.astype(np.int32),
            "edge_term": group.astype(np.int32),
            "edge_weight": first,
            "up_start": Rows.of_keys(group, begin).start,
            "down_start": down.start,
            "down_edge": down.columns,
            "capacity": int(load.max(initial=0)),
            "own_term": own,
        }, place

    def _plain(self, term: Array, parent: Array, of_term: Array) -> dict[str, Array]:
        """Return which terms have one component, no curvature, and only two-valued parents.

        `term` and the kind `parent` belong to each edge, `of_term` has the kind of each term. If
        the term has two values as well, its edges have the product of the two ranges of values.
        """
        states, width, curvature = self._kind_columns()
        two_valued = (states == 2) & (width == 1)
        others = np.bincount(term, weights=~two_valued[parent], minlength=len(of_term))
        plain = ((width == 1) & (curvature == 0))[of_term] & (others == 0)
        pair = plain & two_valued[of_term]
        ranges = np.array([k[3][1] - k[3][0] if len(k[3]) == 2 else 0.0 for k in self.kinds])
        scale = np.where(pair[term], ranges[parent] * ranges[of_term[term]], 0.0)
        return {
            "term_plain": plain.astype(np.int32),
            "term_pair": pair.astype(np.int32),
            "edge_scale": scale,
        }

    def _kind_columns(self) -> tuple[Array, Array, Array]:
        """Return the number of states, the width and the curvature of each kind."""
        columns = zip(*[kind[:3] for kind in self.kinds], strict=True) if self.kinds else ((),) * 3
        states, width, curvature = columns
        whole = np.array(states, dtype=np.int64), np.array(width, dtype=np.int64)
        return *whole, np.array(curvature, dtype=np.float64)

    def _append(
        self, to: dict[str, Group], layer: Layer, sets: int, values: Array, base: Array
    ) -> None:
        """Append a group of units or terms to `to`, and the kind of its items."""
        values = np.asarray(values, dtype=np.float64).reshape(sets, len(base), -1)
        last = next(reversed(to.values()), EMPTY_GROUP)
        to[layer.name] = Group(
            len(self.kinds),
            sets,
            sets * layer.size,
            last.items.stop,
            last.all_states.stop,
            last.comps.stop,
            len(base),
            values.shape[2],
        )
        curvature = 0.0 if layer.unit.curvature is None else layer.unit.curvature
        base = np.array(base, dtype=np.float64)
        self.kinds += [
            (len(base), values.shape[2], curvature, one.ravel().copy(), base) for one in values
        ]

    def _describe(self, groups: dict[str, Group], what: str) -> dict[str, Any]:
        """Return the kind of each item, and the places of its first state and first component."""
        kind = [g.kind + np.arange(g.count, dtype=np.int32) % g.sets for g in groups.values()]
        state = [g.first_state + np.arange(g.count) * g.states for g in groups.values()]
        comp = [g.first_comp + np.arange(g.count) * g.width for g in groups.values()]
        last = next(reversed(groups.values()), EMPTY_GROUP)
        ends = ("states", "comps") if what == "unit" else ("term_states", "term_comps")
        return {
            f"{what}_kind": _joined(kind, np.int32),
            f"{what}_state": _joined(state),
            f"{what}_comp": _joined(comp),
            ends[0]: last.all_states.stop,
            ends[1]: last.comps.stop,
        }

    def _edges(self, arrows: Iterable[Coupling], model: Parameters) -> dict[str, Any]:
        """Return the edges in the order of their terms; the terms of a child share weights."""
        layers, unit, term, place, begin = self.layers, [], [], [], 0
        for c in arrows:
            if c.a in self.units and c.b in self.terms:
                edges = edges_of(c, layers[c.a], layers[c.b], model.weight(c), begin)
                wide = edges.count // max(len(edges.parent), 1)
                sets = self.terms[c.b].sets
                for i in range(sets):
                    unit.append(self.units[c.a].first + edges.parent)
                    term.append(self.terms[c.b].first + edges.child * sets + i)
                    place.append(begin + np.arange(len(edges.parent)) * wide)
                self.edges.append(edges)
                begin += edges.count
        units, terms = len(self.arrays["unit_kind"]), len(self.arrays["term_kind"])
        up = Rows.of_keys(_joined(term), terms)
        unit_of, term_of = _joined(unit)[up.columns], up.rows
        down = Rows.of_keys(unit_of, units)
        self.weight_count, states = begin, self._kind_columns()[0]
        of_unit, of_term = self.arrays["unit_kind"], self.arrays["term_kind"]
        load = np.bincount(
            unit_of, weights=states[of_unit[unit_of]] * states[of_term[term_of]], minlength=units
        )
        return {
            "edge_unit": unit_of.astype(np.int32),
            "edge_term": term_of.astype(np.int32),
            "edge_weight": _joined(place)[up.columns],
            "up_start": up.start,
            "down_start": down.start,
            **self._plain(term_of, of_unit[unit_of], of_term),
            "down_edge": down.columns,
            "capacity": int(load.max(initial=0)),
        }

    def _links(self, model: Parameters) -> dict[str, Any]:
        """Return the terms of natural parameters that are linear in means, as a CSR graph."""
        to, source, share = [], [], []
        for c in self.links:
            for name, other, block in _linear(c, model.weight(c)):
                rows, columns = _places(block)
                source.append(self.units[other].first_comp + rows)
                to.append(self.units[name].first_comp + columns)
                # The bound has the product of two means once, and the terms contain arrows.
                share.append(np.full(len(rows), 0.0 if c.directed else 0.5))
        links = Rows.of_keys(_joined(to), self.arrays["comps"])
        self.order = links.columns
        return {
            "link_start": links.start,
            "link_from": _joined(source)[self.order].astype(np.int32),
            "link_share": _joined(share, np.float64)[self.order],
        }

    def _own(self) -> dict[str, Any]:
        """Return the terms of each child, and whether their power is the child's mean."""
        first, count, complement = [], [], []
        for name, g in self.units.items():
            terms = self.terms.get(name)
            each = 0 if terms is None else terms.sets
            first.append((0 if terms is None else terms.first) + np.arange(g.count) * each)
            count.append(np.full(g.count, each))
            complement.append(np.full(g.count, not self.layers[name].unit.canonical))
        return {
            "own_first": _joined(first),
            "own_count": _joined(count),
            "own_complement": _joined(complement, np.int32),
        }

    def values(self, name: str) -> Array:
        """Return the values of the sums of a directed layer, (sets, K, width)."""
        g = self.terms[name]
        kinds = self.kinds[g.kind : g.kind + g.sets]
        return np.array([kind[3].reshape(g.states, g.width) for kind in kinds])

    def edge_numbers(
        self, weights: Array, by_term: bool, growth: bool = True
    ) -> tuple[Array, Array, Array]:
        """Return the weights of all edges, the growth of odds, and which terms can use it.

        See pgm_tilt_both in net.h. Without `growth`, no term can use it.
        """
        arrays: dict[str, Any] = self.arrays
        if not growth:
            return weights, np.zeros(0), np.zeros(len(arrays["term_kind"]), dtype=np.int32)
        if by_term:
            arrays, place = self._grouped
            weights = np.append(weights, 0.0)[place].reshape(-1, LANES)
        logs = weights[arrays["edge_weight"]]
        logs = logs * (arrays["edge_scale"][:, None] if by_term else arrays["edge_scale"])
        two = arrays["term_pair"]
        if np.abs(logs).max(initial=0.0) > MAX_LOG_GROWTH:
            large = np.abs(logs) > MAX_LOG_GROWTH
            two = two.copy()
            two[arrays["edge_term"][large.any(axis=1) if by_term else large]] = 0
            logs = np.clip(logs, -MAX_LOG_GROWTH, MAX_LOG_GROWTH)
        both = np.empty((logs.shape[0], 2, *logs.shape[1:]))
        np.exp(logs, out=both[:, 0])
        np.exp(-logs, out=both[:, 1])
        return weights.reshape(-1), both.reshape(-1), two

    def weights(self, model: Parameters) -> Array:
        """Return the weights of all edges."""
        out = np.zeros(self.weight_count)
        for e in self.edges:
            out[e.begin + e.place] = numbers(model.weight(e.arrow))
        return out

    def link_weights(self, model: Parameters) -> Array:
        """Return the weights of all links."""
        blocks = [numbers(block) for c in self.links for _, _, block in _linear(c, model.weight(c))]
        return np.ascontiguousarray(_joined(blocks, np.float64)[self.order])


def net_of(model: Parameters, tables: tuple[str, ...], sums: Mapping[str, Sums]) -> Net:
    """Return the net of a model; models of a structure without sparse weights share one net."""
    s = model.structure
    if any(is_sparse(model.weight(c)) for c in s.couplings):
        return Net(model, tables, sums)
    key = "net", tables, tuple((name, len(values)) for name, (values, _) in sums.items())
    net: Net = s.memo.recall(key, lambda: Net(model, tables, sums))
    return net


def scope_arrays(s: Structure, first: dict[str, int], units: int) -> dict[str, Any]:
    """Return the arrays of all tables; `first` is the number of the first unit of each layer."""
    index = s.table_index
    number = np.full(s.units, -1, dtype=np.int64)
    own = np.full(units, -1, dtype=np.int64)
    for name, begin in first.items():
        there = np.arange(begin, begin + s.layers[name].size)
        number[s.slices[name]], own[there] = there, s.child_tables[name]
    axis_unit = number[index.unit]
    axes = Rows.of_keys(axis_unit, units)
    return {
        "table_start": index.start,
        "table_entry": index.first,
        "axis_unit": axis_unit,
        "axis_table": index.table.astype(np.int64),
        "axis_stride": index.stride,
        "in_start": axes.start,
        "in_axis": axes.columns,
        "own_table": own,
    }


def edges_of(c: Coupling, a: Layer, b: Layer, weight: Weight, begin: int) -> Edges:
    """Return all pairs of units, or the pairs with an entry in a sparse weight."""
    wa, wb = a.unit.width, b.unit.width
    row, column = _places(weight)
    pairs: Array = (row // wa) * b.size + column // wb
    if is_sparse(weight):
        pairs, at = np.unique(pairs, return_inverse=True)
    else:
        at, pairs = pairs, np.arange(a.size * b.size)
    place = at.ravel() * wa * wb + (row % wa) * wb + column % wb
    return Edges(c, pairs // b.size, pairs % b.size, place, begin, len(pairs) * wa * wb)


def _linear(c: Coupling, weight: Weight) -> list[tuple[str, str, Weight]]:
    """Return the blocks (to, from, M) of a coupling: to the child, or both ways if undirected."""
    blocks = list(c.blocks(weight))
    return blocks[:1] if c.directed else blocks


def _places(weight: Weight) -> tuple[Array, Array]:
    """Return the rows and columns of the numbers of a weight."""
    if is_sparse(weight):
        entries = weight.tocoo()
        # scipy has places of 32 bits, and pairs of large layers have larger numbers.
        return entries.row.astype(np.int64), entries.col.astype(np.int64)
    row, column = np.divmod(np.arange(weight.size), max(weight.shape[1], 1))
    return row, column


def _joined(parts: list[Array], dtype: type = np.int64) -> Array:
    """Return the arrays joined in one, which is empty if there are none."""
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype, copy=False)
