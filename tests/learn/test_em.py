"""EM against an EM by enumeration in plain numpy, and its behaviour as an optimizer of fit."""

import numpy as np
import pytest
from counting_oracle import (
    data_of,
    drawn,
    expected,
    informed,
    key_of,
    left_out,
    maximised,
    model_of,
    random_network,
)
from loops import in_blocks, one_test_over

import pgmengine as pgm


def tables_of(model, parents):
    return [np.exp(model.params[key_of(unit, mine)]) for unit, mine in enumerate(parents)]


def fitted(model, rows, **settings):
    return pgm.fit(model, data_of(rows), **{"progress": False, **settings})


def with_holes(rng, rows, share=0.3, latent=True):
    """Rows with cells left out at random, and the first unit in all of them; none is empty."""
    holes = rng.random(rows.shape) < share
    holes[:, 0] |= latent
    holes[holes.all(axis=1), -1] = False
    return np.where(holes, -1, rows)


def log_prior(tables, added):
    return sum(added * np.log(t[t > 0]).sum() for t in tables)


@one_test_over("seed", range(12))
def test_complete_data_are_counted_at_once(seed, rtol=1e-12):
    rng = np.random.default_rng(seed)
    cards, parents, tables = random_network(rng, units=5)
    rows = drawn(rng, cards, parents, tables, 60)
    weights = rng.integers(0, 4, 60).astype(float)
    start = [np.ones(t.shape) / t.shape[-1] for t in tables]
    fit = fitted(model_of(cards, parents, start), rows, sample_weight=weights)
    assert type(fit.optimizer) is pgm.EM
    assert fit.state["update"] == 1
    assert "complete" in fit.stopped
    _, counts = expected(cards, parents, start, rows, weights)
    best = maximised(start, counts, 1.0)
    for one, two in zip(tables_of(fit.model, parents), best, strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol)
    value, _ = expected(cards, parents, best, rows, weights)
    objective = (value + log_prior(best, 1.0)) / weights.sum()
    np.testing.assert_allclose(fit.history["objective"]["value"], [objective], rtol=rtol)


@in_blocks("seed", 200, 20)
def test_each_iteration_is_that_of_an_enumeration(seed, updates=4, rtol=1e-9):
    """Random networks with missing cells and latent variables, with and without pseudocounts."""
    rng = np.random.default_rng(seed)
    added = [0.0, 1.0, 0.3][seed % 3]
    cards, parents, tables = random_network(rng)
    rows = with_holes(rng, drawn(rng, cards, parents, tables, 25), latent=bool(seed % 2))
    weights = rng.integers(1, 4, len(rows)).astype(float)
    start = model_of(cards, parents, tables)
    steps = pgm.EM(pseudocount=added, tolerance=0.0, starts=1)
    fit = fitted(start, rows, optimizer=steps, updates=updates, sample_weight=weights)
    own, values, learn, whole = tables, [], informed(parents, rows), left_out(start, rows, weights)
    for _ in range(fit.state["update"]):
        own = maximised(own, expected(cards, parents, own, rows, weights, whole)[1], added, learn)
        value, _ = expected(cards, parents, own, rows, weights)
        prior = log_prior([t for t, learns in zip(own, learn, strict=True) if learns], added)
        values.append((value + prior) / weights.sum())
    for one, two in zip(tables_of(fit.model, parents), own, strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=1e-12)
    found = fit.history["objective"]["value"]
    np.testing.assert_allclose(found, values, rtol=rtol)
    assert (np.diff(found) >= -1e-10).all()


@one_test_over("seed", range(6))
def test_families_of_barren_units_do_not_move_the_optimum(seed, atol=1e-5):
    rng = np.random.default_rng(seed)
    cards, parents, tables = random_network(rng)
    rows = with_holes(rng, drawn(rng, cards, parents, tables, 40), latent=False)
    steps = pgm.EM(pseudocount=0.5, tolerance=1e-13)
    fit = fitted(model_of(cards, parents, tables), rows, optimizer=steps, updates=3000)
    own = tables_of(fit.model, parents)
    for whole in ([True] * len(rows), [False] * len(rows)):
        counts = expected(cards, parents, own, rows, np.ones(len(rows)), whole)[1]
        for one, two in zip(maximised(own, counts, 0.5), own, strict=True):
            np.testing.assert_allclose(one, two, atol=atol)


