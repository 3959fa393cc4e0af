"""Belief propagation: messages between the factors and the variables of any graph, until they stay.

Each evidence pattern has its conditioned model (factors over the free units, as in elimination) and
its factor graph. The rows of a pattern share both, and each row ends when its own messages stay.
Where the graph is a forest, the answers are those of elimination. Elsewhere the marginals are those
of a fixed point of the Bethe free energy,

    log Z_Bethe = sum over factors log Z_f - sum over edges log Z_fv + sum over variables log Z_v

with sums over the messages into a factor times the factor, both messages of an edge, and the
messages into a variable (Mezard and Montanari 2009, chapter 14). It is neither a bound nor an
estimate with an error.

Messages go over the factors in one order and back (factor_graph.py). Where they have not converged
soon, they are damped: on graphs with short loops, undamped ones may go round for ever.

For the mode, messages are maxima in place of sums. States are then decided one after the other,
in a forest from the roots to the leaves, with new messages beside the variables that are decided,
so that the state is a mode of any forest, also where several states are equal.

References: Pearl (1988); Kschischang, Frey and Loeliger (2001); Yedidia, Freeman and Weiss (2005).
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine._kernels import Messages
from pgmengine.base.checks import check_number, check_whole, real
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.division import blocks
from pgmengine.base.work.progress import track
from pgmengine.evidence.extended.extended_targets import unfolded_target
from pgmengine.evidence.target import Target, one_for_all
from pgmengine.infer.exact.gathered import Answer, Gathered, check_possible, exact_answers
from pgmengine.infer.exact.junction_tree.conditioned_model import (
    NEED_ALL_FACTORS,
    Conditioned,
    Form,
    condition,
)
from pgmengine.infer.exact.junction_tree.elimination import of_unfolded, unfoldable
from pgmengine.infer.exact.junction_tree.tree_expectations import FromMarginals
from pgmengine.infer.exact.junction_tree.trees import NEED_MARGINALS
from pgmengine.infer.exact.shared_rows import (
    NEED_NO_BARREN,
    KindOfRows,
    freed,
    kinds_of_rows,
    leaving,
)
from pgmengine.infer.messages.factor_graph import FactorGraph
from pgmengine.infer.modes.mode_factors import (
    Found,
    LogFactors,
    ModeFactors,
    mode_factors,
    searched,
)
from pgmengine.infer.question.prepared import AnyPrepared, Method, Prepared
from pgmengine.infer.results.answer_bytes import peak_bytes
from pgmengine.infer.results.axes import by_row
from pgmengine.infer.results.result import Plan, Result, Status, quantity, weakest
from pgmengine.model.terms.term import Term

# Seconds of a sweep for an entry of a factor, for a state of a member of one, and for a factor.
ENTRY_SECONDS, STATE_SECONDS, FACTOR_SECONDS = 2e-9, 1e-8, 5e-8
# The number of sweeps that plans expect, and those on a forest: the third one finds no change.
EXPECTED_SWEEPS, FOREST_SWEEPS = 50, 3
# Fewer sweeps are of no use on graphs with loops.
LEAST_SWEEPS = 20
# Sweeps before damping begins.
UNDAMPED_SWEEPS = 50
# Sweeps that are made at a time, between which Ctrl-C takes effect, visit about so many entries.
ENTRIES_AT_ONCE = 10_000_000
# Messages oscillate if the least change of the last quarter of all sweeps is more than this share
# of that of the quarter before, and if there were at least so many sweeps.
OSCILLATION, LEAST_TO_OSCILLATE = 0.5, 20
# Numbers of the rows that are in memory together.
BLOCK_ENTRIES = 2.0**24
# Bytes that an entry, a factor and a member of a factor need in planning and for messages.
GRAPH_BYTES = 200.0

UNKNOWN_ERROR = (
    "the graph has loops: the answers of messages are an approximation whose error is unknown, and "
    "no interval is given"
)
NO_GAP = (
    "the graph has loops, so that nothing is known about states better than this one: "
    "pgm.ModeSearch() gives a gap"
)


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of one kind, their factors, and the graph of these."""

    kind: KindOfRows
    conditioned: Conditioned
    graph: FactorGraph

    @property
    def entries(self) -> float:
        """The numbers of a row that are in memory: entries of all factors, twice, and marginals."""
        return float(3 * self.graph.sizes.sum() + 2 * self.graph.cards.sum())


