"""Standard errors of the probabilities of states, from the errors of means that chains give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pgmengine.base.types import Array
from pgmengine.model.layer import Layer


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
