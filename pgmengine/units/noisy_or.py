"""NoisyOr units: binary children that are off only if every active parent fails to turn them on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pgmengine.units.base import Array, Draw, Unit
from pgmengine.units.binary import Binary

BINARY = Binary()


@dataclass(frozen=True)
class NoisyOr(Unit):
    """p(x = 0 | z) = e^-z with z = bias + sum_j theta_j x_j >= 0 (system 4, appendix A): children
    of arrows only.

    It is the Binary family at eta = log(e^z - 1), where A = z; weights and bias must be >= 0.

    The score of x = 1 is 1 / (e^z - 1): at small z a few improbable states carry the slope. `fit`
    keeps the bias (the leak) at 1e-6 or more, where enumeration still finds it; posteriors that are
    sampled need a larger one to start from, such as that of `base_rate_start`, and hardly ever
    leave 0 again. At a leak of exactly 0 the gradient of `Exact` is the slope from the right. Draws
    never visit the impossible states that this slope rests on, so gradients of samplers lack it.
    Compiled chains take less than 1e-9 from all parents of a unit for 0.

    >>> import pgmengine as pgm
    >>> round(float(pgm.NoisyOr().log_conditional(0.0, 0.7)), 6)
    -0.7
    """

    child_only = True
    nonnegative = True
    canonical = False

    support = Binary.support
    log_normalizer = BINARY.log_normalizer
    mean = BINARY.mean
    variance = BINARY.variance
    sample = BINARY.sample
    mode = BINARY.mode
    max_log_weight = BINARY.max_log_weight
    contains = BINARY.contains

    @property
    def draw(self) -> Draw:
        """From the table, with this link."""
        return Draw.COMPLEMENT

    def link(self, zeta: Array) -> Array:
        """log(e^z - 1), -inf at 0."""
        zeta = np.maximum(zeta, 0.0)
        with np.errstate(divide="ignore"):
            return zeta + np.log(-np.expm1(-zeta))

    def log_partition(self, zeta: Array) -> Array:
        """The input z itself."""
        return np.maximum(zeta, 0.0)

    def log_sums(self, least: float) -> tuple[Array, Array] | None:
        """log(1 - e^-z) = -sum_m log(1 + e^(-2^m z)) (system 4, appendix A), up to where 2^m z is
        over 40: below 1e-17.

        They count where x = 1, beside the linear -(1 - x) z. None when z can be so small that 40
        are not enough.
        """
        if least < 1e-10:
            return None
        sets = max(math.ceil(math.log2(40 / least)), 0) + 1
        return np.stack((np.zeros(sets), -(2.0 ** np.arange(sets))), axis=1)[..., None], np.zeros(2)

    def log_conditional(self, x: Array, zeta: Array) -> Array:
        """log(1 - e^-z) for x = 1, -z for x = 0."""
        zeta = np.maximum(zeta, 0.0)
        with np.errstate(divide="ignore"):
            return np.where(np.asarray(x) == 1, np.log(-np.expm1(-zeta)), -zeta)

    def score(self, x: Array, zeta: Array) -> Array:
        """X / (e^z - 1) - (1 - x): linear in x, so that means will do."""
        zeta, x = np.maximum(zeta, 0.0), np.asarray(x)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return np.where(x == 0, 0.0, x / np.expm1(zeta)) - (1.0 - x)
