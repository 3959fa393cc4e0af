"""Stepping stones: log Z from the replicas of a ladder, with errors from the spread of replicas.

With S = d log p_beta / d beta and a step d = beta_(k+1) - beta_k (Xie et al. 2011),

    log Z_(k+1) - log Z_k = log E_k exp(d S)                                    from below
                          = -log E_(k+1) exp(-d S)                              from above
                          = log E_k exp(d S / 2) - log E_(k+1) exp(-d S / 2)    in the middle

The first is too low on average, and the second too high. The third, the geometric bridge of Meng
and Wong (1996), varies least. The expectations are kept as means over at most BATCHES_PER_CHAIN
batches of the sweeps of each ladder, log_means (batches, rows, ladders, rungs - 1). To first order,
an estimate varies as the sum over rungs of (mean of a batch) / (mean of all batches). This sum
gives a series for each ladder, which is judged like the series of a unit. Its MCSE, which accounts
for the autocorrelation and the spread of the ladders, is the error of log Z. Its R-hat shows
ladders that disagree. A rare state that few replicas reach by luck makes a series jump a few times,
and its R-hat is then far above the limit.

All three estimates have the same limit. If the estimate from below lies above the estimate from
above by more than their common error, they contradict each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array
from pgmengine.infer.diagnostics.convergence import series_statistics
from pgmengine.infer.diagnostics.trust import (
    BATCHES_PER_CHAIN,
    ERRORS_PER_INTERVAL_SIDE,
    interval,
    row_beyond,
)

# The factor of d in each of the four expectations: over the lower rung if positive, else the upper.
STEP_SHARES = (1.0, -1.0, 0.5, -0.5)

# The largest accepted value, in nats, of log Z from above less log Z from below.
MAX_STEPPING_STONE_GAP_NATS = 1.0

# The largest number of standard errors by which log Z from below may exceed log Z from above.
MAX_CROSSED_ERRORS = 5.0

# Relative rounding error of log Z in single precision, in which replicas compute.
REPLICA_LOG_Z_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class FromSteppingStones:
    """Estimates of log Z; arrays have the shape (rows,) unless stated.

    Attributes
    ----------
    log_z, error : the third estimate, of the geometric bridge, and its standard error.
    interval : (rows, 2), from ERRORS_PER_INTERVAL_SIDE standard errors below the lowest of the
        three estimates to as many above the highest.
    rhat : R-hat of the series of log_z.
    gap, gap_error : log Z from above less log Z from below, and its standard error.
    """

    log_z: Array
    error: Array
    interval: Array
    rhat: Array
    gap: Array
    gap_error: Array

    @property
    def answers(self) -> dict[str, Array]:
        """The answers to log_z."""
        return {"log_z": self.log_z, "log_z_error": self.error, "log_z_interval": self.interval}

    def apart(self, numbers: Array) -> tuple[str, ...]:
        """Return a warning where log Z from above lies far above log Z from below.

        `numbers` has the numbers by which messages name the rows.
        """
        with np.errstate(invalid="ignore"):
            beyond = self.gap - ERRORS_PER_INTERVAL_SIDE * self.gap_error
        if (row := row_beyond(beyond - MAX_STEPPING_STONE_GAP_NATS)) is None:
            return ()
        return (
            f"stepping stones from above are {self.gap[row]:.3g} nats above the ones from below in "
            f"row {numbers[row]}: use more rungs",
        )

    def crossed(self, numbers: Array) -> tuple[str, ...]:
        """Return a warning where log Z from below lies above log Z from above.

        `numbers` has the numbers by which messages name the rows.
        """
        with np.errstate(invalid="ignore"):
            beyond = -self.gap - MAX_CROSSED_ERRORS * self.gap_error
            beyond -= REPLICA_LOG_Z_ROUNDING * (1.0 + np.abs(self.log_z))
        if (row := row_beyond(beyond)) is None:
            return ()
        return (
            f"stepping stones from below are {-self.gap[row]:.3g} nats above the ones from above "
            f"in row {numbers[row]}, with a standard error of {self.gap_error[row]:.2g}, although "
            "both estimate the same log Z: draw longer, or use more rungs",
        )


class SteppingStones:
    """Sums of exp(share * step * S) of all rungs, in batches of the sweeps of each ladder.

    Parameters
    ----------
    betas : (rungs,), which must not change while sweeps are added.
    rows, ladders : number of rows, and of ladders for each row.
    coming : number of sweeps that will be added.
    """

    def __init__(self, betas: Array, rows: int, ladders: int, coming: int) -> None:
        self.steps, self.coming, self.sweeps = np.diff(betas), coming, 0
        shape = (len(STEP_SHARES), min(BATCHES_PER_CHAIN, coming), rows, ladders, len(self.steps))
        self.log_sums = np.full(shape, -np.inf)

    def add(self, power: Array) -> None:
        """Add one sweep, given S (rows, ladders, rungs) of the replica on each rung."""
        if self.sweeps == self.coming:
            return
        batch = self.sweeps * self.log_sums.shape[1] // self.coming
        for sums, share in zip(self.log_sums[:, batch], STEP_SHARES, strict=True):
            rung = power[..., :-1] if share > 0 else power[..., 1:]
            np.logaddexp(sums, share * self.steps * rung, out=sums)
        self.sweeps += 1

    def go_on(self) -> None:
        """Expect twice as many sweeps: two neighbouring batches become one."""
        pairs = self.log_sums[:, 0::2], self.log_sums[:, 1::2]
        half, self.log_sums = np.logaddexp(*pairs), np.full_like(self.log_sums, -np.inf)
        self.log_sums[:, : half.shape[1]] = half
        self.coming *= 2

    def estimate(self, at_0: Array) -> FromSteppingStones:
        """Return log Z of all rows by the sweeps so far; `at_0` is log Z (rows,) at beta = 0."""
        batches = self.log_sums.shape[1]
        counts = np.bincount(np.arange(self.sweeps) * batches // self.coming)
        log_means = self.log_sums[:, : len(counts)] - np.log(counts)[:, None, None, None]
        (up, below), (down, above), (half_up, one), (half_down, two) = map(_over_rungs, log_means)
        (_, error), (_, low_error), (_, high_error), (_, gap_error) = found = [
            _judged(series) for series in (one - two, below, above, below + above)
        ]
        # Where no replica has met a possible state, differences of infinities give NaN.
        with np.errstate(invalid="ignore"):
            middle, gap = half_up - half_down, -down - up
        low, high = interval(up, low_error, -down, high_error).T
        least, most = interval(middle, error, middle, error).T
        return FromSteppingStones(
            at_0 + middle,
            error,
            at_0[:, None] + np.stack((np.fmin(low, least), np.fmax(high, most)), axis=1),
            found[0][0],
            gap,
            gap_error,
        )


def _over_rungs(log_means: Array) -> tuple[Array, Array]:
    """Return the sum over rungs of log means (rows,), and its series (ladders, batches, rows)."""
    batches, _, ladders, _ = log_means.shape
    total = log_sum(log_sum(log_means, axis=0), axis=1) - np.log(batches * ladders)
    with np.errstate(invalid="ignore"):
        series = np.exp(log_means - total[:, None]).sum(axis=3)
    return total.sum(axis=1), np.asarray(np.moveaxis(series, 2, 0))


def _judged(series: Array) -> tuple[Array, Array]:
    """Return R-hat and MCSE (rows,) of a series (ladders, batches, rows)."""
    found = series_statistics(series[..., None], ranked=False)
    rhat, error = found["rhat"][:, 0], found["mcse"][:, 0]
    # Batches of reversible chains are never worth more than independent ones. An autocorrelation
    # that seems negative is noise of few batches.
    ladders, batches = series.shape[:2]
    error = error * np.sqrt(np.maximum(found["ess"][:, 0] / (ladders * batches), 1.0))
    return rhat, np.where(np.isnan(error), np.inf, error)
