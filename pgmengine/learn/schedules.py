"""Schedules: what changes from update to update, numbers and kernels alike, is a function of the
update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgmengine.base.checks import check_instance, check_number, check_whole
from pgmengine.base.errors import PgmError
from pgmengine.engine.kernels import Blend

Rate = float | Callable[[int], float]


@dataclass(frozen=True)
class harmonic:  # noqa: N801 - called like a function
    """The schedule a / (b + t), as in system 3.

    >>> import pgmengine as pgm
    >>> pgm.harmonic(10, 2000)(0)
    0.005
    """

    a: float
    b: float

    def __post_init__(self) -> None:
        check_number(self, "a", "b")
        if not self.b > 0:
            raise PgmError("harmonic: b must be above 0, or the first rate would be infinite")

    def __call__(self, t: int) -> float:
        """The rate of update t."""
        return self.a / (self.b + t)


@dataclass(frozen=True)
class linear_decay:  # noqa: N801 - called like a function
    """The schedule rate (1 - t / updates), 0 from there on: large steps first, and none left that
    move the model about.

    The first `rise` updates have (t + 1) / rise of it: large steps at the very start can end hidden
    units for good.

    >>> import pgmengine as pgm
    >>> pgm.linear_decay(0.05, 1000)(500)
    0.025
    """

    rate: float
    updates: int
    rise: int = 0

    def __post_init__(self) -> None:
        check_number(self, "rate")
        check_whole(self, "updates")
        check_whole(self, "rise", least=0)

    def __call__(self, t: int) -> float:
        """The rate of update t."""
        begun = min((t + 1) / self.rise, 1.0) if self.rise else 1.0
        return begun * self.rate * max(1 - t / self.updates, 0.0)


@dataclass(frozen=True)
class GrowingBlend:
    """Gibbs until `begin`, then an ever larger share of flip-the-state, all of it from `end` on.

    Flip-the-state pays when weights are large, so training may start with Gibbs (system 2, section
    5.2).

    >>> import pgmengine as pgm
    >>> pgm.GrowingBlend(100, 300)(200)
    Blend(alpha=0.5)
    """

    begin: int
    end: int

    def __post_init__(self) -> None:
        check_whole(self, "begin", "end", least=0)
        if self.end < self.begin:
            raise PgmError(
                f"GrowingBlend: end must be at least begin, {self.begin}, not {self.end}"
            )

    def __call__(self, t: int) -> Blend:
        """The kernel of update t."""
        if t >= self.end:
            return Blend(1.0)
        return Blend((t - self.begin) / (self.end - self.begin) if t > self.begin else 0.0)


def rate_at(rate: Rate, t: int) -> float:
    """The rate of update t; PgmError if a schedule says what is no number."""
    found = at(rate, t)
    try:
        return float(found)
    except (TypeError, ValueError):
        raise PgmError(
            f"update {t + 1}: the rate's schedule says {found!r}, expected a number"
        ) from None


def at(setting: Any, t: int) -> Any:
    """The setting of update t: of a schedule what it says, anything else is itself."""
    check_instance(setting, "a setting")
    return setting(t) if callable(setting) else setting
