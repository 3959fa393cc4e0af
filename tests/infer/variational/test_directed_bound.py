"""The variational bound of belief nets and mixed graphs, against its formulas (bound_oracle.py) and
enumeration.
"""

import dataclasses
import math

import numpy as np
import pytest
import scipy.sparse as sp
from bound_oracle import Beliefs, bound, bounds, q_of
from brute import Brute, grid
from comparisons import dense
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loops import one_test_over
from scipy.optimize import minimize_scalar
from tiny import (
    MODELS,
    TinyLayer,
    TinyModel,
    as_evidence,
    draw_row,
    lateral,
    patterns,
    tiny_model,
    weaker,
)

import pgmengine as pgm
from pgmengine.infer.variational.packed_graph import edges_of
from pgmengine.model.couplings import Coupling
from pgmengine.model.layer import Layer

CONTINUOUS = next(m for m in MODELS if m.name == "continuous child")
# test_bound_with_tables.py has the models with tables.
DIRECTED = [m for m in MODELS if m.directed and m is not CONTINUOUS and not m.tables]
each = one_test_over("m", DIRECTED)
CONVERGED = pgm.MeanField(updates=2000, tolerance=1e-12)


def ask(m, rows, method=None, **given):
    want = ("log_z", "marginals", "gradient")
    return pgm.infer(
        m.build(), as_evidence(m, rows), want=want, method=method or pgm.MeanField(), **given
    )


def exact(m, rows, **given):
    return np.array([Brute(m, row, **given).log_z for row in rows])


def assert_agree(m, log_z, bounds, rtol=1e-8, iterated=1e-7):
    """Equal; the xi of a Categorical child is found by iteration, here and there."""
    loose = any(isinstance(x.unit, pgm.Categorical) for x in m.layers)
    np.testing.assert_allclose(
        log_z, bounds, rtol=iterated if loose else rtol, atol=iterated if loose else rtol
    )


def assert_below(found, truth, slack=1e-9):
    assert np.all(np.isfinite(found.log_z))
    np.testing.assert_array_less(found.log_z, truth + slack * (1 + np.abs(truth)))


def soft_of(m, rng):
    """Soft evidence for pgm.infer, and the same as log weights of every state, on the layers that
    can have it.
    """
    given, listed = {}, {}
    for x in m.layers:
        values = grid(x.unit)[0]
        if values.shape[1] > 1:
            given[x.name] = rng.normal(0, 1.5, (x.size, len(values)))
            listed[x.name] = given[x.name]
        elif len(values) == 2:
            given[x.name] = rng.normal(0, 1.5, x.size)
            listed[x.name] = given[x.name][:, None] * [0, 1]
    return given, listed


def cut_of(m, rows, rng):
    """do() on the first unit of every layer it can cut, and the rows without evidence there."""
    net, full = Beliefs(m, draw_row(m, rng, 1.0), {}), draw_row(m, rng, 1.0)
    names = [x.name for x in m.layers if net.directed(x.name) and not net.coupled(x.name)]
    do = {name: [full[name][0], *[None] * (len(full[name]) - 1)] for name in names}
    return do, [{n: [None, *v[1:]] if n in names else v for n, v in row.items()} for row in rows]


@each
def test_log_z_is_the_bound_at_its_own_tables(m, rtol=1e-12):
    rows = patterns(m)
    found = ask(m, rows)
    assert found.kind == "lower bound"
    assert_agree(m, found.log_z, bounds(m, rows, found))
    for name, p in found.prob.items():
        values = grid(next(x.unit for x in m.layers if x.name == name))[0]
        np.testing.assert_allclose(p.sum(axis=-1), 1.0, rtol=rtol)
        np.testing.assert_allclose(
            found.mean[name], np.squeeze(p @ values, -1) if values.shape[1] == 1 else p, atol=rtol
        )


@each
def test_below_exact_and_equal_where_nothing_or_all_is_observed(m, rtol=1e-9):
    rows, all_seen = patterns(m), 4
    found, truth = ask(m, rows), exact(m, rows)
    assert_below(found, truth)
    np.testing.assert_allclose(found.log_z[all_seen], truth[all_seen], rtol=rtol, atol=rtol)
    if not m.undirected:
        np.testing.assert_allclose(found.log_z[0], 0.0, atol=1e-12)


