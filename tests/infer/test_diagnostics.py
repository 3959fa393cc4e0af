"""Diagnostics against closed forms and the oracle."""

import numpy as np
import pytest
from brute import Brute
from loops import one_test_over
from registry import KERNELS
from tiny import FINITE, TABLED, as_evidence, draw_row

import pgmengine as pgm
from pgmengine import diagnostics
from pgmengine.engine.chains import make_chains, start
from pgmengine.infer.diagnostics.convergence import series_statistics


def distribution(truth, states):
    """The oracle's probabilities in the order of `states`."""

    def rows(values):
        return np.round(np.concatenate([values[n] for n in truth.values], axis=1) * 1000).astype(
            np.int64
        )

    place = {state.tobytes(): p for state, p in zip(rows(truth.values), truth.p)}
    return np.array([place[state.tobytes()] for state in rows(states)])


SWEPT = (*FINITE, *(m for m in TABLED if all(x.unit.support is not None for x in m.layers)))


@one_test_over("tiny_model", SWEPT)
@pytest.mark.parametrize(
    "kernel",
    [k if k == pgm.Blend(0.3) else pytest.param(k, marks=pytest.mark.long) for k in KERNELS],
    ids=repr,
)
def test_p_is_invariant_under_the_exact_transition_matrix(tiny_model, kernel):
    for share, beta in ((0.0, 1.0), (0.4, 1.0), (0.0, 0.37), (0.0, 0.0)):
        row = draw_row(tiny_model, np.random.default_rng(11), share)
        target = tiny_model.build().given(as_evidence(tiny_model, [row]), beta=beta)
        matrix = diagnostics.transition_matrix(target, kernel)
        p = distribution(Brute(tiny_model, row, beta=beta), diagnostics.joint_states(target))
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(p @ matrix, p, rtol=1e-12, atol=1e-12)
        if tiny_model.name != "rbm large weights" and (p > 0).all():
            far = np.linalg.matrix_power(matrix, 64)
            # The chain is irreducible and aperiodic, also with ties.
            assert (far > 0).all()


def test_flip_state_needs_the_tie_rule():
    """All fields zero: units that always flip would go round a cycle of two states."""
    model = pgm.rbm(2, 2).with_params({"v-h.weight": np.zeros((2, 2))})
    assert diagnostics.slem(diagnostics.transition_matrix(model.given(), pgm.FlipState())) < 1e-12

    class NoTies(pgm.FlipState):
        def transition(self, prob, current):
            here = np.arange(2) == np.asarray(current)[..., None]
            flip = np.minimum(1.0, prob[..., ::-1] / prob)
            return np.where(here, 1 - flip, flip[..., ::-1])

    assert diagnostics.slem(diagnostics.transition_matrix(model.given(), NoTies())) > 1 - 1e-12


def test_metropolised_gibbs_is_the_two_valued_rule_and_moves_more_than_gibbs():
    rng = np.random.default_rng(0)
    for k in (2, 3, 5):
        p = rng.dirichlet(np.ones(k), size=50)
        for current in range(k):
            move = pgm.FlipState().transition(p, np.full(50, current))
            np.testing.assert_allclose(move.sum(axis=1), 1.0, rtol=1e-12)
            others = np.arange(k) != current
            assert (
                move[:, others] >= p[:, others] - 1e-15
            ).all()  # Peskun: more weight off the diagonal
            balance = p[:, [current]] * move
            for other in np.flatnonzero(others):
                back = pgm.FlipState().transition(p, np.full(50, other))[:, current] * p[:, other]
                np.testing.assert_allclose(balance[:, other], back, rtol=1e-12)
        if k == 2:
            move = pgm.FlipState().transition(p, np.ones(50, dtype=int))
            np.testing.assert_allclose(move[:, 0], np.minimum(1, p[:, 0] / p[:, 1]), rtol=1e-12)


def test_slem_of_two_states():
    np.testing.assert_allclose(diagnostics.slem([[0.9, 0.1], [0.3, 0.7]]), 0.6)


def test_autocorrelation_of_an_autoregressive_series():
    """AR(1): rho(k) = phi^k, tau = (1 + phi) / (1 - phi); AR(2) from its Yule-Walker equations."""
    rng = np.random.default_rng(0)
    n = 400_000
    for phi in ((0.0, 0.0), (0.9, 0.0), (0.6, 0.3), (-0.5, 0.0)):
        noise, x = rng.normal(size=n), np.zeros(n)
        for t in range(2, n):
            x[t] = phi[0] * x[t - 1] + phi[1] * x[t - 2] + noise[t]
        first = phi[0] / (1 - phi[1])
        truth = (1 - phi[0] * first - phi[1] * (phi[1] + phi[0] * first)) / (1 - sum(phi)) ** 2
        np.testing.assert_allclose(
            diagnostics.autocorrelation_function(x, 2)[1], first, rtol=0, atol=0.01
        )
        np.testing.assert_allclose(diagnostics.autocorrelation_time(x), truth, rtol=0.1)
        np.testing.assert_allclose(diagnostics.autocorrelation_time_ar(x), truth, rtol=0.05)
        chains = x.reshape(8, -1)
        np.testing.assert_allclose(diagnostics.autocorrelation_time(chains), truth, rtol=0.1)
    with pytest.raises(pgm.PgmError, match="constant"):
        diagnostics.autocorrelation_function(np.ones(10))


