"""MultiValued units: evenly spaced values on [-1, 1], or the whole interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.array_library import ArrayLibrary
from pgmengine.base.checks import LARGEST_WHOLE
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array
from pgmengine.units.unit import Draw, Unit

# For x below this the series of log(sinh(x) / x) and of its derivative are exact to rounding.
SERIES_BELOW = 0.02

# coth(1) - 1.
LANGEVIN_OF_1 = np.float32(1 / math.tanh(1.0) - 1)

# For x below this the formula 1/x^2 - 1/sinh(x)^2 loses digits, and its series is used.
SLOPE_SERIES_BELOW = 0.1

# For |eta| below this the density on [-1, 1] is uniform to rounding.
UNIFORM_BELOW = 1e-8


def log_sinhc(x: Array) -> Array:
    """Return log(sinh(x) / x) for x from 0 to 1e4, without overflow.

    An argument in single precision gives a result in single precision, without the series that
    small results would need for all digits.
    """
    x = np.abs(np.asarray(x))
    if x.dtype == np.float32:
        far = np.maximum(x, np.float32(1e-6))
        twice = -2 * far
        return np.asarray(far + np.log(np.expm1(twice) / twice))
    return np.asarray(_log_sinhc(x.astype(np.float64, copy=False)))


def _log_sinhc(x: Any, xp: Any = np) -> Any:
    """Return log_sinhc in arrays of the library `xp`."""
    x = xp.abs(x)
    far = xp.where(x < SERIES_BELOW, 1.0, x)
    x2 = xp.where(x < SERIES_BELOW, x, 0.0) ** 2
    return xp.where(
        x < SERIES_BELOW,
        x2 * (1 / 6 - x2 * (1 / 180 - x2 / 2835)),
        far + xp.log(-xp.expm1(-2 * far) / (2 * far)),
    )


def langevin(x: Array) -> Array:
    """Return coth(x) - 1/x, the derivative of log_sinhc, in single precision for such x."""
    x = np.asarray(x)
    if x.dtype == np.float32:
        return _single_langevin(x)
    x = x.astype(np.float64, copy=False)
    near = np.abs(x) < SERIES_BELOW
    far, small = np.where(near, 1.0, x), np.where(near, x, 0.0)
    x2 = small * small
    return np.where(
        near, small * (1 / 3 - x2 * (1 / 45 - x2 * (2 / 945))), 1 / np.tanh(far) - 1 / far
    )


def _single_langevin(x: Array) -> Array:
    """Return coth(x) - 1/x as a sum: its value at min(x, 1), and the difference beyond 1.

    The first part is a continued fraction. The sum needs no branches, which would take longer than
    the functions.
    """
    size = np.abs(x)
    near, far = np.minimum(size, 1), np.maximum(size, 1)
    x2 = near * near
    begin = near / (3 + x2 / (5 + x2 / (7 + x2 / (9 + x2 / 11))))
    rest = (size > 1) * (1 / np.tanh(far) - 1 / far - LANGEVIN_OF_1)
    return np.asarray(np.copysign(begin + rest, x))


def langevin_slope(x: Array) -> Array:
    """Return 1/x^2 - 1/sinh(x)^2, the second derivative of log_sinhc."""
    x = np.abs(np.asarray(x, dtype=np.float64))
    near = x < SLOPE_SERIES_BELOW
    far, x2 = np.where(near, 1.0, x), np.where(near, x, 0.0) ** 2
    series = 1 / 3 - x2 * (1 / 15 - x2 * (2 / 189 - x2 * (1 / 675 - x2 * (2 / 10395))))
    decay = np.exp(-2 * far)
    return np.where(near, series, 1 / far**2 - 4 * decay / (1 - decay) ** 2)


def _real(eta: Array) -> Array:
    """Return natural parameters: float32 stays, everything else becomes float64."""
    eta = np.asarray(eta)
    return eta if eta.dtype == np.float32 else eta.astype(np.float64, copy=False)


@dataclass(frozen=True)
class MultiValued(Unit):
    """Values {(2k - s)/s, k = 0..s} with base measure 2/(s+1) each, or [-1, 1] for s = inf.

    The log normalizer is A = log phi_s with phi_s(x) = 2 sinh((s+1)x/s) / ((s+1) sinh(x/s)), so
    that phi_1 = 2 cosh, phi_inf = 2 sinh(x)/x and phi_s(0) = 2 (equations 6, 7 and 14 of the
    paper). Use them as hidden units of discriminative RBMs, where a larger s reduces over-fitting.

    Parameters
    ----------
    s : number of values less one, an integer of at least 1, or math.inf.

    Raises
    ------
    PgmError
        If s is not such a number.

    References
    ----------
    Yokoyama, Katsumata and Yasuda (2019), "Restricted Boltzmann machine with multivalued hidden
    variables: a model suppressing over-fitting".

    >>> import pgmengine as pgm
    >>> pgm.MultiValued(2).support
    array([-1.,  0.,  1.])
    """

    s: float

    def __post_init__(self) -> None:
        whole = (
            isinstance(self.s, (int, np.integer))
            and not isinstance(self.s, bool)
            and 1 <= self.s <= LARGEST_WHOLE
        )
        if not whole and not (isinstance(self.s, float) and self.s == math.inf):
            raise PgmError(
                f"MultiValued: s must be an integer of at least 1 or math.inf, not {told(self.s)}"
            )
        object.__setattr__(self, "s", int(self.s) if whole else math.inf)

    @property
    def support(self) -> Array | None:
        """The values (2k - s)/s, or None for s = inf."""
        return None if math.isinf(self.s) else (2 * np.arange(self.s + 1) - self.s) / self.s

    @property
    def support_bytes(self) -> int:
        """The memory of s + 1 numbers."""
        return 0 if math.isinf(self.s) else 8 * (int(self.s) + 1)

    @property
    def log_base(self) -> Array | None:
        """The logarithm of 2/(s+1) for each value."""
        return None if math.isinf(self.s) else np.full(int(self.s) + 1, self._log_h)

    @property
    def draw(self) -> Draw:
        """A draw from the table of values, or from the density on [-1, 1]."""
        return Draw.INTERVAL if math.isinf(self.s) else Draw.TABLE

    def log_normalizer(self, eta: Array) -> Array:
        """Return log phi_s(eta)."""
        eta = _real(eta)
        if math.isinf(self.s):
            return math.log(2) + log_sinhc(eta)
        return math.log(2) + log_sinhc(eta * (1 + 1 / self.s)) - log_sinhc(eta / self.s)

    def mean(self, eta: Array) -> Array:
        """Return psi_s(eta), the derivative of log phi_s."""
        eta = _real(eta)
        if math.isinf(self.s):
            return langevin(eta)
        wide = 1 + 1 / self.s
        return wide * langevin(wide * eta) - langevin(eta / self.s) / self.s

    def variance(self, eta: Array) -> Array:
        """Return the derivative of psi_s."""
        if math.isinf(self.s):
            return langevin_slope(eta)
        return super().variance(eta)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw by the inverse CDF.

        On [-1, 1] the draw is sign(eta) (1 + log(u + (1 - u) e^(-2|eta|)) / |eta|) with a uniform
        u. This does not overflow at either end.
        """
        if not math.isinf(self.s):
            return super().sample(eta, rng)
        eta = np.asarray(eta, dtype=np.float64)
        u = rng.random(eta.shape)
        size = np.abs(eta)
        safe = np.where(size < UNIFORM_BELOW, 1.0, size)
        x = 1 + np.log1p((1 - u) * np.expm1(-2 * safe)) / safe
        return np.where(
            size < UNIFORM_BELOW, 2 * u - 1, np.clip(np.where(eta < 0, -x, x), -1.0, 1.0)
        )

    def mode(self, eta: Array) -> Array:
        """Return the end of the interval on the side of eta; -1 at eta = 0."""
        return np.where(np.asarray(eta) > 0, 1.0, -1.0)

    def max_log_weight(self, eta: Array) -> Array:
        """Return |eta| + log h."""
        return np.abs(eta) + self._log_h

    def log_h(self, x: Array) -> Array:
        """Return the logarithm of 2/(s+1); for s = inf the density is 1, and its logarithm 0."""
        return np.full(np.shape(x), self._log_h)

    def log_h_in(self, lib: ArrayLibrary, x: Any) -> Any:
        """Return the logarithm of the base measure; NaN for what is no value of the unit."""
        if not math.isinf(self.s):
            return super().log_h_in(lib, x)
        return lib.xp.where(abs(x) <= 1, 0.0 * x, lib.xp.nan)

    def log_normalizer_in(self, lib: ArrayLibrary, eta: Any) -> Any:
        """Return log phi_s(eta)."""
        if math.isinf(self.s):
            return math.log(2) + _log_sinhc(eta, lib.xp)
        return super().log_normalizer_in(lib, eta)

    def contains(self, x: Array) -> Array:
        """Return whether x is within 1e-9 of a value."""
        x = np.asarray(x, dtype=np.float64)
        inside = np.abs(x) <= 1
        if math.isinf(self.s):
            return inside
        k = (np.where(np.isfinite(x), x, 9.0) + 1) * self.s / 2
        return inside & (np.abs(k - np.round(k)) < 1e-9 * self.s)

    @property
    def _log_h(self) -> float:
        """The logarithm of the base measure, which is the same everywhere."""
        return 0.0 if math.isinf(self.s) else math.log(2 / (self.s + 1))
