"""Learning of tables: impossible entries stay impossible, conditionals stay normalised."""

import numpy as np
import pytest
from extras import extra
from registry import FEW_CHAINS, OPTIMIZERS, every

import pgmengine as pgm
from pgmengine.base.numerics import log_sum
from pgmengine.evidence.given import make_target


def tables_and_a_conditional(seed=0):
    """Three variables in two tables with an impossible entry, a coupling, and a conditional."""
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    b.variable("a", states=3)
    b.variable("b", states=("no", "yes"))
    b.variable("c")
    b.variable("d")
    one = rng.random((3, 2)) + 0.5
    one[0, 1] = 0.0
    b.table(("a", "b"), one)
    b.table(("b", "c"), rng.random((2, 2)) + 0.5)
    b.conditional("d", ("c",), [[0.25, 0.75], [0.0, 1.0]])
    b.couple("b", "c")
    return b.build(rng=0)


def drawn(model, rows=400, seed=1):
    """Return draws of the model, a column for each unit."""
    extra("pandas")
    found = pgm.infer(model, want=("samples",), method=pgm.Exact(draws=rows), rng=seed)
    return found.samples_frame()


def learned(model, data, **settings):
    return pgm.fit(model, data, **{"updates": 40, "progress": False, "rng": 0, **settings})


def check_possible(model, start):
    """The impossible entries are those of the start, nothing is NaN, rows sum to one."""
    for t in model.structure.tables:
        logs = model.params[t.key]
        np.testing.assert_array_equal(np.isneginf(logs), np.isneginf(start.params[t.key]))
        assert not np.isnan(logs).any()
        if t.conditional:
            np.testing.assert_allclose(log_sum(logs), 0.0, atol=1e-12)


STEPS = [
    pgm.SGD(0.1),
    pgm.SGD(0.1, momentum=0.9, weight_decay=0.1, l1=0.01),
    pgm.Adam(0.05, weight_decay=0.1),
    pgm.AdaMax(0.05),
    pgm.Centered(pgm.SGD(0.05, momentum=0.5)),
    pgm.Averaged(pgm.Adam(0.05), follow=0.1),
    pgm.Scaled(pgm.SGD(0.1)),
]
# Parameters that are fixed have names; they are tested in test_em.py.
every([o for name, o in OPTIMIZERS.items() if name != "Fixed"], STEPS)


@pytest.mark.parametrize("negative", FEW_CHAINS.values(), ids=repr)
@pytest.mark.parametrize("optimizer", STEPS, ids=repr)
def test_impossible_entries_stay_impossible(negative, optimizer):
    model = tables_and_a_conditional()
    found = learned(model, drawn(model), negative=negative, optimizer=optimizer)
    check_possible(found.model, model)
    assert any(
        (found.model.params[t.key] != model.params[t.key]).any() for t in model.structure.tables
    )
    if isinstance(optimizer, pgm.Averaged):
        check_possible(found.averaged, model)


def test_a_fit_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path):
    model = tables_and_a_conditional()
    data = drawn(model)
    settings = {"optimizer": pgm.Averaged(pgm.Adam(0.05)), "negative": pgm.PCD(chains=20)}
    whole = learned(model, data, **settings)
    learned(model, data, **settings, updates=15, checkpoint=tmp_path / "c")
    two = learned(model, data, **settings, checkpoint=tmp_path / "c")
    for name, value in whole.model.params.items():
        np.testing.assert_array_equal(value, two.model.params[name])
    check_possible(two.averaged, model)


def test_a_checkpoint_of_other_units_is_refused(tmp_path):
    """Two models that differ in the units of their tables only."""

    def lattice(index):
        b = pgm.GraphBuilder()
        b.layer("x", pgm.Binary(), 4)
        b.tables(("x", "x"), index, np.ones((2, 2)))
        return b.build()

    x = {"x": np.zeros((4, 4))}
    learned(lattice([[0, 1], [2, 3]]), x, updates=2, checkpoint=tmp_path / "c")
    with pytest.raises(pgm.PgmError, match="another fit, which differs in parameters"):
        learned(lattice([[0, 2], [1, 3]]), x, updates=3, checkpoint=tmp_path / "c")