@one_test_over("seed", range(5))
def test_fixed_entries_stay_and_the_others_share_the_rest(seed, atol=1e-12):
    rng = np.random.default_rng(seed)
    cards, parents, tables = random_network(rng)
    rows = with_holes(rng, drawn(rng, cards, parents, tables, 30))
    start = model_of(cards, parents, tables)
    masks = {key: rng.random(v.shape) < 0.4 for key, v in start.params.items() if "|" in key}
    fit = fitted(
        start, rows, optimizer=pgm.Fixed(pgm.EM(tolerance=0.0, starts=1), masks), updates=8
    )
    for key, mask in masks.items():
        before, after = np.exp(start.params[key]), np.exp(fit.model.params[key])
        np.testing.assert_allclose(after[mask], before[mask], atol=atol)
        np.testing.assert_allclose(after.sum(axis=-1), 1.0, atol=atol)
    # In rows with two entries that are not fixed, these are in the ratio of their counts.
    own, all_rows = tables_of(fit.model, parents), np.ones(len(rows))
    assert (np.diff(fit.history["objective"]["value"]) >= -1e-10).all()
    long = fitted(fit.model, rows, optimizer=pgm.Fixed(pgm.EM(tolerance=1e-14, starts=1), masks))
    own = tables_of(long.model, parents)
    counts = expected(cards, parents, own, rows, all_rows, left_out(start, rows, all_rows))[1]
    for unit, mine in enumerate(parents):
        mask, heavy = masks[key_of(unit, mine)], counts[unit] + 1.0
        mask = mask | ~informed(parents, rows)[unit]
        free = np.where(mask, 0.0, own[unit]).sum(axis=-1, keepdims=True)
        total = np.where(mask, 0.0, heavy).sum(axis=-1, keepdims=True)
        best = np.where(mask, own[unit], free * heavy / np.where(total > 0, total, 1.0))
        np.testing.assert_allclose(own[unit], best, atol=1e-5)


@pytest.mark.parametrize("optimizer", [pgm.SGD(0.2, momentum=0.5), pgm.Adam(0.05)], ids=repr)
def test_fixed_entries_stay_in_mini_batches(optimizer):
    rng = np.random.default_rng(0)
    cards, parents, tables = random_network(rng)
    rows = drawn(rng, cards, parents, tables, 30)
    start = model_of(cards, parents, tables)
    mask = rng.random(tables[-1].shape) < 0.5
    keys = [key_of(0, parents[0]), key_of(3, parents[3])]
    fixed = pgm.Fixed(optimizer, {keys[0]: np.ones(tables[0].shape, dtype=bool), keys[1]: mask})
    fit = fitted(start, rows, optimizer=fixed, updates=20, batch_size=10)
    np.testing.assert_array_equal(fit.model.params[keys[0]], start.params[keys[0]])
    before, after = (np.exp(m.params[keys[1]]) for m in (start, fit.model))
    np.testing.assert_allclose(after[mask], before[mask], rtol=1e-12)
    np.testing.assert_allclose(after.sum(axis=-1), 1.0, rtol=1e-12)
    assert not np.allclose(after, before)


def test_fixed_weights_of_an_rbm_stay():
    x = pgm.datasets.bars_and_stripes().x_train
    start = pgm.rbm(16, 4, rng=0)
    mask = np.random.default_rng(0).random((16, 4)) < 0.5
    steps = pgm.Fixed(pgm.SGD(0.1, weight_decay=0.1), {"v-h.weight": mask})
    fit = pgm.fit(start, {"v": x}, optimizer=steps, updates=10, progress=False)
    one, two = start.params["v-h.weight"], fit.model.params["v-h.weight"]
    np.testing.assert_array_equal(one[mask], two[mask])
    assert (one[~mask] != two[~mask]).all()


def latent_class(table):
    b = pgm.GraphBuilder()
    b.variable("class", states=("a", "b"))
    b.conditional("class", (), [0.5, 0.5])
    for name in "xyz":
        b.variable(name, states=("no", "yes"))
        b.conditional(name, ("class",), table)
    return b.build()


def mixed_rows(count=300, seed=0):
    rng = np.random.default_rng(seed)
    on = rng.random((count, 3)) < np.where(rng.random((count, 1)) < 0.5, 0.9, 0.1)
    return {n: np.where(on[:, i], "yes", "no") for i, n in enumerate("xyz")}


