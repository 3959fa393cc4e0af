"""Names that are not known: the nearest one that is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def nearest(name: Any, known: Iterable[Any]) -> str:
    """Words for the end of a message: the known name that a mistyped one is nearest to, or nothing.

    >>> nearest("baias", ("bias", "unit"))
    '; did you mean bias?'
    """
    found = difflib.get_close_matches(str(name), map(str, known), n=1)
    return f"; did you mean {found[0]}?" if found else ""
