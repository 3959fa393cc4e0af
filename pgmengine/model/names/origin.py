"""The data that a model was declared from: what was read from each column, for people to check.

It belongs to the structure, so that the printed model shows it before and after learning. Files of
models do not keep it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

from pgmengine.base.display import counted, few


@dataclass(frozen=True)
class Origin:
    """The data that a model was declared from.

    Attributes
    ----------
    rows : the number of rows.
    columns : name of a variable -> the kind of its column, and its cells without a value, in words.
    left_out : the columns that are no variables of the model.
    """

    rows: int
    columns: Mapping[str, str]
    left_out: tuple[Hashable, ...]

    def column(self, name: str) -> str:
        """Return what was read from the column of a variable, as the end of a line."""
        return f"; {self.columns.get(name, 'no column')}"

    def lines(self) -> Iterator[str]:
        """Yield the size of the data, and the columns that were left out."""
        left = f"; left out: {few(self.left_out)}" if self.left_out else ""
        yield f"declared from {counted(self.rows, 'row')}{left}"
