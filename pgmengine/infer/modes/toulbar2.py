"""Toulbar2: the mode with a proof, or with a gap, by the solver of the same name.

The solver minimises a sum of cost functions with integer costs, by branch and bound over the states
of the variables with bounds from soft local consistency (Cooper et al. 2010). The cost of an entry
is the largest log entry of its factor less its own, with so many decimal digits that all costs
together fit into 2^50. Costs are cut to these digits, so that a proved optimum is one up to a
rounding of 1e-15 of their sum.

Reference: all states, one by one (test_modes_of_any_graph.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from pgmengine.base.checks import check_limit, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.extras import MissingExtra, needed_by
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.pace import pace
from pgmengine.evidence.target import Target
from pgmengine.infer.modes.mode_factors import (
    Found,
    LogFactors,
    ModeFactors,
    better,
    mode_factors,
    searched,
)
from pgmengine.infer.modes.mode_search import ModeSearch
from pgmengine.infer.question.prepared import AnyPrepared, Method
from pgmengine.infer.results.result import Plan, Result

# The solver keeps its settings, such as the digits of costs, for the whole process.
_one_at_a_time = Lock()

# All costs of a problem together are integers below this number, which the solver can add.
MOST_COST = 2.0**50
# The longest search of a row, in seconds, that the solver can be asked for.
LONGEST = 1e9
# Factors over more variables are given as lists of the entries that are not the most frequent one.
MAX_WHOLE_ARITY = 3


@dataclass(frozen=True)
class Toulbar2(Method["list[ModeFactors]"]):
    """The most probable state by branch and bound, through the optional package pytoulbar2.

    Use it for the mode of graphs that are too wide for elimination: constraints, assignments,
    lattices with strong fields, frustrated systems of some hundred variables. It gives the best
    state that it has found when the time is over, with `mode_gap`; the kind is "exact" where it has
    proved that no state is better, and "lower bound" elsewhere. Ctrl-C ends the search in the same
    way.

    Parameters
    ----------
    seconds : time of the processor for all rows together; each row has at least a second.

    References
    ----------
    Cooper, de Givry, Sanchez, Schiex, Zytnicki and Werner (2010), Soft arc consistency revisited.

    >>> import pgmengine as pgm
    >>> pgm.Toulbar2(seconds=5).seconds
    5
    """

    gives = frozenset({"mode"})
    source = "toulbar2 gives the mode,"
    guarantee = "lower bound"

    seconds: float = 20.0

    def __post_init__(self) -> None:
        check_limit(self, "seconds")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[list[ModeFactors]]:
        """Find the factors of every evidence pattern."""
        try:
            with needed_by("Toulbar2"):
                import pytoulbar2  # noqa: F401
            patterns = mode_factors(target)
        except MissingExtra as error:
            return Plan(refusal=str(error).partition(" needs ")[2])
        except PgmError as error:
            return Plan(refusal=str(error))
        return Plan(
            why=f"branch and bound for up to {max(self.seconds, target.rows):g} s, then annealing",
            work=sum(one.entries * len(one.rows) for one in patterns),
            bytes=max(one.bytes for one in patterns),
            seconds=max(self.seconds, target.rows) / pace(),
            basis=patterns,
        )

    def faster(self, target: Target, want: tuple[str, ...], seconds: float) -> Toulbar2 | None:
        """Return the search that ends in time."""
        here = seconds * pace()
        return replace(self, seconds=here) if target.rows <= here < self.seconds else None

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Search row by row; a row that is solved early leaves its time to the others."""
        end, left = time.process_time() + self.seconds, question.target.rows
        generator = seeded(rng)

        def search(factors: LogFactors) -> Found:
            nonlocal left
            limit = (end - time.process_time()) / left
            left -= 1
            with _one_at_a_time:
                found = solved(factors, max(1, math.ceil(min(limit, LONGEST))))
            if not found.gap:
                return found
            # Annealing is often ahead of a search tree that is not done.
            return better(factors, found, ModeSearch().search(factors, generator))

        return searched(question, search)


def solved(factors: LogFactors, seconds: int) -> Found:
    """Return the best state that toulbar2 finds in some seconds, and its gap."""
    with needed_by("Toulbar2"):
        import pytoulbar2

    highest = np.array([part.max() for part in _entries(factors)])
    if np.isneginf(highest).any():
        # A factor without a possible entry leaves no state.
        return Found(np.zeros(len(factors.cards), dtype=np.int64), 0.0)
    ranges = [_range(top - part) for top, part in zip(highest, _entries(factors), strict=True)]
    total = sum(ranges) + 1.0
    digits = math.floor(math.log10(MOST_COST / total))
    if digits < 0:
        raise PgmError(f"Toulbar2: the log weights of all factors together span {total:.3g}")
    # Costs from `total` on are those of impossible states.
    network = pytoulbar2.CFN(ubinit=total, resolution=digits)
    for unit, count in enumerate(factors.cards.tolist()):
        network.AddVariable(f"x{unit}", range(count))
    start, scope = factors.scopes.start, factors.scopes.scope
    for number, part in enumerate(_entries(factors)):
        if start[number] == start[number + 1]:
            continue
        own = scope[start[number] : start[number + 1]].tolist()
        _add(network, own, np.minimum(highest[number] - part, total), factors.cards[own])
    answer = network.Solve(timeLimit=seconds)
    best, bound = network.GetUB(), network.GetDDualBound()
    # A search that ends by itself has proved its answer, also where its bound was not raised.
    proved = not network.Option.limited or best - bound <= 10.0**-digits
    if answer is None:
        nothing = np.zeros(len(factors.cards), dtype=np.int64)
        return Found(nothing, 0.0 if proved else np.inf)
    gap = 0.0 if proved else best - bound + len(highest) * 10.0**-digits
    return Found(np.array(answer[0], dtype=np.int64), gap)


def _entries(factors: LogFactors) -> Iterator[Array]:
    """Yield the log entries of each factor."""
    ends = factors.sizes.cumsum()
    for first, last in zip(ends - factors.sizes, ends, strict=True):
        yield factors.logs[first:last]


def _range(costs: Array) -> float:
    """Return the largest finite cost."""
    return float(costs[np.isfinite(costs)].max())


def _add(network: Any, scope: list[int], costs: Array, cards: Iterable[int]) -> None:
    """Add a cost function with entries `costs`, the last variable varying fastest."""
    if len(scope) <= MAX_WHOLE_ARITY:
        network.AddFunction(scope, costs.tolist())
        return
    values, inverse, counts = np.unique(costs, return_inverse=True, return_counts=True)
    usual = int(counts.argmax())
    others = np.flatnonzero(inverse != usual)
    if not len(others):
        # Costs are at least 0 at the best entry, so that equal ones are 0.
        return
    tuples = np.stack(np.unravel_index(others, tuple(cards)), axis=1)
    network.AddCompactFunction(scope, float(values[usual]), tuples.tolist(), costs[others].tolist())
