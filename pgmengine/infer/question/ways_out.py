"""Ways out of a refusal or a doubtful answer: the calls that would answer, their worth and time.

The lines stand at the end of an error, or below the warnings of a result, and name methods with
their default settings. All plans with their reasons are shown by `explain`. Where no method gives
all wanted quantities, lines say which of them can be asked alone; joint tables and pairs are
frequencies of draws where nothing else is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.evidence.target import Target
from pgmengine.infer.bounds.mini_bucket import MiniBucket
from pgmengine.infer.counting.model_counting import ModelCounting
from pgmengine.infer.question.auto import Auto
from pgmengine.infer.question.precision import longer
from pgmengine.infer.question.prepared import AnyMethod, AnyPrepared, as_method
from pgmengine.infer.results.result import AnyPlan, Result, Status, duration_here, quantity

# Methods that answer questions that Auto does not ask by itself, since they are slow or no
# estimates.
BY_NAME: tuple[AnyMethod, ...] = (MiniBucket(), ModelCounting())
# Answers that are worth most come first.
BEST_FIRST = ("exact", "bounds", "estimate", "lower bound", "approximation")
MOST_WAYS = 3
# Statuses whose warnings already say what can be done, or that no other method can mend.
GIVEN_ELSEWHERE = (Status.ROUNDED, Status.ESTIMATED_BOUND, Status.IMPOSSIBLE)
LONGER = "tolerance=0.01: rounds of twice the draws, until no error is above 0.01"


@dataclass(frozen=True)
class Way:
    """A method with default settings, the quantities that it would answer, and its plan."""

    method: AnyMethod
    want: tuple[str, ...]
    plan: AnyPlan

    def line(self, whole: bool) -> str:
        """Return the way as text; `want` is left out where it is the whole question."""
        asked = "" if whole else f"want=({', '.join(map(repr, self.want))},), "
        most = "at most " * (self.plan.most_seconds > self.plan.seconds)
        time = f"{most}about {duration_here(self.plan.most_seconds)} on one core"
        return f"  {asked}method=pgm.{self.plan.method}(): {self.plan.guarantee}, {time}"


def with_ways_out(question: AnyPrepared, message: str) -> str:
    """Return the message of a refusal with at most three calls that would answer.

    Parameters
    ----------
    question : the refused question.
    message : why it was refused.
    """
    want, asked = question.want, question.method
    tried = asked.candidates if isinstance(asked, Auto) else (asked,)
    types = {type(as_method(m)) for m in tried}
    every = _methods(question.target)
    others = [m for m in every if type(m) not in types]
    limit = asked.max_seconds if isinstance(asked, Auto) else Auto().max_seconds
    find = partial(_ways, question.target, limit)
    ways, whole = _best(find(others, want)), True
    if not ways:
        parts = [(w,) for w in dict.fromkeys(_alone(want)) if (w,) != want]
        firsts = [next(find(every, part), None) for part in parts]
        ways, whole = [way for way in firsts if way is not None], False
    if not ways:
        return message
    lines = [way.line(whole) for way in ways[:MOST_WAYS]]
    return "\n".join(
        [message, "These calls answer it:" if whole else "These can be asked:", *lines]
    )


def ways_on(question: AnyPrepared, result: Result) -> tuple[str, ...]:
    """Return calls that may do better than a doubtful estimate; none after other answers."""
    if result.status in GIVEN_ELSEWHERE or result.kind != "estimate":
        return ()
    target = question.target
    lines = [LONGER] if longer(result.method) is not None else []
    find = _ways(target, Auto().max_seconds, _by_name(target), question.want)
    return (*lines, *(way.line(whole=True).strip() for way in find))


def _methods(target: Target) -> list[AnyMethod]:
    """Return all methods that may be a way out, each type once, in the order in which Auto asks."""
    every = (*map(as_method, Auto().candidates), *_by_name(target))
    return [m for i, m in enumerate(every) if type(m) not in map(type, every[:i])]


def _by_name(target: Target) -> tuple[AnyMethod, ...]:
    """Return the methods that Auto does not ask; states are counted where zeros leave few."""
    zeros = np.isneginf(target.model.table_entries).any()
    return BY_NAME if zeros else tuple(m for m in BY_NAME if not isinstance(m, ModelCounting))


def _alone(want: tuple[str, ...]) -> Iterator[str]:
    """Yield the quantities that may be asked one by one, and what may stand for them."""
    for w in want:
        yield w
        if quantity(w) in ("joint", "pairs"):
            yield "samples"
        if quantity(w) == "modes":
            yield from ("mode", "marginals")


def _ways(
    target: Target, limit: float, methods: Iterable[AnyMethod], want: tuple[str, ...]
) -> Iterator[Way]:
    """Yield the ways to answer in `limit` seconds, in the order of the methods."""
    for method in methods:
        try:
            plan = method.prepare(target, want).plan
        except PgmError:
            # The message that these lines are for must not give way to another one.
            continue
        if plan.accepted and plan.most_seconds <= limit:
            yield Way(method, want, plan)


def _best(ways: Iterable[Way]) -> list[Way]:
    """Return the first way of each guarantee, in the order of Auto, the best guarantee first."""
    found: dict[str, Way] = {}
    for way in ways:
        found.setdefault(way.plan.guarantee, way)
    return [found[kind] for kind in BEST_FIRST if kind in found]
