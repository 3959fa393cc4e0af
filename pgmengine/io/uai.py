"""Files of the UAI inference competitions: models (.uai) and evidence (.evid).

A model is a sequence of words: MARKOV or BAYES; the number of variables; the number of states of
each; the number of factors; for each factor the size of its scope and its variables; for each
factor the number of its entries and the entries, with the last variable of the scope fastest. Text
from # to the end of a line is a comment. Variables are named "0", "1", ... and so are their states.

In a BAYES file the last variable of a scope is the child of the others, and every variable is the
child of one factor. Rows of conditionals must sum to 1, up to rounding to six digits or a
tolerance; the error for another row says where it is. Conditionals that are reduced by evidence are
potentials, and their file begins with MARKOV.

aGrUM (pyAgrum) and pgmpy write the entries in other orders, in which their files are read
(uai_orders.py).

Evidence is "count variable state ...", or a number of samples and then this for each of them. A
text that fits both is read as the former.

All numbers are converted at once, and loops are only over factors.
"""

from __future__ import annotations

import math
import re
from itertools import islice

import numpy as np

from pgmengine.base.checks import MAX_AXES
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.base.work.memory import too_large
from pgmengine.declare.networks.tabular import Conditional, Network, Table, check_acyclic
from pgmengine.io.file_variables import ADVICE_FOR_ROUNDED_ROWS
from pgmengine.io.opened import DATA_MEMORY_PER_TEXT_BYTE
from pgmengine.io.uai_orders import REMARK, Order, order_of
from pgmengine.io.words import as_numbers, fault
from pgmengine.model.tables import as_printed, rows_are_one, wrong_row

PREAMBLES = ("MARKOV", "BAYES")

# The largest number of states of all variables in no factor, for each number in the file.
MAX_FREE_STATES_PER_NUMBER = 64

# The largest integer up to which all integers are exact in double precision.
MAX_EXACT_INTEGER = 2**53


class Numbers:
    """The numbers of a text, with the places of the words for messages."""

    def __init__(self, text: str, words: list[str], skip: int) -> None:
        self.text = text
        self.words = words
        self.skip = skip
        self.values = as_numbers(words[skip:], "_" in text)
        # Lists are faster than arrays if few numbers are taken at a time.
        self.listed: list[float] = self.values.tolist()
        self.good = bool((self.values >= 0).all() and (self.values < np.inf).all())
        self.i = 0

    @property
    def left(self) -> int:
        """The number of numbers that have not been taken."""
        return len(self.listed) - self.i

    def error(self, message: str, at: int | None = None) -> PgmError:
        """Return an error with the line and the number of a word, by default the last one."""
        k = self.skip + (self.i - 1 if at is None else at)
        match = next(islice(re.finditer(r"\S+", self.text), k, None), None)
        if match is None:
            return PgmError(f"after word {len(self.words)}, the last one: {message}")
        line = self.text.count("\n", 0, match.start()) + 1
        return PgmError(f"line {line}, word {k + 1} ({match[0][:40]!r}): {message}")

    def whole(self, what: str, least: int = 0, below: float = math.inf) -> int:
        """Take an integer in [least, below)."""
        if not self.left:
            raise self.error(f"the file ends, expected {what}", len(self.values))
        self.i += 1
        value = self.listed[self.i - 1]
        if not (least <= value < below and value < MAX_EXACT_INTEGER and value.is_integer()):
            upper = (
                f"from {least} to {int(below) - 1}" if below < math.inf else f"of at least {least}"
            )
            raise self.error(f"expected {what}, an integer {upper}")
        return int(value)

    def need(self, count: int, what: str) -> None:
        """Raise PgmError unless this many numbers are left."""
        if count > self.left:
            raise self.error(f"{count} {what} are declared, but only {self.left} numbers follow")

    def wholes(self, count: int, what: str, least: int, below: float = math.inf) -> list[int]:
        """Take many integers in [least, below)."""
        self.need(count, what)
        part = self.listed[self.i : self.i + count]
        if all(least <= x < below and x < MAX_EXACT_INTEGER and x.is_integer() for x in part):
            self.i += count
            return list(map(int, part))
        # One of the numbers is wrong: taking them one by one gives an error with its place.
        return [self.whole(what, least, below) for _ in range(count)]

    def finish(self) -> None:
        """Raise PgmError unless all numbers are taken."""
        if self.left:
            raise self.error("expected the end of the file", self.i)


