"""Random models of every kind, and an oracle that enumerates their states.

The oracle is written from the formulas of the design. It works on tables of log weights over all
states of the units, so that 2^14 states take milliseconds. The log density of a state is the sum of
the base measures h, the biases, x W y of couplings (x S x / 2 inside a layer), log p(child | its
parents) of arrows and conditionals, and log T of tables.
"""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from brute import grid
from registry import UNITS as REGISTERED
from scipy.special import logsumexp

import pgmengine as pgm

MOST_STATES = 2**14
VARIABLE = "variable"


@dataclass
class Layer:
    """One array of units; a variable is a layer of one unit that is declared by name."""

    name: str
    unit: pgm.Unit
    size: int
    bias: np.ndarray
    states: tuple | None = None
    named: bool = False

    @property
    def width(self):
        return self.unit.width


@dataclass
class Table:
    """Values over a scope of (layer, unit); `many` tables of one declaration share a number."""

    scope: tuple
    values: np.ndarray
    conditional: bool = False
    many: int | None = None


@dataclass
class Graph:
    layers: dict = field(default_factory=dict)
    couples: list = field(default_factory=list)
    causes: list = field(default_factory=list)
    tables: list = field(default_factory=list)
    sparse: bool = False

    @property
    def units(self):
        return [(x.name, i) for x in self.layers.values() for i in range(x.size)]

    @property
    def finite(self):
        return all(x.unit.support is not None for x in self.layers.values())

    def member(self, place):
        return place[0] if self.layers[place[0]].named else place

    def build(self):
        b = pgm.GraphBuilder()
        for x in self.layers.values():
            if x.named:
                b.variable(x.name, states=x.states or len(grid(x.unit)[1]))
            else:
                b.layer(x.name, x.unit, x.size, bias=x.bias if x.width > 1 else x.bias[:, 0])
        wrap = sp.csr_array if self.sparse else np.array
        for a, c, weight in self.couples:
            b.couple(a, c, weight=wrap(weight))
        for p, c, weight in self.causes:
            b.cause(p, c, weight=wrap(weight))
        for t in self.tables:
            scope = [self.member(place) for place in t.scope]
            if t.conditional:
                b.conditional(scope[-1], scope[:-1], t.values)
            elif t.many is None:
                b.table(scope, t.values)
        for _, group in itertools.groupby(
            [t for t in self.tables if t.many is not None], lambda t: t.many
        ):
            group = list(group)
            index = [[i for _, i in t.scope] for t in group]
            b.tables(
                [name for name, _ in group[0].scope], index, np.stack([t.values for t in group])
            )
        return b.build()


