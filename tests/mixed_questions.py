"""Random questions whose rows differ in every way that rows may differ in.

A question is a random graph with 1 to 40 rows. Rows differ in evidence pattern (nothing to
everything observed), values, soft evidence, interventions, and in whether they are possible at all;
some repeat, in any order. Graphs are those of random_graphs.py, and two kinds made here: networks
whose tables have mostly zeros, so that the value of a unit decides how many states others have
left, and layers of finite units with dense or sparse couplings.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from brute import grid
from random_graphs import (
    Graph,
    Layer,
    Oracle,
    Table,
    as_arguments,
    as_hints,
    by_state,
    complete,
    forceable,
    hinted,
    random_causes,
    random_graph,
)

import pgmengine as pgm

MOST_ROWS = 40
MOST_STATES = 2**10


@dataclass(frozen=True, eq=False)
class Row:
    """One row, as the oracle takes it: (layer, unit) -> number of a state, or log weights."""

    evidence: dict
    soft: dict
    do: dict


@dataclass(frozen=True, eq=False)
class Question:
    """A graph and rows of evidence."""

    seed: int
    graph: Graph
    rows: tuple

    def arguments(self, index=None):
        """The arguments of `infer` for some rows, in their order; they have an axis of rows."""
        some = [self.rows[i] for i in (range(len(self.rows)) if index is None else index)]
        asked = [(row.evidence, row.soft, row.do) for row in some]
        found = {
            "evidence": as_arguments(self.graph, asked, 0),
            "soft": as_hints(self.graph, asked),
            "do": as_arguments(self.graph, asked, 2),
        }
        if not any(found.values()):
            first = next(iter(self.graph.layers.values()))
            found["evidence"][first.name] = np.full((len(some), first.size), np.nan)
        return {name: value for name, value in found.items() if value}

    @functools.cached_property
    def oracles(self):
        """The enumeration of the states of every row; equal rows share one."""
        known = {}
        for row in self.rows:
            if id(row) not in known:
                known[id(row)] = Oracle(self.graph, row.evidence, row.soft, row.do)
        return [known[id(row)] for row in self.rows]

    @functools.cached_property
    def priors(self):
        """log Z of every row without evidence, but for the values of Input units."""
        known, keys = {}, []
        for row in self.rows:
            given = {u: x for u, x in row.evidence.items() if u in inputs_of(self.graph)}
            keys.append((tuple(sorted(row.do.items())), tuple(sorted(given.items()))))
            if keys[-1] not in known:
                known[keys[-1]] = Oracle(self.graph, given, do=row.do).log_z
        return np.array([known[key] for key in keys])

    @functools.cached_property
    def possible(self):
        """The rows with a positive probability."""
        return [i for i, oracle in enumerate(self.oracles) if np.isfinite(oracle.log_z)]


def question(seed, most_states=MOST_STATES, most_rows=MOST_ROWS):
    """Draw a question; its seed is not shifted with those of tests, so that it can be redone."""
    rng = np.random.default_rng([31, seed])
    graph = _graph(rng, most_states)
    return Question(seed, graph, tuple(_rows(graph, rng, most_rows)))


def _graph(rng, most_states):
    """A graph of one of the kinds with some possible state."""
    kinds = (_any, _with_leaves, random_causes, mostly_zeros, gated, coupled)
    while True:
        if rng.random() < 0.05:
            return with_inputs(int(rng.integers(2**31)), most_states)
        kind = kinds[rng.choice(len(kinds), p=[0.2, 0.05, 0.25, 0.1, 0.25, 0.15])]
        graph = kind(int(rng.integers(2**31)), most_states)
        complete(graph)
        if np.isfinite(Oracle(graph).log_z):
            return graph


def _any(seed, most_states):
    return random_graph(seed, most_states)


def _with_leaves(seed, most_states):
    return random_graph(seed, min(most_states, 2**6), leaves=True)


def mostly_zeros(seed, most_states):
    """A network of variables of 1 to 6 states, most entries of whose tables are 0."""
    rng = np.random.default_rng([37, seed])
    while True:
        graph = Graph()
        for i in range(rng.integers(3, 9)):
            _add_variable(graph, f"x{i}", int(rng.choice([1, 2, 2, 2, 3, 4, 6])))
        if math.prod(states_of(graph, u) for u in graph.units) <= most_states:
            break
    share, units = rng.choice([0.3, 0.6, 0.8]), graph.units
    directed = rng.random() < 0.7

    def add(scope, conditional):
        values = rng.gamma(1.0, size=[states_of(graph, u) for u in scope]) + 0.01
        values[rng.random(values.shape) < share] = 0.0
        # The first state is possible, whatever the others are.
        values[..., 0] += 0.02
        _add_table(graph, scope, values, conditional)

    for k, place in enumerate(units):
        if directed and rng.random() < 0.9:
            few = rng.permutation(k)[: rng.integers(0, 4)]
            add((*(units[i] for i in few), place), True)
    for _ in range(rng.integers(0, 3) if directed else rng.integers(3, 9)):
        add(tuple(units[i] for i in rng.permutation(len(units))[: rng.integers(1, 4)]), False)
    return graph


def gated(seed, most_states):
    """Variables of many states, of which the first state of a gate leaves one or two.

    Rows of one evidence pattern then have trees of very different sizes.
    """
    rng = np.random.default_rng([47, seed])
    while True:
        graph = Graph()
        for i in range(rng.integers(1, 3)):
            _add_variable(graph, f"g{i}", int(rng.integers(2, 4)))
        gates = graph.units
        for i in range(rng.integers(2, 6)):
            _add_variable(graph, f"x{i}", int(rng.integers(2, 7)))
        if math.prod(states_of(graph, u) for u in graph.units) <= most_states:
            break
    others = [u for u in graph.units if u not in gates]
    conditional = rng.random() < 0.5
    for place in others:
        gate = gates[rng.integers(len(gates))]
        values = rng.gamma(1.0, size=(states_of(graph, gate), states_of(graph, place))) + 0.1
        values[0, rng.integers(1, 3) :] = 0.0
        _add_table(graph, (gate, place), values, conditional)
    for i in range(len(others)):
        for j in range(i):
            if rng.random() < 0.7:
                scope = others[i], others[j]
                _add_table(graph, scope, rng.gamma(1.0, size=[states_of(graph, u) for u in scope]))
    return graph


def _add_variable(graph, name, k):
    unit = pgm.Constant() if k == 1 else pgm.Binary() if k == 2 else pgm.Categorical(k)
    graph.layers[name] = Layer(name, unit, 1, np.zeros((1, k if k > 2 else 1)), named=True)


def _add_table(graph, scope, values, conditional=False):
    """Add a table, unless there is one over these units."""
    if any(set(scope) == set(t.scope) for t in graph.tables):
        return
    if conditional:
        values = values / values.sum(axis=-1, keepdims=True)
    graph.tables.append(Table(scope, values, conditional))


def coupled(seed, most_states):
    """Two or three layers of finite units with couplings or arrows, some of whose weights are 0."""
    rng = np.random.default_rng([41, seed])
    units = (pgm.Binary(), pgm.Spin(), pgm.MultiValued(2), pgm.Categorical(3))
    while True:
        graph = Graph(sparse=bool(rng.random() < 0.3))
        for name in "vhw"[: rng.integers(2, 4)]:
            unit = units[rng.choice(4, p=[0.5, 0.2, 0.15, 0.15])]
            size, width = int(rng.integers(1, 7)), unit.width
            graph.layers[name] = Layer(name, unit, size, rng.normal(0, 0.5, (size, width)))
        if math.prod(states_of(graph, u) for u in graph.units) > most_states:
            continue
        names, keep = list(graph.layers), rng.choice([0.5, 1.0])
        directed = rng.random() < 0.35
        for a, b in zip(names, names[1:], strict=False):
            one, two = graph.layers[a], graph.layers[b]
            weight = rng.normal(0, 1, (one.size * one.width, two.size * two.width))
            weight = weight * (rng.random(weight.shape) < keep)
            (graph.causes if directed else graph.couples).append((a, b, weight))
        return graph


def with_inputs(seed, most_states):
    """Coupled layers with a layer of Input units above or beside the first one."""
    graph, rng = coupled(seed, most_states // 2), np.random.default_rng([53, seed])
    size = int(rng.integers(1, 3))
    first = next(iter(graph.layers.values()))
    weight = rng.normal(0, 1, (size, first.size * first.width))
    (graph.causes if rng.random() < 0.5 else graph.couples).append(("i", first.name, weight))
    graph.layers = {"i": Layer("i", pgm.Input(), size, np.zeros((size, 1))), **graph.layers}
    return graph


def inputs_of(graph):
    """The units that every row observes."""
    return [u for u in graph.units if isinstance(graph.layers[u[0]].unit, pgm.Input)]


def states_of(graph, place):
    """The number of states of a unit."""
    return 1 if isinstance(graph.layers[place[0]].unit, pgm.Constant) else _count(graph, place)


def _count(graph, place):
    support = graph.layers[place[0]].unit.support
    return 2 if support is None else len(support)


def _rows(graph, rng, most_rows):
    """Rows of one of several sorts, in random order."""
    count = int(rng.choice([1, 2, 4, 6, 10, 12, 20, most_rows], p=[0.05, *[0.15] * 6, 0.05]))
    sort = rng.choice(["any", "one pattern", "rare patterns", "equal rows"], p=[0.2, 0.2, 0.4, 0.2])
    draw, patterns = _Draw(graph, rng), count
    if sort == "rare patterns":
        # Each has fewer rows than have a tree of their own.
        patterns = int(rng.choice([2, 3, 4, 9]))
        count = min(most_rows, patterns * int(rng.integers(1, 7)))
    elif sort != "any":
        patterns = 1 if sort == "one pattern" else 2
    made = [draw.pattern() for _ in range(patterns)]
    distinct = 3 if sort == "equal rows" else count
    rows = [draw.row(*made[i % len(made)]) for i in range(distinct)]
    rows += [rows[rng.integers(len(rows))] for _ in range(count - len(rows))]
    # Some rows repeat, whatever sort they are.
    rows += [rows[i] for i in rng.permutation(len(rows))[: rng.integers(0, 3)]]
    return [rows[i] for i in rng.permutation(len(rows))][:most_rows]


class _Draw:
    """Patterns and rows of one question."""

    def __init__(self, graph, rng):
        self.graph, self.rng = graph, rng
        self.known, self.inputs = {}, inputs_of(graph)
        self.hintable = [u for u in graph.units if u not in self.inputs and hinted(graph, u)]
        self.settable = [u for u in graph.units if forceable(graph, u)]
        self.soft = rng.choice([0.0, 0.3, 0.7], p=[0.4, 0.3, 0.3])
        self.do = rng.choice([0.0, 0.4], p=[0.6, 0.4])
        self.impossible = rng.choice([0.0, 0.3], p=[0.8, 0.2])
        # Some rows have equal values of Input units.
        self.values = rng.normal(0, 1, (2, len(self.inputs)))

    def pattern(self):
        """The observed units and those that do() sets."""
        graph, rng = self.graph, self.rng
        if rng.random() < 0.4:
            few = rng.permutation(len(graph.units))[: rng.integers(1, 3)]
            seen = [graph.units[i] for i in sorted(few)]
        else:
            share = rng.choice([0.0, 0.2, 0.5, 0.8, 1.0])
            seen = [u for u in graph.units if rng.random() < share]
        if rng.random() < 0.3 and graph.units[0] not in seen:
            # The first unit is a gate in some graphs.
            seen = [graph.units[0], *seen]
        cut = [u for u in self.settable if rng.random() < 0.3] if rng.random() < self.do else []
        return seen, cut

    def row(self, seen, cut):
        """A row with a pattern; it is a draw of the model unless it may be impossible."""
        graph, rng = self.graph, self.rng
        do = {u: int(rng.integers(states_of(graph, u))) for u in cut}
        given = dict(zip(self.inputs, self.values[rng.integers(2)].tolist(), strict=True))
        oracle = self._oracle(do, given)
        if np.isneginf(oracle.log_z):
            do, oracle = {}, self._oracle({}, given)
        p = oracle.p
        if seen and rng.random() < 0.6:
            # Rare states of a unit are as frequent as all others.
            k = int(rng.integers(len(seen))) if rng.random() < 0.5 else 0
            mine = oracle.index[graph.units.index(seen[k])]
            p = p * (mine == rng.choice(np.unique(mine[p > 0])))
        state = oracle.index[:, rng.choice(len(p), p=p / p.sum())]
        if rng.random() < self.impossible:
            state = [int(rng.integers(states_of(graph, u))) for u in graph.units]
        evidence = given | {
            u: int(state[graph.units.index(u)])
            if graph.layers[u[0]].unit.support is not None
            else float(rng.uniform(-0.9, 0.9))
            for u in seen
            if u not in do and u not in given
        }
        soft = {}
        if rng.random() < self.soft:
            soft = {u: self._hint(u) for u in self.hintable if rng.random() < 0.4}
        return Row(evidence, soft, do)

    def _oracle(self, do, given):
        key = tuple(sorted(do.items())), tuple(given.values())
        if key not in self.known:
            self.known[key] = Oracle(self.graph, given, do=do)
        return self.known[key]

    def _hint(self, u):
        """Log weights of the states, which may exclude some, or that of the larger of two."""
        layer = self.graph.layers[u[0]]
        unit = layer.unit
        if by_state(layer):
            weights = self.rng.normal(0, 1.5, len(grid(unit)[1]))
            if len(weights) > 1 and self.rng.random() < 0.2:
                few = self.rng.integers(1, len(weights))
                weights[self.rng.permutation(len(weights))[:few]] = -np.inf
            return weights
        return np.array([0.0, self.rng.normal(0, 2)])
