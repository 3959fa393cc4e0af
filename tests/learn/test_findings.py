"""Findings of fits that stopped short, learned nothing or became worse, and none of others.

Scores are compared with the exact likelihood, and with conditionals of single units by enumeration.
"""

import subprocess
import sys

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm
from pgmengine.evidence.given import make_target
from pgmengine.learn.monitoring import findings
from pgmengine.learn.monitoring.changed_rows import Pairs, changed_units, log_rate
from pgmengine.learn.monitoring.scores import base_parameters, learned_units, score_for
from pgmengine.learn.starting.base_rate_start import observed_means

RISING, BASE, FELL = (
    pgm.FindingKind.STILL_RISING,
    pgm.FindingKind.AT_BASE_RATES,
    pgm.FindingKind.FELL,
)
NAN = np.nan
BARS = pgm.datasets.bars_and_stripes().x_train


def kinds(fitted):
    return [finding.kind for finding in fitted.findings]


def patterns(rows, size=16, seed=0, states=(0, 1)):
    """Return rows of two values, each one of twelve patterns with a tenth of the values changed."""
    rng = np.random.default_rng(seed)
    p = np.random.default_rng(9).choice([0.1, 0.9], (12, size))
    x = rng.random((rows, size)) < p[rng.integers(0, 12, rows)]
    return np.where(x, states[1], states[0]).astype(float)


def network():
    """Return a Bayesian network whose tables are uniform, and rows of another one."""
    rng, b = np.random.default_rng(3), pgm.GraphBuilder()
    names = "abcdef"
    for name in names:
        b.variable(name, states=3)
    b.conditional("a", (), np.full(3, 1 / 3))
    for parent, child in zip(names, names[1:], strict=False):
        b.conditional(child, (parent,), np.full((3, 3), 1 / 3))
    x = np.zeros((600, 6), dtype=int)
    x[:, 0] = rng.integers(0, 3, 600)
    for i in range(1, 6):
        stay = rng.random(600) < 0.75
        x[:, i] = np.where(stay, x[:, i - 1], rng.integers(0, 3, 600))
    return b.build(), {name: x[:, [i]] for i, name in enumerate(names)}


def gaussian():
    rng = np.random.default_rng(0)
    effect = np.random.default_rng(99).normal(size=(3, 12))
    x = (rng.random((1000, 3)) < 0.5) @ effect + rng.normal(size=(1000, 12))
    return pgm.rbm(12, 6, visible=pgm.Gaussian(), rng=0), {"v": x}


def discriminative():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 500)
    p = np.random.default_rng(1).choice([0.2, 0.8], (3, 10))
    x = (rng.random((500, 10)) < p[y]).astype(float)
    return pgm.drbm(10, 5, 3, rng=0), {"x": x, "y": y}, {"given": ("x",)}


