"""Symmetries of a start: permutations of latent units, states and parameters that change nothing.

If a permutation of the latent units and of their states maps every term of the log density onto a
term with the same number, and observed units onto themselves, then the numbers that it permutes
have the same derivatives and the same expected counts. Learning that begins there keeps them equal
for ever: two latent units, layers, or steps of two chains never become different.

Colour refinement finds such numbers (Weisfeiler and Leman 1968; for probabilistic models Kersting,
Ahmadi and Natarajan 2009). The vertices are units, their states, the components of their values,
the places of terms entry by entry, and the stored numbers of all parameters. A number has a colour
for its value, an observed unit has a colour of its own, and latent units of one kind have one
colour. In each round the colour of a vertex becomes a hash of itself and of the colours of its
neighbours, until no colour splits any more. Numbers that are then alike, and belong to latent
units, states or components that are alike, are what a permutation would exchange. The sums of
hashes have 64 bits, so that a chance collision is out of the question. Only vertices next to those
that have changed are looked at again, so that a long chain takes many small rounds.

The rows of all lengths of a template have one graph, in which the numbers are common vertices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from pgmengine.base.equal_rows import distinct
from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.evidence.relevance import has_soft, informed_units
from pgmengine.evidence.target import Target
from pgmengine.learn.starting.told_apart import told_apart
from pgmengine.model.couplings import Coupling
from pgmengine.model.forms.gate import Steps
from pgmengine.model.forms.table_forms import Leaves
from pgmengine.model.graph.unit_graph import units_of
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure
from pgmengine.model.terms.term import Term
from pgmengine.model.weights import acting, is_sparse, like, numbers

# Kinds of vertices and of edges, which enter the hashes.
LATENT, OBSERVED, NUMBER, PLACE = 1, 2, 3, 4
OF_UNIT, PARENT, CHILD, MEMBER, VALUE = 11, 12, 13, 14, 15
# Kinds of numbers.
CONDITIONAL, TABLE, ARROW, LINK, BIAS = 21, 22, 23, 24, 25
# The largest share of all vertices that are sorted, and not marked in an array of all of them.
MOST_SORTED_SHARE = 0.02
# Bits of a number that count; the others may be rounding.
KEPT_BITS = 40


@dataclass(frozen=True, eq=False)
class Symmetry:
    """Numbers of parameters that learning would keep alike.

    Attributes
    ----------
    masks : parameter -> mask of these numbers, in the shape of the parameter.
    units, states : names of the latent units that are exchangeable, and of those whose states are.
    """

    masks: Mapping[str, Array] = field(default_factory=dict)
    units: Sequence[str] = ()
    states: Sequence[str] = ()


def latent_units(target: Target) -> Array:
    """Return a mask of the units that no row observes, in the order of the layers."""
    return np.concatenate([distinct(f).all(axis=0) for f in target.free.values()])


def learned_latents(target: Target, given: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return masks of the latent units without evidence of any kind, and of the informed units."""
    informed = informed_units(target, given)
    soft = [
        has_soft(target, name).any(axis=0) if name in target.soft else np.zeros(layer.size, bool)
        for name, layer in target.structure.layers.items()
    ]
    return latent_units(target) & informed & ~np.concatenate(soft), informed


def symmetry_of(
    model: Model,
    rows: Sequence[tuple[Target, Mapping[str, Array]]],
    fixed: Mapping[str, Array],
    labels: Mapping[str, Array],
) -> Symmetry:
    """Return the numbers that a permutation of latent units and states would exchange.

    The parameters are those of `exchangeable`.
    """
    graph = _Graph(model, fixed, labels)
    if not graph.has_equal_numbers():
        return Symmetry()
    parts = [(target, *_latents(target, given)) for target, given in rows]
    if told_apart(
        model,
        graph.colours_by_parameter(),
        [(t.structure, latent, informed) for t, latent, informed in parts],
    ):
        return Symmetry()
    for target, latent, informed in parts:
        graph.add_rows(target, latent, informed)
    return graph.symmetry() if graph.some_latent else Symmetry()


