"""ModelCounting: exact log Z of models with many zeros, as a weighted count of Boolean formulas.

A model counter (Ganak, through the package pyganak) sums the weights of all assignments that
satisfy a set of clauses, and shares work between parts that zeros separate, where a junction tree
would hold large tables of mostly zeros. The encoding of a row (Chavira and Darwiche 2008):

    a variable of two states is a Boolean variable, one of more states has one for each state, of
    which exactly one is true
    a zero of a factor is a clause that forbids its joint state
    an entry w of a factor, relative to the largest one, is a variable that is true at its joint
    state alone, with the weight w; the two entries of a factor of one Boolean variable are the
    weights of that variable

The count is a double. Where it would overflow or underflow, all states get a common weight, and
the count is made again. The counter runs in a process of its own, which ends with the time limit
and with Ctrl-C.

Reference: enumeration (test_model_counting.py).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from pgmengine.base.checks import check_limit
from pgmengine.base.errors import PgmError
from pgmengine.base.extras import MissingExtra, needed_by
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.pace import pace
from pgmengine.base.work.progress import track
from pgmengine.evidence.target import Target, evidence_patterns, one_for_all
from pgmengine.infer.counting import counting_process
from pgmengine.infer.exact.gathered import exact_answers
from pgmengine.infer.exact.junction_tree.conditioned_model import Conditioned, Form, condition
from pgmengine.infer.question.prepared import AnyPrepared, Method
from pgmengine.infer.results.result import Plan, Result

# The most entries of the factors of a row: each may become a clause.
MAX_ENTRIES = 2.0**22
# The longest count, in seconds, that a process can be given.
LONGEST = 1e6
# By how much the log count of the second try is moved, further ones by twice as much each.
LOG_STEP = 600.0
# How often a count is made with another weight of states.
MOST_COUNTS = 12
# Rows of one evidence pattern, with their factors.
Counted = tuple[Array, Conditioned]


@dataclass(frozen=True)
class ModelCounting(Method["list[Counted]"]):
    """Exact log Z and log p by weighted model counting, through the optional package pyganak.

    Use it for models whose tables are mostly zeros (constraints, circuits, planning, genetics),
    where the junction tree of `Exact` is too wide.

    Parameters
    ----------
    seconds : the longest time of the count of a row; PgmError when it is over.

    References
    ----------
    Chavira and Darwiche (2008), On probabilistic inference by weighted model counting.

    >>> import pgmengine as pgm
    >>> pgm.ModelCounting(seconds=60).seconds
    60
    """

    gives = frozenset({"log_z", "log_prob"})
    subtracts = True
    source = "a count of states gives log_z itself,"
    guarantee = "exact"

    seconds: float = 60.0

    def __post_init__(self) -> None:
        check_limit(self, "seconds")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[list[Counted]]:
        """Find the factors of every evidence pattern."""
        try:
            with needed_by("ModelCounting"):
                import pyganak  # noqa: F401
            patterns = [
                (rows, condition(one_for_all(target, rows), Form()))
                for rows in evidence_patterns(target)
            ]
        except MissingExtra as error:
            return Plan(refusal=str(error).partition(" needs ")[2])
        except PgmError as error:
            return Plan(refusal=str(error))
        entries = max(float(c.sizes.sum()) for _, c in patterns)
        if entries > MAX_ENTRIES:
            return Plan(
                refusal=f"the factors have {entries:.3g} entries, {MAX_ENTRIES:.3g} at most"
            )
        longest = float(min(self.seconds * target.rows, 1e9)) / pace()
        return Plan(
            why="a weighted count of Boolean formulas",
            work=entries * target.rows,
            bytes=500.0 * entries,
            most_seconds=longest,
            basis=patterns,
        )

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Count row by row."""
        target = question.target
        log_z = np.full(target.rows, np.nan)
        for rows, conditioned in question.basis:
            for row in track(rows.tolist(), "rows"):
                one = target.take(np.array([row]))
                constant = float(conditioned.constant(one)[0])
                if constant == -np.inf:
                    log_z[row] = constant
                    continue
                formula = encoded(conditioned, one)
                log_z[row] = constant + formula.log_count(self.seconds)
        assert not np.isnan(log_z).any()
        return question.result(exact_answers(question, log_z, {}))


