"""Variables that a file of a belief network declares: what the readers of these files share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.names import nearest
from pgmengine.graph.tabular import AXES, Conditional, Network, check_different


class Place(Protocol):
    """A part of a file that can say where something in it is."""

    def error(self, message: str, at: int | None = None) -> PgmError:
        """Return an error with the line of a word, which is given by its number in the part."""


class Variables:
    """The variables that a file has declared so far."""

    def __init__(self) -> None:
        self.states: dict[str, list[str]] = {}
        self.numbers: dict[str, int] = {}

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

    def family(self, place: Place, names: Sequence[str], at: int) -> tuple[int, tuple[int, ...]]:
        """Return the numbers of a child and its parents."""
        for name in names:
            if name not in self.numbers:
                raise place.error(
                    f"variable {name!r} is not declared{nearest(name, self.numbers)}", at
                )
        if len(set(names)) < len(names):
            raise place.error("a variable occurs twice, expected a child and its parents", at)
        if len(names) > AXES:
            raise place.error(f"{len(names)} variables in one table, expected at most {AXES}", at)
        child, *parents = (self.numbers[name] for name in names)
        return child, tuple(parents)

    def shape(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Return the numbers of states of these variables."""
        states = list(self.states.values())
        return tuple(len(states[i]) for i in numbers)

    def network(self, families: dict[int, Conditional]) -> Network:
        """Return the network of the declared variables, each of which must have a conditional."""
        without = [name for name, i in self.numbers.items() if i not in families]
        if without:
            raise PgmError(f"no probability of variable {listed(without)} is given")
        return Network(
            tuple(self.states), tuple(map(tuple, self.states.values())), tuple(families.values())
        )
