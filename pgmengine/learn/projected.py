"""Projected gradient ascent: parameters that a step has moved out of their range are brought back
to its edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from pgmengine.graph.structure import Structure
from pgmengine.graph.weights import elementwise

LEAK = 1e-6  # at 0 a row that no cause explains would be impossible, and could not be learned from


def floors(structure: Structure) -> dict[str, float]:
    """Parameter -> the least value that it may have, for those that have one."""
    out: dict[str, float] = {}
    for name, layer in structure.layers.items():
        if layer.unit.nonnegative:
            out |= {
                f"{name}.bias": LEAK,
                **{f"{c.key}.weight": 0.0 for c in structure.arrows_into[name]},
            }
    return out


def projected(structure: Structure, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with weights into units that need them >= 0 of at least 0, and biases of at
    least LEAK.
    """
    out = dict(params)
    for name, least in floors(structure).items():
        out[name] = elementwise(partial(np.maximum, least), out[name])
    return out
