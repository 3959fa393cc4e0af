"""Mean field against enumeration: the bound, its monotone way up, its gradient."""

import numpy as np
import pytest
from brute import Brute
from loops import one_test_over
from tiny import MODELS, as_evidence, patterns

import pgmengine as pgm
from pgmengine.infer.variational.unit_families import Factors

# test_bound_with_tables.py has the models with tables.
UNDIRECTED = [m for m in MODELS if not m.directed and not m.tables]


@one_test_over("m", UNDIRECTED)
def test_bound_below_log_z_and_equal_where_independent(m, slack=1e-9):
    rows = patterns(m)
    model, evidence = m.build(), as_evidence(m, rows)
    found = pgm.infer(model, evidence, want=("log_z", "marginals", "pairs"), method=pgm.MeanField())
    exact = np.array([Brute(m, row).log_z for row in rows])
    size = 1 + np.abs(exact)
    assert found.kind == "lower bound"
    assert np.all(
        found.log_z
        <= exact + slack * size + (1e-6 if "gaussian" in m.name or "continuous" in m.name else 0)
    )
    for i in range(len(rows)):
        one = model.given({name: value[[i]] for name, value in evidence.items()})
        if one.pattern.independent:
            np.testing.assert_allclose(
                pgm.MeanField().run(one, ("log_z",)).log_z, exact[i], rtol=1e-7, atol=1e-7
            )
    for name, seen in evidence.items():
        layer = model.structure.layers[name]
        if layer.unit.width == 1:
            np.testing.assert_array_equal(found.mean[name][~np.isnan(seen)], seen[~np.isnan(seen)])


@one_test_over("m", UNDIRECTED)
def test_the_bound_never_decreases(m, slack=1e-10):
    rng, target = np.random.default_rng(0), m.build().given(as_evidence(m, patterns(m)))
    q = Factors(target)
    before = -np.inf
    for _ in range(12):
        q.round()
        bound = q.bound()
        assert np.all(bound >= before - slack * (1 + np.abs(bound)))
        before = bound
    del rng


@one_test_over("m", [m for m in UNDIRECTED if "large" not in m.name])
def test_gradient_is_that_of_the_bound(m, rtol=1e-5):
    """At the fixed point the means need not be differentiated: finite differences of the converged
    bound.
    """
    model, method = m.build(), pgm.MeanField(updates=5000, tolerance=1e-12)
    row = {k: v[:1] for k, v in as_evidence(m, patterns(m)[1:2]).items()}
    state = method.run(model.given(row), ("marginals",)).state
    gradient = method.run(model.given(row), ("gradient",), state=state).gradient
    rng = np.random.default_rng(0)
    for name, value in model.params.items():
        dense = value.toarray() if hasattr(value, "toarray") else value
        step = rng.normal(size=dense.shape) * (dense != 0 if hasattr(value, "toarray") else 1.0)
        tied = 1
        if name == "x-x.weight" or name == "v-v.weight":
            k = model.structure.layers[name[0]].unit.width
            unit = np.arange(len(step)) // k
            step = np.triu(step, 1) * (unit[:, None] != unit)
            step, tied = step + step.T, 2
        ends = []
        for sign in (1, -1):
            moved = dense + sign * 1e-5 * step
            moved = type(value)(moved) if hasattr(value, "toarray") else moved
            ends.append(
                method.run(
                    model.with_params({name: moved}).given(row), ("log_z",), state=state
                ).log_z[0]
            )
        own = gradient[name].toarray() if hasattr(gradient[name], "toarray") else gradient[name]
        np.testing.assert_allclose(
            (own * step).sum() / tied, (ends[0] - ends[1]) / 2e-5, rtol=rtol, atol=1e-6
        )


def test_soft_evidence_beta_and_reference_keep_the_bound(slack=1e-9):
    from tiny import TinyModel

    m: TinyModel = next(m for m in UNDIRECTED if m.name == "dbm")
    model = m.build()
    soft = {"v": np.array([1.0, -2.0, 0.5])}
    reference = {"v": np.array([0.3, -0.4, 1.0]), "h1": np.array([0.2, 0.0, -1.0])}
    for beta in (0.0, 0.37, 1.0):
        target = model.given({"v": [np.nan, 1, np.nan]}, soft=soft).at(beta, reference)
        oracle = Brute(
            m,
            {"v": [None, 1.0, None]},
            soft={"v": [[0.0, s] for s in soft["v"]]},
            beta=beta,
            reference={k: v for k, v in reference.items()},
        )
        q = Factors(target)
        q.settle(300, 1e-12)
        assert q.bound()[0] <= oracle.log_z + slack
        if beta == 0:
            np.testing.assert_allclose(q.bound()[0], oracle.log_z, rtol=1e-9)


def test_single_precision_agrees(atol=2e-3):
    model = pgm.dbm([30, 20, 10], rng=0)
    x = np.random.default_rng(0).integers(0, 2, (50, 30))
    one, two = (
        pgm.infer(model, {"v": x}, want=("log_z", "marginals"), method=pgm.MeanField(precision=p))
        for p in (np.float64, np.float32)
    )
    np.testing.assert_allclose(one.mean["h2"], two.mean["h2"], atol=1e-4)
    np.testing.assert_allclose(one.log_z, two.log_z, atol=atol)


