"""Real children in the units of their data: where learning begins, and which optimum it finds."""

import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm

# Factors and shifts of three columns: the optimum moves with them.
UNITS = {
    "sd 20 about 507": (20.0, 507.0),
    "sd 1 about a million": (1.0, 1e6),
    "columns of their own": (np.array([1e3, 0.5, 20.0]), np.array([5e3, 0.1, 507.0])),
}


def table(seed=0, count=120, gaps=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(rng.normal(0, 3, (3, 3))[rng.integers(3, size=count)], 1.0)
    x[rng.random(x.shape) < gaps] = np.nan
    return x


def mixture(rows=None, unit=None):
    b = pgm.GraphBuilder()
    b.variable("class", states=3)
    x = b.layer("x", unit or pgm.Normal(), 3)
    b.conditional("class", (), np.full(3, 1 / 3))
    b.cause("class", x, np.zeros((3, 3, 2)) if rows is None else rows, name="rows")
    return b.build()


def sums(rows=None):
    """Two hidden parents, whose rows add up, so that no M step is closed."""
    b = pgm.GraphBuilder()
    one, two = b.variable("one", states=2), b.variable("two", states=2)
    x = b.layer("x", pgm.Normal(), 3)
    b.conditional(one, (), [0.4, 0.6])
    b.conditional(two, (), [0.3, 0.7])
    b.cause(one, x, np.zeros((3, 2, 2)), name="rows")
    b.cause(two, x, np.zeros((3, 2, 2)), name="more")
    return b.build()


@pytest.mark.parametrize("optimizer", (None, pgm.EM(pseudocount=0), pgm.LBFGS()), ids=repr)
@pytest.mark.parametrize("unit", UNITS)
def test_the_optimum_moves_with_the_unit_of_the_data(unit, optimizer):
    x, (factor, shift) = table(gaps=0.2), UNITS[unit]
    settings = {"optimizer": optimizer, "rng": 1, "progress": False}
    plain, raw = (pgm.fit(mixture(), {"x": y}, **settings) for y in (x, factor * x + shift))
    each = np.broadcast_to(factor, 3)[:, None]
    middle, tolerance = (
        np.broadcast_to(shift, 3)[:, None],
        1e-3 if optimizer == pgm.LBFGS() else 1e-6,
    )
    rows = np.array(raw.params["rows"])
    means = (rows[..., 0] - middle) / each
    np.testing.assert_allclose(means, plain.params["rows"][..., 0], atol=tolerance)
    spreads = rows[..., 1] - np.log(each)
    np.testing.assert_allclose(spreads, plain.params["rows"][..., 1], atol=tolerance)


def test_sums_of_rows_begin_at_the_data_and_learn_by_lbfgs():
    x = table()
    for factor, shift in ((1.0, 0.0), (20.0, 507.0)):
        data = {"x": factor * x + shift}
        start = pgm.fit(sums(), data, updates=0, progress=False).model
        assert type(pgm.fit(sums(), data, updates=0, progress=False).optimizer) is pgm.LBFGS
        x0 = data["x"]
        expected = np.stack([x0.mean(axis=0), np.log(x0.std(axis=0))], axis=-1)
        np.testing.assert_allclose(start.params["rows"], expected[:, None].repeat(2, axis=1))
        assert not start.params["more"].any()
        f = pgm.fit(sums(), data, rng=0, progress=False)
        alone = -(np.log(x0.std(axis=0)) + 0.5 * np.log(2 * np.pi) + 0.5).sum()
        assert f.history["objective"]["value"][-1] > alone + 0.5


def test_declared_and_fixed_rows_stay():
    x, rows = table() + 100, np.random.default_rng(0).normal(size=(3, 3, 2))
    begun = pgm.fit(mixture(rows), {"x": x}, updates=0, progress=False)
    np.testing.assert_array_equal(begun.params["rows"], rows)
    steps = pgm.Fixed(pgm.EM(), ["rows"])
    fixed = pgm.fit(mixture(), {"x": x}, optimizer=steps, updates=2, progress=False)
    assert not fixed.params["rows"].any()


def test_mini_batches_still_ask_for_standardised_data():
    with pytest.raises(pgm.PgmError, match=r"mean 5.*standardise them"):
        pgm.fit(mixture(), {"x": table() + 507}, optimizer=pgm.Adam(0.1), progress=False)


def test_complete_data_take_one_update_in_any_unit():
    x, rng = table(), np.random.default_rng(0)
    z = rng.integers(0, 3, len(x))
    for factor, shift in ((1.0, 0.0), (1.0, 1e6)):
        y = factor * x + shift
        for rows in (None, rng.normal(size=(3, 3, 2))):
            f = pgm.fit(
                mixture(rows),
                {"x": y, "class": z[:, None]},
                optimizer=pgm.EM(pseudocount=0),
                progress=False,
            )
            assert f.state["update"] == 1 and "complete" in f.stopped
            for k in range(3):
                found = np.array(f.params["rows"])[:, k]
                np.testing.assert_allclose(found[:, 0], y[z == k].mean(axis=0), rtol=1e-12)
                np.testing.assert_allclose(np.exp(found[:, 1]), y[z == k].std(axis=0), rtol=1e-8)


@one_test_over("seed", range(3))
def test_the_optimum_is_that_of_scikit_learn_from_the_same_start(seed):
    extra("sklearn")
    from sklearn.mixture import GaussianMixture as peer_of

    x, rng = table(seed), np.random.default_rng(seed)
    means = x[rng.choice(len(x), 3, replace=False)]
    peer = peer_of(
        3,
        covariance_type="diag",
        tol=1e-12,
        reg_covar=0.0,
        max_iter=2000,
        means_init=means,
        weights_init=np.full(3, 1 / 3),
        precisions_init=np.ones((3, 3)),
    ).fit(x)
    rows = np.stack([means.T, np.zeros((3, 3))], axis=-1)
    steps = pgm.EM(pseudocount=0, tolerance=1e-13, starts=1)
    f = pgm.fit(mixture(rows), {"x": x}, optimizer=steps, updates=2000, progress=False)
    np.testing.assert_allclose(f.params["rows"][..., 0], peer.means_.T, atol=1e-4)
    np.testing.assert_allclose(np.exp(2 * f.params["rows"][..., 1]), peer.covariances_.T, rtol=1e-3)
    assert abs(f.history["objective"]["value"][-1] - peer.score(x)) < 1e-8


def test_em_refuses_arrows_without_closed_steps_and_pseudocounts_of_other_shapes():
    data = {"x": table()}
    with pytest.raises(pgm.PgmError, match=r"'rows' are arrows whose best weights.*LBFGS"):
        pgm.fit(sums(), data, optimizer=pgm.EM(), progress=False)
    steps = pgm.EM(pseudocount={"rows": np.ones((3, 3, 2))})
    with pytest.raises(pgm.PgmError, match=r"'rows' has shape \(3, 3, 2\), expected \(3, 3\)"):
        pgm.fit(mixture(), data, optimizer=steps, progress=False)
    with pytest.raises(pgm.PgmError, match="need exact expectations"):
        pgm.fit(
            mixture(),
            data,
            optimizer=pgm.EM(),
            positive=pgm.MCMC(draws=5, warmup=5),
            progress=False,
        )


def test_a_number_of_pseudocounts_for_each_state():
    x, z = table(), np.repeat([0, 1, 2], 40)[:, None]
    added = np.zeros((3, 3))
    added[:, 1] = 50.0
    f = pgm.fit(
        mixture(),
        {"x": x, "class": z},
        optimizer=pgm.EM(pseudocount={"rows": added}),
        progress=False,
    )
    square = np.exp(2 * np.array(f.params["rows"])[..., 1])
    for k, weight in enumerate((0.0, 0.5, 0.0)):
        own = x[z[:, 0] == k]
        expected = (len(own) * own.var(axis=0) + weight * x.var(axis=0)) / (len(own) + weight)
        np.testing.assert_allclose(square[:, k], expected, rtol=1e-10)


def test_seconds_end_a_fit_and_its_starts():
    x = {"x": table()}
    f = pgm.fit(mixture(), x, seconds=0.0, progress=False)
    assert f.stopped == "0 seconds are over" and f.state["update"] == 0
    long = pgm.fit(mixture(), x, seconds=60.0, progress=False)
    assert long.stopped == pgm.fit(mixture(), x, progress=False).stopped
    with pytest.raises(pgm.PgmError, match="seconds must be a finite number of at least 0"):
        pgm.fit(mixture(), x, seconds=-1, progress=False)


@one_test_over("unit", UNITS)
def test_answers_move_with_the_unit_of_the_data(unit):
    """Conditionals are evaluated as they are, without a base measure that would cost digits."""
    x, (factor, shift) = table(gaps=0.2), UNITS[unit]
    rows = np.random.default_rng(0).normal(size=(3, 3, 2))
    raw = rows.copy()
    each, middle = np.broadcast_to(factor, 3)[:, None], np.broadcast_to(shift, 3)[:, None]
    raw[..., 0], raw[..., 1] = rows[..., 0] * each + middle, rows[..., 1] + np.log(each)
    want = ("marginals", "log_prob")
    plain = pgm.infer(mixture(rows), {"x": x}, want=want)
    found = pgm.infer(mixture(raw), {"x": factor * x + shift}, want=want)
    assert found.status.good and found.kind == "exact"
    np.testing.assert_allclose(found.prob["class"], plain.prob["class"], atol=1e-8)
    lost = (np.isfinite(x) * np.log(each[:, 0])).sum(axis=1)
    np.testing.assert_allclose(found.log_prob, plain.log_prob - lost, rtol=1e-9)


def test_values_far_from_all_states_are_withheld():
    rows = np.random.default_rng(0).normal(size=(3, 3, 2))
    found = pgm.infer(mixture(rows), {"x": np.full(3, 1e9)}, want=("marginals", "log_prob"))
    assert found.status is pgm.Status.ROUNDED and np.isnan(found.prob["class"]).all()
