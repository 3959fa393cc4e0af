"""Draws of independent units from their natural parameters, by the compiled routine of sweeps."""

from __future__ import annotations

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array, States
from pgmengine.base.work.threads import parts
from pgmengine.engine.packed import (
    MIN_UPDATES_A_THREAD,
    mask,
    padded,
    row,
    stride_of,
    unit_fields,
    zeros,
)
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure


def drawn_units(s: Structure, eta: States, key: Array) -> States:
    """Return draws of the units of some layers, (rows, width) float32.

    The draws of a layer are those of a sweep with this key in which all units have the first value
    before, and in which the field of the layer is eta (rows, width).
    """
    return {
        name: _drawn(s.layers[name], list(s.layers).index(name), len(s.layers), natural, key)
        for name, natural in eta.items()
    }


def _drawn(layer: Layer, place: int, layers: int, eta: Array, key: Array) -> Array:
    """Return draws of the units of one layer, layer number `place` of its model."""
    rows, finite = len(eta), layer.unit.support is not None
    units, stride = padded(layer.size), stride_of(layer)
    field = zeros((rows, stride))
    field[:, : layer.width] = eta
    state = zeros((rows, units), np.uint8 if finite else np.float32)
    routine = _kernels.Chains(
        layers=layers,
        links=0,
        visit=np.array([place], dtype=np.int32),
        beta=np.ones(rows, dtype=np.float32),
        key=key,
        stream=np.arange(rows, dtype=np.uint32),
        alpha=0.0,
    )
    unit = layer.unit
    routine.layer(
        place,
        **unit_fields(unit),
        size=layer.size,
        moves=True,
        by_unit=False,
        summed=0,
        directed=False,
        complement=False,
        uneven=False,
        bias=row(np.zeros(layer.width), stride),
        reference=None,
        soft=None,
        base=None,
        field=field,
        zeta=None,
        rest=None,
        state=state if finite else None,
        value=None if finite else state,
        free_units=mask(np.ones((1, layer.size), dtype=bool), units),
        alive=None,
    )
    changed = np.zeros(layers, dtype=np.int64)
    work = parts(rows * layer.size, MIN_UPDATES_A_THREAD / 2)
    routine.sweep(0, 1, False, changed, work, only=place)
    found = state[:, : layer.size]
    if unit.support is None:
        return found
    values: Array = unit.support.astype(np.float32).take(found, axis=0)
    return values.reshape(rows, layer.width)