def test_a_fixed_point_is_known_at_once():
    """A start at the end of the last run takes one round. A layer without neighbours does not count
    as a change.
    """
    b = pgm.GraphBuilder()
    for name in "xabu":
        b.layer(name, pgm.Binary(), 3, bias=np.array([0.5, -0.2, 0.3]))
    w = np.random.default_rng(0).normal(size=(3, 3))
    b.couple("a", "b", weight=w)
    b.couple("x", "u", weight=w)
    target, method = b.build().given({"x": [1, 0, 1]}), pgm.MeanField(updates=500, tolerance=1e-7)
    first = method.run(target)
    again = method.run(target, state=first.state)
    assert (
        first.stats["rounds"] > 2 and again.stats["rounds"] == 1 and again.stats["change"] <= 1e-7
    )
    np.testing.assert_allclose(
        again.mean["u"], 1 / (1 + np.exp(-(np.array([0.5, -0.2, 0.3]) + w[0] + w[2])))
    )


def test_refusals():
    with pytest.raises(pgm.PgmError, match="same side"):
        pgm.infer(
            pgm.rbm(3, 2, rng=0), {"v": [0, 1, 0]}, want=("log_prob",), method=pgm.MeanField()
        )
    with pytest.raises(pgm.PgmError, match="samples"):
        pgm.infer(pgm.rbm(3, 2, rng=0), want=("samples",), method=pgm.MeanField())


@pytest.mark.parametrize(
    "m",
    [m for m in MODELS if m.undirected and all(x.unit.support is not None for x in m.layers)],
    ids=repr,
)
def test_pairs_are_expectations_under_q(m, atol=1e-9):
    """E_Q[x_a x_b'] summed over the states of two units, and of one unit where both components are
    its own.
    """
    model = m.build()
    r = pgm.infer(
        model, as_evidence(m, patterns(m)), want=("pairs", "marginals"), method=pgm.MeanField()
    )
    values = {
        n: np.reshape(x.unit.support, (len(x.unit.support), -1))
        for n, x in model.structure.layers.items()
    }
    for c in model.structure.couplings:
        found, wa, wb = r.pairs[c.key], values[c.a].shape[1], values[c.b].shape[1]
        for i, j in np.ndindex(r.prob[c.a].shape[1], r.prob[c.b].shape[1]):
            p, q = r.prob[c.a][:, i], r.prob[c.b][:, j]
            joint = (
                p[:, :, None] * np.eye(p.shape[1])
                if c.a == c.b and i == j
                else p[:, :, None] * q[:, None, :]
            )
            expected = np.einsum("rkl,ka,lb->rab", joint, values[c.a], values[c.b])
            block = found[:, i * wa : (i + 1) * wa, j * wb : (j + 1) * wb]
            known = ~np.isnan(block)
            np.testing.assert_allclose(block[known], expected[known], atol=atol)
        assert np.any(~np.isnan(found)) or not np.any(model.weight(c))


@one_test_over(
    "evidence",
    [
        {"h": [0, 0]},
        {"h": [0, 0], "v": [0, 0, 0]},
        {"h": [1, 0]},
        {"h": [0, 0], "v": [0, np.nan, 0]},
        {"h": [0, 0], "v": [1, np.nan, 0]},
    ],
)
def test_units_that_cannot_be_1_have_a_bound(evidence):
    """Noisy-or units without leak, which no cause turns on: their natural parameter is -inf, and 0
    times that is 0.
    """
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2)
    b.layer("v", pgm.NoisyOr(), 3)
    b.cause("h", "v", weight=[[0.5, 1.0, 0.2], [0.1, 2.0, 0.7]])
    model = b.build()
    exact = pgm.infer(model, evidence, want=("log_z",), method=pgm.Exact()).log_z
    found = pgm.infer(model, evidence, want=("log_z",), method=pgm.MeanField()).log_z
    np.testing.assert_allclose(found, exact, rtol=1e-9)


def test_means_of_gaussian_units_with_arrows_among_them_that_nothing_depends_on(atol=1e-6):
    """h -> g, and g1 -> g2 -> g3 inside the layer: means are linear in the parents'."""
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2, bias=[0.3, -0.2])
    b.layer("g", pgm.Gaussian(), 3, bias=[0.1, 0.2, 0.3])
    b.cause("h", "g")
    inside = np.array([[0, 0.5, -1.0], [0, 0, 2.0], [0, 0, 0]])
    b.cause("g", "g", inside)
    model = b.build(rng=0)
    h = 1 / (1 + np.exp(-model.params["h.bias"]))
    g = h @ model.params["h->g.weight"] + model.params["g.bias"]
    for i in (1, 2):
        g[i] += g[:i] @ inside[:i, i]
    r = pgm.infer(model, method=pgm.MeanField())
    np.testing.assert_allclose(r.mean["g"], g, atol=atol)
