"""Workers: the same question on one and on two processes, and what a hundred would make of it.

    python benchmarks/executors.py

Prints the time on executors of one and of two worker processes of one thread each, medians of
interleaved runs, and what a part is made of: bytes there and back, seconds of work. From these
follows what a hundred workers would do.
"""

from __future__ import annotations

import os
import pickle
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

os.environ["PGMENGINE_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = (
    "1"  # before the workers are made
)

import numpy as np
from rich.console import Console
from rich.table import Table

import pgmengine as pgm

REPEATS = 3
NETWORK = 1.25e8  # bytes a second: one gigabit
# Seconds that the process which hands out the parts needs for each part.
DISPATCH = 1e-3


class Weighing(Executor):
    """Does every job here, and weighs it: bytes there, bytes back, seconds."""

    def __init__(self) -> None:
        self.jobs: list[tuple[int, int, float]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it."""
        there, begin = len(pickle.dumps((fn, args))), time.perf_counter()
        found = fn(*args, **kwargs)
        self.jobs.append((there, len(pickle.dumps(found)), time.perf_counter() - begin))
        future: Future[Any] = Future()
        future.set_result(found)
        return future


def questions() -> dict[str, tuple[Any, Any, Any, Any]]:
    """Name -> model, evidence, want, method."""
    rng = np.random.default_rng(0)
    rbm = pgm.rbm(784, 500, rng=0)
    rows = np.where(rng.random((100, 784)) < 0.5, np.nan, rng.integers(0, 2, (100, 784)))
    return {
        "100 rows, MCMC": (rbm, {"v": rows}, ("marginals",), pgm.MCMC(warmup=50, draws=200)),
        "1 row, AIS of 256 chains": (
            rbm,
            None,
            ("log_z",),
            pgm.AIS(chains=256, betas=pgm.Linear(300)),
        ),
        "500 rows, bound": (
            pgm.sbn([784, 200, 50], rng=0),
            {"v": np.nan_to_num(np.tile(rows, (5, 1)))},
            ("log_prob",),
            pgm.MeanField(updates=20, tolerance=0.0),
        ),
    }


def timed(pool: Executor, question: tuple[Any, Any, Any, Any]) -> float:
    """Seconds of one answer."""
    model, evidence, want, method = question
    begin = time.perf_counter()
    pgm.infer(model, evidence, want=want, method=method, rng=0, executor=pool)
    return time.perf_counter() - begin


def hundred(jobs: list[tuple[int, int, float]]) -> float:
    """Seconds on a hundred workers behind one gigabit: jobs are handed out one after the other, and
    come back so.
    """
    free, wire = np.zeros(100), 0.0
    for there, back, work in jobs:
        wire += there / NETWORK + DISPATCH
        worker = int(free.argmin())
        free[worker] = max(free[worker], wire) + work + back / NETWORK
    return float(free.max())


def main() -> None:
    """Measure and print."""
    table = Table(
        "question",
        "parts",
        "s, 1 worker",
        "s, 2 workers",
        "speed-up",
        "kB there",
        "kB back",
        "s a part",
        "100 workers: s",
        "speed-up",
    )
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as one,
        ProcessPoolExecutor(2, get_context("spawn")) as two,
    ):
        # Wake both pools, so that everything is imported.
        for pool in (one, two):
            list(pool.map(pow, range(8), range(8)))
            timed(
                pool,
                (pgm.rbm(4, 2, rng=0), {"v": np.zeros((3, 4))}, ("marginals",), pgm.MCMC(draws=10)),
            )
        for name, question in questions().items():
            times = np.array(
                [[timed(pool, question) for pool in (one, two)] for _ in range(REPEATS)]
            )
            alone, both = np.median(times, axis=0)
            scale = Weighing()
            timed(scale, question)
            there, back, work = np.mean(scale.jobs, axis=0)
            many = hundred(scale.jobs)
            table.add_row(
                name,
                str(len(scale.jobs)),
                f"{alone:.2f}",
                f"{both:.2f}",
                f"{alone / both:.2f}",
                f"{there / 1e3:.0f}",
                f"{back / 1e3:.0f}",
                f"{work:.2f}",
                f"{many:.2f}",
                f"{alone / many:.0f}",
            )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
