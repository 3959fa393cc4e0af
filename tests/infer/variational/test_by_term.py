"""Rounds of few rows, with terms as lanes, against rounds with rows as lanes; and questions that
share what follows from their evidence pattern against questions to models of their own.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from loops import one_test_over
from random_graphs import as_arguments, as_hints, draw_question, random_causes, random_graph

import pgmengine as pgm
from pgmengine._kernels import LANES
from pgmengine.infer.variational import packed_graph
from pgmengine.infer.variational.mean_field import by_tables
from pgmengine.infer.variational.unit_tables import Belief

WANT = ("bound", "marginals", "gradient")

# The number of Newton steps in xi depends on the terms or rows beside it, so that single rounds
# differ. Fixed points are equal, and so are single rounds at a fixed xi.
SETTLED = pgm.MeanField(updates=2000, tolerance=1e-9)
FIXED_XI = pgm.MeanField(updates=4, tolerance=0, xi=0.4)
LIMITS = {SETTLED: {"atol": 1e-4, "bound": 1e-9}, FIXED_XI: {"atol": 1e-8, "bound": 1e-10}}

UNITS = {
    "Binary": pgm.Binary(),
    "Spin": pgm.Spin(),
    "MultiValued": pgm.MultiValued(2),
    "Categorical": pgm.Categorical(3),
}


def layered(rng, top, middle, leaves, scale=1.0, sparse=False):
    """Three layers with more children than lanes, and arrows past the middle one."""
    b, sizes = pgm.GraphBuilder(), {"h2": 3, "h1": LANES + 3, "v": 2 * LANES + 1}
    units = {"h2": top, "h1": middle, "v": leaves}
    for name, unit in units.items():
        size = (sizes[name], unit.width) if unit.width > 1 else sizes[name]
        noisy = isinstance(unit, pgm.NoisyOr)
        b.layer(
            name, unit, sizes[name], bias=np.full(size, 0.2) if noisy else rng.normal(size=size)
        )
    for parent, child in (("h2", "h1"), ("h1", "v"), ("h2", "v")):
        shape = [sizes[n] * units[n].width for n in (parent, child)]
        weight = scale * rng.normal(size=shape)
        weight[rng.random(shape) < (0.7 if sparse else 0.1)] = 0.0
        weight = np.abs(weight) if isinstance(units[child], pgm.NoisyOr) else weight
        b.cause(parent, child, weight=sp.csr_array(weight) if sparse else weight)
    return b.build()


def leaves_of(model, rng, rows, missing=0.2):
    """Draws of the leaves, some of them missing."""
    drawn = pgm.infer(model, want="samples", method=pgm.Forward(rows + 1), rng=rng).samples["v"]
    x = np.asarray(drawn, dtype=float)[:rows].reshape(rows, model.structure.layers["v"].size, -1)
    x[rng.random(x.shape[:2]) < missing] = np.nan
    return x if x.shape[2] > 1 else x[..., 0]


def in_each_way(ask, monkeypatch):
    """The answers by term, with rows as lanes, and with the general code for each edge."""
    found = []
    for by_term, limit in ((True, 5.5), (False, 5.5), (True, -1.0), (False, -1.0)):
        monkeypatch.setattr(packed_graph, "MAX_LOG_GROWTH", limit)
        monkeypatch.setattr(
            packed_graph.Net,
            "rounds_by_term",
            lambda net, rows, on=by_term: on and len(net.arrays["edge_unit"]) > 0,
        )
        found.append(ask())
    return found


def dense(value):
    return value.toarray() if sp.issparse(value) else np.asarray(value)


def check_equal(found, atol, bound):
    first, *others = found
    for other in others:
        np.testing.assert_allclose(other.bound, first.bound, rtol=bound, atol=bound)
        for name in ("mean", "gradient"):
            for key, value in first.raw(name).items():
                np.testing.assert_allclose(dense(other.raw(name)[key]), dense(value), atol=atol)
        assert other.status == first.status and other.warnings == first.warnings


KINDS = [(upper, leaves) for upper in UNITS for leaves in UNITS]
KINDS += [("Binary", "NoisyOr"), ("Categorical", "NoisyOr")]


@pytest.mark.parametrize("method", LIMITS, ids=["settled", "fixed xi"])
@pytest.mark.parametrize("rows", [1, 3, LANES + 1])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("upper, leaves", KINDS)
def test_layers_of_every_kind(upper, leaves, sparse, rows, method, monkeypatch):
    rng = np.random.default_rng([rows, sparse])
    unit = UNITS.get(leaves, pgm.NoisyOr())
    # Weaker weights leave a single maximum.
    scale = 0.2 if method is SETTLED else 1.0
    model = layered(rng, pgm.Binary(), UNITS[upper], unit, scale, sparse)
    x = leaves_of(model, rng, rows)
    found = in_each_way(
        lambda: pgm.infer(model.with_params({}), {"v": x}, WANT, method=method), monkeypatch
    )
    check_equal(found, **LIMITS[method])


@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_weights_on_both_sides_of_the_limit_of_growth(scale, monkeypatch):
    """With a scale of 3, some terms have a weight beyond the limit, and others have none."""
    rng = np.random.default_rng(0)
    model = layered(rng, pgm.Binary(), pgm.Binary(), pgm.Binary(), scale)
    x = leaves_of(model, rng, 2)
    found = in_each_way(
        lambda: pgm.infer(model.with_params({}), {"v": x}, WANT, method=FIXED_XI), monkeypatch
    )
    check_equal(found, **LIMITS[FIXED_XI])


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed, monkeypatch):
    """Tables, zeros, soft evidence, do(), rows of several patterns, and units of every kind."""
    graph = random_causes(seed) if seed % 4 == 0 else random_graph(seed, leaves=seed % 2 == 0)
    asked, model = draw_question(graph, seed, rows=1 + seed % 3), graph.build()
    given = {
        "evidence": as_arguments(graph, asked, 0),
        "soft": as_hints(graph, asked),
        "do": as_arguments(graph, asked, 2),
    }
    target = model.given(**given)
    if not by_tables(target) or not FIXED_XI.plan(target, ("bound",)).accepted:
        pytest.skip("mean field does not use tables here, or has no bound")
    found = in_each_way(
        lambda: pgm.infer(model.with_params({}), want=WANT, method=FIXED_XI, **given), monkeypatch
    )
    check_equal(found, **LIMITS[FIXED_XI])


def questions(rng):
    """Questions of several patterns, with soft evidence, do() and several rows."""
    x = rng.integers(0, 2, (9, 6)).astype(float)
    some = np.where(rng.random((9, 6)) < 0.3, np.nan, x)
    soft, do = {"h1": rng.normal(size=4)}, {"h1": [1, np.nan, np.nan, 0]}
    for rows in (x[0], x[1], x[:2], x, some[0], some[:2], some):
        yield {"evidence": {"v": rows}}
        yield {"evidence": {"v": rows}, "soft": soft}
        yield {"evidence": {"v": rows}, "do": do}
    yield {"evidence": {"h1": [0, 1, 1, np.nan]}}
    yield {"evidence": {"h1": [0, 1, 1, 0]}, "soft": {"v": rng.normal(size=6)}}
    yield {}


@one_test_over("seed", range(3))
def test_questions_that_share_their_facts(seed):
    """The bits are those of a model without earlier questions, also where weights are zero."""
    rng = np.random.default_rng(seed)
    shared = pgm.sbn([6, 4, 2], rng=seed)
    params = [{n: rng.normal(size=v.shape) for n, v in shared.params.items()} for _ in range(3)]
    params[1]["h1->v.weight"][:, :3] = 0.0
    params[2]["h2->h1.weight"][0] = 0.0
    every = list(questions(rng))
    for i in rng.permutation(3 * len(every)):
        given, own = every[i // 3], params[i % 3]
        found, alone = (
            pgm.infer(m.with_params(own), want=WANT, method=pgm.MeanField(), **given)
            for m in (shared, pgm.sbn([6, 4, 2], rng=seed))
        )
        np.testing.assert_array_equal(found.bound, alone.bound)
        for name in ("mean", "gradient"):
            for key, value in alone.raw(name).items():
                np.testing.assert_array_equal(found.raw(name)[key], value)


def test_a_prepared_question_has_the_bits_of_infer():
    rng = np.random.default_rng(0)
    model = pgm.sbn([64, 24, 8], rng=0)
    ask = pgm.prepare(model, ("v",), ("bound",), method=pgm.MeanField())
    for row in rng.integers(0, 2, (5, 64)):
        other = pgm.infer(model, {"v": row}, ("bound",), method=pgm.MeanField())
        np.testing.assert_array_equal(ask({"v": row}).bound, other.bound)
    with pytest.raises(pgm.PgmError, match="the question was prepared with it observed"):
        ask({"v": np.where(np.arange(64) < 1, np.nan, 1.0)})
    ask({"v": np.ones(64)})


@pytest.mark.parametrize("rows", [1, 2, LANES + 1])
@one_test_over("seed", range(8))
def test_a_small_step_is_that_of_the_snapshot(seed, rows, rtol=1e-9):
    graph = random_graph(seed, leaves=True)
    asked = draw_question(graph, seed, rows=rows)
    target = graph.build().given(as_arguments(graph, asked, 0))
    if not by_tables(target) or not FIXED_XI.plan(target, ("bound",)).accepted:
        pytest.skip("mean field does not use tables here, or has no bound")
    q = Belief(target)
    q.settle(3, 0.0)
    near, expected = q.beside(0.3, 5).state, q.nudged(0.3, 5)
    for name, value in expected.items():
        np.testing.assert_allclose(near[name], value, rtol=rtol, atol=1e-290)
    other = Belief(target, start=expected)
    for each in (q.beside(0.3, 5), other):
        each.settle(2000, 1e-10)
    np.testing.assert_allclose(q.beside(0.3, 5).bound().shape, other.bound().shape)
