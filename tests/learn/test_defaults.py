"""The phases and steps of `fit` where none are named, and the models that they learn.

Log probabilities are exact, and those of independent units at base rates are by formulas of their
own.
"""

import numpy as np
import pytest
from likelihoods import mean_log_prob
from loops import one_test_over

import pgmengine as pgm
from pgmengine.learn.starting.defaults import SCALED_RATE, SCALED_RATE_OF_BOUNDS, default_optimizer

NAN = np.nan


def fitted(model, x, **settings):
    return pgm.fit(model, {"v": x}, progress=False, **settings)


def phase(model, data, **settings):
    return pgm.fit(model, data, updates=1, progress=False, **settings).negative


def test_the_model_phase_is_exact_where_that_is_cheap():
    rng = np.random.default_rng(0)
    x = (rng.random((30, 40)) < 0.5).astype(float)
    # Sums over 2^4 states of the hidden layer, and over 2^40.
    assert phase(pgm.rbm(40, 4, rng=0), {"v": x}) == pgm.ExactGradient()
    assert phase(pgm.rbm(40, 40, rng=0), {"v": x}) == pgm.PCD()
    # Three states of the label, whatever the size of the hidden layer.
    data = {"x": x, "y": rng.integers(0, 3, 30)}
    assert phase(pgm.drbm(40, 50, 3, rng=0), data, given=("x",)) == pgm.ExactGradient()
    # Chains for each row, as its given units differ from those of others.
    given = [("v", i) for i in range(10)]
    assert phase(pgm.rbm(40, 40, rng=0), {"v": x}, given=given) == pgm.CD()
    # A normalised model has none, and learns in the precision of chains.
    assert phase(pgm.sbn([40, 4], rng=0), {"v": x}) is None
    assert phase(pgm.rbm(40, 4, rng=0), {"v": x}, negative=pgm.CD(3)) == pgm.CD(3)


def test_a_normalised_model_learns_in_single_precision():
    x = pgm.datasets.bars_and_stripes().x_train
    assert fitted(pgm.sbn([16, 12, 4], rng=0), x, updates=1).positive.precision is np.float32


def steps(model, data, **settings):
    return pgm.fit(model, data, progress=False, **settings).optimizer


def rates(optimizer, updates):
    """Return the rate of every update, and the one after the last."""
    while not hasattr(optimizer, "rate"):
        optimizer = optimizer.optimizer
    return np.array([optimizer.rate(t) for t in range(updates + 1)])


@one_test_over("updates", [1, 7, 60])
def test_rates_fall_to_0_at_the_end_of_the_run(updates):
    x, tables = pgm.datasets.bars_and_stripes(3).x_train, pgm.GraphBuilder()
    tables.variable("a", 2)
    tables.variable("b", 2)
    tables.table(("a", "b"), [[1.0, 2.0], [2.0, 1.0]])
    for model, data in (
        (pgm.rbm(9, 3, rng=0), {"v": x}),
        # With a latent variable, whose objective is not concave.
        (tables.build(), {"a": x[:, :1]}),
    ):
        found = rates(steps(model, data, updates=updates), updates)
        assert (found[:-1] > 0).all() and found[-1] == 0.0
        np.testing.assert_allclose(np.diff(found), -found[0] / updates, rtol=1e-9)


def test_rates_fall_over_the_epochs_that_are_asked_for():
    x = np.eye(9)[np.arange(45) % 9]
    found = rates(steps(pgm.rbm(9, 3, rng=0), {"v": x}, epochs=3, batch_size=10), 15)
    assert found[14] > 0 and found[15] == 0.0


def test_models_with_tables_learn_by_adam_and_others_by_centred_scaled_steps():
    b = pgm.GraphBuilder()
    b.variable("a", 2)
    b.variable("b", 2)
    b.table(("a", "b"), [[1.0, 2.0], [2.0, 1.0]])
    x = np.array([[0.0, 1.0], [1.0, 1.0]])
    found = steps(b.build(), {"a": x[:, :1]}, updates=4)
    assert found == pgm.Adam(pgm.linear_decay(0.1, 4))
    found = steps(pgm.rbm(2, 2, rng=0), {"v": x}, updates=400)
    # Short runs take up to four times the rate, and a run of 400 updates takes half of it more.
    assert found == pgm.Centered(pgm.Scaled(pgm.SGD(pgm.linear_decay(1.2 * 1.5, 400))))
    found = steps(pgm.rbm(2, 2, rng=0), {"v": x}, updates=20)
    assert found == pgm.Centered(pgm.Scaled(pgm.SGD(pgm.linear_decay(1.2 * 4.0, 20))))
    assert steps(pgm.rbm(2, 2, rng=0), {"v": x}, updates=2, optimizer=pgm.SGD(0.1)) == pgm.SGD(0.1)


