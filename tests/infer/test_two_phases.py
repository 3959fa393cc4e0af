"""Models that stay the same when all free units change sign, and the warning about them."""

import re

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm
from pgmengine.infer.diagnostics.two_phases import TWO_PHASES, same_with_signs_changed


def spins(k, field=0.0, side=4):
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (side, side))
    b.couple(s[1:], s[:-1], k)
    b.couple(s[:, 1:], s[:, :-1], k)
    if field:
        b.bias(s[0, 0], field)
    return b.build()


def mixed(tables=False, arrow=False):
    """Spins with Gaussian and symmetric multivalued neighbours."""
    b = pgm.GraphBuilder()
    b.layer("a", pgm.Spin(), 3)
    b.layer("g", pgm.Gaussian(), 2)
    b.layer("m", pgm.MultiValued(3), 2)
    b.couple("a", "g")
    b.couple("a", "m")
    if tables:
        b.table([("a", 0), ("a", 1)], [[1.0, 2.0], [3.0, 4.0]])
    if arrow:
        b.layer("x", pgm.Binary(), 1)
        b.cause("a", "x")
    return b.build(rng=0)


RNG = np.random.default_rng(0)


@one_test_over(
    ("model", "evidence", "same"),
    [
        (spins(0.5), None, True),
        (spins(0.5, field=0.1), None, False),
        (spins(0.5), {"s": np.where(np.arange(16).reshape(4, 4) == 5, 1.0, np.nan)}, False),
        (mixed(), None, True),
        (mixed(), {"g": [0.0, 0.0]}, True),
        (mixed(), {"g": [1.0, 0.0]}, False),
        (mixed(tables=True), None, False),
        (mixed(arrow=True), None, False),
        (pgm.rbm(4, 3, rng=0), None, False),
    ],
)
def test_which_models_stay_the_same(model, evidence, same):
    target = model.given(evidence)
    assert same_with_signs_changed(target) == same
    if not same:
        return
    # Against the density itself, at random states that agree with the evidence.
    for _ in range(5):
        x = {}
        for name, layer in model.structure.layers.items():
            drawn = layer.unit.sample(RNG.normal(size=(1, layer.size)), RNG)
            x[name] = np.where(target.free[name], drawn, target.evidence.values[name])
        other = {n: np.where(target.free[n], -v, v) for n, v in x.items()}
        assert model.flat_log_density(x) == pytest.approx(model.flat_log_density(other))


def test_soft_evidence_breaks_the_symmetry():
    model = spins(0.5)
    assert not same_with_signs_changed(model.given(soft={"s": np.full((4, 4), 0.1)}))


def test_doubtful_answers_say_so_first_and_good_ones_do_not():
    cold = pgm.infer(spins(3.0), want=("samples",), method=pgm.MCMC(), rng=0)
    assert not cold.status.good and cold.warnings[0] == TWO_PHASES
    assert repr(cold).count("warning: ") == min(len(cold.warnings), 2)
    # General advice would contradict the warning.
    assert "; NOT_MIXED, the chains did not mix\n" in repr(cold)
    warm = pgm.infer(spins(0.1), want=("samples",), method=pgm.MCMC(), rng=0)
    assert warm.status.good and TWO_PHASES not in warm.warnings
    tilted = pgm.infer(spins(3.0, field=0.01), want=("samples",), method=pgm.MCMC(), rng=0)
    assert not tilted.status.good and TWO_PHASES not in tilted.warnings


@pytest.mark.parametrize("thin", [1, 2])
def test_chains_that_agree_say_how_many_draws_are_enough(thin):
    """The number counts sweeps, so that it holds without thinning. Tempering may be quicker."""
    model, few = spins(0.42, side=5), pgm.MCMC(draws=400 // thin, thin=thin, warmup=500)
    short = pgm.Auto(candidates=(few, pgm.ParallelTempering()), retry_seconds=0.0)
    r = pgm.infer(model, want=("samples",), method=short, rng=3)
    assert r.status is pgm.Status.NOT_MIXED and TWO_PHASES not in r.warnings
    (said,) = [line for line in r.warnings if "the chains agree" in line]
    assert any("ask with seconds=" in line for line in r.warnings)
    enough = int(re.search(r"method=pgm\.MCMC\(draws=([0-9]+)\)$", said)[1])
    assert enough > 400
    longer = pgm.infer(model, want=("samples",), method=pgm.MCMC(draws=enough), rng=3)
    assert longer.status.good


@one_test_over(
    ("status", "error", "upper"),
    [
        (pgm.Status.ONE_SIDED, 0.1, 2.0 + np.log(2.0)),
        (pgm.Status.ONE_SIDED, 0.0, 2.0),
        (pgm.Status.FEW_WEIGHTS, 0.1, 2.0),
    ],
)
def test_an_interval_allows_for_a_phase_that_was_not_seen(status, error, upper):
    from pgmengine.infer.diagnostics.sure_facts import checked

    target = spins(0.6, side=8).given()
    answers = {
        "log_z": np.array([1.5]),
        "log_z_error": np.array([error]),
        "log_z_interval": np.array([[1.0, 2.0]]),
    }
    r = pgm.Result(answers, "estimate", pgm.AIS(), pgm.Plan("AIS"), status, warnings=("few",))
    found = checked(target, r)
    np.testing.assert_allclose(found.log_z_interval, [[1.0, upper]])
    last = -1 if status is pgm.Status.FEW_WEIGHTS else 0
    assert found.warnings[last] == TWO_PHASES and len(found.warnings) == 2
