"""Orders of the entries in .uai files of other programs.

The format says that the last variable of a scope is fastest. Two programs write other orders:

    aGrUM (pyAgrum)  BAYES: the child, which is last in the scope, is fastest, then the first
                     parent, and the last parent is slowest. Each scope has the name of its child
                     behind it as a remark. MARKOV: an order that the file does not tell.
    pgmpy            BAYES: the first variable is fastest, and the child is slowest. Its files have
                     no mark; only their rows show the order, and the layout which program wrote it.

A file is read in the order of such a program only if its layout is exactly that of the program. A
file with a similar layout could have either order, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.model.tables import rows_are_one

# A comment, to the end of its line.
REMARK = re.compile(r"#[^\n]*")

# The head of a file of aGrUM: the numbers of variables, of states, and of factors. After it come
# the scopes, each with the name of its child as a remark.
AGRUM_BAYES_HEAD = re.compile(
    r"BAYES\n(\d+)\n(?:\d+ )+\n\1\n(?P<scopes>(?:\d+(?: \d+)+   # [^\n]*\n)+)\n"
)
AGRUM_MARKOV_HEAD = re.compile(r"\A\s*MARKOV\s+\d+[ \t]*# nbr Nodes", re.IGNORECASE)
NAMED_SCOPE = re.compile(r"^[ \t]*\d+(?:[ \t]+\d+)+[ \t]*#", re.MULTILINE)

# The head of a file of pgmpy. After it, each factor has a line with the number of its entries, and
# a line with all entries.
PGMPY_HEAD = re.compile(r"BAYES\n(\d+)\n\d+(?: \d+)*\n\1\n(?:\d+(?: \d+)+\n)+\n")

CONVERSION_ADVICE = (
    "convert the model itself with GraphBuilder.from_{}, or save it in another format there"
)


class Order(Enum):
    """The order of the entries of the conditionals in a file."""

    STANDARD = "the last variable is fastest"
    AGRUM = "the child is fastest, then the first parent"
    PGMPY = "the first variable is fastest"

    def rows(self, values: Array) -> Array:
        """Return entries, which were read in the standard order, with axes parents, then child."""
        *parents, child = values.shape
        if self is Order.AGRUM:
            back = values.reshape([*parents[::-1], child])
            return back.transpose([*range(len(parents))[::-1], len(parents)])
        return values.reshape(values.shape[::-1]).T if self is Order.PGMPY else values


def order_of(text: str, directed: bool, factors: Sequence[Array], tolerance: float) -> Order:
    """Return the order of the entries of a file.

    Parameters
    ----------
    text : the text of the file, with its remarks.
    directed : whether it is a BAYES file.
    factors : the entries, read in the standard order, with an axis for each variable.
    tolerance : the largest difference from 1 of the sum of a row that counts as rounding.

    Raises
    ------
    PgmError
        For a file that another program may have written in an order that the file does not show.
    """
    text = text.replace("\r\n", "\n")
    if not directed:
        if AGRUM_MARKOV_HEAD.match(text) and any(values.ndim > 1 for values in factors):
            raise PgmError(
                "a MARKOV file of aGrUM, whose order of entries is not that of the format and "
                f"cannot be told from the file; {CONVERSION_ADVICE.format('pyagrum')}"
            )
        return Order.STANDARD
    if "#" in text and len(NAMED_SCOPE.findall(text)) >= len(factors):
        if not _differs(factors, Order.AGRUM):
            return Order.STANDARD
        match = AGRUM_BAYES_HEAD.match(text)
        if match and match["scopes"].count("\n") == len(factors):
            return Order.AGRUM
        raise PgmError(
            "every scope has a remark behind it, as in files of aGrUM, whose order of entries is "
            "not that of the format; remove the remarks if the last variable is fastest, or "
            f"{CONVERSION_ADVICE.format('pyagrum')}"
        )
    return _by_rows(text, factors, tolerance)


def _by_rows(text: str, factors: Sequence[Array], tolerance: float) -> Order:
    """Return the order in which rows sum to 1: the standard one, or that of pgmpy."""
    back = [Order.PGMPY.rows(values) for values in factors]
    for allowed in (0.0, tolerance):
        standard = all(rows_are_one(values, allowed) for values in factors)
        other = all(rows_are_one(values, allowed) for values in back)
        if standard and other and _differs(factors, Order.PGMPY) and _of_pgmpy(text):
            raise PgmError(
                "the file has the layout of pgmpy, and its rows sum to 1 in the order of the "
                f"format and in that of pgmpy, which differ; {CONVERSION_ADVICE.format('pgmpy')}, "
                "or write all numbers on one line if the last variable is fastest"
            )
        if standard:
            return Order.STANDARD
        if other and _of_pgmpy(text):
            return Order.PGMPY
        if other:
            raise PgmError(
                "the entries sum to 1 with the child, the last variable of a scope, slowest, and "
                "not with the child fastest, as the format has it; write them in the order of the "
                "format, the last variable fastest"
            )
    # Rows that sum to 1 in neither order are refused later, by an error with their place.
    return Order.STANDARD


def _differs(factors: Sequence[Array], order: Order) -> bool:
    """Return whether this order and the standard one give different factors, beyond rounding."""
    pairs = ((order.rows(values), values) for values in factors)
    return any(a.shape != b.shape or not np.allclose(a, b, rtol=1e-9, atol=0.0) for a, b in pairs)


def _of_pgmpy(text: str) -> bool:
    """Return whether a text has exactly the layout of pgmpy."""
    head = PGMPY_HEAD.match(text)
    if head is None or "#" in text:
        return False
    lines = text[head.end() :].removesuffix("\n").split("\n")
    return (
        len(lines) % 2 == 0
        and all(line.isdecimal() for line in lines[::2])
        and all(" ".join(line.split()) == line for line in lines[1::2])
    )