# Model, data, settings, and a number of updates. A fit with twice as many is at rest on any data.
CASES = {
    "exact gradients": lambda: (pgm.rbm(16, 8, rng=0), {"v": BARS}, {}, 1600),
    "chains": lambda: (
        pgm.rbm(16, 15, rng=0),
        {"v": patterns(2000)},
        {"negative": pgm.PCD()},
        2000,
    ),
    "spins": lambda: (
        pgm.rbm(16, 10, visible=pgm.Spin(), hidden=pgm.Spin(), rng=0),
        {"v": patterns(600, states=(-1, 1))},
        {},
        600,
    ),
    "several states": lambda: (
        pgm.rbm(8, 8, visible=pgm.Categorical(4), rng=0),
        {"v": patterns(600)[:, :8] + 2 * patterns(600)[:, 8:]},
        {},
        600,
    ),
    "belief net": lambda: (pgm.sbn([16, 4], rng=0), {"v": patterns(300)}, {}, 400),
    "real values": lambda: (*gaussian(), {}, 200),
    # With a negative phase the fit goes by mini-batches, where counting would end at once.
    "tables": lambda: (*network(), {"negative": pgm.PCD()}, 400),
    "given": lambda: (*discriminative(), 800),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_a_fit_that_has_come_to_rest_has_no_finding(name):
    """With chains, one fit in eighteen (5 of 90) finds a better mode late, and says so: more than
    three of eight do in one run of two thousand.
    """
    model, data, settings, updates = CASES[name]()
    seeds, most = (8, 3) if name == "chains" else (2, 0)
    found = [
        kinds(pgm.fit(model, data, updates=2 * updates, rng=seed, progress=False, **settings))
        for seed in range(seeds)
    ]
    assert sum(bool(each) for each in found) <= most, found


@pytest.mark.parametrize("name", CASES)
def test_fits_of_a_twentieth_of_these_updates_are_still_rising(name, seeds=6, least=4):
    """One fit in twenty has no finding, as its rise may have a large error."""
    model, data, settings, updates = CASES[name]()
    found = [
        kinds(pgm.fit(model, data, updates=updates // 20, rng=rng, progress=False, **settings))
        for rng in range(seeds)
    ]
    assert found.count([RISING]) >= least


# Drawn weights spread real values further than units of variance 1, which is better already. And
# they may happen to be better for the few nats of a label.
@pytest.mark.parametrize("name", sorted(set(CASES) - {"real values", "given"}))
def test_a_fit_whose_steps_are_too_small_never_leaves_base_rates(name):
    model, data, settings, _ = CASES[name]()
    steps = {"optimizer": pgm.SGD(1e-7), "updates": 40, "progress": False}
    assert BASE in kinds(pgm.fit(model, data, **steps, **settings))


def test_independent_data_leave_a_model_at_base_rates_and_one_of_independent_units_says_nothing():
    x = (np.random.default_rng(0).random((5000, 10)) < 0.4).astype(float)
    assert kinds(pgm.fit(pgm.rbm(10, 4, rng=0), {"v": x}, updates=200, progress=False)) == [BASE]
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 10)
    assert kinds(pgm.fit(b.build(), {"v": x}, updates=200, progress=False)) == []


@pytest.mark.parametrize("hidden", [6, 30])
def test_a_model_that_steps_drive_off_has_fallen(hidden):
    """The score is exact with 6 hidden units, and by changed rows with 30."""
    x = {"v": patterns(500)}
    good = pgm.fit(pgm.rbm(16, hidden, rng=0), x, updates=400, progress=False)
    worse = pgm.fit(good, x, updates=60, optimizer=pgm.SGD(50.0), progress=False)
    assert FELL in kinds(worse)
    assert worse.findings[0].nats < 0 <= worse.findings[0].error


@one_test_over("seed", range(3))
def test_chains_that_do_not_follow_are_found_by_the_fall_of_the_likelihood(seed, nats=1.0):
    """The likelihood of bars and stripes rises, and then falls as chains mix ever less."""
    exact = pgm.ExactLogLikelihood({"v": BARS}, every=500)
    fitted = pgm.fit(
        pgm.rbm(16, 8, rng=seed),
        {"v": BARS},
        negative=pgm.PCD(),
        optimizer=pgm.Centered(pgm.SGD(0.5)),
        updates=4000,
        callbacks=[exact],
        rng=seed,
        progress=False,
    )
    values = fitted.history["log_likelihood"]["value"]
    fall = values[[1, 2, 4]].max() - values[-1]
    assert FELL in kinds(fitted) or fall < nats
    if FELL in kinds(fitted):
        assert fitted.findings[0].nats == pytest.approx(-fall)


def score_of(model, data, given=()):
    """Return the score of a model on all rows, and their target."""
    target = make_target(model, data, what="data")
    means = observed_means(target, np.ones(target.rows))
    seen = {n: np.ones(model.structure.layers[n].size, dtype=bool) for n in given}
    alone = make_target(model, {n: data[n] for n in given} or None, what="data")
    return score_for(target, alone, seen, means, 100), target, means


def independent(target, means, given=()):
    """Return the log probability of rows by independent units."""
    etas = base_parameters(target, means)
    total = np.zeros(target.rows)
    for name in set(etas) - set(given):
        layer = target.structure.layers[name]
        total += log_rate(layer, layer.shaped(target.evidence.values[name]), etas[name]).sum(axis=1)
    return total


@pytest.mark.parametrize("given", [(), ("x",)])
def test_the_exact_score_is_the_log_likelihood_above_base_rates(given):
    model, data, _ = discriminative()
    data = {"x": data["x"][:30], "y": data["y"][:30, None]}
    if not given:
        rng = np.random.default_rng(0)
        model = pgm.rbm(6, 3, rng=0)
        weight = rng.normal(size=(6, 3))
        model = model.with_params({"v-h.weight": weight})
        data = {"v": (rng.random((30, 6)) < 0.3).astype(float)}
    score, target, means = score_of(model, data, given)
    both = pgm.infer(model, data, want=("log_z",), method=pgm.Exact()).log_z
    rest = {name: data[name] for name in given} or None
    alone = pgm.infer(model, rest, want=("log_z",), method=pgm.Exact()).log_z
    expected = both - alone - independent(target, means, given)
    np.testing.assert_allclose(score.of(model), expected, rtol=1e-9, atol=1e-9)


UNITS = [pgm.Binary(), pgm.Spin(), pgm.MultiValued(3), pgm.Categorical(3), pgm.Gaussian()]


def pairs_of(model, x):
    target = make_target(model, {"v": x}, what="data")
    means = observed_means(target, np.ones(target.rows))
    etas, learned = base_parameters(target, means), learned_units(target, {})
    layer = model.structure.layers["v"]
    each = {"v": log_rate(layer, layer.shaped(target.evidence.values["v"]), etas["v"])}
    return changed_units(target, learned, etas, each), etas["v"]


def values_of(unit, rng, shape):
    return unit.sample(np.zeros((*shape, unit.width) if unit.width > 1 else shape), rng)


@pytest.mark.parametrize("hidden", [pgm.Binary(), pgm.Categorical(3)], ids=repr)
@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_the_log_odds_of_changed_rows_are_differences_of_exact_log_z(unit, hidden):
    """So they are by the fields that change, and by bounds, which are exact here."""
    rng = np.random.default_rng(0)
    model = pgm.rbm(4, 3, visible=unit, hidden=hidden, rng=0)
    model = model.with_params(
        {k: np.asarray(v) + rng.normal(size=v.shape) for k, v in model.params.items()}
    )
    found, _ = pairs_of(model, values_of(unit, rng, (20, 4)))
    rows, changed = found.rows.with_model(model), found._changed.with_model(model)
    here, there = (pgm.Exact().run(t, ("log_z",)).log_z for t in (rows, changed))
    assert not np.array_equal(
        rows.take(found.row).evidence.values["v"], changed.evidence.values["v"]
    )
    for odds in (found._by_products(rows), found._by_bounds(rows)):
        np.testing.assert_allclose(odds, here[found.row] - there, rtol=1e-4, atol=2e-4)


@one_test_over("unit", UNITS, ids=repr)
def test_the_score_of_changed_rows_is_0_at_base_rates(unit):
    rng = np.random.default_rng(0)
    x = values_of(unit, rng, (50, 5))
    model = pgm.rbm(5, 40, visible=unit, rng=0)
    found, eta = pairs_of(model, x)
    still = {k: np.zeros(np.shape(v)) for k, v in model.params.items()} | {"v.bias": eta}
    np.testing.assert_allclose(found.of(model.with_params(still)), 0.0, atol=1e-3)


def test_the_score_of_two_valued_units_is_their_pseudo_likelihood(errors=4.0):
    """All units of a row, up to the sampling of units."""
    model = pgm.fit(pgm.rbm(16, 30, rng=0), {"v": patterns(400)}, updates=100, progress=False).model
    x = patterns(400, seed=1)
    score, target, means = score_of(model, {"v": x})
    assert isinstance(score, Pairs)
    expected = pgm.PseudoLikelihood({"v": x})(model, 0)["pseudo_likelihood"]
    expected -= independent(target, means).mean()
    each = score.of(model)
    assert abs(each.mean() - expected) < errors * each.std() / np.sqrt(len(each))


def test_a_fit_has_the_same_bits_as_one_that_is_not_watched(monkeypatch):
    settings = {"updates": 30, "negative": pgm.PCD(), "progress": False}
    one = pgm.fit(pgm.rbm(16, 6, rng=0), {"v": BARS}, **settings)
    monkeypatch.setattr(findings, "score_for", lambda *given: None)
    two = pgm.fit(pgm.rbm(16, 6, rng=0), {"v": BARS}, **settings)
    assert one.findings and not two.findings
    for name, value in one.model.params.items():
        np.testing.assert_array_equal(value, two.model.params[name])


def test_a_fit_that_goes_on_from_a_checkpoint_has_the_same_findings(tmp_path):
    for stop, updates in ((3, 40), (30, 40), (200, 500)):
        settings = {"updates": updates, "negative": pgm.PCD(), "progress": False}
        model, path = pgm.rbm(16, 6, rng=0), tmp_path / f"{stop}"
        whole = pgm.fit(model, {"v": BARS}, **settings)
        halt = pgm.EarlyStopping(lambda model, update: {"n": 0.0}, stop, name="n")
        half = pgm.fit(model, {"v": BARS}, checkpoint=path, callbacks=[halt], **settings)
        assert half.stopped and RISING not in kinds(half)
        again = pgm.fit(model, {"v": BARS}, checkpoint=path, **settings)
        assert again.findings == whole.findings


@one_test_over("updates", [0, 1, 2, 3])
def test_the_shortest_fits_and_rows_without_observed_units_end_well(updates):
    x = patterns(20)
    x[3] = NAN
    found = pgm.fit(pgm.rbm(16, 20, rng=0), {"v": x}, updates=updates, progress=False)
    assert isinstance(found.findings, tuple)


def test_rows_without_a_sample_weight_are_not_looked_at():
    x = np.concatenate([patterns(300), np.zeros((300, 16))])
    weight = np.repeat([1.0, 0.0], 300)
    one, two = (
        pgm.fit(pgm.rbm(16, 6, rng=0), {"v": x}, sample_weight=w, updates=12, progress=False)
        for w in (weight, None)
    )
    assert one.findings and one.findings != two.findings


def test_a_finding_is_shown_logged_and_told_by_the_command_line(caplog, tmp_path):
    fitted = pgm.fit(pgm.rbm(16, 8, rng=0), {"v": BARS}, updates=40, progress=False)
    (finding,) = fitted.findings
    assert finding.kind is RISING and finding.nats > finding.error >= 0
    assert "epochs=" in str(finding) and f"{finding.nats:.3g} nats" in str(finding)
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [str(finding)]
    assert f"finding: {finding}" in repr(fitted)
    assert "finding" in fitted._repr_html_() and "epochs=" in fitted._repr_html_()
    pgm.save(pgm.rbm(16, 8, rng=0), tmp_path / "m.safetensors")
    np.savez(tmp_path / "d.npz", v=BARS)
    words = ("fit", tmp_path / "m.safetensors", tmp_path / "d.npz", tmp_path / "out.safetensors")
    command = [sys.executable, "-m", "pgmengine.apps.cli", *map(str, words), "--epochs", "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout + done.stderr).count("make more updates (--epochs)") == 1


@one_test_over("far", [1e308, -1e308, np.inf, NAN])
def test_scores_beyond_all_numbers_end_well(far):
    """A damaged checkpoint may hold any number; warnings of numpy are errors in tests."""
    target = make_target(pgm.rbm(16, 4, rng=0), {"v": BARS}, what="data")
    alone = make_target(target.model, None, what="data")
    score = score_for(target, alone, {}, observed_means(target, np.ones(len(BARS))), 100)
    for damaged in (0, 2, 4):
        scores = {update: np.linspace(0.0, 1.0, len(BARS)) + update for update in (0, 2, 4)}
        scores[damaged][[0, 1]] = far, -far
        watch = findings.Watch(score, np.ones(len(BARS)), True, 0.5, 4, scores)
        assert all(isinstance(found, pgm.Finding) for found in watch.findings(ended=True))
