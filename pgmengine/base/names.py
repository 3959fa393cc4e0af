"""Suggestions for mistyped names, and tests of whether a value can be a name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeGuard

from pgmengine.base.errors import told


def nearest(name: object, known: Iterable[object]) -> str:
    """Return the end of a message that suggests a known name, or an empty string.

    >>> nearest("baias", ("bias", "unit"))
    '; did you mean bias?'
    """
    found = closest(name, known)
    return f"; did you mean {found}?" if found else ""


def closest(name: object, known: Iterable[object]) -> str:
    """Return the text of the known name that is most similar, or an empty string."""
    text = name if isinstance(name, str) else told(name)
    return next(iter(difflib.get_close_matches(text, map(str, known), n=1)), "")


def slip_of(name: object, known: Iterable[str]) -> str:
    """Return the known name that a name is one slip away from, or an empty string.

    A slip is a letter too much or too few, another letter, two letters swapped, or other capitals.

    >>> slip_of("wieght", ("weight",)), slip_of("Bias", ("bias",)), slip_of("colour", ("bias",))
    ('weight', 'bias', '')
    """
    text = str(name).casefold()
    return next((one for one in known if _is_slip(text, one)), "")


def _is_slip(one: str, other: str) -> bool:
    """Return whether texts are equal but for one letter, or for two neighbours that are swapped."""
    if abs(len(one) - len(other)) > 1:
        return False
    first = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if first is None:
        return True
    rest = one[first + 1 :], other[first + 1 :]
    swapped = one[first : first + 2] == other[first : first + 2][::-1]
    return (
        rest[0] == rest[1]
        or rest[0] == other[first:]
        or one[first:] == rest[1]
        or (swapped and one[first + 2 :] == other[first + 2 :])
    )


def hashable(value: object) -> bool:
    """Whether a value can be a name; a list cannot, for example."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def is_several(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether a value can be several names: it is neither text nor an array without axes."""
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return several and bool(getattr(value, "ndim", 1))


def is_sequence(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether a value can be several names in order; a set has no order.

    The order of a set of texts changes from one process to the next.
    """
    return is_several(value) and not isinstance(value, (set, frozenset))
