"""Starts on possible states, for mean field in models whose tables have entries of 0.

The bound is -inf where Q puts any mass on an impossible state, and Q is a product, so that it has
to lie on a box of possible states. A round widens the box where the tables allow it (expected.h),
and cannot leave a Q of which every box is impossible. A start is therefore one possible state of
the units in tables with zeros. It is searched with softened zeros, whose logarithm goes down step
by step: the most probable states of the fixed points, from the first Q, then from random ones, and
ancestral draws. To find a possible state is NP-hard, and the search may fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.engine.chains import start
from pgmengine.evidence.target import Target

if TYPE_CHECKING:
    from pgmengine.infer.variational.unit_tables import Belief

# Logarithms that stand for log 0, one after the other, and the most rounds at each of them.
STAND_INS_FOR_LOG_ZERO = (-3.0, -10.0, -40.0)
MAX_ROUNDS_PER_STAND_IN = 8

# Starts of the search: at least two, and no more than read so many entries of tables.
MAX_STARTS = 20
MAX_READ_ENTRIES = 3e8


def move_to_possible(q: Belief, rng: np.random.Generator | None) -> None:
    """Move every row without a bound to a possible state, where one is found."""
    generator = np.random.default_rng(0) if rng is None else rng
    each = q.entries() * MAX_ROUNDS_PER_STAND_IN * (len(STAND_INS_FOR_LOG_ZERO) + 1)
    for number in range(int(np.clip(MAX_READ_ENTRIES / max(each, 1.0), 2, MAX_STARTS))):
        rows = np.flatnonzero(~q.possible())
        if not len(rows):
            return
        target = q.target.take(rows)
        trial = q.again(target, None if number == 0 else generator)
        for _ in _trials(trial, generator):
            found = trial.possible() & ~q.possible()[rows]
            q.place_at({n: v[found] for n, v in trial.likely().items()}, rows[found])


def _trials(trial: Belief, rng: np.random.Generator) -> Iterator[None]:
    """Put Q of every row on a single state, again and again."""
    for least in STAND_INS_FOR_LOG_ZERO:
        trial.settle(MAX_ROUNDS_PER_STAND_IN, 1e-3, least)
    every = np.arange(trial.target.rows)
    trial.place_at(trial.likely(), every)
    yield
    # Units that were undecided together decide one after the other.
    trial.settle(MAX_ROUNDS_PER_STAND_IN, 1e-3, STAND_INS_FOR_LOG_ZERO[-1])
    trial.place_at(trial.likely(), every)
    yield
    trial.place_at(start(trial.target, rng), every)
    yield


def impossible_table(q: Belief, row: int) -> str:
    """Return the name of the first table that the likely states of a row make impossible."""
    target: Target = q.target.take(np.array([row]))
    x = {name: value[[row]] for name, value in q.likely().items()}
    dead = np.flatnonzero(np.isneginf(target.table_log_density(x)[0]))
    first = 0
    for tables in target.structure.tables:
        count = len(tables.index)
        if len(dead) and dead[0] < first + count:
            return tables.key + ("" if tables.single else f"[{dead[0] - first}]")
        first += count
    return ""
