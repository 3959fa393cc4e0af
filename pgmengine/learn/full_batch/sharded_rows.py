"""Rows of data in parts that are loaded in each pass, whose counts and gradients are added.

The first table of the first part stays in memory: plans, starts and findings look at it. A first
pass over all parts checks the data, and finds what is known once for all: the sum of weights, the
numbers that some row informs, the moments of real children, and the counts of complete rows of
tables, for which later passes are not needed. Parts are summed one by one, here or on the workers
of an executor, and their sums are added in their order, so that the bits do not depend on the
number of workers. The reference is a fit of all rows together (test_shards.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.executors import run_jobs
from pgmengine.declare.model import Model
from pgmengine.evidence.shards import Shard, Shards
from pgmengine.evidence.target import Target
from pgmengine.infer.question.prepared import AnyMethod
from pgmengine.learn.contracts import ModelPhase, Negative, NormalizedPhase, Positive
from pgmengine.learn.full_batch.counting import Moments, data_moments
from pgmengine.learn.full_batch.objective import Rows
from pgmengine.learn.phases.batch import idle_entries, joint_masks, only, uninformed_entries
from pgmengine.learn.starting.arguments import target_of
from pgmengine.model.containers import columns_in
from pgmengine.model.weights import plus


@dataclass(frozen=True, eq=False)
class Reading:
    """How tables become rows: the model, the units that are given, and both phases.

    `columns` are those of the first table, which every other one needs: a column that is missing
    would be learned as a hidden variable in silence.
    """

    model: Model
    given: Mapping[str, Array]
    negative: Negative
    positive: Positive | AnyMethod | None
    columns: frozenset[Any] = frozenset()

    def rows(self, shard: Shard, model: Model | None = None) -> Iterator[Rows]:
        """Yield the rows of each table of a part; PgmError names the part."""
        units = [(name, int(i)) for name, m in self.given.items() for i in np.flatnonzero(m)]
        for table in shard.tables():
            with shard.named():
                if lacking := self.columns - names_in(table):
                    names = listed(sorted(map(repr, lacking)))
                    raise PgmError(f"there is no column {names}, which the first table has")
                target, *_ = target_of(model or self.model, table, units)
            yield further_rows(
                target, np.ones(target.rows), self.given, self.negative, self.positive
            )


def names_in(table: Any) -> frozenset[Any]:
    """Return the names of the columns of a table, or of the layers of a mapping."""
    columns = columns_in(table)
    return frozenset(table if columns is None else [name for name, _ in columns])


def further_rows(
    target: Target,
    weights: Array,
    given: Mapping[str, Array],
    negative: Negative,
    positive: Positive | AnyMethod | None,
    executor: Any = None,
) -> Rows:
    """Return rows beside those of the model that learns, with their own masks and model phase."""
    rng = np.random.default_rng(0)
    uninformed = uninformed_entries(target, given)
    fixed = joint_masks(idle_entries(target, given), uninformed)
    phase: ModelPhase = NormalizedPhase()
    if not target.structure.normalized or given:
        phase = negative.start(only(target, given), rng)
    return Rows(target, weights, given, fixed, uninformed, phase, positive, rng, executor)


@dataclass(frozen=True, eq=False)
class Summary:
    """What a first pass over a part has found.

    Attributes
    ----------
    total : the sum of the weights of its rows.
    fixed, uninformed : parameter -> mask of the numbers that stay in all of its rows.
    counted : the counts of all entries of tables; None where a row is not complete.
    moments : the moments of real children.
    """

    total: float
    fixed: Mapping[str, Array]
    uninformed: Mapping[str, Array]
    counted: Array | None
    moments: Mapping[str, Moments]

    def with_(self, other: Summary) -> Summary:
        """Return the summary of two parts together."""
        both = None
        if self.counted is not None and other.counted is not None:
            both = self.counted + other.counted
        return Summary(
            self.total + other.total,
            _in_both(self.fixed, other.fixed),
            _in_both(self.uninformed, other.uninformed),
            both,
            _joint_moments(self.moments, other.moments),
        )


def _summary(reading: Reading, shard: Shard) -> Summary | None:
    """Return the summary of all tables of a part, None where it has no rows."""
    found = [
        Summary(
            rows.total,
            rows.fixed,
            rows.uninformed,
            rows.counted if rows.complete else None,
            data_moments([(rows.target, rows.weights)]),
        )
        for rows in reading.rows(shard)
    ]
    return reduce(Summary.with_, found) if found else None


def _in_both(one: Mapping[str, Array], other: Mapping[str, Array]) -> dict[str, Array]:
    """Return masks of the numbers that are in both."""
    return {key: one[key] & other[key] for key in one if key in other}


def _joint_moments(one: Mapping[str, Moments], other: Mapping[str, Moments]) -> dict[str, Moments]:
    """Return the moments of the data of two parts together (Chan, Golub and LeVeque 1983)."""
    out = {**one, **other}
    for key in one.keys() & other.keys():
        a, b = one[key], other[key]
        more = a.mean.ndim - a.weight.ndim
        wa, wb = (w.reshape((*w.shape, *[1] * more)) for w in (a.weight, b.weight))
        whole = np.where(wa + wb > 0, wa + wb, 1.0)
        gap = b.mean - a.mean
        mean = a.mean + gap * wb / whole
        spread = (wa * a.variance + wb * b.variance + gap**2 * wa * wb / whole) / whole
        empty = wa + wb == 0
        variance = np.where(empty, 1.0, spread)
        out[key] = Moments(a.weight + b.weight, np.where(empty, 0.0, mean), variance)
    return out


Sums = tuple[float | None, Mapping[str, Weight]]


def _added(found: Sequence[Sums]) -> Sums:
    """Return the sums of values, None if one is not known, and of arrays by parameter."""
    values = [value for value, _ in found if value is not None]
    total: dict[str, Weight] = {}
    for _, own in found:
        for key, x in own.items():
            total[key] = plus(total[key], x) if key in total else x
    return sum(values) if len(values) == len(found) else None, total


def _counts(reading: Reading, shard: Shard, model: Model) -> Sums:
    """Return the counts of all rows of a part."""
    return _added([rows.counts(model) for rows in reading.rows(shard, model)])


def _gradient(reading: Reading, shard: Shard, model: Model, total: float) -> Sums:
    """Return the gradient of all rows of a part."""
    return _added([rows.gradient(model, total) for rows in reading.rows(shard, model)])


class ShardedRows(Rows):
    """The rows of all parts. `target` and `weights` are those of the first table.

    Attributes
    ----------
    moments : the moments of real children in all rows.
    """

    in_memory = False

    def __init__(self, first: Rows, shards: Shards, reading: Reading) -> None:
        self.__dict__.update(first.__dict__)
        self.shards, self.reading = shards, reading
        jobs = [(reading, shard) for shard in shards.parts]
        found = run_jobs(self.executor, _summary, jobs, "shards")
        every = reduce(Summary.with_, [one for one in found if one is not None])
        self.total, self.moments = every.total, every.moments
        self.fixed, self.uninformed = every.fixed, every.uninformed
        self.complete = every.counted is not None
        if every.counted is not None:
            self.counted = every.counted

    def counts(self, model: Model) -> Sums:
        """Return the weighted sum of log-likelihoods, and the expected counts of table entries."""
        if self.complete and not model.structure.arrows:
            return super().counts(model)
        jobs = [(self.reading, shard, model) for shard in self.shards.parts]
        return _added(run_jobs(self.executor, _counts, jobs, "shards"))

    def gradient(self, model: Model, total: float) -> Sums:
        """Return the sum of log-likelihoods times weight / total, and its gradient."""
        jobs = [(self.reading, shard, model, total) for shard in self.shards.parts]
        return _added(run_jobs(self.executor, _gradient, jobs, "shards"))
