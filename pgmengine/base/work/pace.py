"""The pace of this machine: how long it takes for a second of the machine of the prices.

Plans are sums of counts times prices, which were measured on one machine (engine/cost.py). The pace
is the ratio of the times of two fixed loops on both machines, one of numpy and one of Python. It is
used where plans are shown, and where a user gives a limit in seconds. Choices between methods use
the prices alone, so that they are the same on every machine and in every run.

The loops take a few hundredths of a second, once for each machine: a file in the cache of the user
has the result. Processes that measure at the same time write the same file, each as a whole, and a
damaged file is measured again.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np

from pgmengine.base.errors import PgmError, told
from pgmengine.base.files import cache_folder, write_whole

# The environment variable that sets the pace, so that nothing is measured.
PACE_VARIABLE = "PGMENGINE_PACE"

# Seconds of the two loops on the machine of the prices.
NUMPY_SECONDS, PYTHON_SECONDS = 5.25e-4, 4.8e-4

# How often each loop runs; its shortest time counts.
REPEATS = 15

# Paces beyond these limits are taken for damage.
LEAST, MOST = 2.0**-6, 2.0**6


@cache
def pace() -> float:
    """Return the seconds on this machine for a second of the machine of the prices."""
    given = os.environ.get(PACE_VARIABLE)
    if given:
        return _given(given)
    found = _stored()
    return renewed() if found is None else found


def renewed() -> float:
    """Measure the pace, store it for later processes, and return it."""
    both = _least(_of_numpy) / NUMPY_SECONDS, _least(_of_python) / PYTHON_SECONDS
    found = float(f"{np.sqrt(both[0] * both[1]):.2g}")
    found = min(max(found, LEAST), MOST)
    try:
        pace_file().parent.mkdir(parents=True, exist_ok=True)
        write_whole(pace_file(), json.dumps({"pace": found}).encode())
    except (OSError, PgmError, RuntimeError):
        # Without a home or a folder that can be written, each process measures.
        pass
    return found


def pace_file() -> Path:
    """Return the file of this machine, which may share the cache of its user with others."""
    machine = "\n".join((platform.node(), platform.machine(), platform.python_version()))
    return cache_folder() / f"pace-{sha256(machine.encode()).hexdigest()[:12]}.json"


def _given(text: str) -> float:
    """Return the pace in the environment; raise PgmError unless it is a number in the limits."""
    try:
        found = float(text)
    except ValueError:
        found = np.nan
    if not LEAST <= found <= MOST:
        raise PgmError(
            f"{PACE_VARIABLE} must be a number from {LEAST:g} to {MOST:g}, not {told(text)}"
        )
    return found


def _stored() -> float | None:
    """Return the pace in the file of this machine, or None where it is missing or damaged."""
    try:
        found = json.loads(pace_file().read_bytes())["pace"]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None
    return found if isinstance(found, float) and LEAST <= found <= MOST else None


def _least(loop: Callable[[], object]) -> float:
    """Return the shortest of several times of a loop, in seconds of the processor."""
    times = list[float]()
    for _ in range(REPEATS):
        begin = time.thread_time()
        loop()
        times.append(time.thread_time() - begin)
    return max(min(times), 1e-6)


def _of_numpy() -> object:
    """Sort, add up and raise 2^14 numbers, as compiled code does."""
    numbers = np.arange(2.0**14) * 0.618 % 1.0
    return np.exp(np.sort(numbers)).cumsum().take(np.argsort(numbers))


def _of_python() -> object:
    """Count in a dictionary, as planning does."""
    counts = dict[int, int]()
    for i in range(10_000):
        counts[i & 255] = counts.get(i & 255, 0) + i
    return counts
