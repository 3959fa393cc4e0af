"""Ancestral sampling with likelihood weighting against enumeration, and when it is chosen."""

import sys

import numpy as np
import pytest
from brute import Brute
from invariance import ALARM, p_value
from tiny import MODELS, as_evidence, patterns

import pgmengine as pgm
from pgmengine.engine.chains import start
from pgmengine.infer.sampling.draws.weighted import drawn

DRAWS, NAN = 40_000, np.nan
PURE = [m for m in MODELS if m.build().structure.normalized]
# Its table is a factor of the importance weights.
WEIGHED = [m for m in MODELS if m.name == "tables above arrows"]


@pytest.mark.parametrize("m", PURE + WEIGHED, ids=repr)
def test_weighted_draws_agree_with_enumeration(m, errors=7.0):
    """log_z, means, state probabilities and pairs of every row within standard errors.

    Fewer than 100 numbers; the errors of weighted means may be too small by a seventh where few
    draws carry the weight: 100 x 2e-9.
    """
    rows = patterns(m)
    want = ("log_z", "marginals", "pairs", *(("log_prob",) if m in PURE else ()))
    r = pgm.infer(
        m.build(), as_evidence(m, rows), want=want, method=pgm.Forward(DRAWS, below=99), rng=0
    )
    for i, row in enumerate(rows):
        exact = Brute(m, row)
        # The standard error of a mean of numbers of size 1.
        sure = r.stats["ess"][i] ** -0.5
        assert abs(r.log_z[i] - exact.log_z) <= errors * r.log_z_error[i] + 1e-9
        for layer in m.layers:
            mean = np.reshape(r.mean[layer.name][i], -1)
            mcse = np.reshape(r.stats["mcse"][layer.name][i], -1)
            assert np.all(np.abs(mean - exact.mean(layer.name)) <= errors * mcse + 10 / DRAWS)
            if layer.name in r.prob:
                assert np.abs(r.prob[layer.name][i] - exact.prob(layer.name)).max() <= errors * sure
        for a, b, _ in m.directed:
            found = r.pairs[f"{a}->{b}"][i]
            far = np.abs(found - exact.pairs(a, b))[~np.isnan(found)]
            assert np.all(far <= 4 * errors * sure)
    if m in PURE:
        np.testing.assert_array_equal(r.log_z, r.log_prob)


@pytest.mark.parametrize(
    "m", [m for m in PURE if all(x.unit.support is not None for x in m.layers)], ids=repr
)
def test_draws_without_evidence_have_the_joint_distribution(m):
    """All joint states, not only marginals."""
    many = m.build().given().take(np.zeros(100_000, dtype=int))
    draws = drawn(many, np.random.default_rng(1))
    x, log_w = draws.values(*many.structure.layers), draws.log_w
    np.testing.assert_allclose(log_w, 0.0, atol=1e-12)
    assert p_value(Brute(m), x) > ALARM


def test_networks_of_tables_with_soft_evidence_do_and_samples(errors=6.0):
    m = next(m for m in PURE if m.name == "network")
    soft, do = {"v": np.array([1.0, -2.0, 0.5, 0.0])}, {"v": [NAN, 1.0, NAN, NAN]}
    r = pgm.infer(
        m.build(),
        {"h": [NAN, 2]},
        soft=soft,
        do=do,
        want=("log_z", "marginals", "samples", "gradient"),
        method=pgm.Forward(DRAWS),
        rng=0,
    )
    exact = Brute(
        m,
        {"h": [None, 2]},
        soft={"v": [[0.0, s] for s in soft["v"]]},
        do={"v": [None, 1.0, None, None]},
    )
    assert abs(r.log_z[0] - exact.log_z) <= errors * r.log_z_error[0]
    sure = r.stats["ess"][0] ** -0.5
    for name in ("v", "h"):
        np.testing.assert_allclose(r.prob[name], exact.prob(name), atol=errors * sure)
        mean = r.samples[name].mean(axis=(0, 1)).ravel()
        np.testing.assert_allclose(mean, exact.mean(name), atol=errors * sure)
    slope = pgm.infer(
        m.build(), {"h": [NAN, 2]}, soft=soft, do=do, want="gradient", method=pgm.Exact()
    ).gradient
    for name, value in slope.items():
        np.testing.assert_allclose(r.gradient[name], value, atol=2 * errors * sure)