@dataclass
class Formula:
    """A Boolean formula with weights, whose weighted count is proportional to Z.

    Attributes
    ----------
    log_scale : the log of what the count has to be multiplied with.
    variables : the number of Boolean variables.
    clauses : of literals, each a number of a variable, negative where it is negated.
    weights : literal -> log weight; 0 where it is absent.
    states : for each variable of the model the literal of each of its states.
    """

    log_scale: float = 0.0
    variables: int = 0
    clauses: list[list[int]] = field(default_factory=list)
    weights: dict[int, float] = field(default_factory=dict)
    states: list[list[int]] = field(default_factory=list)

    def new(self) -> int:
        """Return a new Boolean variable."""
        self.variables += 1
        return self.variables

    def declare(self, count: int) -> None:
        """Add a variable of the model with some states."""
        if count == 1:
            literal = self.new()
            self.clauses.append([literal])
            self.states.append([literal])
        elif count == 2:
            literal = self.new()
            self.states.append([-literal, literal])
        else:
            own = [self.new() for _ in range(count)]
            self.clauses.append(own)
            self.clauses += [[-a, -b] for i, a in enumerate(own) for b in own[:i]]
            self.states.append(own)

    def add(self, scope: list[int], logs: Array) -> None:
        """Add a factor over variables of the model, with an axis of `logs` for each."""
        top = float(logs.max(initial=-np.inf))
        if top == -np.inf:
            self.clauses.append([])
            return
        self.log_scale += top
        if len(scope) == 1 and len(logs) == 2 and np.isfinite(logs).all():
            for literal, log in zip(self.states[scope[0]], logs - top, strict=True):
                self.weights[literal] = self.weights.get(literal, 0.0) + float(log)
            return
        for place in zip(*np.nonzero(logs != top), strict=True):
            joint = [self.states[unit][k] for unit, k in zip(scope, place, strict=True)]
            opposite = [-literal for literal in joint]
            if np.isneginf(logs[place]):
                self.clauses.append(opposite)
                continue
            own = self.new()
            self.weights[own] = float(logs[place]) - top
            self.clauses.append([*opposite, own])
            self.clauses += [[-own, literal] for literal in joint]

    def log_count(self, seconds: float) -> float:
        """Return log of the weighted count with its scale; PgmError when the time is over."""
        if any(not clause for clause in self.clauses):
            return -np.inf
        end = time.monotonic() + seconds
        # The common log weight of a state of each variable of the model: too large, too small.
        low, high, shift = -math.inf, math.inf, 0.0
        step = LOG_STEP / max(len(self.states), 1)
        for _ in range(MOST_COUNTS):
            count = self._counted(shift, end - time.monotonic())
            if 0 < count < math.inf:
                return self.log_scale + math.log(count) - shift * len(self.states)
            if count == 0 and not shift and self._impossible(end - time.monotonic()):
                return -np.inf
            low, high = (shift, high) if count == 0 else (low, shift)
            middle = (low + high) / 2.0
            shift = middle if math.isfinite(middle) else shift + (step if count == 0 else -step)
            step *= 2.0
        raise PgmError("ModelCounting: the count does not fit into double precision")

    def _impossible(self, seconds: float) -> bool:
        """Return whether no assignment satisfies the clauses, without any weights."""
        whole = Formula(0.0, self.variables, self.clauses, {}, self.states)
        # Below 2^1000 assignments in all, a share of them is no underflow.
        return whole._counted(-math.log(2.0) * min(1.0, 1000.0 / self.variables), seconds) == 0

    def _counted(self, shift: float, seconds: float) -> float:
        """Return the weighted count, with a common log weight of the states of each variable."""
        weights = dict(self.weights)
        for own in self.states:
            for literal in own:
                weights[literal] = weights.get(literal, 0.0) + shift
        # A literal without a weight beside one that has one counts as 1.
        both = {literal for known in weights for literal in (known, -known)}
        described = {
            "variables": self.variables,
            "clauses": self.clauses,
            "weights": [[literal, math.exp(weights.get(literal, 0.0))] for literal in sorted(both)],
        }
        path = os.pathsep.join(part for part in sys.path if part)
        try:
            done = subprocess.run(
                [sys.executable, "-m", counting_process.__name__],
                input=json.dumps(described),
                capture_output=True,
                text=True,
                timeout=min(max(seconds, 0.01), LONGEST),
                env={**os.environ, "PYTHONPATH": path},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PgmError(
                "ModelCounting: the count was not done in the time; ask with a larger seconds="
            ) from None
        lines = [line for line in done.stdout.splitlines() if line.startswith("count ")]
        if done.returncode or not lines:
            raise PgmError(f"ModelCounting: the counter failed: {done.stderr.strip()[-200:]}")
        return float(lines[-1].split()[1])


def encoded(conditioned: Conditioned, one: Target) -> Formula:
    """Return the formula of a row."""
    formula = Formula()
    for count in conditioned.states.tolist():
        formula.declare(count)
    logs = np.concatenate([np.empty(0), *[part.ravel() for part in conditioned.tables(one)]])
    ends, start = conditioned.sizes.cumsum(), conditioned.scopes.start
    for number, (size, end) in enumerate(zip(conditioned.sizes.tolist(), ends, strict=True)):
        scope = conditioned.scopes.scope[start[number] : start[number + 1]].tolist()
        own = logs[end - size : end].reshape([int(conditioned.states[u]) for u in scope])
        formula.add(scope, own)
    return formula
