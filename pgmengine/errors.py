"""The one family of errors that pgmengine raises for input it cannot use."""

from __future__ import annotations


class PgmError(ValueError):
    """Input that cannot be used; the message names the layer, the row, the index and what was expected."""


class NoSuchName(PgmError, KeyError):
    """A name that a mapping of answers does not have."""

    __str__ = ValueError.__str__


class NotAsked(PgmError, AttributeError):
    """An answer read from a Result that was not among the wanted quantities."""
