"""Checks of arguments and settings.

Methods, kernels, trainers and optimizers check their settings when they are made, so that an error
names the line that is wrong and not a later call that uses it.

LARGEST is the largest absolute value of parameters, data and soft evidence. Compiled chains compute
in single precision, whose largest number is 3.4e38. Products of two numbers within this limit stay
below that, and so do sums of such products over many units.
"""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike

from pgmengine._kernels import LARGEST as LARGEST
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array, RngLike

# Relative rounding error of single precision.
SINGLE_ROUNDING = 2.0**-24

# The most axes of an array of numpy, and the most levels of lists within lists.
MAX_AXES = 64

IN_RANGE = f"a finite number of size up to {LARGEST:g}"


def in_range(values: ArrayLike) -> Array:
    """Return whether each number is finite and at most LARGEST in size."""
    # Both comparisons are False for NaN. Absolute values would be a second copy of large weights.
    values = np.asarray(values)
    return np.asarray((values <= LARGEST) & (values >= -LARGEST))


# The largest integer of a setting. Larger ones have no double, and no loop comes to their end.
LARGEST_WHOLE = 2**53


def whole(what: str, value: object, least: int = 1) -> int:
    """Return the value as an int; raise PgmError unless it is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise PgmError(f"{what} must be an integer of at least {least}, not {told(value)}")
    if int(value) > LARGEST_WHOLE:
        raise PgmError(f"{what} must be an integer of at most 2^53, not {told(value)}")
    return int(value)


def check_text(name: str, what: str) -> None:
    """Raise PgmError for text with a lone surrogate, which no file and no terminal can hold."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise PgmError(f"{what} must be text that files can hold, not {name!r}") from None


def real(value: object) -> float:
    """Return a real number as a float, and NaN for everything else.

    Booleans, and integers that are too large for a float, become NaN.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def is_missing(value: object) -> bool:
    """Whether a value stands for one that is not observed: None, NaN, or NA or NaT of pandas."""
    if value is None or type(value) is str:
        return value is None
    unknown = type(value).__name__ in ("NAType", "NaTType")
    return unknown or (np.isscalar(value) and bool(value != value))


def amount(what: str, value: object) -> float:
    """Return the value as a float; raise PgmError unless it is finite and not negative."""
    if not 0 <= real(value) < math.inf:
        raise PgmError(f"{what} must be a finite number of at least 0, not {told(value)}")
    return real(value)


def check_whole(settings: object, *names: str, least: int = 1) -> None:
    """Raise PgmError unless these attributes are integers of at least `least`."""
    for name in names:
        whole(f"{type(settings).__name__}: {name}", getattr(settings, name), least)


def check_limit(settings: object, *names: str) -> None:
    """Raise PgmError unless these attributes are numbers of at least 0; inf means no limit."""
    for name in names:
        value = getattr(settings, name)
        if not real(value) >= 0:
            raise PgmError(
                f"{type(settings).__name__}: {name} must be a number of at least 0, or math.inf, "
                f"not {told(value)}"
            )


def check_number(
    settings: object, *names: str, most: float = math.inf, below: float = math.inf
) -> None:
    """Raise PgmError unless these attributes are finite, in [0, most] and less than `below`."""
    for name in names:
        value = getattr(settings, name)
        if not (0 <= real(value) < math.inf and real(value) <= most and real(value) < below):
            limits = f"from 0 to {most:g}" if most < math.inf else "of at least 0"
            limits += f" and below {below:g}" if below < math.inf else ""
            raise PgmError(
                f"{type(settings).__name__}: {name} must be a finite number {limits}, not "
                f"{told(value)}"
            )


def check_rate(settings: object, name: str, most: float = math.inf) -> None:
    """Raise PgmError unless this attribute is a number in [0, most] or a schedule.

    A schedule is any function of the number of an update; its values are not checked.
    """
    check_instance(getattr(settings, name), f"{type(settings).__name__}: {name}")
    if not callable(getattr(settings, name)):
        check_number(settings, name, most=most)


def check_instance(thing: object, what: str) -> None:
    """Raise PgmError for a class in the place of one of its instances."""
    if isinstance(thing, type):
        raise PgmError(
            f"{what} must be an instance such as {thing.__name__}(...), "
            f"not the class {thing.__name__}"
        )


def check_method(method: object, what: str = "method") -> None:
    """Raise PgmError unless the object has the methods of an inference method."""
    check_instance(method, what)
    if not all(callable(getattr(method, name, None)) for name in ("plan", "run")):
        raise PgmError(
            f"{what} must be an inference method such as pgm.Exact(), not {told(method)}"
        )


def check_truth(settings: object, *names: str) -> None:
    """Raise PgmError unless these attributes are True or False."""
    for name in names:
        if not isinstance(getattr(settings, name), (bool, np.bool_)):
            given = told(getattr(settings, name))
            raise PgmError(f"{type(settings).__name__}: {name} must be True or False, not {given}")


def check_name(settings: object, name: str = "name") -> None:
    """Raise PgmError unless this attribute is text."""
    if not isinstance(given := getattr(settings, name), str):
        raise PgmError(f"{type(settings).__name__}: {name} must be text, not {told(given)}")


def check_executor(executor: object) -> None:
    """Raise PgmError unless the object is None, or has the method `submit` of executors."""
    if executor is not None:
        check_instance(executor, "executor")
        if not callable(getattr(executor, "submit", None)):
            raise PgmError(
                "executor must be one of concurrent.futures, or have their method submit, not "
                f"{told(executor)}"
            )


def check_kernel(kernel: object) -> None:
    """Raise PgmError unless the object has the method `transition` of kernels."""
    check_instance(kernel, "kernel")
    if not callable(getattr(kernel, "transition", None)):
        raise PgmError(
            "kernel must be a kernel such as Gibbs() or FlipState(), with a method transition, "
            f"not {told(kernel)}"
        )


def check_moves(moves: object) -> None:
    """Raise PgmError unless the object has the method `over` of moves of pairs of ladders."""
    check_instance(moves, "moves")
    if not callable(getattr(moves, "over", None)):
        raise PgmError(f"moves must be Houdayer() or None, not {told(moves)}")


def seeded(rng: RngLike) -> np.random.Generator:
    """Return a random number generator for a seed, a generator or None."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise PgmError(
            f"rng must be an integer of at least 0, None or a numpy Generator, not {told(rng)}"
        ) from None
