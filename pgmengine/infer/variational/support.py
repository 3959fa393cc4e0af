"""Starts on possible states, for mean field in models whose tables have entries of 0.

The bound is -inf if Q gives any probability to an impossible state. Q is a product, so that every
combination of the states to which it gives probability has to be possible; these combinations are a
box. Rounds add states to the box where the tables allow it (expected.h), but they cannot repair a Q
in which every state of a unit is impossible. A start is therefore one possible state of the units
in tables with zeros. The search replaces log 0 by finite logarithms, which fall step by step, and
makes rounds from the first Q, then from random ones. It tries the most probable states of the fixed
points, and ancestral draws. Finding a possible state is NP-hard, and the search may fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.engine.chains import start
from pgmengine.evidence.target import Target

if TYPE_CHECKING:
    from pgmengine.infer.variational.unit_tables import Belief

# Finite logarithms that replace log 0, one after another. With each of them there are at most
# MAX_ROUNDS_PER_STAND_IN rounds.
STAND_INS_FOR_LOG_ZERO = (-3.0, -10.0, -40.0)
MAX_ROUNDS_PER_STAND_IN = 8

# Number of starts of the search: at most MAX_STARTS, or fewer if they would read more than
# MAX_READ_ENTRIES table entries, but at least two.
MAX_STARTS = 20
MAX_READ_ENTRIES = 3e8


def move_to_possible(q: Belief, rng: np.random.Generator | None) -> None:
    """Move each row whose bound is -inf to a possible state, if one is found."""
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
    """Put Q of every row on a single state, a different one at each step."""
    for least in STAND_INS_FOR_LOG_ZERO:
        trial.settle(MAX_ROUNDS_PER_STAND_IN, 1e-3, least)
    every = np.arange(trial.target.rows)
    trial.place_at(trial.likely(), every)
    yield
    # Units that depend on each other are then decided one after another.
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
            return tables.key + (f"[{dead[0] - first}]" if count > 1 else "")
        first += count
    return ""
