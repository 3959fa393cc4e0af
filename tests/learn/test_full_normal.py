"""Groups of columns with a joint normal distribution, against scipy, numpy, and the peers."""

from itertools import product

import numpy as np
import pytest
from extras import extra
from scipy.stats import multivariate_normal

import pgmengine as pgm

NAN = np.nan
# The rows that a pseudocount of 1 adds, as the documentation says.
ADDED = 0.01


def drawn_numbers(rng, states=3, columns=3):
    """Shares of states, transitions, means and covariances."""
    root = rng.normal(size=(states, columns, columns))
    covariance = root @ root.swapaxes(1, 2) + 0.3 * np.eye(columns)
    moves = rng.dirichlet(np.ones(states), states)
    return rng.dirichlet(np.ones(states)), moves, rng.normal(size=(states, columns)), covariance


def inputs(means, covariance):
    """Rows of inputs."""
    return pgm.FullNormal(means.shape[-1]).inputs(means, covariance)


def mixture(shares, means, covariance):
    """A mixture of one group."""
    b = pgm.GraphBuilder()
    z, x = b.variable("z", states=len(shares)), b.layer("x", pgm.Normal(full=True), means.shape[-1])
    b.conditional(z, (), shares, name="shares")
    b.cause(z, x, inputs(means, covariance), name="rows")
    return b.build()


def chain(steps, shares, moves, means, covariance):
    """A hidden Markov model, declared."""
    b = pgm.GraphBuilder()
    z = b.variable("z", states=len(shares), shape=steps)
    x = b.layer("x", pgm.Normal(full=True), (steps, means.shape[-1]))
    b.conditional(z[0], (), shares, name="start")
    b.conditional(z[1:], (z[:-1],), moves, name="moves")
    b.cause(z, x, inputs(means, covariance), name="rows")
    return b


def with_gaps(rng, x, share=0.35):
    """Values with missing cells."""
    return np.where(rng.random(x.shape) < share, NAN, x)


def moments_of(x, mean, covariance):
    """Log density of observed cells, and mean and covariance of all cells given them."""
    seen = ~np.isnan(x)
    full, left = np.where(seen, x, mean), np.zeros_like(covariance)
    rest = np.ix_(~seen, ~seen)
    if not seen.any():
        return 0.0, full, covariance
    own, across = covariance[np.ix_(seen, seen)], covariance[np.ix_(~seen, seen)]
    full[~seen] = mean[~seen] + across @ np.linalg.solve(own, x[seen] - mean[seen])
    left[rest] = covariance[rest] - across @ np.linalg.solve(own, across.T)
    return multivariate_normal(mean[seen], own).logpdf(x[seen]), full, left


def expected(x, shares, means, covariance):
    """Log p of a row, the posterior of states, and moments of its cells in each state."""
    found = [moments_of(x, m, c) for m, c in zip(means, covariance, strict=True)]
    logs = np.log(shares) + [f[0] for f in found]
    log_p = np.logaddexp.reduce(logs)
    return log_p, np.exp(logs - log_p), [f[1:] for f in found]


def one_update(x, weights, shares, means, covariance, added):
    """The objective, and the numbers after an update, by plain loops."""
    k, d = means.shape
    n, one, two, total = np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d)), 0.0
    for row, w in zip(x, weights, strict=True):
        log_p, post, cells = expected(row, shares, means, covariance)
        total += w * log_p
        if np.isnan(row).all():
            # A row without a value tells nothing.
            continue
        for j, (mean, left) in enumerate(cells):
            n[j] += w * post[j]
            one[j] += w * post[j] * mean
            two[j] += w * post[j] * (np.outer(mean, mean) + left)
    seen = ~np.isnan(x)
    centre = [np.average(c[s], weights=weights[s]) for c, s in zip(x.T, seen.T, strict=True)]
    v = [
        np.average((c[s] - m) ** 2, weights=weights[s])
        for c, s, m in zip(x.T, seen.T, centre, strict=True)
    ]
    w = ADDED * added
    prior = added * np.log(shares).sum()
    for c in covariance:
        prior -= w / 2 * (np.linalg.slogdet(c)[1] + np.trace(np.linalg.solve(c, np.diag(v))))
    means = one / n[:, None]
    spread = [
        (s - m * np.outer(mu, mu) + w * np.diag(v)) / (m + w)
        for s, m, mu in zip(two, n, means, strict=True)
    ]
    shares = (n + added) / (n + added).sum()
    return (total + prior) / weights.sum(), (shares, means, np.array(spread))


