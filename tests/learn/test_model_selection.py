"""Information criteria and comparisons: against enumeration, formulas and scikit-learn."""

import math

import numpy as np
import pytest
from dimensions import dimensions
from extras import extra
from learn_models import ising, network, observed
from loops import one_test_over
from scipy.special import logsumexp
from tiny import FINITE, TABLED

import pgmengine as pgm
from pgmengine.learn.judging.account import free_numbers, zeros_of
from pgmengine.learn.phases.batch import idle_entries

SMALL = ("rbm sparse", "boltzmann", "network", "potentials", "two parents")
# Seeds may make states of parents impossible, whose rows count nevertheless.
OTHER = [m for m in FINITE + TABLED if m.name not in (*SMALL, "network zeros")]


def counted(m):
    model = m.build()
    return model, free_numbers(model, idle_entries(model.given(), {}), zeros_of(model))


def check_dimensions(m):
    model, found = counted(m)
    assert found.value == dimensions(model) if found.value is not None else found.why


@one_test_over("m", [m for m in FINITE + TABLED if m.name in SMALL])
def test_free_numbers_are_the_dimensions_of_the_distribution(m):
    check_dimensions(m)


@pytest.mark.long
@one_test_over("m", [m for m in OTHER if all(x.unit.support is not None for x in m.layers)])
def test_free_numbers_are_the_dimensions_of_all_tiny_models(m):
    check_dimensions(m)


def test_models_with_redundant_numbers_have_none():
    """One-hot units, potentials, and couplings among conditionals."""
    named = {m.name: m for m in FINITE + TABLED}
    why = {
        "rbm categorical": "one-hot",
        "potentials zeros": "differences of log weights",
        "conditionals and couplings": "couplings can act",
    }
    for name, text in why.items():
        assert text in counted(named[name])[1].why


def shared(own):
    """A chain of spins with one field and one coupling, and biases of its own or none."""
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), 3) if own else b.variable("s", states=(-1, 1), shape=3)
    b.bias(s, 0.1, name="field")
    b.couple(s[1:], s[:-1], 0.5, name="coupling")
    return b.build(rng=0)


def test_shared_numbers_count_once_and_not_beside_others():
    alone, beside = shared(own=False), shared(own=True)
    found = [free_numbers(m, idle_entries(m.given(), {}), {}) for m in (alone, beside)]
    assert found[0].value == dimensions(alone) == 2
    assert dimensions(beside) == 4 and "two parameters at one place" in found[1].why


def chain(steps, zeros=False):
    b = pgm.GraphBuilder()
    z = b.variable("z", states=2, shape=steps)
    x = b.variable("x", states=3, shape=steps)
    b.conditional(z[0], (), [0.6, 0.4], name="start")
    move = [[0.8, 0.2], [0.0, 1.0]] if zeros else [[0.8, 0.2], [0.3, 0.7]]
    b.conditional(z[1:], (z[:-1],), move, name="transition")
    b.conditional(x, (z,), [[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]], name="emission")
    return b


def log_prob_of_chain(p, x):
    """log p of a sequence by the forward recursion."""
    alpha = p["start"] + p["emission"][:, x[0]]
    for at in x[1:]:
        alpha = logsumexp(alpha[:, None] + p["transition"], axis=0) + p["emission"][:, at]
    return logsumexp(alpha)


def test_criteria_of_a_hidden_markov_model(rtol=1e-10):
    """k is 1 + 2 + 4 as in hmmlearn; ties count once, fixed and impossible entries do not."""
    rng = np.random.default_rng(0)
    rows = [{"x": rng.integers(0, 3, n)} for n in (9, 5, 7)]
    f = pgm.fit(pgm.Template(chain), rows, updates=5, progress=False)
    value = sum(log_prob_of_chain(f.params, row["x"]) for row in rows)
    assert f.numbers == 7
    np.testing.assert_allclose(f.log_likelihood, value, rtol=rtol)
    np.testing.assert_allclose(f.bic, -2 * value + 7 * math.log(3), rtol=rtol)
    np.testing.assert_allclose(f.aic, -2 * value + 14, rtol=rtol)
    steps = pgm.Fixed(pgm.EM(), ["emission"])
    for declare, left in ((chain, 3), (lambda n: chain(n, zeros=True), 2)):
        some = pgm.Template(declare)
        f = pgm.fit(some, rows, optimizer=steps, updates=5, progress=False)
        assert f.numbers == left


