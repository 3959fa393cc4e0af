"""Diagnostics of Markov chains.

Exact transition matrices and their spectrum, for small models; autocorrelation times; changes of
class, for chains on data with known modes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

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

if TYPE_CHECKING:
    from pgmengine.protocols import Kernel

log = logging.getLogger(__name__)

# Estimates of an autocorrelation time agree if they differ by at most this many standard errors.
APART = 4.0

# States of a transition matrix, at most: a matrix of 0.5 GiB.
MOST_STATES = 8192


def joint_states(target: Target) -> States:
    """Return all joint states of the free units of a target.

    Parameters
    ----------
    target : a target with one row of evidence.

    Returns
    -------
    Layer -> (states, width of the layer), flat values. The last free unit changes fastest.

    Raises
    ------
    PgmError
        For several rows, units with infinitely many values, and more than 8192 states.

    >>> import pgmengine as pgm
    >>> pgm.diagnostics.joint_states(pgm.rbm(1, 1, rng=0).given())["h"].ravel()
    array([0., 1., 0., 1.])
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
    """Return the digits (places, numbers) of all numbers in a mixed radix, in ascending order."""
    return np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), dtype=int)


def _grid(target: Target) -> list[tuple[str, int, Array]]:
    """Return (layer, unit, support) of the free units."""
    if target.rows != 1:
        raise PgmError(f"the target has {target.rows} rows of evidence, expected one")
    grid, states = [], 1
    for name, layer in target.structure.layers.items():
        for unit in np.flatnonzero(target.free[name][0]):
            support = layer.unit.support
            if support is None:
                raise PgmError(
                    f"layer {name!r} has {layer.unit!r} units, whose states cannot be enumerated"
                )
            grid.append((name, int(unit), support.reshape(len(support), layer.unit.width)))
            states *= len(support)
    if states > MOST_STATES:
        raise PgmError(
            f"the target has {states} joint states, and a transition matrix may have at most "
            f"{MOST_STATES}; observe some units"
        )
    return grid


