"""Axes of statistics, from which splitting, ArviZ and tests know how to treat an array."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Axis(Enum):
    """The axes of statistics, by which the results of parts of a question are joined.

    >>> import pgmengine as pgm
    >>> [axis.name for axis in pgm.MCMC.statistics["energy"]]
    ['CHAIN', 'DRAW', 'ROW']
    """

    ROW = "row of evidence"
    CHAIN = "chain of a row"
    DRAW = "draw of a chain"
    SWEEP = "sweep, also without a draw"
    UNIT = "unit of a layer"
    RUNG = "rung of a ladder, or the step to the next one"
    BIN = "bin of a partition"
    END = "lower and upper end"


# Name of a statistic -> its axes. A mapping by layer has these axes in each of its arrays.
Statistics = Mapping[str, tuple[Axis, ...]]


def by_row(*names: str) -> dict[str, tuple[Axis, ...]]:
    """Return the axes of statistics that have one number for each row of evidence."""
    return dict.fromkeys(names, (Axis.ROW,))
