"""Models that stay the same when all free units change sign, and can have two phases.

A lattice of spins without a field is one: below the critical temperature most of its probability
lies in two phases, x and -x, between which chains of single-unit moves seldom cross.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.convergence import series_statistics
from pgmengine.units import Unit

# R-hat of a unit above which chains disagree: the default of the methods that judge their chains.
MAX_RHAT = 1.05

# The warning of an answer that is in doubt.
TWO_PHASES = (
    "the model stays the same if all free units change sign, so that it may have two phases; where "
    "each chain stays in one of them, more chains or draws do not help, and tempering only if its "
    "chains cross: means of units are 0 by symmetry, numbers that are equal in both phases can be "
    "right, and log Z of one phase is too low by log 2"
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


def with_signs_changed(target: Target, samples: Mapping[str, Array]) -> dict[str, Array]:
    """Return draws, layer -> (draws, rows, ...), with the signs of all free units changed."""
    return {name: v * (1.0 - 2.0 * _free(target, name, v)) for name, v in samples.items()}


def agree_up_to_sign(target: Target, samples: Mapping[str, Array], chains: int) -> bool:
    """Return whether chains agree about every unit, if each draw x may be taken as -x.

    Of x and -x, the one with the larger product with the first draw is taken. Chains that stay in
    the two phases of a lattice then agree, and those in different valleys of a glass do not.
    """
    parts = [v * _free(target, name, v) for name, v in samples.items()]
    x = np.concatenate([v.reshape(*v.shape[:2], -1) for v in parts], axis=2)
    side = np.where(np.einsum("dru,ru->dr", x, x[0]) < 0.0, -1.0, 1.0)
    series = (x * side[..., None]).reshape(chains, -1, *x.shape[1:])
    return bool(np.fmax.reduce(series_statistics(series)["rhat"], axis=None) <= MAX_RHAT)


def _free(target: Target, name: str, values: Array) -> Array:
    """Return whether the units of a layer are free, in the shape of draws (draws, rows, ...)."""
    free = np.broadcast_to(target.free[name], (values.shape[1], target.free[name].shape[1]))
    return free.reshape(1, *values.shape[1:])


def _even(unit: Unit) -> bool:
    """Return whether a unit has with each value the opposite one, with the same base measure."""
    if unit.width != 1 or unit.observed_only:
        return False
    x = np.array([0.5, 1.0, 2.0]) if unit.support is None else np.ravel(unit.support)
    if unit.support is not None and not np.array_equal(np.sort(x), np.sort(-x)):
        return False
    return bool(np.allclose(unit.log_h(x), unit.log_h(-x)))
