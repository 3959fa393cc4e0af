"""Projected gradient ascent: a parameter that leaves its range is set to the edge of the range."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from pgmengine.base.types import Weight
from pgmengine.graph.structure import Structure
from pgmengine.graph.weights import elementwise
from pgmengine.protocols import Params

# The least leak of a noisy-or unit: at 0 a row that no cause explains would be impossible, and
# could not be learned from.
LEAK = 1e-6


def floors(structure: Structure) -> dict[str, float]:
    """Return the least value of each parameter that has one."""
    out: dict[str, float] = {}
    for name, layer in structure.layers.items():
        if layer.unit.nonnegative:
            out[f"{name}.bias"] = LEAK
            out |= {f"{c.key}.weight": 0.0 for c in structure.arrows_into[name]}
    return out


def projected(structure: Structure, params: Params) -> Params:
    """Return the parameters, none below its least value."""
    return raised(params, floors(structure))


def raised(params: Params, least: Mapping[str, float]) -> Params:
    """Return the parameters, the named ones raised to at least these values."""
    if not least:
        return params
    out: dict[str, Weight] = dict(params)
    for name, value in least.items():
        out[name] = elementwise(partial(np.maximum, value), out[name])
    return out
