"""Repeats of an experiment: on worker processes, on a dask cluster, or here; kept in files, from
which it goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sweep:
    """The workers that run the parts of an experiment, and the folder that keeps their results."""

    executor: Executor | None
    folder: Path

    def results(
        self, name: str, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]
    ) -> np.ndarray:
        """function(*job) of every job, stacked; those in the folder as NAME-i.npy are taken from
        there.
        """
        files = [self.folder / f"{name}-{i}.npy" for i in range(len(jobs))]
        missing = [i for i, file in enumerate(files) if not file.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.executor is None:
            for i in missing:
                _write(files[i], function(*jobs[i]))
        else:
            futures = {self.executor.submit(function, *jobs[i]): i for i in missing}
            for future in as_completed(futures):
                _write(files[futures[future]], future.result())
        return np.array([np.load(file) for file in files])


@contextmanager
def sweep_on(workers: int, scheduler: str, folder: Path) -> Iterator[Sweep]:
    """Processes of one thread each, the workers of the dask scheduler at an address, or with one
    worker this process.
    """
    if scheduler:
        from distributed import Client

        with Client(scheduler) as client:
            yield Sweep(client.get_executor(pure=False), folder)
    elif workers > 1:
        os.environ["PGMENGINE_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            yield Sweep(pool, folder)
    else:
        yield Sweep(None, folder)


def kept(
    folder: Path, name: str, function: Callable[..., dict[str, Any]], *arguments: Any
) -> dict[str, np.ndarray]:
    """function(*arguments), named arrays, from NAME.npz in the folder if it is there."""
    file = folder / f"{name}.npz"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        found = function(*arguments)
        with part.open("wb") as out:
            np.savez(out, **found)
        part.replace(file)
    with np.load(file) as arrays:
        return dict(arrays)


def _write(file: Path, value: Any) -> None:
    """Write the file completely, or not at all."""
    part = file.with_suffix(".part")
    with part.open("wb") as out:
        np.save(out, value)
    part.replace(file)
