"""Questions about a template, whose rows have any number of steps.

Each row is read by itself, for the model of its number of steps. Rows of one model are then asked
together, as rows of one question, and the result is divided again. Wanted gradients are sums over
rows, so that each row is then asked by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine.base.display import counted
from pgmengine.base.equal_rows import spread
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import States
from pgmengine.declare.model import Model
from pgmengine.declare.template import Template, rows_of_data
from pgmengine.evidence.evidence import Evidence
from pgmengine.evidence.extended.extended_targets import on_model
from pgmengine.evidence.given import make_target
from pgmengine.evidence.relevance import EvidencePattern
from pgmengine.evidence.target import Target
from pgmengine.infer.question.joining import rows_of
from pgmengine.infer.results.axes import SQUEEZED, squeeze
from pgmengine.infer.results.result import Result


@dataclass(frozen=True)
class RowsAlike:
    """Rows of a template that are asked together, as rows of one question about a model.

    Attributes
    ----------
    model, steps : the model of their number of steps.
    numbers : their numbers among all rows.
    targets : each row as a target of one row.
    """

    model: Model
    steps: int
    numbers: list[int]
    targets: list[Target]

    @property
    def title(self) -> str:
        """The rows in words."""
        some = listed([str(i) for i in self.numbers])
        return f"row{'s' * (len(self.numbers) > 1)} {some} of {counted(self.steps, 'step')}"

    @property
    def target(self) -> Target:
        """All rows as one target."""
        rows, numbers = self.targets, np.array(self.numbers)
        if len(rows) == 1:
            return replace(rows[0], numbers=numbers)
        s = rows[0].structure
        none = {name: s.no_evidence[name][0] for t in rows for name in t.soft}
        pattern = EvidencePattern(
            s,
            len(rows),
            _stacked([t.pattern.observed for t in rows]),
            _stacked([t.intervened for t in rows]),
        )
        evidence = Evidence(True, _stacked([t.evidence.values for t in rows]), pattern)
        soft, zero = _stacked([none | t.soft for t in rows]), np.zeros(1)
        common = np.concatenate([zero if t.common is None else t.common for t in rows])
        shared = common if common.any() else None
        ones = np.ones(len(rows))
        return Target(rows[0].model, evidence, soft, ones, {}, None, numbers, (), shared)

    def divided(self, whole: Result) -> Iterator[tuple[int, Result]]:
        """Yield the number of each row, and its result without an axis of rows."""
        for i, (number, row) in enumerate(zip(self.numbers, self.targets, strict=True)):
            one = whole
            if len(self.targets) > 1:
                one = rows_of(whole, np.array([i]))
                target = row if row.model is self.model else on_model(row, self.model)
                answers = {
                    name: squeeze(target, value) if name in SQUEEZED else value
                    for name, value in one.answers.items()
                }
                one = one.to(target, answers)
            yield number, one


def questions_of(
    template: Template,
    evidence: object,
    soft: object,
    do: object,
    together: bool = True,
    seen: Callable[[Model, Any], Any] = lambda model, row: row,
    what: str = "evidence",
) -> list[RowsAlike]:
    """Return the rows of a template as questions about models.

    Parameters
    ----------
    template : the template.
    evidence : the rows, as `rows_of_data` takes them.
    soft, do : None, or a row for each row of evidence, None where it has none.
    together : whether rows of one model may be asked together.
    seen : returns the evidence of a row, given its model and the row, which may be None.
    what : the name of the rows in messages.

    Raises
    ------
    PgmError for rows without a number of steps, and where the numbers of rows differ.
    """
    rows = rows_of_data(template, evidence, what)
    parts = [_as_many(part, what, len(rows)) for part, what in ((soft, "soft"), (do, "do"))]
    found: dict[object, RowsAlike] = {}
    for steps, numbers in template.groups(rows, what).items():
        model = template(steps)
        for i in numbers:
            row = rows[i] if isinstance(rows[i], Mapping) else None
            target = _read(model, i, seen(model, row), parts[0][i], parts[1][i], what)
            # Soft evidence of some kinds gives a row a model of its own.
            key = target.model if together else i
            one = found.setdefault(key, RowsAlike(model, steps, [], []))
            one.numbers.append(i)
            one.targets.append(target)
    return list(found.values())


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


def _read(model: Model, i: int, row: Any, soft: Any, do: Any, what: str) -> Target:
    """Return a row as a target; PgmError that names the row if it is unusable, or several rows.

    Soft evidence of another number of steps could otherwise be read as rows of a shorter sequence.
    """
    try:
        target = make_target(model, row, soft=soft, do=do, what=what)
    except PgmError as error:
        raise PgmError(f"row {i}: {error}") from None
    if target.rows > 1:
        raise PgmError(
            f"row {i}: the values, soft evidence or interventions have {target.rows} rows; give "
            "each of them in the shape of its variables, without an axis of rows"
        )
    return target


def _stacked(parts: Sequence[States]) -> States:
    """Return arrays by name of one row each as those of all rows; equal rows are stored once."""
    out = {}
    for name in parts[0]:
        found = np.concatenate([part[name] for part in parts])
        out[name] = spread(found[:1], len(found)) if (found == found[:1]).all() else found
    return out
