"""Belief networks in the Bayesian interchange format (.bif).

    network example {
    }
    variable rain {
      type discrete [ 2 ] { yes, no };
    }
    variable wet {
      type discrete [ 2 ] { yes, no };
    }
    probability ( rain ) {
      table 0.2, 0.8;
    }
    probability ( wet | rain ) {
      (yes) 0.9, 0.1;
      (no) 0.05, 0.95;
    }

A row names the states of the parents in the order of the header. `default` is the row for all
states of the parents that have no row of their own. `table` has all entries, the child slowest and
the last parent fastest. Commas count as white space, // and /* */ enclose comments, and `property`
lines are skipped.

A name is a quoted text, or any characters but white space and {}()[];|," so that states such as
<5, 12+ and Asy/Patch, which published networks have, need no quotation marks.

This reader is the package's own because pyAgrum takes letters, digits and few other characters for
names, keeps probabilities in single precision (0.1 becomes 0.10000000149), and fills missing rows
with zeros.
"""

from __future__ import annotations

import math
import re
from itertools import product

import numpy as np

from pgmengine.base.errors import listed
from pgmengine.base.types import Array
from pgmengine.base.work.memory import too_large
from pgmengine.declare.networks.tabular import Network
from pgmengine.io.file_variables import Variables, check_directed, check_quotable
from pgmengine.io.opened import DATA_MEMORY_PER_TEXT_BYTE
from pgmengine.io.words import PAIRED_COMMENT, Words, pattern, unquoted

BIF_WORD = pattern(r"//[^\n]*|" + PAIRED_COMMENT, "{}()[];|")

# Names that are written without quotation marks, which every program can read.
UNQUOTED_BIF_NAME = re.compile(r'(?!//|/\*)[^\s{}()\[\];|,"]+')


def read_bif(text: str, tolerance: float = 0.0) -> Network:
    """Return the network of a .bif text; `read` describes the tolerance.

    Raises
    ------
    PgmError
        For text in another format; the message begins with the line.

    >>> n = read_bif(
    ...     "network n { } variable a { type discrete [ 2 ] { <5, 5-12 }; }"
    ...     "probability ( a ) { table 0.25, 0.75; }"
    ... )
    >>> n.names, n.states, n.conditionals[0].values
    (('a',), (('<5', '5-12'),), array([0.25, 0.75]))
    """
    words = Words(text, BIF_WORD)
    words.expect("network")
    while words.next not in ("{", ""):
        words.take()
    words.expect("{")
    _skip_properties(words)
    variables = Variables(tolerance)
    while words.next:
        if words.expect("variable", "probability") == "variable":
            _variable(words, variables)
        else:
            _probability(words, variables)
    return variables.network()


def _skip_properties(words: Words) -> None:
    """Take properties up to the end of a block."""
    while words.expect("property", "}") == "property":
        words.to(";")


def _variable(words: Words, variables: Variables) -> None:
    """Take the block of a variable."""
    at = words.i
    name = words.name("the name of a variable")
    words.expect("{")
    states: list[str] | None = None
    while (key := words.expect("type", "property", "}")) != "}":
        if key == "property":
            words.to(";")
            continue
        words.expect("discrete")
        words.expect("[")
        size = words.name("the number of states")
        place = words.i - 1
        words.expect("]")
        words.expect("{")
        states = words.names("}", "a state")
        if size != str(len(states)):
            raise words.error(
                f"variable {name!r} has {size[:40]} states by its type, but {len(states)} names of "
                "states",
                place,
            )
        words.expect(";")
    if states is None:
        raise words.error(f"variable {name!r} has no type", at)
    variables.add(words, name, states, at)


def _probability(words: Words, variables: Variables) -> None:
    """Take the block of a conditional."""
    words.expect("(")
    at = words.i
    names = [words.name("the name of a variable")]
    if words.next == "|":
        words.take()
    names += words.names(")", "a parent")
    family = variables.family(words, names, at)
    if family[0] in variables.families:
        raise words.error(f"a second probability of variable {names[0]!r}", at)
    words.expect("{")
    rows = _Rows(words, variables, names, at)
    while rows.take():
        pass
    variables.give(words, family, rows.array(), at)