def read_uai(text: str, tolerance: float = 0.0) -> Network:
    """Return the network of a .uai text; `read` describes the tolerance.

    Raises
    ------
    PgmError
        For text in another format, for conditionals that do not sum to 1, and for files of other
        programs whose order of entries is not known. The message begins with the line and the
        number of the word.

    >>> n = read_uai("MARKOV 2  2 3  1  2 0 1  6  1 2 3 4 5 6")
    >>> n.tables[0].values
    array([[1., 2., 3.],
           [4., 5., 6.]])
    """
    whole, text = text, REMARK.sub("", text) if "#" in text else text
    words = text.split()
    kind = words[0].upper() if words else ""
    if kind not in PREAMBLES:
        raise PgmError(f"word 1 ({kind[:40]!r}): expected MARKOV or BAYES")
    numbers = Numbers(text, words, 1)
    count = numbers.whole("the number of variables", 1)
    sizes = numbers.wholes(count, "numbers of states", 1)
    scopes, places = _scopes(numbers, sizes)
    factors, starts = _factors(numbers, sizes, scopes)
    numbers.finish()
    _check_states(numbers, sizes, scopes)
    named = {k: tuple(map(str, range(k))) for k in set(sizes)}
    names, states = tuple(map(str, range(count))), tuple(named[k] for k in sizes)
    if kind == "BAYES":
        _check_children(numbers, names, scopes, places)
    try:
        order = order_of(whole, kind == "BAYES", factors, tolerance)
    except PgmError as error:
        # The first scope in which orders differ.
        at = next((k for k, scope in enumerate(scopes) if len(scope) > 1), 0)
        raise numbers.error(str(error), places[at]) from None
    if kind == "MARKOV":
        return Network(names, states, (), tuple(map(Table, scopes, factors)))
    conditionals = []
    for k, (scope, values) in enumerate(zip(scopes, factors, strict=True)):
        rows = order.rows(values)
        if order is not Order.PGMPY and not rows_are_one(rows, tolerance):
            raise _wrong_row(
                numbers, f"factor {k}, variable {scope[-1]}", values, starts[k], tolerance
            )
        rows = as_printed(rows, tolerance) if tolerance else rows
        conditionals.append(Conditional(scope[-1], scope[:-1], rows))
    return Network(names, states, tuple(conditionals))


def _wrong_row(
    numbers: Numbers, what: str, values: Array, start: int, tolerance: float
) -> PgmError:
    """Return the error of a row, with the child fastest, that does not sum to 1."""
    width = values.shape[-1]
    row, total = wrong_row(values.reshape(-1, width), tolerance) or ((0,), 1.0)
    return numbers.error(
        f"{what}: row {row[0]}, which begins here, sums to {total:.9g}, expected 1; "
        f"{ADVICE_FOR_ROUNDED_ROWS}, or "
        "write MARKOV in place of BAYES for a product of potentials",
        start + row[0] * width,
    )


def _scopes(numbers: Numbers, sizes: list[int]) -> tuple[list[tuple[int, ...]], list[int]]:
    """Return the scopes of all factors, and the places of their sizes."""
    count = numbers.whole("the number of factors")
    numbers.need(count, "factors")
    scopes, places = [], []
    for k in range(count):
        places.append(numbers.i)
        size = numbers.whole(f"the number of variables of factor {k}", 0, MAX_AXES + 1)
        scope = tuple(numbers.wholes(size, f"variables of factor {k}", 0, len(sizes)))
        if len(set(scope)) < size:
            raise numbers.error(f"a variable occurs twice in the scope of factor {k}")
        scopes.append(scope)
    return scopes, places


def _factors(
    numbers: Numbers, sizes: list[int], scopes: list[tuple[int, ...]]
) -> tuple[list[Array], list[int]]:
    """Return the arrays of all factors, and the places of their first entries."""
    factors, starts = [], []
    for k, scope in enumerate(scopes):
        shape = tuple(sizes[i] for i in scope)
        count = numbers.whole(f"the number of entries of factor {k}", 1)
        if count != math.prod(shape):
            raise numbers.error(
                f"factor {k} has {count} entries, expected {math.prod(shape)}, the number of "
                "joint states of its scope"
            )
        numbers.need(count, f"entries of factor {k}")
        values = numbers.values[numbers.i : numbers.i + count]
        if not (numbers.good and values.all()):
            first = numbers.skip + numbers.i
            wrong = fault(numbers.words[first : first + count], values)
            if wrong is not None:
                at, why = wrong
                raise numbers.error(f"entry {at} of factor {k}, {why}", numbers.i + at)
        starts.append(numbers.i)
        numbers.i += count
        factors.append(values.reshape(shape))
    return factors, starts


def _check_states(numbers: Numbers, sizes: list[int], scopes: list[tuple[int, ...]]) -> None:
    """Raise PgmError for variables in no factor with more states than the file has numbers.

    A variable in a scope has at most as many states as the factor has entries. A variable in no
    scope could have any number of states, and the model would have a bias for each of them.
    """
    total, most = 0, len(numbers.values)
    for i in sorted(set(range(len(sizes))).difference(*scopes)):
        total += sizes[i]
        if sizes[i] > most or total > MAX_FREE_STATES_PER_NUMBER * most:
            raise numbers.error(
                f"variable {i} has {sizes[i]} states and is in no factor, expected at most {most}, "
                f"the count of numbers in the file, and {MAX_FREE_STATES_PER_NUMBER * most} in all "
                "such variables",
                1 + i,
            )


