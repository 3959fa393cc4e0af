"""Elimination against transfer matrices, the forward algorithm and Kaufman's formula."""

import math

import numpy as np
import pytest
from lattices import coupled, edges, weights_of
from loops import one_test_over
from scipy.special import logsumexp

import pgmengine as pgm

CLOSE = {"rtol": 1e-10}


def test_chain_of_10_000_categorical_units():
    rng = np.random.default_rng(0)
    n, k = 10_000, 3
    tables = rng.gamma(0.5, size=(n - 1, k, k))
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Categorical(k), n)
    at = np.arange(n - 1)
    b.tables(("x", "x"), np.stack([at, at + 1], axis=1), tables)
    message, log_z = np.ones(k), 0.0
    for t in tables:
        message = message @ t
        log_z += math.log(message.sum())
        message = message / message.sum()
    r = pgm.infer(b.build(), want=("log_z", "marginals"))
    assert r.kind == "exact"
    np.testing.assert_allclose(r.log_z, log_z, **CLOSE)
    np.testing.assert_allclose(r.mean["x"][-1], message, atol=1e-10)


def log_z_by_rows(across, down):
    """The transfer matrix from row to row, one unit at a time, in log space."""
    m = down.shape[1]
    spins = 1 - 2 * (np.arange(2**m)[:, None] >> np.arange(m) & 1)
    log = np.zeros(2**m)
    for row in range(len(across)):
        if row:
            for j in range(m):
                log = log.reshape(-1, 2, 2**j)
                c = down[row - 1, j]
                up = np.logaddexp(log[:, 0] + c, log[:, 1] - c)
                low = np.logaddexp(log[:, 0] - c, log[:, 1] + c)
                log = np.stack([up, low], axis=1).ravel()
        log = log + (spins[:, :-1] * spins[:, 1:]) @ across[row]
    return logsumexp(log)


@pytest.mark.parametrize(
    "side", (9, pytest.param(14, marks=pytest.mark.long), pytest.param(20, marks=pytest.mark.long))
)
@pytest.mark.parametrize("scale", (0.01, 1.0, 30.0, 500.0))
def test_frustrated_lattices(side, scale):
    rng = np.random.default_rng(side)
    across, down = (
        scale * rng.choice([-1, 1], s) * rng.uniform(0.5, 1, s)
        for s in ((side, side - 1), (side - 1, side))
    )
    values = np.concatenate([across.ravel(), down.ravel()])
    weight = weights_of(edges(side), values, side * side)
    r = pgm.infer(coupled(weight.toarray()), want=("log_z",), method=pgm.Elimination())
    np.testing.assert_allclose(r.log_z, log_z_by_rows(across, down), **CLOSE)


def kaufman(n, m, k):
    """log Z of the periodic n x m Ising model with coupling k (Kaufman 1949)."""

    def gamma(j):
        if j == 0:
            return 2 * k + math.log(math.tanh(k))
        c = math.cosh(2 * k) / math.tanh(2 * k) - math.cos(math.pi * j / m)
        return math.acosh(c)

    odd, even = ([gamma(2 * r + s) for r in range(m)] for s in (1, 0))
    parts = [
        math.prod(2 * math.cosh(n * g / 2) for g in odd),
        math.prod(2 * math.sinh(n * g / 2) for g in odd),
        math.prod(2 * math.cosh(n * g / 2) for g in even),
        math.prod(2 * math.sinh(n * g / 2) for g in even),
    ]
    return n * m / 2 * math.log(2 * math.sinh(2 * k)) + math.log(sum(parts) / 2)


@one_test_over("coupling", (0.1, 0.44068679350977147, 1.0))
def test_periodic_ising_model(coupling):
    n = 8
    g = np.arange(n * n).reshape(n, n)
    pairs = [np.stack([g.ravel(), np.roll(g, -1, axis).ravel()], axis=1) for axis in (0, 1)]
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), n * n)
    values = np.exp(coupling * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    b.tables(("x", "x"), np.concatenate(pairs), values)
    r = pgm.infer(b.build(), want=("log_z",), method=pgm.Elimination())
    np.testing.assert_allclose(r.log_z, kaufman(n, n, coupling), **CLOSE)
