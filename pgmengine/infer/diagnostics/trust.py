"""Rules for the trust in estimates, the same for all methods that make them.

Chains are judged by R-hat and by their effective number of draws (both from convergence.py).
Importance weights are judged by their effective number, ess = (sum w)^2 / sum w^2, and by the shape
of the Pareto tail of the largest weights. Ladders are judged by tours: ways of a chain from beta =
0 to beta = 1 and back. The tests compare the intervals with exact answers of many small models
(tests/infer/test_interval_coverage.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from pgmengine.base.checks import SINGLE_ROUNDING
from pgmengine.base.types import Array
from pgmengine.base.work.interrupts import whole_import
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.convergence import (
    MIN_CHAINS_FOR_SPREAD,
    MIN_DRAWS_FOR_AUTOCORRELATION,
    MIN_DRAWS_PER_CHAIN_FOR_RHAT,
    too_short,
)
from pgmengine.infer.diagnostics.rounding import known_log_z, rounding_of_chains
from pgmengine.infer.results.result import Status
from pgmengine.model.structure import Structure

# Statuses with the warnings that are the reasons for them. A status without warnings does not
# apply.
Doubts: TypeAlias = "list[tuple[Status, tuple[str, ...]]]"

# Half the width of an interval, in standard errors.
ERRORS_PER_INTERVAL_SIDE = 3.0

# Largest difference, in standard errors, of means of chains from exact means or from the means of a
# ladder. It is large because thousands of units are compared, and standard errors are estimates.
MAX_MEAN_GAP_IN_ERRORS = 6.0

# Smallest effective number of draws as a share of all draws.
MIN_WEIGHT_SHARE = 0.05

# Smallest effective number of draws, or a third of the draws if there are fewer than 60. With
# fewer, the standard error itself is too uncertain.
MIN_EFFECTIVE_DRAWS = 20.0

# Smallest effective number of forward draws, or a third of the draws if there are fewer than 600,
# whatever share of the draws it is. Rare evidence needs many draws for each that counts, which says
# nothing against the ones that count, of which none has more than 8 % of the weight. Random
# networks with evidence of 1e-2 to 1e-7: 2,061 of 2,090 answers good, all intervals of these hold.
# Six published networks: 251 of 281 good down to 1e-6, of which 2 missed; 139 of 199 down to 1e-10,
# of which 4 missed. With the share as a limit: 147 and 62 good, of which 1 and 1 missed.
MIN_EFFECTIVE_FORWARD_DRAWS = 200.0

# Largest shape k of the Pareto tail of importance weights.
MAX_PARETO_SHAPE = 0.7

# Smallest number of draws for an estimate of the shape of a tail.
MIN_TAIL_DRAWS = 25

# An importance weight counts as 0 if its log is further below the largest log, in nats.
MAX_LOG_WEIGHT_GAP = 600.0

# Smallest number of tours for the draws of a row. With fewer tours, spin glasses of 20 spins had
# means with errors of 0.1 to 0.4 and the status OK.
MIN_TOURS = 20

# Smallest number of tours for log Z by stepping stones. With 74 tours, 2 of 29 intervals with a
# good status missed the exact log Z; with 460 tours, none of 100.
MIN_TOURS_FOR_LOG_Z = 100

# Smallest limit of the R-hat of log Z. By chance alone, the R-hat of eight half-chains of 20
# independent batches exceeds 1.05 in one case of 100, and 1.1 in one case of 100,000.
MIN_RHAT_LIMIT_OF_LOG_Z = 1.1

# Number of batches of each chain from which a standard error is computed.
BATCHES_PER_CHAIN = 40

# Smallest effective number of draws with which R-hat and MCSE, which are estimates, can be relied
# upon (Vehtari et al. 2021). With fewer, chains of a density with two modes agreed by chance, and
# their means had errors of five MCSE.
MIN_DRAWS_FOR_RHAT = 400

# Smallest number of times that the sweeps of all chains together have to be as long as the time in
# which chains from opposite starts met. This time is about the time of the slowest change, whatever
# the weights of the parts of the space between which it leads, and does not depend on the draws.
MIN_TIMES_APART = 100

# With as many times, as with as many effective draws of units, chains need no ladder beside them.
MANY_TIMES_APART = 400

# Sweeps in which chains from opposite starts may meet even if they make few sweeps in all. Without
# any coupling, the last of six pairs meets after 2 to 8 sweeps, and one in a million after 25.
SOON_APART, MOST_APART = 10, 25

# Said where the draws of chains are too few, and nothing else is wrong.
CHAINS_AGREE = "the chains agree"

# Largest share of series that may exceed a limit: the largest of thousands does so by chance.
MAX_SHARE_BEYOND_LIMIT = 0.01


def interval(low: Array, low_error: Array, high: Array, high_error: Array) -> Array:
    """Return the intervals (rows, 2) around `low` and `high`.

    They reach from ERRORS_PER_INTERVAL_SIDE standard errors below `low` to as many above `high`.
    An end that is NaN, since an estimate or its error is infinite, becomes -inf or inf.
    """
    with np.errstate(invalid="ignore"):
        low = low - ERRORS_PER_INTERVAL_SIDE * low_error
        high = high + ERRORS_PER_INTERVAL_SIDE * high_error
    ends = np.stack((low, high), axis=1)
    return np.where(np.isnan(ends), (-np.inf, np.inf), ends)


def with_rounding(
    target: Target, log_z: Array, error: Array, ends: Array
) -> tuple[Array, Array, Array]:
    """Return log Z, its error and its interval (rows, 2) from chains in single precision.

    Errors and intervals include the rounding error of the chains, which is the only error if all
    draws are equal. In rows without anything to draw, log Z is the log density of the only state.
    """
    known = known_log_z(target)
    rounding = rounding_of_chains(target)
    rounding = rounding + SINGLE_ROUNDING * np.where(np.isfinite(log_z), np.abs(log_z), 0.0)
    wide = ends + np.multiply.outer(rounding, (-1.0, 1.0))
    sure = np.isfinite(known)
    return (
        np.where(sure, known, log_z),
        np.where(sure, 0.0, np.hypot(error, rounding / ERRORS_PER_INTERVAL_SIDE)),
        np.where(sure[:, None], known[:, None], wide),
    )


def least_effective(draws: int) -> float:
    """Return the smallest effective number of draws that can be trusted, also as a share of all."""
    return max(MIN_WEIGHT_SHARE * draws, min(MIN_EFFECTIVE_DRAWS, draws / 3))


def few(ess: Array, draws: int, least: float | None = None) -> bool:
    """Return whether the smallest effective number (rows,) of draws is too small to be trusted."""
    # The negation makes NaN count as too small.
    return not ess.min() >= (least_effective(draws) if least is None else least)


def few_weights(
    ess: Array, draws: int, numbers: Array, what: str = "draws", least: float | None = None
) -> tuple[str, ...]:
    """Return a warning where few of a row's draws carry most of the importance weight.

    `ess` (rows,) is their effective number, `least` the smallest one that can be trusted, by
    default `least_effective`, and `numbers` has the numbers by which messages name the rows.
    """
    if not few(ess, draws, least):
        return ()
    return (
        f"an effective {ess.min():.3g} of {draws} {what} carry the importance weight of row "
        f"{numbers[ess.argmin()]}",
    )


def heavy_tail(shape: Array, numbers: Array) -> tuple[str, ...]:
    """Return a warning where the Pareto shape (rows,) of importance weights is too large."""
    if not len(rows := heavy(shape)):
        return ()
    return (
        f"the importance weights of row {numbers[rows[0]]} have a heavy tail, of Pareto shape "
        f"{shape[rows[0]]:.2g}: the largest of them is yet to come",
    )


def row_beyond(beyond: Array) -> int | None:
    """Return the row with the largest number above 0, or None; NaN counts as no number.

    A row with NaN, such as one with a bound of -inf, has no verdict and must not hide other rows.
    """
    row = int(np.argmax(np.nan_to_num(beyond, nan=-np.inf)))
    return row if beyond[row] > 0 else None


def pareto_shape(log_weights: Array, ess: Array) -> Array:
    """Return the shape k (rows,) of a Pareto tail of the largest importance weights.

    Moments of order 1 / k and above do not exist: above 1/2 the weights have no variance, above 1
    no mean. The shape is NaN where the effective number is a third of the draws or more, because
    the tail then does not matter, and where a row has too few different weights for a tail.

    Parameters
    ----------
    log_weights : (rows, draws).
    ess : (rows,), effective number of draws.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao and Gabry 2024, "Pareto smoothed importance sampling".
    """
    out = np.full(len(log_weights), np.nan)
    for row in np.flatnonzero(ess < log_weights.shape[1] / 3):
        weights = log_weights[row]
        positive = weights[weights > weights.max() - MAX_LOG_WEIGHT_GAP]
        if len(positive) >= MIN_TAIL_DRAWS and len(np.unique(positive)) > len(positive) / 2:
            # Imported here because the import takes a second or two, and few answers need it.
            with whole_import():
                from arviz_stats.base import array_stats

            # With its own log_weights=True ArviZ fits the tail of the logarithms.
            out[row] = array_stats.pareto_khat(
                np.exp(positive - positive.max())[None],
                chain_axis=0,
                draw_axis=1,
                r_eff=1.0,
                tail="right",
            )
    return out


def heavy(shape: Array) -> Array:
    """Return the rows whose Pareto shape (rows,) is too large for their mean to be relied upon.

    The limit is that of Vehtari et al. (2024) for large samples. Their lower limit for small
    samples would reject a third of all sets of a hundred weights whose logarithms are normal with a
    standard deviation of 1, although the intervals of these sets cover the exact value.
    """
    return np.flatnonzero(shape > MAX_PARETO_SHAPE)


def normal_end(log_weights: Array) -> Array:
    """Return an upper end (rows,) of log mean exp w, for normal log weights.

    It lies ERRORS_PER_INTERVAL_SIDE standard errors above the estimate. The logarithm of the mean
    of few skewed weights is too low far more often than its standard error says. Log importance
    weights (rows, draws) are sums of many small terms and so are nearly normal: log E exp w =
    m + s^2 / 2, whose error follows from the errors of m and s^2.
    """
    count = log_weights.shape[1]
    with np.errstate(invalid="ignore"):
        variance = log_weights.var(axis=1) * count / max(count - 1, 1)
        error = np.sqrt(variance / count + variance**2 / (2 * max(count - 1, 1)))
        end = log_weights.mean(axis=1) + variance / 2 + ERRORS_PER_INTERVAL_SIDE * error
    return np.where(np.isfinite(end), end, -np.inf)


def needed_tours(target: Target, tours: Array) -> Array:
    """Return tours (rows,), infinitely many in rows without anything to draw, which need none."""
    return np.where(np.isfinite(known_log_z(target)), np.inf, tours)


def few_tours(tours: Array, numbers: Array, least: int = MIN_TOURS) -> tuple[str, ...]:
    """Return a warning where the draws of a row come from too few tours (rows,) on a ladder.

    `numbers` has the numbers by which messages name the rows.
    """
    row = int(tours.argmin())
    if tours[row] >= least:
        return ()
    return (
        f"the draws of row {numbers[row]} are worth {tours[row]:.3g} independent tours from "
        f"beta = 0 to beta = 1 and back, at least {least} are needed: use more temperatures, or "
        "draw longer",
    )


def worst(doubts: Doubts) -> tuple[Status, tuple[str, ...]]:
    """Return the most important status, and all warnings, those of this status first."""
    found = sorted((d for d in doubts if d[1]), key=lambda d: d[0].rank)
    notes = tuple(dict.fromkeys(line for _, lines in found for line in lines))
    return (found[0][0] if found else Status.OK), notes


def log_z_apart(rhat: Array, limit: float) -> tuple[str, ...]:
    """Return a warning where chains disagree on log Z, by its R-hat (rows,)."""
    limit = max(limit, MIN_RHAT_LIMIT_OF_LOG_Z)
    if not unmixed(rhat, limit):
        return ()
    return (f"R-hat of log Z reaches {np.nanmax(rhat):.3g}, the limit is {limit:g}",)


def most_apart(sweeps: int) -> int:
    """Return the most sweeps that chains may stay apart, if all of them make `sweeps` together."""
    return max(MOST_APART, sweeps // MIN_TIMES_APART)


def independent(stats: Mapping[str, Any], sweeps: int) -> Array | float:
    """Return the most independent draws (rows,) that chains give in `sweeps` sweeps of all of them.

    It is infinite where chains from opposite starts met soon, since the time of meeting is then the
    time in which they came from their starts.
    """
    if "sweeps_apart" not in stats:
        return np.inf
    apart: Array = stats["sweeps_apart"]
    return np.where(apart <= max(SOON_APART, sweeps // MANY_TIMES_APART), np.inf, sweeps / apart)


def met_soon(stats: Mapping[str, Any], thin: int) -> bool:
    """Return whether chains from opposite starts met so soon that their draws speak for themselves.

    It is True where no time was measured, as in chains that go on from other chains.
    """
    return bool(np.all(np.isinf(independent(stats, _swept(stats, thin)))))


def _swept(stats: Mapping[str, Any], thin: int) -> int:
    """Return the number of sweeps of all chains of a row, without the warm-up."""
    chains, draws, _ = stats["energy"].shape
    return int(chains * draws * thin)


def _stayed_apart(stats: Mapping[str, Any], thin: int) -> tuple[str, ...]:
    """Return a warning where chains from opposite starts met late, or not at all."""
    if "sweeps_apart" not in stats:
        return ()
    sweeps, apart = _swept(stats, thin), int(np.max(stats["sweeps_apart"])) - 1
    if apart < most_apart(sweeps):
        return ()
    return (
        f"chains from opposite starts stayed apart for {apart} sweeps: in {sweeps} sweeps, chains "
        f"change about {sweeps / apart:.3g} times or less between parts of the space in which they "
        f"stay, and {MIN_TIMES_APART} times are needed to know the weights of the parts",
    )


def unmixed_notes(
    stats: Mapping[str, Any], limit: float, structure: Structure, method: str, thin: int = 1
) -> tuple[str, ...]:
    """Return a warning for everything that has not mixed, and for impossible draws.

    `method` is the name of the method, and `thin` the number of sweeps for each draw.

    The energy of a draw is infinite if its state is impossible. If the worst unit of a layer is a
    variable, the warning names it in place of the layer.
    """
    lost = np.isposinf(stats["energy"]).any(axis=(0, 1))
    note: tuple[str, ...] = ()
    if lost.any():
        note = (
            "some draws are impossible: the evidence may have probability zero, or the warm-up is "
            "too short",
        )
    if "energy_rhat" not in stats:
        return note
    rhat, ess = ({"": stats[f"energy_{key}"], **stats[key]} for key in ("rhat", "ess"))
    chains, draws, _ = stats["energy"].shape
    if too_short(chains, draws):
        enough = (
            f"{MIN_DRAWS_FOR_AUTOCORRELATION} draws of each chain, or "
            f"{MIN_DRAWS_PER_CHAIN_FOR_RHAT} of each of {MIN_CHAINS_FOR_SPREAD} chains"
        )
        note += (f"{chains} chains of {draws} draws are too short to be judged: take {enough}",)
    needed = min(MIN_DRAWS_FOR_RHAT, chains * draws / 2)
    apart = tuple(
        f"R-hat of {_worst(structure, name, v)} reaches {np.nanmax(v):.3g}, the limit is {limit:g}"
        for name, v in rhat.items()
        if unmixed(v, limit)
    )
    apart += tuple(
        f"R-hat of the sum over {structure.layers[name].title} reaches {np.nanmax(v):.3g}, the "
        f"limit is {limit:g}"
        for name, v in stats.get("sum_rhat", {}).items()
        if unmixed(v, limit)
    )
    slow = tuple(
        f"the draws of {_worst(structure, name, -v)} are worth {np.nanmin(v):.3g} independent "
        f"draws, at least {needed:g} are needed"
        for name, v in ess.items()
        if np.mean(v < needed) > MAX_SHARE_BEYOND_LIMIT
    )
    unsettled = log_z_apart(stats.get("log_z_rhat", np.ones(1)), limit)
    unsettled += _stayed_apart(stats, thin)
    if slow and not note + apart + unsettled:
        # Effective numbers are uncertain, and tend to be too high for short chains.
        least = min(float(np.nanmin(v)) for v in ess.values())
        times = 1.5 * needed / max(least, 1.0)
        number = float(f"{times * draws * thin:.2g}")
        longer = f"method=pgm.{method}(draws={number:.0f})"
        advice = f"{CHAINS_AGREE}; draw about {times:.2g} times as long, {longer}"
        slow = (f"{slow[0]}: {advice}", *slow[1:])
    return note + apart + slow + unsettled


def _worst(structure: Structure, name: str, value: Array) -> str:
    """Return the unit of the largest value (rows, size[, k]) in words, or its layer.

    The name of the energy is empty.
    """
    if not name:
        return "the energy"
    by_unit = np.moveaxis(value, 1, 0).reshape(structure.layers[name].size, -1)
    return structure.names.described(name, (by_unit == np.nanmax(value)).any(axis=1))


def unmixed(rhat: Array, limit: float) -> bool:
    """Return whether an R-hat is infinite, or more than 1 in 100 are above the limit.

    An infinite R-hat belongs to chains that are stuck apart. The largest of thousands of R-hats
    exceeds any limit by chance alone.
    """
    return bool(np.isinf(rhat).any() or np.mean(rhat > limit) > MAX_SHARE_BEYOND_LIMIT)
