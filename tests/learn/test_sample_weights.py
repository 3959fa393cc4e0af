"""Sample weights: the effect of rows with weight three, zero, or any other on a fit."""

from dataclasses import replace

import numpy as np
import pytest
from kept import kept
from loops import one_test_over
from registry import ESTIMATES, FEW_DRAWS, METHODS

import pgmengine as pgm
from pgmengine.infer.sampling.draws import collected
from pgmengine.learn.phases.positive import data_phase
from pgmengine.learn.phases.statistics import Statistics


def weighted_case(case):
    """(model, data, given) with six rows."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (6, 4)).astype(float)
    if case == "drbm":
        return (
            kept(pgm.drbm(4, 3, 3, rng=1)),
            {"x": x, "y": rng.integers(0, 3, (6, 1)).astype(float)},
            ("x",),
        )
    model = pgm.dbm([4, 3, 2], rng=1) if case == "dbm" else pgm.rbm(4, 3, rng=1)
    return kept(model), {"v": x}, ()


@one_test_over("case", ["rbm", "drbm", "dbm"])
def test_a_row_of_weight_three_counts_as_three_rows(case, rtol=1e-9):
    model, data, given = weighted_case(case)
    weights = np.array([3, 1, 0, 2, 1, 1])
    repeated = {k: np.repeat(v, weights, axis=0) for k, v in data.items()}
    settings = {
        "negative": pgm.ExactGradient(),
        "given": given,
        "optimizer": pgm.SGD(0.5),
        "updates": 5,
        "batch_size": 99,
    }
    one = pgm.fit(model, data, sample_weight=weights, **settings)
    two = pgm.fit(model, repeated, **settings)
    for key, value in one.model.params.items():
        np.testing.assert_allclose(two.model.params[key], value, rtol=rtol, atol=1e-12)


def cd_step(case, weights, change=None):
    """Change of the parameters by one update of CD with weighted rows; `change`: a row that gets
    other values.
    """
    model, data, given = weighted_case(case)
    if change is not None:
        data = {k: v.copy() for k, v in data.items()}
        for v in data.values():
            v[change] = 1 - v[change] if v.shape[1] > 1 else (v[change] + 1) % 3
    f = pgm.fit(
        model,
        data,
        negative=pgm.CD(),
        given=given,
        optimizer=pgm.SGD(0.5),
        updates=1,
        sample_weight=weights,
    )
    return np.concatenate([np.ravel(f.model.params[k] - v) for k, v in model.params.items()])


@one_test_over("case", ["rbm", "drbm", "dbm"])
def test_a_step_of_cd_is_linear_in_the_weights(case, atol=1e-6):
    one, two = np.array([3, 1, 0, 1, 1, 0.0]), np.array([0, 1, 2, 0, 1, 2.0])
    both = (cd_step(case, one) + cd_step(case, two)) / 2
    np.testing.assert_allclose(cd_step(case, (one + two) / 2), both, atol=atol)
    assert np.abs(cd_step(case, one) - cd_step(case, two)).max() > 100 * atol


@pytest.mark.parametrize("case", ["rbm", "drbm"])
def test_a_row_without_weight_has_no_part_in_cd(case):
    """Neither in the data phase nor in the chains that start from it."""
    weights = np.array([3, 1, 0, 2, 1, 1.0])
    np.testing.assert_array_equal(cd_step(case, weights), cd_step(case, weights, change=2))
    assert not np.array_equal(cd_step(case, weights), cd_step(case, weights, change=1))


def test_distinct_row_weights_are_no_loop_over_rows(monkeypatch):
    calls = []
    real = pgm.Exact.gradient
    monkeypatch.setattr(
        pgm.Exact, "gradient", lambda self, t, w: calls.append(t.rows) or real(self, t, w)
    )
    x = np.random.default_rng(0).integers(0, 2, (50, 5)).astype(float)
    model, settings = pgm.dbm([5, 3, 2], rng=0), {"negative": pgm.PCD(), "updates": 2}
    pgm.fit(model, {"v": x}, sample_weight=np.arange(1.0, 51), **settings)
    assert calls == [50, 50]


@one_test_over(
    ("weight", "match"),
    [
        ([1, 2], "shape"),
        ([1, -1, 1], "row 1 is -1"),
        ([0, 0, 0], "weight of 0"),
        ([1, np.nan, 1], "sample_weight"),
    ],
)
def test_bad_sample_weights(weight, match):
    with pytest.raises(pgm.PgmError, match=match):
        pgm.fit(pgm.rbm(2, 2, rng=0), {"v": np.zeros((3, 2))}, updates=1, sample_weight=weight)


@pytest.mark.parametrize("negative", [pgm.ExactGradient(), pgm.PCD(chains=4)], ids=repr)
def test_a_batch_that_weighs_nothing_leaves_the_offsets_of_centred_gradients(negative):
    """Two rows of ones, one of them with weight 0, whose batches do not change the means."""
    optimizer = pgm.Centered(pgm.SGD(0.1), follow=0.3)
    f = pgm.fit(
        pgm.rbm(2, 1, rng=0),
        {"v": np.ones((2, 2))},
        negative=negative,
        optimizer=optimizer,
        batch_size=1,
        updates=9,
        sample_weight=[1, 0],
        progress=False,
    )
    np.testing.assert_array_equal(f.state["optimizer/offset/v"], 1.0)


@pytest.mark.parametrize("name", [n for n in ESTIMATES if "gradient" in METHODS[n].gives])
def test_rows_that_weigh_are_asked_about_at_once(name, rtol=1e-9):
    """A sampler's gradient is the weighted sum over rows of its gradients for single rows."""
    method, directed = FEW_DRAWS[name], name == "Forward"
    model = pgm.sbn([5, 3, 2], rng=0) if directed else pgm.dbm([5, 3, 2], rng=0)
    x, weights = (
        np.random.default_rng(0).integers(0, 2, (6, 5)).astype(float),
        np.array([0.5, 0, 2, 1, 0.3, 0.7]),
    )
    target, found = model.given({"v": x}), {}
    # The draws are the same for all sample weights.
    for row in range(6):
        r = method.run(
            replace(target, weights=(np.arange(6) == row) * weights), ("gradient",), rng=1
        )
        found = {k: found.get(k, 0) + v for k, v in r.gradient.items()}
    whole = Statistics(np.float64)
    data_phase(method).expect(target, weights, whole, np.random.default_rng(1))
    for key, value in whole.total(model).items():
        np.testing.assert_allclose(value, found[key], rtol=rtol, atol=1e-12, err_msg=key)
        assert np.abs(value).max() > 0


