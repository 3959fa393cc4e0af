"""Draws of models from the Dirichlet posterior of tables that were counted.

Given complete rows, the rows of all conditionals are independent. With the counts N of a row and
the pseudocounts a of the fit its posterior is

    p ~ Dirichlet(N + a),

whose mean is the learned row, (N + a) / sum of (N + a). The prior is Dirichlet(a): with a = 1, the
default of EM, it is uniform over all probabilities. Entries that are fixed stay, and the others of
their row share the probability that is left. A Dirichlet row is a row of Gamma numbers divided by
their sum. Their logarithms are drawn, as log Gamma(a) = log Gamma(a + 1) + (log U) / a, because
Gamma numbers of small a underflow.

References: Spiegelhalter and Lauritzen (1990), Sequential updating of conditional probabilities on
directed graphical structures; Marsaglia and Tsang (2000) for Gamma(a) by Gamma(a + 1).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pgmengine.base.checks import seeded, whole
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, RngLike, Weight
from pgmengine.declare.model import Model
from pgmengine.declare.model_draws import Models
from pgmengine.learn.judging.account import Account


def posterior_of(
    model: Model, params: Mapping[str, Weight], account: Account, draws: int, rng: RngLike
) -> Models:
    """Return draws of a model from the posterior of its tables; PgmError where it has none."""
    counts = account.row_counts.get(
        "the posterior of the tables (pgm.bootstrap has models of any fit)"
    )
    count, source = whole("draws", draws), seeded(rng)
    alphas = {key: _concentration(params, account, key, total) for key, total in counts.items()}
    out = []
    for _ in range(count):
        drawn = {key: _drawn(np.asarray(params[key]), alphas[key], source) for key in counts}
        out.append(model.with_params(drawn))
    return Models(model, tuple(out), "from the Dirichlet posterior of the tables")


def _concentration(params: Mapping[str, Weight], account: Account, key: str, total: Array) -> Array:
    """Return the numbers of the Dirichlet distribution of each row; 0 for entries that stay."""
    prob = np.exp(params[key])
    free = np.where(account.stays.get(key, np.False_), 0.0, prob)
    left = free.sum(axis=-1, keepdims=True)
    return np.asarray(free / np.where(left > 0, left, 1.0) * total[..., None])


def _drawn(logs: Array, alpha: Array, rng: np.random.Generator) -> Array:
    """Return the logarithms of rows of a draw."""
    moves = alpha > 0
    own = alpha[moves]
    gammas = np.full(logs.shape, -np.inf)
    gammas[moves] = np.log(rng.standard_gamma(own + 1.0)) - rng.standard_exponential(len(own)) / own
    some = moves.any(axis=-1, keepdims=True)
    left = np.where(moves, np.exp(logs), 0.0).sum(axis=-1, keepdims=True)
    total = log_sum(np.where(some, gammas, 0.0), axis=-1)[..., None]
    shared = gammas - total + np.log(np.where(some, left, 1.0))
    return np.asarray(np.where(moves, shared, logs))
