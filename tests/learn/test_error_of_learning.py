"""The error of learning: draws of the Dirichlet posterior, bootstraps, and intervals of answers."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm

TABLE = {"a": "xxxyyyyyyy", "b": "uvwuuuvvww"}
ROWS = {name: list(text) for name, text in TABLE.items()}


def learned(edges="a -> b", rows=ROWS, **settings):
    return pgm.fit(pgm.network(rows, edges), rows, progress=False, **settings)


def dirichlet_moments(alpha):
    total = alpha.sum(axis=-1, keepdims=True)
    mean = alpha / total
    return mean, mean * (1 - mean) / (total + 1)


@one_test_over("pseudocount, weight", [(1.0, 1.0), (0.5, 3.0)])
def test_draws_have_the_moments_of_the_dirichlet(pseudocount, weight, draws=1000, limit=5.0):
    """Mean and variance of each entry are those of Dirichlet(counts + pseudocount), by formula."""
    steps = pgm.EM(pseudocount=pseudocount)
    f = learned(optimizer=steps, sample_weight=np.full(10, weight))
    models = f.posterior(draws, rng=0)
    assert len(models) == draws and models.model is f.model
    counts = np.array([[1, 1, 1], [3, 2, 2]])
    for key, own in {"a|.table": np.array([3, 7]), "b|a.table": counts}.items():
        drawn = np.exp([one.params[key] for one in models])
        np.testing.assert_allclose(drawn.sum(axis=-1), 1.0, rtol=1e-9)
        mean, variance = dirichlet_moments(weight * own + pseudocount)
        np.testing.assert_allclose(mean, np.exp(f.params[key]), rtol=1e-9)
        z = (drawn.mean(axis=0) - mean) / np.sqrt(variance / draws)
        assert np.abs(z).max() < limit
        # Squares of deviations have a standard error of their own.
        squares = (drawn - mean) ** 2
        z = (squares.mean(axis=0) - variance) / (squares.std(axis=0) / np.sqrt(draws))
        assert np.abs(z).max() < limit


def test_small_pseudocounts_do_not_underflow():
    f = learned(rows={"a": ["x"] * 3 + ["y"]}, edges="a", optimizer=pgm.EM(pseudocount=1e-3))
    logs = np.array([one.params["a|.table"] for one in f.posterior(200, rng=0)])
    assert np.isfinite(logs).all()


def test_fixed_impossible_and_given_entries_stay():
    b = pgm.GraphBuilder()
    a, c = b.variable("a", states=("x", "y")), b.variable("b", states=("u", "v", "w"))
    b.conditional(a, (), [0.5, 0.5])
    b.conditional(c, (a,), [[0.4, 0.6, 0.0], [0.2, 0.3, 0.5]])
    mask = {"b|a.table": np.array([[False] * 3, [True, False, False]])}
    rows = {"a": ["x", "y", "x", "y", "y"], "b": ["u", "v", "v", "w", "w"]}
    steps = pgm.Fixed(pgm.EM(), mask)
    f = pgm.fit(b.build(), rows, given=("a",), optimizer=steps, progress=False)
    assert f.numbers == 1 + 1
    for one in f.posterior(40, rng=0):
        p = np.exp(one.params["b|a.table"])
        np.testing.assert_array_equal(one.params["a|.table"], f.params["a|.table"])
        assert p[0, 2] == 0 and p[1, 0] == pytest.approx(0.2, rel=1e-12)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    drawn = np.exp([one.params["b|a.table"] for one in f.posterior(1000, rng=1)])
    mean, variance = dirichlet_moments(np.array([2.0, 3.0]))
    assert (
        np.abs(drawn[:, 1, 1:].mean(axis=0) - 0.8 * mean).max() < 5 * (variance / 1000).max() ** 0.5
    )


def test_tied_tables_and_templates_have_one_draw():
    def declare(steps):
        b = pgm.GraphBuilder()
        z = b.variable("z", states=2, shape=steps)
        b.conditional(z[0], (), [0.5, 0.5], name="start")
        b.conditional(z[1:], (z[:-1],), np.full((2, 2), 0.5), name="move")
        return b

    rows = [{"z": [0, 1, 1, 0]}, {"z": [1, 1, 0]}]
    f = pgm.fit(pgm.Template(declare), rows, progress=False)
    models = f.posterior(40, rng=0)
    drawn = np.exp([one.params["move"] for one in models])
    mean, variance = dirichlet_moments(np.array([[0, 1], [2, 2]]) + 1.0)
    assert np.abs((drawn.mean(axis=0) - mean) / np.sqrt(variance / 40)).max() < 5
    one, two = pgm.infer(models, [{"z": [0, None]}, {"z": [None, None, 1]}], rng=0)
    low, high = one.marginal_interval("z")[1]
    assert low.shape == (2,) and low[0] == high[0] == 0
    assert low[1] < one.marginal("z")[1][1] < high[1]
    assert two.parameter_intervals["prob"]["z"].shape[-1] == 2


def gaps():
    return learned(rows={"a": ["x", None, "y", "y"], "b": ["u", "v", "v", None]})


def of_normals():
    b = pgm.GraphBuilder()
    z, x = b.variable("z", states=2), b.layer("x", pgm.Normal(), 1)
    b.conditional(z, (), [0.5, 0.5])
    b.cause(z, x, np.zeros((2, 2)), name="rows")
    return pgm.fit(b.build(), {"z": [0, 1, 1], "x": np.arange(3.0)[:, None]}, progress=False)


def of_gates():
    b = pgm.GraphBuilder()
    b.variable("a", states=2)
    b.variable("c", states=2)
    b.conditional("a", (), [0.5, 0.5])
    b.conditional("c", ("a",), pgm.noisy_or([0.7], leak=0.1))
    return pgm.fit(b.build(), {"a": [0, 1, 1], "c": [0, 0, 1]}, progress=False)


REFUSED = [
    (lambda: gaps().posterior(), "rows have gaps"),
    (lambda: of_normals().posterior(), "'rows' is no table"),
    (lambda: of_gates().posterior(), "contributions to gates"),
    (
        lambda: learned(
            optimizer=pgm.EM(pseudocount={"a|.table": np.ones(2)}),
            rows={"a": ["x", "x", "y"], "b": ["u", "v", "u"]},
        ).posterior(),
        r"entry \[1, 1\] of 'b|a.table' has neither data nor a pseudocount",
    ),
    (
        lambda: pgm.fit(pgm.rbm(2, 1), {"v": np.eye(2)}, updates=1, progress=False).posterior(),
        "has no counts of tables",
    ),
    (lambda: learned().posterior(0), "draws"),
    (lambda: pgm.bootstrap(learned().model, 3), "bootstrap: fit must be a Fit"),
    (lambda: pgm.bootstrap(learned(), 0), "bootstrap: n"),
    (lambda: pgm.bootstrap(pickle.loads(pickle.dumps(learned())), 3), "give them as data="),
    (lambda: pgm.bootstrap(learned(), 3, data={"a": ["x"], "b": ["u"]}), r"expected \(1,\)"),
    (lambda: pgm.infer(learned().model, parameters=True), "parameters=True needs a Fit"),
    (lambda: pgm.infer(learned().posterior(38)), "at least 39 models, and there are 38"),
    (
        lambda: pgm.infer(learned(), want=("mode",), parameters=True),
        "gives intervals to marginals, log_z, log_prob",
    ),
    (lambda: pgm.infer(gaps(), parameters=True), "pgm.bootstrap"),
    (lambda: pgm.infer(learned()).marginal_interval("a"), "need parameters=True"),
]


@one_test_over("call, why", REFUSED)
def test_what_has_no_error_of_learning_is_refused_by_name(call, why):
    with pytest.raises(pgm.PgmError, match=why):
        call()


def test_intervals_are_order_statistics_of_the_answers():
    """Of 79 models, the second smallest and the second largest answer; exactly."""
    f = learned()
    models, want = f.posterior(79, rng=0), ("marginals", "log_prob", pgm.Joint("a", "b"))
    evidence = {"b": ["u", None]}
    r = pgm.infer(models, evidence, want)
    each = [pgm.infer(one, evidence, want) for one in models]
    plain = pgm.infer(f, evidence, want)
    for name in ("prob", "log_prob", "joint"):
        for found, own, drawn in zip(
            *(values(x) for x in (r.parameter_intervals[name], plain.answers[name])),
            zip(*(values(one.answers[name]) for one in each), strict=True),
            strict=True,
        ):
            ordered = np.sort(drawn, axis=0)
            np.testing.assert_array_equal(found[..., 0], ordered[1])
            np.testing.assert_array_equal(found[..., 1], ordered[-2])
            assert found.shape == (*own.shape, 2)
    np.testing.assert_array_equal(r.prob["a"], plain.prob["a"])
    low, high = r.marginal_interval("a")["x"]
    assert low.shape == (2,) and (low < high).all()
    assert "95 % with the error of learning" in repr(r)


def values(answer):
    return list(answer.values()) if isinstance(answer, dict) else [answer]


def test_infer_with_parameters_draws_the_posterior_and_answers_as_without():
    f, evidence = learned(), {"b": "u"}
    r = pgm.infer(f, evidence, parameters=True, rng=5)
    again = pgm.infer(f.posterior(rng=5), evidence, rng=5)
    assert r.marginal_interval("a") == again.marginal_interval("a")
    assert r.marginal("a") == pgm.infer(f, evidence).marginal("a")


@pytest.mark.long
def test_a_bootstrap_of_counts_has_their_moments(n=500, limit=5.0):
    """Counts of a resample are multinomial, so that learned shares have known moments."""
    f = learned(rows={"a": ["x"] * 12 + ["y"] * 28}, edges="a", optimizer=pgm.EM(pseudocount=0))
    share = np.exp([one.params["a|.table"][0] for one in pgm.bootstrap(f, n, rng=0)])
    assert abs(share.mean() - 0.3) < limit * np.sqrt(0.3 * 0.7 / 40 / n)
    variance = 0.3 * 0.7 / 40
    assert abs(share.var() / variance - 1) < limit * np.sqrt(2 / n)


def test_a_bootstrap_repeats_the_fit():
    """Refits have its weights, given units, fixed numbers and length; the bits need no executor."""
    rows = {"a": ["x", "y", None, "y"] * 5, "b": ["u", "v", "v", None] * 5}
    weights = np.tile([1.0, 0.0, 2.0, 1.0], 5)
    steps = pgm.Fixed(pgm.EM(), ["a|.table"])
    f = learned(rows=rows, optimizer=steps, sample_weight=weights, updates=3)
    assert f.again.rows == 20
    models = pgm.bootstrap(f, 4, rng=0)
    for one in models:
        np.testing.assert_array_equal(one.params["a|.table"], f.params["a|.table"])
        assert not np.array_equal(one.params["b|a.table"], f.params["b|a.table"])
    with ThreadPoolExecutor(2) as pool:
        for one, other in zip(models, pgm.bootstrap(f, 4, rng=0, executor=pool), strict=True):
            np.testing.assert_array_equal(one.params["b|a.table"], other.params["b|a.table"])
    copied = pickle.loads(pickle.dumps(f))
    for one, other in zip(models, pgm.bootstrap(copied, 4, rng=0, data=rows), strict=True):
        np.testing.assert_array_equal(one.params["b|a.table"], other.params["b|a.table"])
    # Resampling with these weights and fitting anew from the learned model is the same.
    drawn = np.random.default_rng(0).multinomial(20, weights / 20.0, size=4)[0]
    plain = pgm.fit(f, rows, optimizer=steps, sample_weight=drawn, updates=3, progress=False)
    np.testing.assert_array_equal(plain.params["b|a.table"], models[0].params["b|a.table"])


def test_mini_batches_and_mixtures_have_bootstraps():
    f = pgm.fit(pgm.rbm(3, 2, rng=0), {"v": np.eye(3)}, updates=4, progress=False)
    assert f.again.call.keywords["updates"] == 4
    assert len(pgm.bootstrap(f, 2, rng=0)) == 2
    f = of_normals()
    models = pgm.bootstrap(f, 40, rng=0)
    assert np.std([one.params["rows"] for one in models], axis=0).max() > 0
    assert isinstance(pgm.infer(models).parameter_intervals["prob"], dict)