def _latents(target: Target, given: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return masks of the latent units that the data inform, and of all informed units."""
    latent, informed = learned_latents(target, given)
    # The auxiliary variables of a gate stand in the order of its parents, which is arbitrary.
    for name in target.structure.auxiliary:
        latent[target.structure.slices[name]] = False
    return latent, informed


class _Graph:
    """The coloured graph of the rows of one or of several models that share parameters."""

    def __init__(
        self, model: Model, fixed: Mapping[str, Array], labels: Mapping[str, Array]
    ) -> None:
        s = model.structure
        sizes = {key: numbers(value).size for key, value in model.params.items()}
        ends = np.cumsum([0, *sizes.values()])
        self.model = model
        self.first = dict(zip(sizes, ends[:-1].tolist(), strict=True))
        self.sizes = sizes
        stays = {key: np.ravel(mask) for key, mask in fixed.items()}
        self.fixed = _joined(stays.get(key, np.zeros(n, dtype=bool)) for key, n in sizes.items())
        self.own = _joined(
            _hashed(
                NUMBER,
                _kind(s, key),
                rounded(numbers(value)),
                np.ravel(labels[key]) if key in labels else np.zeros(sizes[key]),
                _contributions(s, key, sizes[key]),
                stays.get(key, np.zeros(sizes[key], dtype=bool)),
            )
            for key, value in model.params.items()
        )
        # Numbers in no place with a latent unit, or also in one without, have colours of their own.
        self.used, self.pinned = np.zeros(len(self.own), bool), np.zeros(len(self.own), bool)
        self.colours = [self.own]
        self.count = len(self.own)
        self.edges: list[tuple[Array, Array, Array]] = []
        # The first vertex of each group of units, states and components, and their units by name.
        self.shown: list[tuple[Array, Array, Structure, bool]] = []
        self.some_latent = False

    def has_equal_numbers(self) -> bool:
        """Return whether two numbers that may learn have one colour; biases alone do not count."""
        s = self.model.structure
        some = np.repeat([_kind(s, key) != BIAS for key in self.sizes], [*self.sizes.values()])
        free = self.own[~self.fixed & some]
        return len(np.unique(free)) < len(free)

    def colours_by_parameter(self) -> dict[str, Array]:
        """Return the colours of the numbers of each parameter."""
        return {key: self.own[at : at + self.sizes[key]] for key, at in self.first.items()}

    def add_rows(self, target: Target, latent: Array, informed: Array) -> None:
        """Add the units and terms of the rows of one model."""
        self.some_latent |= bool(latent.any())
        _Part(self, target.model, latent, informed).add()

    def vertices(self, colours: Array) -> Array:
        """Add vertices with these colours, and return their numbers."""
        self.colours.append(colours)
        self.count += len(colours)
        return np.arange(self.count - len(colours), self.count)

    def join(self, one: Array, two: Array, kind: int) -> None:
        """Add edges of a kind between vertices."""
        self.edges.append((one, two, np.full(len(one), kind, dtype=np.uint64)))

    def symmetry(self) -> Symmetry:
        """Refine the colours, and return the numbers that remain alike."""
        alone = self.pinned | ~self.used
        self.own[alone] = _hashed(np.flatnonzero(alone), OBSERVED)
        free = np.flatnonzero(~alone & ~self.fixed)
        edges = map(_joined, zip(*self.edges, strict=True))
        colour = _refined(_joined(self.colours), free, *edges)
        several = np.bincount(colour)[colour] > 1
        units, states = self._named(colour)
        movable = np.zeros(self.count, dtype=bool)
        for vertices, *_ in self.shown:
            movable[vertices] = several[vertices]
        found = (several & self._beside(movable))[: len(self.own)] & ~self.fixed & ~alone
        masks = {key: found[begin : begin + self.sizes[key]] for key, begin in self.first.items()}
        params = self.model.params
        shaped = {
            key: mask if is_sparse(params[key]) else mask.reshape(np.shape(params[key]))
            for key, mask in masks.items()
            if mask.any()
        }
        return Symmetry(shaped, units, states) if shaped else Symmetry()

    def _beside(self, movable: Array) -> Array:
        """Return the vertices next to some, or next to a place that is next to some."""
        near = movable.copy()
        for one, two, _ in self.edges:
            near[one[movable[two]]] = True
        out = near.copy()
        for one, two, kind in self.edges:
            out[two[(kind == VALUE) & near[one]]] = True
        return out

    def _named(self, colour: Array) -> tuple[list[str], list[str]]:
        """Return the names of units that share a colour, and of units whose states do."""
        units, states = dict[str, None](), dict[str, None]()
        for vertices, owner, s, by_unit in self.shown:
            keys = colour[vertices] if by_unit else colour[vertices] * s.units + owner
            _, at, count = np.unique(keys, return_inverse=True, return_counts=True)
            for unit in np.unique(owner[count[at] > 1]).tolist():
                (units if by_unit else states)[repr(s.names.of(s.names.at(unit)))] = None
        return list(units), list(states)


@dataclass(frozen=True, eq=False)
class _Gate:
    """A gate at all of its places.

    Attributes
    ----------
    key, rows : its parameter, and the number of its rows.
    parents, child : (places, parents) and (places,) units over all layers.
    chosen : for each parent, the row of each of its states.
    alone : the rows that no parent chooses.
    """

    key: str
    rows: int
    parents: Array
    child: Array
    chosen: Sequence[Sequence[int]]
    alone: Sequence[int]


def _gates(s: Structure) -> Iterator[_Gate]:
    """Yield the gates of a structure, also those that stand as their parts."""
    whole = list[list[Term]]()
    for t in s.tables:
        if isinstance(t.form, Steps):
            # Parts of a gate follow each other; the chain of the first has one state before it.
            if t.form.steps[0].rows.shape[0] == 1:
                whole.append([])
            whole[-1].append(t)
    for parts in whole:
        parents, chosen, alone = list[Array](), list[list[int]](), set[int]()
        for t in parts:
            assert isinstance(t.form, Steps)
            units = t.index + [s.first_unit[name] for name in t.layers]
            # In a part, the auxiliary variable before comes first.
            axis = units.shape[1] - 1 - t.form.parents
            for step in t.form.steps:
                if step.has_parent:
                    parents.append(units[:, axis])
                    axis += 1
                    chosen.append(step.rows[0].tolist())
                else:
                    alone |= set(step.rows.ravel().tolist())
        child = parts[-1].index[:, -1] + s.first_unit[parts[-1].layers[-1]]
        rows, places = parts[0].form.size[0] if parts[0].form else 0, len(child)
        joint = np.stack(parents, axis=1) if parents else np.zeros((places, 0), dtype=np.int64)
        yield _Gate(parts[0].key, rows, joint, child, chosen, sorted(alone))


def _contributions(s: Structure, key: str, size: int) -> Array:
    """Return the contribution that each number of a gate belongs to; 0 for other parameters."""
    form = s.table_groups[key].form if key in s.table_groups else None
    return np.arange(size) % form.size[1] if isinstance(form, Steps) else np.zeros(size)


class _Part:
    """The units and terms of one model, as vertices of a graph."""

    def __init__(self, graph: _Graph, model: Parameters, latent: Array, informed: Array) -> None:
        s = model.structure
        self.graph, self.model, self.s = graph, model, s
        self.latent, self.informed = latent, informed
        every = units_of(s)
        self.owner = every.owner
        name = np.repeat(np.arange(len(s.layers)), [x.size for x in s.layers.values()])
        kinds = np.array([_text(repr(x.unit)) for x in s.layers.values()], dtype=np.uint64)
        own = np.arange(s.units) + graph.count
        self.unit = graph.vertices(
            np.where(latent, _hashed(LATENT, kinds[name]), _hashed(OBSERVED, own))
        )
        graph.shown.append((self.unit[latent], np.flatnonzero(latent), s, True))
        # States of a unit whose values count are not exchanged.
        free = latent & np.repeat(self._by_states_alone(), [x.size for x in s.layers.values()])
        self.state_of = np.repeat(np.arange(s.units), every.states)
        self.first_state = np.cumsum(every.states) - every.states
        self.state = self._parts_of_units(self.state_of, self.first_state, free)
        one_hot = np.repeat(
            [x.unit.one_hot for x in s.layers.values()], [x.size for x in s.layers.values()]
        )
        self.component = self._parts_of_units(self.owner, every.component, latent & one_hot)
        both = np.flatnonzero(one_hot[self.owner])
        states = self.first_state[self.owner[both]] + both - every.component[self.owner[both]]
        graph.join(self.component[both], self.state[states], OF_UNIT)

    def _by_states_alone(self) -> list[bool]:
        """Return for each layer whether all states of its units may be exchanged."""
        s = self.s
        valued = {name for c in s.couplings for name in (c.a, c.b)} | s.with_base
        valued |= {name for t in s.shared for name in t.layers}
        valued |= {name for name, units in s.has_bias.items() if units.any()}
        return [
            name not in valued or (x.unit.one_hot and name not in s.with_base)
            for name, x in s.layers.items()
        ]

    def _parts_of_units(self, owner: Array, first: Array, free: Array) -> Array:
        """Return vertices of states or components, numbered where they are not exchanged."""
        number = np.where(free[owner], 0, np.arange(len(owner)) - first[owner] + 1)
        found = self.graph.vertices(_hashed(number, VALUE))
        self.graph.join(found, self.unit[owner], OF_UNIT)
        latent = self.latent[owner]
        self.graph.shown.append((found[latent], owner[latent], self.s, False))
        return found

    def add(self) -> None:
        """Add the terms."""
        for t in self.s.tables:
            if isinstance(t.form, Steps):
                continue
            self._add_tables(t)
        for gate in _gates(self.s):
            self._add_gate(gate)
        for c in self.s.couplings:
            if c in self.s.weighted:
                self._add_weight(c)
            for term in self.s.expansion.terms(f"{c.key}.weight"):
                self._add_places(term.key, term.numbers, c, term.rows, term.columns, term.factor)
        for name, layer in self.s.layers.items():
            first = units_of(self.s).first_component[name]
            mine = np.flatnonzero(layer.components(self.s.has_bias[name]))
            self._add_entries(f"{name}.bias", mine, [(first + mine, MEMBER)], None)
            for term in self.s.expansion.terms(f"{name}.bias"):
                at = first + term.columns
                self._add_entries(term.key, term.numbers, [(at, MEMBER)], term.factor)

    def _add_tables(self, t: Term) -> None:
        """Add the entries of tables in places with a latent unit."""
        s = self.s
        units = t.index + np.array([s.first_unit[name] for name in t.layers])
        cards = [s.state_counts[name] for name in t.layers]
        size = int(np.prod(cards))
        if isinstance(t.form, Leaves):
            begin = np.full(len(units), self.graph.first[t.key])
            entries = t.form.number_of_entry.ravel()
        else:
            begin, entries = self.graph.first[t.key] + t.numbers * size, np.arange(size)
        mine = self.informed[units[:, -1]] if t.conditional else np.ones(len(units), dtype=bool)
        some = mine & self.latent[units].any(axis=1)
        whole = begin[mine & ~some, None] + entries
        self.graph.pinned[whole.ravel()] = True
        units, begin = units[some], begin[some]
        if not len(units):
            return
        at = (begin[:, None] + entries).ravel()
        self.graph.used[at] = True
        place = self.graph.vertices(_hashed(np.zeros(len(at), dtype=np.int64), PLACE))
        self.graph.join(place, at, VALUE)
        for axis, states in enumerate(np.unravel_index(np.arange(size), cards)):
            last = axis + 1 == len(cards)
            kind = (CHILD if last else PARENT) if t.conditional else MEMBER
            ends = self.state[(self.first_state[units[:, axis], None] + states).ravel()]
            self.graph.join(place, ends, kind)

    def _add_gate(self, gate: _Gate) -> None:
        """Add a gate as a star: its parents may change places with their rows of numbers.

        Its centre is joined with the child, the rows that no parent chooses, and a vertex for each
        state of each parent, which is joined with its row.
        """
        graph, parents = self.graph, gate.parents
        latent = self.latent[parents].any(axis=1) | self.latent[gate.child]
        every = graph.first[gate.key] + np.arange(graph.sizes[gate.key])
        if (self.informed[gate.child] & ~latent).any():
            graph.pinned[every] = True
        some = self.informed[gate.child] & latent
        if not some.any():
            return
        graph.used[every] = True
        draws = graph.sizes[gate.key] // gate.rows

        def row(number: int) -> Array:
            return np.asarray(graph.first[gate.key] + number * draws + np.arange(draws))

        centre = graph.vertices(_hashed(np.zeros(np.count_nonzero(some), dtype=np.int64), PLACE))
        graph.join(centre, self.unit[gate.child[some]], CHILD)
        for number in gate.alone:
            graph.join(np.repeat(centre, draws), np.tile(row(number), len(centre)), VALUE)
        for axis, rows in enumerate(gate.chosen):
            for state, number in enumerate(rows):
                colours = _hashed(np.ones(len(centre), dtype=np.int64), PLACE)
                place = graph.vertices(colours)
                graph.join(place, centre, MEMBER)
                graph.join(np.repeat(place, draws), np.tile(row(number), len(place)), VALUE)
                ends = self.first_state[parents[some, axis]] + state
                graph.join(place, self.state[ends], PARENT)

    def _add_weight(self, c: Coupling) -> None:
        """Add the numbers of the weight of a coupling."""
        key = f"{c.key}.weight"
        weight = self.model.params[key]
        # Their numbers, counted from 1.
        count = like(weight, np.arange(1.0, numbers(weight).size + 1))
        kept = c.parameters(weight)
        if is_sparse(count):
            count = like(count, count.data * (kept.data != 0))
        rows, columns, number = acting(count if is_sparse(count) else count * (kept != 0))
        if c.lateral:
            # Both entries of a pair are one number.
            some = rows < columns
            rows, columns, number = rows[some], columns[some], number[some]
        self._add_places(key, number.astype(np.int64) - 1, c, rows, columns, None)

    def _add_places(
        self,
        key: str,
        number: Array,
        c: Coupling,
        rows: Array,
        columns: Array,
        factor: float | None,
    ) -> None:
        """Add entries of a parameter between components of the two layers of a coupling."""
        first = units_of(self.s).first_component
        kinds = (PARENT, CHILD) if c.directed else (MEMBER, MEMBER)
        ends = first[c.a] + rows, first[c.b] + columns
        self._add_entries(key, number, list(zip(ends, kinds, strict=True)), factor)

    def _add_entries(
        self, key: str, number: Array, ends: Sequence[tuple[Array, int]], factor: float | None
    ) -> None:
        """Add entries of a parameter at components, of which the last may belong to a child.

        Entries with a factor are places of shared numbers; others are the numbers themselves.
        """
        if numbers(self.model.params[key]).size != self.graph.sizes.get(key):
            # The biases of an array, which stay as they are declared.
            return
        owners = np.stack([self.owner[at] for at, _ in ends])
        mine, latent = self.informed[owners[-1]], self.latent[owners].any(axis=0)
        at = self.graph.first[key] + number
        self.graph.pinned[at[mine & ~latent]] = True
        some = mine & latent
        self.graph.used[at[some]] = True
        place = at[some]
        if factor is not None:
            place = self.graph.vertices(_hashed(np.full(len(place), factor), PLACE))
            self.graph.join(place, at[some], VALUE)
        for end, kind in ends:
            self.graph.join(place, self.component[end[some]], kind)


def _refined(colours: Array, free: Array, one: Array, two: Array, kind: Array) -> Array:
    """Return classes of vertices, when the neighbours of a class split it no more.

    In each round only vertices next to one that has changed its class are looked at. Those of a
    class are divided by the sums of hashes of their neighbours; the others of the class, whose sum
    has not changed, keep its number. Rounds also end when all the numbers that may learn, `free`,
    have classes of their own.
    """
    start, end = np.concatenate([one, two]), np.concatenate([two, one])
    order = np.argsort(end, kind="stable")
    near = _Neighbours(start[order], end[order], np.concatenate([kind, kind])[order], len(colours))
    _, classes = np.unique(colours, return_inverse=True)
    sizes = np.bincount(classes)
    front = np.arange(len(colours))
    while len(front) and len(np.unique(classes[free])) < len(free):
        group, first, size = _groups(classes[front], near.sums(front, classes))
        old = classes[front[first]]
        # Of a class that is looked at as a whole, one group keeps the number.
        whole = np.bincount(old, size, minlength=len(sizes))[old] == sizes[old]
        keeps = whole & np.append(True, old[1:] != old[:-1])
        new = old.copy()
        new[~keeps] = len(sizes) + np.arange(np.count_nonzero(~keeps))
        sizes = np.append(sizes, size[~keeps])
        np.subtract.at(sizes, old[~keeps], size[~keeps])
        classes[front] = new[group]
        front = near.after(front[~keeps[group]])
    return classes


def _groups(classes: Array, sums: Array) -> tuple[Array, Array, Array]:
    """Return the group of each pair of numbers, a member of each group, and the size of each.

    Groups are in the order of their classes.
    """
    order = np.lexsort((sums, classes))
    one, two = classes[order], sums[order]
    begins = np.append(True, (one[1:] != one[:-1]) | (two[1:] != two[:-1]))
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(begins) - 1
    at = np.flatnonzero(begins)
    return group, order[at], np.diff(np.append(at, len(order)))


class _Neighbours:
    """The edges of a graph both ways, by the vertex at which they end."""

    def __init__(self, start: Array, end: Array, kind: Array, count: int) -> None:
        self.start, self.kind = start, kind
        self.first = np.searchsorted(end, np.arange(count + 1))

    def _edges(self, vertices: Array) -> tuple[Array, Array]:
        """Return the edges that end at some vertices, and how many each of them has."""
        lengths = self.first[vertices + 1] - self.first[vertices]
        begin = np.cumsum(lengths) - lengths
        edges = np.repeat(self.first[vertices] - begin, lengths) + np.arange(lengths.sum())
        return edges, lengths

    def sums(self, vertices: Array, classes: Array) -> Array:
        """Return the sum over the edges of each vertex of hashes of their neighbours' classes."""
        edges, lengths = self._edges(vertices)
        hashes = _hashed(classes[self.start[edges]], self.kind[edges])
        # Differences of running sums, which are right because they are taken modulo 2^64.
        total = np.append(np.zeros(1, dtype=np.uint64), np.cumsum(hashes, dtype=np.uint64))
        ends = np.cumsum(lengths)
        return np.asarray(total[ends] - total[ends - lengths])

    def after(self, vertices: Array) -> Array:
        """Return the neighbours of some vertices."""
        found = self.start[self._edges(vertices)[0]]
        if len(found) < MOST_SORTED_SHARE * len(self.first):
            return np.unique(found)
        mask = np.zeros(len(self.first) - 1, dtype=bool)
        mask[found] = True
        return np.flatnonzero(mask)


def _hashed(*parts: object) -> Array:
    """Return hashes (n,) of some numbers, each (n,) or a single one (splitmix64)."""
    out: Array = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            found = np.asarray(part)
            if found.dtype.kind == "f":
                found = found.astype(np.float64).view(np.uint64)
            out = (out + found.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                out = (out ^ (out >> np.uint64(shift))) * np.uint64(factor)
            out = out ^ (out >> np.uint64(31))
    return out


def rounded(values: Array) -> Array:
    """Return numbers without their last digits, so that those that differ by rounding are equal."""
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0))
    # The sum makes one zero of both signs of zero, whose bits differ.
    kept = np.ldexp(np.round(np.ldexp(mantissa, KEPT_BITS)), exponent - KEPT_BITS) + 0.0
    return np.where(finite, kept, values)


def _text(text: str) -> int:
    """Return a hash of a text, the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _kind(s: Structure, key: str) -> int:
    """Return the kind of the numbers of a parameter."""
    t = s.parameters[key]
    if t.is_table:
        return CONDITIONAL if t.conditional else TABLE
    return BIAS if t.is_bias else ARROW if t.directed else LINK


def _joined(parts: Iterator[Array] | Sequence[Array]) -> Array:
    """Return arrays one after the other."""
    return np.concatenate(list(parts))
