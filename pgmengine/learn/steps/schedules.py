"""Schedules: settings that change from update to update, as functions of the update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from pgmengine.base.checks import check_instance, check_number, check_whole
from pgmengine.base.errors import PgmError
from pgmengine.engine.kernels import Blend

T = TypeVar("T")

# A setting, or a schedule of it, update -> setting.
Scheduled: TypeAlias = T | Callable[[int], T]
Rate: TypeAlias = Scheduled[float]


@dataclass(frozen=True)
class harmonic:  # noqa: N801 - called like a function
    """The schedule a / (b + t) of update t, as in Salakhutdinov (2010).

    Parameters
    ----------
    a, b : numbers from 0 up; b above 0.

    Raises
    ------
    PgmError for settings out of their range.

    Examples
    --------
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
        """Return the rate of update t."""
        return self.a / (self.b + t)


@dataclass(frozen=True)
class linear_decay:  # noqa: N801 - called like a function
    """The schedule rate (1 - t / updates) of update t, and 0 from `updates` on.

    Steps are large at first, and so small at the end that the parameters no longer fluctuate.

    Parameters
    ----------
    rate : the rate at the start.
    updates : the update from which on the rate is 0.
    rise : number of updates at the start in which the rate rises, by the factor (t + 1) / rise:
        large steps at the very start can switch off hidden units permanently.

    Raises
    ------
    PgmError for settings out of their range.

    Examples
    --------
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
        """Return the rate of update t."""
        risen = min((t + 1) / self.rise, 1.0) if self.rise else 1.0
        return risen * self.rate * max(1 - t / self.updates, 0.0)


@dataclass(frozen=True)
class GrowingBlend:
    """A schedule of kernels from Gibbs to flip-the-state, for `kernel=` of negative phases.

    Flip-the-state mixes faster when weights are large, so learning may start with Gibbs (Brügge,
    Fischer and Igel 2013, section 5.2).

    Parameters
    ----------
    begin : the update up to which the kernel is Gibbs; from there on the share of flip-the-state
        grows linearly.
    end : the update from which on the kernel is flip-the-state alone.

    Raises
    ------
    PgmError if these are not integers from 0 up, or `end` is below `begin`.

    Examples
    --------
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
        """Return the kernel of update t."""
        if t >= self.end:
            return Blend(1.0)
        return Blend((t - self.begin) / (self.end - self.begin) if t > self.begin else 0.0)


def rate_at(rate: Rate, t: int) -> float:
    """Return the rate of update t; PgmError if a schedule returns anything but a number."""
    if not callable(rate):
        return float(rate)
    found = rate(t)
    try:
        return float(found)
    except (TypeError, ValueError):
        raise PgmError(
            f"update {t + 1}: the schedule of the rate returned {found!r}, expected a number"
        ) from None


def at(setting: Scheduled[T], t: int) -> T:
    """Return the setting of update t."""
    check_instance(setting, "a setting")
    return setting(t) if callable(setting) else setting