def test_a_symmetric_start_is_left_by_random_starts(least=0.1):
    uniform, data = latent_class([[0.5, 0.5], [0.5, 0.5]]), mixed_rows()
    stuck = pgm.fit(uniform, data, optimizer=pgm.Fixed(pgm.EM(), ["class|.table"]), progress=False)
    fit = pgm.fit(uniform, data, optimizer=pgm.EM(), progress=False)
    assert any("exchangeable" in note for note in fit.notes)
    assert any("exchangeable" in note for note in stuck.notes)
    independent = pgm.fit(latent_class([[0.4, 0.6], [0.4, 0.6]]), data, updates=0, progress=False)
    gain = pgm.ExactLogLikelihood(data, every=1)
    of = [gain(f.model, 0)["log_likelihood"] for f in (independent, fit)]
    assert of[1] - of[0] > least
    again = pgm.fit(uniform, data, optimizer=pgm.EM(), progress=False)
    np.testing.assert_array_equal(
        fit.model.params["x|class.table"], again.model.params["x|class.table"]
    )


def test_a_start_that_tells_the_states_apart_is_kept():
    fit = pgm.fit(latent_class([[0.6, 0.4], [0.4, 0.6]]), mixed_rows(), progress=False)
    assert not any("start" in note for note in fit.notes)
    assert np.exp(fit.model.params["x|class.table"])[0, 0] > 0.8


def test_several_starts_keep_the_given_one_among_them():
    steps = pgm.EM(starts=3)
    fit = pgm.fit(
        latent_class([[0.6, 0.4], [0.4, 0.6]]), mixed_rows(), optimizer=steps, progress=False
    )
    assert any("best of 3 starts" in note for note in fit.notes)


def test_the_better_half_of_the_starts_goes_on_until_one_is_left():
    from pgmengine.learn.starting.random_starts import _best

    made = []

    def update(model, moments):
        made.append(model[0])
        moments["updates"] += 1
        return (*model, "+")

    starts = [((start,), {"updates": 0}) for start in range(12)]
    value, never = lambda model: float(model[0] % 7), lambda: False
    (best, moments), updates, count = _best(starts, update, value, never)
    # Twelve, six and three starts make 5, 10 and 20 updates each.
    assert best[0] % 7 == 6 and len(best) == 1 + updates and updates == 5 + 10 + 20
    assert len(made) == count == 12 * 5 + 6 * 10 + 3 * 20 and moments == {"updates": updates}


def test_hidden_markov_models_that_begin_with_equal_numbers_find_their_states(short=0.05):
    """On other data one fit of twelve misses the best, so that of three, two do not."""
    rng, states, steps = np.random.default_rng(3), 3, 40
    moves, shows = (np.full((states, n), 0.2 / (n - 1)) for n in (states, states + 1))
    np.fill_diagonal(moves, 0.8)
    np.fill_diagonal(shows, 0.8)
    rows = []
    for _ in range(60):
        z = [int(rng.integers(states))]
        for _ in range(steps - 1):
            z.append(int(rng.choice(states, p=moves[z[-1]])))
        rows.append({"x": np.array([rng.choice(states + 1, p=shows[i]) for i in z])})

    def template(transitions, emissions):
        def hmm(n):
            b = pgm.GraphBuilder()
            z, x = (
                b.variable(k, states=len(t.T), shape=n)
                for k, t in zip("zx", (transitions, emissions))
            )
            b.conditional(z[0], (), np.full(states, 1 / states), name="start")
            b.conditional(z[1:], (z[:-1],), transitions, name="moves")
            b.conditional(x, (z,), emissions, name="shows")
            return b

        return pgm.Template(hmm)

    def objective(start, seed):
        return pgm.fit(start, rows, rng=seed, progress=False).history["objective"]["value"][-1]

    best = objective(template(moves, shows), 0)
    equal = template(np.full_like(moves, 1 / states), np.full_like(shows, 1 / (states + 1)))
    found = sorted(objective(equal, seed) for seed in range(3))
    assert found[1] > best - short and found[2] < best + 1.0


def test_variables_that_no_row_observes_are_named():
    b = pgm.GraphBuilder()
    for name in ("rain", "wet", "cold"):
        b.variable(name, states=("no", "yes"))
        b.conditional(name, (), [0.5, 0.5])
    rows = {"rain": ["no", None], "wet": ["yes", "no"]}
    fit = pgm.fit(b.build(), rows, progress=False)
    assert [note for note in fit.notes if note.startswith("hidden")] == [
        "hidden, because no row of the data has a value: cold"
    ]
    whole = pgm.fit(b.build(), rows | {"cold": [None, "no"]}, progress=False)
    assert not any("hidden" in note for note in whole.notes)


