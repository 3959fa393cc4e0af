"""Calls of benchmarks/everyday.py: what users write, with its defaults, beside peers.

A call has cases: pgmengine first, then each peer that does the same job. A case runs in a process
of its own. It makes its data and imports its library before the clock starts, measures itself the
one call that a user would wait for, and then how good the answer is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import hypot, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from apart import apart, spent
from harness import OURS

import pgmengine as pgm

Array = np.ndarray
# Seconds of the processor, and memory, of a fit whose model other cases ask.
TRAINING, GIB = 600.0, 8.0


@dataclass(frozen=True)
class Given:
    """The settings of a run: small sizes or full ones, the folder of data, one for trained models.

    The folder of data has the folder mnist; without it, images are drawn at random.
    """

    small: bool
    data: Path | None
    kept: Path

    def size(self, full: int, small: int) -> int:
        """Return the size of this run."""
        return small if self.small else full


@dataclass(frozen=True)
class Answer:
    """The seconds of a call, the quality of its answer with a standard error, and a remark."""

    seconds: float
    quality: float | None = None
    error: float = 0.0
    note: str = ""


Case = Callable[[], Answer]


@dataclass(frozen=True)
class Call:
    """A call beside peers (None = absent), and what is asked of it.

    measure: the quality that is compared; sense: 1 if more is better, -1 if less is better, 0 if
    both have to agree; margin: the difference that does not count. over: peer -> the ratio asked,
    of its time to the time of pgmengine. limit: the most seconds that pgmengine may take.
    """

    name: str
    cases: dict[str, Case | None]
    measure: str = ""
    sense: int = 1
    margin: float = 0.0
    over: dict[str, float] = field(default_factory=dict)
    limit: float | None = None

    def as_good(self, own: Answer, other: Answer) -> bool | None:
        """Return whether an answer is as good as the one of a peer; None if nothing is compared."""
        if own.quality is None or other.quality is None:
            return None
        difference = own.quality - other.quality
        allowed = self.margin + 4 * hypot(own.error, other.error)
        worse = abs(difference) if self.sense == 0 else -self.sense * difference
        return isfinite(difference) and worse <= allowed


def with_holes(x: Array, share: float, seed: int) -> Array:
    """Return numbers of which a share is NaN, at random, and no row is without any number."""
    rng = np.random.default_rng(seed)
    hidden = rng.random(x.shape) < share
    hidden[hidden.all(axis=1), 0] = False
    return np.where(hidden, np.nan, x)


def log_p(fit: Any, data: Any) -> float:
    """Return the sum of log p of all rows."""
    r = pgm.infer(fit, data, want=("log_prob",), progress=False)
    each: Iterable[Any] = r if isinstance(r, list) else [r]
    return float(sum(np.sum(one.log_prob) for one in each))


def trained(given: Given, name: str, make: Callable[[], pgm.Model]) -> pgm.Model:
    """Return a model that is trained once in a run, in a process of its own."""
    file = given.kept / f"{name}.safetensors"
    if not file.exists():
        done = apart(lambda: pgm.save(make(), file), TRAINING, GIB)
        if done.failed:
            raise RuntimeError(f"training of {name}: {done.failed}")
    return pgm.load(file)


__all__ = ["OURS", "Answer", "Array", "Call", "Case", "Given", "log_p", "spent"]
__all__ += ["trained", "with_holes"]
