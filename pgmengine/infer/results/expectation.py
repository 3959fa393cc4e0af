"""Means of functions of draws, with standard errors that know how draws depend on each other.

The draws of a chain are correlated, so that the standard error of their mean is the one of MCMC
(convergence.py), and not the standard deviation over the root of their number. Draws without chains
are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.infer.diagnostics.convergence import series_statistics

# R-hat above which the text of an expectation says that the chains disagree: the default of the
# methods that judge their chains.
MAX_RHAT = 1.05

# Numbers of an expectation that its text shows.
MAX_NUMBERS_SHOWN = 6


@dataclass(frozen=True, eq=False)
class Expectation:
    """The mean of a function of the draws of an answer, and how far to trust it.

    Arrays have the shape of the function's values for one draw, with an axis of rows in front if
    the evidence has rows. 95 % of the time, the true mean lies within 1.96 standard errors of
    `mean`, if the chains agree.

    Attributes
    ----------
    mean : mean over all draws.
    error : its standard error; NaN where it is not known, because the draws are too few, the
        function had one value in all draws, or chains have answered some rows and a method without
        chains the others.
    ess : the number of independent draws that would have this error.
    rhat : R-hat of the function, which is near 1 where the chains agree; 1 for independent draws.
    doubt : the name of the answer's status, if that is not good, else an empty string.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(6, 3, rng=0), want=("samples",), rng=0)
    >>> r.expectation(lambda x: x["v"].sum(axis=-1))
    Expectation: 3.15 ± 0.037
    """

    mean: Array
    error: Array
    ess: Array
    rhat: Array
    doubt: str = ""

    def __repr__(self) -> str:
        numbers = zip(np.ravel(self.mean), np.ravel(self.error), strict=True)
        shown = [
            f"{mean:.4g} ± {'unknown' if np.isnan(error) else f'{error:.2g}'}"
            for mean, error in [*numbers][:MAX_NUMBERS_SHOWN]
        ]
        more = ", ..." if np.size(self.mean) > MAX_NUMBERS_SHOWN else ""
        worst = np.fmax.reduce(np.ravel(self.rhat), initial=1.0)
        note = f"; the chains disagree, R-hat {worst:.2f}" if worst > MAX_RHAT else ""
        doubt = f"; the answer is {self.doubt}" if self.doubt else ""
        return f"Expectation: {', '.join(shown)}{more}{note}{doubt}"


def expectation(
    function: Callable[[Mapping[Any, Array]], Array],
    samples: Mapping[Any, Array],
    draws: int,
    rows: int,
    chains: int | None,
    has_rows: bool,
    doubt: str,
) -> Expectation:
    """Return the mean of a function of draws.

    Parameters
    ----------
    function : takes `samples`, and returns its values (draws, rows, ...), or (draws,) for one row.
    samples : variable or layer -> (draws, rows, ...), one chain after another.
    draws, rows : the numbers of all draws and of rows.
    chains : the number of chains; 0 if the draws are independent, None if it is not known.
    has_rows : whether the answer has an axis of rows.
    doubt : the name of the answer's status if that is not good.

    Raises
    ------
    PgmError for values of another shape, and for values that are no numbers.
    """
    try:
        values = np.asarray(function(samples))
    except TypeError as error:
        if all(draw.dtype.kind in "biuf" for draw in samples.values()):
            raise
        raise PgmError(
            "expectation: the function failed: states that have names are given by these names, "
            f"to be compared, as x['lung'] == 'yes' ({error})"
        ) from error
    if rows == 1 and values.shape == (draws,):
        values = values[:, None]
    if values.shape[:2] != (draws, rows):
        raise PgmError(
            f"expectation: the function returned the shape {values.shape}, expected one value for "
            f"each draw and row, ({draws}, {rows}, ...): keep the first two axes of the samples"
        )
    if values.dtype.kind not in "biuf":
        raise PgmError(f"expectation: the function returned {values.dtype}, expected real numbers")
    series = values.reshape(draws, rows, -1).astype(np.float64)
    unknown = np.full(series.shape[1:], np.nan)
    if chains is None:
        stats = {"mcse": unknown, "ess": unknown, "rhat": unknown}
    elif chains:
        stats = series_statistics(series.reshape(chains, draws // chains, rows, -1))
    else:
        stats = {
            "mcse": series.std(axis=0, ddof=1) / np.sqrt(draws) if draws > 1 else unknown,
            "ess": np.full_like(unknown, draws),
            "rhat": np.ones_like(unknown),
        }
    # A value that never changes may have changed in the next draw.
    same = (series == series[:1]).all(axis=0)
    stats["mcse"] = np.where(same, np.nan, stats["mcse"])

    def shaped(x: Array) -> Array:
        whole = x.reshape(values.shape[1:])
        return whole if has_rows else whole[0]

    return Expectation(
        shaped(series.mean(axis=0)),
        shaped(stats["mcse"]),
        shaped(stats["ess"]),
        shaped(stats["rhat"]),
        doubt,
    )
