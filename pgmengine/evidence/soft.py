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

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import IN_RANGE, in_range
from pgmengine.base.equal_rows import equal_rows
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array, States
from pgmengine.evidence.columns import (
    Column,
    Named,
    by_name,
    check_mapping,
    framed,
    state_number,
    with_rows,
)
from pgmengine.model.containers import as_floats, is_frame
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import position
from pgmengine.model.names.unit_names import Member, Place
from pgmengine.model.structure import Structure

# Numbers of states: an array with a last axis of states, or state -> number or number of each row.
ByState: TypeAlias = "ArrayLike | Mapping[Hashable, ArrayLike]"

# Layer, variable, or (layer, number of a unit) -> its soft evidence.
Soft: TypeAlias = (
    "Mapping[str, ByState | Likelihoods] | Mapping[Member, ByState | Likelihoods] "
    "| Mapping[tuple[str, Hashable], ByState | Likelihoods]"
)
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """Likelihoods of the states of a unit or a layer, made by `likelihood`."""

    values: ByState


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


def parse_soft(structure: Structure, soft: Soft) -> SoftEvidence:
    """Return soft evidence as fields and findings.

    Raises
    ------
    PgmError with the name, row and state for unknown names, wrong shapes, numbers that are no
    weights, rows that exclude every state, and unequal numbers of rows.
    """
    check_mapping(structure, soft, "soft")
    parts = list[Column]()
    for one in by_name(structure, soft, "soft"):
        odds = takes_odds(structure, one)
        columns = framed(structure.names, one) if odds and is_frame(one.value) else [one]
        parts += [_part(column, odds) for column in columns]
    return _joined(parts)


def takes_odds(structure: Structure, one: Named) -> bool:
    """Whether something given is log-odds: about units with two values that are no variables."""
    layer, name = one.layer, one.layer.name
    if not _two_valued(layer) or isinstance(one.value, (Likelihoods, Mapping)):
        return False
    if one.unit is None:
        variables = layer.is_array or layer.is_variable or (name, 0) in structure.variables
        table = layer.state_table
        keys = one.value.keys() if hasattr(one.value, "keys") else ()
        return not (variables or (table is not None and any(map(table.matches, keys))))
    by_state = name in structure.by_state or (name, one.unit) in structure.variables
    return one.by_place and not by_state


def _two_valued(layer: Layer) -> bool:
    support = layer.unit.support
    return support is not None and layer.unit.width == 1 and len(support) == 2


def count_states(layer: Layer) -> int:
    """Return the number of states of a layer's units; PgmError if there are infinitely many."""
    if layer.unit.support is None:
        raise PgmError(
            f"soft: {layer.title} has {layer.unit!r} units; soft evidence needs finitely many "
            "states"
        )
    return len(layer.unit.support)


def _part(one: Named, odds: bool) -> Column:
    """Return the log weights (rows or 1, units, K) about a unit, or all units of a layer."""
    layer, what, k = one.layer, one.where, 0 if odds else count_states(one.layer)
    chances = isinstance(one.value, Likelihoods)
    given = one.value.values if isinstance(one.value, Likelihoods) else one.value
    array = as_floats(given, what) if odds else _by_state(layer, given, what)
    inner = () if odds else (k,)
    shown = array.shape
    if shown[array.ndim - len(inner) :] != inner:
        raise PgmError(_without_states(layer, array, what, chances))
    alone = one.unit is not None or layer.is_variable
    n = 1 if alone else layer.size
    array = array if alone else layer.in_line(array, inner)
    if (alone or (n == 1 and array.shape != (1, *inner))) and array.ndim < 2 + len(inner):
        # The axis of a single unit may be missing: () or (rows,), (K,) or (rows, K).
        array = array.reshape(*array.shape[: array.ndim - len(inner)], 1, *inner)
    has_rows = array.ndim == 2 + len(inner)
    if array.shape[has_rows:] != (n, *inner):
        each = f"log weights of {k} states" if inner else "a log-odds"
        shape = inner if alone else (n, *inner)
        shapes = f"{shape} or {('rows', *shape)}".replace("'", "") + f", {each}"
        shapes = shapes if shape else f"{each}, or one for each row"
        raise PgmError(f"{what} has shape {shown}, expected {shapes}")
    array = array if has_rows else array[None]
    if not len(array):
        raise PgmError(f"{what} has no rows, expected at least one")
    column = Column(layer, one.unit, what, array, True, has_rows)
    return column._replace(entries=_log_weights(column, odds, chances))


def _without_states(layer: Layer, array: Array, what: str, chances: bool) -> str:
    """Return a message about numbers whose last axis has not the states of a unit."""
    k, names = count_states(layer), layer.state_names or ()
    if array.ndim and not len(array):
        return f"{what} has no rows, expected at least one"
    numbers = [*[0.0] * (min(k, 4) - 1), 1.0]
    example = dict(zip(names, numbers, strict=True)) if len(names) == len(numbers) else numbers
    why = "; a log-odds does not say which state it favours" if k == 2 and not chances else ""
    return (
        f"{what} has shape {array.shape}, expected (..., {k}), a "
        f"{'likelihood' if chances else 'log weight'} for each state, such as {example}"
        f"{' ...' if k > len(numbers) else ''}{why}"
    )


