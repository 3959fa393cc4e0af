"""Text and HTML that introduce an object: a headline, then a line or a row for each part of it.

Both forms are shortened, so that an object of any size fits on a screen. Names are escaped, because
they come from files and users.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# Parts of an object that its text shows, and rows that its table in a notebook shows.
MOST_LINES, MOST_ROWS = 10, 30

# Names or numbers of one part that are shown, and characters of one name.
MOST_NAMES, MOST_CHARACTERS = 6, 60


def counted(number: int, word: str) -> str:
    """Return a number with a word in the singular or plural.

    >>> counted(1, "layer"), counted(393284, "parameter")
    ('1 layer', '393,284 parameters')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def plain(name: object) -> str:
    """Return a name on one line: control characters are escaped, long names shortened."""
    text = str(name)
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def few(names: Iterable[object], number: int | None = None) -> str:
    """Return the first names of a list, and the number of further names.

    `number` is the number of all names if `names` contains only the first of them.

    >>> few("abcdefgh")
    'a, b, c, d, e, f ... and 2 more'
    """
    known = list(names)
    more = (len(known) if number is None else number) - MOST_NAMES
    text = ", ".join(plain(name) for name in known[:MOST_NAMES])
    return f"{text} ... and {more:,} more" if more > 0 else text


def as_text(head: str, lines: Sequence[str], number: int, most: int = MOST_LINES) -> str:
    """Return a headline, the first of `number` lines, and the number of lines left out."""
    kept = [f"  {line}" for line in lines[:most]]
    more = [f"  ... and {number - most:,} more"] * (number > most)
    return "\n".join([head, *kept, *more])


def as_html(
    head: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    number: int,
    notes: Iterable[str] = (),
) -> str:
    """Return a headline, notes, and a table with the first of `number` rows.

    Columns that are empty in every row are left out.
    """
    from html import escape

    kept = rows[:MOST_ROWS]
    filled = [i for i in range(len(columns)) if any(row[i] for row in kept)]
    heads = "".join(f"<th>{escape(columns[i])}</th>" for i in filled)
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(row[i])}</td>' for i in filled)}</tr>" for row in kept
    )
    remarks = "".join(f"<p>{escape(note)}</p>" for note in notes)
    more = f"<p>... and {number - MOST_ROWS:,} more</p>" if number > MOST_ROWS else ""
    table = f"<table><tr>{heads}</tr>{lines}</table>" if kept else ""
    return f"<p><b>{escape(head)}</b></p>{remarks}{table}{more}"
