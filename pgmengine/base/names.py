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
