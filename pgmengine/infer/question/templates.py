"""Questions about a template, whose rows have any number of steps.

Rows of one length with values under the same names are asked together, as rows of one question, and
the result is divided again. Wanted gradients are sums over rows, so that each row is then asked by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pgmengine.base.errors import InternalError, PgmError
from pgmengine.declare.template import Row, Template, rows_of_data, shape_of, stacked
from pgmengine.evidence.given import make_target
from pgmengine.infer.question.rows import rows_of
from pgmengine.infer.question.wanted import SQUEEZED
from pgmengine.infer.results.result import Result
from pgmengine.model.model import Model

# Asks a question about a model: evidence, soft evidence and interventions by name.
Asking = Callable[[Model, Any, Any, Any], Result]


def answer_rows(
    template: Template,
    evidence: object,
    soft: object,
    do: object,
    ask: Asking,
    together: bool = True,
) -> list[Result]:
    """Return the result of each row of a template, in order.

    Parameters
    ----------
    template : the template.
    evidence : the rows, as `rows_of_data` takes them.
    soft, do : None, or a row for each row of evidence, None where it has none.
    ask : answers one question.
    together : whether rows of one length may be asked together.

    Raises
    ------
    PgmError for rows without a number of steps, and where the numbers of rows differ.
    """
    rows = rows_of_data(template, evidence, "evidence")
    parts = [_as_many(part, what, len(rows)) for part, what in ((soft, "soft"), (do, "do"))]
    found: list[Result | None] = [None] * len(rows)
    for steps, numbers in template.groups(rows, "evidence").items():
        model = template(steps)
        for group in _alike(rows, parts, numbers) if together else [[i] for i in numbers]:
            for i, result in zip(
                group, _asked(model, rows, parts, group, ask, together), strict=True
            ):
                found[i] = result
    if any(result is None for result in found):
        raise InternalError("a row of a template has no answer")
    return [result for result in found if result is not None]


def _as_many(given: object, what: str, rows: int) -> list[Any]:
    """Return soft evidence or interventions of each row, None where there are none."""
    if given is None:
        return [None] * rows
    if not isinstance(given, (list, tuple)) or len(given) != rows:
        count = f"{len(given)} entries" if isinstance(given, (list, tuple)) else repr(given)
        raise PgmError(
            f"{what} of a template must be a list with an entry, or None, for each of the {rows} "
            f"rows, not {count:.80}"
        )
    return list(given)


def _alike(
    rows: Sequence[Row], parts: Sequence[list[Any]], numbers: Sequence[int]
) -> list[list[int]]:
    """Return groups of rows of one length that have values of equal shapes under the same names."""
    found: dict[object, list[int]] = {}
    for i in numbers:
        row = rows[i]
        plain = isinstance(row, Mapping) and all(part[i] is None for part in parts)
        key = tuple((k, shape_of(v)) for k, v in row.items()) if plain else i  # type: ignore[union-attr]
        found.setdefault(key, []).append(i)
    return list(found.values())


def _asked(
    model: Model,
    rows: Sequence[Row],
    parts: Sequence[list[Any]],
    group: Sequence[int],
    ask: Asking,
    together: bool,
) -> list[Result]:
    """Return the results of the rows of a group."""
    values = [rows[i] if isinstance(rows[i], Mapping) else {} for i in group]
    soft, do = (part[group[0]] for part in parts)
    # With an axis of rows, states in as many steps as there are states are no one-hot row.
    if not together or soft is not None or do is not None or not values[0]:
        _check(model, group[0], values[0], soft, do)
        return [ask(model, values[0], soft, do)]
    try:
        whole = ask(model, stacked(values), soft, do)  # type: ignore[arg-type]
    except PgmError:
        # The message has the number of the row in this group, and not in the evidence.
        for i, row in zip(group, values, strict=True):
            _check(model, i, row, soft, do)
        raise
    return [_row(whole, model, i, values[i], soft, do) for i in range(len(group))]


def _check(model: Model, i: int, row: Any, soft: Any, do: Any) -> None:
    """Raise PgmError that names the row if it is unusable, or is several rows.

    Soft evidence of another number of steps could otherwise be read as rows of a shorter sequence.
    """
    try:
        target = make_target(model, row, soft=soft, do=do)
    except PgmError as error:
        raise PgmError(f"row {i}: {error}") from None
    if target.rows > 1:
        raise PgmError(
            f"row {i}: the values, soft evidence or interventions have {target.rows} rows; give "
            "each of them in the shape of its variables, without an axis of rows"
        )


def _row(whole: Result, model: Model, i: int, row: Any, soft: Any, do: Any) -> Result:
    """Return the result of one of several rows, without an axis of rows, as if asked alone."""
    one = rows_of(whole, np.array([i]))
    answers = {
        name: {key: part[0] for key, part in value.items()} if name in SQUEEZED else value
        for name, value in one.answers.items()
    }
    return one.to(make_target(model, row, soft=soft, do=do), answers)