def test_complete_data_of_concave_and_of_normalised_models_take_all_rows():
    b = pgm.GraphBuilder()
    b.variable("a", 2)
    b.variable("b", 2)
    b.table(("a", "b"), [[1.0, 2.0], [2.0, 1.0]])
    x = {"a": [0, 1, 1, 0], "b": [0, 1, 0, 1]}
    fit = pgm.fit(b.build(), x, progress=False)
    assert fit.optimizer == pgm.LBFGS()
    assert "learned by LBFGS, because the likelihood of complete data is concave" in repr(fit)
    assert steps(b.build(), x, updates=4, negative=pgm.PCD()) == pgm.Adam(pgm.linear_decay(0.1, 4))
    wide = pgm.boltzmann_machine(40, rng=0)
    rows = {"x": np.random.default_rng(0).choice([-1, 1], (30, 40))}
    assert type(steps(wide, rows, updates=4)) is pgm.Centered
    net = pgm.GraphBuilder()
    net.variable("a", 2)
    net.conditional("a", (), [0.5, 0.5])
    assert steps(net.build(), {"a": [0, 1, None]}) == pgm.EM()
    assert type(steps(net.build(), {"a": [0, 1]}, updates=4, negative=pgm.PCD())) is pgm.Adam


def test_a_named_choice_gives_the_same_bits_as_the_default():
    x = pgm.datasets.bars_and_stripes().x_train
    one = fitted(pgm.rbm(16, 4, rng=0), x, updates=30)
    two = fitted(
        pgm.rbm(16, 4, rng=0), x, updates=30, negative=one.negative, optimizer=one.optimizer
    )
    for name, value in one.model.params.items():
        np.testing.assert_array_equal(two.model.params[name], value)


def digits_as(kind):
    """Return (unit, training rows, test rows) of 8x8 digits."""
    data = pgm.datasets.digits(None if kind == "Categorical" else 7.5)
    x = [data.x_train, data.x_test]
    if kind == "Spin":
        return pgm.Spin(), *(2 * each - 1 for each in x)
    if kind == "Categorical":
        # The grey values are in [0, 1].
        return pgm.Categorical(3), *(np.digitize(each, [0.25, 0.7]) for each in x)
    return pgm.Binary(), *x


def table(rows, seed):
    """Draw a table of 12 real columns, sums of three switches and of noise of variance 1."""
    effect = np.random.default_rng(99).normal(size=(3, 12))
    rng = np.random.default_rng(seed)
    return (rng.random((rows, 3)) < [0.3, 0.5, 0.6]) @ effect + rng.normal(size=(rows, 12))


def independent(unit, x, rows):
    """Return the mean log probability of rows by independent units at smoothed rates of x."""
    if isinstance(unit, pgm.Gaussian):
        return (-((rows - x.mean(axis=0)) ** 2) / 2 - np.log(2 * np.pi) / 2).sum(axis=1).mean()
    values = {2: [0, 1], 3: [0, 1, 2]}[3 if isinstance(unit, pgm.Categorical) else 2]
    if isinstance(unit, pgm.Spin):
        values = [-1, 1]
    total = 0.0
    for value in values:
        p = ((x == value).sum(axis=0) + 1 / len(values)) / (len(x) + 1)
        total += ((rows == value) @ np.log(p)).mean()
    return total


# Nats of a test row above independent units after 1 epoch and after 20.
GAINS = {"Binary": (1.5, 4.5), "Spin": (1.5, 4.5), "Categorical": (3.0, 7.0), "table": (0.5, 1.5)}


@pytest.mark.parametrize("kind", GAINS)
def test_one_epoch_and_twenty_beat_base_rates_on_held_out_rows(kind):
    if kind == "table":
        unit, train, test = pgm.Gaussian(), table(1500, 0), table(400, 1)
    else:
        unit, train, test = digits_as(kind)
    base = independent(unit, train, test)
    for epochs, gain in zip((1, 20), GAINS[kind], strict=True):
        model = pgm.rbm(train.shape[1], 8, visible=unit, rng=0)
        found = mean_log_prob(fitted(model, train, epochs=epochs), {"v": test})
        assert found > base + gain


def hard():
    """Return data that give defaults little to hold on to, name -> rows of 12 values 0 and 1."""
    rng = np.random.default_rng(0)
    group = rng.random((200, 1)) < 0.5
    x = (rng.random((200, 12)) < np.where(group, 0.2, 0.8)).astype(float)
    constant, column, rare = x.copy(), x.copy(), x.copy()
    constant[:, :4], constant[:, 4:7] = 0.0, 1.0
    column[:, 4] = NAN
    rare[:] = (rng.random(x.shape) < 0.1) | (np.arange(200)[:, None] < 4)
    return {
        "50 rows": x[:50],
        "one row": x[:1],
        "two rows": x[:2],
        "all zeros": np.zeros((200, 12)),
        "all ones": np.ones((200, 12)),
        "constant columns": constant,
        "a column that is always missing": column,
        "cells missing": np.where(rng.random((40, 12)) < 0.4, NAN, x[:40]),
        "two rows in a hundred of another kind": rare,
    }


def at_base_rates(x):
    """Return the mean log probability of the observed cells of rows at their smoothed rates."""
    seen = ~np.isnan(x)
    p = (np.nansum(x, axis=0) + 0.5) / (seen.sum(axis=0) + 1)
    return np.where(seen, np.log(np.where(x == 1, p, 1 - p)), 0.0).sum(axis=1).mean()