@each
def test_a_row_in_a_batch_is_the_row_alone(m, atol=1e-9):
    """Couplings are weak, so there is one fixed point: of several, other rows may decide."""
    m = weaker(m)
    rows = patterns(m)
    found = ask(m, rows, CONVERGED)
    alone = [ask(m, [row], CONVERGED) for row in rows]
    np.testing.assert_allclose(found.log_z, [one.log_z[0] for one in alone], rtol=0, atol=atol)
    for name in found.gradient:
        total = sum(np.asarray(dense(one.gradient[name])) for one in alone)
        np.testing.assert_allclose(dense(found.gradient[name]), total, rtol=0, atol=1e-5)


@each
@pytest.mark.parametrize("with_do", [False, True], ids=["soft", "soft and do"])
def test_soft_evidence_and_do(m, with_do):
    rng, rows, do = np.random.default_rng(1), patterns(m), {}
    given, listed = soft_of(m, rng)
    if with_do:
        do, rows = cut_of(m, rows, rng)
    cut = {
        n: v[0]
        for n, v in as_evidence(
            m, [{x.name: do.get(x.name, [None] * x.size) for x in m.layers}]
        ).items()
    }
    found = ask(m, rows, soft=given, do={n: v for n, v in cut.items() if n in do})
    assert_agree(m, found.log_z, bounds(m, rows, found, soft=listed, do=do))
    assert_below(found, exact(m, rows, soft=listed, do=do))


@each
def test_do_alone(m):
    do, rows = cut_of(m, patterns(m), np.random.default_rng(2))
    one = {x.name: do.get(x.name, [None] * x.size) for x in m.layers}
    found = ask(m, rows, do={n: v for n, v in as_evidence(m, [one] * len(rows)).items() if n in do})
    assert_agree(m, found.log_z, bounds(m, rows, found, do=do))
    assert_below(found, exact(m, rows, do=do))


@each
@pytest.mark.parametrize("xi", [None, 0.3])
def test_no_small_move_of_q_raises_the_bound(m, xi, slack=1e-9, step=1e-3):
    rng, rows = np.random.default_rng(0), patterns(m)
    found = ask(m, rows, dataclasses.replace(CONVERGED, xi=xi))
    for i, row in enumerate(rows):
        q = q_of(found, i)
        best = bound(m, row, q, xi=xi)
        for kind in range(6):
            moved = {name: move(p, rng, step, kind) for name, p in q.items()}
            assert bound(m, row, moved, xi=xi) <= best + slack * (1 + abs(best)), (i, kind)


def move(p, rng, step, kind):
    """Another table near p: mixed with a random one, or with its log moved, in all units or in one
    of the layer.
    """
    other = rng.dirichlet(np.ones(p.shape[-1]), len(p))
    moved = (
        (1 - step) * p + step * other if kind % 2 else p * np.exp(step * rng.normal(size=p.shape))
    )
    moved /= moved.sum(axis=-1, keepdims=True)
    return (
        np.where((np.arange(len(p)) == rng.integers(len(p)))[:, None], moved, p)
        if kind >= 3
        else moved
    )


@each
def test_the_bound_never_decreases(m, slack=1e-10):
    rows, before = patterns(m), -np.inf
    for n in range(1, 9):
        now = ask(m, rows, pgm.MeanField(updates=n, tolerance=0)).log_z
        np.testing.assert_array_less(before, now + slack * (1 + np.abs(now)))
        before = now


@each
@pytest.mark.parametrize("xi", [0.0, 0.3, 1.0])
def test_fixed_xi(m, xi):
    rows = patterns(m)
    found = ask(m, rows, pgm.MeanField(xi=xi))
    assert_agree(m, found.log_z, bounds(m, rows, found, xi=xi))
    assert_below(found, exact(m, rows))


@each
def test_restarts_never_lower_the_bound(m, slack=1e-9):
    rows = patterns(m)
    found, first = ask(m, rows, pgm.MeanField(restarts=3), rng=0), ask(m, rows)
    assert np.all(found.log_z >= first.log_z - slack)
    assert_agree(m, found.log_z, bounds(m, rows, found))