@dataclass(frozen=True, eq=False)
class PlannedGraphs:
    """The graphs of a question, for sums and for maxima.

    Attributes
    ----------
    parts : the graphs for sums.
    modes : the factors at whose joint maximum the mode is.
    best : the graphs of these, by the id of their scopes.
    gates : the gates whose auxiliary variables are in the graphs.
    """

    parts: list[Part]
    modes: list[ModeFactors]
    best: dict[int, FactorGraph]
    gates: tuple[Term, ...]

    @property
    def sure(self) -> bool:
        """Whether sums are exact, because no graph has loops."""
        return all(part.graph.forest for part in self.parts)

    @property
    def graphs(self) -> list[tuple[FactorGraph, int]]:
        """All graphs with their numbers of rows."""
        of_modes = [(self.best[id(m.conditioned.scopes)], len(m.rows)) for m in self.modes]
        return [*((p.graph, len(p.kind.rows)) for p in self.parts), *of_modes]

    @property
    def bytes(self) -> float:
        """The memory of a block of rows, of terms, and of the largest graph."""
        held = [
            8.0 * p.entries * min(len(p.kind.rows), max(1.0, BLOCK_ENTRIES / max(p.entries, 1.0)))
            for p in self.parts
        ]
        own = [g.sizes.sum() + len(g.scopes.scope) + len(g.scopes) for g, _ in self.graphs]
        return max(held, default=0.0) + GRAPH_BYTES * max(own, default=0.0)


