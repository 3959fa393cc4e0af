"""How well a chain mixes: exact transition matrices and their spectrum, autocorrelation times,
changes of class.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import softmax
from pgmengine.base.types import Array, States
from pgmengine.engine.plain import moves
from pgmengine.graph.target import Target
from pgmengine.infer.convergence import chain_statistics, series_statistics

__all__ = [
    "Times",
    "autocorrelation_function",
    "autocorrelation_time",
    "autocorrelation_time_ar",
    "autocorrelation_time_means",
    "autocorrelation_times",
    "chain_statistics",
    "class_changes",
    "joint_states",
    "nearest_modes",
    "series_statistics",
    "slem",
    "transition_matrix",
]

log = logging.getLogger(__name__)
# standard errors of the variance of means by which another estimate of tau may differ from it
APART = 4.0
MOST_STATES = 8192  # a matrix of 0.5 GiB


def joint_states(target: Target) -> States:
    """All joint states of the free units of a target of one row, flat (states, width); the last
    unit changes fastest.
    """
    grid = _grid(target)
    index = _digits([len(support) for _, _, support in grid])
    out = {
        name: np.repeat(value, index.shape[1], axis=0)
        for name, value in target.evidence.values.items()
    }
    for (name, unit, support), digit in zip(grid, index, strict=True):
        columns = target.structure.layers[name].columns(np.array([unit]))
        out[name][:, columns] = support[digit]
    return out


def _digits(sizes: list[int]) -> Array:
    """Digits (places, numbers) of all numbers of these bases, the last place changing fastest."""
    return np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), dtype=int)


def _grid(target: Target) -> list[tuple[str, int, Array]]:
    """(layer, unit, support) of the free units."""
    if target.rows != 1:
        raise PgmError(f"one row of evidence is needed here, not {target.rows}")
    grid, states = [], 1
    for name, layer in target.structure.layers.items():
        for unit in np.flatnonzero(target.free[name][0]):
            if layer.unit.support is None:
                raise PgmError(
                    f"layer {name!r} has {layer.unit!r} units, whose states cannot be enumerated"
                )
            grid.append(
                (
                    name,
                    int(unit),
                    layer.unit.support.reshape(len(layer.unit.support), layer.unit.width),
                )
            )
            states *= len(layer.unit.support)
    if states > MOST_STATES:
        raise PgmError(
            f"the target has {states} joint states; the limit for a transition matrix is {MOST_STATES}"
        )
    return grid


def transition_matrix(target: Target, kernel: Any) -> Array:
    """The matrix T[x, y] = p(next = y | current = x) of one sweep, over joint_states(target).

    The units move one after the other in the order of a sweep; those of a layer that moves in one
    step do not see each other, so one after the other comes to the same.

    >>> import pgmengine as pgm
    >>> pgm.diagnostics.transition_matrix(pgm.rbm(1, 1, rng=0).given(), pgm.Gibbs()).shape
    (4, 4)
    """
    from scipy.sparse import csr_array

    grid = _grid(target)
    sizes = [len(support) for _, _, support in grid]
    states = int(np.prod(sizes))
    log_p = target.take(np.zeros(states, dtype=int)).log_density(joint_states(target))
    digits = _digits(sizes)
    matrix = np.eye(states)
    order = [name for names in target.visited for name in names]
    for u in sorted(range(len(grid)), key=lambda u: order.index(grid[u][0])):
        step = int(np.prod(sizes[u + 1 :]))
        reached = (np.arange(states) - digits[u] * step)[:, None] + step * np.arange(sizes[u])
        weights = log_p[reached]
        impossible = np.isneginf(weights).all(axis=1, keepdims=True)  # such a unit moves anywhere
        prob = softmax(np.where(impossible, 0.0, weights))
        move = (
            prob if target.beta[0] == 0 else moves(kernel, prob, digits[u])
        )  # at beta = 0 the draw is exact
        entries = (move.ravel(), (np.repeat(np.arange(states), sizes[u]), reached.ravel()))
        matrix = matrix @ csr_array(entries, shape=(states, states))
    return matrix


def slem(matrix: Array) -> float:
    """Second-largest eigenvalue modulus of a transition matrix (0 of a single state): the smaller,
    the sooner forgotten.

    >>> import pgmengine as pgm
    >>> round(pgm.diagnostics.slem([[0.9, 0.1], [0.2, 0.8]]), 6)
    0.7
    """
    sizes = np.sort(np.abs(np.linalg.eigvals(matrix)))
    return float(sizes[-2]) if len(sizes) > 1 else 0.0


def autocorrelation_function(x: Array, lags: int | None = None) -> Array:
    """rho(k) = Cov(x_t, x_(t+k)) / Var(x), k = 0 .. lags - 1, of a series (draws,) or chains
    (chains, draws).

    Chains share one mean; the sums of lag k are divided by the number of draws (the biased
    estimate).
    """
    x = np.atleast_2d(np.asarray(x, dtype=np.float64))
    n = x.shape[1]
    spectrum = np.fft.rfft(x - x.mean(), n=2 ** int(np.ceil(np.log2(2 * n))), axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n].mean(axis=0)
    if covariance[0] <= 0:
        raise PgmError("the series is constant: it has no autocorrelation")
    return covariance[:lags] / covariance[0]


def autocorrelation_time(x: Array, window: float = 5.0) -> float:
    """Tau = 1 + 2 sum_k rho(k) of a series (draws,) or chains (chains, draws).

    Summed up to the first lag M >= window * max(tau(M), 1) (Sokal 1997). Of a slow part that
    carries little of the variance this sees nothing: see `autocorrelation_times`.

    >>> import numpy as np
    >>> bool(abs(autocorrelation_time(np.random.default_rng(0).normal(size=10_000)) - 1) < 0.1)
    True
    """
    tau = 2 * np.cumsum(autocorrelation_function(x)) - 1
    enough = np.arange(len(tau)) >= window * np.maximum(tau, 1.0)
    return float(tau[enough.argmax() if enough.any() else -1])


def autocorrelation_time_ar(x: Array, order: int | None = None) -> float:
    """Tau of an autoregressive model fitted to x: (1 - sum phi_k rho(k)) / (1 - sum phi_k)^2
    (Thompson 2010).

    Yule-Walker fits of orders up to `order` (10 log10 of the draws), the one with the least AIC.
    Where tau is far above that order it comes out several times too small: see
    `autocorrelation_times`.
    """
    draws = np.shape(x)[-1]
    most = min(int(10 * np.log10(draws)) if order is None else order, draws - 1)
    rho = autocorrelation_function(x, most + 1)
    phi, noise = np.zeros(0), 1.0
    best, tau = draws * np.log(noise), 1.0
    for p in range(1, most + 1):  # Levinson-Durbin
        last = (rho[p] - phi @ rho[p - 1 : 0 : -1]) / noise
        phi = np.append(phi - last * phi[::-1], last)
        noise *= 1 - last**2
        if noise <= 0:
            break
        if draws * np.log(noise) + 2 * p < best:
            best = draws * np.log(noise) + 2 * p
            tau = noise / (1 - phi.sum()) ** 2
    return float(tau)


def autocorrelation_time_means(x: Array) -> tuple[float, float]:
    """Tau and its standard error, from the means of independent chains (chains, draws).

    The chains must start from exact draws of their distribution. Then the variance of their means
    is tau / draws times that of a draw, whatever the autocorrelation: no lag is cut off
    and no model fitted. It is too small by a share of about tau / draws, so use many times tau
    draws.

    >>> import numpy as np
    >>> tau, error = autocorrelation_time_means(np.random.default_rng(0).normal(size=(500, 100)))
    >>> bool(abs(tau - 1) < 4 * error)
    True
    """
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or min(x.shape) < 2:
        raise PgmError(f"x has shape {x.shape}, expected (chains, draws), at least two of each")
    variance = x.var()
    if variance <= 0:
        raise PgmError("the series is constant: it has no autocorrelation")
    tau = float(x.shape[1] * x.mean(axis=1).var(ddof=1) / variance)
    return tau, tau * float(np.sqrt(2 / (len(x) - 1)))


@dataclass(frozen=True)
class Times:
    """Three estimates of an autocorrelation time: by means (with its error), by a window, by AR."""

    means: float
    error: float
    window: float
    ar: float

    @property
    def agree(self) -> bool:
        """Whether the other two are within four standard errors of that by means."""
        return max(abs(self.window - self.means), abs(self.ar - self.means)) <= APART * self.error


def autocorrelation_times(x: Array) -> Times:
    """Tau by three estimators, of independent chains (chains, draws) that start from exact draws.

    A warning is logged where they disagree; then believe the first, `autocorrelation_time_means`.

    >>> import numpy as np
    >>> autocorrelation_times(np.random.default_rng(0).normal(size=(500, 100))).agree
    True
    """
    others = autocorrelation_time(x), autocorrelation_time_ar(x)
    times = Times(*autocorrelation_time_means(x), *others)
    if not times.agree:
        log.warning(
            "estimates of the autocorrelation time disagree: %.4g +- %.2g by the variance "
            "of means, %.4g by a window, %.4g by an autoregressive fit",
            times.means,
            times.error,
            times.window,
            times.ar,
        )
    return times


def nearest_modes(states: Array, modes: Array) -> Array:
    """Number of the mode (m, d) at the least Hamming distance from each state (..., d); -1 where
    several are.
    """
    distance = (np.asarray(states)[..., None, :] != np.asarray(modes)).sum(axis=-1)
    tied = (distance == distance.min(axis=-1, keepdims=True)).sum(axis=-1) > 1
    return np.where(tied, -1, distance.argmin(axis=-1))


def class_changes(states: Array, modes: Array) -> Array | int:
    """How often the nearest mode of a chain changes (system 2); states that are near several modes
    are dropped.

    states (steps, d) gives a number, (steps, chains, d) one for each chain.

    >>> import pgmengine as pgm
    >>> pgm.diagnostics.class_changes([[0, 0], [0, 1], [1, 1], [1, 1]], [[0, 0], [1, 1]])
    1
    """
    labels = nearest_modes(states, modes)
    if labels.ndim == 1:
        kept = labels[labels >= 0]
        return int((kept[1:] != kept[:-1]).sum())
    return np.array(
        [class_changes(np.asarray(states)[:, c], modes) for c in range(labels.shape[1])]
    )
