"""Questions about a template, whose rows have any number of steps.

Rows of one length with values under the same names are asked together, as rows of one question, and
the result is divided again. Wanted gradients are sums over rows, so that each row is then asked by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.display import counted
from pgmengine.base.errors import InternalError, PgmError, listed
from pgmengine.declare.model import Model
from pgmengine.declare.template import Row, Template, rows_of_data, shape_of, stacked
from pgmengine.evidence.given import make_target
from pgmengine.infer.question.joining import rows_of
from pgmengine.infer.results.axes import SQUEEZED
from pgmengine.infer.results.result import Result

# Asks a question about a model: evidence, soft evidence and interventions by name.
Asking = Callable[[Model, Any, Any, Any], Result]


@dataclass(frozen=True)
class RowsAlike:
    """Rows of a template that are asked together, as rows of one question about a model.

    Attributes
    ----------
    model, steps : the model of their number of steps.
    numbers : their numbers among all rows.
    values : the values of each row.
    soft, do : of the one row that has them, else None.
    alone : whether it is a single row that may not be asked with others.
    """

    model: Model
    steps: int
    numbers: tuple[int, ...]
    values: list[Mapping[Any, Any]]
    soft: Any
    do: Any
    alone: bool

    @property
    def title(self) -> str:
        """The rows in words."""
        some = listed([str(i) for i in self.numbers])
        return f"row{'s' * (len(self.numbers) > 1)} {some} of {counted(self.steps, 'step')}"

    @property
    def _has_rows(self) -> bool:
        """Whether the evidence has an axis of rows.

        With this axis, states in as many steps as there are states are no one-hot row.
        """
        plain = self.soft is None and self.do is None and bool(self.values[0])
        return plain and not self.alone

    @property
    def evidence(self) -> Mapping[Any, Any]:
        """The values of all rows."""
        return stacked(self.values) if self._has_rows else self.values[0]

    def asked(self, ask: Asking) -> list[Result]:
        """Return the result of each row."""
        if not self._has_rows:
            _check(self.model, self.numbers[0], self.values[0], self.soft, self.do)
            return [ask(self.model, self.values[0], self.soft, self.do)]
        try:
            whole = ask(self.model, self.evidence, None, None)
        except PgmError:
            # The message has the number of the row in this group, and not in the evidence.
            for i, row in zip(self.numbers, self.values, strict=True):
                _check(self.model, i, row, None, None)
            raise
        return [_row(whole, self.model, i, row, None, None) for i, row in enumerate(self.values)]


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
    found: dict[int, Result] = {}
    for q in questions_of(template, evidence, soft, do, together):
        found |= zip(q.numbers, q.asked(ask), strict=True)
    return [found[i] for i in range(len(found))]


def questions_of(
    template: Template, evidence: object, soft: object, do: object, together: bool
) -> list[RowsAlike]:
    """Return the rows of a template as questions about models; see `answer_rows`."""
    rows = rows_of_data(template, evidence, "evidence")
    parts = [_as_many(part, what, len(rows)) for part, what in ((soft, "soft"), (do, "do"))]
    found = list[RowsAlike]()
    for steps, numbers in template.groups(rows, "evidence").items():
        for group in _alike(rows, parts, numbers) if together else [[i] for i in numbers]:
            values = [row if isinstance(row := rows[i], Mapping) else {} for i in group]
            own = (part[group[0]] for part in parts)
            alike = template(steps), steps, tuple(group), values, *own, not together
            found.append(RowsAlike(*alike))
    if sorted(i for q in found for i in q.numbers) != [*range(len(rows))]:
        raise InternalError("a row of a template is in no question")
    return found


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