@each
@pytest.mark.parametrize("xi", [None, 0.3])
def test_gradient_is_that_of_the_converged_bound(m, xi, rtol=1e-4, step=1e-5):
    model, rng, evidence = m.build(), np.random.default_rng(0), as_evidence(m, patterns(m))
    method = dataclasses.replace(CONVERGED, xi=xi)
    found = pgm.infer(model, evidence, want=("log_z", "gradient"), method=method)
    for name, value in model.params.items():
        for _ in range(2):
            direction = rng.normal(size=dense(value).shape) * (
                (dense(value) != 0) | ("weight" not in name)
            )
            direction = (direction + direction.T) / 2 if lateral(name) else direction
            ends = []
            for sign in (1, -1):
                moved = dense(value) + sign * step * direction
                moved = type(value)(moved) if hasattr(value, "toarray") else moved
                other = model.with_params({name: moved})
                ends.append(
                    pgm.infer(
                        other, evidence, want=("log_z",), method=method, state=found.state
                    ).log_z.sum()
                )
            slope = (ends[0] - ends[1]) / (2 * step)
            own = np.sum(dense(found.gradient[name]) * direction) / (2 if lateral(name) else 1)
            np.testing.assert_allclose(own, slope, rtol=rtol, atol=1e-6, err_msg=name)


def test_continuous_child_is_refused():
    rows = patterns(CONTINUOUS)
    with pytest.raises(pgm.PgmError):
        ask(CONTINUOUS, rows)
    seen = [row for row in rows if None not in row["h"]]
    np.testing.assert_allclose(
        ask(CONTINUOUS, seen).log_z, exact(CONTINUOUS, seen), rtol=1e-7, atol=1e-9
    )


UNITS = st.one_of(
    st.just(pgm.Binary()),
    st.just(pgm.Spin()),
    st.builds(pgm.MultiValued, st.integers(2, 4)),
    st.builds(pgm.Categorical, st.integers(2, 3)),
)
CHAINS = [
    ("c>b",),
    ("c>b", "b>a"),
    ("c>b", "b>a", "c>a"),
    ("b>a", "c>a"),
    ("b-c", "b>a"),
    ("c>b", "a-b"),
]


@st.composite
def nets(draw, most=600):
    """Random nets of two or three layers with a row of evidence, of at most about `most` joint
    states.
    """
    edges, rng = draw(st.sampled_from(CHAINS)), np.random.default_rng(draw(st.integers(0, 2**32)))
    layers, left = {}, most
    for name in sorted({n for e in edges for n in (e[0], e[2])}):
        unit = draw(UNITS)
        k = len(grid(unit)[0])
        size = min(draw(st.integers(1, 4)), max(1, int(math.log(left, k)) - 1))
        layers[name], left = (unit, size), max(left / k**size, k)
    pairs = [tuple(e.split(s)) for s in "->" for e in edges if s in e]
    undirected = [p for p in pairs if "-".join(p) in edges]
    m = tiny_model(
        f"net {rng.integers(10**6)}",
        layers,
        undirected,
        [p for p in pairs if p not in undirected],
        scale=draw(st.floats(0, 3)),
        keep=draw(st.sampled_from([0.5, 1.0])),
    )
    return m, draw_row(m, rng, draw(st.sampled_from([0.0, 0.3, 0.6, 0.9])))


RANDOM = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@settings(RANDOM, max_examples=100)
@given(nets())
def test_random_nets(net):
    bound_of_the_oracle(net)


@pytest.mark.long
@settings(RANDOM, max_examples=1000)
@given(nets())
def test_many_random_nets(net):
    bound_of_the_oracle(net)


def bound_of_the_oracle(net):
    m, row = net
    found = ask(m, [row])
    assert_below(found, exact(m, [row]))
    assert_agree(m, found.log_z, bounds(m, [row], found), rtol=1e-7)


def tiny(name, layers, causes, weights, biases):
    made = tuple(
        TinyLayer(n, unit, size, np.asarray(biases[n], float)) for n, (unit, size) in layers.items()
    )
    return TinyModel(
        name, made, (), tuple((p, c, np.asarray(w, float)) for (p, c), w in zip(causes, weights))
    )


