"""Free memory: a question or a model that would not fit is refused before it allocates anything."""

from __future__ import annotations

import math
import os

# Bytes up to which nothing is refused: asking the system takes longer than small answers do.
SMALL = 2.0**26

# Share of the free memory that one question or one model may take.
SHARE = 0.8

FEWER = "ask for fewer rows or draws"


def available_memory() -> float:
    """Return the bytes of memory that are free or can be freed, or inf where no system call says.

    Linux tells how much is available. Other POSIX systems tell the physical memory only, which is
    an upper bound. Python has no portable call for the rest.
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


def no_room(needed: float, advice: str = FEWER) -> str:
    """Return the reason why memory of `needed` bytes is not available, or an empty string.

    `needed` may be an integer that is too large for a float, as declarations may contain.
    """
    if needed < SMALL:
        return ""
    free = available_memory()
    if needed <= SHARE * free:
        return ""
    size = f"{float(needed) / 2**30:.3g}" if needed < 1e300 else "more than 1e+290"
    return f"it needs {size} GiB, {free / 2**30:.3g} GiB are free; {advice}"
