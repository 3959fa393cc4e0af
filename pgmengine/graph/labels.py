"""Labels, which are numbers of states, as values of units with several components."""

from __future__ import annotations

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.graph.layer import Layer


def values_of(layer: Layer, labels: Array, what: str) -> Array:
    """Return the values (rows, size, width) of labels (rows, size), NaN where a label is NaN.

    PgmError names the first that is no label.
    """
    support = layer.unit.support
    if support is None:
        raise PgmError(
            f"{what}: layer {layer.name!r} has shape {labels.shape}, expected (..., {layer.size}, "
            f"{layer.unit.width})"
        )
    bad = ~(
        np.isnan(labels) | ((labels >= 0) & (labels < len(support)) & (labels == np.floor(labels)))
    )
    if bad.any():
        row, index = (int(i) for i in np.argwhere(bad)[0])
        raise PgmError(
            f"{what}: layer {layer.name!r}, row {row}, index {index}: {labels[row, index]:g} is "
            f"not a label of {layer.unit!r}, expected 0..{len(support) - 1}"
        )
    seen = np.nan_to_num(labels, nan=0.0).astype(int)
    return np.where(np.isnan(labels)[..., None], np.nan, support.take(seen, axis=0))
