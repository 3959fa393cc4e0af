"""Axes of answers and statistics, from which splitting, ArviZ and tests know how to treat an array.

Inside the package, arrays are flat and have an axis of rows: layer -> (rows, width). Users see
(rows, size[, k]), without an axis of rows if neither the evidence nor the soft evidence had one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, States
from pgmengine.evidence.target import Target
from pgmengine.model.layer import Layer
from pgmengine.model.weights import plus

# The axis of rows of each answer, in the arrays of methods.
ROWS_AXIS = {
    "log_z": 0,
    "log_z_error": 0,
    "log_z_interval": 0,
    "log_prob": 0,
    "log_prob_interval": 0,
    "bound": 0,
    "mean": 0,
    "prob": 0,
    "prob_interval": 0,
    "mode": 0,
    "mode_gap": 0,
    "pairs": 0,
    "joint": 0,
    "modes": 0,
    "samples": 1,
}
# Answers that have no axis of rows if the evidence has none.
SQUEEZED = frozenset({"mean", "prob", "prob_interval", "mode", "pairs", "joint", "modes"})


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


def public(target: Target, flat: States) -> dict[str, Array]:
    """Return flat arrays (rows, width) as (rows, size[, k]), or (size[, k]) without a rows axis."""
    out = {name: target.structure.layers[name].shaped(value) for name, value in flat.items()}
    return out if target.evidence.has_rows else {name: value[0] for name, value in out.items()}


def squeeze(target: Target, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return arrays without their rows axis if the evidence had none."""
    if target.evidence.has_rows:
        return arrays
    return {name: value[0] for name, value in arrays.items()}


def check_rows(target: Target, answers: Mapping[str, Any]) -> None:
    """Raise PgmError unless every answer has the rows of a target."""
    rows, has_rows = target.rows, target.evidence.has_rows
    for what, value in answers.items():
        axis = ROWS_AXIS.get(what)
        if axis is None or (what in SQUEEZED and not has_rows):
            continue
        for x in value.values() if isinstance(value, Mapping) else (value,):
            shape = np.shape(x)
            if len(shape) <= axis or shape[axis] != rows:
                raise PgmError(
                    f"{what} has the shape {shape}, expected {rows} rows on axis {axis}: the "
                    "method has not answered each row once"
                )


def add_gradients(total: dict[str, Any] | None, part: dict[str, Any]) -> dict[str, Any]:
    """Return the sum of two gradients, parameter by parameter."""
    if total is None:
        return part
    return {name: plus(total[name], value) for name, value in part.items()}


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