def test_conditionals_learn_the_frequencies_of_the_data(rows=2000, seed=3, atol=1e-3):
    """The maximum of the likelihood of complete data is known: conditional frequencies."""
    rng = np.random.default_rng(seed)
    a = rng.random(rows) < 0.3
    b_given = np.where(a, 0.8, 0.4) > rng.random(rows)
    b = pgm.GraphBuilder()
    b.variable("a")
    b.variable("b")
    b.conditional("a", (), [0.5, 0.5])
    b.conditional("b", ("a",), [[0.5, 0.5], [0.5, 0.5]])
    model = b.build()
    data = {"a": a.astype(float), "b": b_given.astype(float)}
    found = learned(model, data, optimizer=pgm.SGD(0.5), updates=500, batch_size=rows).model
    truth = [[np.mean(b_given[a == k] == j) for j in (0, 1)] for k in (0, 1)]
    np.testing.assert_allclose(np.exp(found.params["b|a.table"]), truth, atol=atol)
    np.testing.assert_allclose(
        np.exp(found.params["a|.table"]), [1 - a.mean(), a.mean()], atol=atol
    )


def test_pcd_reaches_the_likelihood_of_exact_gradients(rows=1000, limit=0.02):
    """Mean log-likelihoods; the noise of 500 chains at small rates is far below the limit."""
    model = tables_and_a_conditional()
    data = drawn(model, rows)
    rng = np.random.default_rng(2)
    params = {
        t.key: np.where(
            np.isneginf(model.params[t.key]), -np.inf, rng.normal(0, 1, model.params[t.key].shape)
        )
        for t in model.structure.tables
    }
    start = model.with_params(params)

    def score(m):
        return pgm.infer(m, data, want=("log_prob",)).log_prob.mean()

    settings = {"batch_size": rows, "updates": 400}
    exact = learned(
        start, data, **settings, optimizer=pgm.SGD(0.5), negative=pgm.ExactGradient()
    ).model
    rate = pgm.linear_decay(0.3, 400)
    persistent = learned(
        start, data, **settings, optimizer=pgm.SGD(rate), negative=pgm.PCD(chains=500)
    ).model
    assert score(exact) >= score(model) - 1e-9
    assert score(start) < score(exact) - 5 * limit
    assert abs(score(persistent) - score(exact)) < limit


def test_given_tables_are_not_learned():
    """Tables over given layers alone have the gradient 0."""
    model = tables_and_a_conditional()
    found = learned(model, drawn(model), given=("b", "c"), negative=pgm.ExactGradient()).model
    key = "b,c.table"
    np.testing.assert_array_equal(found.params[key], model.params[key])


def test_starts_at_base_rates_leave_units_with_a_conditional():
    model = tables_and_a_conditional()
    found = pgm.base_rate_start(model, drawn(model))
    assert (found.params[f"{model.structure.names.unique['d'][0]}.bias"] == 0).any()
    pgm.infer(found)


def test_barren_conditionals_add_no_noise():
    """Without evidence the scores of a Bayesian network are 0 in every draw, not on average."""
    b = pgm.GraphBuilder()
    for name in "abc":
        b.variable(name)
    b.conditional("a", (), [0.3, 0.7])
    b.conditional("b", ("a",), [[0.2, 0.8], [0.9, 0.1]])
    b.conditional("c", ("b",), [[0.5, 0.5], [0.4, 0.6]])
    model = b.build(rng=0)
    for observed, scored in (("", set()), ("b", {"a", "b"}), ("ac", {"a", "b", "c"})):
        target = make_target(model, {name: 0 for name in observed})
        states = pgm.infer(model, want=("samples",), rng=1).samples
        found = target.gradient(target.clamp({n: x[:1, 0] for n, x in states.items()}))
        assert {key[0] for key, score in found.items() if np.any(score)} == scored, observed


@pytest.mark.parametrize("hidden", [False, True])
def test_rows_that_a_table_forbids_are_refused(hidden):
    b = pgm.GraphBuilder()
    b.variable("a")
    b.variable("c")
    b.table(("a", "c"), [[1.0, 0.0], [0.0, 1.0]])
    if hidden:
        b.variable("h")
        b.conditional("h", ("a",), [[0.5, 0.5], [0.2, 0.8]])
    data = {"a": [0, 1, 1, 1], "c": [0, 1, np.nan, 0]}
    with pytest.raises(pgm.PgmError, match="row 3 has probability zero: the table of a, c is 0"):
        pgm.fit(b.build(), data, epochs=1)
