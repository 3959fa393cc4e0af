"""Flip-the-state for any number of values: spectrum, ties, and draws of all processors."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from loops import one_test_over
from scipy.stats import chi2, poisson

import pgmengine as pgm
from pgmengine import _kernels
from pgmengine.engine import layerwise
from pgmengine.engine.kernels import TIE, TIE_OF_MANY

# Ties of two and more states, near ties, two pairs of them, states that are hardly possible or not.
BIASES = (
    -800.0,
    -40.0,
    -20.0,
    -12.0,
    -8.0,
    -5.0,
    -3.0,
    -2.0,
    -0.5,
    -0.06,
    -0.04,
    -1e-3,
    -1e-6,
    0.0,
)
ALPHAS = (1.0, 0.7)


def conditionals(k, biases=BIASES):
    """All conditionals of k states whose biases are among these, the largest 0, (count, k)."""
    bias = np.array([(*others, 0.0) for others in combinations_with_replacement(biases, k - 1)])
    weight = np.exp(bias)
    return weight / weight.sum(axis=1, keepdims=True)


def matrices(kernel, prob):
    """The transition matrices (count, K, K) of conditionals (count, K)."""
    k = prob.shape[1]
    return np.stack([kernel.transition(prob, np.full(len(prob), x)) for x in range(k)], axis=1)


def spectra(kernel, prob):
    """The eigenvalues of a reversible kernel, ascending, for conditionals without zeros."""
    root = np.sqrt(prob)
    return np.linalg.eigvalsh(root[:, :, None] * matrices(kernel, prob) / root[:, None, :])


def metropolised(prob):
    """The closed form of the eigenvalues of Metropolised Gibbs, (count, K - 1), falling."""
    p, k = np.sort(prob, axis=1), prob.shape[1]
    odds, rest = p / (1 - p), 1 - p
    found = [1 - odds[:, :i].sum(axis=1) - p[:, i:].sum(axis=1) / rest[:, i] for i in range(k - 1)]
    return np.stack(found, axis=1)


@pytest.mark.parametrize("k", [3, 4, 5])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_transitions_are_reversible_and_irreducible_with_a_gap(k, alpha, rtol=1e-12):
    prob, kernel = conditionals(k), pgm.FlipState() if alpha == 1.0 else pgm.Blend(alpha)
    move = matrices(kernel, prob)
    flow = prob[:, :, None] * move
    np.testing.assert_allclose(move.sum(axis=2), 1.0, rtol=rtol)
    np.testing.assert_allclose(flow, flow.transpose(0, 2, 1), rtol=1e-9, atol=1e-300)
    twice = move @ move
    assert (twice[prob[:, None, :].repeat(k, axis=1) > 0] > 0).all()  # irreducible and aperiodic
    possible = prob[(prob > 0).all(axis=1)]
    values = spectra(kernel, possible)
    assert (1 + values[:, 0] >= 1 - np.exp(-TIE_OF_MANY) - 1e-9).all()
    assert (values[:, -2] < 1e-9).all()
    gibbs = prob[:, None, :] * (1 - np.eye(k))
    assert (move >= gibbs * (1 - rtol)).all()  # off the diagonal


@one_test_over("k", [2, 3, 4, 5, 9])
def test_the_spectrum_of_metropolised_gibbs_and_where_its_gap_vanishes(k, atol=1e-9):
    """1 - t <= 1 + lambda <= 1 - t + rest t for t = q / (1 - q), q the second probability."""
    rng = np.random.default_rng(k)
    prob = np.concatenate([rng.dirichlet(np.full(k, a), 300) for a in (0.2, 1.0, 5.0)])
    prob = prob[(prob.min(axis=1) > 1e-200) & (prob.max(axis=1) < 1 - 1e-9)]
    p = np.sort(prob, axis=1)
    found, second = metropolised(prob), p[:, -2]
    t, rest = second / (1 - second), p[:, :-2].sum(axis=1)
    assert (np.diff(found, axis=1) < atol).all() and (found < atol).all()
    gap = 1 + found[:, -1]
    assert (1 - t <= gap + atol).all() and (gap <= 1 - t + rest * t + atol).all()
    plain = np.log(t) < -2 * TIE_OF_MANY
    values = np.sort(spectra(pgm.FlipState(), prob[plain])[:, :-1], axis=1)[:, ::-1]
    np.testing.assert_allclose(values, found[plain], rtol=0, atol=atol)


def test_two_values_keep_the_kernel_of_the_paper_bit_for_bit():
    """At a log-odds of 1e-5 and more min(1, p(other) / p(current)), below it the conditional."""
    near = TIE * (1 + np.linspace(-1e-9, 1e-9, 41))
    size = np.concatenate([np.geomspace(1e-9, 30, 2001), near, [0.0]])
    eta = np.concatenate([size, -size])
    prob = np.stack([1 / (1 + np.exp(eta)), 1 / (1 + np.exp(-eta))], axis=1)
    tie = prob.max(axis=1) < np.exp(TIE) * prob.min(axis=1)
    for x in (0, 1):
        flip = prob[:, 1 - x] / np.maximum(prob[:, 0], prob[:, 1])
        plain = np.stack([flip, 1 - flip] if x else [1 - flip, flip], axis=1)
        move = np.where(tie[:, None], prob, plain)
        assert np.array_equal(pgm.FlipState().transition(prob, np.full(len(eta), x)), move)


# ---- the compiled draw ----


def layer_of(k, one_hot, by_unit):
    """A model of one layer, a unit for each conditional of k states, and these conditionals."""
    biases = (-20.0, -2.5, -1e-3, 0.0) if by_unit else (-20.0, -3.0, -2.5, -0.04, -1e-3, 0.0)
    if one_hot:
        prob = conditionals(k, biases)
        unit, bias = pgm.Categorical(k), np.log(prob)
    else:  # biases along the values -1 .. 1 make near ties of neighbours only
        unit, bias = pgm.MultiValued(k - 1), np.array([*biases, 3.0, 40.0])
        prob = unit.prob(bias)
    b = pgm.GraphBuilder()
    b.layer("x", unit, len(prob), bias=bias)
    if by_unit:
        b.couple("x", "x", weight=np.zeros((bias.size, bias.size)))
    return b.build(), prob


@pytest.fixture(params=_kernels.PROCESSORS[: _kernels.PROCESSORS.index(_kernels.PROCESSOR) + 1])
def processor(request):
    """Sweeps by the routines of a kind whose vectors are no wider than those of this run."""
    _kernels.use(request.param)
    yield
    _kernels.use(_kernels.PROCESSOR)


LAYERS = {
    "two": (2, True, False),
    "three": (3, True, False),
    "four": (4, True, False),
    "five": (5, True, False),
    "three values": (3, False, False),
    "five values": (5, False, False),
    "three by unit": (3, True, True),
    "four values by unit": (4, False, True),
}


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", LAYERS)
def test_compiled_draws_have_the_transition_probabilities(
    processor, name, alpha, chains=4000, least=10
):
    """Count moves from every state of every unit against the matrices, false alarms 1e-6.

    Half of the alarms are a chi-square over the cells of 10 expected counts and more; the other
    cells together have a Poisson count.
    """
    k, one_hot, by_unit = LAYERS[name]
    model, prob = layer_of(k, one_hot, by_unit)
    kernel, layer = pgm.Blend(alpha), model.structure.layers["x"]
    expected = chains * matrices(kernel, prob)
    target, counts = model.given().take(np.zeros(chains, dtype=int)), np.zeros_like(expected)
    for state in range(k):
        support = layer.unit.support
        x = np.broadcast_to(support[state], (chains, layer.size, *support.shape[1:]))
        rng = np.random.default_rng(state)
        running = layerwise.CompiledChains(target, kernel, {"x": layer.flat(x)}, rng)
        assert running.by_unit == ({"x"} if by_unit else set())
        running.sweep(1)
        found = layer.states(running.values()["x"])
        for to in range(k):
            counts[:, state, to] = (found == to).sum(axis=0)
    many = expected >= least
    statistic = ((counts - expected)[many] ** 2 / expected[many]).sum()
    assert chi2.sf(statistic, (many.sum(axis=2) - 1).clip(0).sum()) > 5e-7
    few, count = expected[~many].sum(), counts[~many].sum()
    assert min(poisson.sf(count - 1, few), poisson.cdf(count, few)) > 2.5e-7


@pytest.mark.parametrize("bias", [-20.0, -5.0])
def test_two_tied_states_beside_a_rare_one_do_not_alternate(processor, bias, draws=4000, chains=4):
    """Each unit draws anew, so agreements are binomial; false alarms are below 1e-6."""
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Categorical(3), 2, bias=[[0.0, 0.0, bias]] * 2)
    method = pgm.MCMC(kernel=pgm.FlipState(), chains=chains, draws=draws)
    c = pgm.infer(b.build(), want=("samples",), method=method, rng=0).samples["c"]
    state = c.reshape(chains, draws, 2, 3).argmax(axis=-1)
    agree = (state[..., 0] == state[..., 1]).mean(axis=1)
    p = np.exp([0.0, 0.0, bias])
    truth = ((p / p.sum()) ** 2).sum()
    assert (np.abs(agree - truth) < 5.3 * np.sqrt(truth * (1 - truth) / draws)).all()
