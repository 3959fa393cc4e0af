"""Autocorrelation functions and times, by a window, a fitted model, or the means of chains."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.model.containers import as_floats

log = logging.getLogger(__name__)

# Estimates of an autocorrelation time agree if they differ by at most this many standard errors.
MAX_TIME_GAP_IN_ERRORS = 4.0


def autocorrelation_function(x: ArrayLike, lags: int | None = None) -> Array:
    """Return rho(k) = Cov(x_t, x_(t+k)) / Var(x).

    Parameters
    ----------
    x : a series (draws,) or several chains (chains, draws), which share one mean.
    lags : number of lags, all of them by default.

    Returns
    -------
    rho (lags,) for k = 0, 1, ... The sum of each lag is divided by the number of draws (the biased
    estimate).

    Raises
    ------
    PgmError
        For a constant series.

    >>> import pgmengine as pgm
    >>> pgm.diagnostics.autocorrelation_function([1.0, -1.0, 1.0, -1.0], lags=3).round(6)
    array([ 1.  , -0.75,  0.5 ])
    """
    x = np.atleast_2d(as_floats(x, "the series"))
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

    The Yule-Walker equations are solved for every order up to `order`, and the fit with the
    smallest AIC is taken. Then tau = (1 - sum phi_k rho(k)) / (1 - sum phi_k)^2. If the true tau is
    far above the order, the estimate is several times too small; see `autocorrelation_times`.

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

    The variance of the mean of a chain is tau / draws times the variance of a draw. This holds for
    any autocorrelation, so that the estimate needs neither a window nor a model. It is too small by
    a share of about tau / draws: make chains many times as long as tau.

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
    x = as_floats(x, "the series")
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
        return (
            max(abs(self.window - self.means), abs(self.ar - self.means))
            <= MAX_TIME_GAP_IN_ERRORS * self.error
        )


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
