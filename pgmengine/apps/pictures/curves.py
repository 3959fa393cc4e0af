"""Curves and histograms of learning and of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.apps.pictures.style import BLUE, CYCLE, FAINT, SMALL, VERMILION, axes_of, framed
from pgmengine.base.errors import PgmError
from pgmengine.diagnostics import autocorrelation_function
from pgmengine.infer.results.result import Result
from pgmengine.learn.fit import Fit
from pgmengine.model.containers import as_floats

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
    mean, text = values.mean(axis=0), label or in_words(name)
    band = f"mean of {len(found)} fits, 2 standard errors"
    many = text if len(found) == 1 else f"{label}, {band}" if label else band
    color = CYCLE[len(ax.lines) % len(CYCLE)]
    ax.plot(found[0]["update"], mean, label=many, color=color)
    if len(found) > 1:
        error = 2 * values.std(axis=0, ddof=1) / np.sqrt(len(found))
        ends = mean - error, mean + error
        ax.fill_between(found[0]["update"], *ends, alpha=0.25, color=color, lw=0)
    if label or len(found) > 1 or len(ax.lines) > 1:
        # Curves may be added later, and the legend then moves to the best place.
        ax.legend(frameon=False, fontsize=SMALL + 1)
    return framed(ax, "updates", in_words(name))


# The beginning of the name of a monitored value -> words, with the unit.
WORDS = {
    "norm ": "norm of ",
    "log_likelihood": "log-likelihood, nats a row",
    "pseudo_likelihood": "pseudo-log-likelihood, nats a row",
    "reconstruction": "reconstruction error",
}


def in_words(name: str) -> str:
    """Return the name of a monitored value in words, with its unit if it has one.

    >>> in_words("norm v-h.weight"), in_words("log_likelihood"), in_words("valid_log_likelihood")
    ('norm of v-h.weight', 'log-likelihood, nats a row', 'valid log likelihood')
    """
    for start, words in WORDS.items():
        if name.startswith(start):
            rest = name.removeprefix(start)
            return words + (rest if words.endswith(" ") else rest.replace("_", " "))
    return name.replace("_", " ")


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
        chains = [as_floats(series, "series")]
    elif "energy" in series.stats:
        chains = list(series.stats["energy"][:, :, 0])
    else:
        raise PgmError(f"a Result of {type(series.method).__name__} has no chains with energies")
    curves = np.array([autocorrelation_function(chain)[: lags + 1] for chain in chains])
    ax, own = axes_of(ax), isinstance(series, Result)
    mean, color = curves.mean(axis=0), CYCLE[len(ax.get_legend_handles_labels()[0]) % len(CYCLE)]
    several = f"mean of {len(curves)} chains, 2 standard errors"
    text = label if len(curves) == 1 else f"{label}, {several}" if label else several
    # Curves without a label count, too, so that each has a colour of its own.
    ax.plot(mean, label=text or "series", color=color)
    if len(curves) > 1:
        error = 2 * curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
        ends = mean - error, mean + error
        ax.fill_between(np.arange(len(mean)), *ends, alpha=0.25, color=color, lw=0)
    ax.axhline(0.0, color=FAINT, lw=0.7, zorder=1)
    if text or len(ax.get_legend_handles_labels()[0]) > 1:
        ax.legend(frameon=False, fontsize=SMALL + 1)
    what = "autocorrelation of the energy" if own else "autocorrelation"
    return framed(ax, "lag, draws" if own else "lag", what)


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
    gap = 100 * (as_floats(bound, "bound") / as_floats(exact, "exact") - 1)
    ax = axes_of(ax)
    ax.hist(gap, bins=bins, color=BLUE)
    mean = float(gap.mean())
    error = f" \u00b1 {2 * gap.std(ddof=1) / np.sqrt(len(gap)):.2g}" if len(gap) > 1 else ""
    ax.axvline(mean, color=VERMILION, ls="--", label=f"mean {mean:.3g}{error} %")
    ax.legend(frameon=False, fontsize=SMALL + 1)
    return framed(ax, "relative error of the bound, %", "rows")
