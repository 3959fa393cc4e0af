"""Entropies, mutual information and the best observation, beside sums over all states."""

import itertools
import math

import numpy as np
import pytest

import pgmengine as pgm

ASIA = pgm.read(pgm.datasets.asia())
NAMES = ("asia", "tub", "smoke", "lung", "bronc", "either", "xray", "dysp")


def table_of(evidence):
    """Return the joint distribution of all variables of asia, by its own formula."""
    states = [("yes", "no")] * len(NAMES)
    p = np.empty([2] * len(NAMES))
    for index, row in zip(np.ndindex(p.shape), itertools.product(*states), strict=True):
        whole = dict(zip(NAMES, row, strict=True))
        ok = all(whole[name] == state for name, state in evidence.items())
        log_p = pgm.infer(ASIA, whole, want=("log_prob",)).log_prob[0] if ok else -np.inf
        p[index] = np.exp(log_p)
    return p / p.sum()


def of(p, *names):
    """Return the joint distribution of some variables."""
    axes = tuple(i for i, name in enumerate(NAMES) if name not in names)
    return p.sum(axis=axes)


def entropy(p):
    """Return the entropy of a table."""
    return -sum(x * math.log(x) for x in np.ravel(p) if x > 0)


@pytest.fixture(scope="module")
def whole():
    return table_of({"dysp": "yes"})


def test_entropies_and_information_are_those_of_the_joint_table(whole):
    r = pgm.infer(ASIA, {"dysp": ["yes", "no"]})
    for name in NAMES:
        assert r.entropy(name)[0] == pytest.approx(entropy(of(whole, name)), abs=1e-12)
    for one, other in [("lung", "smoke"), ("tub", "bronc"), ("xray", "dysp")]:
        right = sum(entropy(of(whole, n)) for n in (one, other)) - entropy(of(whole, one, other))
        assert r.mutual_information(one, other)[0] == pytest.approx(right, abs=1e-12)
        assert r.mutual_information_error(one, other)[0] == 0
    both = entropy(of(whole, "smoke", "bronc"))
    right = entropy(of(whole, "lung")) + both - entropy(of(whole, "lung", "smoke", "bronc"))
    found = r.mutual_information("lung", ["smoke", "bronc"])
    assert found[0] == pytest.approx(right, abs=1e-12) and r.entropy("dysp")[0] == 0


def test_the_best_observation_is_that_of_the_joint_table(whole):
    found = pgm.best_observation(ASIA, "lung", {"dysp": "yes"}, costs={"either": math.inf})
    assert found.entropy == pytest.approx(entropy(of(whole, "lung")), abs=1e-12)
    assert found.name == "xray" and found.kind == "exact"
    assert [g.name for g in found.gains] == [
        g.name for g in sorted(found.gains, key=lambda g: -g.information)
    ]
    assert {g.name for g in found.gains} == set(NAMES) - {"lung", "dysp", "either"}
    for gain in found.gains:
        one, other = of(whole, "lung"), of(whole, gain.name)
        right = entropy(one) + entropy(other) - entropy(of(whole, "lung", gain.name))
        assert gain.information == pytest.approx(right, abs=1e-12) and gain.error == 0


def test_information_of_draws_is_near_the_right_one(errors=5.0):
    draws = pgm.infer(ASIA, want=("samples",), method=pgm.Forward(draws=20_000), rng=0)
    exact = pgm.infer(ASIA)
    for one, other in [("lung", "smoke"), ("bronc", "dysp")]:
        gap = draws.mutual_information(one, other) - exact.mutual_information(one, other)
        error = draws.mutual_information_error(one, other)
        assert 0 < error < 0.02 and abs(gap) < errors * error + 1e-4
        gap = draws.entropy(one) - exact.entropy(one)
        assert abs(gap) < errors * draws.entropy_error(one) + 1e-4


def test_what_is_not_known_is_said():
    r = pgm.infer(ASIA, method=pgm.MCMC(draws=50), rng=0)
    with pytest.raises(pgm.NotAsked, match="want=\\('samples',\\)"):
        r.mutual_information("lung", "smoke")
    with pytest.raises(pgm.PgmError, match="different units"):
        r.entropy("lung", "lung")
    with pytest.raises(pgm.PgmError, match="'lung' is given"):
        pgm.best_observation(ASIA, "lung", {"lung": "yes"})
    with pytest.raises(pgm.PgmError, match=r"costs\['xray'\] must be a number above 0"):
        pgm.best_observation(ASIA, "lung", costs={"xray": 0})


def test_states_that_soft_evidence_excludes_are_no_part_of_joint_tables():
    soft = pgm.likelihood({"smoke": {"yes": 1.0, "no": 0.0}})
    right = pgm.infer(ASIA, {"xray": "yes", "smoke": "yes"})
    r = pgm.infer(ASIA, {"xray": "yes"}, soft=soft)
    with pytest.raises(pgm.NotAsked, match="pgm.Joint"):
        r.entropy("lung", "bronc")
    r = pgm.infer(ASIA, {"xray": "yes"}, want=(pgm.Joint("lung", "bronc"),), soft=soft)
    assert r.entropy("lung", "bronc") == pytest.approx(right.entropy("lung", "bronc"), abs=1e-12)
    assert r.mutual_information("lung", "bronc") == pytest.approx(0.0, abs=1e-12)


def test_means_with_draws_have_the_error_of_the_draws():
    want = ("marginals", "samples")
    r = pgm.infer(ASIA, want=want, method=pgm.Forward(draws=5000), rng=0)
    gap = r.entropy("lung") - pgm.infer(ASIA).entropy("lung")
    assert 0 < r.entropy_error("lung") < 0.05 and abs(gap) < 5 * r.entropy_error("lung") + 1e-4
