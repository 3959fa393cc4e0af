"""Words of a text file with their lines, for the readers of .bif, .net and .dsl files.

All words are found by one regular expression, as a list of strings. The line of a word is needed
only for a message, and is then found by a second search. A million numbers therefore need no
records of their places.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from itertools import islice

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array

# The pattern of a comment between /* and */. It also matches a comment without an end, which
# `Words` refuses, because searching for the end again at each of many marks would take long.
PAIRED_COMMENT = r"/\*.*?(?:\*/|\Z)"

UNDERFLOW_MESSAGE = (
    "a number too small for double precision, expected 0 or at least 5e-324; 0 would make the "
    "state impossible"
)


def pattern(comments: str, special: str) -> re.Pattern[str]:
    """Return the expression whose group 1 is a word: a quoted text, a special mark, or a name.

    A quotation mark without an end on its line is a word by itself, which no grammar accepts.
    """
    marks = re.escape(special)
    return re.compile(rf'{comments}|("[^"\n]*"|[{marks}]|[^\s",{marks}]+|")', re.DOTALL)


class Words:
    """The words of a text, read from left to right."""

    def __init__(self, text: str, expression: re.Pattern[str]) -> None:
        self.text = text
        self.expression = expression
        # A comment matches without group 1.
        self.words: list[str] = [word for word in expression.findall(text) if word]
        self.i = 0
        if PAIRED_COMMENT in expression.pattern and text.rfind("/*") + 2 > text.rfind("*/"):
            self._check_end()

    def _check_end(self) -> None:
        """Raise PgmError for a comment without an end, which would swallow the rest of the file."""
        (last,) = deque(self.expression.finditer(self.text), maxlen=1) or (None,)
        if last is None or last[1] or not last[0].startswith("/*"):
            return
        if len(last[0]) < 4 or not last[0].endswith("*/"):
            line = self.text.count("\n", 0, last.start()) + 1
            raise PgmError(f"line {line}: a comment begins with /* and has no end, expected */")

    @property
    def next(self) -> str:
        """The next word, or an empty string at the end."""
        return self.words[self.i] if self.i < len(self.words) else ""

    def error(self, message: str, at: int | None = None) -> PgmError:
        """Return an error with the line of a word, by default the last one taken."""
        i = self.i - 1 if at is None else at
        found = (m for m in self.expression.finditer(self.text) if m[1])
        match = next(islice(found, max(i, 0), None), None)
        if match is None:
            return PgmError(f"line {self.text.rstrip().count(chr(10)) + 1}: {message}")
        return PgmError(f"line {self.text.count(chr(10), 0, match.start()) + 1}: {message}")

    def take(self, wanted: str = "a word") -> str:
        """Return the next word and go on."""
        if self.i >= len(self.words):
            raise self.error(f"the file ends, expected {wanted}", len(self.words))
        self.i += 1
        return self.words[self.i - 1]

    def expect(self, *wanted: str) -> str:
        """Take a word that must be one of these, in any case of letters."""
        shown = " or ".join(map(repr, wanted))
        word = self.take(shown)
        if word.lower() not in wanted:
            raise self.error(f"{word[:40]!r}, expected {shown}")
        return word.lower()

    def name(self, what: str) -> str:
        """Take a name, and remove its quotation marks."""
        word = self.take(what)
        if (name := unquoted(word)) is None:
            raise self.error(f"{word!r}, expected {what}")
        return name

    def names(self, end: str, what: str) -> list[str]:
        """Take all names up to a mark, and then the mark."""
        found: list[str] = []
        while self.next != end:
            found.append(self.name(f"{what} or {end!r}"))
        self.take()
        return found

    def to(self, end: str) -> tuple[int, int]:
        """Take all words up to a mark, and then the mark; return the range of the words."""
        first = self.i
        try:
            last = self.words.index(end, first)
        except ValueError:
            raise self.error(f"the file ends, expected {end!r}", len(self.words)) from None
        self.i = last + 1
        return first, last

    def numbers(self, words: Sequence[str], places: Sequence[int]) -> Array:
        """Return words as finite numbers of at least 0; `places` are their indices."""
        values = as_numbers(words, any("_" in word for word in words))
        if (wrong := fault(words, values)) is not None:
            k, why = wrong
            raise self.error(f"{words[k][:40]!r}, {why}", places[k])
        return values


def as_numbers(words: Sequence[str], underscores: bool) -> Array:
    """Return words as numbers, NaN for words that are not numbers.

    `underscores` says whether a word may have one, as numbers have in Python and not in files.
    """
    if not underscores:
        try:
            return np.array(list(map(float, words)), dtype=np.float64)
        except ValueError:
            pass
    return np.array([number(word) for word in words], dtype=np.float64)


def fault(words: Sequence[str], values: Array) -> tuple[int, str] | None:
    """Return the index of the first word that no table can have, and why; None if all fit."""
    bad = np.flatnonzero(~((values >= 0) & (values < np.inf)))
    if len(bad):
        return int(bad[0]), "expected a finite number of at least 0"
    lost = underflow(words, values)
    return None if lost is None else (lost, UNDERFLOW_MESSAGE)


def underflow(words: Sequence[str], values: Array) -> int | None:
    """Return the index of the first word that is not zero but is read as 0, or None.

    Such a number is too small for double precision. Read as 0, it would make a state impossible.
    """
    zeros = np.flatnonzero(values == 0).tolist()
    # There may be many zeros, but they are written in few ways.
    lost = {word for word in {words[k] for k in zeros} if is_not_zero(word)}
    return next((k for k in zeros if words[k] in lost), None) if lost else None


def is_not_zero(word: str) -> bool:
    """Return whether the digits of a number before its exponent are not all 0."""
    return any(x.isdigit() and x != "0" for x in word.lower().partition("e")[0])


def unquoted(word: str) -> str | None:
    """Return a name without its quotation marks, or None for a mark that is not a name."""
    if word.startswith('"'):
        return word[1:-1] if len(word) > 2 else None
    return None if len(word) == 1 and word in "{}()[];|=" else word


def number(word: str) -> float:
    """Return a word as a number, or NaN if it is not a number."""
    try:
        return float(word) if "_" not in word else float("nan")
    except ValueError:
        return float("nan")
