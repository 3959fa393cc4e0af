"""Checks of the settings of methods, trainers and optimizers: what cannot mean anything is refused
when it is written.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError


def whole(what: str, value: Any, least: int = 1) -> int:
    """An integer of at least `least`, else PgmError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise PgmError(f"{what} must be an integer of at least {least}, not {value!r}")
    return int(value)


def amount(what: str, value: Any) -> float:
    """A finite number from 0 up, else PgmError."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise PgmError(f"{what} must be a finite number from 0 up, not {value!r}")
    return float(value)


def check_whole(settings: Any, *names: str, least: int = 1) -> None:
    """PgmError unless these attributes are integers of at least `least`."""
    for name in names:
        whole(f"{type(settings).__name__}: {name}", getattr(settings, name), least)


def check_limit(settings: Any, *names: str) -> None:
    """PgmError unless these attributes are numbers from 0 up; math.inf is no limit."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= 0:
            raise PgmError(
                f"{type(settings).__name__}: {name} must be a number from 0 up, or math.inf, not {value!r}"
            )


def check_method(method: Any) -> None:
    """A method can plan and run."""
    check_instance(method, "method")
    if not all(callable(getattr(method, name, None)) for name in ("plan", "run")):
        raise PgmError(f"method must be one such as pgm.Exact(), not {method!r}")


def check_instance(thing: Any, what: str) -> None:
    """PgmError for a class where one of its instances is meant."""
    if isinstance(thing, type):
        raise PgmError(
            f"{what} must be an instance such as {thing.__name__}(...), not the class {thing.__name__}"
        )


def check_kernel(kernel: Any) -> None:
    """A kernel has a transition."""
    check_instance(kernel, "kernel")
    if not callable(getattr(kernel, "transition", None)):
        raise PgmError(
            f"kernel must be one such as Gibbs() or FlipState(), with a transition, not {kernel!r}"
        )


def seeded(rng: Any) -> np.random.Generator:
    """Random numbers from a seed or a Generator; PgmError if it is neither."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise PgmError(
            f"rng must be an integer of at least 0, None or a numpy Generator, not {rng!r}"
        ) from None


def check_rate(settings: Any, name: str, most: float = math.inf) -> None:
    """PgmError unless this attribute is a number from 0 to `most`, or a schedule, which may say
    anything.
    """
    check_instance(getattr(settings, name), f"{type(settings).__name__}: {name}")
    if not callable(getattr(settings, name)):
        check_number(settings, name, most=most)


def check_number(
    settings: Any, *names: str, most: float = math.inf, below: float = math.inf
) -> None:
    """PgmError unless these attributes are numbers from 0 to `most`, and less than `below`."""
    for name in names:
        value = getattr(settings, name)
        number = (
            float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
        )
        if not (math.isfinite(number) and 0 <= number <= most and number < below):
            upper = (
                f" to {most:g}"
                if most < math.inf
                else f" up, below {below:g}"
                if below < math.inf
                else " up"
            )
            raise PgmError(
                f"{type(settings).__name__}: {name} must be a finite number from 0{upper}, not {value!r}"
            )
