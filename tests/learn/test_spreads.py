"""The finding of a standard deviation that is another one than the data's spread about their means.

The oracle sums over all paths of a chain, by formulas of its own.
"""

import itertools
import logging

import numpy as np
import pytest

import pgmengine as pgm

KIND = pgm.FindingKind.OTHER_SIGMA
MEANS, STAY = np.array([-2.5, 0.0, 2.5]), 0.8
MOVES = STAY * np.eye(3) + (1 - STAY) / 2 * (1 - np.eye(3))


def chain(sigma, steps):
    b = pgm.GraphBuilder()
    z = b.variable("z", states=3, shape=steps)
    x = b.layer("x", pgm.Gaussian(sigma=sigma), steps)
    b.conditional(z[0], (), np.ones(3) / 3, name="start")
    b.conditional(z[1:], (z[:-1],), MOVES, name="transition")
    b.cause(z, x, (MEANS / sigma**2)[:, None], name="means")
    return b


def data(sigma, lengths, seed=0, labels=False):
    rng, rows = np.random.default_rng(seed), []
    for steps in lengths:
        z = np.zeros(steps, dtype=int)
        for t in range(steps):
            z[t] = rng.choice(3, p=np.ones(3) / 3 if t == 0 else MOVES[z[t - 1]])
        rows.append({"x": rng.normal(MEANS[z], sigma)} | ({"z": z} if labels else {}))
    return rows


def found(fit):
    return [one for one in fit.findings if one.kind is KIND]


def fitted(sigma, rows, **more):
    template = pgm.Template(lambda steps: chain(sigma, steps))
    optimizer = pgm.LBFGS()
    return pgm.fit(template, rows, optimizer=optimizer, progress=False, rng=0, **more)


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize(("sigma", "wrong"), [(0.4, True), (0.8, False), (1.6, True)])
def test_a_fit_says_when_sigma_is_another_one(sigma, wrong, labels, caplog):
    rows = data(0.8, [6] * 40 + [9] * 10, labels=labels)
    with caplog.at_level(logging.WARNING):
        fit = fitted(sigma, rows)
    assert bool(found(fit)) is wrong
    assert any(f"sigma={sigma}" in line.message for line in caplog.records) is wrong
    if wrong:
        spread = found(fit)[0].sigma
        assert abs(spread - 0.8) < abs(sigma - 0.8) and f"{spread:.4g}" in str(found(fit)[0])


def test_the_spread_is_the_expected_one(errors=5.0):
    """One path is drawn for each row, so that the variance over paths is that of the estimate."""
    rows, sigma = data(0.8, [5] * 200), 1.3
    fit = fitted(sigma, rows)
    p = {name: np.asarray(value) for name, value in fit.params.items()}
    mean = sigma**2 * p["means"].ravel()
    paths = np.array(list(itertools.product(range(3), repeat=5)))
    log_p = p["start"].ravel()[paths[:, 0]]
    log_p = log_p + p["transition"][paths[:, :-1], paths[:, 1:]].sum(axis=1)
    total = variance = 0.0
    for row in rows:
        squares = ((row["x"] - mean[paths]) ** 2).sum(axis=1)
        weights = np.exp(log_p - squares / (2 * sigma**2))
        expected = np.average(squares, weights=weights)
        total += expected
        variance += np.average((squares - expected) ** 2, weights=weights)
    error = np.sqrt(variance) / 1000
    assert abs(found(fit)[0].sigma ** 2 - total / 1000) < errors * error
    assert error < 0.1


def test_gaps_do_not_count_and_models_without_templates_say_it_as_well():
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=(300, 1))
    x = rng.normal(MEANS[z], 0.5)
    x[::3] = np.nan
    b = pgm.GraphBuilder()
    b.variable("z", states=3)
    b.layer("x", pgm.Gaussian(1.5), 1)
    b.conditional("z", (), np.ones(3) / 3)
    b.cause("z", "x", [[-1.0], [0.0], [1.0]])
    fit = pgm.fit(b.build(), {"z": z[:, 0], "x": x}, optimizer=pgm.LBFGS(), progress=False)
    np.testing.assert_allclose(found(fit)[0].sigma, 0.5, rtol=0.1)
    residual = x[:, 0] - 1.5**2 * (fit.params["x.bias"] + fit.params["z->x.weight"][z[:, 0], 0])
    np.testing.assert_allclose(found(fit)[0].sigma, np.sqrt(np.nanmean(residual**2)), rtol=1e-3)


def test_weights_of_rows_count():
    rows = data(0.8, [6] * 60) + data(2.4, [6] * 60, seed=1)
    light = fitted(0.8, rows, sample_weight=[1.0] * 60 + [1e-6] * 60)
    assert not found(light) and found(fitted(0.8, rows))
