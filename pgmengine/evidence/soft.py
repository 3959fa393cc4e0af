"""Soft evidence: log weights of states, as fields of units and as virtual findings.

Soft evidence about a unit is log weights w of its K states, and with it

    log p(evidence, soft) = log sum_x p(x, evidence) prod_i e^(w_i[x_i])

One number w for a unit of a layer whose units have two values and no names, a log-odds, stands for
the weights (0, w): w is the log weight of the larger value, and the smaller one has 0, whatever the
two values are. Weights take one of two forms:

    field     For one-hot units the weights are added to the field. For two values a < b the field
              is (w_b - w_a) / (b - a), and the constant w_a - a field is the same for all states.
              For Spin units with the weights (0, w) they are w / 2 each.
    finding   Units with a weight of -inf, and units with other values, get a virtual finding
              (Pearl 1988): an observed child with P(child | state) = e^(w - max w). A weight of
              -inf becomes a zero of a table, which every method takes into account (findings.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pgmengine.base.checks import IN_RANGE, in_range
from pgmengine.base.equal_rows import equal_rows
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, States
from pgmengine.evidence.frames import units_of_columns
from pgmengine.evidence.named_units import apart, check_by_layer
from pgmengine.evidence.state_weights import (
    ByState,
    Likelihoods,
    check_entries,
    count_states,
    log_weights,
)
from pgmengine.model.containers import as_floats, is_frame
from pgmengine.model.layer import Layer
from pgmengine.model.names.unit_names import Member, Names, Place
from pgmengine.model.structure import Structure

# Layer, variable, or (layer, number of a unit) -> its soft evidence.
Soft: TypeAlias = (
    "Mapping[str, ByState | Likelihoods] | Mapping[Member, ByState | Likelihoods] "
    "| Mapping[tuple[str, Hashable], ByState | Likelihoods]"
)
Key = TypeVar("Key", bound=Hashable)


def likelihood(values: Mapping[Key, ByState]) -> dict[Key, Likelihoods]:
    """Return soft evidence from likelihoods instead of their logarithms.

    Use it as `soft=pgm.likelihood({...})` for findings of uncertain sensors: each number is the
    probability of the finding in a state. Only their ratios matter for probabilities of states.

    Parameters
    ----------
    values : variable, layer, or (layer, number of a unit) -> likelihoods: an array with a last axis
        of states, with an axis of rows in front if there are several, or state -> number. They
        are at least 0, and 0 excludes a state. They need not sum to 1.

    Raises
    ------
    PgmError if `values` is not a mapping. Likelihoods are checked in the question that uses them.

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> rain = b.variable("rain", states=("no", "yes"))
    >>> b.conditional("rain", (), [0.8, 0.2])
    >>> r = pgm.infer(b.build(), soft=pgm.likelihood({"rain": {"no": 0.1, "yes": 0.4}}))
    >>> round(r.marginal("rain")["yes"], 3)
    0.5
    """
    if not isinstance(values, Mapping):
        raise PgmError(
            f"likelihood takes a mapping such as {{'rain': [0.2, 0.8]}}, not "
            f"{type(values).__name__}"
        )
    return {name: Likelihoods(given) for name, given in values.items()}


@dataclass(frozen=True, eq=False)
class Finding:
    """A virtual finding about a unit in some rows.

    Attributes
    ----------
    place : the layer and the number of the unit.
    log_prob : (K,), the logarithm of the probability of the finding in each state.
    rows : (rows or 1,) bool, the rows that have the finding.
    """

    place: Place
    log_prob: Array
    rows: Array


@dataclass(frozen=True, eq=False)
class SoftEvidence:
    """Soft evidence as fields and findings, which targets store.

    Attributes
    ----------
    fields : layer -> (rows or 1, width), terms of natural parameters.
    common : (rows or 1,) log weight that all states of a row have in common; None if it is 0.
    findings : virtual findings.
    rows : the number of rows; None if no array had an axis of rows.
    """

    fields: States
    common: Array | None = None
    findings: tuple[Finding, ...] = ()
    rows: int | None = None


@dataclass(frozen=True, eq=False)
class _Part:
    """Soft evidence of units of a layer: log weights (rows or 1, units, K)."""

    layer: Layer
    units: Array
    weights: Array
    # The key under which the weights were given, and whether they have an axis of rows.
    key: object
    has_rows: bool


def parse_soft(structure: Structure, soft: Soft | None) -> SoftEvidence:
    """Return soft evidence as fields and findings.

    Raises
    ------
    PgmError with the name, row and state for unknown names, wrong shapes, numbers that are no
    weights, rows that exclude every state, and unequal numbers of rows.
    """
    if soft is None:
        return SoftEvidence({})
    check_by_layer(structure, soft, "soft")
    parts, variables = list[_Part](), set(structure.variables)
    whole, named = apart(structure, soft, "soft")
    for name, given in whole.items():
        layer = structure.names.layer(name, what="soft: layer")
        if layer.is_variable:
            parts.append(_of_unit(layer, 0, name, given))
        else:
            own = layer.is_array or (name, 0) in variables
            parts.append(_of_layer(structure.names, layer, given, own))
    for name, members in named.items():
        layer = structure.layers[name]
        for i, (key, given) in members.items():
            by_state = name in structure.by_state or (name, i) in variables
            own = not isinstance(key, tuple) and key in structure.names.unique
            nameless = not own and not by_state
            parts.append(_of_unit(layer, i, key, given, nameless))
    return _joined(parts)


def _two_valued(layer: Layer) -> bool:
    support = layer.unit.support
    return support is not None and layer.unit.width == 1 and len(support) == 2


def _by_names(layer: Layer, given: Any) -> bool:
    """Return whether a mapping, Series or DataFrame has states as keys."""
    if isinstance(given, Mapping):
        return True
    if layer.state_table is None or not hasattr(given, "keys"):
        return False
    return any(layer.state_table.matches(key) for key in given.keys())  # noqa: SIM118


def _of_layer(table: Names, layer: Layer, given: Any, variables: bool) -> _Part:
    """Return the soft evidence of all units of a layer; `variables`: the units are variables."""
    what, units = f"soft: {layer.title}", np.arange(layer.size)
    chances = isinstance(given, Likelihoods)
    if _two_valued(layer) and not (variables or chances or _by_names(layer, given)):
        array = as_floats(_columns_in_order(table, layer, given), what)
        shape: tuple[int, ...] = (layer.size,)
    else:
        array = log_weights(layer, given, what)
        shape = layer.size, count_states(layer)
    array = layer.in_line(array, shape[1:])
    if layer.size == 1 and array.ndim < len(shape) + 1 and array.shape not in (shape, (1,)):
        # As in evidence, the axis of units may be missing: () or (rows,), (K,) or (rows, K).
        array = array[..., None] if len(shape) == 1 else array[..., None, :]
    has_rows = array.ndim == len(shape) + 1
    if array.shape[has_rows:] != shape:
        each = "a log-odds" if len(shape) == 1 else f"log weights of {shape[1]} states"
        raise PgmError(
            f"{what} has shape {array.shape}, expected {shape} or (rows, ...), {each} for each unit"
        )
    array = array if has_rows else array[None]
    if not len(array):
        raise PgmError(f"{what} has no rows, expected at least one")
    if len(shape) == 1:
        if not in_range(array).all():
            row, index = (int(i) for i in np.argwhere(~in_range(array))[0])
            raise PgmError(
                f"soft: {layer.place(index, row)} is {array[row, index]}, expected {IN_RANGE}; "
                "0 means no soft evidence"
            )
        array = _of_larger_value(array)
    return _Part(layer, units, array, layer.name, has_rows)


def _of_unit(layer: Layer, unit: int, key: object, given: Any, nameless: bool = False) -> _Part:
    """Return the soft evidence of one unit, given under the name `key`."""
    what = f"soft: {key!r}"
    if nameless and _two_valued(layer) and not isinstance(given, (Likelihoods, Mapping)):
        array = as_floats(given, what)
        if array.ndim > 1:
            raise PgmError(
                f"{what} has shape {array.shape}, expected a log-odds, or one for each row"
            )
        check_entries(array, ~in_range(array), what, None, IN_RANGE)
        array = _of_larger_value(array)
    else:
        array = log_weights(layer, given, what)
        # (rows, 1, K), the shape of a layer of one unit.
        array = array[:, 0] if array.ndim == 3 and array.shape[1] == 1 else array
        if array.ndim > 2:
            k = count_states(layer)
            raise PgmError(f"{what} has shape {array.shape}, expected ({k},) or (rows, {k})")
    if not array.size:
        raise PgmError(f"{what} has no rows, expected at least one")
    weights = array.reshape(-1, 1, array.shape[-1])
    return _Part(layer, np.array([unit]), weights, key, array.ndim == 2)


def _of_larger_value(log_odds: Array) -> Array:
    """Return log weights (..., 2) of two values from log-odds: the smaller value has 0."""
    return np.stack((np.zeros_like(log_odds), log_odds), axis=-1)


def _columns_in_order(table: Names, layer: Layer, given: Any) -> Any:
    """Return the log-odds of a DataFrame as (rows, size); other values unchanged.

    The columns are units of the layer; a unit without a column has 0.
    """
    what = f"soft: {layer.title}"
    if not is_frame(given) or (units := units_of_columns(table, layer, given, what)) is None:
        return given
    out = np.zeros((len(given), layer.size))
    out[:, list(units)] = as_floats(given, what)
    return out


def _joined(parts: list[_Part]) -> SoftEvidence:
    """Return the fields and findings of all parts, which belong to different units."""
    fields, findings = dict[str, Array](), list[Finding]()
    rows = _rows(parts)
    common = np.zeros(rows or 1)
    several = {part.layer.name for part in parts if part.has_rows}
    for part in parts:
        name, layer = part.layer.name, part.layer
        field, share, chances = _divided(part)
        if chances is not None:
            findings += _findings(part, chances)
        if field is not None:
            if name not in fields:
                fields[name] = np.zeros(((rows or 1) if name in several else 1, layer.width))
            fields[name][:, layer.columns(part.units)] = field.reshape(len(field), -1)
        common += share.sum(axis=1)
    return SoftEvidence(fields, common if common.any() else None, tuple(findings), rows)


def _rows(parts: list[_Part]) -> int | None:
    """Return the common number of rows, or None without rows; PgmError if numbers differ."""
    several = [part for part in parts if part.has_rows]
    for part in several:
        if len(part.weights) != len(several[0].weights):
            raise PgmError(
                f"soft: {several[0].key!r} has {len(several[0].weights)} rows, and {part.key!r} "
                f"has {len(part.weights)} rows"
            )
    return len(several[0].weights) if several else None


def _divided(part: _Part) -> tuple[Array | None, Array, Array | None]:
    """Return a field (rows, units, width), a constant (rows, units), and a finding.

    The finding has log probabilities (rows, units, K). Fields and findings without effect are None.
    """
    w, unit = part.weights, part.layer.unit
    top = w.max(axis=-1, keepdims=True)
    if not (unit.one_hot or _two_valued(part.layer)):
        chances = w - top
        return None, top[..., 0], chances if chances.any() else None
    excluded = np.isneginf(w)
    chances = np.where(excluded, -np.inf, 0.0) if excluded.any() else None
    w = np.where(excluded, top, w)
    if unit.one_hot:
        return w, np.zeros(w.shape[:2]), chances
    assert unit.support is not None
    low, high = unit.support
    field = (w[..., 1:] - w[..., :1]) / (high - low)
    return field, w[..., 0] - low * field[..., 0], chances


def _findings(part: _Part, log_prob: Array) -> list[Finding]:
    """Return a finding for each unit and each distinct row of its log probabilities."""
    out = []
    for i in np.flatnonzero(log_prob.any(axis=(0, 2))):
        first, kind = equal_rows(log_prob[:, i])
        place = part.layer.name, int(part.units[i])
        for number, one in enumerate(log_prob[first, i]):
            if one.any():
                out.append(Finding(place, one, kind == number))
    return out