def _check_children(
    numbers: Numbers, names: tuple[str, ...], scopes: list[tuple[int, ...]], places: list[int]
) -> None:
    """Raise PgmError unless every variable is the child of one factor, without a cycle."""
    owner: dict[int, int] = {}
    for k, scope in enumerate(scopes):
        if not scope:
            raise numbers.error(f"factor {k} of a BAYES file has no child", places[k])
        if scope[-1] in owner:
            raise numbers.error(
                f"variable {scope[-1]} is the child (the last variable of the scope) of factors "
                f"{owner[scope[-1]]} and {k}; write MARKOV in place of BAYES for a product of "
                "potentials",
                places[k],
            )
        owner[scope[-1]] = k
    if len(owner) < len(names):
        without = next(i for i in range(len(names)) if i not in owner)
        raise PgmError(
            f"variable {without} is the child (the last variable of the scope) of no factor; "
            "write MARKOV in place of BAYES for a product of potentials"
        )
    check_acyclic(names, ((scope[-1], scope[:-1]) for scope in scopes))


def write_uai(network: Network) -> str:
    """Return the .uai text of a network: BAYES if all factors are conditionals, else MARKOV.

    Numbers have as many digits as it takes to read the same number again, 17 at most. The format
    has no names: variables and states are numbered in their order.

    >>> n = Network(("a",), (("no", "yes"),), (), (((0,), [0.1, 0.9]),))
    >>> print(write_uai(n))
    MARKOV
    1
    2
    1
    1 0
    <BLANKLINE>
    2
     0.1 0.9
    <BLANKLINE>
    """
    factors = [((*c.parents, c.child), network.table_of(c)) for c in network.conditionals]
    factors += [(t.scope, t.values) for t in network.tables]
    lines = ["BAYES" if network.directed else "MARKOV", str(len(network.names))]
    lines += [" ".join(str(len(own)) for own in network.states), str(len(factors))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope, _ in factors]
    for _, values in factors:
        lines += ["", str(values.size)]
        lines += [" " + " ".join(map(repr, row)) for row in _rows(values)]
    return "\n".join(lines) + "\n"


def _rows(values: Array) -> list[list[float]]:
    """Return the entries in lines, one for each state of all variables but the last."""
    rows: list[list[float]] = values.reshape(-1, values.shape[-1] if values.ndim else 1).tolist()
    return rows


def read_uai_evidence(text: str, sizes: list[int] | None = None) -> dict[str, int | Array]:
    """Return the evidence of a text as numbers of states by the names of variables.

    Parameters
    ----------
    text : evidence in either of the two conventions.
    sizes : the number of states of each variable of the model, if known; evidence for other
        variables or states is then refused.

    Returns
    -------
    A state for each observed variable; an array of states, one for each sample, if the text has
    several samples. NaN stands where a sample leaves a variable free that another one observes.

    Raises
    ------
    PgmError
        For text in another format, and variables that one sample has twice. The message begins with
        the line and the number of the word.

    >>> read_uai_evidence("2  0 1  3 0")
    {'0': 1, '3': 0}
    >>> read_uai_evidence("2   1 0 1   2 0 0 3 1")
    {'0': array([1, 0]), '3': array([nan,  1.])}
    """
    numbers = Numbers(text, text.split(), 0)
    if not len(numbers.values):
        raise PgmError("is empty, expected the number of observed variables; 0 for none")
    if len(numbers.values) == 1 + 2 * numbers.values[0]:
        samples = [_sample(numbers, sizes)]
    else:
        count = numbers.whole("the number of observed variables, or the number of samples", 0)
        numbers.need(count, "samples, or pairs of a variable and its state,")
        samples = [_sample(numbers, sizes) for _ in range(count)]
        numbers.finish()
    if len(samples) > 1 and not any(samples):
        raise numbers.error(
            f"none of {len(samples)} samples observes a variable, which evidence cannot say for "
            "several rows; expected a count and pairs of a variable and its state, or 0 alone"
        )
    if len(samples) < 2:
        return {str(i): k for sample in samples for i, k in sample.items()}
    observed = sorted(set().union(*samples))
    # Memory for the arrays, and for the lists from which they are made.
    needed = 24.0 * len(observed) * len(samples)
    if why := too_large(
        needed, DATA_MEMORY_PER_TEXT_BYTE * len(text), "give fewer samples in one file"
    ):
        raise numbers.error(
            f"{len(samples)} samples in which {len(observed)} variables are observed: {why}", 0
        )
    return {str(i): np.array([s.get(i, math.nan) for s in samples]) for i in observed}


def _sample(numbers: Numbers, sizes: list[int] | None) -> dict[int, int]:
    """Take one sample of evidence: a count, and pairs of a variable and its state."""
    count = numbers.whole("the number of observed variables")
    numbers.need(2 * count, "variables and states")
    sample: dict[int, int] = {}
    for _ in range(count):
        known = math.inf if sizes is None else len(sizes)
        variable = numbers.whole("a variable", 0, known)
        if variable in sample:
            raise numbers.error(f"variable {variable} is observed twice in one sample")
        below = math.inf if sizes is None else sizes[variable]
        sample[variable] = numbers.whole(f"a state of variable {variable}", 0, below)
    return sample
