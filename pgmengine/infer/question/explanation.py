"""Explanations: the answer of explain, as text and as a table for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgmengine.infer.results.result import AnyPlan, duration_here

if TYPE_CHECKING:
    from rich.table import Table

PLAN_COLUMNS = (
    "",
    "method",
    "guarantee",
    "what it would do, or why not",
    "updates",
    "time",
    "memory",
)


@dataclass(frozen=True)
class Part:
    """A part of a question that one method answers.

    Attributes
    ----------
    title : the wanted quantities in words; empty if the part is the whole question.
    plans : the plan of each candidate.
    most_seconds : the time of the answer with all methods that follow where chains do not mix.
    """

    title: str
    plans: tuple[AnyPlan, ...]
    most_seconds: float = 0.0

    @property
    def chosen(self) -> AnyPlan | None:
        """The plan that answers, or None if all are refused."""
        return next((plan for plan in self.plans if plan.accepted), None)

    @property
    def answer(self) -> str:
        """The method that answers, and its guarantee."""
        by = f"{self.title} by " if self.title else ""
        if self.chosen is None:
            return f"{by}none of these can"
        longest = duration_here(self.most_seconds)
        others = f"; at most about {longest} with the methods that follow where chains do not mix"
        more = longest != duration_here(self.chosen.most_seconds) and self.most_seconds > 0.0
        return f"{by}{self.chosen.method}, {self.chosen.guarantee}{others * more}"

    @property
    def shown(self) -> tuple[AnyPlan, ...]:
        """The plans, with equal refusals of a method with several settings given once."""
        return tuple(
            plan for i, plan in enumerate(self.plans) if plan.accepted or plan not in self.plans[:i]
        )

    def cells(self) -> Iterator[tuple[AnyPlan, tuple[str, ...]]]:
        """Yield each plan with its table cells, in the order of PLAN_COLUMNS after the mark."""
        for plan in self.shown:
            sizes = ("", "", "") if plan.refusal else (f"{plan.work:.2g}", *plan.sizes[1:])
            yield (
                plan,
                (
                    plan.method,
                    "refused" if plan.refusal else plan.guarantee,
                    plan.refusal or plan.why,
                    *sizes,
                ),
            )


class Explanation(str):
    """The plans of all candidates as text; `rich.print` and notebooks show them as a table.

    If the parts of a question have different best methods, there are plans for each part.

    Attributes
    ----------
    head : the first line, which describes the question.
    parts : the parts of the question with their plans.
    """

    head: str
    parts: tuple[Part, ...]

    def __new__(cls, head: str, parts: Sequence[Part]) -> Explanation:
        """Make the text from a first line and the parts of the question."""
        lines = [head]
        for part in parts:
            lines += [f"{part.title}:"] * bool(part.title)
            lines += [f"{'->' if plan is part.chosen else '  '} {plan}" for plan in part.shown]
        self = super().__new__(
            cls, "\n".join([*lines, f"answer: {'; '.join(part.answer for part in parts)}"])
        )
        self.head, self.parts = head, tuple(parts)
        return self

    @property
    def plans(self) -> tuple[AnyPlan, ...]:
        """The plans of all parts, in order."""
        return tuple(plan for part in self.parts for plan in part.plans)

    @property
    def chosen(self) -> AnyPlan | None:
        """The plan that answers the first part, or None."""
        return self.parts[0].chosen

    def __reduce__(self) -> Any:
        return Explanation, (self.head, self.parts)

    def __rich__(self) -> Table:
        """Return the table for terminals."""
        from rich.box import SIMPLE_HEAD
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(self.head), title_justify="left", box=SIMPLE_HEAD)
        for number, column in enumerate(PLAN_COLUMNS):
            table.add_column(column, no_wrap=number != 3, justify="right" if number > 3 else "left")
        for part in self.parts:
            if part.title:
                table.add_row("", *[""] * 2, escape(f"{part.title}:"), "", "", "", style="italic")
            for plan, cells in part.cells():
                style = "bold" if plan is part.chosen else "dim" if plan.refusal else None
                table.add_row("->" if plan is part.chosen else "", *map(escape, cells), style=style)
        return table

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        from html import escape

        rows = f"<tr>{''.join(f'<th>{c}</th>' for c in PLAN_COLUMNS)}</tr>"
        for part in self.parts:
            if part.title:
                rows += f'<tr><td colspan="{len(PLAN_COLUMNS)}">{escape(part.title)}:</td></tr>'
            for plan, cells in part.cells():
                every = ("→" if plan is part.chosen else "", *cells)
                rows += f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in every)}</tr>"
        return f"<p>{escape(self.head)}</p><table>{rows}</table>"