@pytest.mark.parametrize(
    "unit", [pgm.Binary(), pgm.Spin(), pgm.MultiValued(2), pgm.Categorical(3)], ids=repr
)
@pytest.mark.parametrize("scale", [30.0, 1e3])
def test_nearly_deterministic_nets(unit, scale):
    """Bounds hold; those of the smaller weights are the oracle's, too.

    With weights of 1e3 a state of probability 1e-300 counts e^1000 times: what tables of
    probabilities in double precision leave out decides, and the oracle knows no more than them.
    """
    size = 2 if len(grid(unit)[0]) > 2 else 3
    layers = {"v": (unit, size), "h": (unit, size), "g": (pgm.Binary(), 2)}
    m = tiny_model("hard", layers, (), [("g", "h"), ("h", "v")], scale)
    rows = patterns(m)
    found = ask(m, rows)
    assert_below(found, exact(m, rows))
    assert all(np.all(np.isfinite(dense(g))) for g in found.gradient.values())
    assert_below(ask(m, rows, pgm.MeanField(xi=0.5)), exact(m, rows))
    if scale < 100:
        assert_agree(m, found.log_z, bounds(m, rows, found))


@one_test_over("states", [10, 32, 33, 40])
def test_children_of_many_states(states):
    """Up to 32 components xi moves by the whole Hessian, beyond by its diagonal."""
    m = tiny_model(
        "many", {"v": (pgm.Categorical(states), 2), "h": (pgm.Binary(), 4)}, (), [("h", "v")], 1.0
    )
    rows = [{"v": [1, None], "h": [None] * 4}, {"v": [0, 3], "h": [None, 1.0, None, None]}]
    found = ask(m, rows)
    assert_below(found, exact(m, rows))
    assert_agree(m, found.log_z, bounds(m, rows, found))


@pytest.mark.parametrize("bias", [0.0, 100.0])
@pytest.mark.parametrize("small", [0.0, 1e-9, 4e-6, 1e-3, 0.2])
def test_components_of_very_different_weights(small, bias, atol=1e-9):
    """With one parent x = -1, 1 the bound knows xi only through t = xi J, whatever the weights J
    and large biases are.
    """
    j, b, x, c = (
        np.array([small, 0.58, -0.5]),
        np.array([-0.12, 0.25, 0.63]) + bias,
        np.array([-1.0, 1.0]),
        0.4,
    )
    model = tiny(
        "uneven",
        {"v": (pgm.Categorical(3), 1), "h": (pgm.Spin(), 1)},
        [("h", "v")],
        [j[None]],
        {"v": b[None], "h": [c]},
    ).build()
    z = b[:, None] + np.outer(j, x)

    def bound_at(p):
        q = np.array([1 - p, p])
        f = minimize_scalar(
            lambda t: t * (q @ x) + np.log((q * np.exp(z - bias - t * x)).sum()), tol=1e-14
        ).fun
        return q @ (c * x + z[0] - bias - np.log(q)) - np.log(2 * np.cosh(c)) - f

    best = -minimize_scalar(
        lambda p: -bound_at(p), (0.3, 0.7), bounds=(1e-9, 1 - 1e-9), options={"xatol": 1e-12}
    ).fun
    found = pgm.infer(model, {"v": [0]}, want=("bound",), method=CONVERGED).bound
    np.testing.assert_allclose(found, best, atol=atol)


@pytest.mark.parametrize("parent", [pgm.Binary(), pgm.Categorical(3)], ids=repr)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0, 1e3])
def test_noisy_or_of_small_and_large_weights(parent, scale):
    m = tiny_model("noisy", {"v": (pgm.NoisyOr(), 3), "h": (parent, 2)}, (), [("h", "v")], scale)
    rows = patterns(m)
    found = ask(m, rows)
    assert_below(found, exact(m, rows))
    assert_agree(m, found.log_z, bounds(m, rows, found))


