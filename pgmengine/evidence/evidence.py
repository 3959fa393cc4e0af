"""Evidence, parsed into complete arrays with a mask for each row.

Evidence consists of observed values. Soft evidence, log weights of states, is read by soft.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pgmengine.base.checks import IN_RANGE, SINGLE_ROUNDING
from pgmengine.base.equal_rows import rows_of, spread
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array, LayerValues
from pgmengine.base.work.cache import Cache
from pgmengine.evidence.columns import Values, columns_of, gathered
from pgmengine.evidence.relevance import EvidencePattern, pattern_of
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import text_of_number
from pgmengine.model.structure import Structure
from pgmengine.model.tables import joined_states


@dataclass(frozen=True, eq=False)
class Evidence:
    """Values of every layer, 0 where not observed, and the evidence pattern of every row."""

    # Whether any array had an axis of rows.
    has_rows: bool
    # Layer -> (rows, width).
    values: dict[str, Array]
    pattern: EvidencePattern

    @cached_property
    def states(self) -> Array:
        """The states (rows, units) of all units, in the order of the layers."""
        return joined_states(self.pattern.structure, self.values)

    @cached_property
    def memo(self) -> Cache[Any]:
        """Results that follow from the values and the pattern, by keys of their users.

        A fit asks about the same evidence at every update.
        """
        return Cache(most=16)

    def take(self, index: Array) -> Evidence:
        """Return the evidence of the rows `index`."""
        return Evidence(self.has_rows, rows_of(self.values, index), self.pattern.take(index))


def parse_evidence(
    structure: Structure, evidence: LayerValues | None, what: str = "evidence"
) -> Evidence:
    """Return evidence in complete arrays.

    Parameters
    ----------
    structure : the layers.
    evidence : layer -> (size,) or (rows, size), NaN = not observed; of Categorical layers labels
        of this shape, or one-hot rows (..., size, k). Or names of units, or a DataFrame with a
        column for each unit that is observed in some row.
    what : the name of the evidence in messages.

    Raises
    ------
    PgmError with layer, row and index for values outside the support of a unit, wrong shapes, and
    unequal numbers of rows.
    """
    return evidence_of(structure, gathered(columns_of(structure, evidence, what), what), what)


def evidence_of(
    s: Structure, given: Values, what: str, done: Values | None = None, soft_rows: int | None = None
) -> Evidence:
    """Return values of layers, and the ones that do() sets, in complete arrays, checked.

    `soft_rows` is the number of rows of soft evidence, None if it has no axis of rows.
    """
    rows = max([soft_rows or 1, *map(len, given.values()), *map(len, (done or {}).values())])
    values, observed, intervened = {}, {}, {}
    for name, (value, none) in s.no_evidence.items():
        layer, seen, cut = s.layers[name], none, none
        if name in given:
            value, seen = checked(layer, given[name], what, given.has_rows)
        if done and name in done:
            other, cut = checked(layer, done[name], "do", done.has_rows)
            _check_intervention(s, name, cut, seen)
            value, seen = value + other, seen | cut
        if rows > 1:
            value, seen, cut = (spread(array, rows) for array in (value, seen, cut))
        values[name], observed[name], intervened[name] = value, seen, cut
    has_rows = given.has_rows or soft_rows is not None or (done is not None and done.has_rows)
    return Evidence(has_rows, values, pattern_of(s, rows, observed, intervened))


def _check_intervention(s: Structure, name: str, cut: Array, seen: Array) -> None:
    """PgmError unless do() sets units with a conditional that are not observed.

    do() removes the conditional of a unit. Its undirected couplings and its other tables stay as
    factors of the density.
    """
    directed = name in s.directed_layers and name not in s.undirected_layers
    wrong = cut & ~(directed | (s.child_tables[name] >= 0))
    if wrong.any():
        what = s.names.described(name, np.asarray(wrong.any(axis=0)))
        raise PgmError(
            f"do: {what} is not directed: do() cuts arrows, so it needs units with a conditional, "
            "children or roots without undirected couplings"
        )
    for row, index in np.argwhere(cut & seen)[:1]:
        raise PgmError(
            f"do: {s.layers[name].place(index, row)} is both observed and set; leave out one of "
            "the two"
        )


def checked(layer: Layer, values: Array, what: str, has_rows: bool = True) -> tuple[Array, Array]:
    """Return values (rows, width), 0 where not observed, and a mask (rows or 1, size).

    `values` (rows, size[, k]) are NaN where not observed; the mask has the others.
    """
    # If all components are NaN, the unit is not observed; if only some are, the value is refused.
    nan, wide = np.asarray(np.isnan(values)), layer.unit.width > 1
    if wide:
        nan = np.all(nan, axis=-1)
    values = np.where(nan[..., None] if wide else nan, np.float64(0.0), values)
    good = layer.unit.contains(values)
    if not good.all() and not (good := good | nan).all():
        values, good = _rounded(layer, values, good)
        if not good.all():
            row, index = (int(i) for i in np.argwhere(~good)[0])
            raise PgmError(
                f"{what}: {layer.place(index, row if has_rows or layer.size > 1 else None)}: "
                f"{values[row, index].tolist()} is not a value of {layer.unit!r}{_expected(layer)}"
                f"{_as_probability(layer, values[row, index], index, what)}"
            )
    # Equal rows of the mask are stored once.
    seen = ~nan[:1] if len(nan) > 1 and (nan == nan[:1]).all() else ~nan
    return values.reshape(values.shape[0], layer.width), seen


def _rounded(layer: Layer, values: Array, good: Array) -> tuple[Array, Array]:
    """Undo the rounding of values such as 0.2 to single precision.

    Return the values, and a mask of those that the unit can have.
    """
    unit, wide = layer.unit, layer.unit.width > 1
    if unit.support is None:
        return values, good
    nearest = unit.support[unit.state_of(values)]
    near = np.abs(values - nearest) <= SINGLE_ROUNDING * np.abs(nearest)
    close = ~good & (near.all(axis=-1) if wide else near)
    return np.where(close[..., None] if wide else close, nearest, values), good | close


def is_binary(layer: Layer) -> bool:
    """Whether the values of the units of a layer are 0 and 1."""
    support = layer.unit.support
    return support is not None and support.tolist() == [0.0, 1.0]


def _as_probability(layer: Layer, value: Array, index: int, what: str) -> str:
    """Return how `fit` reads a number between 0 and 1, as the end of a message about data."""
    if what != "data" or layer.state_names or not (is_binary(layer) and 0 < value < 1):
        return ""
    name = layer.labels[index] if layer.holds_variables and layer.labels else layer.name
    return f"; fit(..., probabilities=({name!r},)) reads it as the probability of 1"


def _expected(layer: Layer) -> str:
    """Return the values of a unit in words, for a message."""
    unit = layer.unit
    if layer.state_names and unit.support is not None:
        return f", expected one of {listed([repr(name) for name in layer.state_names])}"
    if unit.one_hot:
        return f", expected a label 0..{unit.width - 1} or a one-hot row of {unit.width}"
    if unit.width > 1 and unit.support is not None:
        return f", expected a label 0..{len(unit.support) - 1} or one of the rows of its support"
    if unit.support is None:
        return f", expected {IN_RANGE}" if not unit.bounded else ", expected a number in [-1, 1]"
    shown = ", ".join(text_of_number(v) for v in unit.support[:8])
    return (
        f", expected one of {shown}{', ...' if len(unit.support) > 8 else ''}; if the numbers are "
        "measurements, divide them at thresholds first, or give the layer Gaussian() units"
    )
