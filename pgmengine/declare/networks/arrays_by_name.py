"""Arrays of variables in networks, which know variables by their names alone.

A file of another program lists single variables. Those of an array are written as "z[0]", "z[1]",
..., or "s[0,0]", "s[0,1]", .... When a network is declared, names of this form become an array
again if nothing contradicts it:

    the numbers of all names that begin with "z[" are a whole grid from 0 on,
    all of these variables have the same states in the same order,
    no variable is called "z".

All other variables stay single ones. Every variable keeps its name in both cases.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from pgmengine.model.names.unit_names import Member
from pgmengine.model.names.variables import MAX_SHAPE_AXES

# A name with subscripts, as units of arrays are written. No array has a billion variables.
NAME = re.compile(r"([^\[\]]+)\[((?:0|[1-9]\d{0,8})(?:,(?:0|[1-9]\d{0,8}))*)\]", re.ASCII)


def shapes_of(
    names: Sequence[str], states: Sequence[tuple[str, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return array -> shape, for the arrays whose variables a network has.

    >>> shapes_of(("s[0]", "s[1]", "t[1]"), (("no", "yes"),) * 3)
    {'s': (2,)}
    """
    members: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if "[" in name:
            members.setdefault(name.partition("[")[0], []).append(i)
    out, taken = dict[str, tuple[int, ...]](), set(names)
    for array, own in members.items():
        places = [_place(names[i]) for i in own]
        one_state = len({states[i] for i in own}) == 1
        shape = tuple(max(numbers) + 1 for numbers in zip(*places, strict=False))
        alike = all(len(place) == len(shape) for place in places)
        whole = 0 < len(shape) <= MAX_SHAPE_AXES and math.prod(shape) == len(own)
        if array not in taken and one_state and alike and whole:
            out[array] = shape
    return out


def member_of(name: str, shapes: dict[str, tuple[int, ...]]) -> Member:
    """Return a variable as builders know it: (array, position), or its name."""
    array = name.partition("[")[0]
    if array not in shapes:
        return name
    place = _place(name)
    return (array, place) if len(place) > 1 else (array, place[0])


def _place(name: str) -> tuple[int, ...]:
    """Return the numbers in a name such as "s[0,1]"; () for other names."""
    found = NAME.fullmatch(name)
    return () if found is None else tuple(int(number) for number in found[2].split(","))
