"""Parameters that no row informs keep their numbers, whatever learns the others."""

import numpy as np
import pytest
from counting_oracle import data_of, drawn, informed, key_of, model_of, random_network
from loops import one_test_over

import pgmengine as pgm
from pgmengine.learn.phases.batch import idle_entries

LEARNERS = {
    "EM": pgm.EM(),
    "EM without a prior": pgm.EM(pseudocount=0.0),
    "one start": pgm.EM(pseudocount=0.0, starts=1),
    "three starts": pgm.EM(starts=3),
    "LBFGS": pgm.LBFGS(),
    "three starts of LBFGS": pgm.LBFGS(starts=3),
    "Adam": pgm.Adam(0.05, weight_decay=0.1),
}


def case(seed, holes=0.15, some_alike=True):
    """A random network, rows in which some columns are never observed, and who is informed.

    The states of one latent variable are alike where it has children; others have their own.
    """
    rng = np.random.default_rng(seed)
    cards, parents, tables = random_network(rng, units=7)
    rows = drawn(rng, cards, parents, tables, 30)
    rows[rng.random(rows.shape) < holes] = -1
    latent = rng.choice(7, 3, replace=False)
    rows[:, latent] = -1
    rows[(rows < 0).all(axis=1), min(set(range(7)) - set(latent.tolist()))] = 0
    alike = int(latent[0])
    for unit, mine in enumerate(parents):
        if some_alike and alike in mine:
            tables[unit] = np.repeat(
                tables[unit].mean(axis=mine.index(alike), keepdims=True),
                cards[alike],
                mine.index(alike),
            )
    if some_alike and not parents[alike]:
        tables[alike] = np.full(cards[alike], 1 / cards[alike])
    return cards, parents, tables, rows, informed(parents, rows)


def check_kept(start, fit, keys):
    for key in keys:
        np.testing.assert_array_equal(fit.model.params[key], start.params[key])
    notes = [note for note in fit.notes if note.startswith("kept as given")]
    assert len(notes) == bool(keys) and all(repr(key) in notes[0] for key in keys[:3])


def check_all_learners(seed):
    cards, parents, tables, rows, learns = case(seed)
    start = model_of(cards, parents, tables)
    keys = [key_of(unit, mine) for unit, mine in enumerate(parents) if not learns[unit]]
    for optimizer in LEARNERS.values():
        settings = {"optimizer": optimizer, "updates": 6, "progress": False, "rng": seed}
        check_kept(start, pgm.fit(start, data_of(rows), **settings), keys)


@pytest.mark.parametrize("seed", range(15))
def test_tables_that_no_row_informs_keep_their_bits(seed):
    check_all_learners(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(15, 215))
def test_tables_of_many_networks_keep_their_bits(seed):
    check_all_learners(seed)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("optimizer", [pgm.EM(starts=1), pgm.LBFGS(starts=1)])
def test_the_rest_learns_as_if_nothing_else_were_declared(seed, optimizer, rtol=1e-6):
    """Observed units and their ancestors are a network of their own, with the same objective."""
    cards, parents, tables, rows, learns = case(seed, holes=0.0, some_alike=False)
    kept = np.flatnonzero(learns).tolist()
    fewer = [[kept.index(p) for p in parents[unit]] for unit in kept]
    part = model_of(cards[kept], fewer, [tables[unit] for unit in kept])
    settings = {"optimizer": optimizer, "updates": 5, "progress": False}
    whole = pgm.fit(model_of(cards, parents, tables), data_of(rows), **settings)
    alone = pgm.fit(part, data_of(rows[:, kept]), **settings)
    values = [one.history["objective"]["value"] for one in (whole, alone)]
    np.testing.assert_allclose(values[0][-1], values[1][-1], rtol=rtol)
    for i, unit in enumerate(kept):
        one = whole.model.params[key_of(unit, parents[unit])]
        np.testing.assert_allclose(
            np.exp(one), np.exp(alone.model.params[key_of(i, fewer[i])]), rtol=rtol
        )


def array(rows):
    """Three chains z -> x, each with tables of its own, and a prior that all of them share."""
    b = pgm.GraphBuilder()
    z, x = b.variable("z", states=2, shape=3), b.variable("x", states=2, shape=3)
    b.conditional(z, (), [0.3, 0.7], name="prior")
    b.conditional(x, (z,), np.array(rows), name="shows")
    return b.build()


