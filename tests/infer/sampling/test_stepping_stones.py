"""Log Z from ladders: rare states reached by luck, stones that cross, ladders that disagree.

A rare state, of probability 2^-n at beta = 0, holds nearly all of the probability at beta = 1. What
the replicas then say of log Z depends on how many of them have met it, and all may agree.
"""

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.infer.sampling.ladders.replicas import Ladders
from pgmengine.infer.sampling.ladders.stepping_stones import SteppingStones
from pgmengine.infer.sampling.methods.bound_check import below_a_state
from pgmengine.infer.sampling.methods.simulated_tempering import tours


def conjunction(coins, leak):
    """Fair coins, whose conjunction is observed through a leak: a network and its evidence."""
    b = pgm.GraphBuilder()
    for i in range(coins):
        b.variable(f"x{i}", states=2)
        b.conditional(f"x{i}", (), [0.5, 0.5])
    table = np.full((2,) * coins + (2,), leak)
    table[..., 0] = 1 - leak
    table[(1,) * coins] = (leak, 1 - leak)
    b.variable("all", states=2)
    b.conditional("all", tuple(f"x{i}" for i in range(coins)), table)
    return b.build(), {"all": 1}


def needle(units, height):
    """A table over two-valued variables of entries 1, and e^height where all of them are 1."""
    b = pgm.GraphBuilder()
    for i in range(units):
        b.variable(f"x{i}", states=2)
    table = np.ones((2,) * units)
    table[(1,) * units] = np.exp(height)
    b.table(tuple(f"x{i}" for i in range(units)), table)
    return b.build()


def held(r, exact):
    low, high = r.log_z_interval[0]
    assert low <= r.log_z[0] <= high
    return low <= exact <= high


@pytest.mark.parametrize("coins, leak", [(12, 1e-9), (10, 1e-12)])
def test_rare_states_reached_by_luck_never_give_a_wrong_interval(coins, leak, seeds=4):
    """Nine of ten runs of such a model were wrong by up to 6 nats with a good status.

    None of 225 runs of (12, 1e-9) had a good status. Of 100 models with 4 to 14 coins and leaks
    from 1e-2 to 1e-12, 76 runs were good and right, and none was good and wrong.
    """
    (model, evidence), wrong = conjunction(coins, leak), 0
    exact = np.log(2.0**-coins * (1 - leak) + (1 - 2.0**-coins) * leak)
    for seed in range(seeds):
        r = pgm.infer(model, evidence, want=("log_z",), method=pgm.ParallelTempering(), rng=seed)
        wrong += r.status.good and not held(r, exact)
    assert not wrong


def test_a_rare_state_without_the_evidence_is_seen(seeds=2):
    """The evidence rules it out, so that log Z with evidence is easy, and only log p is wrong."""
    model, units, height = needle(12, 25.0), 12, 25.0
    exact = (units - 1) * np.log(2) - np.log(2.0**units - 1 + np.exp(height))
    for seed in range(seeds):
        r = pgm.infer(
            model, {"x0": 0}, want=("log_prob",), method=pgm.ParallelTempering(), rng=seed
        )
        off = abs(r.log_prob[0] - exact)
        assert not r.status.good or off <= 5 * r.stats["log_prob_error"][0]
    assert r.warnings[0].startswith("without evidence, ")


@pytest.mark.parametrize("shift", [0.0, 0.5, -0.5])
def test_stones_that_contradict_each_other_are_told_apart(shift, sweeps=4000, sure=6.0):
    """Normal S of variance 1 at two rungs, of means 3 and 4: log Z = 3.5 exactly.

    With the upper mean lowered by half, stones from below lie 0.5 above the ones from above, whose
    difference has a standard error of 0.02; with the upper mean raised they are 0.5 below, as by
    states that one rung has missed.
    """
    rng = np.random.default_rng(0)
    stones = SteppingStones(np.array([0.0, 1.0]), 1, 4, sweeps)
    for _ in range(sweeps):
        lower, upper = 3 + rng.normal(size=(1, 4, 1)), 4 + shift + rng.normal(size=(1, 4, 1))
        stones.add(np.concatenate((lower, upper), axis=2))
    found = stones.estimate(np.zeros(1))
    assert abs(found.gap[0] - shift) < sure * found.gap_error[0] < 0.2
    numbers = np.array([7])
    assert bool(found.crossed(numbers)) == (shift < 0) and not found.apart(numbers)
    low, high = found.interval[0]
    assert low < found.log_z[0] < high
    assert low < 3.5 and 3.5 + shift < high or shift < 0
    if shift < 0:
        assert f"{-found.gap[0]:.3g} nats above" in found.crossed(numbers)[0]
        assert "row 7" in found.crossed(numbers)[0]


def test_ladders_that_disagree_on_log_z_have_not_mixed(sweeps=2000):
    """S of one of four ladders is higher by 1; the others agree."""
    rng, off = np.random.default_rng(0), np.array([0.0, 0, 0, 1])[None, :, None]
    rhat = []
    for shift in (0.0, 1.0):
        stones = SteppingStones(np.array([0.0, 1.0]), 1, 4, sweeps)
        for _ in range(sweeps):
            stones.add(shift * off + rng.normal(size=(1, 4, 2)))
        rhat.append(stones.estimate(np.zeros(1)).rhat[0])
    assert rhat[0] < 1.05 < 1.5 < rhat[1]


def tours_of(paths, top):
    """Effective number of tours of chains by their rungs (sweeps, chains), sweep by sweep."""
    ended, unfinished = [], []
    for path in paths.T:
        on_top = 0
        for rung in path:
            on_top += rung == top
            if rung == 0:
                ended.append(on_top)
                on_top = 0
        unfinished.append(on_top)
    squares = np.square(ended).sum() + np.square(unfinished).sum()
    return sum(ended) ** 2 / max(squares, 1)


def test_tours_are_counted_as_one_by_one(sweeps=400):
    """Also for chains that hold the last rung for good, which give no tours however many move."""
    rng = np.random.default_rng(0)
    rungs = np.abs(np.cumsum(rng.choice([-1, 1], size=(sweeps, 2, 3)), axis=0)) % 4
    rungs[:, 1, 0] = 3
    found = tours(rungs, 4)
    assert found == pytest.approx([tours_of(rungs[:, row], 3) for row in range(2)])
    assert found[0] > 5 and found[1] < 2
    model, betas = pgm.rbm(6, 5, rng=0), np.array([0.0, 0.4, 1.0])
    ladders = Ladders(model.given(), betas, 2, pgm.Gibbs(), np.random.default_rng(1))
    at = []
    for _ in range(sweeps):
        ladders.step()
        at.append(np.argsort(ladders.at[0].ravel()) % 3)
    assert ladders.tours() == pytest.approx([tours_of(np.array(at), 2)])


def test_no_state_is_more_probable_than_all_states_together():
    """The bound holds for finite units; a density of other units may exceed its integral."""
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Gaussian(), 1)
    for model, finite in ((pgm.rbm(3, 2, rng=0), True), (b.build(), False)):
        target, ends = model.given(), np.array([[0.0, 1.0]])
        assert not below_a_state(target, np.array([1.0]), ends)
        assert bool(below_a_state(target, np.array([2.0]), ends)) == finite
        assert not below_a_state(target, np.array([-np.inf]), ends)