def test_long_networks_are_drawn_exactly_in_levels(units=3000, draws=2000, errors=6.0):
    """Chains of copies with a flip: x_i = x_(i-1) flipped with probability p, in 300 chains."""
    flip, start, width = 0.1, 0.2, 300
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), units)
    for i in range(width):
        b.conditional(("x", i), (), [1 - start, start])
    for i in range(width, units):
        b.conditional(("x", i), (("x", i - width),), [[1 - flip, flip], [flip, 1 - flip]])
    model = b.build()
    assert len(model.structure.drawing_steps) == units // width
    made = drawn(model.given(), np.random.default_rng(0), draws)
    x, log_w = made.values("x"), made.log_w
    assert not log_w.any()
    expected, now = [], start
    for _ in range(units // width):
        expected.append(now)
        now = now * (1 - flip) + (1 - now) * flip
    # 300 independent chains at each depth: 10 means of 600,000 draws each.
    found = x["x"].reshape(draws, -1, width).mean(axis=(0, 2))
    np.testing.assert_allclose(found, expected, atol=errors * 0.5 / np.sqrt(draws * width))
    r = pgm.infer(model, want=("samples", "log_z"), method=pgm.Auto(candidates=(pgm.Forward(),)))
    assert isinstance(r.method, pgm.Forward) and r.log_z[0] == 0.0 and r.status.good


def test_chains_start_at_possible_states_of_networks(chains=500):
    m = next(m for m in PURE if m.name == "network zeros")
    model = m.build()
    many = model.given().take(np.zeros(chains, dtype=int))
    x = start(many, np.random.default_rng(0))
    assert np.isfinite(many.log_density(x)).all()
    # They are draws from the network itself.
    assert p_value(Brute(m), x) > ALARM


def coupled(weight):
    """Variables of one layer, all with a conditional, and a coupling of two of them and a third."""
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), 5)
    b.layer("g", pgm.Gaussian(0.5), 1)
    b.conditional(("x", 0), (), [0.3, 0.7])
    for i in range(1, 5):
        b.conditional(("x", i), (("x", i - 1),), [[0.8, 0.2], [0.25, 0.75]])
    inside = np.zeros((5, 5))
    inside[1, 3] = inside[3, 1] = weight
    b.couple("x", "x", weight=inside)
    b.couple("x", "g", weight=np.array([[0.0], [0.0], [0.0], [0.0], [0.7]]))
    return b.build()


@pytest.mark.parametrize("weight", [0.0, 1.5], ids=["none", "one"])
def test_couplings_of_units_with_a_conditional_weigh_draws(weight, errors=6.0):
    """Other units of the layer have couplings or none; the Gaussian is observed, as it must be."""
    model, evidence = coupled(weight), {"x": [[NAN] * 5, [NAN, NAN, 1, NAN, NAN]], "g": [0.4]}
    want = ("log_z", "marginals", "pairs")
    r = pgm.infer(model, evidence, want=want, method=pgm.Forward(DRAWS), rng=0)
    exact = pgm.infer(model, evidence, want=want, method=pgm.Exact())
    # 2 log_z, 10 means and 22 pairs, of which 30 vary: 30 * 2e-9.
    assert np.all(np.abs(r.log_z - exact.log_z) <= errors * r.log_z_error)
    sure = r.stats["ess"].min() ** -0.5
    np.testing.assert_allclose(r.mean["x"], exact.mean["x"], atol=errors * sure)
    for key, value in exact.pairs.items():
        np.testing.assert_allclose(r.pairs[key], value, atol=errors * sure)
    many = pgm.Forward(below=2).prepare(model.given(evidence), ("log_z",)).plan
    # The pair inside the layer, the pair with the Gaussian, and in one row the child of a free one.
    count = 2 + (weight != 0)
    few = pgm.Forward(below=count).prepare(model.given(evidence), ("log_z",)).plan
    assert few.accepted and many.accepted == (count <= 2)
    if count > 2:
        assert f"{count} observed units, undirected tables and coupled pairs" in many.refusal


