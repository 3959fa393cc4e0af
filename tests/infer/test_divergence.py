"""pgm.divergence: exact against enumeration by the formulas, estimates within their errors."""

import itertools

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm


def filled(model, rng, zeros=0.0):
    """The model with random tables, biases and weights."""
    params = {}
    for key, value in model.params.items():
        if key.endswith("table"):
            rows = rng.dirichlet(np.ones(value.shape[-1]), value.shape[:-1])
            rows = np.where(
                (rng.random(rows.shape) < zeros) & (rows < rows.max(-1, keepdims=True)), 0, rows
            )
            with np.errstate(divide="ignore"):
                params[key] = np.log(rows / rows.sum(axis=-1, keepdims=True))
        elif np.any(value) or "->" in key or "v.bias" in key:
            params[key] = rng.normal(0, 0.5, value.shape)
    return model.with_params(params)


def tables(rng, edges, order=1, zeros=0.0):
    states = {"a": ["x", "y"][::order], "b": [2, 5, 7][::order], "c": [True, False], "d": 2}
    return filled(pgm.network(states, edges), rng, zeros)


def factors(rng):
    b = pgm.GraphBuilder()
    units = [b.variable("c", states=[False, True]), b.variable("b", states=[5, 7, 2])]
    units += [b.variable("a", states=["y", "x"]), b.variable("d")]
    b.table(units[:3], rng.uniform(0.1, 2, (2, 3, 2)))
    b.table(units[2:], rng.uniform(0.1, 2, (2, 2)))
    return b.build()


PAIRS = {
    "networks": lambda rng: (
        tables(rng, "a -> b -> c <- a, d"), tables(rng, "c -> b, d -> a", -1)
    ),
    "a network and factors": lambda rng: (tables(rng, "a -> b -> c -> d"), factors(rng)),
    "factors and a network": lambda rng: (factors(rng), tables(rng, "a -> b -> c -> d")),
    "zeros": lambda rng: (
        tables(rng, "a -> b -> c -> d", zeros=0.4), tables(rng, "a <- b <- c <- d", zeros=0.2)
    ),
    "rbms": lambda rng: [filled(pgm.rbm(3, 2, rng=rng), rng) for _ in range(2)],
    "belief nets": lambda rng: [filled(pgm.sbn([3, 2], rng=rng), rng) for _ in range(2)],
    "one hot": lambda rng: [
        filled(pgm.rbm(2, 2, visible=pgm.Categorical(3), hidden=pgm.MultiValued(2), rng=rng), rng)
        for _ in range(2)
    ],
}  # fmt: skip


def distribution(model, names):
    """State -> log p of all states, by the formula of the log density."""
    values, keys = [], []
    for name, layer in model.structure.layers.items():
        support = layer.unit.support
        for i in range(layer.size):
            values.append([*zip(range(len(support)), support.tolist(), strict=True)])
            keys.append((name, i))
    rows = [*itertools.product(*values)]
    x = {name: np.zeros((len(rows), layer.width)) for name, layer in model.structure.layers.items()}
    for j, (name, i) in enumerate(keys):
        width = model.structure.layers[name].unit.width
        x[name][:, i * width : (i + 1) * width] = [np.ravel(row[j][1]) for row in rows]
    with np.errstate(divide="ignore"):
        logs = model.flat_log_density(x)
    logs = logs - np.logaddexp.reduce(logs)
    places = model.structure.names.by_key()
    order = [keys.index(places[name]) for name in names]
    layers = [model.structure.layers[keys[j][0]] for j in order]
    states = [
        tuple(
            (layer.state_names or range(9))[row[j][0]]
            for j, layer in zip(order, layers, strict=True)
        )
        for row in rows
    ]
    return dict(zip(states, logs.tolist(), strict=True))


def truth(p, q):
    names = [*p.structure.names.by_key()]
    one, two = distribution(p, names), distribution(q, names)
    return sum(np.exp(x) * (x - two[state]) for state, x in one.items() if x > -np.inf)


def check(kind, seed):
    p, q = PAIRS[kind](np.random.default_rng(seed))
    found = pgm.divergence(p, q)
    assert found.kind == "exact" and found.error == 0
    assert found == pytest.approx(truth(p, q), rel=1e-10, abs=1e-12)
    assert pgm.divergence(p, p) == 0


@one_test_over("kind", PAIRS)
def test_exact_answers_agree_with_enumeration(kind):
    check(kind, 0)