def test_answers_are_those_of_scipy():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        shares, _, means, covariance = drawn_numbers(rng, 2 + seed % 2)
        x = with_gaps(rng, rng.normal(size=(20, 3)))
        x[0], x[1] = NAN, 1.0
        model = mixture(shares, means, covariance)
        want = ("marginals", "samples", "log_prob")
        r = pgm.infer(model, {"x": x}, want, method=pgm.Exact(400), rng=1)
        for i, row in enumerate(x):
            log_p, post, cells = expected(row, shares, means, covariance)
            np.testing.assert_allclose(r.log_prob[i], log_p, atol=1e-10)
            np.testing.assert_allclose(np.ravel(r.prob["z"][i]), post, atol=1e-10)
            both = list(zip(post, cells, strict=True))
            mean = sum(p * m for p, (m, _) in both)
            second = sum(p * (np.outer(m, m) + c) for p, (m, c) in both)
            below = np.tril_indices(3, -1)
            whole = np.concatenate([mean, np.diag(second), second[below]])
            np.testing.assert_allclose(r.mean["x"][i, 0], whole, atol=1e-9)
            drawn = r.answers["samples"]["x"][:, i, 0]
            error = drawn.std(axis=0) / np.sqrt(len(drawn))
            assert (np.abs(drawn.mean(axis=0) - whole) <= 5.5 * error + 1e-9).all()


def test_rows_alone_in_other_order_and_in_a_chain_have_the_same_answers():
    rng = np.random.default_rng(0)
    numbers = drawn_numbers(rng)
    model = chain(3, *numbers).build()
    x = with_gaps(rng, rng.normal(size=(12, 3, 3)))
    r = pgm.infer(model, {"x": x}, ("marginals", "log_prob"))
    for i, row in enumerate(x):
        alone = pgm.infer(model, {"x": row}, ("marginals", "log_prob"))
        np.testing.assert_allclose(alone.log_prob, r.log_prob[i], atol=1e-11)
        np.testing.assert_allclose(alone.mean["x"], r.mean["x"][i], atol=1e-11)
        shares, moves, means, covariance = numbers
        total = -np.inf
        for path in product(range(3), repeat=3):
            logs = np.log(shares[path[0]]) + sum(
                np.log(moves[a, b]) for a, b in zip(path, path[1:], strict=False)
            )
            for k, cells in zip(path, row, strict=True):
                logs += moments_of(cells, means[k], covariance[k])[0]
            total = np.logaddexp(total, logs)
        np.testing.assert_allclose(r.log_prob[i], total, atol=1e-10)


@pytest.mark.parametrize("added", (0, 1.5))
def test_em_is_the_plain_one_iteration_by_iteration(added):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        shares, _, means, covariance = drawn_numbers(rng, 2 + seed % 2)
        x = 50.0 + with_gaps(rng, rng.normal(size=(40, 3)), 0.3 * (seed > 0))
        if seed == 2:
            x[:3] = NAN
        means = means + 50.0
        weights = rng.uniform(0.2, 2.0, 40)
        fit = pgm.fit(
            mixture(shares, means, covariance),
            {"x": x},
            sample_weight=weights,
            optimizer=pgm.EM(pseudocount=added, tolerance=0, starts=1),
            updates=4,
            progress=False,
        )
        now, objective = (shares, means, covariance), []
        for _ in range(4):
            _, now = one_update(x, weights, *now, added)
            objective.append(one_update(x, weights, *now, added)[0])
        found = pgm.FullNormal(3).moments(fit.model.params["rows"])
        np.testing.assert_allclose(np.exp(fit.model.params["shares"]).ravel(), now[0], atol=1e-8)
        np.testing.assert_allclose(found[0], now[1], atol=1e-7)
        np.testing.assert_allclose(found[1], now[2], atol=1e-7)
        np.testing.assert_allclose([*fit.history["objective"].values()][1], objective, atol=1e-8)


def test_complete_data_end_at_the_log_likelihood_of_scikit_learn():
    extra("sklearn")
    from sklearn.mixture import GaussianMixture

    rng = np.random.default_rng(1)
    centre = 4.0 * np.array([[0, 0, 1], [1, 0, -1], [0, 1, 0]])
    root = rng.normal(size=(3, 3, 3))
    k = rng.integers(3, size=400)
    x = centre[k] + np.einsum("nij,nj->ni", root[k], rng.normal(size=(400, 3)))
    fit = pgm.fit(
        mixture(np.ones(3) / 3, centre, np.stack([np.eye(3)] * 3)),
        {"x": x},
        optimizer=pgm.EM(pseudocount=0, tolerance=1e-12, starts=1),
        updates=2000,
        progress=False,
    )
    peer = GaussianMixture(3, tol=1e-13, max_iter=5000, reg_covar=0.0, means_init=centre)
    ours = pgm.infer(fit.model, {"x": x}, ("log_prob",)).log_prob.mean()
    np.testing.assert_allclose(ours, peer.fit(x).score(x), atol=1e-7)


