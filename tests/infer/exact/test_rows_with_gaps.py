"""Rows of any gaps share a tree: their answers are those of rows alone, each on its own tree.

Models mix hidden classes, categorical children, real children whose spread is learned or declared,
gates, and inner variables that some rows observe.
"""

import numpy as np
import pytest
from comparisons import close_answers

import pgmengine as pgm
from pgmengine.infer.exact import planning
from pgmengine.learn.full_batch.counting import CountingModel

METHOD = pgm.Elimination()


def random_model(rng):
    """Return a model with hidden classes, and the numbers of states of its variables."""
    b, states = pgm.GraphBuilder(), {}
    for i in range(int(rng.integers(1, 4))):
        above = [name for name in states if rng.random() < 0.5]
        declare(b, rng, states, f"z{i}", above)
    hidden = list(states)
    for i in range(int(rng.integers(1, 5))):
        above = [name for name in states if rng.random() < 0.4][:3] or hidden[:1]
        declare(b, rng, states, f"c{i}", above)
    if rng.random() < 0.3:
        for name in ("e0", "e1", "e2"):
            b.variable(name, states=2)
            b.conditional(name, (), rng.dirichlet([1, 1]))
        b.variable("g", states=2)
        b.conditional("g", ("e0", "e1", "e2"), pgm.noisy_or(rng.random(3), leak=0.1))
        states |= {"e0": 2, "e1": 2, "e2": 2, "g": 2}
    for name, unit in (("x", pgm.Normal()), ("y", pgm.Gaussian())):
        if rng.random() < 0.8:
            size = int(rng.integers(1, 4))
            layer = b.layer(name, unit, size)
            for parent in rng.permutation(hidden)[: int(rng.integers(1, 3))]:
                weight = 0.7 * rng.normal(size=(size, states[parent], unit.width))
                b.cause(str(parent), layer, weight, name=f"{parent}.{name}")
    return b.build(), states


def declare(b, rng, states, name, above):
    """Declare a variable with a random table, of which some entries are 0."""
    states[name] = int(rng.integers(2, 4))
    b.variable(name, states=states[name])
    table = rng.dirichlet(np.ones(states[name]), [states[a] for a in above])
    table = np.where(rng.random(table.shape) < 0.15, 0.0, table)
    table[..., 0] += 1e-3
    if rng.random() < 0.3:
        # A state that no row can have lies before others.
        table[..., 1] = 0.0
    b.conditional(name, tuple(above), table / table.sum(axis=-1, keepdims=True))


def rows_with_gaps(model, rng, rows):
    """Return draws of the model with gaps: few, many, some columns whole, some rows empty."""
    drawn = pgm.infer(
        model, want=("samples",), method=pgm.Exact(draws=rows), rng=int(rng.integers(99))
    )
    out = {}
    for name, layer in model.structure.layers.items():
        x = np.array(drawn.samples[name], dtype=float).reshape(rows, layer.size, -1)
        if layer.unit.width > 1:
            x = x if not layer.unit.one_hot else x.argmax(axis=-1)[..., None].astype(float)
        x = x[..., 0]
        share = rng.choice([0.0, 0.2, 0.5, 0.9, 1.0], size=layer.size)
        x[rng.random(x.shape) < share] = np.nan
        x[rng.random(rows) < 0.05] = np.nan
        out[name] = x
    return out


def plainly(monkeypatch):
    """Give every evidence pattern a tree of its own, on which no unit is left out."""
    monkeypatch.setattr(planning, "can_share", lambda *_: False)
    monkeypatch.setattr(planning, "leaving", lambda *_: {})


WANTS = (
    ("log_z",),
    ("log_prob",),
    ("marginals",),
    ("marginals", "log_prob", "gradient"),
    ("gradient",),
    ("pairs",),
    ("mode",),
)


@pytest.mark.parametrize("seed", range(60))
def test_rows_together_have_the_answers_of_rows_alone(seed):
    rng = np.random.default_rng(seed)
    model, _ = random_model(rng)
    rows = int(rng.choice([1, 5, 40]))
    evidence = rows_with_gaps(model, rng, rows)
    order = rng.permutation(rows)
    with pytest.MonkeyPatch.context() as patch:
        plainly(patch)
        right = {want: asked(model, evidence, want) for want in WANTS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "MAX_LANE_ENTRIES", rng.choice([0, 2**12]))
        # States that are impossible in all rows leave small trees, too.
        patch.setattr(planning, "MIN_ENTRIES_TO_REDUCE", rng.choice([0, 2**16]))
        for want, expected in right.items():
            close_answers(asked(model, evidence, want), expected)
            mixed = {name: x[order] for name, x in evidence.items()}
            close_answers(asked(model, mixed, want), permuted(expected, order))


def asked(model, evidence, want):
    """Return the answers about rows; a fresh model remembers no plan."""
    return dict(pgm.infer(model.with_params({}), evidence, want=want, method=METHOD).answers)


def permuted(answers, order):
    """Return answers in another order of rows; a gradient is a sum over them."""
    return {
        what: value
        if what == "gradient"
        else {n: v[order] for n, v in value.items()}
        if isinstance(value, dict)
        else value[order]
        for what, value in answers.items()
    }


@pytest.mark.parametrize("seed", range(30))
def test_counts_are_sums_over_rows_alone(seed):
    """What a row adds to the counts does not depend on the other rows."""
    rng = np.random.default_rng(1000 + seed)
    model, _ = random_model(rng)
    evidence = rows_with_gaps(model, rng, 12)
    counting = CountingModel(model.structure, model.params)
    total = asked(counting, evidence, ("gradient",))["gradient"]
    for name, value in total.items():
        alone = [
            asked(counting, {n: x[[i]] for n, x in evidence.items()}, ("gradient",))["gradient"][
                name
            ]
            for i in range(12)
        ]
        np.testing.assert_allclose(value, sum(alone), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_draws_of_absent_children_have_their_means(seed, *, draws=4000):
    rng = np.random.default_rng(2000 + seed)
    model, _ = random_model(rng)
    evidence = rows_with_gaps(model, rng, 6)
    method = pgm.Elimination(draws=draws)
    r = pgm.infer(model, evidence, ("marginals", "samples"), method=method, rng=seed)
    for name, layer in model.structure.layers.items():
        if layer.unit.support is None:
            x = np.asarray(r.samples[name]).reshape(draws, -1)
            error = x.std(axis=0) / np.sqrt(draws)
            far = np.abs(x.mean(axis=0) - np.asarray(r.mean[name]).ravel())
            # A false alarm has probability 1e-9 a number.
            assert (far <= 6.2 * error + 1e-9).all(), name