class _Rows:
    """The rows of a conditional, kept as ranges of words until all are converted at once."""

    def __init__(self, words: Words, variables: Variables, names: list[str], at: int) -> None:
        self.words = words
        self.names = names
        self.at = at
        states = [variables.states[name] for name in names]
        self.size = len(states[0])
        self.parents = states[1:]
        self.index = [{state: k for k, state in enumerate(own)} for own in self.parents]
        # The number of the joint state of the parents -> the range of the words of its row.
        self.rows: dict[int, tuple[int, int]] = {}
        self.default: tuple[int, int] | None = None
        self.table: tuple[int, int] | None = None

    def take(self) -> bool:
        """Take one entry of the block; return False at its end."""
        words = self.words
        word = words.take("'table', 'default', a row or '}'")
        key = word.lower()
        if word == "(":
            self._row()
        elif key == "table" and not (self.table or self.rows or self.default):
            self.table = self._range(self.size * math.prod(map(len, self.parents)))
        elif key == "default" and not (self.table or self.default):
            self.default = self._range(self.size)
        elif key == "property":
            words.to(";")
        elif key == "}":
            return False
        else:
            raise words.error(
                f"{word[:40]!r}, expected a row, or one 'default', or a 'table' alone"
            )
        return True

    def _range(self, count: int) -> tuple[int, int]:
        """Take numbers up to a semicolon; return the range of the words."""
        first, last = self.words.to(";")
        if last - first != count:
            raise self.words.error(
                f"{last - first} numbers for variable {self.names[0]!r}, expected {count}", first
            )
        return first, last

    def _row(self) -> None:
        """Take a row: the states of the parents, and the probabilities of the child."""
        words = self.words
        first, last = words.to(")")
        states = words.words[first:last]
        if len(states) != len(self.parents) or self.table:
            raise words.error(
                f"a row with {len(states)} states of parents, expected {len(self.parents)}"
                + (" and no 'table' beside rows" if self.table else ""),
                first,
            )
        row = 0
        for k, word in enumerate(states):
            found = self.index[k].get(unquoted(word) or "")
            if found is None:
                raise words.error(
                    f"{word[:40]!r} is not a state of {self.names[k + 1]!r}, expected one of "
                    f"{listed(self.parents[k])}",
                    first + k,
                )
            row = row * len(self.parents[k]) + found
        if row in self.rows:
            raise words.error(f"the row ({listed(states)}) is given twice", first)
        self.rows[row] = self._range(self.size)

    def array(self) -> Array:
        """Return the conditional, with axes for the parents in order, then the child."""
        shape = tuple(map(len, self.parents))
        if self.table:
            values = self._numbers([self.table]).reshape(self.size, *shape)
            return np.moveaxis(values, 0, -1)
        count = math.prod(shape)
        if self.default is None and len(self.rows) < count:
            raise self.words.error(f"no row for {self._missing()} of the parents", self.at)
        # Memory for the entries, for their logarithms, and for checking them.
        needed = 32.0 * count * self.size
        explained = DATA_MEMORY_PER_TEXT_BYTE * len(self.words.text)
        if why := too_large(needed, explained, "give the parents fewer states"):
            raise self.words.error(f"the table of {self.names[0]!r}: {why}", self.at)
        values = np.empty((count, self.size))
        if self.default is not None:
            values[:] = self._numbers([self.default])
        if self.rows:
            numbers = self._numbers(list(self.rows.values()))
            values[list(self.rows)] = numbers.reshape(-1, self.size)
        return values.reshape(*shape, self.size)

    def _numbers(self, ranges: list[tuple[int, int]]) -> Array:
        """Return the words in these ranges as numbers."""
        places = [i for first, last in ranges for i in range(first, last)]
        words = self.words.words
        return self.words.numbers([words[i] for i in places], places)

    def _missing(self) -> str:
        """Return the first joint state of the parents that has no row."""
        states = (s for k, s in enumerate(product(*self.parents)) if k not in self.rows)
        return f"the states ({listed(next(states))})"


def write_bif(network: Network) -> str:
    """Return the .bif text of a network in which every variable has a conditional.

    Numbers have as many digits as it takes to read the same number again. A name with white space
    or one of {}()[];|, is written in quotation marks, which not every program reads.

    Raises
    ------
    PgmError
        For a network with tables or with variables without a conditional, and for names with a
        quotation mark or a line break, which the format cannot hold.

    >>> print(write_bif(Network(("a",), (("no", "x y"),), ((0, (), [0.1, 0.9]),))))
    network unnamed {
    }
    variable a {
      type discrete [ 2 ] { no, "x y" };
    }
    probability ( a ) {
      table 0.1, 0.9;
    }
    <BLANKLINE>
    """
    check_directed(network, ".bif")
    names = [_written(name, "variable") for name in network.names]
    states = [
        [_written(state, f"state of {n!r}") for state in own]
        for n, own in zip(network.names, network.states, strict=True)
    ]
    lines = ["network unnamed {", "}"]
    for name, own in zip(names, states, strict=True):
        kinds = f"  type discrete [ {len(own)} ] {{ {', '.join(own)} }};"
        lines += [f"variable {name} {{", kinds, "}"]
    for c in network.conditionals:
        given = f" | {', '.join(names[i] for i in c.parents)}" if c.parents else ""
        lines += [f"probability ( {names[c.child]}{given} ) {{"]
        values = network.table_of(c)
        rows = values.reshape(-1, values.shape[-1]).tolist()
        for at, row in zip(product(*(states[i] for i in c.parents)), rows, strict=True):
            head = f"({', '.join(at)})" if at else "table"
            lines.append(f"  {head} {', '.join(map(repr, row))};")
        lines.append("}")
    return "\n".join(lines) + "\n"


def _written(name: str, what: str) -> str:
    """Return a name as it is written; raise PgmError if the format cannot hold it."""
    check_quotable(name, what, ".bif")
    return name if UNQUOTED_BIF_NAME.fullmatch(name) and unquoted(name) else f'"{name}"'
