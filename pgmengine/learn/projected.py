"""Projected gradient ascent: parameters that a step has moved out of their range are brought back to its edge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pgmengine.structure import Structure
from pgmengine.weights import elementwise

LEAK = 1e-6  # at 0 a row that no cause explains would be impossible, and could not be learned from


def projected(structure: Structure, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with weights into units that need them >= 0 of at least 0, and biases of at least LEAK."""
    out = dict(params)
    for name, layer in structure.layers.items():
        if layer.unit.nonnegative:
            out[f"{name}.bias"] = np.maximum(out[f"{name}.bias"], LEAK)
            for key in (f"{c.key}.weight" for c in structure.arrows_into[name]):
                out[key] = elementwise(_positive_part, out[key])
    return out


def _positive_part(value: Any) -> Any:
    return np.maximum(value, 0)
