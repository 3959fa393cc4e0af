"""Chains over the states of a small cover: log weights, invariance, answers, and where they act."""

import itertools

import numpy as np
import pytest
from brute import Brute
from invariance import ALARM, CAUGHT, p_value, tail
from loops import one_test_over
from scipy.special import log_softmax, logsumexp
from tiny import FINITE, as_evidence, draw_row

import pgmengine as pgm
from pgmengine.infer.exact.enumeration.cover import choose_cover
from pgmengine.infer.sampling.ladders.cover_chains import CoverChains, cover_form, small_cover

MODELS = [m for m in FINITE if not m.directed and not m.tables and m.name != "rbm large weights"]


def chains_of(m, beta, kernel, count, seed=0):
    """Chains from exact starts at beta, the row of evidence, and log weights of all states."""
    rng, row = np.random.default_rng(seed), draw_row(m, np.random.default_rng(11), 0.2)
    target = m.build().given(as_evidence(m, [row]))
    form = cover_form(target, choose_cover(target, False, False))
    every = np.array(list(itertools.product(*map(range, form.pattern_form.states))), dtype=np.int64)
    whole = placed(CoverChains(form, np.zeros(len(every), dtype=int), 1.0, kernel, rng), every)
    p = np.exp(log_softmax(beta * whole.log_weight))
    chains = CoverChains(form, np.zeros(count, dtype=int), np.full(count, beta), kernel, rng)
    return placed(chains, every[rng.choice(len(every), size=count, p=p)]), row, whole


def placed(chains, states):
    chains.state = states.reshape(len(chains.rows), -1)
    chains._refresh()
    return chains


def counts_of(chains):
    number = np.zeros(len(chains.rows), dtype=np.int64)
    for unit, count in enumerate(chains.counts):
        number = count * number + chains.state[:, unit]
    return np.bincount(number, minlength=np.prod(chains.counts))


@one_test_over("m", MODELS)
def test_log_weights_follow_the_moves_and_sum_to_log_z(m):
    chains, row, whole = chains_of(m, 1.0, pgm.Gibbs(), 30)
    assert logsumexp(whole.log_weight) == pytest.approx(Brute(m, row).log_z, abs=1e-5)
    for _ in range(5):
        chains.sweep_path()
    found, inputs = chains.log_weight.copy(), [a.copy() for a in chains.inputs]
    chains._refresh()
    np.testing.assert_allclose(found, chains.log_weight, rtol=1e-5, atol=1e-4)
    for one, two in zip(inputs, chains.inputs, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)


@one_test_over("m", MODELS)
def test_sweeps_leave_the_states_of_the_cover_and_of_all_units_invariant(m, count=5000):
    for kernel, beta in ((pgm.Gibbs(), 1.0), (pgm.FlipState(), 1.0), (pgm.Blend(0.5), 0.4)):
        chains, row, whole = chains_of(m, beta, kernel, count)
        for _ in range(2):
            chains.sweep_path()
        limit = ALARM / len(MODELS) / 4
        assert tail(counts_of(chains), count * np.exp(log_softmax(beta * whole.log_weight))) > limit
        if beta == 1.0:
            assert p_value(Brute(m, row), chains.values(np.arange(count))) > limit


def test_chains_at_another_beta_are_caught(count=20_000):
    chains, row, whole = chains_of(MODELS[0], 1.0, pgm.Gibbs(), count)
    chains.beta[:] = 0.2
    for _ in range(3):
        chains.sweep_path()
    assert tail(counts_of(chains), count * np.exp(log_softmax(whole.log_weight))) < CAUGHT


def strong(visible=40, hidden=4, scale=8.0):
    """An RBM whose visible units hold the hidden ones."""
    model = pgm.rbm(visible, hidden, rng=0)
    return model.with_params({n: v * scale ** ("weight" in n) for n, v in model.params.items()})


def test_ladders_over_a_cover_answer_as_enumeration_does(errors=6.0):
    x, want = np.full((3, 40), np.nan), ("marginals", "pairs", "log_z")
    x[:, :2] = (0, 1), (1, 1), (0, 0)
    asked = {"v": x}, want
    soft = {"h": np.array([0.5, -1.0, 0.0, 2.0])}
    assert small_cover(strong().given(*asked[:1], soft=soft), 100) is not None
    by = pgm.ParallelTempering(rungs=6, warmup=200, draws=800)
    exact = pgm.infer(strong(), *asked, soft=soft, method=pgm.Exact())
    r = pgm.infer(strong(), *asked, soft=soft, method=by, rng=0)
    assert "2^4 states" in r.plan.why
    for name, error in r.stats["mcse"].items():
        free = error > 0
        assert (np.abs(r.mean[name] - exact.mean[name])[free] <= errors * error[free]).all()
    low, high = r.log_z_interval.T
    assert ((low <= exact.log_z) & (exact.log_z <= high)).all()
    # Products have a deviation of at most 1/2, and there are 400 independent draws at least.
    np.testing.assert_allclose(r.pairs["v-h"], exact.pairs["v-h"], atol=0.1)


def grid(side=12):
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (side, side))
    b.couple(s[1:], s[:-1], 0.4)
    b.couple(s[:, 1:], s[:, :-1], 0.4)
    return b.build()


def rbm_of(visible, hidden=None):
    b = pgm.GraphBuilder()
    b.layer("v", visible, 40)
    b.layer("h", hidden or pgm.Binary(), 3)
    b.couple("v", "h", np.random.default_rng(0).normal(size=(40 * visible.width, 3)))
    return b.build()


def test_only_small_covers_of_finite_units_are_taken():
    two = np.full((2, 40), np.nan)
    two[0, 0] = 1.0
    assert small_cover(pgm.rbm(784, 20, rng=0).given(), 48) is not None
    assert small_cover(rbm_of(pgm.Categorical(3)).given(), 48) is not None
    # As many units as a lattice has are half of all; a sweep may take too long, as for 200 rows.
    assert small_cover(grid().given(), 48) is None
    assert (
        small_cover(pgm.rbm(784, 20, rng=0).given({"v": np.full((200, 784), np.nan)}), 9600) is None
    )
    assert small_cover(rbm_of(pgm.Gaussian()).given(), 48) is None
    assert small_cover(pgm.sbn([40, 3], rng=0).given(), 48) is None
    # Rows of two patterns have two covers.
    assert small_cover(strong().given({"v": two}), 48) is None