class Oracle:
    """All joint states of a graph under one row of evidence.

    evidence, do: (layer, unit) -> number of the state, or value of a unit with infinitely many;
    soft: (layer, unit) -> log weights of its states.
    """

    def __init__(self, graph, evidence=None, soft=None, do=None, beta=1.0):
        self.graph, self.units = graph, graph.units
        evidence, soft, do = evidence or {}, soft or {}, do or {}
        self.values, base, choice = [], [], []
        for u in self.units:
            unit = graph.layers[u[0]].unit
            known = do.get(u, evidence.get(u))
            infinite = known is not None and unit.support is None
            values, log_h = (None, np.zeros(1)) if infinite else grid(unit)
            numbers = np.arange(len(log_h))
            if infinite:
                values, numbers = np.array([[known]]), np.array([0])
                log_h = np.array([_log_h(unit, known)])
            elif known is not None:
                numbers = np.array([known])
                values, log_h = values[numbers], log_h[numbers]
            self.values.append(values)
            base.append(np.zeros(len(log_h)) if u in do else log_h)
            choice.append(numbers)
        shape = [len(c) for c in choice]
        at = np.indices(shape).reshape(len(shape), -1)
        self.index = np.stack([c[a] for c, a in zip(choice, at)])
        self.x = {u: v[a] for u, v, a in zip(self.units, self.values, at)}
        share = sum((w[self.index[self.units.index(u)]] for u, w in soft.items()), 0.0)
        density = share + self._density(do)
        # 0 ** 0 is 1: at beta 0 nothing is impossible.
        tempered = beta * density if beta else np.zeros_like(density)
        self.log_weight = sum(b[a] for b, a in zip(base, at)) + tempered
        self.log_z = logsumexp(self.log_weight)
        with np.errstate(invalid="ignore"):
            self.p = np.exp(self.log_weight - self.log_z)

    def flat(self, name):
        return np.concatenate(
            [self.x[name, i] for i in range(self.graph.layers[name].size)], axis=1
        )

    def _density(self, do):
        graph, total = self.graph, np.zeros(self.index.shape[1])
        for a, c, weight in graph.couples:
            part = np.einsum("si,ij,sj->s", self.flat(a), weight, self.flat(c))
            total += part / 2 if a == c else part
        for t in graph.tables:
            if t.conditional and t.scope[-1] in do:
                continue
            places = tuple(self.index[self.units.index(u)] for u in t.scope)
            with np.errstate(divide="ignore"):
                total += np.log(t.values[places])
            if t.conditional:
                # The table holds probabilities, which include the base measure of the child.
                total -= grid(graph.layers[t.scope[-1][0]].unit)[1][places[-1]]
        directed = self._directed()
        for x in graph.layers.values():
            if isinstance(x.unit, pgm.Input):
                continue
            z = np.zeros_like(self.flat(x.name)) + np.ravel(x.bias)
            for p, c, weight in graph.causes:
                if c == x.name:
                    z = z + self.flat(p) @ weight
            z = z.reshape(len(total), x.size, x.width)
            for i in range(x.size):
                if x.name not in directed:
                    total += (self.x[x.name, i] * z[:, i]).sum(axis=1)
                elif (x.name, i) not in do:
                    total += _log_child(x.unit, self.x[x.name, i], z[:, i])
        return total

    def _directed(self):
        """Layers with arrows, whose units are normalised given their parents; a root is directed
        unless it has couplings or conditionals.
        """
        graph = self.graph
        children = {c for _, c, _ in graph.causes}
        coupled = {n for a, b, _ in graph.couples for n in (a, b)}
        own = {t.scope[-1][0] for t in graph.tables if t.conditional}
        return children | ({p for p, _, _ in graph.causes} - coupled - own)

    def prob(self, place):
        count = len(grid(self.graph.layers[place[0]].unit)[1])
        return np.bincount(self.index[self.units.index(place)], weights=self.p, minlength=count)

    def joint(self, *places):
        shape = [len(grid(self.graph.layers[n].unit)[1]) for n, _ in places]
        found = np.zeros(shape)
        np.add.at(found, tuple(self.index[self.units.index(u)] for u in places), self.p)
        return found

    def mean(self, name):
        return self.p @ self.flat(name)

    def pairs(self, a, b):
        return np.einsum("s,si,sj->ij", self.p, self.flat(a), self.flat(b))

    def log_weight_of(self, values):
        """The log weight of one complete state, layer -> flat values."""
        same = np.ones(len(self.p), dtype=bool)
        for name in self.graph.layers:
            same &= np.isclose(self.flat(name), np.ravel(values[name])).all(axis=1)
        return self.log_weight[same].max(initial=-np.inf)


def _log_h(unit, value):
    if isinstance(unit, pgm.Gaussian):
        return -(value**2) / (2 * unit.sigma**2) - math.log(unit.sigma * math.sqrt(2 * math.pi))
    return 0.0


def _log_child(unit, x, z, nodes=grid):
    """log p(x | input z) less log h(x), of one unit in all states.

    `nodes` are those of the normaliser, also where a test has taken another grid of states.
    """
    if isinstance(unit, pgm.NoisyOr):
        with np.errstate(divide="ignore"):
            return np.where(x[:, 0] == 1, np.log(-np.expm1(-z[:, 0])), -z[:, 0])
    if isinstance(unit, pgm.Gaussian):
        return x[:, 0] * z[:, 0] - unit.sigma**2 * z[:, 0] ** 2 / 2
    values, log_h = nodes(unit)
    return (x * z).sum(axis=1) - logsumexp(z @ values.T + log_h, axis=1)


# Units of few states, so that models of many units can be enumerated, and units with infinitely
# many values.
MOST_UNIT_STATES = 4
UNITS = tuple(u for u in REGISTERED if u.support is not None and len(u.support) <= MOST_UNIT_STATES)
LEAVES = tuple(u for u in REGISTERED if u.support is None and u.canonical and not u.observed_only)


def random_graph(seed, most_states=MOST_STATES, leaves=False):
    """A random graph of at most 14 units; `leaves` adds units with infinitely many values."""
    rng = np.random.default_rng([17, seed])
    while True:
        graph = _try(rng, leaves)
        coupled = {graph.layers[n].unit for a, c, _ in graph.couples for n in (a, c)}
        if pgm.NoisyOr() in coupled:
            continue
        sizes = [len(grid(graph.layers[n].unit)[1]) for n, _ in graph.units]
        if len(sizes) <= 14 and math.prod(sizes) <= most_states:
            return graph