def test_couplings_of_children_of_arrows_weigh_draws(errors=6.0):
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2)
    b.layer("v", pgm.Spin(), 3)
    b.cause("h", "v", weight=np.array([[0.5, -1.0, 2.0], [1.0, 0.3, -0.4]]))
    b.couple("v", "v", weight=np.array([[0.0, 0.8, 0.0], [0.8, 0.0, -1.1], [0.0, -1.1, 0.0]]))
    model, evidence = b.build(), {"v": [[NAN, NAN, NAN], [NAN, 1.0, NAN]]}
    want = ("log_z", "marginals")
    r = pgm.infer(model, evidence, want=want, method=pgm.Forward(DRAWS), rng=0)
    exact = pgm.infer(model, evidence, want=want, method=pgm.Exact())
    assert r.status.good and np.ptp(r.stats["log_weights"][:, 0]) > 0.1
    # 2 log_z and 9 means: 11 * 2e-9.
    assert np.all(np.abs(r.log_z - exact.log_z) <= errors * r.log_z_error)
    for name in ("h", "v"):
        sure = 2.0 * r.stats["ess"].min() ** -0.5
        np.testing.assert_allclose(r.mean[name], exact.mean[name], atol=errors * sure)


def test_children_of_arrows_beside_a_table_have_their_marginals(errors=6.0):
    """No unit of their layer is in a table; some of them are observed."""
    b = pgm.GraphBuilder()
    b.variable("a")
    b.conditional("a", (), [0.3, 0.7])
    b.layer("c", pgm.Binary(), 3, bias=[2.0, -1.0, 0.5])
    b.layer("m", pgm.MultiValued(2), 1)
    b.cause("a", "c", weight=[[1.0, 0.5, -2.0]])
    b.cause("c", "m", weight=[[1.0], [-0.7], [0.3]])
    model, evidence = b.build(), {"c": [[NAN] * 3, [NAN, 1.0, NAN]]}
    r = pgm.infer(model, evidence, method=pgm.Forward(DRAWS), rng=0)
    exact = pgm.infer(model, evidence, method=pgm.Exact())
    # 2 rows of 5 units with at most 3 states: 30 * 2e-9.
    for name, prob in exact.prob.items():
        sure = r.stats["ess"].min() ** -0.5
        np.testing.assert_allclose(r.prob[name], prob, atol=errors * sure)
        np.testing.assert_allclose(r.mean[name], exact.mean[name], atol=errors * sure)


def test_only_units_without_parents_are_in_the_way():
    model = coupled(1.0)
    plan = pgm.Forward().prepare(model.given({}), ("marginals",)).plan
    assert plan.refusal == "layer 'g' is free and not drawn from its parents"


def test_a_refusal_is_shown_once_and_names_the_variable():
    b = pgm.GraphBuilder()
    b.variable("smoke")
    b.variable("lung")
    b.table(("smoke",), [1.0, 3.0])
    b.conditional("lung", ("smoke",), [[0.1, 0.9], [0.01, 0.99]])
    text = pgm.explain(b.build(), method=pgm.Auto(candidates=(pgm.Forward(below=0), pgm.Forward())))
    line = "variable 'smoke' is free and not drawn from its parents"
    assert text.count(line) == 1 and text.plans[0].refusal == text.plans[1].refusal == line