@pytest.mark.parametrize(
    "model", [pgm.dbm([5, 3, 2], rng=0), pgm.sbn([5, 3, 2], rng=0)], ids=["dbm", "sbn"]
)
def test_methods_that_choose_take_weights(model, rtol=1e-6):
    """Mean field starts a data phase at another point than an answer: both end at one maximum, at
    which the Newton steps in xi stop within 1e-7.
    """
    x, weights = np.random.default_rng(0).integers(0, 2, (6, 5)).astype(float), np.arange(6.0)
    target = model.given({"v": x})
    for method in (pgm.Exact(), pgm.MeanField(updates=500, tolerance=1e-12)):
        one, two = Statistics(np.float64), Statistics(np.float64)
        rng, chosen = np.random.default_rng(0), pgm.Auto(candidates=(method,))
        data_phase(method).expect(target, weights, one, rng)
        data_phase(chosen).expect(target, weights, two, rng)
        found = two.total(model)
        for key, value in one.total(model).items():
            np.testing.assert_allclose(found[key], value, rtol=rtol, atol=rtol, err_msg=key)


def test_weights_of_any_size():
    x = np.random.default_rng(0).integers(0, 2, (6, 4)).astype(float)
    one, two = (
        pgm.fit(pgm.rbm(4, 2, rng=0), {"v": x}, updates=3, sample_weight=np.full(6, w))
        for w in (1.0, 1e308)
    )
    np.testing.assert_allclose(one.model.params["v.bias"], two.model.params["v.bias"])


def test_learning_leaves_chains_unjudged(monkeypatch):
    """R-hat is not computed in updates, of which it once took most of the time."""
    monkeypatch.setattr(collected, "chain_statistics", None)
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 12)
    b.layer("v", pgm.NoisyOr(), 3, bias=np.full(3, 0.1))
    b.cause("h", "v")
    for positive in (None, pgm.MCMC(chains=1, warmup=1, draws=9)):
        f = pgm.fit(b.build(rng=0), {"v": np.ones((4, 3))}, updates=2, positive=positive)
        assert isinstance(f.positive, pgm.MCMC)
    assert f.positive.rhat_limit < 2  # as given
