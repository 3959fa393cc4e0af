"""References for annealing: independent units with the means of the data.

A reference p_0 is near the model if its units have the means of the data: A'(eta) = mean, with A
the log normaliser of a unit. eta has a closed form for one-hot, Gaussian and two-valued units, and
bisection finds it for others, since A' is increasing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.checks import IN_RANGE, amount
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.model import ModelLike, as_model
from pgmengine.evidence.columns import data_by_layer
from pgmengine.evidence.evidence import checked
from pgmengine.model.layer import Layer


def base_rates(model: ModelLike, data: Any, shrink: float = 1.0) -> dict[str, Array]:
    """Return natural parameters of independent units with the means of the data.

    Use them as the `reference` of AIS and as the start of learning: annealing from them varies
    less than from uniform units.

    Parameters
    ----------
    model : the model, for its layers.
    data : layer -> (rows, size[, k]), or a DataFrame with a column for each unit. NaN is left out.
    shrink : number of observations of the mean at eta = 0 that are added to the data of bounded
        units, because a mean at the edge of their range has no finite eta.

    Returns
    -------
    Layer -> eta (width,), with A'(eta) = mean. Layers without data, Input units, and units of
    several components that are not one-hot are missing, which stands for 0.

    Raises
    ------
    PgmError if values do not fit the layers, or if a mean is at the edge of its range and shrink
    is 0.

    >>> import pgmengine as pgm
    >>> pgm.base_rates(pgm.rbm(2, 1, rng=0), {"v": [[0, 1], [0, 1]]})["v"].round(3)
    array([-1.609,  1.609])
    """
    model = as_model(model)
    amount("base_rates: shrink", shrink)
    out = {}
    for name, given in data_by_layer(model.structure, data).items():
        layer = model.structure.layers[name]
        if layer.unit.observed_only or (layer.unit.width > 1 and not layer.unit.one_hot):
            continue
        x = _values(layer, given)
        seen, middle = (~np.isnan(x)).sum(axis=0), layer.unit.mean(np.zeros(layer.bias_shape))
        more = np.where(seen == 0, 1.0, shrink if layer.unit.bounded else 0.0)
        with np.errstate(divide="ignore"):
            mean = (np.nansum(x, axis=0) + more * middle) / (seen + more)
            eta = layer.unit.natural(mean).ravel()
        if len(bad := np.flatnonzero(~np.isfinite(eta))):
            raise PgmError(
                f"data: {layer.place(bad[0] // layer.unit.width)} has a mean at the edge "
                "of its range: shrink must be above 0"
            )
        out[name] = eta
    return out


def _values(layer: Layer, x: Array) -> Array:
    """Return data (rows, size[, k]) with NaN where missing, checked.

    Units of one component take any number in their range, such as grey levels for two values.
    """
    if layer.unit.width > 1:
        values, seen = checked(layer, x, "data")
        return np.where(layer.shaped(layer.components(seen)), layer.shaped(values), np.nan)
    low, high = (
        (-1.0, 1.0)
        if layer.unit.support is None
        else (layer.unit.support.min(), layer.unit.support.max())
    )
    beyond = (x < low) | (x > high) if layer.unit.bounded else np.isinf(x)
    if beyond.any():
        row, index = (int(i) for i in np.argwhere(beyond)[0])
        expected = f"a number from {low:g} to {high:g}" if layer.unit.bounded else IN_RANGE
        raise PgmError(f"data: {layer.place(index, row)} is {x[row, index]:g}, expected {expected}")
    return x