def test_isolated_units_are_exact(rtol=1e-9):
    """Units without couplings: a layer of its own, and rows and columns of zeros in the weights."""
    B, M = pgm.Binary(), pgm.MultiValued(3)
    biases = {"v": [0.3, -1.0], "h": [0.5, -0.2], "z": [0.7, -2.0]}
    layers = {"v": (B, 2), "h": (M, 2), "z": (M, 2)}
    m = tiny("isolated", layers, [("h", "v")], [[[1.5, 0.0], [0.0, 0.0]]], biases)
    rows = patterns(m)
    found, truth = ask(m, rows), exact(m, rows)
    assert_agree(m, found.log_z, bounds(m, rows, found))
    assert_below(found, truth)
    only = [{"v": [None, 1.0], "h": [None, None], "z": [None, -1.0]}]
    np.testing.assert_allclose(ask(m, only).log_z, exact(m, only), rtol=rtol)
    zero = tiny("zero", layers, [("h", "v")], [np.zeros((2, 2))], biases)
    np.testing.assert_allclose(ask(zero, rows).log_z, exact(zero, rows), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("unit", [pgm.Binary(), pgm.NoisyOr()], ids=repr)
def test_five_hundred_parents(unit, value, parents=500):
    """Weights on a lattice, so that the exact distribution of the child's input is a
    convolution.
    """
    rng, grain = np.random.default_rng(0), 0.05
    steps = rng.integers(0 if unit == pgm.NoisyOr() else -6, 7, parents)
    bias, b = rng.normal(-1, 1, parents), 0.5
    m = tiny(
        "many",
        {"v": (unit, 1), "h": (pgm.Binary(), parents)},
        [("h", "v")],
        [steps[:, None] * grain],
        {"v": [b], "h": bias},
    )
    low, p = steps[steps < 0].sum(), np.ones(1)
    for on, s in zip(1 / (1 + np.exp(-bias)), steps):
        p = np.convolve(
            p,
            [on, *[0.0] * (-s - 1), 1 - on]
            if s < 0
            else [1 - on, *[0.0] * (s - 1), on]
            if s
            else [1.0],
        )
    z = b + grain * (low + np.arange(len(p)))
    share = np.exp(-z) if unit == pgm.NoisyOr() else 1 / (1 + np.exp(z))
    truth = math.log(p @ (share if value == 0 else 1 - share))
    found = ask(m, [{"v": [value], "h": [None] * parents}])
    assert truth - 5.0 <= found.log_z[0] <= truth + 1e-9


@one_test_over("seed", range(6))
def test_warm_starts_and_restarts_of_noisy_or_never_lose(seed, slack=1e-9):
    """Large inputs have terms of very different sizes, whose xi must fit before the first round."""
    rng = np.random.default_rng(seed)
    weight = np.where(rng.random((12, 30)) < 0.3, rng.uniform(0.1, 2.3, (12, 30)), 0.0)
    b = pgm.GraphBuilder()
    b.layer("cause", pgm.Binary(), 12, bias=rng.uniform(-5, -2, 12))
    b.layer("effect", pgm.NoisyOr(), 30, bias=10 ** rng.uniform(-3, -1, 30))
    b.cause("cause", "effect", weight=weight)
    shown = np.full(30, np.nan)
    shown[:8] = [1, 1, 1, 1, 0, 0, 0, 0]
    target = b.build().given({"effect": shown})
    method = pgm.MeanField(tolerance=1e-9)
    first = method.run(target, ("log_z",))
    again = method.run(target, ("log_z",), state=first.state)
    np.testing.assert_allclose(again.log_z, first.log_z, rtol=slack)
    best = pgm.MeanField(tolerance=1e-9, restarts=3).run(target, ("log_z",), rng=seed)
    exact = pgm.Exact().run(target, ("log_z",)).log_z
    assert first.log_z - slack <= best.log_z <= exact + slack


def test_edges_of_sparse_arrows_between_large_layers_keep_their_numbers(n=47_000):
    """Numbers of pairs exceed 32 bits, in which scipy has the places of sparse weights."""
    i = np.arange(n - 1)
    weight = sp.csr_array((np.ones(n - 1), (i, i + 1)), shape=(n, n))
    layer = Layer("x", pgm.Binary(), n)
    edges = edges_of(Coupling("x", "y", directed=True), layer, layer, weight, 0)
    np.testing.assert_array_equal(np.stack([edges.parent, edges.child]), [i, i + 1])
