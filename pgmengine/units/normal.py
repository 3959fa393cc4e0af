"""Normal units: real children whose mean and standard deviation both depend on their parents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.array_library import ArrayLibrary
from pgmengine.base.checks import LARGEST, in_range, real
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array
from pgmengine.units.full_normal import FullNormal
from pgmengine.units.unit import Unit

# Largest relative difference of a square that is given from the square of its number.
SQUARE_ROUNDING = 1e-9

# The data that learning by mini-batches comes near enough to.
MOST_MEAN, LEAST_SIGMA, MOST_SIGMA = 5.0, 0.1, 10.0

# Inputs for log sigma count up to this size, so that a step of learning that is too long ends in a
# finite likelihood.
MOST_LOG_SIGMA = 200.0

# The logarithm of the normalizer of N(0, 1).
LOG_SCALE = math.log(2.0 * math.pi) / 2.0


@dataclass(frozen=True)
class Normal(Unit):
    """Real values x ~ N(m, sigma^2) with inputs m and log sigma, so that both are learned.

    Use them as children of arrows, for measurements whose spread is not known or differs from state
    to state: Gaussian states of a hidden Markov model, components of a mixture, classes of a naive
    Bayes classifier. With `Gaussian`, sigma is declared.

    Weights and biases have two components for each unit: the first adds to m, the second to log
    sigma. With arrows from a variable by handles, rows of a weight are (m, log sigma) of each
    state. Data and evidence are numbers x. Means and samples in answers have two components as
    well, x and x^2, so that E[x^2] - E[x]^2 is the variance. Layers of these units have no bound by
    mean field, and exact answers come from elimination.

    Parameters
    ----------
    least_sigma : the smallest standard deviation, in the unit of the data, from 1e-15 to 1e15.
        Smaller ones count as this one. Without it, a state that has one number for itself would
        have an infinite likelihood.
    full : whether the columns along the last axis of a layer have one joint normal distribution,
        with a covariance for each state of their parent. A layer of shape (..., d) is then an
        array (...) of groups of d columns, and each group is the child of one variable. Weights
        are the means (states, d), beside which columns begin with the covariance of 1, or rows of
        `FullNormal.inputs(means, covariances)`, which `FullNormal.moments` turns back. Data and
        evidence are (..., d), and NaN is a missing cell; means in answers begin with those of
        the columns, and have the means of their products after them.

    Raises
    ------
    PgmError
        If least_sigma is not such a number, or if full is neither True nor False.

    Notes
    -----
    sigma = max(least_sigma, exp(z)), where z is the second input. A fit keeps the row of a state at
    log least_sigma or above, so that its number is the one in use, and a finding says which states
    have no other spread than that. EM and LBFGS learn in the unit of the data: where all rows are
    0, they begin at the mean and the standard deviation of the data. As an exponential family with
    base measure N(0, 1), the statistics are (x, x^2), eta = (m / sigma^2, (1 - 1 / sigma^2) / 2),
    and A = m^2 / (2 sigma^2) + log sigma. At beta = 0 a unit is standard normal: standardise data
    before tempering.

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> state = b.variable("state", states=("calm", "usual", "wild"))
    >>> x = b.layer("x", pgm.Normal(), 1)
    >>> b.conditional(state, (), [0.4, 0.4, 0.2])
    >>> b.cause(state, x, [[0.0, -1.0], [0.0, 0.0], [0.0, 1.0]])  # sigma is 1 / e, 1 or e
    >>> round(float(pgm.infer(b.build(), {"x": 2.0}).marginal("state")["wild"]), 3)
    0.509
    """

    least_sigma: float = 1e-3
    full: bool = False
    bounded = False
    child_only = True
    canonical = False
    refits = True

    def __post_init__(self) -> None:
        most = math.sqrt(LARGEST)
        if not 1 / most <= real(self.least_sigma) <= most:
            raise PgmError(
                f"Normal: least_sigma must be a number from {1 / most:g} to {most:g}, "
                f"not {told(self.least_sigma)}"
            )
        if type(self.full) is not bool:
            raise PgmError(f"Normal: full must be True or False, not {told(self.full)}")
        object.__setattr__(self, "least_sigma", float(self.least_sigma))

    def over(self, axes: tuple[int, ...]) -> tuple[Unit, tuple[int, ...]]:
        """Return groups of the columns along the last axis, if they have full covariances."""
        if not self.full:
            return self, axes
        return FullNormal(axes[-1], self.least_sigma), axes[:-1] or (1,)

    @property
    def width(self) -> int:
        """Two components: x and x^2."""
        return 2

    def values_of(self, x: Array) -> Array:
        """Return (x, x^2) of numbers x (...,), (..., 2)."""
        return np.stack([x, np.square(x)], axis=-1)

    def numbers_of(self, values: Array) -> Array:
        """Return x of (x, x^2)."""
        return np.asarray(values)[..., 0]

    @property
    def least_inputs(self) -> tuple[float, float]:
        """The smallest m, which has none, and log sigma."""
        return -math.inf, math.log(self.least_sigma)

    def _inputs(self, zeta: Array) -> tuple[Array, Array, Array]:
        """Return m, sigma^2, and d log sigma / dz, which is 0 below the smallest sigma."""
        zeta, least = np.asarray(zeta, dtype=np.float64), self.least_inputs[1]
        log_sigma = np.clip(zeta[..., 1], least, MOST_LOG_SIGMA)
        # At the smallest sigma it is the derivative upwards, along which data may widen it again.
        return zeta[..., 0], np.exp(2.0 * log_sigma), (zeta[..., 1] >= least).astype(np.float64)

    def link(self, zeta: Array) -> Array:
        """Return eta = (m / sigma^2, (1 - 1 / sigma^2) / 2)."""
        m, variance, _ = self._inputs(zeta)
        return np.stack([m / variance, (1.0 - 1.0 / variance) / 2.0], axis=-1)

    def log_normalizer(self, eta: Array) -> Array:
        """Return A = m^2 / (2 sigma^2) + log sigma."""
        m, variance = _moments(eta)
        return np.asarray(np.square(m) / variance / 2.0 + np.log(variance) / 2.0)

    def mean(self, eta: Array) -> Array:
        """Return (m, m^2 + sigma^2)."""
        m, variance = _moments(eta)
        return np.stack([m, np.square(m) + variance], axis=-1)

    def mean_given(self, zeta: Array) -> Array:
        """Return (m, m^2 + sigma^2); eta would hold no digits of a large sigma."""
        m, variance, _ = self._inputs(zeta)
        return np.stack([m, np.square(m) + variance], axis=-1)

    def variance(self, eta: Array) -> Array:
        """Return the variances of x and of x^2: sigma^2 and 2 sigma^4 + 4 m^2 sigma^2."""
        m, variance = _moments(eta)
        return np.stack([variance, 2.0 * variance * (variance + 2.0 * np.square(m))], axis=-1)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw x from N(m, sigma^2), and return (x, x^2)."""
        m, variance = _moments(eta)
        return self.values_of(m + np.sqrt(variance) * rng.standard_normal(np.shape(m)))

    def mode(self, eta: Array) -> Array:
        """Return (m, m^2)."""
        return self.values_of(_moments(eta)[0])

    def max_log_weight(self, eta: Array) -> Array:
        """Return eta x + log h(x) at x = m, where it is largest."""
        m, variance = _moments(eta)
        return np.asarray(np.square(m) / variance / 2.0 - LOG_SCALE)

    def log_h(self, x: Array) -> Array:
        """Return the log density of N(0, 1)."""
        return np.asarray(-np.square(np.asarray(x)[..., 0]) / 2.0 - LOG_SCALE)

    def contains(self, x: Array) -> Array:
        """Return whether x is finite and within the limits of chains, and its square beside it."""
        x = np.asarray(x)
        number, square = x[..., 0], x[..., 1]
        near = np.abs(square - np.square(number)) <= SQUARE_ROUNDING * np.abs(square)
        return np.asarray(in_range(number) & in_range(square) & near)

    def log_conditional(self, x: Array, zeta: Array) -> Array:
        """Return -(x - m)^2 / (2 sigma^2) - log sigma - log(2 pi) / 2."""
        m, variance, _ = self._inputs(zeta)
        logs = np.asarray(np.asarray(x)[..., 0] - m)
        # In place, which takes half of the time.
        logs *= logs
        logs *= -0.5 / variance
        logs -= np.log(variance) / 2.0 + LOG_SCALE
        return logs

    def log_conditional_in(self, lib: ArrayLibrary, x: Any, zeta: Any) -> Any:
        """Return the log density of numbers x, as `log_conditional`."""
        log_sigma = lib.xp.clip(zeta[..., 1], self.least_inputs[1], MOST_LOG_SIGMA)
        far = (x - zeta[..., 0]) * lib.xp.exp(-log_sigma)
        return -(far**2) / 2.0 - log_sigma - LOG_SCALE

    def score(self, x: Array, zeta: Array) -> Array:
        """Return the derivatives with respect to m and to z, linear in (x, x^2).

        They are (x - m) / sigma^2 and ((x - m)^2 / sigma^2 - 1) d log sigma / dz.
        """
        x, (m, variance, share) = np.asarray(x), self._inputs(zeta)
        # The second difference is 0 where x^2 is the square of x, and keeps all digits.
        square = np.square(x[..., 0] - m) + (x[..., 1] - np.square(x[..., 0]))
        return np.stack([(x[..., 0] - m) / variance, (square / variance - 1.0) * share], axis=-1)

    def deviations(self, x: Array, zeta: Array, q: Array) -> Array:
        """Return the sums of q, of q (x - m), and of q (x - m)^2."""
        far = x[..., None, :, 0] - zeta[..., None, 0]
        heavy = q * far
        square = np.einsum("...m,...m->...", heavy, far)
        count = np.broadcast_to(q.sum(axis=-1), square.shape)
        return np.stack([count, heavy.sum(axis=-1), square], axis=-1)

    def refitted(self, zeta: Array, sums: Array, prior: tuple[Array, Array], fixed: Array) -> Array:
        """Return the mean and the log standard deviation of the values and of the prior.

        With the sums N, D and S of `deviations`, and w values of variance v in the prior,
        m' = m + D / N and sigma^2 = (S - D^2 / N + w v) / (N + w). Without any weight both stay.
        """
        count, (weight, variance) = sums[..., 0], prior
        mean = sums[..., 1] / np.where(count > 0, count, 1.0)
        shift = np.where(fixed[..., 0], 0.0, mean)
        square = sums[..., 2] - count * shift * (2.0 * mean - shift) + weight * variance
        whole = count + weight
        spread = np.maximum(square / np.where(whole > 0, whole, 1.0), self.least_sigma**2)
        stays = fixed[..., 1] | (whole <= 0)
        log_sigma = np.where(stays, zeta[..., 1], np.log(spread) / 2.0)
        return np.stack([zeta[..., 0] + shift, log_sigma], axis=-1)

    def log_prior(self, zeta: Array, prior: tuple[Array, Array]) -> Array:
        """Return -w (log sigma + v / (2 sigma^2)) with the weight w and the variance v."""
        _, variance, _ = self._inputs(zeta)
        return np.asarray(-prior[0] * (np.log(variance) + prior[1] / variance) / 2.0)

    def divergence(self, zeta: Array, other: Unit, theirs: Array) -> Array | None:
        """Return log(s' / s) + (s^2 + (m - m')^2) / (2 s'^2) - 1/2."""
        if not isinstance(other, Normal):
            return None
        (m, variance, _), (mean, wide, _) = self._inputs(zeta), other._inputs(theirs)
        return np.asarray(
            np.log(wide / variance) / 2.0 + (variance + np.square(m - mean)) / wide / 2.0 - 0.5
        )

    def inputs_of(self, mean: Array, variance: Array) -> Array:
        """Return the mean, and the log of the standard deviation or of the smallest one."""
        return np.stack([mean, np.log(np.maximum(variance, self.least_sigma**2)) / 2.0], axis=-1)

    def misfit(self, x: Array) -> str:
        """Return why mini-batches would not come near the data x (n, 2), or an empty string.

        The sizes of their steps are those of inputs near 0.
        """
        if not len(x):
            return ""
        mean, sigma = float(x[:, 0].mean()), float(x[:, 0].std())
        if abs(mean) <= MOST_MEAN and LEAST_SIGMA <= sigma <= MOST_SIGMA:
            return ""
        return (
            f"the data have the mean {mean:.4g} and the standard deviation {sigma:.4g}; Normal "
            f"units learn by mini-batches from numbers with a mean of at most {MOST_MEAN:g} in "
            f"size and a standard deviation from {LEAST_SIGMA:g} to {MOST_SIGMA:g}: standardise "
            "them, (x - mean) / sd, or take optimizer=pgm.EM() or pgm.LBFGS()"
        )

    def input_scales(self, zeta: Array) -> Array:
        """Return sigma^2 for m, and 1 for log sigma."""
        _, variance, _ = self._inputs(zeta)
        return np.stack([variance, np.ones(np.shape(variance))], axis=-1)

    def input_sizes(self, spread: Array) -> Array:
        """Return the standard deviation of the data for m, and a third for log sigma."""
        return np.array([spread[0] if spread[0] > 0 else 1.0, 1.0 / 3.0])

    def largest_terms(self, x: Array, zeta: Array) -> Array:
        """Return about the size of the terms that matter: (|x| + |m|)^2 / 2 + |log sigma|.

        Nothing cancels in log p(x | zeta), so that its rounding matters only in the states that are
        probable. There (x - m) / sigma is small, unless x is far from all of them. A state of small
        sigma that is far away has a large term, and no probability.
        """
        return np.asarray(np.square(x[..., 0] + zeta[..., 0]) / 2.0 + zeta[..., 1] + LOG_SCALE)


def _moments(eta: Array) -> tuple[Array, Array]:
    """Return m and sigma^2 of a natural parameter."""
    eta = np.asarray(eta, dtype=np.float64)
    variance = 1.0 / (1.0 - 2.0 * eta[..., 1])
    return eta[..., 0] * variance, variance
