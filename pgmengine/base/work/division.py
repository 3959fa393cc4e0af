"""Rows that are divided among trees, blocks or workers: each row belongs to exactly one part.

A row that is in no part has no answer, and a row that is in two parts counts twice in every sum,
which nobody would notice. Every function that divides rows therefore checks the parts before an
answer is returned.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pgmengine.base.errors import InternalError, listed
from pgmengine.base.types import Array


def blocks(rows: Array, size: float) -> list[Array]:
    """Return rows in blocks of at most `size` rows, at least one row each, in order.

    >>> blocks(np.array([0, 2, 3]), 2)
    [array([0, 2]), array([3])]
    """
    step = int(max(1, min(size, len(rows))))
    return [rows[first : first + step] for first in range(0, len(rows), step)]


def check_divided(parts: Sequence[Array], rows: int, what: str) -> None:
    """Raise InternalError unless each of `rows` rows is in exactly one part.

    Parameters
    ----------
    parts : the numbers of the rows of each part, ascending.
    rows : the number of all rows.
    what : the work that was divided, for the message.
    """
    alone = len(parts) == 1 and len(parts[0]) == rows
    if alone and (parts[0][0] == 0 if rows == 1 else (parts[0] == np.arange(rows)).all()):
        # Most questions have one part, for which the general check below takes too long.
        return
    joint = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    times = np.bincount(joint, minlength=rows)
    if len(times) > rows or (times != 1).any():
        wrong = [f"row {r} by {times[r]}" for r in np.flatnonzero(times != 1).tolist()]
        raise InternalError(f"{what}: each row has to be answered by one part, not {listed(wrong)}")
    rises = np.diff(joint) > 0
    # The first row of a part may be smaller than the last row of the part before.
    rises[np.cumsum([len(part) for part in parts[:-1]], dtype=np.int64) - 1] = True
    if not rises.all():
        raise InternalError(f"{what}: the rows of a part are not in order")