@one_test_over("name", LEARNERS)
def test_tables_of_an_array_are_judged_one_by_one(name):
    each = [[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.3, 0.7]], [[0.5, 0.5], [0.1, 0.9]]]
    start = array(each)
    x = np.array([[0.0, 1, np.nan], [1, 1, np.nan], [0, 0, np.nan], [1, np.nan, np.nan]])
    settings = {"optimizer": LEARNERS[name], "updates": 4, "progress": False}
    fit = pgm.fit(start, {"x": x}, **settings)
    np.testing.assert_array_equal(fit.model.params["shows"][2], start.params["shows"][2])
    assert not np.array_equal(fit.model.params["shows"][0], start.params["shows"][0])
    # The prior is one parameter, which two of its places inform.
    assert not np.array_equal(fit.model.params["prior"], start.params["prior"])
    assert any("a part of 'shows'" in note for note in fit.notes)


def chain(steps):
    b = pgm.GraphBuilder()
    z, x = b.variable("z", states=2, shape=steps), b.variable("x", states=2, shape=steps)
    y = b.variable("y", states=3, shape=steps)
    b.conditional(z[0], (), [0.4, 0.6], name="start")
    b.conditional(z[1:], (z[:-1],), [[0.8, 0.2], [0.3, 0.7]], name="moves")
    b.conditional(x, (z,), [[0.9, 0.1], [0.2, 0.8]], name="shows")
    b.conditional(y, (z,), [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], name="never seen")
    return b


@one_test_over("optimizer", [pgm.EM(), pgm.EM(starts=3), pgm.LBFGS()])
def test_tables_of_a_template_are_kept_if_rows_of_no_length_inform_them(optimizer):
    rows = [{"x": [0, 1, 1]}, {"x": [1, 0]}, {"x": [None, 1, None]}, {"x": [1]}]
    begin = pgm.Template(chain)
    fit = pgm.fit(begin, rows, optimizer=optimizer, updates=4, progress=False)
    before, after = begin(3).params, fit.model(3).params
    np.testing.assert_array_equal(after["never seen"], before["never seen"])
    for name in ("start", "moves", "shows"):
        assert not np.array_equal(after[name], before[name])
    assert any("'never seen'" in note and "'moves'" not in note for note in fit.notes)
    # A row of another length than the longest sees y.
    seen = [{"x": [0, 1]}, {"x": [1], "y": [2]}]
    learned = pgm.fit(begin, seen, optimizer=optimizer, updates=4, progress=False).model(2).params
    assert not np.array_equal(learned["never seen"], before["never seen"])
    np.testing.assert_array_equal(
        pgm.fit(begin, [{"x": [0]}], optimizer=optimizer, progress=False).model(2).params["moves"],
        before["moves"],
    )


def belief_net(seed=0):
    """h -> v -> w, by arrows; w has no value in any row."""
    rng, b = np.random.default_rng(seed), pgm.GraphBuilder()
    for name, unit, size in (
        ("h", pgm.Binary(), 2),
        ("v", pgm.Binary(), 3),
        ("w", pgm.NoisyOr(), 2),
    ):
        b.layer(name, unit, size, bias=0.1 + rng.random(size) if name != "w" else [0.0, 0.4])
    b.cause("h", "v", rng.standard_normal((2, 3)))
    b.cause("v", "w", rng.random((3, 2)))
    return b.build()


@one_test_over(
    "optimizer",
    [None, pgm.SGD(0.1, weight_decay=0.2), pgm.Averaged(pgm.Adam(0.1, l1=0.1)), pgm.Adam(0.1)],
)
def test_biases_and_arrows_of_barren_units_keep_their_bits(optimizer):
    start, rng = belief_net(), np.random.default_rng(1)
    data = {"v": (rng.random((20, 3)) < 0.6).astype(float)}
    fit = pgm.fit(start, data, optimizer=optimizer, updates=12, progress=False)
    models = [fit.model] + ([fit.averaged] if isinstance(optimizer, pgm.Averaged) else [])
    for model in models:
        # A leak of 0 stays as well, although leaks that learn have a floor.
        for name in ("w.bias", "v->w.weight"):
            np.testing.assert_array_equal(model.params[name], start.params[name])
        for name in ("h.bias", "v.bias", "h->v.weight"):
            assert (np.asarray(model.params[name]) != start.params[name]).all()


def test_rows_of_weight_0_inform_nothing():
    cards, parents, tables, rows, _ = case(3)
    start, weights = model_of(cards, parents, tables), np.ones(len(rows))
    rows = np.where(np.arange(7) == 6, -1, rows)
    rows[0], weights[0] = 0, 0.0
    key = key_of(6, parents[6])
    for one in LEARNERS.values():
        settings = {"optimizer": one, "updates": 3, "progress": False, "sample_weight": weights}
        fit = pgm.fit(start, data_of(rows), **settings)
        np.testing.assert_array_equal(fit.model.params[key], start.params[key])


