"""References for annealing: independent units with the means of the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.checks import amount
from pgmengine.base.errors import PgmError
from pgmengine.base.limits import IN_RANGE
from pgmengine.base.types import Array
from pgmengine.graph.evidence import parse_layer
from pgmengine.graph.frames import data_by_layer
from pgmengine.graph.layer import Layer
from pgmengine.graph.validate import as_floats
from pgmengine.units import Unit


def base_rates(model: Any, data: Any, shrink: float = 1.0) -> dict[str, Array]:
    """Natural parameters of independent units with the means of the data, A'(eta) = mean: a
    reference for annealing.

    `shrink` observations of what the unit is at eta = 0 are added where values are bounded, because
    a mean at the edge has no finite eta (PgmError if shrink is 0 there); NaN is left out. Layers
    without data, Input units, and units of several components that are not one-hot, are left at 0.

    >>> import pgmengine as pgm
    >>> pgm.base_rates(pgm.rbm(2, 1, rng=0), {"v": [[0, 1], [0, 1]]})["v"].round(3)
    array([-1.609,  1.609])
    """
    amount("base_rates: shrink", shrink)
    out = {}
    for name, given in data_by_layer(model.structure, data).items():
        layer = model.structure.layer(name, what="data: layer")
        if layer.unit.observed_only or (layer.unit.width > 1 and not layer.unit.one_hot):
            continue
        x = layer.shaped(_values(layer, given))
        seen, middle = (~np.isnan(x)).sum(axis=0), layer.unit.mean(np.zeros(layer.bias_shape))
        more = np.where(seen == 0, 1.0, shrink if layer.unit.bounded else 0.0)
        with np.errstate(divide="ignore"):
            eta = _natural(
                layer.unit, (np.nansum(x, axis=0) + more * middle) / (seen + more)
            ).ravel()
        if len(bad := np.flatnonzero(~np.isfinite(eta))):
            raise PgmError(
                f"data: layer {name!r}, index {bad[0] // layer.unit.width} has a mean at the edge of its "
                "range: shrink must be above 0"
            )
        out[name] = eta
    return out


def _values(layer: Layer, given: Any) -> Array:
    """Data (rows, width), NaN where missing; of units of one component any numbers, grey levels for
    two values, say.
    """
    if layer.unit.width > 1:
        return parse_layer(layer, given, "data")[0]
    x = as_floats(given, f"data: layer {layer.name!r}")
    x = x[:, None] if x.ndim == 1 and layer.size == 1 else x  # as fit takes them
    if x.ndim not in (1, 2) or x.shape[-1] != layer.size:
        raise PgmError(
            f"data: layer {layer.name!r} has shape {x.shape}, expected (rows, {layer.size})"
        )
    x = x.reshape(-1, layer.size)
    low, high = (
        (-1.0, 1.0)
        if layer.unit.support is None
        else (layer.unit.support.min(), layer.unit.support.max())
    )
    beyond = (x < low) | (x > high) if layer.unit.bounded else np.isinf(x)
    if beyond.any():
        row, index = (int(i) for i in np.argwhere(beyond)[0])
        expected = f"a number from {low:g} to {high:g}" if layer.unit.bounded else IN_RANGE
        raise PgmError(
            f"data: layer {layer.name!r}, row {row}, index {index} is {x[row, index]:g}, expected {expected}"
        )
    return x


def _natural(unit: Unit, mean: Array) -> Array:
    """Eta with A'(eta) = mean, (size[, k]): in closed form, or by bisection."""
    if unit.one_hot and unit.log_base is not None:
        return np.log(mean) - unit.log_base
    if unit.curvature is not None:
        return mean / unit.curvature
    if unit.support is not None and unit.log_base is not None and len(unit.support) == 2:
        (low, high), (h_low, h_high) = unit.support, unit.log_base
        share: Array = (mean - low) / (high - low)
        return (np.log(share / (1 - share)) - (h_high - h_low)) / (high - low)
    low, high = np.full(mean.shape, -1.0), np.full(mean.shape, 1.0)
    while (wide := (unit.mean(low) > mean) | (unit.mean(high) < mean)).any() and np.abs(
        high
    ).max() < 1e4:
        low, high = np.where(wide, 2 * low, low), np.where(wide, 2 * high, high)
    for _ in range(60):
        half = (low + high) / 2
        below = unit.mean(half) < mean
        low, high = np.where(below, half, low), np.where(below, high, half)
    return half
