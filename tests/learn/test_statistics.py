"""Statistics of the two phases, their difference, and the protocols that phases follow."""

import numpy as np
import pytest
from registry import NEGATIVES, OPTIMIZERS

import pgmengine as pgm
from pgmengine.learn.contracts import ModelPhase, Negative, Optimizer, Positive
from pgmengine.learn.phases.statistics import Statistics

MODEL = pgm.rbm(3, 2, rng=0)


def states(rows, seed):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, 2, (rows, n)).astype(float) for name, n in (("v", 3), ("h", 2))}


def test_a_difference_is_that_of_the_sums(rtol=1e-12):
    """Of points and of arrays in both terms, which stay as they were."""
    one, two = Statistics(np.float64), Statistics(np.float64)
    rng, slope = np.random.default_rng(0), MODEL.gradient(states(4, 3))
    one.points(states(5, 1), rng.random(5))
    one.arrays(slope, 2.0, 8.0)
    two.points(states(7, 2), rng.random(7))
    two.arrays(slope, 0.5, 2.0)
    before = {k: v.copy() for k, v in two.total(MODEL).items()}
    found, first = (one - two).total(MODEL), one.total(MODEL)
    for name, value in two.total(MODEL).items():
        np.testing.assert_array_equal(value, before[name])
        np.testing.assert_allclose(found[name], first[name] - value, rtol=rtol, atol=1e-14)


def test_means_are_weighted_over_points_and_arrays(rtol=1e-12):
    x, weights = states(5, 1), np.array([1.0, 0.0, 2.0, 0.5, 0.5])
    one, two = Statistics(np.float64), Statistics(np.float64)
    one.points(x, weights)
    two.points({k: v[:2] for k, v in x.items()}, weights[:2])
    two.arrays(MODEL.gradient({k: v[2:] for k, v in x.items()}, weights[2:]), 1.0, 3.0)
    for name, value in x.items():
        mean = np.average(value, axis=0, weights=weights)
        for found in (one, two):
            np.testing.assert_allclose(found.means(MODEL.structure)[name], mean, rtol=rtol)
    assert Statistics(np.float64).means(MODEL.structure) == {}


def test_a_model_phase_without_chains_is_nothing():
    assert ModelPhase().snapshot() == {} and ModelPhase().travels is None


@pytest.mark.parametrize("negative", NEGATIVES.values(), ids=NEGATIVES)
def test_negative_phases_follow_their_protocol(negative):
    assert isinstance(negative, Negative)
    assert not isinstance(pgm.Gibbs(), Negative)


def test_optimizers_and_data_phases_follow_their_protocols():
    for optimizer in OPTIMIZERS.values():
        assert isinstance(optimizer, Optimizer)
    assert all(isinstance(method, Positive) for method in (pgm.MeanField(), pgm.Exact()))
    assert not isinstance(pgm.MCMC(), Positive)
