"""Units: handles of the units of a layer, or of variables, that index like a numpy array.

A handle is the name of a layer or variable with an array of numbers of its units. Indexing it
indexes this array, so that slices, steps, masks and new axes mean the same as in numpy. The scope
of a table is a sequence of handles whose shapes broadcast together, and the table is used at each
place of the broadcast shape. Text such as "z[1:]" is the same handle as z[1:].
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.names import is_sequence
from pgmengine.base.types import Array
from pgmengine.model.names.unit_names import Member, Names

# A subscript as text: a whole number, a slice of them, or an ellipsis.
# A number, or the numbers of a slice. One of more digits than these is the number of no unit.
NUMBER = r"-?\d{1,18}"
SUBSCRIPT = re.compile(
    rf"\s*(?:({NUMBER})|({NUMBER})?\s*:\s*({NUMBER})?\s*(?::\s*({NUMBER})?)?|(\.\.\.))\s*", re.ASCII
)


@dataclass(frozen=True, eq=False, repr=False)
class Units:
    """Units of a layer, or variables, in an array that indexes like one of numpy.

    `GraphBuilder.variable` and `GraphBuilder.layer` return it. Use it in the scopes of
    conditionals, tables and couplings.

    Attributes
    ----------
    name : the name of the layer, of the array of variables, or of a single variable.
    index : the numbers of the units, in any shape.
    text : the handle as it is written, such as "z[1:]".
    owner : the builder that made it.

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> z = b.variable("z", states=5, shape=300)
    >>> z[1:]
    z[1:] of shape (299,)
    """

    name: str
    index: Array
    text: str
    # The builder that made the handle; None for handles of text.
    owner: object = None

    def __getitem__(self, key: Any) -> Units:
        """Return the units at a numpy index; PgmError if the index lies outside."""
        try:
            index = np.asarray(self.index[key])
        except (IndexError, ValueError, TypeError) as error:
            raise PgmError(f"{self.text}[{subscript(key)}]: {error}") from None
        return Units(self.name, index, f"{self.text}[{subscript(key)}]", self.owner)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.index.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.index.ndim

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError(f"{self.text} is a single unit and has no length")
        return len(self.index)

    def __iter__(self) -> Iterator[Units]:
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: int) -> Units:
        """Return the units in another shape, as `numpy.reshape` does."""
        inside = ", ".join(map(str, shape))
        text = f"{self.text}.reshape({inside})"
        return Units(self.name, self.index.reshape(*shape), text, self.owner)

    def __repr__(self) -> str:
        return f"{self.text} of shape {self.shape}" if self.ndim else self.text


def subscript(key: Any) -> str:
    """Return an index as it is written in Python."""
    if isinstance(key, tuple):
        return ", ".join(subscript(part) for part in key)
    if isinstance(key, slice):
        ends = ["" if end is None else str(end) for end in (key.start, key.stop, key.step)]
        return ":".join(ends[: 2 + (key.step is not None)])
    if isinstance(key, list):
        # Lists of unequal lengths have no number of axes.
        return "..."
    if key is Ellipsis or (isinstance(key, (int, np.integer)) and not isinstance(key, bool)):
        return "..." if key is Ellipsis else str(int(key))
    return "None" if key is None else "..." if np.ndim(key) else str(key)


def units_of_member(names: Names, member: object, what: str) -> tuple[str, Array, str]:
    """Return the layer of a member of a scope, the numbers of its units, and its text.

    Parameters
    ----------
    names : the names of the units of the structure.
    member : a handle, the name of a variable or of a layer, (layer, unit), or text with
        subscripts such as "z[1:]".
    what : the table, for messages.

    Raises
    ------
    PgmError for unknown names, and for a subscript that lies outside.
    """
    if isinstance(member, Units):
        return *_of_handle(names, member, what), member.text
    place = names.place(member)
    if place is not None:
        return place[0], np.array(place[1]), names.of(place)
    if isinstance(member, str):
        if member in names.layers:
            layer = names.layers[member]
            return member, _all_units(layer.size, layer.grid), member
        if (found := _written(names, member, what)) is not None:
            return *found, member
    layer_name, unit = names.unit(member, what)
    return layer_name, np.array(unit), names.of((layer_name, unit))


def _all_units(size: int, grid: tuple[int, ...]) -> Array:
    """Return the numbers of all units of a layer in its shape."""
    return np.arange(size).reshape(grid)


def _of_handle(names: Names, handle: Units, what: str) -> tuple[str, Array]:
    """Return the layer of a handle, and the numbers of its units in it."""
    if handle.name in names.layers:
        layer = names.layers[handle.name]
        if handle.index.max(initial=0) < layer.size:
            return handle.name, handle.index
    elif (place := names.place(handle.name)) is not None and not handle.index.any():
        return place[0], handle.index + place[1]
    raise PgmError(f"{what}: {handle.text} belongs to another builder")


def _written(names: Names, text: str, what: str) -> tuple[str, Array] | None:
    """Return the units of text such as "z[1:]", or None if the text is something else."""
    name, bracket, inside = text.partition("[")
    if not bracket or not inside.endswith("]") or name not in names.layers:
        return None
    keys = list[Any]()
    for part in inside[:-1].split(","):
        found = SUBSCRIPT.fullmatch(part)
        if found is None:
            return None
        number, start, stop, step, dots = found.groups()
        ends = (int(end) if end else None for end in (start, stop, step))
        keys.append(... if dots else int(number) if number else slice(*ends))
    layer = names.layers[name]
    try:
        handle = Units(name, _all_units(layer.size, layer.grid), name)[tuple(keys)]
    except PgmError as error:
        raise PgmError(f"{what}: {error}") from None
    return name, handle.index


def broadcast_shape(
    shapes: Sequence[tuple[int, ...]], scope: Sequence[Member | Units], what: str
) -> tuple[int, ...]:
    """Return the shape to which the members of a scope broadcast; PgmError if there is none."""
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        parts = ", ".join(f"{in_words(m)} has {s}" for m, s in zip(scope, shapes, strict=True))
        raise PgmError(
            f"{what}: the shapes of its members do not broadcast together as in numpy: {parts}"
        ) from None
    return shape


def check_scope(scope: object, owner: object, what: str) -> None:
    """PgmError unless a scope is a sequence of members, whose handles belong to this builder."""
    if isinstance(scope, Units) or not is_sequence(scope):
        example = f"({in_words(scope)},)"
        raise PgmError(f"{what} must be a sequence such as {example}, not {in_words(scope)}")
    for member in scope:
        if isinstance(member, Units) and member.owner not in (None, owner):
            raise PgmError(f"{what}: {member.text} belongs to another builder")


def in_words(member: object) -> str:
    """Return a member of a scope as it was written, for a message."""
    return member.text if isinstance(member, Units) else repr(member)
