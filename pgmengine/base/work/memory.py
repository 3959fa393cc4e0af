"""Free memory: a question or a model that would not fit is refused before it allocates anything.

A small file can declare arrays of gigabytes. Memory beyond what an ordinary file of this size takes
is limited to 1 GiB, however much is free. The environment variable PGMENGINE_FILE_GIB sets another
limit.
"""

from __future__ import annotations

import math
import os

from pgmengine.base.errors import PgmError

# Bytes up to which nothing is refused, because asking the system for its free memory takes longer
# than a small answer.
UNCHECKED_BYTES = 2.0**26

# Share of the free memory that one question or one model may take.
SHARE_OF_FREE_MEMORY = 0.8

# The environment variable with the GiB that a file may take, and its default.
FILE_GIB, DEFAULT_GIB = "PGMENGINE_FILE_GIB", 1.0

FEWER_ROWS = "ask for fewer rows or draws"


def available_memory() -> float:
    """Return the bytes of memory that are free or can be freed; inf if the system does not tell.

    Linux tells how much is available. Other POSIX systems tell only the physical memory, which is
    an upper bound. Python has no call for other systems.
    """
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = (line for line in lines if line.startswith("MemAvailable"))
            return next(float(line.split()[1]) * 1024 for line in found)
    except (OSError, StopIteration):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def no_room(needed: float, advice: str = FEWER_ROWS) -> str:
    """Return the reason why memory of `needed` bytes is not available, or an empty string.

    `needed` may be an integer that is too large for a float, because a declaration may contain any
    integer.
    """
    if needed < UNCHECKED_BYTES:
        return ""
    free = available_memory()
    if needed <= SHARE_OF_FREE_MEMORY * free:
        return ""
    size = f"{float(needed) / 2**30:.3g}" if needed < 1e300 else "more than 1e+290"
    return f"it needs {size} GiB, {free / 2**30:.3g} GiB are free; {advice}"


def too_large(needed: float, explained: float, advice: str) -> str:
    """Return the reason why a file may not take `needed` bytes of memory, or an empty string.

    Parameters
    ----------
    needed : bytes of memory that the content of the file would take.
    explained : bytes of memory that an ordinary file of this size takes.
    advice : words that say how to need less memory.
    """
    if needed < UNCHECKED_BYTES:
        return ""
    limit = max(2.0**30 * _file_gib(), explained)
    if needed > limit:
        size = f"{float(needed) / 2**30:.3g}" if needed < 1e300 else "more than 1e+290"
        return (
            f"it needs {size} GiB, and a file of this size may take {limit / 2**30:.3g} GiB; "
            f"{advice}, or set the environment variable {FILE_GIB} to more GiB"
        )
    return no_room(needed, advice)


def _file_gib() -> float:
    """Return the limit of memory for small files, in GiB."""
    given = os.environ.get(FILE_GIB, "")
    try:
        value = float(given) if given else DEFAULT_GIB
    except ValueError:
        value = math.nan
    if not value > 0:
        raise PgmError(f"{FILE_GIB} is {given!r}, expected a number of GiB above 0")
    return value
