"""Numbers of states as users give them: log weights or likelihoods, in order or by name."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import IN_RANGE, in_range
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array
from pgmengine.model.containers import as_floats, is_frame
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import position, state_number

# Numbers of states: an array with a last axis of states, or state -> number or number of each row.
ByState: TypeAlias = "ArrayLike | Mapping[Hashable, ArrayLike]"


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """Likelihoods of the states of a unit or a layer, made by `likelihood`."""

    values: ByState


def count_states(layer: Layer) -> int:
    """Return the number of states of a layer's units; PgmError if there are infinitely many."""
    if layer.unit.support is None:
        raise PgmError(
            f"soft: {layer.title} has {layer.unit!r} units; soft evidence needs finitely many "
            "states"
        )
    return len(layer.unit.support)


def log_weights(layer: Layer, given: Any, what: str) -> Array:
    """Return log weights (..., K) by state from an array, by name, or from likelihoods, checked."""
    k, names = count_states(layer), layer.state_names or ()
    chances = isinstance(given, Likelihoods)
    given = given.values if isinstance(given, Likelihoods) else given
    array = _by_state(layer, given, what)
    if array.ndim and not len(array):
        raise PgmError(f"{what} has no rows, expected at least one")
    if array.shape[-1:] != (k,):
        each = "likelihood" if chances else "log weight"
        numbers = [*[0.0] * (min(k, 4) - 1), 1.0]
        example = dict(zip(names, numbers, strict=True)) if len(names) == len(numbers) else numbers
        why = "; a log-odds does not say which state it favours" if k == 2 and not chances else ""
        raise PgmError(
            f"{what} has shape {array.shape}, expected (..., {k}), a {each} for each state, such "
            f"as {example}{' ...' if k > len(numbers) else ''}{why}"
        )
    if chances:
        good = (array >= 0) & np.isfinite(array)
        check_entries(array, ~good, what, names, "a likelihood, a finite number of at least 0")
        with np.errstate(divide="ignore"):
            array = np.log(array)
    else:
        good = in_range(array) | np.isneginf(array)
        check_entries(array, ~good, what, names, f"{IN_RANGE}, or -inf, which excludes a state")
    # The position of a unit without a possible state, with an arbitrary state.
    lost = np.isneginf(array).all(axis=-1)
    if lost.any():
        place = tuple(int(i) for i in np.argwhere(lost)[0])
        raise PgmError(f"{what}{_place(place, array.ndim - 1)}: every state is excluded")
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


def check_entries(
    array: Array, bad: Array, what: str, names: tuple[Hashable, ...] | None, expected: str
) -> None:
    """PgmError with the position of the first bad number.

    The last axis has the states with these names, or without names, unless `names` is None.
    """
    if not np.any(bad):
        return
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    if names is None:
        where = _place(place, array.ndim)
    else:
        where = _place(place[:-1], array.ndim - 1)
        where += f", state {names[place[-1]]!r}" if names else f", state {place[-1]}"
    raise PgmError(f"{what}{where} is {array[place]}, expected {expected}")


def _place(place: tuple[int, ...], axes: int) -> str:
    """Return a position in an array with the axes (), (row,), or (row, index), for a message."""
    names = {0: (), 1: ("row",), 2: ("row", "index")}.get(axes, ("axis",) * axes)
    return "".join(f", {axis} {i}" for axis, i in zip(names, place, strict=True))
