"""The errors that pgmengine raises for unusable input, and lists of names in their messages.

A message says what is wrong, where (layer, unit, row, index), what was given, what was expected and
what to do. It is one line, however many layers the model has.
"""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import category

# Kinds of characters that a terminal would act on, or cannot show: control characters, marks of
# direction, lone surrogates, and separators of lines and paragraphs.
UNSHOWN_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")

# Names of a list that a message shows, at most.
MAX_NAMES_SHOWN = 3

# Characters of a value that a message shows, at most.
MAX_CHARACTERS_SHOWN = 200


class PgmError(ValueError):
    """Unusable input: a model, data, a setting or a file.

    Catch it to handle every error that pgmengine raises on purpose. It is a ValueError.

    >>> import pgmengine as pgm
    >>> pgm.rbm(0, 2)
    Traceback (most recent call last):
    pgmengine.base.errors.PgmError: layer 'v': the size must be an integer of at least 1, not 0
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(visible(str(message)))


class NoSuchName(PgmError, KeyError):
    """A name that a mapping of answers does not contain."""

    # KeyError would show the message in quotes.
    __str__ = ValueError.__str__


class NotAsked(PgmError, AttributeError):
    """A quantity that is read from a Result, although the question did not ask for it.

    Name the quantity in `want` to get it. Since this is an AttributeError, `hasattr(result, name)`
    is False for such a quantity.
    """


class InternalError(RuntimeError):
    """A fault of pgmengine itself, found before a wrong answer was returned.

    No input should lead to it. It is not a PgmError, so that no plan treats it as a refusal.
    """

    def __str__(self) -> str:
        what = super().__str__()
        return f"{what}; this is a fault of pgmengine: please report it with the question"


def visible(text: str) -> str:
    r"""Return a text for messages, such as a part of a file, with unprintable characters escaped.

    Line breaks stay.

    >>> visible("\x1b[31mred\u202e \ud800")
    '\\x1b[31mred\\u202e \\ud800'
    """
    if text.isprintable():
        return text
    return "".join(
        ascii(x)[1:-1] if x != "\n" and category(x) in UNSHOWN_CATEGORIES else x for x in text
    )


def told(value: object) -> str:
    """Return a value that was given, as messages show it.

    Its text is cut where it is long. Values without a text, such as an integer of 5,000 digits or
    lists within lists without end, are named by their kind.

    >>> told(-1), told("x"), told(10**5000)
    ('-1', "'x'", 'an int that is too large to be written')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        kind = type(value).__name__
        return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} that is too large to be written"
    more = len(text) - MAX_CHARACTERS_SHOWN
    return text if more <= 0 else f"{text[:MAX_CHARACTERS_SHOWN]} ... and {more} more characters"


def reason(error: Exception) -> str:
    """Return the message of an error of Python, without advice that is meant for programmers."""
    return str(error).partition("; use sys.")[0]


def listed(names: Sequence[str], between: str = ", ") -> str:
    """Return the first three names of a list, and the number of further names.

    >>> listed(["v", "h", "g", "t", "u"])
    'v, h, g ... and 2 more'
    """
    more = len(names) - MAX_NAMES_SHOWN
    return between.join(names[:MAX_NAMES_SHOWN]) + (f" ... and {more} more" if more > 0 else "")