def two_variables(table=((0.5, 0.5), (1.0, 0.0))):
    b = pgm.GraphBuilder()
    b.variable("a", states=("no", "yes"))
    b.variable("b", states=("no", "yes"))
    b.conditional("a", (), [0.5, 0.5])
    b.conditional("b", ("a",), table)
    return b.build()


def test_impossible_entries_stay_unless_an_array_of_pseudocounts_opens_them():
    data = {"a": ["no", "yes"], "b": ["no", "no"]}
    fit = pgm.fit(two_variables(), data, progress=False)
    np.testing.assert_allclose(np.exp(fit.model.params["b|a.table"]), [[2 / 3, 1 / 3], [1.0, 0.0]])
    steps = pgm.EM(pseudocount={"b|a.table": [[0, 1], [0, 1]]})
    fit = pgm.fit(two_variables(), data, optimizer=steps, progress=False)
    np.testing.assert_allclose(np.exp(fit.model.params["b|a.table"]), [[0.5, 0.5], [0.5, 0.5]])
    # Parameters that the pseudocounts do not name have none.
    np.testing.assert_allclose(np.exp(fit.model.params["a|.table"]), [0.5, 0.5])


def test_rows_without_data_keep_their_probabilities_and_the_fit_says_so():
    data = {"a": ["yes", "yes"], "b": ["no", "yes"]}
    start = two_variables([[0.3, 0.7], [0.9, 0.1]])
    fit = pgm.fit(start, data, optimizer=pgm.EM(pseudocount=0), progress=False)
    np.testing.assert_allclose(np.exp(fit.model.params["b|a.table"]), [[0.3, 0.7], [0.5, 0.5]])
    assert any("1 rows of 'b|a.table' have no data" in note for note in fit.notes)
    assert not any("no data" in n for n in pgm.fit(start, data, progress=False).notes)


@one_test_over(
    ("pseudocount", "said"),
    [
        (-1.0, "pseudocount must be a finite number of at least 0"),
        ({"b|a.table": [[1, 1], [1, -2]]}, r"entry \[1, 1\] is -2"),
        ({"b|a.table": [1, 1]}, r"has shape \(2,\), expected \(2, 2\)"),
        ({"b|q.table": [1, 1]}, "is no parameter"),
    ],
)
def test_pseudocounts_that_do_not_fit_are_refused(pseudocount, said):
    with pytest.raises(pgm.PgmError, match=said):
        steps = pgm.EM(pseudocount=pseudocount)
        pgm.fit(two_variables(), {"a": ["no"], "b": ["no"]}, optimizer=steps, progress=False)


def test_models_with_other_parameters_are_refused():
    x = {"v": [[0, 1, 0]]}
    with pytest.raises(pgm.PgmError, match="'v-h' is a coupling; EM counts the entries"):
        pgm.fit(pgm.rbm(3, 2, rng=0), x, optimizer=pgm.EM(), progress=False)
    b = pgm.GraphBuilder()
    b.variable("a")
    b.table(("a",), [1.0, 2.0])
    with pytest.raises(pgm.PgmError, match="'a.table' is not the table of a conditional"):
        pgm.fit(b.build(), {"a": [0, 1]}, optimizer=pgm.EM(), progress=False)
    with pytest.raises(pgm.PgmError, match="Averaged needs steps along gradients"):
        inside = pgm.Fixed(pgm.EM(), ["a|.table"])
        pgm.fit(two_variables(), {"a": ["no"]}, optimizer=pgm.Averaged(inside), progress=False)


def test_given_units_keep_their_tables_and_need_given_parents():
    start, data = two_variables([[0.3, 0.7], [0.9, 0.1]]), {"a": ["no", "yes"], "b": ["no", "yes"]}
    fit = pgm.fit(start, data, given=("a",), progress=False)
    assert type(fit.optimizer) is pgm.EM
    np.testing.assert_array_equal(fit.model.params["a|.table"], start.params["a|.table"])
    np.testing.assert_allclose(np.exp(fit.model.params["b|a.table"])[0], [2 / 3, 1 / 3])
    with pytest.raises(pgm.PgmError, match="'b' is given, and its parent 'a' is not"):
        pgm.fit(start, data, given=("b",), optimizer=pgm.EM(), progress=False)


