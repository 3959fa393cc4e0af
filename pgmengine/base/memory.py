"""Free memory: what is too large for it is refused before any of it is made."""

from __future__ import annotations

import os
from typing import Any

LITTLE = 2.0**26  # bytes
SHARE = 0.8  # of the free memory that one question or one model may have
FEWER = "ask for fewer rows or draws"


def available_memory() -> float:
    """Bytes of physical memory that are free or can be freed, as far as the system says."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = (line for line in lines if line.startswith("MemAvailable"))
            return next(float(line.split()[1]) * 1024 for line in found)
    except (OSError, StopIteration):
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def no_room(needed: Any, advice: str = FEWER) -> str:
    """Why this many bytes, a number of any size, cannot be had, or an empty string."""
    if needed < LITTLE:  # asking the system takes longer than small answers do
        return ""
    free = available_memory()
    if needed <= SHARE * free:
        return ""
    # Integers that declarations hold may be too large for a float.
    size = f"{float(needed) / 2**30:.3g}" if needed < 1e300 else "more than 1e+290"
    return f"it needs {size} GiB, {free / 2**30:.3g} GiB are free; {advice}"
