"""Conditions for the bound of directed children: units that it does not support, and its sums."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from pgmengine import _kernels
from pgmengine.base.routines import NOTICE
from pgmengine.base.types import Array
from pgmengine.evidence.relevance import barren, of_free_parents
from pgmengine.evidence.target import Target
from pgmengine.infer.variational.infinite_units import infinite_layers
from pgmengine.model.weights import is_sparse


def obstacle(target: Target) -> str:
    """Return the reason why tables of probabilities cannot answer, or an empty string."""
    s = target.structure
    endless = [
        name
        for name, layer in s.layers.items()
        if layer.unit.support is None
        and target.free[name].any()
        and name not in infinite_layers(target)
    ]
    units = {name: s.layers[name].unit for name in s.directed_layers}
    special = [
        name
        for name, unit in units.items()
        if unit.nonnegative or unit.support is None or not unit.canonical
    ]
    barren_units = barren(target, tables=False) if endless or special else {}
    for name in endless:
        if (target.free[name] & ~barren_units[name]).any():
            return (
                f"layer {name!r} is free and has infinitely many values, and the bound of arrows "
                "takes expectations over tables of states: observe it, or ask MCMC"
            )
    for name in special:
        unit = units[name]
        counts = (
            ~barren_units[name]
            & ~target.intervened[name]
            & (of_free_parents(target, name) | target.free[name])
        )
        # The probabilities of barren units come from the same terms.
        if unit.nonnegative:
            counts = counts | barren_units[name]
        if counts.any() and log_sums(target, name, barren_units) is None:
            return (
                f"layer {name!r} of {unit!r} units needs an input above 0 at every unit "
                "(a positive bias)"
                if unit.nonnegative
                else f"there is no such bound for layer {name!r} of {unit!r} units"
            )
    for name, layer in s.layers.items():
        if layer.unit.support is None and layer.unit.width > 1 and target.free[name].any():
            return f"there is no such bound for free units of layer {name!r}, {layer.unit!r}"
    if not _kernels.MOST_STATES:
        return f"mean field of tables and arrows is compiled, and {NOTICE}"
    for name, layer in s.layers.items():
        if (
            layer.unit.support is not None
            and max(len(layer.unit.support), layer.unit.width) > _kernels.MOST_STATES
        ):
            return f"{s.names.described(name)} has more than {_kernels.MOST_STATES} states"
    return ""


def log_sums(
    target: Target, name: str, barren_units: dict[str, Array]
) -> tuple[Array, Array] | None:
    """Return the sums that bound the conditionals of a directed layer; see Unit.log_sums.

    `barren_units` are the barren units of each layer.
    """
    unit, least = target.structure.layers[name].unit, 0.0
    if unit.nonnegative:
        needed = (target.free[name] & ~barren_units[name]) | (
            (target.evidence.values[name] == 1) & ~target.intervened[name]
        )
        least = float(np.where(needed, _least_input(target, name), 1.0).min(initial=1.0))
    return unit.log_sums(least)


def constant_input(target: Target, name: str, tabled: Collection[str]) -> Array:
    """Return the input of a directed layer from its bias, and from parents that have no tables."""
    width = target.structure.layers[name].width
    zeta: Array = np.broadcast_to(target.model.bias(name), (target.rows, width))
    for c in target.structure.arrows_into[name]:
        if c.a not in tabled:
            zeta = zeta + target.evidence.values[c.a] @ target.model.weight(c)
    return zeta


def _least_input(target: Target, name: str) -> Array:
    """Return the smallest input (rows, size) that units of one component can have."""
    s = target.structure
    zeta: Array = np.broadcast_to(target.model.bias(name), target.evidence.values[name].shape)
    for c in s.arrows_into[name]:
        layer, weight = s.layers[c.a], target.model.weight(c)
        dense = weight.toarray() if is_sparse(weight) else np.asarray(weight)
        zeta = (
            zeta
            + np.where(target.components(c.a, target.free[c.a]), 0.0, target.evidence.values[c.a])
            @ dense
        )
        if layer.unit.support is not None:
            values = layer.unit.support.reshape(-1, layer.unit.width)
            each = np.einsum(
                "ka,iaj->ikj", values, dense.reshape(layer.size, layer.unit.width, -1)
            ).min(axis=1)
            zeta = zeta + target.free[c.a] @ each
    return zeta
