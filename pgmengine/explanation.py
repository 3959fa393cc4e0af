"""What explain returns: text, and a table for terminals and notebooks."""

from __future__ import annotations

from typing import Any

from pgmengine.result import Plan


class Explanation(str):
    """The plans of all candidates as text; `rich.print` and notebooks show them as a table."""

    head: str
    plans: tuple[Plan, ...]
    chosen: Plan | None

    def __new__(cls, head: str, plans: list[Plan], chosen: Plan | None) -> Explanation:
        """From a first line, the plans in order, and the one that answers."""
        last = f"answer: {chosen.method}, {chosen.guarantee}" if chosen else "answer: none of these can"
        lines = [head, *(f"{'->' if p is chosen else '  '} {p}" for p in plans), last]
        self = super().__new__(cls, "\n".join(lines))
        self.head, self.plans, self.chosen = head, tuple(plans), chosen
        return self

    def __reduce__(self) -> Any:
        return Explanation.again, (self.head, self.plans, None if self.chosen is None else self.plans.index(self.chosen))

    @classmethod
    def again(cls, head: str, plans: tuple[Plan, ...], chosen: int | None) -> Explanation:
        """From its parts, as pickle keeps them."""
        return cls(head, list(plans), None if chosen is None else plans[chosen])

    def __rich__(self) -> Any:
        """The table."""
        from rich.box import SIMPLE_HEAD
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(self.head), title_justify="left", box=SIMPLE_HEAD)
        for column in ("", "method", "guarantee"):
            table.add_column(column, no_wrap=True)
        table.add_column("what it would do, or why not")
        for column in ("updates", "time", "memory"):
            table.add_column(column, justify="right", no_wrap=True)
        for p in self.plans:
            style = "bold" if p is self.chosen else "dim" if p.refusal else None
            sizes = ("", "", "") if p.refusal else (f"{p.work:.2g}", *p.sizes[1:])
            table.add_row("->" if p is self.chosen else "", p.method, p.guarantee if not p.refusal else "refused",
                          escape(p.refusal or p.why), *sizes, style=style)
        return table

    def _repr_html_(self) -> str:
        from html import escape

        head = ("", "method", "guarantee", "what it would do, or why not",
                "updates", "time", "memory")
        cells = [("→" if p is self.chosen else "", p.method, "refused" if p.refusal else p.guarantee, p.refusal or p.why,
                   *(("", "", "") if p.refusal else (f"{p.work:.2g}", *p.sizes[1:])))
                  for p in self.plans]
        rows = f"<tr>{''.join(f'<th>{c}</th>' for c in head)}</tr>"
        rows += "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in cells)
        return f"<p>{escape(self.head)}</p><table>{rows}</table>"