def _log_weights(column: Column, odds: bool, chances: bool) -> Array:
    """Return the log weights that log-odds, likelihoods or log weights mean, checked."""
    array, names = column.entries, column.layer.state_names
    if chances:
        good = (array >= 0) & np.isfinite(array)
        expected = "a likelihood, a finite number of at least 0"
    else:
        good = in_range(array) | (np.isneginf(array) & (not odds))
        more = "; 0 means no soft evidence" if odds else ", or -inf, which excludes a state"
        expected = f"{IN_RANGE}{more}"
    for index in () if good.all() else np.argwhere(~good)[:1]:
        state = "" if odds else f", state {index[2] if names is None else repr(names[index[2]])}"
        place = column.place(*index[:2]) + state
        raise PgmError(f"{place} is {array[tuple(index)]}, expected {expected}")
    if odds:
        # The smaller value has the log weight 0.
        return np.stack((np.zeros_like(array), array), axis=-1)
    if chances:
        with np.errstate(divide="ignore"):
            array = np.log(array)
    lost = np.isneginf(array).all(axis=-1)
    for index in np.argwhere(lost)[:1] if lost.any() else ():
        raise PgmError(f"{column.place(*index)}: every state is excluded")
    return array


def _by_state(layer: Layer, given: Any, what: str) -> Array:
    """Return numbers with a last axis of states; a mapping, frame or series may name them."""
    names: Sequence[Hashable] = layer.state_names or range(count_states(layer))
    if not _names_states(layer, given, what):
        return as_floats(given, what)
    found = {_state(layer, key, what): key for key in given.keys()}  # noqa: SIM118
    if not len(found) == len(names) == len(given.keys()):
        missing = listed([repr(n) for state, n in enumerate(names) if state not in found])
        why = f"there is no number for {missing}" if missing != "" else "a state is named twice"
        raise PgmError(f"{what}: {why}; expected one for each state")
    order = range(len(names))
    columns = [as_floats(given[found[i]], f"{what}, state {names[i]!r}") for i in order]
    shapes = {column.shape for column in columns if column.shape}
    if len(shapes) > 1:
        raise PgmError(f"{what}: the states have numbers of different shapes, {sorted(shapes)}")
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def _names_states(layer: Layer, given: Any, what: str) -> bool:
    """Return whether numbers come with names of states: a mapping, or an index that has them.

    Integers from 0 do not count, because they are also the default index of pandas. PgmError if
    they are names of states in another order.
    """
    if isinstance(given, Mapping):
        return True
    series = hasattr(given, "index") and hasattr(given, "items") and not is_frame(given)
    if not (series or is_frame(given)):
        return False
    keys = list(given.keys())
    if keys != list(range(len(keys))) or layer.state_table is None:
        return layer.state_table is not None or any(
            key in range(count_states(layer)) for key in keys
        )
    found = [layer.state_table.matches(key) for key in keys]
    if any(found) and found != [(key,) for key in keys]:
        raise PgmError(
            f"{what}: the index {keys} may be names of states, or their order: give a mapping by "
            "the names, or an array in their order"
        )
    return False


def _state(layer: Layer, key: Hashable, what: str) -> int:
    """Return the number of the state that a key names; PgmError if it names none."""
    if layer.state_table is not None:
        return layer.state_table.state(key, what)
    number = position(state_number(layer, key, what))
    if number is not None and number < count_states(layer):
        return number
    known = listed([str(x) for x in range(count_states(layer))[:8]])
    raise PgmError(f"{what}: {key!r} is no state, expected {known}")


def _joined(parts: list[Column]) -> SoftEvidence:
    """Return the fields and findings of all parts, which belong to different units."""
    fields, findings = dict[str, Array](), list[Finding]()
    several = with_rows(parts, "soft: ")
    rows = len(several[0].entries) if several else None
    common, layers = np.zeros(rows or 1), {part.layer.name for part in several}
    for part in parts:
        name, layer = part.layer.name, part.layer
        field, share, chances = _divided(part)
        if chances is not None:
            findings += _findings(part, chances)
        if field is not None:
            if name not in fields:
                fields[name] = np.zeros(((rows or 1) if name in layers else 1, layer.width))
            units = np.arange(layer.size) if part.unit is None else np.array([part.unit])
            fields[name][:, layer.columns(units)] = field.reshape(len(field), -1)
        common += share.sum(axis=1)
    return SoftEvidence(fields, common if common.any() else None, tuple(findings), rows)


def _divided(part: Column) -> tuple[Array | None, Array, Array | None]:
    """Return a field (rows, units, width), a constant (rows, units), and a finding.

    The finding has log probabilities (rows, units, K). Fields and findings without effect are None.
    """
    w, unit = part.entries, part.layer.unit
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


def _findings(part: Column, log_prob: Array) -> list[Finding]:
    """Return a finding for each unit and each distinct row of its log probabilities."""
    out = []
    for i in np.flatnonzero(log_prob.any(axis=(0, 2))):
        first, kind = equal_rows(log_prob[:, i])
        place = part.layer.name, int(i if part.unit is None else part.unit)
        for number, one in enumerate(log_prob[first, i]):
            if one.any():
                out.append(Finding(place, one, kind == number))
    return out
