"""Normal units: answers against the oracle, learning against EM, and a link of a user's own."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from brute import Brute
from extras import extra
from loops import one_test_over
from registry import UNITS
from scipy.special import logsumexp
from tiny import NORMAL, as_evidence, patterns

import pgmengine as pgm

EXACT = {"rtol": 1e-8, "atol": 1e-9}


def rows_of_normal():
    rows = patterns(NORMAL)
    return rows, as_evidence(NORMAL, rows)


@pytest.mark.long
def test_exact_answers_are_sums_over_the_oracles_grid():
    rows, evidence = rows_of_normal()
    want = ("log_z", "log_prob", "marginals", "pairs")
    r = pgm.infer(NORMAL.build(), evidence, want=want)
    assert r.kind == "exact"
    nothing = Brute(NORMAL).log_z
    for i, row in enumerate(rows):
        truth = Brute(NORMAL, row)
        np.testing.assert_allclose(r.log_z[i], truth.log_z, **EXACT)
        np.testing.assert_allclose(r.log_prob[i], truth.log_z - nothing, **EXACT)
        for name in "vh":
            np.testing.assert_allclose(np.ravel(r.mean[name][i]), truth.mean(name), **EXACT)
        np.testing.assert_allclose(r.pairs["h->v"][i], truth.pairs("h", "v"), **EXACT)


def test_gradient_is_the_derivative_of_log_p(step=1e-5):
    _, evidence = rows_of_normal()
    model = NORMAL.build()
    gradient = pgm.infer(model, evidence, want=("gradient",)).gradient
    for name, value in model.params.items():
        for place in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = value.copy()
                moved[place] += sign * step
                there = model.with_params({name: moved})
                ends.append(pgm.infer(there, evidence, want=("log_prob",)).log_prob.sum())
            slope = (ends[0] - ends[1]) / (2 * step)
            # Of a directed model log Z of all rows is log p.
            np.testing.assert_allclose(gradient[name][place], slope, rtol=1e-5, atol=1e-6)


def test_draws_have_the_exact_means():
    _, evidence = rows_of_normal()
    model = NORMAL.build()
    exact = pgm.infer(model, evidence)
    chains = pgm.infer(model, evidence, method=pgm.MCMC(draws=2000), rng=0)
    draws = pgm.infer(model, evidence, want=("samples",), method=pgm.Exact(draws=4000), rng=0)
    for name in "vh":
        mean = np.asarray(exact.mean[name])
        error = np.reshape(chains.stats["mcse"][name], mean.shape)
        assert (np.abs(chains.mean[name] - mean) <= 7 * error + 1e-9).all()
        x = draws.samples[name].reshape(4000, *mean.shape)
        assert (np.abs(x.mean(axis=0) - mean) <= 6 * x.std(axis=0) / np.sqrt(4000) + 1e-9).all()
    v = draws.samples["v"]
    np.testing.assert_allclose(v[..., 1], v[..., 0] ** 2)


@pytest.mark.few(1)
@pytest.mark.parametrize("method", [pgm.AIS(), pgm.Forward(), pgm.ParallelTempering()], ids=repr)
def test_log_z_by_sampling(method):
    rows, evidence = rows_of_normal()
    r = pgm.infer(NORMAL.build(), evidence, want=("log_z",), method=method, rng=0)
    truth = np.array([Brute(NORMAL, row).log_z for row in rows])
    assert (r.log_z_interval[:, 0] <= truth + 1e-4).all()
    assert (truth <= r.log_z_interval[:, 1] + 1e-4).all()


def test_there_is_no_bound():
    _, evidence = rows_of_normal()
    for given in (None, evidence):
        with pytest.raises(pgm.PgmError, match="no such bound"):
            pgm.infer(NORMAL.build(), given, want=("bound",), method=pgm.MeanField())


MEANS, SPREADS, STAY = np.array([-2.0, 0.0, 3.0]), np.array([0.3, 1.0, 2.0]), 0.85
MOVES = STAY * np.eye(3) + (1 - STAY) / 2 * (1 - np.eye(3))


def declared(steps, start=None):
    b = pgm.GraphBuilder()
    z = b.variable("z", states=3, shape=steps)
    x = b.layer("x", pgm.Normal(), steps)
    b.conditional(z[0], (), np.ones(3) / 3, name="start")
    b.conditional(z[1:], (z[:-1],), np.ones((3, 3)) / 3 if start is None else MOVES, name="moves")
    b.cause(z, x, np.zeros((3, 2)) if start is None else start, name="emission")
    return b


def sequences(seed, count=60, steps=40):
    rng, rows = np.random.default_rng(seed), []
    for _ in range(count):
        z = np.zeros(steps, dtype=int)
        for t in range(steps):
            z[t] = rng.choice(3, p=np.ones(3) / 3 if t == 0 else MOVES[z[t - 1]])
        rows.append({"x": rng.normal(MEANS[z], SPREADS[z])})
    return rows


def test_the_log_likelihood_of_a_sequence_is_a_sum_over_paths():
    emission = np.stack([MEANS, np.log(SPREADS)], axis=1)
    x = np.array([-2.1, 0.5, np.nan, 4.0, -1.8])
    r = pgm.infer(declared(5, emission).build(), {"x": x}, want=("log_prob", "marginals"))
    density = -(((x[:, None] - MEANS) / SPREADS) ** 2) / 2 - np.log(SPREADS * np.sqrt(2 * np.pi))
    density = np.where(np.isnan(density), 0.0, density)
    paths = np.array(list(itertools.product(range(3), repeat=5)))
    log_p = np.log(1 / 3) + np.log(MOVES[paths[:, :-1], paths[:, 1:]]).sum(axis=1)
    log_p += density[np.arange(5), paths].sum(axis=1)
    np.testing.assert_allclose(r.log_prob, logsumexp(log_p), rtol=1e-12)
    weight = np.exp(log_p - logsumexp(log_p))
    np.testing.assert_allclose(r.mean["x"][2, 0], weight @ MEANS[paths[:, 2]], rtol=1e-9)
    square = weight @ (MEANS**2 + SPREADS**2)[paths[:, 2]]
    np.testing.assert_allclose(r.mean["x"][2, 1], square, rtol=1e-9)


def em(rows, rounds=300):
    """Means, standard deviations and the log-likelihood by EM from the true parameters."""
    m, s, a, start = MEANS.copy(), SPREADS.copy(), MOVES.copy(), np.ones(3) / 3
    x = np.array([row["x"] for row in rows])
    for _ in range(rounds):
        p = np.exp(-(((x[..., None] - m) / s) ** 2) / 2) / (s * np.sqrt(2 * np.pi))
        alpha, scale = np.zeros(p.shape), np.zeros(x.shape)
        for t in range(x.shape[1]):
            alpha[:, t] = p[:, t] * (start if t == 0 else alpha[:, t - 1] @ a)
            scale[:, t] = alpha[:, t].sum(axis=1)
            alpha[:, t] /= scale[:, t, None]
        beta, pairs = np.ones(p.shape), np.zeros((3, 3))
        for t in range(x.shape[1] - 2, -1, -1):
            ahead = p[:, t + 1] * beta[:, t + 1] / scale[:, t + 1, None]
            pairs += a * np.einsum("ni,nj->ij", alpha[:, t], ahead)
            beta[:, t] = ahead @ a.T
        gamma = alpha * beta
        start, a = gamma[:, 0].mean(axis=0), pairs / pairs.sum(axis=1, keepdims=True)
        m = np.einsum("nt,ntk->k", x, gamma) / gamma.sum(axis=(0, 1))
        s = np.sqrt(np.einsum("ntk,ntk->k", (x[..., None] - m) ** 2, gamma) / gamma.sum((0, 1)))
    return m, s, np.log(scale).sum()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_chain_learns_means_and_spreads_of_its_states(seed):
    """From equal states, which random starts tell apart; EM written here begins at the truth."""
    rows = sequences(seed)
    f = pgm.fit(pgm.Template(declared), rows, optimizer=pgm.LBFGS(), rng=seed, progress=False)
    order = np.argsort(f.params["emission"][:, 0])
    m, s, log_p = em(rows)
    np.testing.assert_allclose(f.params["emission"][order, 0], m, atol=0.01)
    np.testing.assert_allclose(np.exp(f.params["emission"][order, 1]), s, atol=0.01)
    assert abs(60 * f.history["objective"]["value"][-1] - log_p) < 0.5


def test_mini_batches_refuse_data_that_are_not_standardised_with_the_remedy():
    x, steps = np.stack([row["x"] for row in sequences(0, count=5, steps=20)]), pgm.Adam(0.1)
    with pytest.raises(pgm.PgmError, match=r"layer 'x': .*standard deviation 2\d\d.*standardise"):
        pgm.fit(declared(20).build(), {"x": 100 * x}, optimizer=steps, progress=False)
    with pytest.raises(pgm.PgmError, match=r"layer 'x': .*mean 5\d.*standardise"):
        pgm.fit(declared(20).build(), {"x": 50 + x}, optimizer=steps, progress=False)


def test_one_point_for_a_state_has_a_finite_likelihood():
    unit = pgm.Normal(least_sigma=0.01)
    zeta = np.array([1.0, -1e6])
    found = unit.log_conditional(unit.values_of(np.array(1.0)), zeta)
    np.testing.assert_allclose(found, -np.log(0.01) - np.log(2 * np.pi) / 2)
    assert np.isfinite(unit.score(unit.values_of(np.array(5.0)), np.array([1.0, 1e6]))).all()


def test_a_declared_sigma_is_the_sigma_of_the_answer():
    """Down to a few times the smallest one, which is 0.001 by default."""
    for first, second, least in ((0.02, 0.04, 1e-3), (1e-5, 2e-5, 1e-7), (0.001, 0.002, 1e-4)):
        b = pgm.GraphBuilder()
        g, x = b.variable("g", states=2), b.layer("x", pgm.Normal(least), 1)
        b.conditional(g, (), [0.5, 0.5])
        b.cause(g, x, [[0.0, np.log(first)], [0.0, np.log(second)]])
        p = pgm.infer(b.build(), {"x": 0.0}).marginal("g")[0]
        np.testing.assert_allclose(p, 2 / 3, rtol=1e-7)


def test_squares_are_checked():
    b = pgm.GraphBuilder()
    b.variable("z")
    b.layer("x", pgm.Normal(), 2)
    b.conditional("z", (), [0.5, 0.5])
    b.cause("z", "x", [[0.5, 0.1, -0.2, 0.3]])
    model = b.build()
    pairs = [[[1.0, 1.0], [2.0, 4.0]]]
    one, other = (pgm.infer(model, {"x": x}).mean["z"] for x in ([[1.0, 2.0]], pairs))
    np.testing.assert_array_equal(one, other)
    with pytest.raises(pgm.PgmError, match=r"layer 'x'.*index 1.*is not a value of Normal"):
        pgm.infer(model, {"x": [[[1.0, 1.0], [2.0, 5.0]]]})


@dataclass(frozen=True)
class Doubled(pgm.Binary):
    """Binary children whose log odds are twice their input."""

    canonical = False

    def link(self, zeta):
        return 2 * np.asarray(zeta)

    def score(self, x, zeta):
        return 2 * (np.asarray(x) - self.mean(self.link(zeta)))


@one_test_over("evidence", [None, {"v": [1, 0]}, {"v": [1, np.nan]}])
def test_a_link_of_a_users_own_is_the_same_model_with_other_numbers(evidence):
    """Enumeration, whose formulas do not know it, and mean field refuse it."""

    def made(unit, times):
        b = pgm.GraphBuilder()
        b.layer("h", pgm.Binary(), 3, bias=[0.2, -0.4, 0.1])
        b.layer("v", unit, 2, bias=times * np.array([0.3, -0.5]))
        b.cause("h", "v", weight=times * np.array([[1.0, -0.5], [0.7, 0.2], [-0.3, 0.9]]))
        return b.build()

    own, plain = made(Doubled(), 1.0), made(pgm.Binary(), 2.0)
    want = ("log_z", "marginals", "gradient")
    one, other = (pgm.infer(model, evidence, want=want) for model in (own, plain))
    assert one.kind == "exact"
    np.testing.assert_allclose(one.log_z, other.log_z, rtol=1e-9, atol=1e-12)
    for name in "hv":
        np.testing.assert_allclose(one.mean[name], other.mean[name], rtol=1e-9)
    for name in ("v.bias", "h->v.weight"):
        found, expected = one.gradient[name], 2 * other.gradient[name]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    with pytest.raises(pgm.PgmError, match="link of its own"):
        pgm.infer(own, evidence, method=pgm.Enumeration())
    if evidence is not None:
        with pytest.raises(pgm.PgmError, match="no such bound"):
            pgm.infer(own, evidence, want=("bound",), method=pgm.MeanField())


def test_a_link_without_a_score_is_an_error():
    class NoScore(pgm.Binary):
        canonical = False

        def link(self, zeta):
            return 2 * np.asarray(zeta)

    with pytest.raises(NotImplementedError, match="NoScore.*score"):
        NoScore().score(np.ones(2), np.zeros(2))
    assert NoScore().log_sums(0.0) is None


def two_states(steps):
    b = pgm.GraphBuilder()
    z = b.variable("z", states=2, shape=steps)
    x = b.layer("x", pgm.Normal(), steps)
    b.conditional(z[0], (), [0.5, 0.5], name="start")
    b.conditional(z[1:], (z[:-1],), np.full((2, 2), 0.5), name="moves")
    b.bias(x, [0.0, 0.0], name="first")
    b.cause(z, x, [[0.0, 0.0]], name="more")
    return b


def test_two_states_are_a_bias_and_what_the_second_adds():
    rng, rows = np.random.default_rng(0), []
    for _ in range(40):
        z = np.repeat(rng.integers(2, size=10), 3)
        rows.append({"x": rng.normal(np.array([-1.0, 2.0])[z], np.array([0.3, 1.0])[z])})
    f = pgm.fit(pgm.Template(two_states), rows, progress=False, rng=0)
    states = np.array([f.params["first"], f.params["first"] + f.params["more"][0]])
    states = states[np.argsort(states[:, 0])]
    np.testing.assert_allclose(states[:, 0], [-1, 2], atol=0.1)
    np.testing.assert_allclose(np.exp(states[:, 1]), [0.3, 1.0], atol=0.1)


def mixture(values, shape=(3, 4)):
    b = pgm.GraphBuilder()
    b.variable("k", states=3)
    b.layer("x", values, 2)
    b.conditional("k", (), np.ones(3) / 3)
    b.cause("k", "x", np.zeros(shape))
    return b.build()


def groups(seed, count=900):
    rng = np.random.default_rng(seed)
    z = rng.choice(3, count, p=[0.3, 0.5, 0.2])
    means, spreads = (
        np.array([[-2, 0], [2, 1.0], [0, -2]]),
        np.array([[0.3, 1], [1, 0.2], [0.5, 0.5]]),
    )
    return z, rng.normal(means[z], spreads[z])


def em_of_mixture(x, z, rounds=500):
    """The log-likelihood a row by EM, from the labels of the simulation."""
    share = np.eye(3)[z]
    for _ in range(rounds):
        weight = share.sum(axis=0)
        m = share.T @ x / weight[:, None]
        v = share.T @ x**2 / weight[:, None] - m**2
        square = (x[:, None] - m) ** 2 / v + np.log(2 * np.pi * v)
        logs = np.log(weight / len(x)) - square.sum(axis=2) / 2
        share = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    return logsumexp(logs, axis=1).mean()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_fit_learns_a_mixture(seed):
    """No optimizer is named, and all states begin alike."""
    z, x = groups(seed)
    f = pgm.fit(mixture(pgm.Normal()), {"x": x}, rng=seed, progress=False)
    assert abs(f.history["objective"]["value"][-1] - em_of_mixture(x, z)) < 1e-4
    assert not f.findings


def test_the_default_fit_of_complete_rows_is_counting():
    """Shares, means and spreads of the rows of each class."""
    z, x = groups(0)
    f = pgm.fit(mixture(pgm.Normal()), {"x": x, "k": z}, rng=0, progress=False)
    found = (f.params["x.bias"].ravel() + f.params["k->x.weight"]).reshape(3, 2, 2)
    for k in range(3):
        np.testing.assert_allclose(found[k, :, 0], x[z == k].mean(axis=0), atol=1e-3)
        np.testing.assert_allclose(np.exp(found[k, :, 1]), x[z == k].std(axis=0), rtol=1e-3)


def test_the_default_fit_learns_a_chain_that_is_no_template():
    rows = {"x": np.array([row["x"] for row in sequences(2, steps=20)])}
    default = pgm.fit(declared(20).build(), rows, rng=0, progress=False)
    named = pgm.fit(declared(20).build(), rows, rng=0, progress=False, optimizer=pgm.LBFGS())
    assert type(default.optimizer) is pgm.EM
    least = em(sequences(2, steps=20))[2] / 60 - 0.02
    for f in (default, named):
        assert pgm.infer(f, rows, want=("log_prob",)).log_prob.mean() > least


@pytest.mark.parametrize("x", [[0.0, 1.0, 2.0], [0.0, np.nan, 2.0]], ids=["full", "gap"])
def test_answers_by_name_have_one_number_for_a_unit(x):
    emission = np.stack([MEANS, np.log(SPREADS)], axis=1)
    model = declared(3, emission).build()
    r = pgm.infer(model, {"x": x}, want=("mode",))
    found = r.assignment()
    assert [found["x", t] for t in range(3)] == [r.mode["x"][t, 0] for t in range(3)]
    assert len(found["z"]) == 3 and "mode" in repr(r) and "mode" in r._repr_html_()
    r = pgm.infer(model, {"x": x}, want=("samples", "marginals"), rng=0)
    e = r.expectation(lambda draws: draws["x"][..., 0].sum(axis=-1))
    assert abs(e.mean - r.mean["x"][:, 0].sum()) < 6 * np.nan_to_num(e.error, nan=1e-9)
    with pytest.raises(pgm.PgmError, match="layer 'x'.*finitely many states"):
        r.marginal("x")


def test_draws_go_into_a_frame():
    extra("pandas")
    model = declared(3, np.stack([MEANS, np.log(SPREADS)], axis=1)).build()
    r = pgm.infer(model, want=("samples",), rng=0)
    np.testing.assert_array_equal(r.samples_frame()["x", 1], r.samples["x"][:, 0, 1, 0])


@pytest.mark.parametrize("least", [1e-3, 0.5])
def test_the_score_is_the_derivative_of_the_log_conditional(least, step=1e-6):
    rng, unit = np.random.default_rng(0), pgm.Normal(least_sigma=least)
    x, zeta = unit.values_of(rng.normal(size=50)), rng.normal(size=(50, 2))
    for i in range(2):
        ends = [unit.log_conditional(x, zeta + s * step * np.eye(2)[i]) for s in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(unit.score(x, zeta)[:, i], slope, rtol=1e-6, atol=1e-6)
    a = np.sum(x * unit.link(zeta), axis=-1) + unit.log_h(x) - unit.log_normalizer(unit.link(zeta))
    np.testing.assert_allclose(unit.log_conditional(x, zeta), a, rtol=1e-9, atol=1e-9)


def test_given_numbers_need_no_standard_scale():
    """Nothing is learned about them."""
    b = pgm.GraphBuilder()
    b.variable("z")
    b.layer("x", pgm.Normal(), 1)
    b.layer("y", pgm.Binary(), 1)
    b.conditional("z", (), [0.5, 0.5])
    b.cause("z", "x", [[0.0, 0.0]])
    b.cause("z", "y")
    data = {"x": [[50.0], [70.0]], "y": [[0], [1]]}
    pgm.fit(b.build(rng=0), data, given=("x",), updates=1, progress=False)
    with pytest.raises(pgm.PgmError, match="standardise"):
        pgm.fit(b.build(rng=0), data, optimizer=pgm.SGD(0.1), updates=1, progress=False)


def test_other_types_of_several_components_take_all_of_them():
    @dataclass(frozen=True)
    class Whole(pgm.Normal):
        def values_of(self, x):
            return pgm.Unit.values_of(self, x)

    b = pgm.GraphBuilder()
    b.variable("z")
    b.layer("x", Whole(), 3)
    b.conditional("z", (), [0.5, 0.5])
    b.cause("z", "x", np.zeros((1, 6)))
    with pytest.raises(pgm.PgmError, match=r"layer 'x' has shape \(1, 3\), expected .*3, 2"):
        pgm.infer(b.build(), {"x": [1.0, 2.0, 3.0]})


def test_random_starts_of_every_unit_are_finite():
    for unit in UNITS:
        for spread in (0.0, 2.0):
            sizes = unit.input_sizes(np.full(unit.width, spread)) if not unit.observed_only else 1.0
            assert np.all(np.asarray(sizes) > 0) and np.all(np.asarray(sizes) < 1e3), unit
    assert pgm.Constant().input_sizes(np.zeros(1)) == 1.0
