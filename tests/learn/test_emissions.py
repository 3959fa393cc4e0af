"""Observations of a chain that are no tables: all lengths in one pass, as one length at a time.

The plain way is a junction tree for each length and pattern of gaps.
"""

import numpy as np
import pytest
from chains_together import fits
from loops import one_test_over

import pgmengine as pgm
from pgmengine.infer.exact.long_chains import chain_counts
from pgmengine.learn.full_batch import objective

NAN = np.nan
UNITS = {
    "normal": (pgm.Normal(), lambda rng, n: rng.normal(size=n)),
    "gaussian": (pgm.Gaussian(0.8), lambda rng, n: rng.normal(size=n)),
    "binary": (pgm.Binary(), lambda rng, n: rng.integers(0, 2, n).astype(float)),
    "spin": (pgm.Spin(), lambda rng, n: rng.choice([-1.0, 1.0], n)),
    "categorical": (pgm.Categorical(3), lambda rng, n: rng.integers(0, 3, n).astype(float)),
}


def chain(unit, states, kind, rng):
    """Templates of chains whose observations are children of arrows, and names of observations."""
    width = unit.width
    rows = rng.normal(size=(states, width)) * 0.7
    more = rng.normal(size=(states, 2)) * 0.5
    start, moves = rng.dirichlet(np.ones(states)), rng.dirichlet(np.ones(states), states)
    seen = rng.dirichlet(np.ones(4), states)
    level = rng.normal(size=() if width == 1 else (width,)) * 0.3
    slope = rng.normal(size=(1, width) if width > 1 else ())

    def declare(steps):
        b = pgm.GraphBuilder()
        z = b.variable("z", states=states, shape=steps)
        x = b.layer("x", unit, (steps, 2) if kind == "two columns" else steps)
        b.conditional(z[0], (), start, name="start")
        b.conditional(z[1:], (z[:-1],), moves, name="moves")
        if kind == "two columns":
            b.cause(z, x[:, 0], rows, name="first")
            b.cause(z, x[:, 1], -rows, name="second")
        elif kind == "slope and level":
            b.cause(z, x, slope, name="slope")
            b.bias(x, level, name="level")
        else:
            b.cause(z, x, rows, name="rows")
        if kind == "and a table":
            y = b.variable("y", states=4, shape=steps)
            b.conditional(y, (z,), seen, name="seen")
        if kind == "and a layer":
            y = b.layer("y", pgm.Normal(), steps)
            b.cause(z, y, more, name="more")
            b.bias(y, [0.2, 0.1], name="level")
        return b

    return pgm.Template(declare)


def rows_of(draw, kind, rng, count=60):
    out = []
    for _ in range(count):
        # Long enough that no two rows are equal, which would count as one of weight 2.
        steps = int(rng.integers(10, 16))
        columns = 2 if kind == "two columns" else 1
        x = draw(rng, steps * columns)
        x[rng.random(len(x)) < 0.2] = NAN
        row = {"x": x.reshape(steps, 2) if kind == "two columns" else x}
        if kind == "and a table":
            row["y"] = rng.integers(0, 4, steps)
        if kind == "and a layer":
            row["y"] = rng.normal(size=steps)
        out.append(row)
    return out


KINDS = ("plain", "two columns", "slope and level", "and a table", "and a layer")


# A parent of three states has a row for each, and no slope.
CASES = [(k, kind) for k in (2, 3) for kind in KINDS if (k, kind) != (3, "slope and level")]


@pytest.mark.few(5)
@pytest.mark.parametrize(("states", "kind"), CASES)
@pytest.mark.parametrize("name", UNITS)
def test_all_lengths_are_summed_as_one_length_at_a_time(name, states, kind, monkeypatch):
    unit, draw = UNITS[name]
    rng = np.random.default_rng(len(name) + states)
    template, data = chain(unit, states, kind, rng), rows_of(draw, kind, rng)

    def learned():
        steps = pgm.LBFGS(starts=1, tolerance=0.0)
        return pgm.fit(template, data, optimizer=steps, updates=4, progress=False)

    together, used, apart = fits(learned, monkeypatch)
    # Children without rows of all states have biases of their own, which are not shared numbers.
    assert used == (kind != "slope and level")
    for key, value in apart.model.learned.items():
        np.testing.assert_allclose(together.model.learned[key], value, atol=1e-8)
    both = [f.history["objective"]["value"] for f in (together, apart)]
    np.testing.assert_allclose(*both, rtol=1e-10)


