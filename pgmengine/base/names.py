"""Suggestions for mistyped names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: object, known: Iterable[object]) -> str:
    """Return the end of a message that suggests a known name, or an empty string.

    >>> nearest("baias", ("bias", "unit"))
    '; did you mean bias?'
    """
    found = difflib.get_close_matches(str(name), map(str, known), n=1)
    return f"; did you mean {found[0]}?" if found else ""