def test_template_of_several_lengths_with_gaps_learns_as_its_models_do():
    rng = np.random.default_rng(2)
    shares, moves, means, covariance = drawn_numbers(rng, 2)
    data = [{"x": with_gaps(rng, rng.normal(size=(n, 3)))} for n in (2, 4, 4, 3, 1)]
    template = pgm.Template(lambda steps: chain(steps, shares, moves, means, covariance))
    method = {"optimizer": pgm.EM(pseudocount=0, tolerance=0, starts=1), "progress": False}
    fit = pgm.fit(template, data, updates=1, **method)
    n, one, two = np.zeros(2), np.zeros((2, 3)), np.zeros((2, 3, 3))
    for row in data:
        steps, found, weights = len(row["x"]), [], []
        for path in product(range(2), repeat=steps):
            cells = [moments_of(x, means[k], covariance[k]) for x, k in zip(row["x"], path)]
            logs = np.log(shares[path[0]]) + sum(c[0] for c in cells)
            logs += sum(np.log(moves[a, b]) for a, b in zip(path, path[1:], strict=False))
            found.append((path, cells))
            weights.append(logs)
        weights = np.exp(np.array(weights) - np.logaddexp.reduce(weights))
        for w, (path, cells) in zip(weights, found, strict=True):
            for x, k, (_, mean, left) in zip(row["x"], path, cells, strict=True):
                if not np.isnan(x).all():
                    n[k] += w
                    one[k] += w * mean
                    two[k] += w * (np.outer(mean, mean) + left)
    centre = one / n[:, None]
    spread = two / n[:, None, None] - np.einsum("ki,kj->kij", centre, centre)
    found = pgm.FullNormal(3).moments(fit.model.params["rows"])
    np.testing.assert_allclose(found[0], centre, atol=1e-9)
    np.testing.assert_allclose(found[1], spread, atol=1e-9)


def test_gradient_is_the_derivative_of_log_p(step=1e-5):
    rng = np.random.default_rng(3)
    shares, _, means, covariance = drawn_numbers(rng, 2)
    model = mixture(shares, means, covariance)
    x = {"x": with_gaps(rng, rng.normal(size=(9, 3)))}
    gradient = pgm.infer(model, x, ("gradient",)).gradient["rows"].sum(axis=0)
    gradient = np.reshape(pgm.infer(model, x, ("gradient",)).gradient["rows"], (-1, 2, 9)).sum(
        axis=0
    )
    rows = model.params["rows"]
    for place in np.ndindex(rows.shape):
        ends = []
        for sign in (1, -1):
            moved = rows.copy()
            moved[place] += sign * step
            there = model.with_params({"rows": moved})
            ends.append(pgm.infer(there, x, ("log_prob",)).log_prob.sum())
        np.testing.assert_allclose(
            gradient[place], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6
        )


def test_lbfgs_and_em_end_at_the_same_maximum():
    rng = np.random.default_rng(4)
    shares, _, means, covariance = drawn_numbers(rng, 2)
    truth = mixture(shares, 3 * means, covariance)
    x = np.concatenate([rng.multivariate_normal(3 * m, c, 60) for m, c in zip(means, covariance)])
    data = {"x": with_gaps(rng, x, 0.15)}
    ends = []
    for optimizer in (pgm.EM(pseudocount=0, tolerance=1e-11, starts=1), pgm.LBFGS(starts=1)):
        fit = pgm.fit(truth, data, optimizer=optimizer, updates=1000, progress=False)
        ends.append(pgm.infer(fit.model, data, ("log_prob",)).log_prob.mean())
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-5)


def test_defaults_learn_columns_in_their_units_and_files_keep_them(tmp_path):
    rng = np.random.default_rng(5)
    k = rng.integers(2, size=300)
    x = np.where(k[:, None], [500.0, 1e-3], [900.0, 5e-3]) + rng.normal(size=(300, 2)) * [30, 1e-4]
    b = pgm.GraphBuilder()
    z, y = b.variable("z", states=2), b.layer("x", pgm.Normal(1e-6, full=True), 2)
    b.conditional(z, (), [0.5, 0.5])
    b.cause(z, y, np.zeros((2, 2)), name="rows")
    fit = pgm.fit(b.build(), {"x": with_gaps(rng, x, 0.1)}, progress=False, rng=0)
    means, covariance = pgm.FullNormal(2, 1e-6).moments(fit.model.params["rows"])
    assert np.allclose(np.sort(means[:, 0]), [500, 900], atol=15)
    assert np.allclose(np.sqrt(covariance[:, 1, 1]), 1e-4, rtol=0.3)
    pgm.save(fit.model, tmp_path / "columns.safetensors")
    read = pgm.load(tmp_path / "columns.safetensors")
    ends = [pgm.infer(m, {"x": x}, ("log_prob",)).log_prob for m in (fit.model, read)]
    np.testing.assert_array_equal(*ends)