def bad(change):
    """Templates and rows that are no such chains, and have to go the plain way."""
    rng = np.random.default_rng(0)
    data = [{"x": rng.normal(size=int(rng.integers(6, 12)))} for _ in range(60)]

    def declare(steps):
        b = pgm.GraphBuilder()
        z, x = b.variable("z", states=3, shape=steps), b.layer("x", pgm.Normal(), steps)
        b.conditional(z[0], (), [0.2, 0.3, 0.5], name="start")
        table = [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]] if change == "zero" else None
        moves = np.full((3, 3), 1 / 3) if table is None else table
        b.conditional(z[1:], (z[:-1],), moves, name="moves")
        means = np.array([[-1.0, 0.0], [0.0, 0.2], [1.0, -0.2]])
        b.cause(z, x, means, name="rows")
        if change == "two parents":
            b.cause(z[:-1], x[1:], 0.3 * means, name="before")
        if change == "between children":
            b.cause(x[:-1], x[1:], np.array([[0.5, 0.0], [0.0, 0.0]]), name="chain")
        return b

    return pgm.Template(declare), data


@pytest.mark.parametrize("change", ("zero", "two parents", "given", "weights"))
def test_others_go_the_plain_way(change, monkeypatch):
    template, data = bad(change)
    settings = {"optimizer": pgm.LBFGS(starts=1), "updates": 3, "progress": False}
    if change == "weights":
        settings["sample_weight"] = np.linspace(0.5, 1.5, len(data))
    if change == "given":
        for row in data:
            row["z[0]"] = 1
        settings["given"] = ["z[0]"]
    first = pgm.fit(template, data, **settings)
    monkeypatch.setattr(objective, "chains_of", lambda targets, weights: None)
    second = pgm.fit(template, data, **settings)
    for key, value in second.model.learned.items():
        np.testing.assert_allclose(first.model.learned[key], value, atol=1e-8)


def test_short_rows_may_lack_a_parameter(monkeypatch):
    """A model of one step has no later steps, so that its parameters are others."""

    def declare(steps):
        b = pgm.GraphBuilder()
        z, x = b.variable("z", states=2, shape=steps), b.layer("x", pgm.Normal(), steps)
        b.conditional(z[0], (), [0.4, 0.6], name="start")
        b.conditional(z[1:], (z[:-1],), [[0.8, 0.2], [0.3, 0.7]], name="moves")
        b.cause(z[1:], x[1:], [[-1.0, 0.0], [1.0, 0.3]], name="later")
        b.cause(z[0], x[0], [[-0.5, 0.1], [0.5, 0.0]], name="first")
        return b

    rng = np.random.default_rng(0)
    data = [{"x": rng.normal(size=int(steps))} for steps in rng.integers(1, 5, 60)]
    settings = {"optimizer": pgm.LBFGS(starts=1), "updates": 4, "progress": False}
    together = pgm.fit(pgm.Template(declare), data, **settings)
    monkeypatch.setattr(objective, "chains_of", lambda targets, weights: None)
    apart = pgm.fit(pgm.Template(declare), data, **settings)
    for key, value in apart.model.learned.items():
        np.testing.assert_allclose(together.model.learned[key], value, atol=1e-8)


def test_rows_of_all_lengths_begin_at_their_data_together():
    """A row of one number has no spread of its own, and is learned with the others."""
    template, data = bad("nothing")
    start = template.with_params({"rows": np.zeros((3, 2))})
    data += [{"x": np.array([0.5])}, {"x": np.array([5.5, 5.2, 6.1])}]
    far = [{"x": 1000.0 + 50.0 * row["x"]} for row in data]
    x = np.concatenate([row["x"] for row in far])
    begun = pgm.fit(start, far, updates=0, progress=False)
    expected = np.tile([x.mean(), np.log(x.std())], (3, 1))
    np.testing.assert_allclose(begun.model.learned["rows"], expected, rtol=1e-12)
    pgm.fit(start, far, updates=30, progress=False)


def test_a_bias_that_is_no_shared_number_is_learned(monkeypatch):
    """A layer whose size is not the number of steps has a bias that all lengths share."""

    def declare(steps):
        b = pgm.GraphBuilder()
        z, x = b.variable("z", states=2, shape=steps), b.layer("x", pgm.Normal(), steps)
        y = b.layer("y", pgm.Gaussian(1.0), 1)
        b.conditional(z[0], (), [0.4, 0.6], name="start")
        b.conditional(z[1:], (z[:-1],), [[0.8, 0.2], [0.3, 0.7]], name="moves")
        b.cause(z, x, [[-1.0, 0.0], [1.0, 0.3]], name="rows")
        b.cause(z[0], y[0], 0.7, name="slope")
        return b

    rng = np.random.default_rng(0)
    data = [
        {"x": rng.normal(size=int(steps)), "y": rng.normal(2, 1, 1)}
        for steps in rng.integers(3, 8, 60)
    ]
    settings = {"optimizer": pgm.LBFGS(starts=1), "updates": 4, "progress": False}
    together = pgm.fit(pgm.Template(declare), data, **settings)
    monkeypatch.setattr(objective, "chains_of", lambda targets, weights: None)
    apart = pgm.fit(pgm.Template(declare), data, **settings)
    assert abs(apart.model.learned["y.bias"][0]) > 0.5
    for key, value in apart.model.learned.items():
        np.testing.assert_allclose(together.model.learned[key], value, atol=1e-8)


