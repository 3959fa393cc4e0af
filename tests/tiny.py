"""Tiny models of every kind, and patterns of evidence for each."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

import pgmengine as pgm

inf = math.inf


@dataclass(frozen=True)
class TinyLayer:
    name: str
    unit: pgm.Unit
    size: int
    bias: np.ndarray


@dataclass(frozen=True)
class TinyModel:
    name: str
    layers: tuple
    undirected: tuple
    directed: tuple
    sparse: bool = False
    # (scope of (layer, unit), values, whether the last unit is the child of a conditional)
    tables: tuple = ()
    # Tests take a few of these models in the quick lane (lanes.py).
    one_of_many = True

    def build(self):
        b = pgm.GraphBuilder()
        wrap = sp.csr_array if self.sparse else np.array
        for x in self.layers:
            b.layer(x.name, x.unit, x.size, bias=x.bias)
        for a, c, weight in self.undirected:
            b.couple(a, c, weight=wrap(weight))
        for p, c, weight in self.directed:
            b.cause(p, c, weight=wrap(weight))
        for scope, values, conditional in self.tables:
            if conditional:
                b.conditional(scope[-1], scope[:-1], values)
            else:
                b.table(scope, values)
        return b.build(rng=0)

    def __repr__(self):
        return self.name


def width(unit):
    return unit.width


def tiny_model(name, layers, couples=(), causes=(), scale=1.0, sparse=False, keep=1.0):
    """layers: {name: (unit, size)}; couples and causes: pairs of names; seeded by the name."""
    rng = np.random.default_rng(sum(map(ord, name)))
    made = {}
    for key, (unit, size) in layers.items():
        shape = (size,) if width(unit) == 1 else (size, width(unit))
        bias = rng.normal(0, 0.5 * scale, shape)
        made[key] = TinyLayer(
            key, unit, size, np.abs(bias) if isinstance(unit, pgm.NoisyOr) else bias
        )

    def weight(a, b, directed):
        ua, ub = made[a].unit, made[b].unit
        w = rng.normal(0, scale, (made[a].size * width(ua), made[b].size * width(ub)))
        w = w * (rng.random(w.shape) < keep)
        if a == b:
            unit = np.arange(len(w)) // width(ua)
            w = np.where(unit[:, None] < unit, w, 0.0)
            w = w if directed else w + w.T
        return np.abs(w) if directed and isinstance(ub, pgm.NoisyOr) else w

    return TinyModel(
        name,
        tuple(made.values()),
        tuple((a, b, weight(a, b, False)) for a, b in couples),
        tuple((p, c, weight(p, c, True)) for p, c in causes),
        sparse,
    )


def with_tables(m, scopes=(), conditionals=(), zeros=0.0):
    """The model with random tables over scopes of (layer, unit); a conditional has its child last.

    Units with a conditional have no bias. A share `zeros` of the entries is 0.
    """
    rng = np.random.default_rng(sum(map(ord, m.name)) + 1)
    finite = [x for x in m.layers if x.unit.support is not None]
    states = {x.name: len(x.unit.support) for x in finite}
    tables = []
    for conditional, some in ((False, scopes), (True, conditionals)):
        for scope in some:
            values = rng.gamma(1.0, size=[states[name] for name, _ in scope])
            values = values * (rng.random(values.shape) >= zeros)
            # At least the first state of the last unit is possible.
            values[..., 0] += 0.1
            if conditional:
                values = values / values.sum(axis=-1, keepdims=True)
            tables.append((tuple(scope), values, conditional))
    children = {scope[-1] for scope in conditionals}
    layers = []
    for x in m.layers:
        has = np.array([(x.name, i) in children for i in range(x.size)])
        layers.append(
            replace(x, bias=np.where(has.reshape(-1, *[1] * (x.bias.ndim - 1)), 0, x.bias))
        )
    return replace(m, layers=tuple(layers), tables=tuple(tables))


def weaker(m, share=0.1):
    """The model with weights so small that mean field has one fixed point."""
    undirected, directed = (
        tuple((a, b, share * w) for a, b, w in links) for links in (m.undirected, m.directed)
    )
    return replace(m, undirected=undirected, directed=directed)


B, S, C = pgm.Binary(), pgm.Spin(), pgm.Categorical(3)
VH, CHAIN, DEEP = [("v", "h")], [("v", "h1"), ("h1", "h2")], [("h2", "h1"), ("h1", "v")]
FINITE = (
    tiny_model("rbm", {"v": (B, 5), "h": (B, 3)}, VH),
    tiny_model("rbm spin", {"v": (S, 4), "h": (S, 3)}, VH),
    tiny_model("rbm multivalued", {"v": (B, 4), "h": (pgm.MultiValued(4), 2)}, VH),
    tiny_model(
        "rbm three values", {"v": (pgm.MultiValued(2), 3), "h": (pgm.MultiValued(3), 2)}, VH
    ),
    tiny_model("rbm one step", {"v": (pgm.MultiValued(1), 3), "h": (B, 3)}, VH),
    tiny_model("rbm categorical", {"v": (C, 2), "h": (B, 4)}, VH),
    tiny_model("rbm two categorical", {"v": (C, 2), "h": (pgm.Categorical(4), 2)}, VH),
    tiny_model("rbm large weights", {"v": (B, 4), "h": (S, 3)}, VH, scale=400.0),
    tiny_model("rbm zero weights", {"v": (B, 3), "h": (S, 3)}, VH, scale=0.0),
    tiny_model("rbm some zeros", {"v": (B, 4), "h": (B, 4)}, VH, keep=0.4),
    tiny_model("rbm sparse", {"v": (B, 4), "h": (S, 4)}, VH, sparse=True, keep=0.5),
    tiny_model("dbm", {"v": (B, 3), "h1": (B, 3), "h2": (B, 2)}, CHAIN),
    tiny_model("dbm mixed", {"v": (C, 1), "h1": (S, 3), "h2": (pgm.MultiValued(2), 2)}, CHAIN),
    tiny_model(
        "dbm four", {"v": (B, 2), "h1": (B, 3), "h2": (S, 2), "h3": (B, 2)}, [*CHAIN, ("h2", "h3")]
    ),
    tiny_model("triangle", {"v": (B, 2), "h1": (B, 2), "h2": (S, 2)}, [*CHAIN, ("v", "h2")]),
    tiny_model("ising", {"x": (S, 5)}, [("x", "x")]),
    tiny_model("boltzmann", {"x": (B, 6)}, [("x", "x")], keep=0.5),
    tiny_model("lateral multivalued", {"x": (pgm.MultiValued(2), 4)}, [("x", "x")]),
    tiny_model("lateral categorical", {"x": (C, 3)}, [("x", "x")]),
    tiny_model("semi-restricted", {"v": (B, 4), "h": (B, 3)}, [*VH, ("v", "v")]),
    tiny_model("sparse lateral", {"x": (S, 6)}, [("x", "x")], sparse=True, keep=0.4),
    tiny_model("isolated", {"v": (B, 2), "h": (B, 2), "z": (pgm.MultiValued(2), 2)}, VH),
    tiny_model("sbn", {"v": (B, 4), "h": (B, 3)}, (), [("h", "v")]),
    tiny_model("sbn deep", {"v": (B, 3), "h1": (B, 2), "h2": (B, 2)}, (), DEEP),
    tiny_model("sbn spin", {"v": (S, 3), "h1": (S, 2), "h2": (B, 2)}, (), DEEP),
    tiny_model(
        "sbn multivalued",
        {"v": (pgm.MultiValued(2), 2), "h": (pgm.MultiValued(3), 2)},
        (),
        [("h", "v")],
    ),
    tiny_model("sbn categorical", {"v": (C, 2), "h1": (C, 1), "h2": (B, 2)}, (), DEEP),
    tiny_model("sbn skip", {"v": (B, 3), "h1": (B, 2), "h2": (B, 2)}, (), [*DEEP, ("h2", "v")]),
    tiny_model("sbn lateral", {"v": (B, 4), "h": (B, 2)}, (), [("h", "v"), ("v", "v")], keep=0.7),
    tiny_model("sbn sparse", {"v": (B, 4), "h": (B, 3)}, (), [("h", "v")], sparse=True, keep=0.5),
    tiny_model("noisy-or", {"v": (pgm.NoisyOr(), 3), "h": (B, 3)}, (), [("h", "v")]),
    tiny_model("noisy-or deep", {"v": (B, 2), "h1": (pgm.NoisyOr(), 2), "h2": (B, 2)}, (), DEEP),
    tiny_model("dbn", {"v": (B, 3), "h1": (B, 3), "h2": (B, 2)}, [("h1", "h2")], [("h1", "v")]),
    tiny_model(
        "dbn multivalued",
        {"v": (S, 2), "h1": (pgm.MultiValued(2), 2), "h2": (B, 2)},
        [("h1", "h2")],
        [("h1", "v")],
    ),
    tiny_model("mixed", {"v": (B, 3), "h1": (B, 2), "h2": (S, 2)}, [("v", "h2")], [("h1", "v")]),
    tiny_model(
        "mixed child",
        {"a": (B, 2), "v": (B, 3), "p": (S, 2)},
        [("a", "v"), ("v", "v")],
        [("p", "v")],
    ),
    tiny_model(
        "two parents", {"v": (B, 2), "a": (S, 2), "b": (C, 1)}, (), [("a", "v"), ("b", "v")]
    ),
)
INFINITE = (
    tiny_model("rbm continuous", {"v": (B, 4), "h": (pgm.MultiValued(inf), 2)}, VH),
    tiny_model("rbm gaussian", {"v": (pgm.Gaussian(0.7), 2), "h": (B, 3)}, VH, scale=0.5),
    tiny_model(
        "gaussian child", {"v": (pgm.Gaussian(0.7), 2), "h": (B, 3)}, (), [("h", "v")], scale=0.5
    ),
    tiny_model("continuous child", {"v": (pgm.MultiValued(inf), 2), "h": (B, 2)}, (), [("h", "v")]),
)
# Not among MODELS: it has neither a bound nor compiled sweeps (units/test_normal.py).
NORMAL = tiny_model(
    "normal child", {"v": (pgm.Normal(), 2), "h": (B, 3)}, (), [("h", "v")], scale=0.15
)
v, h = [("v", i) for i in range(5)], [("h", i) for i in range(4)]
TABLED = (
    with_tables(tiny_model("potentials", {"v": (B, 4), "h": (C, 2)}), [(v[0], v[1]), (h[0], v[2])]),
    with_tables(
        tiny_model("potentials zeros", {"v": (S, 4), "h": (B, 2)}),
        [(v[0], v[1], h[0]), (v[2], h[0]), (v[3],), (h[0], h[1])],
        zeros=0.3,
    ),
    with_tables(
        tiny_model("network", {"v": (B, 4), "h": (C, 2)}),
        (),
        [(v[0],), (v[0], v[1]), (v[0], v[1], h[0]), (h[0], v[2]), (v[2], h[0], h[1]), (v[3],)],
    ),
    with_tables(
        tiny_model("network zeros", {"v": (B, 4), "h": (pgm.MultiValued(2), 2)}),
        (),
        [(h[0],), (h[0], v[1]), (v[1], h[1]), (h[1], v[1], v[0]), (v[2],), (v[2], v[0], v[3])],
        zeros=0.3,
    ),
    with_tables(
        tiny_model("network and potentials", {"v": (B, 3), "h": (S, 3)}),
        [(v[0], h[2]), (h[0], h[1])],
        [(v[0],), (v[0], h[0])],
    ),
    with_tables(
        tiny_model("tables and couplings", {"v": (B, 3), "h": (pgm.MultiValued(2), 2)}, VH),
        [(v[0], v[1]), (v[2], h[0])],
        zeros=0.2,
    ),
    with_tables(
        tiny_model("conditionals and couplings", {"v": (B, 3), "h": (B, 2)}, VH),
        (),
        [(h[0],), (h[0], v[0])],
    ),
    with_tables(
        tiny_model("tables above arrows", {"v": (B, 3), "h": (C, 2)}, (), [("h", "v")]),
        [(v[0], h[1])],
        [(h[0],), (h[0], h[1])],
    ),
    with_tables(
        tiny_model("tables beside gaussian", {"v": (pgm.Gaussian(0.7), 1), "h": (B, 3)}, VH),
        [(h[0], h[1]), (h[1], h[2])],
    ),
)
MODELS = FINITE + INFINITE + TABLED


def random_model(seed, most=3_000):
    """Two to four layers of any finite units, undirected, directed and inside couplings at will,
    dense or sparse.
    """
    rng = np.random.default_rng(seed)
    units = (B, S, pgm.MultiValued(1), pgm.MultiValued(3), C, pgm.NoisyOr())
    while True:
        layers = {
            f"l{i}": (units[rng.integers(len(units))], int(rng.integers(1, 4)))
            for i in range(rng.integers(2, 5))
        }
        couples, causes = [], []
        for (i, a), (j, b) in itertools.combinations_with_replacement(enumerate(layers), 2):
            if rng.random() < (0.3 if i == j else 0.7):
                (causes if rng.random() < 0.5 or layers[b][0] == pgm.NoisyOr() else couples).append(
                    (a, b)
                )
        if math.prod(len(unit.support) ** size for unit, size in layers.values()) > most:
            continue
        made = tiny_model(
            f"random {seed}", layers, couples, causes, sparse=bool(rng.random() < 0.3), keep=0.8
        )
        try:
            made.build()
        # Noisy-or units without arrows into them, or with parents below 0, are refused.
        except pgm.PgmError:
            continue
        return made


def without_fixed_biases(model, name, step):
    """A change of a parameter without the biases of units with a conditional, which stay 0."""
    layer = name.removesuffix(".bias")
    if layer not in model.structure.layers or not (model.structure.child_tables[layer] >= 0).any():
        return step
    own = model.structure.child_tables[layer] >= 0
    return np.where(own.reshape(-1, *[1] * (step.ndim - 1)), 0.0, step)


def lateral(name):
    """Whether a parameter is the symmetric weight inside a layer, where two entries are one
    number.
    """
    ends = name.removesuffix(".weight").split("-")
    return len(ends) == 2 and ends[0] == ends[1]


def draw_row(m, rng, share):
    """{layer: list of values or None}: each unit observed with probability `share`.

    The row is a part of a complete state that no table excludes.
    """
    while True:
        row, full = _draw_row(m, rng, share)
        if all(
            values[tuple(state_of(m, full, place) for place in scope)] > 0
            for scope, values, _ in m.tables
        ):
            return row


def state_of(m, row, place):
    """The number of the state of a unit with a value."""
    unit, value = next(x.unit for x in m.layers if x.name == place[0]), row[place[0]][place[1]]
    return int(value) if width(unit) > 1 else int(np.argmin(np.abs(unit.support - value)))


def _draw_row(m, rng, share):
    row, full = {}, {}
    for x in m.layers:
        values = x.unit.support
        values = range(len(values)) if values is not None and x.unit.width > 1 else values
        pick = [
            rng.choice(values) if values is not None else rng.uniform(-1, 1) for _ in range(x.size)
        ]
        full[x.name] = pick
        row[x.name] = [v if rng.random() < share else None for v in pick]
    return row, full


def as_evidence(m, rows):
    """The rows as (rows, size) arrays with NaN."""
    return {
        x.name: np.array(
            [[np.nan if v is None else v for v in row[x.name]] for row in rows], dtype=float
        )
        for x in m.layers
    }


def patterns(m, seed=0):
    """Rows of evidence: none, half, most, one layer each, all."""
    rng = np.random.default_rng(seed)
    rows = [draw_row(m, rng, share) for share in (0.0, 0.5, 0.5, 0.8, 1.0)]
    for x in m.layers:
        full = draw_row(m, rng, 1.0)
        rows.append(
            {y.name: full[y.name] if y.name == x.name else [None] * y.size for y in m.layers}
        )
    return rows


def mixed_target(tiny_model, rows=24):
    """Rows with evidence and beta of their own, a reference, and soft evidence where it is
    allowed.
    """
    rng = np.random.default_rng(3)
    evidence = [
        draw_row(tiny_model, rng, share) for share in rng.choice([0.0, 0.3, 0.7], size=rows)
    ]
    model = tiny_model.build()
    layers = model.structure.layers
    soft = {
        n: rng.normal(size=(rows, *x.bias_shape))
        for n, x in layers.items()
        if x.unit.one_hot or (x.unit.support is not None and len(x.unit.support) == 2)
    }
    reference = {n: rng.normal(size=x.width) for n, x in layers.items()}
    seen = as_evidence(tiny_model, evidence)
    forced = as_evidence(tiny_model, [draw_row(tiny_model, rng, 0.3) for _ in range(rows)])
    do = {
        n: np.where(np.isnan(seen[n]), forced[n], np.nan)
        for n in model.structure.directed_layers
        if n not in model.structure.undirected_layers
    }
    return model.given(seen, soft=soft, do=do).at(
        rng.choice([0.0, 0.37, 1.0], size=rows), reference
    )
