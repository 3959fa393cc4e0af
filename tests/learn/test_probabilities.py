"""Data that are probabilities are drawn anew in each pass over the rows."""

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm
from pgmengine.learn.run import Run
from pgmengine.learn.starting.probabilities import draw

ROWS = np.repeat([[0.9, 0.9, 0.1, 0.5], [0.1, 0.2, 0.8, 0.5]], 200, axis=0)
GAPS = np.where(np.arange(ROWS.size).reshape(ROWS.shape) % 7 == 3, np.nan, ROWS)


def learned(x=ROWS, **settings):
    given = {"probabilities": ("v",), "updates": 30, "progress": False, "batch_size": 32}
    return pgm.fit(pgm.rbm(4, 3, rng=0), {"v": x}, **{**given, **settings})


def same(one, other):
    for name, value in one.model.params.items():
        np.testing.assert_array_equal(value, other.model.params[name])


def test_draws_have_the_probabilities_in_each_pass(passes=4000, errors=6.0):
    chance = np.array([[0.0, 1.0, 0.3, np.nan]])
    values, key = np.full((1, 4), 0.25), np.arange(4, dtype=np.uint32)
    found = np.empty((passes, 4))
    for number in range(passes):
        draw(values, chance, key, number)
        found[number] = values
    assert not found[:, 0].any() and found[:, 1].all() and (found[:, 3] == 0.25).all()
    assert abs(found[:, 2].mean() - 0.3) <= errors * np.sqrt(0.21 / passes)
    draw(values, chance, key, 7)
    np.testing.assert_array_equal(values[0], found[7])


@pytest.mark.parametrize("x", [ROWS, GAPS], ids=["complete", "with gaps"])
def test_a_model_learns_the_distribution_of_the_draws(x, limit=0.06):
    """Thresholds at 1/2 would make the first two units equal."""
    steps = pgm.SGD(pgm.linear_decay(0.5, 600))
    fit = learned(x, updates=600, optimizer=steps, negative=pgm.ExactGradient())
    want = (pgm.Joint(("v", 0), ("v", 1)), pgm.Joint(("v", 0), ("v", 2)))
    joint = pgm.infer(fit, want=want).joint
    for (a, b), found in zip(((0, 1), (0, 2)), joint.values(), strict=True):
        for i in (0, 1):
            for j in (0, 1):
                p, q = (k * ROWS[:, u] + (1 - k) * (1 - ROWS[:, u]) for k, u in ((i, a), (j, b)))
                assert abs(found[i, j] - np.mean(p * q)) <= limit


def test_a_fresh_model_starts_at_the_means_of_the_probabilities():
    fit = learned(updates=1, optimizer=pgm.SGD(0.0))
    np.testing.assert_allclose(fit.model.training.base_rates["v"], ROWS.mean(axis=0), atol=0.01)


@pytest.mark.parametrize("x", [ROWS, GAPS], ids=["complete", "with gaps"])
def test_a_fit_goes_on_with_the_same_bits(x, tmp_path):
    steps = {"optimizer": pgm.SGD(0.1), "negative": pgm.PCD()}
    whole, part = learned(x, **steps), learned(x, updates=17, **steps)
    rest = pgm.fit(
        part.model, {"v": x}, state=part.state, probabilities=("v",), updates=30, batch_size=32,
        progress=False, **steps,
    )  # fmt: skip
    same(whole, rest)
    for updates in (17, 30):
        kept = learned(x, updates=updates, checkpoint=tmp_path / "c", **steps)
    same(whole, kept)


def test_the_compiled_loop_and_python_make_the_same_updates(monkeypatch):
    settings = {"optimizer": pgm.SGD(0.1), "negative": pgm.PCD(), "updates": 60}
    compiled = learned(**settings)
    monkeypatch.setattr(Run, "_record", lambda _: None)
    plain = learned(**settings)
    for name, value in compiled.model.params.items():
        np.testing.assert_allclose(value, plain.model.params[name], atol=1e-4)


