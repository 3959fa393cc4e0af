"""Statistics of answers: the axes by which they are joined, and errors of probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from pgmengine.base.types import Array
from pgmengine.model.layer import Layer


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


def state_errors(stats: Mapping[str, Any], layer: Layer) -> Array | None:
    """Return the standard error of the probability of each state, (rows, size, states).

    `stats` are the statistics of a result. None for answers that are no estimates, and where the
    errors of means do not determine it.
    """
    errors, support = stats.get("mcse", {}).get(layer.name), layer.unit.support
    if errors is None or support is None:
        return None
    own = np.reshape(np.asarray(errors, dtype=np.float64), (-1, layer.size, layer.unit.width))
    if layer.unit.one_hot:
        return own
    if len(support) != 2 or layer.unit.width != 1:
        return None
    # The mean of two values is a linear function of the probability of either.
    return np.repeat(own / float(np.ptp(support)), 2, axis=-1)