@one_test_over("full", [False, True])
def test_criteria_of_mixtures_are_those_of_scikit_learn(full, rtol=1e-9):
    extra("sklearn")
    from sklearn.mixture import GaussianMixture

    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(50, 2)) * [0.5, 1.5] + 3])
    b = pgm.GraphBuilder()
    z, columns = b.variable("z", states=2), b.layer("x", pgm.Normal(full=full), 2)
    b.conditional(z, (), [0.5, 0.5])
    b.cause(z, columns, np.zeros((2, 5) if full else (2, 2, 2)), name="rows")
    steps = pgm.EM(pseudocount=0, starts=2)
    f = pgm.fit(b.build(rng=0), {"x": x}, optimizer=steps, updates=8, rng=0, progress=False)
    gm = GaussianMixture(2, covariance_type="full" if full else "diag")
    gm.weights_ = np.exp(f.params["z|.table"])
    rows = f.params["rows"]
    if full:
        gm.means_, covariance = pgm.FullNormal(2).moments(rows)
        gm.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(covariance))
    else:
        gm.means_, gm.precisions_cholesky_ = rows[..., 0].T, np.exp(-rows[..., 1].T)
    np.testing.assert_allclose([f.bic, f.aic], [gm.bic(x), gm.aic(x)], rtol=rtol)


def test_weights_and_given_units_of_the_criteria(rtol=1e-10):
    """n is the sum of the weights; of given units neither log p nor numbers count."""
    net = network()
    rows = observed(net, 12, 0)
    weights = np.arange(12) % 3
    repeated = {name: np.repeat(x, weights, axis=0) for name, x in rows.items()}
    one = pgm.fit(net, rows, sample_weight=weights, progress=False)
    two = pgm.fit(net, repeated, progress=False)
    np.testing.assert_allclose([one.bic, one.aic], [two.bic, two.aic], rtol=rtol)
    truth = pgm.read(pgm.datasets.asia())
    rows = {"asia": ["yes", "no"] * 5, "smoke": ["no"] * 6 + ["yes"] * 4, "dysp": ["no", "yes"] * 5}
    f = pgm.fit(truth, rows, given=("asia", "smoke"), updates=3, progress=False)
    # Nothing tells of the table of xray, with two numbers.
    assert f.numbers == 14 - 2 - 2
    some = {name: rows[name] for name in ("asia", "smoke")}
    both, part = (pgm.infer(f, r, ("log_prob",)).log_prob.sum() for r in (rows, some))
    np.testing.assert_allclose(f.log_likelihood, both - part, rtol=rtol)


def test_criteria_of_an_observed_field(rtol=1e-9):
    """Couplings and biases count one each; the log normaliser is exact."""
    model = ising()
    rows = observed(model, 30, 0)
    f = pgm.fit(model, rows, optimizer=pgm.LBFGS(l2=0.1), progress=False)
    assert f.numbers == dimensions(f.model)
    value = pgm.infer(f, rows, ("log_prob",)).log_prob.sum()
    np.testing.assert_allclose(f.log_likelihood, value, rtol=rtol)
    f = pgm.fit(model, rows, negative=pgm.PseudoGradient(), progress=False)
    with pytest.raises(pgm.PgmError, match="PseudoGradient maximises another objective"):
        f.bic  # noqa: B018


def test_learning_by_mini_batches_has_numbers_and_no_likelihood():
    rows = {"v": np.eye(3)}
    f = pgm.fit(pgm.rbm(3, 2, rng=0), rows, updates=2, progress=False)
    assert f.numbers == 3 + 2 + 6
    with pytest.raises(pgm.PgmError, match=r"likelihood .* not known: learning saw mini-batches"):
        f.aic  # noqa: B018


