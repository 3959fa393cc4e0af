"""Expected gradients of weighed rows, by any exact method."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.rounding import check_digits
from pgmengine.infer.question.prepared import AnyMethod


def weighed_gradient(method: AnyMethod, target: Target, weights: Array) -> dict[str, Any]:
    """Return the sum over rows of weight * E[d log_density | row], parameter by parameter.

    Raises PgmError if the method refuses, or if terms are so large that no digits would be left.
    """
    weighed = replace(check_digits(target), weights=target.weighed(weights))
    question = method.prepare(weighed, ("gradient",))
    question.check()
    found: dict[str, Any] = method.answer(question, None, None, None).answers["gradient"]
    return found
