"""Barren units: free directed units of which nothing that is known is a descendant; summed over,
they give 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.types import Array
from pgmengine.graph.arrows_inside import ancestors

if TYPE_CHECKING:
    from pgmengine.graph.target import Target


def barren(target: Target) -> dict[str, Array]:
    """Layer -> (rows, size) bool: free units of which nothing that is known is a descendant, at
    beta = 1.

    Summed over, their conditionals give 1.
    """
    s = target.structure
    out = {name: np.zeros(target.free[name].shape, dtype=bool) for name in s.layers}
    for name in reversed(s.directed_layers):
        mine = target.free[name] & (target.beta == 1)[:, None] & ~known_softly(target, name)
        for c in s.arrows_from[name] if mine.any() and name not in s.undirected_layers else ():
            if c.b != name:
                mine &= ~_reaching(target, c, ~out[c.b] & ~target.cut[c.b])
        if mine.any() and any(c.b == name for c in s.arrows_from[name]):
            mine &= ~ancestors(target.model, name, ~mine & ~target.cut[name], mine)
        out[name] = mine & (name not in s.undirected_layers)
    return out


def known_softly(target: Target, name: str) -> Array:
    """Units (rows, size) with soft evidence."""
    if name not in target.soft:
        return np.zeros(target.free[name].shape, dtype=bool)
    return (
        (target.soft[name] != 0)
        .reshape(target.rows, target.structure.layers[name].size, -1)
        .any(axis=-1)
    )


def _reaching(target: Target, c: Any, active: Array) -> Array:
    """The parents (rows, size) with an arrow to an active child."""
    a, b = target.structure.layers[c.a], target.structure.layers[c.b]
    if not active.any():
        return np.zeros((target.rows, a.size), dtype=bool)
    linked = (target.model.weight(c) != 0).astype(np.float64)
    found = b.components(active).astype(np.float64) @ linked.T > 0
    return found.reshape(target.rows, a.size, -1).any(axis=-1)