def test_a_checkpoint_goes_on_to_the_same_bits(tmp_path):
    start, data = latent_class([[0.5, 0.5], [0.5, 0.5]]), mixed_rows()
    settings = {"optimizer": pgm.EM(tolerance=0.0, starts=1), "progress": False}
    whole = pgm.fit(start, data, updates=6, **settings)
    pgm.fit(start, data, updates=2, checkpoint=tmp_path / "c", **settings)
    two = pgm.fit(start, data, updates=6, checkpoint=tmp_path / "c", **settings)
    for name, value in whole.model.params.items():
        np.testing.assert_array_equal(value, two.model.params[name])
    for key in ("update", "value"):
        np.testing.assert_array_equal(
            whole.history["objective"][key], two.history["objective"][key]
        )


@one_test_over(
    "method",
    [
        pgm.MCMC(chains=2, warmup=20, draws=200),
        pgm.MeanField(precision=np.float32),
        pgm.Forward(draws=300),
    ],
    ids=lambda method: type(method).__name__,
)
def test_estimated_counts_say_that_the_objective_is_not_known(method, atol=0.1):
    rng = np.random.default_rng(0)
    cards, parents, tables = random_network(rng)
    rows = with_holes(rng, drawn(rng, cards, parents, tables, 40), share=0.2, latent=False)
    start = model_of(cards, parents, tables)
    rough = fitted(start, rows, positive=method, optimizer=pgm.EM(), updates=3)
    exact = fitted(start, rows, optimizer=pgm.EM(tolerance=0.0), updates=3)
    assert any("may not be exact" in note for note in rough.notes)
    assert "objective" not in rough.history
    for key in start.params:
        one, two = np.exp(rough.model.params[key]), np.exp(exact.model.params[key])
        np.testing.assert_allclose(one, two, atol=atol)


def test_a_fit_of_default_length_warns_where_it_has_not_converged(monkeypatch, caplog):
    """Whoever gives a length knows that it may be short."""
    monkeypatch.setattr("pgmengine.learn.full_batch.full_batch_run.MAX_UPDATES", 3)
    start, data = latent_class([[0.6, 0.4], [0.4, 0.6]]), mixed_rows()
    for updates in (3, None):
        caplog.clear()
        pgm.fit(start, data, optimizer=pgm.EM(tolerance=0.0), updates=updates, progress=False)
        warned = [r.message for r in caplog.records if r.levelname == "WARNING"]
        assert any("3 updates have not converged" in line for line in warned) == (updates is None)


def test_callbacks_and_limits_hold_as_in_other_fits():
    seen = []
    start, data = latent_class([[0.6, 0.4], [0.4, 0.6]]), mixed_rows()
    settings = {"optimizer": pgm.EM(tolerance=0.0), "callbacks": [lambda m, u: seen.append(u)]}
    fit = pgm.fit(start, data, updates=3, progress=False, **settings)
    assert seen == [0, 1, 2, 3]
    assert fit.state["update"] == 3 and not fit.stopped
    assert any("3 updates have not converged" in note for note in fit.notes)
    assert "3 updates have not converged" in repr(fit)
    none = pgm.fit(start, data, updates=0, progress=False)
    for key, value in start.params.items():
        np.testing.assert_array_equal(none.model.params[key], value)
    stopping = pgm.EarlyStopping(pgm.WeightNorms(every=1), name="norm x|class.table")
    assert pgm.fit(start, data, callbacks=[stopping], progress=False).state["update"] > 1

    class Two:
        def __call__(self, model, update):
            return None

        def stops(self, history):
            return "enough" if len(history.get("objective", ())) == 2 else ""

    settings["callbacks"] = [Two()]
    assert pgm.fit(start, data, progress=False, **settings).stopped == "enough"


@one_test_over("seed", range(4))
def test_a_weight_of_two_counts_as_two_rows(seed, rtol=1e-10):
    rng = np.random.default_rng(seed)
    cards, parents, tables = random_network(rng)
    rows = with_holes(rng, drawn(rng, cards, parents, tables, 20))
    weights = rng.integers(0, 3, len(rows))
    start = model_of(cards, parents, tables)
    settings = {"optimizer": pgm.EM(tolerance=0.0, starts=1), "updates": 3}
    one = fitted(start, rows, sample_weight=weights, **settings)
    two = fitted(start, np.repeat(rows, weights, axis=0), **settings)
    for key, value in one.model.params.items():
        np.testing.assert_allclose(value, two.model.params[key], rtol=rtol, atol=1e-12)
