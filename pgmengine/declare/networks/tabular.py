"""Networks of tables: the intermediate form between files or other libraries and a GraphBuilder.

A Network has named variables with named states, conditionals p(child | parents), and tables over
scopes of variables. Variables are numbered from 0, in the order of the list of names. The axes of a
conditional are its parents in order, then the child; the axes of a table are its scope in order.
Readers of files and converters create networks, and `declare` passes a network to the methods
`variable`, `conditional` and `table` of a builder. A network is checked when it is created, so that
errors do not depend on its source.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import MAX_AXES
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array
from pgmengine.declare.networks.arrays_by_name import member_of, shapes_of
from pgmengine.model.containers import as_floats
from pgmengine.model.forms.table_forms import Formed
from pgmengine.model.names.unit_names import Member
from pgmengine.model.tables import as_printed

# The most entries of the table of a gate that is written to a file.
MAX_FILE_ENTRIES = 2**24


class Conditional(NamedTuple):
    """The table p(child | parents), with an axis for each parent in order, then the child.

    Its values may be a gate, in place of an array that would be too large.
    """

    child: int
    parents: tuple[int, ...]
    values: Array | Formed


class Table(NamedTuple):
    """A potential with entries >= 0, and an axis for each variable of the scope in order."""

    scope: tuple[int, ...]
    values: Array


class Declares(Protocol):
    """The methods of a builder that declare variables and tables."""

    def variable(self, name: str, states: Sequence[str], shape: Sequence[int] | None) -> object:
        """Add a variable, or an array of them."""

    def conditional(
        self, child: Member, parents: Sequence[Member], values: ArrayLike | Formed
    ) -> object:
        """Add the table p(child | parents)."""

    def table(self, scope: Sequence[Member], values: ArrayLike) -> object:
        """Add a potential."""


@dataclass(frozen=True, eq=False)
class Network:
    """Named variables with conditionals and tables.

    Parameters
    ----------
    names : the names of the variables.
    states : the names of the states of each variable.
    conditionals : triples (child, parents, values); child and parents are numbers of variables, and
        the axes of values are the parents in order, then the child.
    tables : pairs (scope, values). A scope without variables is a constant factor.

    Raises
    ------
    PgmError
        For repeated names, variables that are unknown or repeated in a scope, arrays of another
        shape than the scope, entries that are negative, infinite or not a number, two conditionals
        of one variable, and directed cycles.

    >>> table = ((0, 1), [[1, 2], [3, 4]])
    >>> n = Network(("a", "b"), (("no", "yes"),) * 2, ((0, (), [0.5, 0.5]),), (table,))
    >>> n.tables[0].values.shape
    (2, 2)
    """

    names: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    conditionals: tuple[Conditional, ...] = ()
    tables: tuple[Table, ...] = ()

    def __post_init__(self) -> None:
        check_names(self.names, self.states)
        sizes = [len(names) for names in self.states]
        conditionals = tuple(self._checked(sizes, *c) for c in self.conditionals)
        tables = tuple(
            Table(tuple(scope), self._array(sizes, scope, values, ""))
            for scope, values in self.tables
        )
        object.__setattr__(self, "conditionals", conditionals)
        object.__setattr__(self, "tables", tables)
        self._check_entries()
        children = [c.child for c in conditionals]
        if len(set(children)) < len(children):
            twice = next(x for x in children if children.count(x) > 1)
            raise PgmError(
                f"variable {self.names[twice]!r} has {children.count(twice)} conditionals, "
                "expected at most 1"
            )
        check_acyclic(self.names, ((c.child, c.parents) for c in conditionals))

    @property
    def directed(self) -> bool:
        """Whether every variable has a conditional, and there are no potentials."""
        return not self.tables and len(self.conditionals) == len(self.names)

    def factor_name(self, scope: Iterable[int]) -> str:
        """Return the name of a table in messages."""
        names = [self.names[i] if 0 <= i < len(self.names) else str(i) for i in scope]
        return f"the table of ({listed(names)})"

    def table_of(self, c: Conditional) -> Array:
        """Return the array of a conditional, as files hold it; that of a gate is computed.

        Raises
        ------
        PgmError for a gate whose table is too large.
        """
        if not isinstance(c.values, Formed):
            return c.values
        what = f"the conditional of {self.names[c.child]!r}"
        if (entries := math.prod(c.values.shape)) > MAX_FILE_ENTRIES:
            raise PgmError(
                f"{what} has {entries:.3g} joint states, all of which a file would list; "
                "pgm.save keeps the noisy gate as it is"
            )
        return c.values.whole()

    def declare(self, builder: Declares) -> None:
        """Declare the variables, conditionals and tables to a builder.

        A constant factor becomes a table of the first variable with equal entries. Entries of
        conditionals may be rounded to six decimals: the sum of a row may differ from 1 by 1e-6
        plus 0.5e-6 for each state, and the row is normalised. Variables such as "z[0]", "z[1]", ...
        become an array (arrays_by_name.py).
        """
        shapes, known = shapes_of(self.names, self.states), set[str]()
        for name, states in zip(self.names, self.states, strict=True):
            array = name.partition("[")[0]
            shape = shapes.get(array)
            name = name if shape is None else array
            if name not in known:
                builder.variable(name, states=states, shape=shape)
                known.add(name)
        members = [member_of(name, shapes) for name in self.names]
        for child, parents, values in self.conditionals:
            before = tuple(members[i] for i in parents)
            rounded = values if isinstance(values, Formed) else as_printed(values)
            builder.conditional(members[child], before, rounded)
        for scope, values in self.tables:
            if not scope:
                scope, values = (0,), np.full(len(self.states[0]), float(values))
            builder.table(tuple(members[i] for i in scope), values)

    def _checked(
        self, sizes: list[int], child: int, parents: Iterable[int], values: Array | Formed
    ) -> Conditional:
        """Return a conditional with a tuple of parents and a checked array."""
        parents = tuple(parents)
        name = self.names[child] if 0 <= child < len(self.names) else str(child)
        what = f"the conditional of {name!r}"
        scope = (*parents, child)
        if isinstance(values, Formed):
            check_scope(sizes, scope, what, most=math.inf)
            if values.shape != (shape := tuple(sizes[i] for i in scope)):
                raise PgmError(
                    f"{what} has a gate of shape {values.shape}, expected {shape}, the numbers of "
                    "states"
                )
            return Conditional(child, parents, values)
        return Conditional(child, parents, self._array(sizes, scope, values, what))

    def _array(self, sizes: list[int], scope: Sequence[int], values: Array, name: str) -> Array:
        """Return the values of a scope as an array in double precision of the right shape."""
        check_scope(sizes, scope, name or "a table")
        array = as_floats(values, name or self.factor_name(scope))
        shape = tuple(sizes[i] for i in scope)
        if array.shape != shape:
            what = name or self.factor_name(scope)
            raise PgmError(
                f"{what} has an array of shape {array.shape}, expected {shape}, "
                "the numbers of states"
            )
        return array

    def _check_entries(self) -> None:
        """Raise PgmError for entries that are negative, infinite or not a number."""
        arrayed = [(c, c.values) for c in self.conditionals if not isinstance(c.values, Formed)]
        arrays = [values.ravel() for _, values in arrayed]
        arrays += [t.values.ravel() for t in self.tables]
        # One pass over all entries is faster than a pass for each of many small tables.
        if arrays and _good(np.concatenate(arrays)):
            return
        for c, values in arrayed:
            check_entries(values, f"the conditional of {self.names[c.child]!r}")
        for t in self.tables:
            check_entries(t.values, self.factor_name(t.scope))


def check_names(names: Sequence[str], states: Sequence[Sequence[str]]) -> None:
    """Raise PgmError unless names are different text, and every variable has different states."""
    if len(names) != len(states):
        raise PgmError(f"{len(names)} names of variables, but states of {len(states)} variables")
    if not names:
        raise PgmError("there are no variables, expected at least 1")
    check_different(names, "name of a variable")
    for name, own in zip(names, states, strict=True):
        if not own:
            raise PgmError(f"variable {name!r} has no states, expected at least 1")
        check_different(own, f"state of variable {name!r}")


def check_different(names: Sequence[str], what: str) -> None:
    """Raise PgmError for a name that is empty, no text, or repeated."""
    for name in names:
        if not isinstance(name, str) or not name:
            raise PgmError(f"a {what} must be text of at least one character, not {name!r}")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise PgmError(f"{twice!r} is a {what} twice, expected different names")


def check_scope(
    sizes: Sequence[int], scope: Sequence[int], what: str, most: float = MAX_AXES
) -> None:
    """Raise PgmError for unknown or repeated variables of a scope, or too many of them."""
    for i in scope:
        if not 0 <= i < len(sizes):
            raise PgmError(f"{what}: variable number {i}, expected 0 to {len(sizes) - 1}")
    if len(set(scope)) < len(scope):
        twice = next(i for i in scope if scope.count(i) > 1)
        raise PgmError(f"{what}: variable number {twice} occurs twice in the scope")
    if len(scope) > most:
        raise PgmError(f"{what}: {len(scope)} variables in a scope, expected at most {most}")


def check_entries(values: Array, what: str) -> None:
    """Raise PgmError for entries that are negative, infinite or not a number."""
    if not _good(values):
        bad = ~((values >= 0) & (values < np.inf))
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise PgmError(
            f"{what}: entry {list(place)} is {float(values[place])!r}, "
            "expected a finite number of at least 0"
        )


def _good(values: Array) -> bool:
    """Whether all entries are finite and at least 0."""
    # NaN makes both comparisons false.
    return bool(values.min(initial=0.0) >= 0.0 and values.max(initial=0.0) < np.inf)


def check_acyclic(names: Sequence[str], families: Iterable[tuple[int, Sequence[int]]]) -> None:
    """Raise PgmError for a directed cycle of (child, parents), with the names on it."""
    try:
        TopologicalSorter({child: parents for child, parents in families}).prepare()
    except CycleError as error:
        cycle = [names[i] for i in error.args[1]]
        raise PgmError(
            f"the conditionals have a directed cycle: {listed(cycle, ' -> ')}; remove an arc of it"
        ) from None