def test_fixed_parts_stay_and_parts_of_parts_are_refused():
    rng = np.random.default_rng(6)
    shares, _, means, covariance = drawn_numbers(rng, 2)
    model, data = mixture(shares, means, covariance), {"x": rng.normal(size=(50, 3))}
    stays = np.zeros((2, 9), dtype=bool)
    stays[:, :3] = True

    def learned():
        by = pgm.Fixed(pgm.EM(pseudocount=0, starts=1), {"rows": stays})
        return pgm.fit(model, data, optimizer=by, updates=5, progress=False)

    found = pgm.FullNormal(3).moments(learned().model.params["rows"])
    np.testing.assert_allclose(found[0], means, atol=1e-12)
    stays[0, 1] = False
    with pytest.raises(pgm.PgmError, match="some means of a state"):
        learned()


def test_a_state_of_one_row_is_found_to_have_collapsed():
    x = np.concatenate([np.random.default_rng(7).normal(size=(40, 2)), [[60.0, 80.0]]])
    model = mixture(np.ones(2) / 2, np.array([[0.0, 0.0], [60.0, 80.0]]), np.stack([np.eye(2)] * 2))
    fit = pgm.fit(model, {"x": x}, optimizer=pgm.EM(pseudocount=0, starts=1), progress=False)
    assert any(f.kind is pgm.FindingKind.COLLAPSED for f in fit.findings)
    plain = pgm.fit(model, {"x": x}, optimizer=pgm.EM(starts=1), progress=False)
    assert not any(f.kind is pgm.FindingKind.COLLAPSED for f in plain.findings)


def test_refusals_say_what_to_do():
    rng = np.random.default_rng(8)
    shares, moves, means, covariance = drawn_numbers(rng)
    model = mixture(shares, means, covariance)
    partly = {"x": [1.0, NAN, 2.0]}
    for settings, words in (
        ({"want": ("mode",)}, "observed and missing cells.*ask for"),
        ({"method": pgm.MCMC(draws=10)}, "exact"),
        ({"method": pgm.AIS(), "want": ("log_z",)}, "exact"),
    ):
        with pytest.raises(pgm.PgmError, match=words):
            pgm.infer(model, partly, **settings)
    with pytest.raises(pgm.PgmError, match="do: .*all cells"):
        pgm.infer(model, do=partly)
    with pytest.raises(pgm.PgmError, match=r"shape \(2,\), expected"):
        pgm.infer(model, {"x": [1.0, 2.0]})
    b = pgm.GraphBuilder()
    z, x = b.variable("z", states=3, shape=2), b.layer("x", pgm.Normal(full=True), 2)
    b.conditional(z, (), shares, name="s")
    b.cause(z, x[0], np.zeros((3, 2)), name="rows")
    with pytest.raises(pgm.PgmError, match="child of one variable"):
        b.build()
    with pytest.raises(pgm.PgmError, match="mini-batches"):
        pgm.fit(model, {"x": np.zeros((5, 3)) + rng.normal(size=(5, 3))}, optimizer=pgm.Adam())


def test_natural_parameters_are_those_of_an_exponential_family(step=1e-5):
    rng = np.random.default_rng(9)
    _, _, means, covariance = drawn_numbers(rng, 2)
    unit = pgm.FullNormal(3)
    zeta = inputs(means, covariance)
    eta = unit.link(zeta)
    values = unit.values_of(rng.normal(size=(2, 3)))
    whole = (values * eta).sum(axis=-1) + unit.log_h(values) - unit.log_normalizer(eta)
    np.testing.assert_allclose(whole, unit.log_conditional(values, zeta), atol=1e-9)
    np.testing.assert_allclose(unit.mean(eta), unit.mean_given(zeta), atol=1e-9)
    for place in range(unit.width):
        moved = np.zeros(unit.width)
        moved[place] = step
        ends = [unit.log_normalizer(eta + sign * moved) for sign in (1, -1)]
        np.testing.assert_allclose(
            unit.mean(eta)[:, place], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-5
        )
        ends = [unit.mean(eta + sign * moved)[:, place] for sign in (1, -1)]
        np.testing.assert_allclose(
            unit.variance(eta)[:, place], (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-4
        )
    drawn = unit.sample(np.broadcast_to(eta[0], (4000, unit.width)), rng)
    error = np.sqrt(unit.variance(eta[0]) / 4000)
    assert (np.abs(drawn.mean(axis=0) - unit.mean(eta[0])) <= 5.5 * error).all()