def test_rows_with_only_given_units_inform_nothing():
    b = pgm.GraphBuilder()
    for name in "abc":
        b.variable(name, states=2)
    b.conditional("a", (), [0.3, 0.7])
    b.conditional("b", ("a",), [[0.8, 0.2], [0.1, 0.9]])
    b.conditional("c", ("b",), [[0.6, 0.4], [0.3, 0.7]])
    start = b.build()
    data = {"a": [0, 1, 1, 0], "b": [0, 1, None, 0], "c": [None, None, None, None]}
    fit = pgm.fit(start, data, given=("a",), progress=False)
    for key in ("a|.table", "c|b.table"):
        np.testing.assert_array_equal(fit.model.params[key], start.params[key])
    assert not np.array_equal(fit.model.params["b|a.table"], start.params["b|a.table"])
    (note,) = [note for note in fit.notes if note.startswith("kept as given")]
    assert "'c|b.table'" in note and "'a|.table'" not in note


@one_test_over("name", LEARNERS)
def test_an_impossible_row_of_weight_0_does_not_matter(name):
    b = pgm.GraphBuilder()
    for variable in "abc":
        b.variable(variable, states=2)
    b.conditional("a", (), [0.3, 0.7])
    b.conditional("b", ("a",), [[1.0, 0.0], [0.2, 0.8]])
    b.conditional("c", ("b",), [[0.5, 0.5], [0.0, 1.0]])
    start = b.build()
    rows = {"a": [0, 1, 1, 0, 0], "b": [0, None, 1, 0, 1], "c": [0, 1, 1, 1, 0]}
    settings = {"optimizer": LEARNERS[name], "updates": 4, "progress": False}
    fit = pgm.fit(start, rows, sample_weight=[1, 1, 1, 1, 0], **settings)
    assert all(np.isfinite(np.exp(value)).all() for value in fit.model.params.values())
    few = pgm.fit(start, {k: v[:4] for k, v in rows.items()}, **settings)
    if not isinstance(LEARNERS[name], pgm.Adam):
        for key, value in few.model.params.items():
            np.testing.assert_allclose(np.exp(fit.model.params[key]), np.exp(value), rtol=1e-9)
    with pytest.raises(pgm.PgmError, match="row 4 has probability zero"):
        pgm.fit(start, rows, sample_weight=[0, 1, 1, 1, 1], **settings)


@pytest.mark.parametrize("optimizer", [pgm.EM(), pgm.LBFGS()])
def test_an_impossible_row_of_weight_0_does_not_matter_in_a_template(optimizer):
    def steps(count):
        b = pgm.GraphBuilder()
        z, x = b.variable("z", states=2, shape=count), b.variable("x", states=2, shape=count)
        b.conditional(z[0], (), [0.4, 0.6], name="start")
        b.conditional(z[1:], (z[:-1],), [[0.8, 0.2], [0.0, 1.0]], name="moves")
        b.conditional(x, (z,), [[0.9, 0.1], [0.0, 1.0]], name="shows")
        return b

    rows = [{"x": [0, 1, 1]}, {"x": [0, 1]}, {"z": [1, 0, 1], "x": [1, 1, 1]}, {"z": [1, 0]}]
    settings = {"optimizer": optimizer, "updates": 4, "progress": False}
    fit = pgm.fit(pgm.Template(steps), rows, sample_weight=[1, 2, 0, 0], **settings)
    few = pgm.fit(pgm.Template(steps), rows[:2], sample_weight=[1, 2], **settings)
    for key, value in few.model(3).params.items():
        np.testing.assert_array_equal(fit.model(3).params[key], value)


def test_biases_that_units_do_not_have_stay_without_given_units():
    b = pgm.GraphBuilder()
    x = b.variable("x", states=2, shape=3)
    b.layer("v", pgm.Binary(), 2)
    b.layer("h", pgm.Binary(), 2)
    b.conditional(x[1:], (x[:-1],), [[0.5, 0.5], [0.2, 0.8]])
    b.conditional(x[0], (), [0.5, 0.5])
    b.couple("v", "h")
    model = b.build()
    found = idle_entries(model.given(), {})
    assert {name: mask.tolist() for name, mask in found.items()} == {"x.bias": [True] * 3}
    given = {"v": np.array([True, True])}
    more = idle_entries(model.given({"v": [[0, 1]]}), given)
    assert more["x.bias"].all() and more["v.bias"].all() and "v-h.weight" not in more
