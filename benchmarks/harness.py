"""Parts that all rooms of the benchmark suite share: rows, timing of cases, medians of interleaved
rounds.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

# Fewer rounds are for smoke runs.
ROUNDS = 7
# Seconds of work in one measurement, where the work can be divided.
SECONDS = 0.2
OURS = "pgmengine"

Case = Callable[[], float]


@dataclass(frozen=True)
class Settings:
    """What a room is run with: the MNIST directory and weights file (None: stand-ins), threads,
    rounds, what to run.
    """

    data: str | None = None
    weights: str | None = None
    threads: int = 1
    repeats: int = ROUNDS
    only: str = ""


@dataclass(frozen=True)
class Row:
    """One comparison: cases (who -> a function that returns a time in `unit`; None = absent),
    pgmengine's first.

    goal: the ratio asked over the best peer; over: peer -> the ratio asked over it; limit: the most
    that ours may be.
    """

    name: str
    unit: str
    cases: dict[str, Case | None]
    goal: float | None = None
    over: dict[str, float] = field(default_factory=dict)
    limit: float | None = None
    note: str = ""
    # False where the other cases are points of a curve.
    peers: bool = True


@dataclass(frozen=True)
class Measured:
    """A row's medians (None = absent or failed), lowest and highest values, and how those that
    failed did.
    """

    name: str
    unit: str
    medians: dict[str, float | None]
    spans: dict[str, tuple[float, float]]
    failed: dict[str, str]
    goal: float | None
    over: dict[str, float]
    limit: float | None
    note: str
    peers: bool

    @property
    def ratios(self) -> dict[str, float]:
        """Every case that was measured but the first, over the first."""
        first, *others = self.medians
        ours = self.medians[first]
        return {who: m / ours for who in others if ours and (m := self.medians[who]) is not None}

    @property
    def best(self) -> str | None:
        """The fastest peer."""
        return min(self.ratios, key=self.ratios.__getitem__, default=None) if self.peers else None


def rate(make: Callable[[], Callable[[int], Any]], scale: float = 1.0) -> Case:
    """The case of a run(count): seconds of one of count, times scale; count fills SECONDS.

    Made and warmed up when it is first called, so that a row that is not run costs nothing.
    """

    @cache
    def made() -> tuple[Callable[[int], Any], int]:
        run = make()
        run(1)  # compiles, starts threads
        count = 1
        while (spent := _spent(run, count)) < SECONDS / 4:
            count = max(2 * count, math.ceil(count * SECONDS / 8 / max(spent, 1e-6)))
        return run, max(1, round(count * SECONDS / spent))

    def case() -> float:
        run, count = made()
        return _spent(run, count) / count * scale

    return case


def once(make: Callable[[], Callable[[], Any]], scale: float = 1.0) -> Case:
    """The case of a job(): its seconds times scale. Made when it is first called."""
    made = cache(make)

    def case() -> float:
        job = made()
        return _spent(job) * scale

    return case


def _spent(work: Callable[..., Any], *count: int) -> float:
    begin = time.perf_counter()
    work(*count)
    return time.perf_counter() - begin


def measure(row: Row, settings: Settings) -> Measured:
    """Every case once to warm up, then rounds of all of them in turn. A case that raises is
    reported, not the end.
    """
    # Threads of the previous case go on spinning for a while.
    pause = 0.1 if settings.threads == 1 else 0.5
    times: dict[str, list[float]] = {who: [] for who, case in row.cases.items() if case is not None}
    failed: dict[str, str] = {}
    for _ in range(settings.repeats + 1):
        gc.collect()
        for who in [who for who in times if who not in failed]:
            time.sleep(pause)
            try:
                times[who].append(row.cases[who]())  # type: ignore[misc]
            except Exception as error:
                failed[who] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    kept = {who: values[1:] for who, values in times.items() if who not in failed}
    medians = {who: statistics.median(kept[who]) if who in kept else None for who in row.cases}
    spans = {who: (min(values), max(values)) for who, values in kept.items()}
    return Measured(
        row.name,
        row.unit,
        medians,
        spans,
        failed,
        row.goal,
        row.over,
        row.limit,
        row.note,
        row.peers,
    )
