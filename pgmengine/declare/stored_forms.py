"""Forms of tables as files store them: whole numbers, one form after the other.

    leaves   the number of axes of the joint states, their sizes, the number of axes of the
             parameter, its sizes, and the leaf of each joint state
    gate     the number of steps, the two sizes of the parameter, and for each step its states
             before, those of the parent, those after, whether it has a parent, `rows` and `after`

Two forms with the same numbers are the same. Earlier files have a gate as its links, without the
rows of numbers that they follow from. `of_links` finds the rows of a noisy-max or a noisy-min;
each row of another link becomes a row of numbers of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.model.forms.gate import Step, Steps
from pgmengine.model.forms.table_forms import Formed, Leaves, TableForm

# The largest difference of entries of a link from those of a noisy-max that is rounding.
MAX_LINK_ERROR = 1e-14


def whole_numbers(form: TableForm | None) -> Array:
    """Return a form as whole numbers, (n,); none for a table without a form."""
    if form is None:
        return np.empty(0, dtype=np.int64)
    if isinstance(form, Leaves):
        leaf, size = form.leaf, form.size
        parts = [[leaf.ndim], leaf.shape, [len(size)], size, leaf.ravel()]
    else:
        assert isinstance(form, Steps)
        parts = [[len(form.steps)], form.size]
        for step in form.steps:
            parts += [[*step.rows.shape, step.states, int(step.has_parent)]]
            parts += [step.rows.ravel(), step.after.ravel()]
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])


def same_form(one: TableForm | None, other: TableForm | None) -> bool:
    """Whether entries of two tables follow from their numbers in the same way."""
    return type(one) is type(other) and np.array_equal(whole_numbers(one), whole_numbers(other))


class Reader:
    """Forms that are read one after the other from the whole numbers of a file."""

    def __init__(self, numbers: Array) -> None:
        self.numbers, self.place = numbers, 0

    def next(self, kind: str, what: str) -> TableForm | None:
        """Return the next form of a kind, "" for none; PgmError for damaged numbers."""
        if not kind:
            return None
        if kind not in ("leaves", "gate"):
            raise PgmError(f"{what} has a form of the kind {kind[:40]!r}, expected leaves or gate")
        return self._leaves(what) if kind == "leaves" else self._gate(what)

    def _take(self, shape: Sequence[int], most: float, what: str) -> Array:
        """Return the next numbers, from 0 to below `most`, as an array."""
        count = math.prod(shape)
        found = self.numbers[self.place : self.place + count]
        if len(found) != count or not ((found >= 0) & (found < most)).all():
            raise PgmError(f"{what} is damaged: its form does not fit its numbers")
        self.place += count
        return found.reshape(shape)

    def _sizes(self, count: int, what: str) -> tuple[int, ...]:
        sizes = tuple(self._take((count,), len(self.numbers) + 2, what).tolist())
        if 0 in sizes or math.prod(sizes) > 2**40:
            raise PgmError(f"{what} is damaged: its form has the sizes {sizes}")
        return sizes

    def _leaves(self, what: str) -> Leaves:
        shape = self._sizes(int(self._take((), 64, what)), what)
        size = self._sizes(int(self._take((), 3, what)), what)
        if not size:
            raise PgmError(f"{what} is damaged: its leaves have no numbers")
        return Leaves(self._take(shape, size[0], what), size)

    def _gate(self, what: str) -> Steps:
        count, rows, draws = self._sizes(3, what)
        steps, before = list[Step](), 1
        for _ in range(count):
            own, parent, after = self._sizes(3, what)
            has_parent = bool(self._take((), 2, what))
            if own != before or (parent > 1 and not has_parent):
                raise PgmError(f"{what} is damaged: the steps of its gate do not fit each other")
            taken = self._take((own, parent), rows, what)
            steps.append(Step(taken, self._take((own, draws), after, what), after, has_parent))
            before = after
        return Steps(tuple(steps), (rows, draws))


def of_links(start: Array, links: Sequence[Array]) -> Formed:
    """Return a gate of an earlier file.

    Parameters
    ----------
    start : (S_0,) the distribution of the first auxiliary variable.
    links : for each parent, (S_before, K_parent, S_after).
    """
    draws = max(len(start), *(link.shape[2] for link in links), 1)
    rows, steps = [start[None]], list[Step]()
    states = np.arange(draws)
    steps.append(
        Step(np.zeros((1, 1), dtype=np.int64), _kept(states, len(start))[None], len(start), False)
    )
    for link in links:
        before, parent, after = link.shape
        begin = sum(map(len, rows))
        own, step = _chosen(link) or (link.reshape(-1, after), None)
        rows.append(own)
        if step is None:
            step = np.broadcast_to(_kept(states, after), (before, draws))
            each = begin + np.arange(before * parent).reshape(before, parent)
        else:
            step = step[:, _kept(states, after)]
            each = np.broadcast_to(begin + np.arange(parent), (before, parent))
        steps.append(Step(each, step, after, True))
    theta = np.concatenate([np.pad(row, ((0, 0), (0, draws - row.shape[1]))) for row in rows])
    return Formed(Steps(tuple(steps), theta.shape), theta)


def _kept(states: Array, count: int) -> Array:
    """Return states, of which the ones that are not possible are replaced by a possible one."""
    return np.minimum(states, count - 1)


def _chosen(link: Array) -> tuple[Array, Array] | None:
    """Return the rows (K, S) and the states after (S, S) of a link that chooses an extreme."""
    before, _, after = link.shape
    if before != after:
        return None
    states = np.arange(after)
    orders = (states, states[::-1])
    for choose, order in product((np.maximum, np.minimum), orders):
        neutral = 0 if choose is np.maximum else after - 1
        step, rows = order[choose.outer(states, states)], link[neutral][:, order]
        one = Step(np.tile(np.arange(len(rows)), (before, 1)), step, after, True)
        (found,) = Steps((one,), rows.shape).links(rows)
        if np.allclose(found, link, rtol=MAX_LINK_ERROR, atol=MAX_LINK_ERROR):
            return rows, step
    return None