def test_autocorrelation_time_of_a_chain_is_that_of_its_matrix():
    """Energy of a 3x3 RBM: tau from the transition matrix, sum over all lags of the exact
    autocovariance.
    """
    model = pgm.rbm(3, 3).with_params(
        {"v-h.weight": np.random.default_rng(1).normal(size=(3, 3)) * 1.5}
    )
    target = model.given()
    states = diagnostics.joint_states(target)
    log_p = target.take(np.zeros(64, dtype=int)).log_density(states)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    for kernel in (pgm.Gibbs(), pgm.FlipState()):
        matrix = diagnostics.transition_matrix(target, kernel)
        f = -log_p - p @ -log_p
        solved = np.linalg.solve(np.eye(64) - matrix + np.outer(np.ones(64), p), f)
        tau = 2 * (p * f) @ solved / ((p * f) @ f) - 1
        rng, many = np.random.default_rng(0), target.take(np.zeros(16, dtype=int))
        chains = make_chains(many, kernel, start(many, rng), rng)
        chains.sweep(100)
        energy = chains.trace(20_000)
        np.testing.assert_allclose(diagnostics.autocorrelation_time(energy.T), tau, rtol=0.06)
        np.testing.assert_allclose(diagnostics.autocorrelation_time_ar(energy.T), tau, rtol=0.06)


def test_class_changes_drop_ambiguous_states():
    modes = np.array([[0, 0, 0, 0], [1, 1, 1, 1]])
    states = np.array(
        [[0, 0, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    )
    assert diagnostics.nearest_modes(states, modes).tolist() == [0, -1, 1, -1, 1, 0]
    assert diagnostics.class_changes(states, modes) == 2
    assert diagnostics.class_changes(
        np.stack([states, states[:1].repeat(6, 0)], axis=1), modes
    ).tolist() == [2, 0]


def test_refusals_name_the_reason():
    with pytest.raises(pgm.PgmError, match="1048576 joint states"):
        diagnostics.transition_matrix(pgm.rbm(10, 10, rng=0).given(), pgm.Gibbs())
    with pytest.raises(pgm.PgmError, match="'v'.*cannot be enumerated"):
        diagnostics.transition_matrix(
            pgm.rbm(2, 2, visible=pgm.Gaussian(), rng=0).given(), pgm.Gibbs()
        )
    with pytest.raises(pgm.PgmError, match="Blend: alpha must be a finite number from 0 to 1"):
        pgm.Blend(1.5)


def test_a_single_chain_is_judged_by_its_halves():
    """A chain that drifts has not mixed; a chain that does not drift has."""
    drift = np.concatenate((np.zeros(500), np.ones(500))) + 0.1 * np.random.default_rng(0).normal(
        size=1000
    )
    level = np.random.default_rng(1).normal(size=1001)
    far, near = (series_statistics(x[None, :, None, None])["rhat"][0, 0] for x in (drift, level))
    assert far > 2 and abs(near - 1) < 0.02
    assert pgm.diagnostics.slem([[1.0]]) == 0.0


def slow_part(chains=400, draws=20_000, flip=1e-3):
    """Unit noise plus a fair sign times 0.3 that flips now and then; and tau of the means.

    rho(k) = 0.09 (1 - 2 flip)^k / 1.09; in the variance of a mean it has the weight 1 - k / draws.
    """
    rng = np.random.default_rng(0)
    start = rng.choice([-1.0, 1.0], size=(chains, 1))
    sign = start * np.cumprod(np.where(rng.random((chains, draws)) < flip, -1.0, 1.0), axis=1)
    lags = np.arange(1, draws)
    rho = 0.09 / 1.09 * (1 - 2 * flip) ** lags
    return rng.normal(size=sign.shape) + 0.3 * sign, 1 + 2 * float(((1 - lags / draws) * rho).sum())


@pytest.mark.long
def test_tau_by_the_means_of_exact_starts_sees_a_slow_part(caplog, sure=7.0):
    """Draws times the variance of 400 means is tau chi-square(399) / 399: seven errors, 1e-9."""
    x, tau = slow_part()
    with caplog.at_level("WARNING", logger="pgmengine"):
        times = diagnostics.autocorrelation_times(x)
    assert abs(times.means - tau) < sure * tau * np.sqrt(2 / 399)
    assert times.ar < 0.7 * tau and not times.agree
    (told,) = [r.getMessage() for r in caplog.records]
    assert told.startswith("estimates of the autocorrelation time disagree: ")
    caplog.clear()
    noise = np.random.default_rng(1).normal(size=(400, 1000))
    with caplog.at_level("WARNING", logger="pgmengine"):
        times = diagnostics.autocorrelation_times(noise)
    assert diagnostics.autocorrelation_time_means(noise)[0] == times.means
    assert abs(diagnostics.autocorrelation_time_means(noise)[0] - 1) < sure * np.sqrt(2 / 399)


def test_tau_by_means_refuses_what_has_no_means():
    for x in (np.zeros(9), np.zeros((1, 9)), np.zeros((9, 1))):
        with pytest.raises(pgm.PgmError, match=r"expected \(chains, draws\)"):
            diagnostics.autocorrelation_time_means(x)
    with pytest.raises(pgm.PgmError, match="constant"):
        diagnostics.autocorrelation_time_means(np.ones((4, 9)))