def three_fits():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 60)
    data = {"a": a, "b": np.where(rng.random(60) < 0.2, 1 - a, a)}
    train, test = ({k: v[i] for k, v in data.items()} for i in (slice(40), slice(40, None)))
    edges = {"joined": "a -> b", "apart": "a, b"}
    fits = {n: pgm.fit(pgm.network(train, e), train, progress=False) for n, e in edges.items()}
    return fits | {"rbm": pgm.network(train, "b -> a")}, test


def test_a_comparison_has_paired_differences(rtol=1e-12):
    fits, test = three_fits()
    found = pgm.compare(fits, test)
    each = {n: pgm.infer(f, test, ("log_prob",)).log_prob for n, f in fits.items()}
    order = sorted(each, key=lambda n: -each[n].mean())
    assert [one.name for one in found] == order and len(found) == 3 and found.rows == 20
    best = each[order[0]]
    for one in found:
        lp = each[one.name]
        d = lp - best
        expected = [lp.mean(), lp.std(ddof=1) / 20**0.5, d.mean(), d.std(ddof=1) / 20**0.5]
        got = [one.log_prob, one.error, one.difference, one.difference_error]
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-14)
        assert one.kind == "exact"
    assert found["joined"].bic == fits["joined"].bic and found["joined"].numbers == 3
    assert found["rbm"].numbers is None and math.isnan(found["rbm"].bic)
    assert found.fits[0].name in repr(found) and "<table>" in found._repr_html_()
    with pytest.raises(pgm.NotAsked.__mro__[1], match="no fit 'joint'"):
        found["joint"]


def test_estimates_of_a_comparison_carry_the_error_of_log_z():
    rows = {"v": np.eye(3)}
    models = [pgm.rbm(3, 2, rng=i) for i in range(2)]
    found = pgm.compare(models, rows, method=pgm.AIS(chains=20, betas=20), rng=0)
    exact = pgm.compare(models, rows)
    for one in found:
        assert one.kind == "estimate"
        assert one.error > exact[one.name].error
        assert abs(one.log_prob - exact[one.name].log_prob) < 0.2


def test_impossible_rows_and_too_few_rows_of_a_comparison():
    rows = {"a": ["x", "y"], "b": ["x", "x"]}
    zero = pgm.network(rows, "a").with_params({"a|.table": np.array([0.0, -np.inf])})
    fits = {"zero": zero, "half": pgm.network(rows, "a")}
    found = pgm.compare(fits, {"a": ["x", "y"]})
    assert found["zero"].log_prob == found["zero"].difference == -math.inf
    assert math.isnan(found["zero"].difference_error) and "-inf" in repr(found)
    assert math.isnan(pgm.compare(fits, {"a": ["x"]})["half"].error)


def refused():
    states = pgm.network({"a": 2}, "a")
    b = pgm.GraphBuilder()
    z, a = b.variable("z", states=2), b.layer("a", pgm.Normal(), 1)
    b.conditional(z, (), [0.5, 0.5])
    b.cause(z, a, np.zeros((2, 2)), name="rows")
    rows = {"a": [[0.0], [1.0]]}
    return [
        ({"one": states, "two": b.build()}, rows, r"column 'a' is a state in 'one' and a real"),
        ({"one": states, "two": pgm.rbm(2, 1)}, {"a": [0, 1]}, r"fits\['two'\].*'a'"),
        ({}, rows, "must be a mapping name -> Fit"),
        (states, rows, "must be a mapping name -> Fit"),
        ([states, 3], rows, r"fits\[1\]: model must be"),
    ]


@one_test_over("fits, rows, why", refused)
def test_what_cannot_be_compared_is_refused_by_name(fits, rows, why):
    with pytest.raises(pgm.PgmError, match=why):
        pgm.compare(fits, rows)
