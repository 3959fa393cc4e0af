"""Models that stay the same when all free units change sign, and can have two phases.

A lattice of spins without a field is one: below the critical temperature most of its probability
lies in two phases, x and -x, between which chains of single-unit moves seldom cross.
"""

from __future__ import annotations

import numpy as np

from pgmengine.evidence.target import Target
from pgmengine.units import Unit

# The warning of an answer that is in doubt.
TWO_PHASES = (
    "the model stays the same if all free units change sign, so that it may have two phases; where "
    "each chain stays in one of them, more chains or draws do not help, and tempering only if its "
    "chains cross: means of units are 0 by symmetry, and log Z of one phase is too low by log 2; "
    "pgm.SwendsenWang() visits both phases where it can answer"
)


def same_with_signs_changed(target: Target) -> bool:
    """Return whether the density of every row stays the same if all free units change sign."""
    s = target.structure
    if s.tables or not target.untempered:
        return False
    for name, layer in s.layers.items():
        if not target.free[name].any():
            continue
        if name in s.directed_layers or not _even(layer.unit):
            return False
        # Without evidence the values of free units are 0, so that only fixed units give a field.
        field = target.outer_field(target.evidence.values, name)
        if np.any(field[np.broadcast_to(target.free[name], field.shape)]):
            return False
    # A free unit with directed children is in terms that need not be even.
    return not any(target.free[c.a].any() for c in s.arrows)


def _even(unit: Unit) -> bool:
    """Return whether a unit has with each value the opposite one, with the same base measure."""
    if unit.width != 1 or unit.observed_only:
        return False
    x = np.array([0.5, 1.0, 2.0]) if unit.support is None else np.ravel(unit.support)
    if unit.support is not None and not np.array_equal(np.sort(x), np.sort(-x)):
        return False
    return bool(np.allclose(unit.log_h(x), unit.log_h(-x)))
