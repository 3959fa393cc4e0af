"""Standard errors of the probabilities of states, from the errors of means that chains give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.types import Array
from pgmengine.model.layer import Layer

if TYPE_CHECKING:
    from pgmengine.infer.results.result import Result


def state_errors(result: Result, layer: Layer) -> Array | None:
    """Return the standard error of the probability of each state, (rows, size, states).

    None for answers that are no estimates, and where the errors of means do not determine it.
    """
    errors, support = result.stats.get("mcse", {}).get(layer.name), layer.unit.support
    if errors is None or support is None:
        return None
    own = np.reshape(np.asarray(errors, dtype=np.float64), (-1, layer.size, layer.unit.width))
    if layer.unit.one_hot:
        return own
    if len(support) != 2 or layer.unit.width != 1:
        return None
    # The mean of two values is a linear function of the probability of either.
    return np.repeat(own / float(np.ptp(support)), 2, axis=-1)