@pytest.mark.parametrize("epochs", [1, 20])
@pytest.mark.parametrize("hidden", [3, 16])
@pytest.mark.parametrize("unit", [pgm.Binary(), pgm.Spin()], ids=repr)
@pytest.mark.parametrize("name", hard())
def test_data_of_every_kind_are_learned_no_worse_than_base_rates(
    name, unit, hidden, epochs, margin=0.2, after_one_update=2.5
):
    """No number is NaN, and the rows lose no more than `margin` nats."""
    x = hard()[name]
    rows = 2 * x - 1 if isinstance(unit, pgm.Spin) else x
    found = fitted(pgm.rbm(12, hidden, visible=unit, rng=0), rows, epochs=epochs)
    assert all(np.isfinite(value).all() for value in found.model.params.values())
    gain = mean_log_prob(found.model, {"v": rows}) - at_base_rates(x)
    # The noise of drawn weights costs the most with spins, and one update does not undo it.
    assert gain > -(after_one_update if x.shape[0] <= 2 and epochs == 1 else margin)


def test_unbalanced_labels_are_classified_no_worse_than_by_their_rates(margin=0.02):
    """Two rows in a hundred are of the second class."""
    rng = np.random.default_rng(0)
    y = (np.arange(400) % 50 == 0).astype(int)
    x = (rng.random((400, 15)) < np.where(y[:, None] == 1, 0.7, 0.3)).astype(float)
    model = pgm.drbm(15, 10, 2, rng=0)
    found = pgm.fit(model, {"x": x, "y": y}, given=("x",), epochs=20, progress=False).model
    both, alone = (
        pgm.infer(found, data, want=("log_z",), method=pgm.Exact()).log_z
        for data in ({"x": x, "y": y[:, None]}, {"x": x})
    )
    rate = np.where(y == 1, y.mean(), 1 - y.mean())
    assert (both - alone).mean() > np.log(rate).mean() - margin


@one_test_over("hidden", [3, 7, 10, 11, 20])
def test_the_data_phase_of_rows_with_holes_is_no_slower_for_few_hidden_units(hidden):
    """Patterns share one mixture; with many states, each is enumerated by itself."""
    rng = np.random.default_rng(0)
    x = (rng.random((120, 30)) < 0.5).astype(float)
    many, few = x.copy(), x.copy()
    many[rng.random(x.shape) < 0.2] = NAN
    few[::2, 3] = NAN
    model = pgm.rbm(30, hidden, rng=0)
    shared = pgm.Exact if hidden <= 10 else pgm.MeanField
    assert isinstance(fitted(model, many, updates=1).positive, shared)
    # Given the hidden units, or the single pixel, all is independent.
    assert isinstance(fitted(model, few, updates=1).positive, pgm.Exact)


def test_rows_with_holes_are_exact_where_mean_field_would_refuse():
    """Tables under unobserved parents: many patterns are no reason to sample instead."""
    b = pgm.GraphBuilder()
    for name in "abcd":
        b.variable(name, states=3)
    b.conditional("a", (), [0.2, 0.3, 0.5])
    for parent, child in ("ab", "bc", "cd"):
        b.conditional(child, (parent,), np.full((3, 3), 1 / 3))
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (81, 4)).astype(float)
    x[rng.random(x.shape) < 0.4] = NAN
    data = dict(zip("abcd", x.T, strict=True))
    assert isinstance(pgm.fit(b.build(), data, updates=1, progress=False).positive, pgm.Exact)


def test_an_exact_data_phase_is_planned_once(monkeypatch):
    plans, plan = [], pgm.Enumeration.scheme
    monkeypatch.setattr(pgm.Enumeration, "scheme", lambda *a: plans.append(a) or plan(*a))
    target = pgm.rbm(6, 4, rng=0).given({"v": [[0, 1, NAN, 0, 0, 1]]})
    pgm.Exact().gradient(target, np.ones(1))
    assert len(plans) == 1


@one_test_over("updates", [1, 20, 100, 200, 1000])
def test_short_runs_take_larger_steps_but_bounds_no_more_than_twice(updates):
    """A data phase by mean field and chains that follow it diverge at three times the rate."""
    x = (np.random.default_rng(0).random((20, 200)) < 0.3).astype(float)
    deep = fitted(pgm.dbm([200, 60, 40], rng=0), x, updates=1, batch_size=5)
    assert isinstance(deep.positive, pgm.MeanField) and not deep.factorised
    target, rates = pgm.dbm([200, 60, 40], rng=0).given({"v": x}), []
    for exact in (False, True):
        steps = default_optimizer(target, model_phase=True, exact=exact, updates=updates)
        rates.append(steps.optimizer.optimizer.rate)
    factor = {False: min(1 + 200 / updates, 2.0), True: min(1 + 200 / updates, 4.0)}
    first = {False: SCALED_RATE_OF_BOUNDS, True: SCALED_RATE}
    for exact, rate in zip((False, True), rates):
        assert rate(0) == pytest.approx(first[exact] * factor[exact])
        assert rate(updates) == 0 < rate(updates - 1)
