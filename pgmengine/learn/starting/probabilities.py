"""Data that are probabilities: numbers from 0 to 1, drawn anew as 0 or 1 in each pass.

A grey level is read as the probability of 1. The expected gradient is the one of the mean
log-likelihood of rows that are drawn so (Hinton 2002 takes images of digits in this way). The draws
of a pass follow from the key of the order of the rows and from the number of the pass, so that a
fit that goes on has the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, LayerValues
from pgmengine.evidence.columns import Values, data_by_layer
from pgmengine.evidence.evidence import is_binary
from pgmengine.learn.full_batch.optimizer_contract import FullBatch
from pgmengine.learn.steps.wrappers import holds
from pgmengine.model.layer import Layer
from pgmengine.model.names.unit_names import Member, as_members
from pgmengine.model.structure import Structure

# A number that tells the draws of data from other uses of the key of a fit.
DRAWS_OF_DATA = 1


def probabilities_of(
    s: Structure, data: LayerValues, names: Iterable[Member] | None
) -> dict[str, Array]:
    """Return layer -> (rows, size) probabilities of 1, NaN for other units and missing values.

    Parameters
    ----------
    s : the layers.
    data : the data of a fit.
    names : layers and units whose data are probabilities.

    Raises
    ------
    PgmError for units without the values 0 and 1, layers without data, and other numbers than
    probabilities.
    """
    given = () if names is None else names
    known = s.names.units(
        s.names.alone_or_several(as_members(given, "probabilities")), "probabilities"
    )
    rows = data_by_layer(s, data) if known else {}
    found = {}
    for name, units in known.items():
        layer = s.layers[name]
        if name not in rows:
            raise PgmError(f"probabilities: {layer.title} has no data")
        found[name] = _checked(layer, rows[name], units)
    return found


def _checked(layer: Layer, given: Array, units: Array) -> Array:
    """Return the probabilities of some units (rows, size), checked."""
    binary = is_binary(layer)
    if not binary or layer.state_table is not None:
        raise PgmError(
            f"probabilities: {layer.title} has {layer.unit!r} units"
            f"{' whose states have names' if binary else ''}; only the data of Binary units "
            "without names of states may be probabilities of 1"
        )
    x = np.where(units, given, np.nan)
    bad = ~(np.isnan(x) | ((x >= 0) & (x <= 1)))
    if bad.any():
        row, index = (int(i) for i in np.argwhere(bad)[0])
        raise PgmError(
            f"data: {layer.place(index, row)} is {x[row, index]:g}, expected a probability from 0 "
            "to 1"
        )
    return x


def with_states(rows: Values, probabilities: Mapping[str, Array]) -> None:
    """Put the more probable state in the place of each probability in data by layer."""
    for name, chance in probabilities.items():
        rows[name] = np.where(np.isnan(chance), rows[name], chance >= 0.5)


def check_mini_batches(optimizer: object, probabilities: Mapping[str, Array]) -> None:
    """Raise PgmError if an optimizer that sees all rows at once would meet one draw of the data."""
    if probabilities and holds(optimizer, FullBatch):
        raise PgmError(
            f"probabilities: {type(optimizer).__name__} sees all rows in each update, and draws "
            "of the data change from pass to pass; take an optimizer of mini-batches, such as "
            "optimizer=pgm.SGD(0.1), or leave it out"
        )


def draw(values: Array, chance: Array, key: Array, number: int) -> None:
    """Draw the values (rows, size) of a pass in place, where there are probabilities."""
    rng = np.random.default_rng([*key.tolist(), number, DRAWS_OF_DATA])
    ones = rng.random(chance.shape) < chance
    np.copyto(values, ones, where=~np.isnan(chance), casting="unsafe")
