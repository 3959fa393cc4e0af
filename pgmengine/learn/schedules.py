"""Schedules: what changes from update to update, numbers and kernels alike, is a function of the update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgmengine.errors import PgmError
from pgmengine.kernels import Blend
from pgmengine.settings import check_instance, check_number, check_whole

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
    """The schedule rate (1 - t / updates), 0 from there on: large steps first, and none left that move the model about.

    >>> import pgmengine as pgm
    >>> pgm.linear_decay(0.05, 1000)(500)
    0.025
    """

    rate: float
    updates: int

    def __post_init__(self) -> None:
        check_number(self, "rate")
        check_whole(self, "updates")

    def __call__(self, t: int) -> float:
        """The rate of update t."""
        return self.rate * max(1 - t / self.updates, 0.0)


@dataclass(frozen=True)
class GrowingBlend:
    """Gibbs until `begin`, then an ever larger share of flip-the-state, all of it from `end` (or `begin` + 1) on.

    Flip-the-state pays when weights are large (system 2, section 5), so training may start with Gibbs.

    >>> import pgmengine as pgm
    >>> pgm.GrowingBlend(100, 300)(200)
    Blend(alpha=0.5)
    """

    begin: int
    end: int

    def __post_init__(self) -> None:
        check_whole(self, "begin", "end", least=0)

    def __call__(self, t: int) -> Blend:
        """The kernel of update t."""
        return Blend(min(max((t - self.begin) / max(self.end - self.begin, 1), 0.0), 1.0))


def at(setting: Any, t: int) -> Any:
    """The setting of update t: of a schedule what it says, anything else is itself."""
    check_instance(setting, "a setting")
    return setting(t) if callable(setting) else setting