def test_soft_evidence_do_and_samples(errors=5.0):
    m = next(m for m in PURE if m.name == "sbn deep")
    soft, do = {"v": np.array([1.0, -2.0, 0.5])}, {"h1": [1.0, np.nan]}
    r = pgm.infer(
        m.build(),
        {"v": [np.nan, 1, np.nan]},
        soft=soft,
        do=do,
        want=("log_z", "marginals", "samples"),
        method=pgm.Forward(DRAWS),
        rng=0,
    )
    exact = Brute(
        m,
        {"v": [None, 1.0, None]},
        soft={"v": [[0.0, s] for s in soft["v"]]},
        do={"h1": [1.0, None]},
    )
    assert abs(r.log_z[0] - exact.log_z) <= errors * r.log_z_error[0]
    for name in ("v", "h1", "h2"):
        np.testing.assert_allclose(
            r.samples[name].mean(axis=(0, 1)),
            exact.mean(name),
            atol=errors * r.stats["ess"][0] ** -0.5,
        )


def test_gradient_and_rows_in_parts_agree_with_enumeration(monkeypatch, errors=6.0):
    m = next(m for m in PURE if m.name == "sbn")
    model, evidence = m.build(), as_evidence(m, patterns(m))
    exact = pgm.infer(model, evidence, want=("gradient", "log_z"), method=pgm.Exact())
    monkeypatch.setattr(
        sys.modules["pgmengine.infer.sampling.methods.forward"],
        "DRAW_BYTES_AT_ONCE",
        8.0 * DRAWS * 7 * 2,
    )  # two rows at a time
    r = pgm.infer(model, evidence, want=("gradient", "log_z"), method=pgm.Forward(DRAWS), rng=0)
    assert r.stats["log_weights"].shape == (DRAWS, len(evidence["v"]))
    np.testing.assert_allclose(r.log_z, exact.log_z, atol=errors * r.log_z_error.max())
    for name, value in exact.gradient.items():
        np.testing.assert_allclose(
            r.gradient[name], value, atol=errors * len(evidence["v"]) * DRAWS**-0.5
        )


def test_auto_draws_forward_when_nothing_is_known_below():
    model = pgm.sbn([200, 100, 50], rng=0)
    r = pgm.infer(model, {"h2": np.ones(50)}, rng=0)
    assert (
        isinstance(r.method, pgm.Forward)
        and r.status.good
        and r.stats["ess"][0] == pytest.approx(1000)
    )
    below = pgm.infer(
        model, {"v": np.ones(200)}, method=pgm.Auto(candidates=(pgm.Forward(), pgm.MeanField()))
    )
    assert isinstance(below.method, pgm.MeanField)
    assert "200 observed units, undirected tables and coupled pairs" in str(below.refused[0])


@pytest.mark.parametrize("parents", [5, 12])
def test_few_draws_that_carry_the_weight_are_told(parents):
    """The draws that count are 1 of 32, or 1 of 4,096, where all parents are on."""
    model = pgm.sbn([10, parents], rng=0)
    model = model.with_params({"v.bias": np.full(10, 2.0 - 4.0 * parents)})
    model = model.with_params({"h1->v.weight": np.full((parents, 10), 4.0)})
    r = pgm.infer(model, {"v": np.ones(10)}, method=pgm.Forward(200), rng=0)
    if parents == 5:
        # They are a small share, but many.
        assert 200 < r.stats["ess"][0] < 0.05 * r.stats["drawn"][0] and r.status.good
        return
    assert r.status is pgm.Status.FEW_WEIGHTS and "carry the importance weight" in r.warnings[0]


