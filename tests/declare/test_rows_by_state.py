"""Arrows with a row for each of two states: as bias and difference, and as tables with more states.

The plain way declares the input of the first state as a bias, and the weight of the parent as the
difference of the rows over the difference of its two values.
"""

import itertools

import numpy as np
import pytest

import pgmengine as pgm

PARENTS = {"binary": pgm.Binary(), "spin": pgm.Spin()}
CHILDREN = {
    "normal": pgm.Normal(),
    "categorical": pgm.Categorical(3),
    "binary": pgm.Binary(),
    "gaussian": pgm.Gaussian(0.7),
}


def pair(parent, child, rng, lead):
    """A model with rows by state, the same model in the plain way, and the rows."""
    width = child.width
    rows = rng.normal(size=(4, 2, width) if lead else (2, width)) * 0.6
    low, high = np.ravel(parent.support)
    slope = (rows[..., 1, :] - rows[..., 0, :]) / (high - low)
    first = rows[..., 0, :] - low * slope
    if width == 1:
        slope, first = slope[..., 0], first[..., 0]
    else:
        slope = slope[..., None, :]
    models = []
    for by_state in (True, False):
        b = pgm.GraphBuilder()
        z, x = b.layer("z", parent, 4), b.layer("x", child, 4)
        b.cause(z[:-1], z[1:], 0.8, name="step")
        if by_state:
            b.cause(z, x, rows, name="rows")
        else:
            b.bias(x, first, name="first")
            b.cause(z, x, slope, name="slope")
        models.append(b.build())
    return *models, rows


@pytest.mark.parametrize("lead", (False, True), ids=("shared", "own"))
@pytest.mark.parametrize("child", CHILDREN)
@pytest.mark.parametrize("parent", PARENTS)
def test_rows_are_a_bias_and_a_difference(parent, child, lead):
    rng = np.random.default_rng(0)
    one, plain, rows = pair(PARENTS[parent], CHILDREN[child], rng, lead)
    assert one.params["rows"].shape == rows.shape
    x = rng.integers(0, 2, size=(6, 4)).astype(float)
    x[rng.random(x.shape) < 0.2] = np.nan
    questions = [pgm.infer(m, {"x": x}, want=("log_prob", "marginals")) for m in (one, plain)]
    np.testing.assert_allclose(questions[0].log_prob, questions[1].log_prob, atol=1e-12)
    for name in ("x", "z"):
        np.testing.assert_allclose(questions[0].mean[name], questions[1].mean[name], atol=1e-12)


@pytest.mark.parametrize("lead", (False, True), ids=("shared", "own"))
@pytest.mark.parametrize("child", CHILDREN)
@pytest.mark.parametrize("parent", PARENTS)
def test_the_gradient_is_the_slope_of_log_p(parent, child, lead):
    rng = np.random.default_rng(1)
    model, _, rows = pair(PARENTS[parent], CHILDREN[child], rng, lead)
    x = rng.integers(0, 2, size=(1, 4)).astype(float)
    r = pgm.infer(model, {"x": x}, want=("gradient",))

    def log_p(change):
        moved = model.with_params({"rows": rows + change})
        return pgm.infer(moved, {"x": x}, want=("log_prob",)).log_prob[0]

    step = 1e-5
    for at in itertools.islice(np.ndindex(rows.shape), 8):
        change = np.zeros(rows.shape)
        change[at] = step
        slope = (log_p(change) - log_p(-change)) / (2 * step)
        assert r.gradient["rows"].shape == rows.shape
        np.testing.assert_allclose(r.gradient["rows"][at], slope, atol=1e-7)


@pytest.mark.parametrize("parent", PARENTS)
def test_files_and_templates_keep_the_rows(parent, tmp_path):
    model, _, rows = pair(PARENTS[parent], pgm.Normal(), np.random.default_rng(2), False)
    pgm.save(model, tmp_path / "m.safetensors")
    again = pgm.load(tmp_path / "m.safetensors")
    assert np.array_equal(again.params["rows"], rows)
    x = [0.3, None, -1.0, 0.2]
    found = [pgm.infer(m, {"x": x}, want=("log_prob",)).log_prob for m in (model, again)]
    assert np.array_equal(*found)


def chain(steps, states, rows):
    b = pgm.GraphBuilder()
    z, x = b.variable("z", states=states, shape=steps), b.layer("x", pgm.Normal(), steps)
    b.conditional(z[0], (), np.ones(states) / states, name="start")
    b.conditional(z[1:], (z[:-1],), np.ones((states, states)) / states, name="transition")
    b.cause(z, x, rows, name="emission")
    return b


