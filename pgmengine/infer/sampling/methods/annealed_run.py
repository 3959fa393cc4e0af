"""Estimates of log Z by one annealing run, from its log importance weights.

A run has log importance weights (rows, chains) with E[w] = Z_end / Z_start, so that log Z = log Z_0
+ log mean w for a run up, and log Z_0 - log mean w for a run down (annealing.py). Chains compute in
single precision, and a run reports at least the error of this rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np

from pgmengine.base.checks import SINGLE_ROUNDING
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, States
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.rounding import known_log_z
from pgmengine.infer.diagnostics.trust import ERRORS_PER_INTERVAL_SIDE, pareto_shape


@dataclass(frozen=True, eq=False)
class AnnealedRun:
    """Estimates of log Z by one run, with the statistics of their importance weights.

    Attributes
    ----------
    log_z, error : (rows,), in nats.
    ess : (rows,), effective number of chains.
    log_weights : (rows, chains), log importance weights.
    shape : (rows,), shape of the Pareto tail of the importance weights.
    exact : (rows,), whether the run started from exact draws.
    last : layer -> (chains, width), last states, resampled by importance weight; of a single row.
    """

    log_z: Array
    error: Array
    ess: Array
    log_weights: Array
    shape: Array
    exact: Array
    last: States = field(default_factory=dict)

    @property
    def closed(self) -> Array:
        """Mask (rows,) of rows that are marginalised in closed form: all log weights are 0."""
        return np.asarray((self.log_weights == 0.0).all(axis=1))

    def take(self, rows: Array) -> AnnealedRun:
        """Return the estimates of some rows."""
        return joined_runs([self], rows)


# A forward run, and a reverse run if the settings ask for one.
Runs: TypeAlias = "tuple[AnnealedRun, AnnealedRun | None]"


def closed_run(log_z: Array, target: Target, chains: int) -> AnnealedRun:
    """Return the run of rows with log Z in closed form; rounding is the only error."""
    known, rows = known_log_z(target), target.rows
    possible = np.isfinite(log_z)
    error = np.where(np.isfinite(known), 0.0, SINGLE_ROUNDING * np.abs(log_z))
    every, none = np.where(possible, float(chains), 0.0), np.full(rows, np.nan)
    log_z = np.where(np.isfinite(known), known, log_z)
    weights = np.where(possible[:, None], np.zeros((rows, chains)), -np.inf)
    return AnnealedRun(log_z, error, every, weights, none, possible)


def impossible_run(rows: int, chains: int) -> AnnealedRun:
    """Return the reverse run of rows without a possible state."""
    unknown = np.full(rows, np.inf)
    none = np.full((rows, chains), -np.inf)
    return AnnealedRun(unknown, unknown, np.zeros(rows), none, -unknown, np.zeros(rows, dtype=bool))


def joined_runs(runs: Sequence[AnnealedRun], order: Array) -> AnnealedRun:
    """Return runs of different rows as one run, with the rows in the given order.

    The joined run has no last states.
    """
    names = [f.name for f in fields(AnnealedRun) if f.name != "last"]
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(run, name) for run in runs])[order] for name in names
    }
    return AnnealedRun(**joined)


def estimate(
    log_weights: Array, at_0: Array, sign: float, known: Array, rounding: Array
) -> AnnealedRun:
    """Return log Z = log Z_0 + sign * log mean w from log importance weights (rows, chains).

    Rows without annealed units have their `known` log Z. `rounding` is the error of single
    precision.
    """
    count = log_weights.shape[1]
    top = log_weights.max(axis=1, keepdims=True)
    w = np.exp(log_weights - np.where(np.isfinite(top), top, 0.0))
    mean = w.mean(axis=1)
    # Where all importance weights of a row are 0, the division is by 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        if count > 1:
            error = w.std(axis=1, ddof=1) / (mean * np.sqrt(count))
        else:
            error = np.full(len(w), np.inf)
        # Where all layers are marginalised, nothing is drawn, and rounding is the only error.
        sums = SINGLE_ROUNDING * np.maximum(np.abs(at_0), np.abs(top[:, 0]))
        error = np.sqrt(error**2 + sums**2 + (rounding / ERRORS_PER_INTERVAL_SIDE) ** 2)
        error = np.where(mean > 0, np.where(np.isfinite(known), 0.0, error), np.inf)
        ess = np.where(mean > 0, w.sum(axis=1) ** 2 / np.square(w).sum(axis=1), 0.0)
    log_z = at_0 + sign * (log_sum(log_weights, axis=1) - np.log(count))
    return AnnealedRun(
        np.where(np.isfinite(known), known, log_z),
        error,
        ess,
        log_weights,
        pareto_shape(log_weights, ess),
        np.full(len(w), True),
    )
