"""The one family of errors that pgmengine raises for unusable input, and lists of names in them."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 3  # names of a list, so that it stays a line however many layers a model has


class PgmError(ValueError):
    """Input that cannot be used; the message names the layer, the row, the index and what was
    expected.
    """


class NoSuchName(PgmError, KeyError):
    """A name that a mapping of answers does not have."""

    __str__ = ValueError.__str__


class NotAsked(PgmError, AttributeError):
    """An answer read from a Result that was not among the wanted quantities."""


def listed(names: Sequence[str], between: str = ", ") -> str:
    """Return the first three names of a list, and how many more there are.

    >>> listed(["v", "h", "g", "t", "u"])
    'v, h, g ... and 2 more'
    """
    more = len(names) - SHOWN
    return between.join(names[:SHOWN]) + (f" ... and {more} more" if more > 0 else "")