def test_fixed_rows_stay():
    template, data = bad("nothing")
    mask = np.zeros((3, 3), dtype=bool)
    mask[0, 0] = True
    steps = pgm.Fixed(pgm.LBFGS(starts=1), {"moves": mask})
    f = pgm.fit(template, data, optimizer=steps, updates=5, progress=False)
    moves = np.exp(f.model.learned["moves"])
    np.testing.assert_allclose(moves[0, 0], 1 / 3, rtol=1e-9)
    np.testing.assert_allclose(moves.sum(axis=1), 1, rtol=1e-9)
    assert np.abs(moves - 1 / 3).max() > 0.01


def test_fixed_entries_are_kept_without_chains_as_with_them():
    """Rows of weight 2 go the plain way, and have the same maximum."""
    template, data = bad("nothing")
    mask = np.zeros((3, 3), dtype=bool)
    mask[0, 0] = True
    steps = pgm.Fixed(pgm.LBFGS(starts=1, tolerance=0.0), {"moves": mask})
    settings = {"optimizer": steps, "updates": 5, "progress": False}
    chains, plain = (
        pgm.fit(template, data, sample_weight=weights, **settings)
        for weights in (None, np.full(len(data), 2.0))
    )
    for key, value in chains.model.learned.items():
        np.testing.assert_allclose(plain.model.learned[key], value, atol=1e-8)


def classes(count, rng):
    """A mixture with real, Gaussian and categorical columns, and rows with gaps."""
    b = pgm.GraphBuilder()
    c = b.variable("c", states=3)
    x, g = b.layer("x", pgm.Normal(), 4), b.layer("g", pgm.Gaussian(0.7), 2)
    b.conditional(c, (), rng.dirichlet(np.ones(3)))
    # Two columns share their rows; such a row of data has several of them in one step.
    b.cause(c, x[:2], rng.normal(size=(3, 2)), name="both")
    b.cause(c, x[2:], rng.normal(size=(2, 3, 2)), name="own")
    b.cause(c, g, rng.normal(size=(2, 3, 1)), name="gauss")
    y = [b.variable(f"y{i}", states=2 + i) for i in range(2)]
    for i, one in enumerate(y):
        b.conditional(one, (c,), rng.dirichlet(np.ones(2 + i), 3))
    z = rng.integers(3, size=count)
    data = {"x": rng.normal(z[:, None], 1.0, (count, 4)), "g": rng.normal(size=(count, 2))}
    data |= {f"y{i}": rng.integers(0, 2 + i, count).astype(float) for i in range(2)}
    for column in data.values():
        column[rng.random(column.shape) < 0.3] = NAN
    data["y1"][:] = NAN if rng.random() < 0.2 else data["y1"]
    for column in data.values():
        # A row without any value, and one with a single one.
        column[:2] = NAN
    data["x"][1, 2] = 0.5
    return b.build(), data


@one_test_over("seed", range(8))
def test_rows_with_gaps_of_a_mixture_are_chains_of_one_step(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    model, data = classes(40, rng)
    weights = rng.integers(0, 3, 40).astype(float) if seed % 2 else None
    monkeypatch.setattr(chain_counts, "ENTRIES_AT_ONCE", (1, 2**15)[seed // 2 % 2])
    monkeypatch.setattr(chain_counts, "LEAST_SHARE_OF_STEPS", (0.0, 0.5, 0.8, 2.0)[seed % 4])
    for steps in (pgm.EM(pseudocount=seed % 3, starts=1, tolerance=0.0), pgm.LBFGS(starts=1)):

        def learned(steps=steps):
            settings = {"sample_weight": weights, "updates": 3, "progress": False}
            return pgm.fit(model, data, optimizer=steps, **settings)

        together, used, apart = fits(learned, monkeypatch)
        monkeypatch.setattr(objective, "chains_of", chain_counts.chains_of)
        assert used
        both = [f.history["objective"]["value"][0] for f in (together, apart)]
        if type(steps) is pgm.LBFGS:
            for key, value in apart.params.items():
                np.testing.assert_allclose(together.params[key], value, atol=1e-7)
            np.testing.assert_allclose(*both, rtol=1e-10)
        for name in ("both", "own", "gauss"):
            np.testing.assert_allclose(together.params[name], apart.params[name], atol=1e-7)