@pytest.mark.long
def test_intervals_of_rare_evidence_hold_and_are_good(networks=150, most_missed=3):
    """The evidence has a probability of 1e-2 to 1e-6; at least 0.9 of the answers are good."""
    rng, good, missed = np.random.default_rng(0), list[bool](), 0
    while len(good) < networks:
        model, names = pgm.GraphBuilder(), [f"x{i}" for i in range(10)]
        for i, name in enumerate(names):
            model.variable(name, states=3)
            above = tuple(names[j] for j in rng.choice(i, min(i, 2), replace=False)) if i else ()
            model.conditional(name, above, rng.dirichlet(np.ones(3), size=(3,) * len(above)))
        net, x = model.build(), {n: int(rng.integers(3)) for n in rng.permutation(names)[:5]}
        exact = pgm.infer(net, x, want=("log_z",), method=pgm.Exact()).log_z[0]
        if not 1e-6 < np.exp(exact) < 1e-2:
            continue
        r = pgm.infer(net, x, want=("log_z",), method=pgm.Forward(), rng=len(good))
        good.append(r.status.good)
        low, high = r.log_z_interval[0]
        missed += good[-1] and not low <= exact <= high
    assert np.mean(good) > 0.9 and missed <= most_missed


@pytest.mark.parametrize(
    "model, want, match",
    [
        (pgm.rbm(3, 2, rng=0), ("marginals",), "free and not drawn from its parents"),
        (pgm.dbn([3, 2, 2], rng=0), ("marginals",), "free and not drawn from its parents"),
        (pgm.sbn([3, 2], rng=0), ("mode",), "no mode"),
    ],
)
def test_refusals(model, want, match):
    with pytest.raises(pgm.PgmError, match=match):
        pgm.infer(model, want=want, method=pgm.Forward())


def test_bound_is_asked_for_by_name_and_a_work_limit_rules_sampling_out():
    model = pgm.sbn([40, 30, 30], rng=0)
    x = np.random.default_rng(0).integers(0, 2, (3, 40)).astype(float)
    r = pgm.infer(model, {"v": x}, want=("bound", "marginals"))
    assert isinstance(r.method, pgm.MeanField) and r.bound.shape == (3,) and r.kind == "lower bound"
    before = [type(one) for one in pgm.Auto().candidates].index(pgm.MeanField)
    assert len(r.refused) == before
    cheap = pgm.infer(model, {"v": x}, method=pgm.Auto(max_work=6.4e6))
    assert isinstance(cheap.method, pgm.MeanField)
    assert any("the limit is 6.4e+06" in str(p) for p in cheap.refused)
    small = pgm.infer(pgm.sbn([4, 3], rng=0), {"v": [0, 1, 1, 0]}, want=("bound", "log_z"))
    assert (
        small.bound[0]
        == small.log_z[0]
        <= pgm.infer(pgm.sbn([4, 3], rng=0), {"v": [0, 1, 1, 0]}, want="log_z").log_z
    )


def test_a_bound_does_not_replace_an_estimate():
    """After an estimate with a bad status, Auto does not take mean field, whose good status would
    mislead.
    """
    rng = np.random.default_rng(0)
    w = rng.normal(0, 6, (40, 40))
    model = pgm.rbm(40, 40, rng=0).with_params({"v-h.weight": w})
    bad = pgm.MCMC(chains=4, warmup=5, draws=20)
    r = pgm.infer(model, method=pgm.Auto(candidates=(bad, pgm.MeanField())), rng=0)
    assert isinstance(r.method, pgm.MCMC) and not r.status.good


def test_evidence_that_no_draw_can_give():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 1)
    b.layer("v", pgm.NoisyOr(), 1)
    b.cause("h", "v", weight=[[0.0]])
    r = pgm.infer(
        b.build(), {"v": [1]}, want=("marginals", "log_z", "samples"), method=pgm.Forward(50), rng=0
    )
    assert not r.status.good and r.log_z[0] == -np.inf and r.log_z_interval[0, 1] == np.inf
    assert np.isnan(r.mean["h"]).all() and np.isnan(r.samples["h"]).all()
    with pytest.raises(pgm.PgmError, match="draws must be an integer of at least 2"):
        pgm.Forward(1e3)
