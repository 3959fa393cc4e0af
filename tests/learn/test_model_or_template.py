"""The same rows have one objective, and one maximum, as a model and as a template."""

import numpy as np
import pytest

import pgmengine as pgm

STEPS = 3
SEEN = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])


def chain(steps):
    """A chain with a table and a Normal child for each step."""
    b = pgm.GraphBuilder()
    z = b.variable("z", states=2, shape=steps)
    y = b.variable("y", states=3, shape=steps)
    x = b.layer("x", pgm.Normal(), steps)
    b.conditional(z[0], (), [0.4, 0.6], name="start")
    b.conditional(z[1:], (z[:-1],), [[0.8, 0.2], [0.3, 0.7]], name="moves")
    b.conditional(y, (z,), SEEN, name="seen")
    b.cause(z, x, [[-1.0, 0.0], [1.0, 0.2]], name="rows")
    return b


def tables(steps):
    """The chain without the Normal children, which EM learns."""
    b = pgm.GraphBuilder()
    z = b.variable("z", states=2, shape=steps)
    y = b.variable("y", states=3, shape=steps)
    b.conditional(z[0], (), [0.4, 0.6], name="start")
    b.conditional(z[1:], (z[:-1],), [[0.8, 0.2], [0.3, 0.7]], name="moves")
    b.conditional(y, (z,), SEEN, name="seen")
    return b


def field(steps):
    """A chain of factors, observed as a whole but for gaps."""
    b = pgm.GraphBuilder()
    y = b.variable("y", states=3, shape=steps)
    b.table((y,), [1.0, 0.8, 0.5], name="own")
    b.table((y[1:], y[:-1]), np.exp(np.eye(3)), name="pairs")
    return b


LEARNERS = {
    "EM": (tables, pgm.EM(pseudocount=0.0, starts=1, tolerance=1e-12)),
    "EM with a prior": (tables, pgm.EM(pseudocount=2.0, starts=1, tolerance=1e-12)),
    "EM with tables": (tables, pgm.EM({"moves": np.full((2, 2), 3.0)}, starts=1, tolerance=1e-12)),
    "LBFGS": (chain, pgm.LBFGS(starts=1, tolerance=1e-7)),
    "l2": (chain, pgm.LBFGS(l2=0.3, starts=1, tolerance=1e-7)),
    "l1": (chain, pgm.LBFGS(l1=0.1, starts=1, tolerance=1e-7)),
    "l2 of factors": (field, pgm.LBFGS(l2=0.3, starts=1, tolerance=1e-7)),
    "l1 of factors": (field, pgm.LBFGS(l1=0.05, starts=1, tolerance=1e-7)),
}
ROWS = {
    "gaps": {"gaps": 0.2},
    "blank rows": {"blank": 20},
    "blank rows and weights": {"blank": 20, "weighed": True},
    "weights": {"gaps": 0.2, "weighed": True},
    "one step": {"steps": 1},
    "one step, blank rows": {"steps": 1, "blank": 20},
}


def data_of(names, kind, rng, count=60):
    """Rows of as many steps as columns name -> (rows, steps), NaN where missing; and weights."""
    how = {"gaps": 0.0, "blank": 0, "weighed": False, "steps": STEPS} | ROWS[kind]
    shape = count, how["steps"]
    y = rng.choice(3, shape, p=[0.5, 0.2, 0.3])
    columns = {"y": y.astype(float), "x": rng.normal(y - 1.0, 0.7)}
    gaps = rng.random(shape) < how["gaps"]
    gaps[rng.permutation(count)[: how["blank"]]] = True
    weights = rng.integers(0, 3, count).astype(float) if how["weighed"] else None
    return {name: np.where(gaps, np.nan, columns[name]) for name in names}, weights


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_model_and_a_template_learn_the_same(learner, kind):
    declare, optimizer = LEARNERS[learner]
    names = [name for name in "xy" if name in declare(2).build().structure.layers]
    data, weights = data_of(names, kind, np.random.default_rng(0))
    steps = data[names[0]].shape[1]
    settings = {"optimizer": optimizer, "sample_weight": weights, "progress": False}
    rows = [{name: data[name][i] for name in names} for i in range(len(data[names[0]]))]
    template = pgm.fit(pgm.Template(declare), rows, updates=3000, **settings)
    if learner == "EM with tables" and steps == 1:
        # The model of one step has no such table, of which a template of short rows knows.
        settings["optimizer"] = pgm.EM(0.0, starts=1, tolerance=1e-12)
    model = pgm.fit(declare(steps).build(), data, updates=3000, **settings)
    ends = [f.history["objective"]["value"][-1] for f in (model, template)]
    np.testing.assert_allclose(*ends, rtol=1e-7)
    for key, value in model.params.items():
        if key in template.params:
            scale = (
                np.exp if declare is not field and key in ("start", "moves", "seen") else np.array
            )
            np.testing.assert_allclose(scale(template.params[key]), scale(value), atol=2e-4)


@pytest.mark.few(2)
@pytest.mark.parametrize("weighed", (False, True))
@pytest.mark.parametrize("learner", [name for name in LEARNERS if "factors" not in name])
def test_rows_of_mixed_lengths_are_rows_with_barren_tails(learner, weighed):
    """The steps after the end of a row add nothing to a directed model."""
    declare, optimizer = LEARNERS[learner]
    rng = np.random.default_rng(1)
    names = [name for name in "xy" if name in declare(2).build().structure.layers]
    data, weights = data_of(names, "weights" if weighed else "blank rows", rng)
    steps = rng.integers(1, STEPS + 1, len(data["y"]))
    for name in names:
        data[name][np.arange(STEPS) >= steps[:, None]] = np.nan
    rows = [{name: data[name][i, :n] for name in names} for i, n in enumerate(steps)]
    settings = {"optimizer": optimizer, "sample_weight": weights, "progress": False}
    template = pgm.fit(pgm.Template(declare), rows, updates=3000, **settings)
    model = pgm.fit(declare(STEPS).build(), data, updates=3000, **settings)
    ends = [f.history["objective"]["value"][-1] for f in (model, template)]
    np.testing.assert_allclose(*ends, rtol=1e-6)


def test_parameters_that_no_row_has_stay_and_are_named():
    rows = [{"y": [k]} for k in (0, 1, 2, 2, 0)]
    steps = pgm.Fixed(pgm.EM({"moves": np.full((2, 2), 9.0), "seen": np.ones((2, 3))}), ["moves"])
    for optimizer in (steps, steps.optimizer, pgm.LBFGS()):
        f = pgm.fit(pgm.Template(tables), rows, optimizer=optimizer, progress=False)
        np.testing.assert_allclose(f.model(2).params["moves"], tables(2).build().params["moves"])
        assert any("'moves' stay as declared" in note for note in f.notes)
    for wrong in ({"move": np.ones((2, 2))}, {"moves": np.ones((3, 2))}):
        with pytest.raises(pgm.PgmError, match="pseudocount"):
            pgm.fit(pgm.Template(tables), rows, optimizer=pgm.EM(wrong), progress=False)
