"""MultiValued units: s + 1 evenly spaced values on [-1, 1], or all of [-1, 1] (Yokoyama, Katsumata
and Yasuda).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.units.base import Array, Draw, Unit

SMALL = 0.02  # below this the series of log(sinh(x) / x) is exact to rounding


def log_sinhc(x: Array) -> Array:
    """log(sinh(x) / x), stable from 0 to 1e4: a series near 0, an asymptote far out."""
    x = np.abs(np.asarray(x, dtype=np.float64))
    far = np.where(x < SMALL, 1.0, x)
    x2 = np.where(x < SMALL, x, 0.0) ** 2
    return np.where(
        x < SMALL,
        x2 * (1 / 6 - x2 * (1 / 180 - x2 / 2835)),
        far + np.log(-np.expm1(-2 * far) / (2 * far)),
    )


def langevin(x: Array) -> Array:
    """coth(x) - 1/x, the derivative of log_sinhc."""
    x = np.asarray(x, dtype=np.float64)
    near = np.abs(x) < SMALL
    far, small = np.where(near, 1.0, x), np.where(near, x, 0.0)
    x2 = small * small
    return np.where(
        near, small * (1 / 3 - x2 * (1 / 45 - x2 * (2 / 945))), 1 / np.tanh(far) - 1 / far
    )


def langevin_slope(x: Array) -> Array:
    """1/x^2 - 1/sinh(x)^2, the second derivative of log_sinhc."""
    x = np.abs(np.asarray(x, dtype=np.float64))
    near = x < 0.1  # 1/x^2 - 1/sinh^2 loses digits well before SMALL
    far, x2 = np.where(near, 1.0, x), np.where(near, x, 0.0) ** 2
    series = 1 / 3 - x2 * (1 / 15 - x2 * (2 / 189 - x2 * (1 / 675 - x2 * (2 / 10395))))
    decay = np.exp(-2 * far)
    return np.where(near, series, 1 / far**2 - 4 * decay / (1 - decay) ** 2)


@dataclass(frozen=True)
class MultiValued(Unit):
    """Values X(s) = {(2k - s)/s, k = 0..s}, or [-1, 1] for s = inf; base measure 2/(s+1) on each
    value.

    A = ln phi_s, phi_s(x) = 2 sinh((s+1)x/s) / ((s+1) sinh(x/s)); phi_1 = 2 cosh, phi_inf = 2
    sinh(x)/x and phi_s(0) = 2 (system 1, eqs. 6, 7 and 14).

    >>> import pgmengine as pgm
    >>> pgm.MultiValued(2).support
    array([-1.,  0.,  1.])
    """

    s: float

    def __post_init__(self) -> None:
        whole = (
            isinstance(self.s, (int, np.integer)) and not isinstance(self.s, bool) and self.s >= 1
        )
        if not whole and not (isinstance(self.s, float) and self.s == math.inf):
            raise PgmError(
                f"MultiValued: s must be an integer of at least 1 or math.inf, not {self.s!r}"
            )
        object.__setattr__(self, "s", int(self.s) if whole else math.inf)

    @property
    def support(self) -> Array | None:
        """{(2k - s)/s}, or None for s = inf."""
        return None if math.isinf(self.s) else (2 * np.arange(self.s + 1) - self.s) / self.s

    @property
    def support_bytes(self) -> int:
        """8 bytes a value."""
        return 0 if self.s == math.inf else 8 * (int(self.s) + 1)

    @property
    def log_base(self) -> Array | None:
        """Log 2/(s+1) on each value."""
        return None if math.isinf(self.s) else np.full(int(self.s) + 1, math.log(2 / (self.s + 1)))

    @property
    def draw(self) -> Draw:
        """From the table, or by formula for s = inf."""
        return Draw.INTERVAL if math.isinf(self.s) else Draw.TABLE

    def log_normalizer(self, eta: Array) -> Array:
        """Ln phi_s(eta)."""
        eta = np.asarray(eta, dtype=np.float64)
        if math.isinf(self.s):
            return math.log(2) + log_sinhc(eta)
        return math.log(2) + log_sinhc(eta * (1 + 1 / self.s)) - log_sinhc(eta / self.s)

    def mean(self, eta: Array) -> Array:
        """psi_s(eta) = d ln phi_s / d eta."""
        eta = np.asarray(eta, dtype=np.float64)
        if math.isinf(self.s):
            return langevin(eta)
        wide = 1 + 1 / self.s
        return wide * langevin(wide * eta) - langevin(eta / self.s) / self.s

    def variance(self, eta: Array) -> Array:
        """psi_s'(eta)."""
        eta = np.asarray(eta, dtype=np.float64)
        if math.isinf(self.s):
            return langevin_slope(eta)
        p = self.prob(eta)
        assert self.support is not None
        mean = p @ self.support
        return (p * (self.support - mean[..., None]) ** 2).sum(axis=-1)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Inverse CDF; for s = inf, x = sign(eta) (1 + log(u + (1-u) e^(-2|eta|)) / |eta|), neither
        end overflows.
        """
        if not math.isinf(self.s):
            return super().sample(eta, rng)
        eta = np.asarray(eta, dtype=np.float64)
        u = rng.random(eta.shape)
        size = np.abs(eta)
        safe = np.where(size < 1e-8, 1.0, size)
        x = 1 + np.log1p((1 - u) * np.expm1(-2 * safe)) / safe
        return np.where(size < 1e-8, 2 * u - 1, np.clip(np.where(eta < 0, -x, x), -1.0, 1.0))

    def mode(self, eta: Array) -> Array:
        """The end that eta points to; -1 at eta = 0."""
        return np.where(np.asarray(eta) > 0, 1.0, -1.0)

    def max_log_weight(self, eta: Array) -> Array:
        """|eta| + log h."""
        return np.abs(eta) + (0.0 if self.log_base is None else self.log_base[0])

    def log_h(self, x: Array) -> Array:
        """Log 2/(s+1), or 0 (the density of the base measure) for s = inf."""
        return np.full(np.shape(x), 0.0 if self.log_base is None else self.log_base[0])

    def contains(self, x: Array) -> Array:
        """Within 1e-9 of a value of the support."""
        x = np.asarray(x, dtype=np.float64)
        inside = np.abs(x) <= 1
        if math.isinf(self.s):
            return inside
        k = (np.where(np.isfinite(x), x, 9.0) + 1) * self.s / 2
        return inside & (np.abs(k - np.round(k)) < 1e-9 * self.s)