@pytest.mark.long
@one_test_over("kind, seed", [(kind, seed) for kind in PAIRS for seed in range(1, 20)])
def test_more_exact_answers_agree_with_enumeration(kind, seed):
    check(kind, seed)


def test_a_state_that_the_other_model_rules_out_has_no_bound():
    p = pgm.network({"a": 2}, "a")
    q = p.with_params({"a|.table": np.array([0.0, -np.inf])})
    assert pgm.divergence(p, q) == np.inf
    assert pgm.divergence(p, q, method=pgm.Forward(draws=50), rng=0) == np.inf
    assert pgm.divergence(q, p) == pytest.approx(np.log(2))


def mixed(rng, edges):
    states = {"a": 2, "b": ["x", "y", "z"], "r": pgm.Normal(), "s": pgm.Normal(0.5)}
    return filled(pgm.network(states, edges), rng)


def of_reals(p, q):
    """The divergence by quadrature over each real child, at all states of its parents."""
    x, step = np.linspace(-60, 60, 8001), 120 / 8000
    total = 0.0
    for a, b in itertools.product(range(2), "xyz"):
        logs = []
        for m in (p, q):
            at = {"a": np.full(len(x), a), "b": [b] * len(x)}
            zero = m.log_density({**at, "r": x * 0, "s": x * 0})
            parts = [m.log_density({**at, "r": x * 0, "s": x * 0, k: x}) - zero for k in "rs"]
            norms = [np.log(np.exp(part).sum() * step) for part in parts]
            whole = zero[0] + sum(norms)
            logs.append((whole, [part - norm for part, norm in zip(parts, norms, strict=True)]))
        (one, ours), (two, theirs) = logs
        inner = [np.sum(np.exp(f) * (f - g)) * step for f, g in zip(ours, theirs, strict=True)]
        total += np.exp(one) * (one - two + sum(inner))
    return total


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 6), marks=pytest.mark.long)])
def test_normal_children_have_exact_divergences(seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        p, q = mixed(rng, "a -> b -> r <- a, b -> s"), mixed(rng, "b -> a -> r, a -> s")
        found = pgm.divergence(p, q)
        assert found.kind == "exact"
        assert found == pytest.approx(of_reals(p, q), rel=1e-6)


@pytest.mark.long
def test_estimates_are_within_their_errors(limit=5.0):
    rng = np.random.default_rng(1)
    reals = mixed(rng, "a -> b -> r, a -> s"), mixed(rng, "b -> a -> r, b -> s")
    cases = [
        (PAIRS["networks"](rng), pgm.Forward(draws=2000)),
        (reals, pgm.Forward(draws=2000)),
        (PAIRS["rbms"](rng), pgm.ParallelTempering(draws=400)),
    ]
    for (p, q), method in cases:
        found, exact = pgm.divergence(p, q, method=method, rng=2), pgm.divergence(p, q)
        assert found.kind == "estimate" and found.error > 0
        assert abs(found - exact) < limit * found.error
        assert repr(found).startswith(f"Divergence: {float(found):.4g} ± ")


def test_a_method_that_is_given_estimates(limit=5.0):
    p, q = PAIRS["networks"](np.random.default_rng(1))
    found = pgm.divergence(p, q, method=pgm.Forward(draws=500), rng=2)
    assert found.kind == "estimate" and found.error > 0
    assert abs(found - pgm.divergence(p, q)) < limit * found.error


def test_wide_models_are_estimated():
    p, q = pgm.sbn([40, 30], rng=0), pgm.sbn([40, 30], rng=1)
    found = pgm.divergence(p, q, rng=0)
    assert found.kind == "estimate" and 0 < found.error < found


@one_test_over("other, message", [
    (lambda: pgm.rbm(3, 1), r"p has \('h', 1\), and q has none"),
    (lambda: pgm.rbm(3, 3), r"q has \('h', 2\), and p has none"),
    (lambda: pgm.rbm(3, 2, visible=pgm.Spin()), r"\('v', 0\) has the states"),
    (lambda: pgm.rbm(3, 2, visible=pgm.Gaussian()), "real numbers"),
    (lambda: "a model", "must be a Model"),
])  # fmt: skip
def test_messages(other, message):
    with pytest.raises(pgm.PgmError, match=message):
        pgm.divergence(pgm.rbm(3, 2), other())