def two_states(rng, length=30):
    z = np.repeat(rng.integers(2, size=length // 3), 3)
    return rng.normal(np.array([-1.0, 2.0])[z], np.array([0.3, 1.0])[z])


def test_a_chain_of_two_states_is_learned_as_one_of_three():
    """The same lines for any number of states, as a template or not: rows are means."""
    rng = np.random.default_rng(0)
    rows = [two_states(rng) for _ in range(40)]
    template = pgm.Template(lambda steps: chain(steps, 2, np.zeros((2, 2))))
    model = chain(30, 2, np.zeros((2, 2))).build()
    fits = [
        pgm.fit(template, [{"x": x} for x in rows], progress=False),
        pgm.fit(model, {"x": np.array(rows)}, progress=False),
    ]
    for f in fits:
        states = f.params["emission"][np.argsort(f.params["emission"][:, 0])]
        np.testing.assert_allclose(states[:, 0], [-1, 2], atol=0.1)
        np.testing.assert_allclose(np.exp(states[:, 1]), [0.3, 1.0], atol=0.1)
        assert not any("stay as they are declared" in note for note in f.notes)
    assert not np.any(fits[1].params["x.bias"])
    close = [f.history["objective"]["value"][-1] for f in fits]
    np.testing.assert_allclose(*close, rtol=1e-6)


@pytest.mark.parametrize("states", (2, pytest.param(3, marks=pytest.mark.long)))
def test_rows_of_all_states_are_the_whole_input(states):
    """Each step has no bias of its own beside shared rows, unless it is declared."""
    b = chain(5, states, np.zeros((states, 2)))
    model = b.build()
    assert not model.structure.has_bias["x"].any()
    # 3 free numbers of two states: start 1, transition 2; of three states 2 and 6; and the rows.
    assert f"{(states - 1) * (states + 1) + 2 * states} parameters" in repr(model).splitlines()[0]
    b.bias("x", np.zeros((5, 2)), name="level")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 5)) * 0.1 + np.arange(5) / 2
    f = pgm.fit(b.build(), {"x": x}, progress=False, optimizer=pgm.LBFGS())
    assert f.params["level"].shape == (5, 2)
    assert np.ptp(f.params["level"][:, 0]) > 1


def test_given_parents_keep_what_they_touch():
    """Rows of both states move though the sums of their factors are 0: they act in two ways."""
    rng = np.random.default_rng(0)
    z = rng.integers(0, 2, size=(200, 4))
    x = rng.normal(np.array([-1.0, 2.0])[z], 0.5)
    b = pgm.GraphBuilder()
    parent, child = b.layer("z", pgm.Binary(), 4), b.layer("x", pgm.Normal(), 4)
    b.cause(parent, child, np.zeros((2, 2)), name="rows")
    f = pgm.fit(b.build(), {"z": z, "x": x}, given=["z"], optimizer=pgm.LBFGS(), progress=False)
    np.testing.assert_allclose(f.params["rows"][:, 0], [x[z == 0].mean(), x[z == 1].mean()], 1e-3)
    np.testing.assert_allclose(
        np.exp(f.params["rows"][:, 1]), [x[z == 0].std(), x[z == 1].std()], 1e-3
    )


@pytest.mark.parametrize("hidden", (False, True))
def test_the_default_fit_of_a_layer_and_its_real_children_is_the_best_one(hidden):
    """Two groups without a table: small steps ended 0.2 nats a row below, without a word."""
    rng = np.random.default_rng(0)
    z = rng.choice([-1.0, 1.0], (400, 1))
    x = rng.normal(np.where(z > 0, 1.5, -1.0), np.where(z > 0, 0.5, 1.0))
    b = pgm.GraphBuilder()
    s, child = b.layer("s", pgm.Spin(), 1), b.layer("x", pgm.Normal(), 1)
    b.cause(s, child, [[0.0, 0.0], [0.1, 0.0]], name="rows")
    data = {"x": x} if hidden else {"s": z, "x": x}
    f = pgm.fit(b.build(), data, progress=False)
    means, sigmas = f.params["rows"][:, 0], np.exp(f.params["rows"][:, 1])
    order = np.argsort(means)
    np.testing.assert_allclose(means[order], [-1.0, 1.5], atol=0.25)
    np.testing.assert_allclose(sigmas[order], [1.0, 0.5], atol=0.15)


def test_refusals():
    b = pgm.GraphBuilder()
    z, x = b.layer("z", pgm.Binary(), 3), b.layer("x", pgm.Normal(), 3)
    b.cause(z, x, np.zeros((3, 2)))
    with pytest.raises(pgm.PgmError, match=r"has shape \(3, 2\), expected \(1, 2\).*or \(2, 2\)"):
        b.build()
    b = pgm.GraphBuilder()
    z, n = b.layer("z", pgm.Binary(), 3), b.layer("n", pgm.NoisyOr(), 3)
    b.cause(z, n, np.ones((2, 1)))
    with pytest.raises(pgm.PgmError, match=r"places"):
        b.build()
