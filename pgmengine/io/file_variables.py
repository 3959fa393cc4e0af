"""Variables that a file of a belief network declares, for all readers and writers of files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pgmengine.base.checks import MAX_AXES, check_text
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.names import nearest
from pgmengine.base.types import Array
from pgmengine.declare.networks.tabular import Conditional, Network, check_different
from pgmengine.model.tables import as_printed, wrong_row

# The advice for rows that do not sum to 1.
ADVICE_FOR_ROUNDED_ROWS = "give read a tolerance if the entries are rounded to few digits"


class Place(Protocol):
    """A part of a file that can make errors with a line number."""

    def error(self, message: str, at: int | None = None) -> PgmError:
        """Return an error with the line of a word, which is given by its number in the part."""


class Variables:
    """The variables that a file has declared so far, and their conditionals.

    Parameters
    ----------
    tolerance : the largest difference from 1 of the sum of a row that counts as rounding; rounding
        to six digits is always accepted.
    """

    def __init__(self, tolerance: float = 0.0) -> None:
        self.tolerance = tolerance
        self.states: dict[str, list[str]] = {}
        self.numbers: dict[str, int] = {}
        self.families: dict[int, Conditional] = {}

    def add(self, place: Place, name: str, states: list[str], at: int) -> None:
        """Add a variable; `at` is the place of its declaration."""
        if name in self.states:
            raise place.error(f"variable {name!r} is declared twice", at)
        try:
            check_different(states, f"state of variable {name!r}")
        except PgmError as error:
            raise place.error(str(error), at) from None
        if not states:
            raise place.error(f"variable {name!r} has no states, expected at least 1", at)
        self.numbers[name] = len(self.states)
        self.states[name] = states

    def family(
        self, place: Place, names: Sequence[str], at: int, most: float | None = None
    ) -> tuple[int, tuple[int, ...]]:
        """Return the numbers of a child and of its parents; `most` limits how many they are."""
        most = MAX_AXES if most is None else most
        for name in names:
            if name not in self.numbers:
                raise place.error(
                    f"variable {name!r} is not declared{nearest(name, self.numbers)}", at
                )
        if len(set(names)) < len(names):
            raise place.error("a variable occurs twice, expected a child and its parents", at)
        if len(names) > most:
            raise place.error(f"{len(names)} variables in one table, expected at most {most}", at)
        child, *parents = (self.numbers[name] for name in names)
        return child, tuple(parents)

    def shape(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Return the numbers of states of these variables."""
        states = list(self.states.values())
        return tuple(len(states[i]) for i in numbers)

    def give(
        self, place: Place, family: tuple[int, tuple[int, ...]], values: Array, at: int
    ) -> None:
        """Add the conditional of a child and its parents; rows that do not sum to 1 are refused."""
        child, parents = family
        if (wrong := wrong_row(values, self.tolerance)) is not None:
            own = list(self.states.items())
            row, total = wrong
            states = [f"{own[i][0]} = {own[i][1][k]}" for i, k in zip(parents, row, strict=True)]
            given = f" given states {', '.join(states)}" if states else ""
            raise place.error(
                f"the probabilities of {own[child][0]!r}{given} sum to {total:.9g}, expected 1; "
                f"{ADVICE_FOR_ROUNDED_ROWS}",
                at,
            )
        if self.tolerance:
            values = as_printed(values, self.tolerance)
        self.families[child] = Conditional(child, parents, values)

    def network(self) -> Network:
        """Return the network of the declared variables, each of which must have a conditional."""
        without = [name for name, i in self.numbers.items() if i not in self.families]
        if without:
            raise PgmError(f"no probability of variable {listed(without)} is given")
        return Network(
            tuple(self.states),
            tuple(map(tuple, self.states.values())),
            tuple(self.families.values()),
        )


def check_directed(network: Network, suffix: str) -> None:
    """Raise PgmError unless every variable has a conditional, and there are no other tables."""
    if network.directed:
        return
    children = {c.child for c in network.conditionals}
    without = [name for i, name in enumerate(network.names) if i not in children]
    reason = (
        network.factor_name(network.tables[0].scope) + " is a potential"
        if network.tables
        else f"variable {listed(without)} has no conditional"
    )
    raise PgmError(f"{reason}, and {suffix} files hold conditionals only; write a .uai file")


def check_quotable(name: str, what: str, suffix: str) -> None:
    """Raise PgmError for a name that cannot be written in quotation marks."""
    # The text is stripped of a mark of byte order, and lines are split at line breaks only.
    if '"' in name or "\n" in name or "\r" in name or "\0" in name or name.startswith("\ufeff"):
        raise PgmError(
            f"{what}: the name {name!r} cannot be written to a {suffix} file, which allows no "
            "quotation mark, line break or zero byte in names; rename it"
        )
    check_text(name, f"{what}: the name")