def complete(graph):
    """Give every variable a conditional where all tables are conditionals."""
    if graph.couples or graph.causes or not all(t.conditional for t in graph.tables):
        return
    children = {t.scope[-1] for t in graph.tables}
    for layer in graph.layers.values():
        place, k = (layer.name, 0), len(grid(layer.unit)[1])
        if graph.tables and layer.named and k > 1 and place not in children:
            graph.tables.append(Table((place,), np.full(k, 1 / k), conditional=True))


def _try(rng, leaves):
    graph = Graph(sparse=bool(rng.random() < 0.4))
    names = [f"l{i}" for i in range(rng.integers(0, 4))]
    names += [f"x{i}" for i in range(rng.integers(0 if names else 1, 8))]
    # Parents come before their children in this order.
    order = [str(n) for n in rng.permutation(names)]
    scale = rng.choice([0.0, 0.3, 1.0, 5.0], p=[0.05, 0.35, 0.5, 0.1])
    zeros = rng.choice([0.0, 0.2])
    for name in names:
        if name.startswith("x"):
            k = int(rng.choice([2, 2, 2, 3, 4]))
            unit = pgm.Binary() if k == 2 else pgm.Categorical(k)
            states = tuple(f"s{j}" for j in range(k)) if rng.random() < 0.5 else None
            width = 1 if k == 2 else k
            layer = Layer(name, unit, 1, np.zeros((1, width)), states, named=True)
        else:
            unit = UNITS[rng.integers(len(UNITS))]
            layer = Layer(name, unit, int(rng.integers(1, 5)), np.zeros(0))
            layer.bias = rng.normal(0, 0.5 * scale + 0.1, (layer.size, layer.width))
        graph.layers[name] = layer
    arrays = [n for n in order if not graph.layers[n].named]

    def weight(a, b):
        w = rng.normal(0, scale, (a.size * a.width, b.size * b.width))
        return w * (rng.random(w.shape) < rng.choice([0.4, 1.0]))

    # Arrows and couplings; NoisyOr units take part in arrows only.
    for i, j in itertools.combinations_with_replacement(range(len(arrays)), 2):
        a, b = graph.layers[arrays[i]], graph.layers[arrays[j]]
        noisy = isinstance(b.unit, pgm.NoisyOr)
        if noisy and not isinstance(a.unit, (pgm.Binary, pgm.NoisyOr, pgm.Categorical)):
            continue
        w = weight(a, b)
        own = np.arange(len(w)) // a.width
        if rng.random() < (0.3 if i == j else 0.6):
            if noisy or rng.random() < 0.4 or isinstance(a.unit, pgm.NoisyOr):
                if i == j:
                    w = np.where(own[:, None] < np.arange(w.shape[1]) // b.width, w, 0.0)
                graph.causes.append((a.name, b.name, np.abs(w) if noisy else w))
            else:
                if i == j:
                    w = np.where(own[:, None] < own, w, 0.0)
                    w = w + w.T
                graph.couples.append((a.name, b.name, w))
    children = {c for _, c, _ in graph.causes}
    for x in graph.layers.values():
        if isinstance(x.unit, pgm.NoisyOr):
            x.bias = np.abs(x.bias)
            if x.name not in children:
                # A NoisyOr layer needs arrows.
                x.unit = pgm.Binary()
    places = [(n, i) for n in order for i in range(graph.layers[n].size)]
    count = [len(grid(graph.layers[n].unit)[1]) for n, _ in places]

    def values(scope):
        found = rng.gamma(0.5, size=[count[places.index(u)] for u in scope])
        found = found * (rng.random(found.shape) >= zeros)
        # The first state is possible, whatever the others are.
        found[..., 0] += 0.05
        found[(0,) * found.ndim] += 0.1
        return found

    for k, place in enumerate(places):
        layer = graph.layers[place[0]]
        free = place[0] not in children and not isinstance(layer.unit, pgm.NoisyOr)
        if free and rng.random() < (0.7 if layer.named else 0.15):
            few = rng.permutation(k)[: rng.integers(0, 4)]
            scope = (*(places[i] for i in few), place)
            found = values(scope)
            layer.bias = np.array(layer.bias)
            layer.bias[place[1]] = 0.0
            graph.tables.append(
                Table(scope, found / found.sum(axis=-1, keepdims=True), conditional=True)
            )
    for _ in range(rng.integers(0, 5)):
        size = min(len(places), int(rng.integers(1, 5)))
        scope = tuple(places[i] for i in rng.permutation(len(places))[:size])
        if any(set(scope) == set(t.scope) for t in graph.tables):
            continue
        graph.tables.append(Table(scope, values(scope)))
    for number in range(rng.integers(0, 3)):
        if not arrays:
            break
        ends = [str(n) for n in rng.choice(arrays, size=rng.integers(1, 4))]
        index = {tuple(int(rng.integers(graph.layers[n].size)) for n in ends) for _ in range(3)}
        scopes = [tuple(zip(ends, row)) for row in sorted(index)]
        for scope in scopes:
            if len(set(scope)) == len(scope):
                graph.tables.append(Table(scope, values(scope), many=number))
    if leaves and arrays:
        for i in range(rng.integers(1, 3)):
            unit = LEAVES[rng.integers(len(LEAVES))]
            leaf = graph.layers[f"g{i}"] = Layer(f"g{i}", unit, 1, rng.normal(0, 0.3, (1, 1)))
            root = graph.layers[arrays[rng.integers(len(arrays))]]
            w = rng.normal(0, 0.3, (root.size * root.width, 1))
            kind = graph.causes if rng.random() < 0.4 else graph.couples
            kind.append((root.name, leaf.name, w))
    complete(graph)
    return graph


def random_causes(seed, most_states=MOST_STATES):
    """A random network of noisy-or units: one or two layers of them below roots of several kinds.

    Roots may have a table or a sigmoid child as well. About half of the findings are 1.
    """
    rng = np.random.default_rng([29, seed])
    while True:
        graph = _try_causes(rng)
        sizes = [len(grid(graph.layers[n].unit)[1]) for n, _ in graph.units]
        if len(sizes) <= 14 and math.prod(sizes) <= most_states:
            return graph


def _try_causes(rng):
    graph = Graph(sparse=bool(rng.random() < 0.5))

    def layer(name, unit, size):
        bias = rng.normal(0, 0.7, (size, unit.width))
        if isinstance(unit, pgm.NoisyOr):
            bias = np.where(rng.random(bias.shape) < 0.3, 0.0, rng.exponential(0.2, bias.shape))
        graph.layers[name] = Layer(name, unit, size, bias)

    def arrow(a, b, noisy=True):
        a, b = graph.layers[a], graph.layers[b]
        w = rng.exponential(0.6, (a.size * a.width, b.size * b.width)) + 0.05
        w = w if noisy else w * rng.choice([-1, 1], w.shape)
        w = w * (rng.random(w.shape) < rng.choice([0.5, 1.0]))
        if a is b:
            w = np.triu(w, 1)
        if w.any():
            graph.causes.append((a.name, b.name, w))

    layer("d", pgm.Binary(), int(rng.integers(1, 6)))
    if rng.random() < 0.4:
        layer("k", pgm.Categorical(3), int(rng.integers(1, 3)))
    roots, parents = list(graph.layers), list(graph.layers)
    if rng.random() < 0.4:
        layer("m", pgm.NoisyOr(), int(rng.integers(1, 4)))
        for name in roots:
            arrow(name, "m")
        parents.append("m")
    layer("f", pgm.NoisyOr(), int(rng.integers(1, 6)))
    for name in parents:
        arrow(name, "f")
    if rng.random() < 0.2:
        arrow("f", "f")
    if rng.random() < 0.4:
        layer("g", pgm.Binary(), 1)
        arrow("d", "g", noisy=False)
    children = {c for _, c, _ in graph.causes}
    for x in graph.layers.values():
        if isinstance(x.unit, pgm.NoisyOr) and x.name not in children:
            # A NoisyOr layer needs arrows.
            x.unit = pgm.Binary()
    places = [u for u in graph.units if u[0] in ("d", "m", "f")]
    for _ in range(rng.integers(0, 3)):
        size = min(len(places), int(rng.integers(1, 4)))
        scope = tuple(places[i] for i in rng.permutation(len(places))[:size])
        if not any(set(scope) == set(t.scope) for t in graph.tables):
            graph.tables.append(Table(scope, rng.gamma(1.0, size=(2,) * size) + 0.05))
    return graph


def draw_question(graph, seed, rows=1):
    """Rows of evidence, soft evidence and interventions with a positive probability.

    Returns a list of (evidence, soft, do) as the oracle takes them.
    """
    rng = np.random.default_rng([23, seed])
    oracle = Oracle(graph)
    asked = []
    same = rng.random() < 0.5
    share = rng.choice([0.0, 0.3, 0.7, 1.0], p=[0.2, 0.4, 0.3, 0.1])
    pattern = [u for u in graph.units if rng.random() < share]
    hints = [u for u in graph.units if hinted(graph, u) and rng.random() < 0.2]
    forced = [u for u in graph.units if forceable(graph, u) and rng.random() < 0.2]
    if rng.random() < 0.5:
        forced = []
    for _ in range(rows):
        if not same:
            pattern = [u for u in graph.units if rng.random() < share]
        soft = {u: rng.normal(0, 1, len(grid(graph.layers[u[0]].unit)[1])) for u in hints}
        for u, w in soft.items():
            if by_state(graph.layers[u[0]]):
                continue
            # One number is the log weight of the larger value.
            w[:] = 0.0, w[1]
        do = {u: int(rng.integers(len(grid(graph.layers[u[0]].unit)[1]))) for u in forced}
        # Evidence is a draw under the interventions, so that it is possible.
        drawn = Oracle(graph, do=do) if do else oracle
        if np.isneginf(drawn.log_z):
            do, drawn = {}, oracle
        state = drawn.index[:, rng.choice(len(drawn.p), p=drawn.p)]
        evidence = {
            u: int(state[graph.units.index(u)])
            if graph.layers[u[0]].unit.support is not None
            else float(rng.uniform(-0.9, 0.9))
            for u in pattern
            if u not in do
        }
        asked.append((evidence, soft, do))
    return asked


def two_valued(graph, u):
    return len(grid(graph.layers[u[0]].unit)[1]) == 2


def hinted(graph, u):
    return graph.layers[u[0]].unit.support is not None


def by_state(x):
    """Whether hints of a layer are log weights of states, and not log-odds."""
    return x.named or len(grid(x.unit)[1]) != 2


def forceable(graph, u):
    """Whether do() may set the unit: it has a conditional, or its layer has arrows into it and no
    couplings.
    """
    own = any(t.conditional and t.scope[-1] == u for t in graph.tables)
    coupled = any(u[0] in (a, b) for a, b, _ in graph.couples)
    child = any(u[0] == c for _, c, _ in graph.causes)
    finite = graph.layers[u[0]].unit.support is not None
    return finite and (own or (child and not coupled))


def unit_numbers(graph, model):
    """The number over all layers of the model of each unit of the graph; variables share layers."""
    s = model.structure
    places = [s.names.unique[n] if graph.layers[n].named else (n, i) for n, i in graph.units]
    return [s.first_unit[name] + i for name, i in places]


def as_arguments(graph, asked, key):
    """Rows of {(layer, unit): state} as arguments of `infer`, with variables by name."""
    found = {}
    for x in graph.layers.values():
        rows = [row[key] for row in asked]
        if not any(u[0] == x.name for row in rows for u in row):
            continue
        values = None if x.unit.support is None else grid(x.unit)[0]
        if x.named:
            given = [row.get((x.name, 0)) for row in rows]
            if x.states:
                found[x.name] = [None if g is None else x.states[g] for g in given]
            else:
                # A vector of numbers could be a one-hot row.
                found[x.name] = [[np.nan if g is None else g] for g in given]
            continue
        table = np.full((len(asked), x.size), np.nan)
        for r, row in enumerate(rows):
            for (name, i), state in row.items():
                if name == x.name:
                    whole = isinstance(x.unit, pgm.Categorical) or x.unit.support is None
                    table[r, i] = state if whole else values[state, 0]
        found[x.name] = table
    return found


def as_hints(graph, asked):
    """Soft evidence as an argument of `infer`: log-odds, or log weights of states."""
    found = {}
    for x in graph.layers.values():
        if not any(u[0] == x.name for row in asked for u in row[1]):
            continue
        each = (len(grid(x.unit)[1]),) if by_state(x) else ()
        table = np.zeros((len(asked), x.size, *each))
        for r, row in enumerate(asked):
            for (name, i), w in row[1].items():
                if name == x.name:
                    table[r, i] = w if each else w[1] - w[0]
        found[x.name] = table[:, 0] if x.named else table
    return found


def shifted(graph, change):
    """A copy of the graph in which `change(copy)` has moved a parameter."""
    other = copy.deepcopy(graph)
    change(other)
    return other
