"""Curves and histograms of learning and of answers, the second half of `pgmengine.plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.apps.graph_pictures import axes_of
from pgmengine.base.errors import PgmError
from pgmengine.diagnostics import autocorrelation_function
from pgmengine.infer.results.result import Result
from pgmengine.learn.fit import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Name of a monitored value -> {"update": (n,), "value": (n,)}.
History: TypeAlias = Mapping[str, Mapping[str, ArrayLike]]


def history(
    fits: Fit | History | Sequence[Fit | History],
    name: str,
    ax: Axes | None = None,
    label: str | None = None,
) -> Axes:
    """Draw a monitored value against updates.

    Parameters
    ----------
    fits : a result of pgm.fit, or its history. Several of them give their mean, with a band of two
        standard errors.
    name : the monitored value.
    ax : where to draw; new Axes by default.
    label : text of the legend, the name by default.

    Raises
    ------
    PgmError
        For a value that was not monitored.

    >>> import pgmengine as pgm
    >>> x = pgm.datasets.bars_and_stripes().x_train
    >>> norms = pgm.WeightNorms(every=5)
    >>> f = pgm.fit(
    ...     pgm.rbm(16, 4, rng=0), {"v": x}, updates=20, callbacks=[norms], progress=False
    ... )
    >>> ax = pgm.plots.history(f, "norm v-h.weight")
    """
    several = [fits] if isinstance(fits, (Fit, Mapping)) else fits
    histories = [f.history if isinstance(f, Fit) else f for f in several]
    if missing := [h for h in histories if name not in h]:
        there = f"there is {', '.join(missing[0])}" if missing[0] else "give callbacks= to fit"
        raise PgmError(f"{name!r} was not monitored; {there}")
    found = [h[name] for h in histories]
    ax = axes_of(ax)
    values = np.stack([np.asarray(h["value"], dtype=np.float64) for h in found])
    mean = values.mean(axis=0)
    line = ax.plot(found[0]["update"], mean, label=label or name)[0]
    if len(found) > 1:
        error = 2 * values.std(axis=0, ddof=1) / np.sqrt(len(found))
        ax.fill_between(
            found[0]["update"], mean - error, mean + error, alpha=0.25, color=line.get_color()
        )
    ax.set(xlabel="updates", ylabel=name)
    return ax


def levels(result: Result, row: int = 0, chain: int = 0, ax: Axes | None = None) -> Axes:
    """Draw the inverse temperature of a chain of SimulatedTempering against time.

    Parameters
    ----------
    result : an answer of SimulatedTempering. Its adaptive sweeps are shaded.
    row, chain : numbers of the row of evidence and of the chain.
    ax : where to draw; new Axes by default.

    Raises
    ------
    PgmError
        For the result of another method.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(4, 2, rng=0), method=pgm.SimulatedTempering(draws=100), rng=0)
    >>> ax = pgm.plots.levels(r)
    """
    if "levels" not in result.stats:
        raise PgmError("only results of SimulatedTempering have levels")
    ax = axes_of(ax)
    betas = np.atleast_2d(result.stats["betas"])
    levels = result.stats["levels"][:, row, chain]
    ax.step(np.arange(len(levels)), betas[row if len(betas) > 1 else 0, levels], lw=0.7)
    ax.axvspan(0, int(np.sum(result.stats["adaptive"])), alpha=0.15, color="gray")
    ax.set(xlabel="sweep", ylabel="beta")
    return ax


def autocorrelation(
    series: Result | ArrayLike, lags: int = 100, ax: Axes | None = None, label: str | None = None
) -> Axes:
    """Draw the autocorrelation function of a series, or of the energies of chains.

    Parameters
    ----------
    series : (draws,), or an answer of chains: the mean over the chains of the first row of
        evidence.
    lags : the largest lag, in sweeps.
    ax : where to draw; new Axes by default.
    label : text of the legend.

    Raises
    ------
    PgmError
        For the result of a method without chains.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> ax = pgm.plots.autocorrelation(np.random.default_rng(0).normal(size=500))
    """
    if not isinstance(series, Result):
        chains = [np.asarray(series)]
    elif "energy" in series.stats:
        chains = list(series.stats["energy"][:, :, 0])
    else:
        raise PgmError(f"a Result of {type(series.method).__name__} has no chains with energies")
    curves = np.array([autocorrelation_function(chain)[: lags + 1] for chain in chains])
    ax = axes_of(ax)
    ax.plot(curves.mean(axis=0), label=label)
    ax.axhline(0.0, color="gray", lw=0.5)
    ax.set(xlabel="lag, sweeps", ylabel="autocorrelation of the energy")
    return ax


def bound_gap(bound: ArrayLike, exact: ArrayLike, ax: Axes | None = None, bins: int = 40) -> Axes:
    """Draw a histogram of the relative error of bounds, bound / exact - 1, in per cent.

    Parameters
    ----------
    bound, exact : (n,), bounds of log-likelihoods and their exact values.
    ax : where to draw; new Axes by default.
    bins : number of bins.

    References
    ----------
    Saul, Jaakkola and Jordan (1996), "Mean field theory for sigmoid belief networks", figure 5.

    >>> import pgmengine as pgm
    >>> ax = pgm.plots.bound_gap([-4.1, -4.3], [-4.0, -4.2])
    """
    ax = axes_of(ax)
    ax.hist(100 * (np.asarray(bound) / np.asarray(exact) - 1), bins=bins)
    ax.set(xlabel="relative error of the bound, %", ylabel="count")
    return ax
