"""Answers of an exploration: what `infer` says, or the message of its error."""

from __future__ import annotations

from dataclasses import dataclass

from pgmengine.apps.explorer.exploration import Given, arguments
from pgmengine.base.errors import PgmError
from pgmengine.declare.model import Model
from pgmengine.declare.pictures.scene import Values
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.question.ask import infer
from pgmengine.infer.results.overview import values_drawn
from pgmengine.infer.results.result import Result

# The largest time of an answer, as plans estimate it, in seconds.
MAX_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, eq=False)
class Answered:
    """The answer for evidence, or the message of the error."""

    values: Values
    result: Result | None
    error: str = ""


def wanted(model: Model, ground: Given) -> tuple[str, ...]:
    """Return what is asked: log p(evidence), too, where it is exact in a short time."""
    asked = arguments(model.structure, ground)
    target = model.given(asked.evidence, asked.soft, asked.do or None)
    exact = Exact().plan(target, ("marginals", "log_prob"))
    quick = exact.accepted and exact.seconds <= MAX_ANSWER_SECONDS
    return ("marginals", "log_prob") if quick else ("marginals",)


def answered(model: Model, given: Given, want: tuple[str, ...]) -> Answered:
    """Return the answer for what is given; errors are in it in words."""
    asked = arguments(model.structure, given)
    try:
        result = infer(
            model,
            asked.evidence,
            want,
            soft=asked.soft,
            do=asked.do or None,
            rng=0,
            seconds=MAX_ANSWER_SECONDS,
            progress=False,
        )
    except PgmError as error:
        return Answered(Values(), None, str(error))
    except MemoryError:
        return Answered(Values(), None, "the answer needs more memory than is free")
    return Answered(values_drawn(result), result)