@dataclass(frozen=True)
class BeliefPropagation(Method[PlannedGraphs]):
    """Belief propagation: exact where the graph is a forest, and an approximation with loops.

    Use it for graphs that are too wide for exact answers, where sampling is slow: codes, images,
    sparse random graphs. The error of its answers is unknown where the graph has loops, and
    `Result.kind` is "approximation". It is small where loops are long and couplings weak.

    Parameters
    ----------
    sweeps : the largest number of sweeps over all factors.
    tolerance : messages, whose largest number is 1, have converged if none changes by more.
    damping : the share of the old message in the logarithm of a new one, from 0 to below 1, after
        the first 50 sweeps. Messages that converge soon are not damped.

    The mode is a state that is decided by max-product messages. On a forest it is exact. Elsewhere
    it is a lower bound, and `mode_gap` is inf.

    `stats` has for each row the number of sweeps (`sweeps`) and the largest change of a message in
    the last one (`residual`). The status is NOT_CONVERGED or OSCILLATING where this change is above
    the tolerance.

    References
    ----------
    Pearl (1988); Kschischang, Frey and Loeliger (2001); Yedidia, Freeman and Weiss (2005).

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> x = b.layer("x", pgm.Spin(), 100)
    >>> b.couple(x[1:], x[:-1], 0.3)
    >>> r = pgm.infer(b.build(), want=("log_z",), method=pgm.BeliefPropagation())
    >>> r.log_z.round(3), r.kind
    (array([73.704]), 'exact')
    """

    gives = frozenset({"log_z", "log_prob", "marginals", "pairs", "mode"})
    subtracts = True
    source = "messages give"
    guarantee = "approximation"
    statistics = by_row("sweeps", "residual")

    sweeps: int = 1000
    tolerance: float = 1e-8
    damping: float = 0.3

    def __post_init__(self) -> None:
        check_whole(self, "sweeps")
        check_number(self, "tolerance")
        if not 0 <= real(self.damping) < 1:
            raise PgmError(
                "BeliefPropagation: damping must be at least 0 and below 1, not "
                f"{told(self.damping)}"
            )

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[PlannedGraphs]:
        """Return the factor graphs of every evidence pattern."""
        gates = unfoldable(target, want)
        try:
            basis = planned_graphs(unfolded_target(target, gates) if gates else target, want)
        except PgmError as error:
            return Plan(refusal=str(error))
        every, forest = basis.graphs, all(graph.forest for graph, _ in basis.graphs)
        sweeps = FOREST_SWEEPS if forest else min(self.sweeps, EXPECTED_SWEEPS)
        work = sweeps * sum([(1.0 + float(g.sizes.sum())) * rows for g, rows in every])
        seconds = ENTRY_SECONDS * work
        for g, rows in every:
            states = float(g.cards[g.scopes.scope].sum())
            seconds += sweeps * rows * (STATE_SECONDS * states + FACTOR_SECONDS * len(g.scopes))
        most = seconds if forest else seconds * max(1.0, self.sweeps / EXPECTED_SWEEPS)
        limit = "two sweeps over a forest" if forest else f"at most {self.sweeps} sweeps"
        why = f"{limit} of messages on {sum(len(g.scopes) for g, _ in every)} factors"
        kind = "exact" if forest else "lower bound" if not basis.parts else ""
        memory = peak_bytes(target, want, 0, work, 0.0, fixed=basis.bytes)
        basis = replace(basis, gates=gates)
        return Plan("", kind, why, work, memory, "", seconds, most, basis)

    def faster(
        self, target: Target, want: tuple[str, ...], seconds: float
    ) -> BeliefPropagation | None:
        """Return the method with fewer sweeps."""
        most = self.plan(target, want).most_seconds
        sweeps = int(self.sweeps * seconds / most)
        return replace(self, sweeps=sweeps) if sweeps >= LEAST_SWEEPS else None

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Pass messages on the graph of every evidence pattern."""
        planned: PlannedGraphs = question.basis
        if planned.gates:
            return of_unfolded(
                self, question, lambda whole: self.answer(whole, rng, state, executor)
            )
        passing, answers, kinds = _Passing(self, question.target.rows), dict[str, Any](), []
        status, warnings = Status.OK, tuple[str, ...]()
        if planned.parts:
            answers |= self._sums(question, planned, passing)
            kinds.append("exact" if planned.sure else self.guarantee)
            warnings = () if planned.sure else (UNKNOWN_ERROR,)
        if planned.modes:
            found = self._modes(question, planned, passing)
            answers |= found.answers
            status, warnings = found.status, (*warnings, *found.warnings)
            kinds.append(found.kind)
        if status is Status.OK:
            status = passing.status
        warnings = (*passing.notes(question.target), *warnings)
        stats = {"sweeps": passing.sweeps, "residual": passing.residual}
        result = question.result(answers, stats, status, warnings)
        return replace(result, kind=weakest(kinds))

    def _sums(
        self, question: AnyPrepared, planned: PlannedGraphs, passing: _Passing
    ) -> dict[str, Any]:
        """Return all answers but the mode."""
        target, kinds = question.target, {*map(quantity, question.want)}
        gathered = Gathered(target, "messages")
        for part in planned.parts:
            for rows in blocks(part.kind.rows, BLOCK_ENTRIES / max(part.entries, 1.0)):
                gathered.add(rows, *_of_part(part, target, rows, question.want, passing))
        log_z, found = gathered.complete()
        if kinds != {"log_z"}:
            check_possible(log_z, np.arange(target.rows), target)
        answers = exact_answers(question, log_z, found)
        if "log_z" in answers and not planned.sure:
            answers["log_z_error"] = np.full(target.rows, np.nan)
            answers["log_z_interval"] = np.repeat([[-np.inf, np.inf]], target.rows, axis=0)
        return answers

    def _modes(self, question: AnyPrepared, planned: PlannedGraphs, passing: _Passing) -> Result:
        """Return the result about the mode."""
        rows = iter(np.concatenate([m.rows for m in planned.modes]).tolist())

        def search(factors: LogFactors) -> Found:
            graph = planned.best[id(factors.scopes)]
            messages = graph.messages(True)
            possible = passing.run(messages, factors.logs, next(rows))
            state = messages.decided(graph.variables)
            return Found(state, 0.0 if graph.forest or not possible else np.inf)

        plan = replace(question.plan, basis=planned.modes)
        result = searched(Prepared(self, ("mode",), plan, question.target), search)
        if result.kind == "exact":
            return result
        notes = (*result.warnings, NO_GAP) if result.status.good else result.warnings
        return replace(result, kind="lower bound", warnings=notes)


def _of_part(
    part: Part, whole: Target, rows: Array, want: tuple[str, ...], passing: _Passing
) -> tuple[Array, Answer]:
    """Return log Z (rows,) and the other answers of some rows of a part, but the mode."""
    given, c = whole.take(rows), part.conditioned
    target, kinds = freed(given, part.kind.free), {*map(quantity, want)}
    moments = not NEED_MARGINALS.isdisjoint(kinds)
    asked = c.asked(kinds) if moments else np.empty(0, dtype=np.int64)
    entries = _joined(c.tables(target))
    units = np.full((len(rows), int(c.states.sum())), np.nan)
    factors = np.full((len(rows), int(c.sizes[asked].sum())), np.nan)
    log_z, messages = np.full(len(rows), np.nan), part.graph.messages(False)
    for i, row in enumerate(track(rows.tolist(), "messages")):
        possible = passing.run(messages, entries[i % len(entries)], row)
        possible = possible and messages.log_weights(units[i])
        log_z[i] = 0.0 if possible else -np.inf
        if possible and "log_z" in kinds:
            log_z[i] = messages.log_z(units[i])
        if not (possible and moments):
            units[i], factors[i] = 0.0, 0.0
            continue
        messages.of_factors(asked, factors[i])
        units[i] = _normalised(units[i], c.states)
        factors[i] = _normalised(factors[i], c.sizes[asked])
    log_z = log_z + c.constant(target)
    if not moments:
        return log_z, Answer()
    e = FromMarginals(target, c, units.T, asked, factors.T, {}, given)
    return log_z, e.answers(tuple(w for w in want if w != "mode"))


class _Passing:
    """The messages of each row until they stay, sums and maxima, and how they have ended."""

    def __init__(self, method: BeliefPropagation, rows: int) -> None:
        self.method = method
        self.sweeps, self.residual = np.zeros(rows), np.zeros(rows)
        self.oscillating = np.zeros(rows, dtype=bool)

    def run(self, messages: Messages, log: Array, row: int) -> bool:
        """Pass the messages of a row; return whether a state may be possible."""
        if not messages.begin(log):
            return False
        most, made = self.method.sweeps, 0
        changes = np.full(most, np.nan)
        each = max(FOREST_SWEEPS, ENTRIES_AT_ONCE // max(len(log), 1))
        while made < most:
            damped = made >= UNDAMPED_SWEEPS
            end = min(most, made + each) if damped else min(most, made + each, UNDAMPED_SWEEPS)
            damping = float(self.method.damping) if damped else 0.0
            some = messages.run(changes[made:end], self.method.tolerance, damping)
            if some < 0:
                return False
            made += some
            if changes[made - 1] <= self.method.tolerance:
                break
        self.sweeps[row] = max(self.sweeps[row], made)
        self.residual[row] = max(self.residual[row], changes[made - 1])
        self.oscillating[row] |= self._oscillates(changes[:made])
        return True

    def _oscillates(self, changes: Array) -> bool:
        """Return whether the changes of a row have not become smaller at the end."""
        quarter = len(changes) // 4
        if len(changes) < LEAST_TO_OSCILLATE or changes[-1] <= self.method.tolerance:
            return False
        last, before = changes[-quarter:], changes[-2 * quarter : -quarter]
        return bool(last.min() > OSCILLATION * before.min())

    @property
    def status(self) -> Status:
        """The status of all rows."""
        if self.oscillating.any():
            return Status.OSCILLATING
        return Status.NOT_CONVERGED if self._open.any() else Status.OK

    @property
    def _open(self) -> Array:
        """Whether the messages of each row have not converged."""
        return self.residual > self.method.tolerance

    def notes(self, target: Target) -> tuple[str, ...]:
        """Return a warning with the first row whose messages have not converged."""
        if not (count := int(self._open.sum())):
            return ()
        first = int(self._open.argmax())
        others = f" and {count - 1} other rows" if count > 1 else ""
        return (
            f"evidence row {target.row_numbers[first]}{others}: messages still change by "
            f"{self.residual[first]:.2g} after {self.sweeps[first]:.0f} sweeps",
        )


def _normalised(log: Array, states: Array) -> Array:
    """Return the probabilities of the states of each variable from their log weights."""
    if not len(states):
        return np.zeros(0)
    first, unit = np.cumsum(states) - states, np.arange(len(states)).repeat(states)
    weight = np.exp(log - np.maximum.reduceat(log, first)[unit])
    return np.asarray(weight / np.add.reduceat(weight, first)[unit])


def _joined(tables: list[Array]) -> Array:
    """Return the entries of all terms, (rows, entries), or (1, entries) if all rows have these."""
    ends = np.cumsum([0, *map(len, tables)])
    out = np.full((max([x.shape[1] for x in tables], default=1), ends[-1]), np.nan)
    for table, a, b in zip(tables, ends[:-1], ends[1:], strict=True):
        out[:, a:b] = table.T
    return out


def planned_graphs(target: Target, want: tuple[str, ...]) -> PlannedGraphs:
    """Return the factor graphs of a question; PgmError where a term is no table."""
    kinds, parts, modes = {*map(quantity, want)}, list[Part](), list[ModeFactors]()
    if "mode" in kinds:
        modes = mode_factors(target)
    best = {id(c.scopes): _graph(c) for c in [m.conditioned for m in modes]}
    if sums := kinds - {"mode"}:
        structural = bool(NEED_ALL_FACTORS & sums)
        form = Form(structural=structural, pairs="pairs" in sums)
        absent = leaving(target, sums, structural) if sums <= NEED_NO_BARREN else {}
        for kind in kinds_of_rows(target, absent, means=False):
            rows = freed(target.take(kind.rows), kind.free)
            c = condition(one_for_all(rows, np.arange(rows.rows)), form)
            parts.append(Part(kind, c, _graph(c)))
    return PlannedGraphs(parts, modes, best, ())


def _graph(c: Conditioned) -> FactorGraph:
    """Return the factor graph of a conditioned model."""
    return FactorGraph(c.states, c.scopes, c.sizes)
