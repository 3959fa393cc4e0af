"""Checks of the arguments of fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.checks import check_instance, check_method
from pgmengine.base.display import few
from pgmengine.base.equal_rows import distinct
from pgmengine.base.errors import PgmError, listed, told
from pgmengine.base.types import Array, LayerValues
from pgmengine.evidence.columns import data_by_layer
from pgmengine.evidence.given import make_target
from pgmengine.evidence.target import Target
from pgmengine.learn.contracts import Negative, PhaseMonitor, Positive
from pgmengine.learn.full_batch.optimizer_contract import FullBatch
from pgmengine.learn.starting.probabilities import with_states
from pgmengine.learn.steps.optimizers import check_optimizer
from pgmengine.learn.steps.wrappers import holds
from pgmengine.model.containers import as_floats
from pgmengine.model.forms.table_forms import Leaves
from pgmengine.model.names.unit_names import Member, as_members
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# The largest number of axes of tables, summed over rows, whose states are checked together.
AXES_AT_ONCE = 10_000_000


def check_data(
    model: Parameters,
    data: Mapping[str, ArrayLike],
    given: Mapping[str, Array],
    names: Iterable[Member],
    keys: Collection[object],
) -> Mapping[str, ArrayLike]:
    """Return the data by layer; PgmError if they are empty, or lack units of `given`.

    `names` are the names of the given units, and `keys` are the names of layers and units in the
    data.
    """
    if not data:
        raise PgmError("data is empty: give layer -> (rows, size) for at least one layer")
    s = model.structure
    known = {s.names.place(key) for key in keys}
    for one in names:
        whole = one in s.layers
        place = (str(one), 0) if whole else s.names.unit(one, "given")
        if place[0] not in data or not (whole or place in known or place[0] in keys):
            what = s.layers[place[0]].title if whole else f"{s.names.of(place)!r}"
            have = listed([repr(key) for key in keys])
            raise PgmError(f"given: {what} is not in the data, which has {have}")
    for name, layer in s.layers.items():
        if layer.unit.observed_only and not given.get(name, np.False_).all():
            raise PgmError(
                f"layer {name!r} has {layer.unit!r} units, which have no distribution: fit with "
                f"given=({name!r},)"
            )
    return data


def written(s: Structure, given: Mapping[str, Array]) -> tuple[Member, ...]:
    """Return the names of given units as layers or (layer, number), in a fixed order."""
    names: list[Member] = []
    for name in s.layers:
        units = given.get(name, np.zeros(0, dtype=bool))
        each = [(name, int(i)) for i in np.flatnonzero(units)]
        names += [name] if units.size and units.all() else each
    return tuple(names)


def check_evidence(target: Target, given: Mapping[str, Array]) -> None:
    """Raise PgmError for data without units besides the given ones."""
    observed = target.pattern.observed.items()
    seen = {name: distinct(seen).any(axis=0) for name, seen in observed}
    if not any((seen[name] & ~given.get(name, np.False_)).any() for name in seen):
        why = "all layers with data are given" if given else "no value is known"
        raise PgmError(f"there is nothing to learn: {why}")


def check_scales(parts: Sequence[tuple[Target, Mapping[str, Array]]]) -> None:
    """Raise PgmError for data that the units of a layer cannot learn.

    `parts` are rows with their given units.
    """
    shown: dict[str, list[Array]] = {}
    for target, given in parts:
        for name, layer in target.structure.layers.items():
            values, fixed = target.evidence.values[name], given.get(name, np.False_)
            learned = np.broadcast_to(~target.free[name] & ~fixed, (len(values), layer.size))
            shown.setdefault(name, []).append(layer.shaped(values)[learned])
    for name, found in shown.items():
        layer = parts[0][0].structure.layers[name]
        if why := layer.unit.misfit(np.concatenate(found)):
            raise PgmError(f"data: {layer.title}: {why}")


def check_possible_data(target: Target) -> None:
    """Raise PgmError if a row observes all units of a table in states at which the table is 0."""
    s, index = target.structure, target.structure.table_index
    tables = np.flatnonzero(~target.model.table_sizes[1])
    if not len(tables):
        return
    impossible = np.isneginf(target.model.table_entries)
    owner = np.isin(index.table, tables)
    lengths = np.bincount(index.table[owner], minlength=len(index.child))[tables]
    step = max(1, AXES_AT_ONCE // int(lengths.sum()))
    for first in range(0, target.rows, step):
        whole = step >= target.rows
        some = target if whole else target.take(np.arange(first, min(first + step, target.rows)))
        free = np.concatenate([some.free[name] for name in s.layers], axis=1)
        unknown = np.logical_or.reduceat(
            free[:, index.unit[owner]], np.cumsum(lengths) - lengths, axis=1
        )
        bad = impossible[index.entries_of(some.states, tables)] & ~unknown
        if bad.any():
            row, table = (int(i) for i in np.argwhere(bad)[0])
            axes = slice(*index.start[tables[table] : tables[table] + 2])
            names = ", ".join(s.names.of(s.names.at(unit)) for unit in index.unit[axes].tolist())
            raise PgmError(
                f"data: row {target.row_numbers[first + row]} has probability zero: the table of "
                f"{names} is 0 at its states; leave the row out, or allow the state in the table"
            )


def check_settings(
    negative: object, positive: object, optimizer: object, callbacks: object
) -> None:
    """Raise PgmError unless the arguments are phases, an optimizer and callbacks."""
    if holds(optimizer, FullBatch) and not hasattr(optimizer, "ascend"):
        raise PgmError(
            f"optimizer: {type(optimizer).__name__} needs steps along gradients of mini-batches, "
            "and the optimizer inside it sees all rows; only Fixed goes around it"
        )
    if optimizer is not None and not holds(optimizer, FullBatch):
        check_optimizer(optimizer, "optimizer")
    check_instance(negative, "negative")
    if not (negative is None or isinstance(negative, Negative)):
        raise PgmError(
            f"negative must be a negative phase such as pgm.PCD(), with `start` and `precision`, "
            f"not {told(negative)}"
        )
    if positive is not None and (isinstance(positive, type) or not isinstance(positive, Positive)):
        check_method(positive, "positive")
    if not isinstance(callbacks, Sequence):
        raise PgmError(f"callbacks must be a list, not {told(callbacks)}")
    for callback in callbacks:
        check_instance(callback, "a callback")
        if not (callable(callback) or isinstance(callback, PhaseMonitor)):
            raise PgmError(
                f"a callback is called as callback(model, update), but {callback!r} cannot be"
            )


def check_start(state: object, checkpoint: object) -> None:
    """Raise PgmError unless `state` and `checkpoint` are of the right kinds."""
    if state is not None and not isinstance(state, Mapping):
        raise PgmError(f"state must be the `state` of an earlier fit, not {told(state)}")
    if checkpoint is not None and not isinstance(checkpoint, (str, PathLike)):
        raise PgmError(f"checkpoint must be a path, not {told(checkpoint)}")


def check_left(left: int, least: int, made: int, what: str) -> None:
    """Raise PgmError if all updates have been made already."""
    if left < least:
        raise PgmError(
            f"{what} has made {made} updates, and {made + left} are asked for: updates and epochs "
            "count the ones that it has made"
        )


def row_weights(rows: int, given: ArrayLike | None) -> Array:
    """Return the weights of the rows as they are given, 1 by default."""
    if given is None:
        return np.ones(rows)
    weights: Array = as_floats(given, "sample_weight")
    if weights.shape != (rows,):
        raise PgmError(f"sample_weight has shape {weights.shape}, expected ({rows},)")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise PgmError(f"sample_weight: row {bad[0]} is {weights[bad[0]]}, expected a number >= 0")
    if not weights.any():
        raise PgmError("sample_weight: all rows have a weight of 0, expected one above 0")
    return weights


def mean_one(weights: Array) -> Array:
    """Return weights divided by their mean."""
    # The sum of large weights might be infinite.
    share = weights / weights.max()
    scaled: Array = share / share.mean()
    return scaled


def target_of(
    model: Parameters,
    data: LayerValues | Target,
    given: Iterable[Member] | None,
    sample_weight: ArrayLike | None = None,
    probabilities: Mapping[str, Array] | None = None,
) -> tuple[Target, dict[str, Any], dict[str, Array], Array]:
    """Return the target of the data, the data by layer, the units that are given, and the weights.

    Data that are a target have been read. A row of weight 0 does not matter, also if it is
    impossible. `probabilities` are the data that are drawn anew in each pass; the target has likely
    states.
    """
    table = model.structure.names
    names = () if given is None else table.alone_or_several(as_members(given, "given"))
    known = table.units(names, "given")
    if isinstance(data, Target):
        target, rows = data, dict[str, Any](data.evidence.values)
        check_data(model, rows, known, names, rows)
    else:
        rows = data_by_layer(model.structure, data)
        with_states(rows, probabilities or {})
        keys = tuple(getattr(data, "columns", data))
        target = make_target(model, check_data(model, rows, known, names, keys), what="data")
    weights = row_weights(target.rows, sample_weight)
    some = with_weight(target, weights)
    check_evidence(some, known)
    check_possible_data(some)
    return target, rows, known, weights


def with_weight(target: Target, weights: Array) -> Target:
    """Return the target with the rows of a weight above 0."""
    kept = np.flatnonzero(weights)
    return target if len(kept) == target.rows else target.take(kept)


def without_impossible(target: Target, weights: Array) -> Target:
    """Return the target in which no row of weight 0 is impossible, so that 0 times it is 0.

    Where tables have impossible entries, another row takes the place of each row of weight 0.
    """
    if weights.all() or not np.isneginf(target.model.table_entries).any():
        return target
    return target.take(np.where(weights > 0, np.arange(target.rows), np.argmax(weights > 0)))


def shared_leaves(s: Structure) -> str:
    """Return a note on tables in which joint states share numbers; empty if there are none."""
    texts = [
        f"{key!r} ({t.form.size[0]} for {t.form.leaf.size})"
        for key, t in s.table_groups.items()
        if isinstance(t.form, Leaves)
    ]
    return f"leaves, which joint states share and keep: {few(texts)}" if texts else ""


def hidden_variables(target: Target) -> str:
    """Return a note on variables and arrays that no row observes; empty if there are none.

    A column that was forgotten is otherwise learned as a hidden variable in silence.
    """
    s, names = target.structure, list[str]()
    for name, layer in s.layers.items():
        if name in s.auxiliary:
            continue
        never = distinct(target.free[name]).all(axis=0)
        if layer.holds_variables or layer.is_variable:
            names += [str(s.names.of((name, int(unit)))) for unit in np.flatnonzero(never)]
        elif layer.is_array and never.all():
            names.append(name)
    return f"hidden, because no row of the data has a value: {few(names)}" if names else ""


def uninformed_parameters(masks: Mapping[str, Array]) -> str:
    """Return a note on the parameters that no row informs; empty if there are none.

    `masks` has the numbers of each parameter that no row informs.
    """
    if not masks:
        return ""
    names = [repr(key) if mask.all() else f"a part of {key!r}" for key, mask in masks.items()]
    return (
        "kept as given, because no row of the data has a value of their units or of descendants "
        f"of these: {few(names)}"
    )
