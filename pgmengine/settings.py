"""Checks of the settings of methods, trainers and optimizers: what cannot mean anything is refused when it is written."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from pgmengine.errors import PgmError


def whole(what: str, value: Any, least: int = 1) -> int:
    """An integer of at least `least`, else PgmError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise PgmError(f"{what} must be an integer of at least {least}, not {value!r}")
    return int(value)


def check_whole(settings: Any, *names: str, least: int = 1) -> None:
    """PgmError unless these attributes are integers of at least `least`."""
    for name in names:
        whole(f"{type(settings).__name__}: {name}", getattr(settings, name), least)


def check_number(settings: Any, *names: str, most: float = math.inf, below: float = math.inf) -> None:
    """PgmError unless these attributes are numbers from 0 to `most`, and less than `below`; schedules may be anything."""
    for name in names:
        value = getattr(settings, name)
        if callable(value):
            continue
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
        if not (math.isfinite(number) and 0 <= number <= most and number < below):
            upper = f" to {most:g}" if most < math.inf else f" up, below {below:g}" if below < math.inf else " up"
            raise PgmError(f"{type(settings).__name__}: {name} must be a finite number from 0{upper}, not {value!r}")