@pytest.mark.parametrize("in_python", [False, True])
def test_each_pass_is_drawn_once(in_python, monkeypatch):
    """400 rows are 13 mini-batches of 32. The first draw is made when the fit begins."""
    numbers = []

    def counted(values, chance, key, number):
        numbers.append(number)
        draw(values, chance, key, number)

    monkeypatch.setattr("pgmengine.learn.run.draw", counted)
    if in_python:
        monkeypatch.setattr(Run, "_record", lambda _: None)
    learned(optimizer=pgm.SGD(0.1), negative=pgm.PCD(), updates=40)
    assert numbers == [0, 0, 1, 2, 3]


def test_certain_probabilities_are_states():
    x = np.round(ROWS)
    same(learned(x, probabilities=(), optimizer=pgm.SGD(0.1)), learned(x, optimizer=pgm.SGD(0.1)))


def test_weights_repeats_and_single_units():
    heavy = learned(sample_weight=np.arange(len(ROWS)) < 200, optimizer=pgm.SGD(0.1), updates=200)
    assert pgm.infer(heavy).mean["v"][0] > 0.8
    one, other = learned(repeats=2, optimizer=pgm.SGD(0.1))
    assert (one.params["v.bias"] != other.params["v.bias"]).any()
    mixed = np.column_stack([ROWS[:, 0], np.round(ROWS[:, 1:])])
    learned(mixed, probabilities=(("v", 0),))
    with pytest.raises(pgm.PgmError, match=r"row 0, index 1: 0.9 is not a value"):
        learned(probabilities=(("v", 0),))


def coin(**states):
    b = pgm.GraphBuilder()
    b.variable("a", **states)
    b.variable("b", **states)
    b.table(("a", "b"), np.array([[3.0, 1.0], [1.0, 3.0]]))
    return b.build()


def test_variables_are_named_in_the_refusal_and_learned():
    data = {"a": [0.25] * 40, "b": [1, 0] * 20}
    settings = {"updates": 20, "progress": False}
    with pytest.raises(pgm.PgmError, match=r"fit\(\.\.\., probabilities=\('a',\)\) reads it as"):
        pgm.fit(coin(), data, **settings)
    found = pgm.fit(coin(), data, probabilities=("a",), negative=pgm.ExactGradient(), **settings)
    assert 0 < pgm.infer(found).marginal("a")[1] < 0.5


def chain(steps):
    b = pgm.GraphBuilder()
    b.conditional(b.variable("x", shape=steps), (), [0.5, 0.5], name="x")
    return b


REFUSED = {
    "without being told": (lambda: learned(probabilities=()), r"probabilities=\('v',\)\) reads it"),
    "EM": (lambda: learned(optimizer=pgm.EM()), "EM sees all rows in each update"),
    "LBFGS": (lambda: learned(optimizer=pgm.LBFGS()), "take an optimizer of mini-batches"),
    "above 1": (lambda: learned(ROWS + 0.2), r"row 0, index 0 is 1.1, expected a probability"),
    "below 0": (lambda: learned(ROWS - 0.2), r"row 0, index 2 is -0.1, expected a probability"),
    "another layer": (lambda: learned(probabilities=("h",)), "layer 'h' has no data"),
    "unknown": (lambda: learned(probabilities=("w",)), "probabilities: .*'w' is unknown"),
    "text": (lambda: learned(probabilities="v"), "not a string"),
    "wrong shape": (lambda: learned(ROWS[:, :3]), r"shape \(400, 3\), expected .*\(rows, 4\)"),
    "real units": (
        lambda: pgm.fit(
            pgm.rbm(4, 3, visible=pgm.Gaussian()), {"v": ROWS}, probabilities=("v",)
        ),
        "only the data of Binary units",
    ),
    "named states": (
        lambda: pgm.fit(coin(states=("no", "yes")), {"a": ["no", "yes"]}, probabilities=("a",)),
        "whose states have names",
    ),
    "template": (
        lambda: pgm.fit(pgm.Template(chain), [{"x": [0.5]}], probabilities=("x",)),
        "a template learns from all rows at once",
    ),
    "pretrain": (
        lambda: pgm.pretrain(pgm.dbm([4, 2, 2], rng=0), {"v": ROWS}, probabilities=("v",)),
        "pretrain takes no probabilities",
    ),
}  # fmt: skip


@one_test_over("name", REFUSED)
def test_what_cannot_be_drawn_is_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(pgm.PgmError, match=message):
        call()
