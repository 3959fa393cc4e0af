"""Variables: units that are declared one by one, by name.

A variable is a unit of a layer whose label is the name of the variable. Variables with the same
states share one layer, so that a network of thousands of variables is a graph of a few layers. A
variable that a coupling names has a layer of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pgmengine.base.checks import check_text
from pgmengine.base.errors import PgmError
from pgmengine.base.names import hashable, is_sequence
from pgmengine.base.work.memory import no_room
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import LARGEST_READ, plain, text_of
from pgmengine.units import Binary, Categorical, Constant, Unit

# The most axes of an array of variables: numpy 1 has arrays of up to 32 axes, and broadcasting,
# rows, draws and states add some.
MAX_SHAPE_AXES = 16


# Types of times of numpy.
TIMES = np.datetime64, np.timedelta64


@dataclass(frozen=True)
class Variable:
    """A variable as it is declared: its name, its number of states, and their names if any.

    `shape` is the shape of an array of variables, None for a single variable.
    """

    name: str
    count: int
    state_names: tuple[Hashable, ...] | None = None
    shape: tuple[int, ...] | None = None

    @property
    def unit(self) -> Unit:
        """The type of unit: Binary with two states, Constant with one, else Categorical."""
        if self.count == 1:
            return Constant()
        return Binary() if self.count == 2 else Categorical(self.count)


def check_variable(
    name: object, states: int | Iterable[Hashable], shape: int | Sequence[int] | None = None
) -> Variable:
    """Return a variable, or an array of them; PgmError unless it has a name and a state."""
    one = _single(name, states)
    return one if shape is None else replace(one, shape=check_shape(shape, f"variable {name!r}"))


# The number of variables of an array from which all numbers count as equally many.
MAX_COUNTED = 2**60


def check_shape(shape: object, what: str) -> tuple[int, ...]:
    """Return the axes of an array as a tuple; PgmError unless they are integers of at least 1."""
    axes = tuple(shape) if is_sequence(shape) else (shape,)
    whole = [isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in axes]
    if not axes or not all(whole) or min(axes) < 1:
        raise PgmError(
            f"{what}: the shape must be an integer of at least 1, or a tuple of them, not {shape!r}"
        )
    if len(axes) > MAX_SHAPE_AXES:
        raise PgmError(f"{what}: the shape has {len(axes)} axes, expected up to {MAX_SHAPE_AXES}")
    sizes = tuple(map(int, axes))
    # A file may have a whole number that no number in double precision is near.
    if why := no_room(8 * min(math.prod(sizes), MAX_COUNTED), "take fewer variables"):
        raise PgmError(f"{what}: the numbers of its variables do not fit into memory: {why}")
    return sizes


def _single(name: object, states: int | Iterable[Hashable]) -> Variable:
    """Return a single variable, checked."""
    if not isinstance(name, str) or not name:
        raise PgmError(f"a variable's name must be a non-empty string, not {name!r}")
    check_text(name, "a variable's name")
    what = f"variable {name!r}: states"
    if isinstance(states, (int, np.integer)) and not isinstance(states, bool):
        if states < 1:
            raise PgmError(f"{what} must be 1 or more, or a list of their names, not {states}")
        return Variable(name, int(states))
    if not is_sequence(states):
        raise PgmError(f"{what} must be a number or a list of names in order, not {states!r}")
    # Times of numpy would become integers.
    names = tuple(one if isinstance(one, TIMES) else plain(one) for one in states)
    for one in names:
        if isinstance(one, str):
            check_text(one, f"variable {name!r}: a name of a state")
        elif not isinstance(one, (bool, int, float)) or not abs(one) <= LARGEST_READ:
            raise PgmError(f"{what} must be text, numbers or booleans, not {one!r:.80}")
    # True and 1 are equal, and "1" and 1 are the same in a file.
    if min(len(set(names)), len(set(map(text_of, names)))) < max(len(names), 1):
        raise PgmError(f"{what} must be one or more names that differ as text, not {names!r:.80}")
    return Variable(name, len(names), names)


def layers_of(
    variables: Sequence[Variable], apart: Collection[str], taken: Collection[Hashable]
) -> list[Layer]:
    """Return the layers of variables.

    Parameters
    ----------
    variables : in the order of their declaration. Each array is a layer.
    apart : names of the variables that get layers of their own.
    taken : names of layers and units that exist.
    """
    groups: dict[object, list[Variable]] = {}
    for v in variables:
        own = v.name in apart or v.shape is not None
        # True and 1 are equal, and are names of different states.
        key: object = v.name if own else (v.count, tuple(map(repr, v.state_names or ())))
        groups.setdefault(key, []).append(v)
    layers, names = list[Layer](), {*taken, *(v.name for v in variables)}
    for key, members in groups.items():
        first = members[0]
        if first.shape is not None:
            size, axes = math.prod(first.shape), first.shape if len(first.shape) > 1 else ()
            layers.append(
                Layer(
                    first.name,
                    first.unit,
                    size,
                    state_names=first.state_names,
                    shape=axes,
                    is_array=True,
                )
            )
            continue
        name = key if isinstance(key, str) else free_name(f"variables{first.count}", names)
        names.add(name)
        labels = tuple(v.name for v in members)
        own = key in apart
        layers.append(Layer(name, first.unit, len(members), labels, first.state_names, not own))
    return layers


def free_name(name: str, taken: Collection[Hashable]) -> str:
    """Return a name, with a number appended if the name is taken."""
    numbered = (f"{name}_{i}" for i in range(1, len(taken) + 2))
    return name if name not in taken else next(n for n in numbered if n not in taken)


def check_names(variables: Sequence[Variable], layers: Sequence[Layer]) -> None:
    """PgmError if two variables, or a variable and a layer or a unit, have the same name."""
    seen = {layer.name for layer in layers}
    labels = {
        label: layer.name for layer in layers for label in layer.labels or () if hashable(label)
    }
    shapes = {v.name: v.shape for v in variables if v.shape is not None}
    for v in variables:
        array = v.name.partition("[")[0]
        if array in shapes and _is_place(v.name, array, shapes[array]):
            raise PgmError(
                f"variable {v.name!r} has the name of a variable of the array {array!r}; choose "
                "another"
            )
        if v.name in seen:
            raise PgmError(f"variable {v.name!r} is declared twice, or has the name of a layer")
        if v.name in labels:
            raise PgmError(
                f"variable {v.name!r} has the name of a unit of layer {labels[v.name]!r}; choose "
                "another"
            )
        seen.add(v.name)


def _is_place(name: str, array: str, shape: tuple[int, ...]) -> bool:
    """Whether a name such as "s[0,1]" is that of a variable of an array."""
    parts = name[len(array) + 1 : -1].split(",")
    if not name.endswith("]") or len(parts) != len(shape):
        return False
    numbers = [part.strip() for part in parts]
    return all(x.isdecimal() and int(x) < n for x, n in zip(numbers, shape, strict=True))
