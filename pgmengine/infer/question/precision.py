"""A precision that is asked for: rounds of a method, each twice as long, until errors are small.

The error of an estimate is its standard error, and of proven bounds half of their distance. A round
continues the chains of the one before where the method can, and has twice its draws, so that the
whole takes at most about twice the time of the last round. Rounds end when the error is small
enough and no diagnostic has found a fault, or when another round would not end in time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol

import numpy as np

from pgmengine.base.checks import real
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Snapshot
from pgmengine.infer.question.prepared import MethodLike
from pgmengine.infer.results.result import Result, duration

# Settings that make a method longer: the first one that it has is doubled.
LENGTHS = ("draws", "chains", "sweeps", "seconds")
# Seconds of all rounds where no other time is given.
DEFAULT_SECONDS = 600.0
# A round takes about twice as long as the last one. A little more is left for its judgement.
NEXT_ROUND = 2.2


class Ask(Protocol):
    """Answers the question by a method, from a snapshot to go on from."""

    def __call__(self, *, method: MethodLike, state: Snapshot | None) -> Result:
        """Return the answer."""


def largest_error(result: Result) -> float:
    """Return the largest error of the answers: 0 of exact ones, inf where it is not known."""
    if result.kind == "exact":
        return 0.0
    answers, found = result.answers, list[Any]()
    if "mean" in answers:
        found += _each(result.stats.get("mcse", np.inf if "prob_interval" not in answers else 0.0))
    for name in ("log_z", "log_prob"):
        if name not in answers:
            continue
        if (ends := answers.get(f"{name}_interval")) is not None and result.kind == "bounds":
            found.append(np.ptp(ends, axis=-1) / 2.0)
        else:
            known = getattr(result, f"{name}_error") if result.kind == "estimate" else np.inf
            found.append(known)
    for ends in answers.get("prob_interval", {}).values():
        found.append(np.ptp(ends, axis=-1) / 2.0)
    if "mode" in answers:
        found.append(result.mode_gap)
    largest = max((float(np.max(x, initial=0.0)) for x in found), default=np.inf)
    return np.inf if np.isnan(largest) else largest


def _each(errors: Any) -> list[Any]:
    return list(errors.values()) if isinstance(errors, Mapping) else [errors]


def longer(method: Any) -> Any:
    """Return a method with twice the draws, or None where it has no such setting."""
    if not is_dataclass(method) or isinstance(method, type):
        return None
    own = {f.name for f in fields(method)}
    name = next((n for n in LENGTHS if n in own and getattr(method, n)), None)
    return None if name is None else replace(method, **{name: 2 * getattr(method, name)})


def precise(
    ask: Ask, method: MethodLike, state: Snapshot | None, tolerance: float, seconds: float | None
) -> Result:
    """Return an answer whose errors are at most `tolerance`, or the last one, which says so.

    Parameters
    ----------
    ask : answers the question by a method, from a snapshot.
    method, state : of the first round.
    tolerance : the largest error.
    seconds : the time of all rounds; DEFAULT_SECONDS for None.
    """
    if not real(tolerance) > 0:
        raise PgmError(f"tolerance must be a number above 0, not {told(tolerance)}")
    most, begin = DEFAULT_SECONDS if seconds is None else seconds, time.monotonic()
    result = ask(method=method, state=state)
    last = time.monotonic() - begin
    while not (result.status.good and largest_error(result) <= tolerance):
        if result.status.good and result.kind == "approximation":
            return _short_of(result, tolerance, "an approximation has no error that rounds reduce")
        more = longer(result.method)
        if more is None:
            return _short_of(result, tolerance, "its method has no draws to double")
        spent = time.monotonic() - begin
        if spent + NEXT_ROUND * last > most:
            return _short_of(result, tolerance, f"another round does not end in {duration(most)}")
        try:
            result = ask(method=more, state=result.state)
        except KeyboardInterrupt:
            return _short_of(result, tolerance, "it was stopped")
        last = time.monotonic() - begin - spent
    return result


def _short_of(result: Result, tolerance: float, why: str) -> Result:
    """Return a result that says that its error is larger than was asked for."""
    error = largest_error(result)
    size = "unknown" if np.isinf(error) else f"{error:.2g}"
    note = f"tolerance: the largest error is {size}, {tolerance:g} was asked for; {why}"
    return replace(result, warnings=(note, *result.warnings))
