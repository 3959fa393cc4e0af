"""NoisyOr units: binary children that are 0 only if every active parent fails to turn them on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.array_library import ArrayLibrary
from pgmengine.base.types import Array
from pgmengine.units.binary import Binary
from pgmengine.units.unit import Draw, Unit

BINARY = Binary()


@dataclass(frozen=True)
class NoisyOr(Unit):
    """Values 0 and 1 with p(x = 0 | z) = e^-z, where z = bias + sum_j theta_j x_j >= 0.

    Use them for effects with independent causes, as symptoms of diseases. They are children of
    arrows only, and their weights and biases must be at least 0. As an
    exponential family they are Binary units with eta = log(e^z - 1), where A = z.

    Notes
    -----
    The score of x = 1 is 1 / (e^z - 1), so that at small z a few improbable states decide the
    gradient. `fit` therefore keeps the bias (the leak) at 1e-6 or more, where enumeration includes
    these states without loss. Training by sampled posteriors needs a larger leak at the start, such
    as the one of `base_rate_start`, because samples hardly ever visit these states at a tiny leak,
    which then stays tiny. At a leak of exactly 0, `Exact` returns the derivative from the right.
    States that are impossible at this leak contribute to it. Samplers never visit them, so that
    their gradients lack this part. Compiled chains treat the input of a unit from all its parents
    as 0 if it is below 1e-9.

    >>> import pgmengine as pgm
    >>> round(float(pgm.NoisyOr().log_conditional(0.0, 0.7)), 6)
    -0.7
    """

    child_only = True
    nonnegative = True
    independent_causes = True
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
        """A draw of 0 with probability e^-z."""
        return Draw.COMPLEMENT

    def link(self, zeta: Array) -> Array:
        """Return log(e^z - 1), which is -inf at 0."""
        zeta = np.maximum(zeta, 0.0)
        with np.errstate(divide="ignore"):
            return zeta + np.log(-np.expm1(-zeta))

    def log_partition(self, zeta: Array) -> Array:
        """Return the directed input z itself."""
        return np.maximum(zeta, 0.0)

    def log_sums(self, least: float) -> tuple[Array, Array] | None:
        """Return the parts of log(1 - e^-z) = -sum_m log(1 + e^(-2^m z)).

        The parts belong to x = 1; x = 0 has the linear term -(1 - x) z. The sum ends where 2^m z
        exceeds 40, and a part is below 1e-17. If z can be smaller than 1e-10, the sum would have
        more than 40 parts, and None is returned.
        """
        if least < 1e-10:
            return None
        count = max(math.ceil(math.log2(40 / least)), 0) + 1
        values = np.stack((np.zeros(count), -(2.0 ** np.arange(count))), axis=1)
        return values[..., None], np.zeros(2)

    def log_conditional(self, x: Array, zeta: Array) -> Array:
        """Return log(1 - e^-z) for x = 1 and -z for x = 0."""
        zeta = np.maximum(zeta, 0.0)
        with np.errstate(divide="ignore"):
            return np.where(np.asarray(x) == 1, np.log(-np.expm1(-zeta)), -zeta)

    def log_conditional_in(self, lib: ArrayLibrary, x: Any, zeta: Any) -> Any:
        """Return log(1 - e^-z) for x = 1 and -z for x = 0."""
        xp, zeta = lib.xp, lib.xp.where(zeta > 0, zeta, 0.0)
        # Where x = 0 the other branch is taken at 1, so that its slope is finite there.
        on = xp.log(-xp.expm1(-xp.where(x == 1, zeta, 1.0)))
        return xp.where(x == 1, on, -zeta) + self.log_h_in(lib, x)

    def score(self, x: Array, zeta: Array) -> Array:
        """Return x / (e^z - 1) - (1 - x), which is linear in x and so also holds for means."""
        zeta, x = np.maximum(zeta, 0.0), np.asarray(x)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return np.where(x == 0, 0.0, x / np.expm1(zeta)) - (1.0 - x)