def transition_matrix(target: Target, kernel: Kernel) -> Array:
    """Return the transition matrix of one sweep.

    Use it to compare kernels by their spectrum on small models (`slem`), or to prove that a kernel
    leaves its distribution invariant. The units move one after the other in the order of a sweep.
    Units that a sweep moves at once are independent given the others, so that the order among them
    does not matter.

    Parameters
    ----------
    target : a target with one row of evidence and at most 8192 joint states.
    kernel : a Markov transition of single units, such as pgm.Gibbs().

    Returns
    -------
    T (states, states) with T[x, y] = p(next = y | current = x), states as in `joint_states`.

    Raises
    ------
    PgmError
        For a target whose states cannot be enumerated.

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
        # Where the other units are in an impossible state, the unit moves anywhere.
        impossible = np.isneginf(weights).all(axis=1, keepdims=True)
        prob = softmax(np.where(impossible, 0.0, weights))
        # At beta = 0 sweeps draw exactly, by any kernel.
        move = prob if target.beta[0] == 0 else moves(kernel, prob, digits[u])
        entries = (move.ravel(), (np.repeat(np.arange(states), sizes[u]), reached.ravel()))
        matrix = matrix @ csr_array(entries, shape=(states, states))
    return matrix


def slem(matrix: ArrayLike) -> float:
    """Return the second largest eigenvalue modulus of a transition matrix.

    The distance to the stationary distribution shrinks by this factor in a step, in the long run.

    Parameters
    ----------
    matrix : (states, states), a transition matrix.

    Returns
    -------
    The modulus, from 0 to 1; 0 for a single state.

    >>> import pgmengine as pgm
    >>> round(pgm.diagnostics.slem([[0.9, 0.1], [0.2, 0.8]]), 6)
    0.7
    """
    sizes = np.sort(np.abs(np.linalg.eigvals(np.asarray(matrix))))
    return float(sizes[-2]) if len(sizes) > 1 else 0.0


def autocorrelation_function(x: ArrayLike, lags: int | None = None) -> Array:
    """Return rho(k) = Cov(x_t, x_(t+k)) / Var(x).

    Parameters
    ----------
    x : a series (draws,) or several chains (chains, draws), which share one mean.
    lags : number of lags, all of them by default.

    Returns
    -------
    rho (lags,) of k = 0, 1, ...; the sums of every lag are divided by the number of draws (the
    biased estimate).

    Raises
    ------
    PgmError
        For a constant series.

    >>> import pgmengine as pgm
    >>> pgm.diagnostics.autocorrelation_function([1.0, -1.0, 1.0, -1.0], lags=3).round(6)
    array([ 1.  , -0.75,  0.5 ])
    """
    x = np.atleast_2d(np.asarray(x, dtype=np.float64))
    n = x.shape[1]
    spectrum = np.fft.rfft(x - x.mean(), n=2 ** int(np.ceil(np.log2(2 * n))), axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n].mean(axis=0)
    if covariance[0] <= 0:
        raise PgmError("the series is constant: it has no autocorrelation")
    rho: Array = covariance[:lags] / covariance[0]
    return rho


def autocorrelation_time(x: ArrayLike, window: float = 5.0) -> float:
    """Return the autocorrelation time tau = 1 + 2 sum_k rho(k), with a window for the sum.

    The sum ends at the first lag M with M >= window * max(tau(M), 1). It misses a slow component
    that carries little of the variance; `autocorrelation_times` shows whether there is one.

    Parameters
    ----------
    x : a series (draws,) or chains (chains, draws).
    window : length of the window, in autocorrelation times.

    Returns
    -------
    tau, in draws.

    References
    ----------
    Sokal (1997), "Monte Carlo methods in statistical mechanics: foundations and new algorithms".

    >>> import numpy as np
    >>> bool(abs(autocorrelation_time(np.random.default_rng(0).normal(size=10_000)) - 1) < 0.1)
    True
    """
    tau = 2 * np.cumsum(autocorrelation_function(x)) - 1
    enough = np.arange(len(tau)) >= window * np.maximum(tau, 1.0)
    return float(tau[enough.argmax() if enough.any() else -1])


def autocorrelation_time_ar(x: ArrayLike, order: int | None = None) -> float:
    """Return the autocorrelation time of an autoregressive model that is fitted to the series.

    The fit solves the Yule-Walker equations for every order up to `order`, and takes the one with
    the smallest AIC; then tau = (1 - sum phi_k rho(k)) / (1 - sum phi_k)^2. If tau is far above
    the order, the estimate is several times too small; see `autocorrelation_times`.

    Parameters
    ----------
    x : a series (draws,) or chains (chains, draws).
    order : the largest order, 10 log10(draws) by default.

    Returns
    -------
    tau, in draws.

    References
    ----------
    Thompson (2010), "A comparison of methods for computing autocorrelation time".

    >>> import numpy as np
    >>> bool(abs(autocorrelation_time_ar(np.random.default_rng(0).normal(size=10_000)) - 1) < 0.1)
    True
    """
    draws = np.shape(x)[-1]
    most = min(int(10 * np.log10(draws)) if order is None else order, draws - 1)
    rho = autocorrelation_function(x, most + 1)
    phi, noise = np.zeros(0), 1.0
    best, tau = draws * np.log(noise), 1.0
    # The Levinson-Durbin recursion gives the fits of all orders in turn.
    for p in range(1, most + 1):
        last = (rho[p] - phi @ rho[p - 1 : 0 : -1]) / noise
        phi = np.append(phi - last * phi[::-1], last)
        noise *= 1 - last**2
        if noise <= 0:
            break
        if draws * np.log(noise) + 2 * p < best:
            best = draws * np.log(noise) + 2 * p
            tau = noise / (1 - phi.sum()) ** 2
    return float(tau)


def autocorrelation_time_means(x: ArrayLike) -> tuple[float, float]:
    """Return the autocorrelation time from the means of independent chains, and its error.

    The variance of the mean of a chain is tau / draws times the variance of a draw, whatever the
    autocorrelation: the estimate cuts off no lags and fits no model. It is too small by a share of
    about tau / draws, so make chains of many times tau draws.

    Parameters
    ----------
    x : (chains, draws), at least two of each. The chains must start from exact draws of their
        distribution.

    Returns
    -------
    tau and its standard error, in draws.

    Raises
    ------
    PgmError
        For arrays of another shape, and for a constant series.

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
    """Three estimates of an autocorrelation time, in draws.

    Attributes
    ----------
    means, error : `autocorrelation_time_means`, and its standard error.
    window : `autocorrelation_time`.
    ar : `autocorrelation_time_ar`.
    """

    means: float
    error: float
    window: float
    ar: float

    @property
    def agree(self) -> bool:
        """Whether `window` and `ar` are within four standard errors of `means`."""
        return max(abs(self.window - self.means), abs(self.ar - self.means)) <= APART * self.error


def autocorrelation_times(x: ArrayLike) -> Times:
    """Return three estimates of the autocorrelation time, and log a warning if they disagree.

    If they disagree, trust the first, `autocorrelation_time_means`.

    Parameters
    ----------
    x : (chains, draws), independent chains that start from exact draws.

    Returns
    -------
    The estimates; their property `agree` says whether they agree.

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


def nearest_modes(states: ArrayLike, modes: ArrayLike) -> Array:
    """Return the number of the mode with the smallest Hamming distance from each state.

    Parameters
    ----------
    states : (..., d).
    modes : (m, d).

    Returns
    -------
    Numbers (...,) from 0 to m - 1; -1 where several modes are equally near.

    >>> import pgmengine as pgm
    >>> pgm.diagnostics.nearest_modes([[0, 0, 1], [1, 1, 0]], [[0, 0, 0], [1, 1, 1]])
    array([0, 1])
    """
    distance = (np.asarray(states)[..., None, :] != np.asarray(modes)).sum(axis=-1)
    tied = (distance == distance.min(axis=-1, keepdims=True)).sum(axis=-1) > 1
    return np.where(tied, -1, distance.argmin(axis=-1))


def class_changes(states: ArrayLike, modes: ArrayLike) -> Array | int:
    """Count how often the nearest mode of a chain changes.

    Use it to compare samplers on data with known modes (`datasets.artificial_modes`). States that
    are equally near to several modes are left out.

    Parameters
    ----------
    states : (steps, d), or (steps, chains, d).
    modes : (m, d).

    Returns
    -------
    The number of changes, or an array (chains,) of them.

    References
    ----------
    Brügge, Fischer and Igel (2013), "The flip-the-state transition operator for restricted
    Boltzmann machines".

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
