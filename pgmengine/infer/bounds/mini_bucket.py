"""Proven bounds of log Z, log p and marginals on both sides, by weighted mini-buckets.

Every discrete model that elimination accepts is bounded, however wide it is. A question has steps:

1. The factors of the rows of a pattern, as for elimination, without impossible states.
2. Mini-buckets as large as time, memory and `max_states` allow. Small ones come first.
3. Steps of both bounds (weighted_sums.py) until the time is over or nothing changes. The best bound
   of each row is kept, and the lower one of mean field, where that accepts the model, counts too.
4. For marginals, the same with a lane for each state of each free unit: with the bounds L and U of
   log Z where the unit has the state s,

       L_s / (L_s + sum over other states of U)  <=  p(s)  <=  U_s / (U_s + sum of the others' L).

Where no bucket was split, log Z is exact, and the result says so. Reference: weighted_sums.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine.base.checks import check_limit, check_number
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.division import blocks, check_divided
from pgmengine.base.work.pace import pace
from pgmengine.base.work.progress import track
from pgmengine.evidence.extended.extended_targets import unfolded_target
from pgmengine.evidence.magnitudes import magnitudes
from pgmengine.evidence.target import Target
from pgmengine.infer.bounds.mini_buckets import MiniBuckets, mini_buckets
from pgmengine.infer.bounds.problem import (
    ARRAYS,
    COPIES,
    MAX_BYTES,
    Problem,
    bytes_of,
    problem,
    step_seconds,
)
from pgmengine.infer.bounds.weighted_sums import Side
from pgmengine.infer.diagnostics.rounding import SUM_ROUNDING
from pgmengine.infer.exact.gathered import check_possible
from pgmengine.infer.exact.junction_tree.elimination import unfoldable
from pgmengine.infer.exact.junction_tree.tree_expectations import FromMarginals
from pgmengine.infer.exact.planning import Draft, drafts
from pgmengine.infer.question.prepared import AnyPrepared, Method, Prepared
from pgmengine.infer.results.answer_bytes import peak_bytes
from pgmengine.infer.results.axes import public, squeeze
from pgmengine.infer.results.result import Plan, Result
from pgmengine.infer.variational.mean_field import MeanField
from pgmengine.model.terms.term import Term

# The number of steps for which there is time with small and with large mini-buckets, and the share
# of the time that small ones get.
SMALL_STEPS, LARGE_STEPS, SMALL_SHARE = 400, 40, 0.2
# Steps end where so many of them together improve no bound by this share of its gap.
STEPS_WITHOUT_GAIN, LEAST_GAIN = 1000, 1e-4
# A gap in nats below which steps end.
LEAST_GAP = 1e-9
# The size of a bound that counts for infinite ones when gaps are compared.
WIDE = 1e9
# Parts of the time after which the progress bar moves.
TICKS = 100
# The share of the time that marginals give to log Z, and that mean field may take.
SHARE_OF_LOG_Z, SHARE_OF_MEAN_FIELD = 0.3, 0.1
# Passes over the lanes of marginals for which there is time.
CLAMPED_STEPS = 4
# Lanes of marginals that have to fit into memory together, and the arrays of a question in shares
# of the largest pass: small and large mini-buckets, and lanes of marginals.
LANES_AT_ONCE, PASSES_HELD = 8, 3.0
# Seconds of the first bounds for each factor of a pattern.
FACTOR_SECONDS = 8e-5
# The number of factors up to which a plan makes their mini-buckets to know the memory (0.2 s).
FEW_FACTORS = 20_000
# The relative rounding error of a probability from log bounds, and the one of mean field's bound.
PROBABILITY_ROUNDING, MEAN_FIELD_ROUNDING = 2.0**-44, 2.0**-44


@dataclass(frozen=True)
class MiniBucket(Method[tuple[Term, ...]]):
    """Proven bounds on both sides, by weighted mini-buckets (`Result.kind` is "bounds").

    Use it where a graph is too wide for exact answers, and a statement is needed that holds for
    sure. `log_z_interval`, `log_prob_interval` and `prob_interval` contain the exact values;
    rounding errors are part of them. `log_z` and `prob` are points inside: the middle, or the end
    that is finite. Where nothing had to be split, the answers are exact and `kind` is "exact".

    Parameters
    ----------
    max_states : the largest number of entries of a table that joins several factors. Larger tables
        give tighter bounds and take longer; no more of it is used than the time allows.
    seconds : the time of the call in seconds, for all rows and both terms of log_prob. It ends
        earlier where further steps gain nothing, and later where the first bounds take longer, as
        they do for hundreds of thousands of factors; the plan names the longer time.

    `stats` has `split`, the number of variables whose factors were split, `entries`, the table
    entries of all mini-buckets, and `steps`, the number of steps of the largest ones.

    >>> import pgmengine as pgm
    >>> model = pgm.rbm(6, 5, rng=0)
    >>> r = pgm.infer(model, want=("log_z",), method=pgm.MiniBucket(max_states=8, seconds=0.2))
    >>> low, high = r.log_z_interval[0]
    >>> r.kind, bool(low <= pgm.infer(model, want=("log_z",)).log_z[0] <= high)
    ('bounds', True)

    References
    ----------
    Dechter and Rish (2003); Liu and Ihler (2011).
    """

    gives = frozenset({"marginals", "log_z", "log_prob"})
    subtracts = True
    source = "bounds give"
    guarantee = "bounds"
    statistics = {"split": (), "entries": (), "steps": ()}

    max_states: float = 2**20
    seconds: float = 10.0

    def __post_init__(self) -> None:
        check_limit(self, "max_states")
        check_number(self, "seconds")

    def planned(self, target: Target, want: tuple[str, ...]) -> Prepared[tuple[Term, ...]]:
        """Plan a question; the two terms of log_prob have half of the time each."""
        whole = target.structure.normalized and target.untempered
        if "log_prob" not in want or whole:
            return super().planned(target, want)
        half = replace(self, seconds=self.seconds / 2)
        return replace(super(MiniBucket, half).planned(target, want), method=half)

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[tuple[Term, ...]]:
        """Return the time limit and the memory of the largest mini-buckets; refuse other models."""
        gates = unfoldable(target, want)
        small = unfolded_target(target, gates) if gates else target
        if "marginals" in want and _infinite(target):
            why = "bounds of marginals are about units with finitely many values"
            return Plan(refusal=f"{why}, and the free units of {_infinite(target)} have more")
        try:
            every = drafts(small, want)
        except PgmError as error:
            return Plan(refusal=str(error))
        held = [d.conditioned.held(len(d.rows)) + 8.0 * d.conditioned.sizes.sum() for d in every]
        exact = all(self._sums(d) for d in every)
        needs = [PASSES_HELD * self._bytes(d, "marginals" in want) for d in every]
        # The first bounds of many factors may take longer than the time that was given.
        first = FACTOR_SECONDS * sum(len(d.conditioned.sizes) for d in every)
        seconds = max(self.seconds, first * pace())
        bits = np.log2(max(self.max_states, 1.0))
        why = f"weighted mini-buckets of at most 2^{bits:.3g} entries, at most {seconds:.3g} s"
        memory = peak_bytes(small, want, 0, 1.0, max(needs) + 2.0 * max(held))
        # The time is set, so that questions are not divided by work: it counts the rows alone.
        work = float(target.rows)
        kind = "exact" if exact else ""
        return Plan("", kind, why, work, memory, seconds=seconds / pace(), basis=gates)

    def _sums(self, d: Draft) -> bool:
        """Return whether no bucket of a pattern is split, so that the answer is exact."""
        if d.rough.largest > np.log2(max(self.max_states, 1.0)):
            return False
        return self.sums(_whole(d, self.max_states), len(d.rows))

    def _bytes(self, d: Draft, clamped: bool) -> float:
        """Return at most the bytes of a pass over the tables of a pattern.

        They take MAX_BYTES, or those of a row with the smallest mini-buckets, where these take
        more. Mini-buckets of many factors are not made in advance, because that takes seconds.
        """
        c = d.conditioned
        if len(c.sizes) > FEW_FACTORS:
            # A message has at most half of the entries of its table.
            entries = ARRAYS * 2.0 * float(c.sizes.sum()) + COPIES * float(c.sizes.max())
            return max(MAX_BYTES, 8.0 * entries)
        lanes = (1 + int(c.states.sum()) * clamped) * len(d.rows)
        least, most = _whole(d, 1.0), _whole(d, self.max_states)
        return min(max(bytes_of(least, 1), MAX_BYTES), bytes_of(most, lanes))

    def sums(self, graph: MiniBuckets, rows: int) -> bool:
        """Return whether no bucket is split, and whether a pass over its tables fits."""
        if graph.split or bytes_of(graph, 1) > MAX_BYTES:
            return False
        return step_seconds(graph, rows) <= self.seconds

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Bound all rows, pattern by pattern."""
        given, gates = question.target, question.basis
        target = unfolded_target(given, gates) if gates else given
        run, clamped = _Run(self, given), "marginals" in question.want
        every = drafts(target, question.want)
        check_divided([d.rows for d in every], target.rows, "evidence patterns")
        log_z, parts = np.full((target.rows, 2), np.nan), []
        for number, d in enumerate(every):
            share = run.left / (len(every) - number)
            p = problem(d.conditioned, d.target, d.rough, self.max_states)
            for rows in blocks(np.arange(len(d.rows)), run.lanes(p)):
                part = share * len(rows) / len(d.rows)
                mine = part * (SHARE_OF_LOG_Z if clamped else 1.0)
                sides = run.bounded(p, rows, mine)
                log_z[d.rows[rows]] = run.ends(p, rows, sides)
                if clamped:
                    check_possible(log_z[d.rows[rows], 1], d.rows[rows], target)
                    parts.append((d.rows[rows], run.marginals(p, rows, sides, part - mine)))
        run.with_mean_field(log_z)
        answers = _log_z_answers(log_z) if "log_z" in question.want else {}
        if clamped:
            answers |= _joined(target, parts)
        result = question.result(answers, run.stats)
        if gates:
            result = result.without_added(target.model, given.model)
        return result if run.stats["split"] else replace(result, kind="exact")


def _infinite(target: Target) -> str:
    """Return the layers with infinitely many values that have free units, as text."""
    s = target.structure
    return ", ".join(n for n, k in s.state_counts.items() if not k and target.free[n].any())


def _whole(d: Draft, most: float) -> MiniBuckets:
    """Return the mini-buckets of the factors of a pattern, with impossible states."""
    c = d.conditioned
    ends = zip(c.scopes.start[:-1], c.scopes.start[1:], strict=True)
    scopes = [tuple(c.scopes.scope[a:b].tolist()) for a, b in ends]
    return mini_buckets(c.states.tolist(), scopes, d.rough.order.tolist(), most)


class _Run:
    """One call: its clock, its statistics, and the bounds of rows."""

    def __init__(self, method: MiniBucket, target: Target) -> None:
        self.method, self.target = method, target
        self.end = time.monotonic() + method.seconds
        self.stats = {"split": 0.0, "entries": 0.0, "steps": 0.0}

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return max(self.end - time.monotonic(), 0.0)

    def lanes(self, p: Problem) -> float:
        """Return the number of rows that fit into memory: exactly, or with small mini-buckets."""
        if p.impossible or p.target.rows == 1:
            return 1.0
        whole = self.whole(p)
        least = whole if whole and self.method.sums(whole, 1) else p.at_most(1)
        return max(1.0, MAX_BYTES / max(bytes_of(least, 1), 1.0))

    def whole(self, p: Problem) -> MiniBuckets | None:
        """Return the mini-buckets without a split, or None where a table would be too large."""
        most = self.method.max_states
        return p.at_most(most) if p.order.largest <= np.log2(max(most, 1.0)) else None

    def bounded(
        self, p: Problem, rows: Array, seconds: float
    ) -> tuple[list[tuple[Side, Side]], MiniBuckets | None]:
        """Return both bounds of some rows, with small and with large mini-buckets."""
        if p.impossible:
            return [], None
        most, end = self.method.max_states, time.monotonic() + seconds
        whole = self.whole(p)
        if whole and self.method.sums(whole, len(rows)):
            side = Side(whole, p.tables(whole, rows, {}), True)
            side.start()
            return [(side, side)], whole
        levels = [
            p.within(most, seconds / steps, len(rows), len(rows))
            for steps in (SMALL_STEPS, LARGE_STEPS)
        ]
        if levels[0].entries == levels[1].entries:
            levels = levels[1:]
        out = []
        for graph in levels:
            tables = p.tables(graph, rows, {})
            sides = Side(graph, tables, True), Side(graph, tables, False)
            first = len(levels) > 1 and graph is levels[0]
            self._improved(sides, end - (1.0 - SMALL_SHARE) * seconds if first else end)
            out.append(sides)
        self.stats["split"] = max(self.stats["split"], float(levels[-1].split))
        self.stats["entries"] = max(self.stats["entries"], levels[-1].entries)
        return out, levels[-1]

    def _improved(self, sides: tuple[Side, Side], end: float) -> None:
        """Make steps of both bounds until the time is over or nothing changes."""
        for side in sides:
            side.start()
        begin = time.monotonic()
        if begin >= end:
            return
        last, steps, since = _gap(sides), 0, 0
        for tick in track(np.linspace(begin, end, TICKS + 1)[1:].tolist(), "bounds"):
            while time.monotonic() < tick:
                for side in sides:
                    side.improve()
                steps, since = steps + 1, since + 1
                self.stats["steps"] = max(self.stats["steps"], float(steps))
                if since == STEPS_WITHOUT_GAIN:
                    gap = _gap(sides)
                    if not (last - gap > LEAST_GAIN * last).any() or (gap <= LEAST_GAP).all():
                        return
                    last, since = gap, 0

    def ends(
        self, p: Problem, rows: Array, found: tuple[list[tuple[Side, Side]], MiniBuckets | None]
    ) -> Array:
        """Return the bounds (rows, 2) of log Z, with the rounding of the factors."""
        every, graph = found
        if graph is None:
            return np.full((len(rows), 2), -np.inf)
        upper = np.min([u.best for u, _ in every], axis=0)
        lower = np.max([_lower(pair) for pair in every], axis=0)
        return self._whole(p, graph, rows, np.stack((lower, upper), axis=1), {})

    def _whole(
        self, p: Problem, graph: MiniBuckets, rows: Array, ends: Array, fixed: dict[int, Array]
    ) -> Array:
        """Return bounds with all constants, and with the rounding of the factors."""
        alone = np.zeros(len(rows))
        for v in graph.alone:
            counts = fixed[v].sum(axis=0) if v in fixed else np.full(len(rows), p.cards[v])
            alone = alone + np.log(counts)
        own = p.constant(graph, rows) + alone
        size = np.broadcast_to(magnitudes(p.target).total, (p.target.rows,))[rows]
        room = SUM_ROUNDING * (size + np.abs(np.where(np.isfinite(own), own, 0.0)) + alone)
        moved = ends + own[:, None]
        room = room + SUM_ROUNDING * np.abs(np.where(np.isfinite(moved), moved, 0.0)).max(axis=1)
        return np.asarray(moved + np.multiply.outer(room, (-1.0, 1.0)))

    def marginals(
        self,
        p: Problem,
        rows: Array,
        found: tuple[list[tuple[Side, Side]], MiniBuckets | None],
        seconds: float,
    ) -> tuple[Problem, Array, Array]:
        """Return the least and the largest probabilities (states of the free units, rows)."""
        every, graph = found
        assert graph is not None
        states, end = p.states, time.monotonic() + seconds
        lanes = len(states) * len(rows)
        if graph.split:
            graph = p.within(self.method.max_states, seconds / CLAMPED_STEPS, lanes, LANES_AT_ONCE)
            every = [pair for pair in every if pair[0].graph.entries == graph.entries]
            if not every:
                tables = p.tables(graph, rows, {})
                every = [(Side(graph, tables, True), Side(graph, tables, False))]
                self._improved(every[0], time.monotonic() + seconds / CLAMPED_STEPS)
        ends = np.repeat([(-np.inf, np.inf)], lanes, axis=0)
        at_once = max(1, int(MAX_BYTES / bytes_of(graph, 1)))
        chunks = [np.arange(lanes)[i : i + at_once] for i in range(0, lanes, at_once)]
        for number, chunk in enumerate(chunks):
            left = end - time.monotonic()
            # Lanes for which no time is left keep the bounds that always hold.
            if number and left < 0 and graph.split:
                break
            until = time.monotonic() + left / (len(chunks) - number)
            ends[chunk] = self._clamped(p, rows, states, every[-1], chunk, until)
        return p, *_probabilities(p, ends.reshape(len(rows), len(states), 2))

    def _clamped(
        self,
        p: Problem,
        rows: Array,
        states: Sequence[tuple[int, int]],
        sides: tuple[Side, Side],
        chunk: Array,
        until: float,
    ) -> Array:
        """Return bounds (lanes, 2) of log Z where a unit has one state, for some lanes."""
        row, graph = chunk // len(states), sides[0].graph
        fixed: dict[int, Array] = {}
        for lane, which in enumerate((chunk % len(states)).tolist()):
            v, k = states[which]
            if v not in fixed:
                fixed[v] = np.ones((int(p.cards[v]), len(chunk)), dtype=bool)
            fixed[v][:, lane] = np.arange(p.cards[v]) == k
        tables = p.tables(graph, rows[row], fixed)
        lanes = sides[0].on(tables, row), sides[1].on(tables, row)
        if graph.split:
            self._improved(lanes, until)
        else:
            lanes[0].start()
            lanes = lanes[0], lanes[0]
        ends = np.stack((_lower(lanes), lanes[0].best), axis=1)
        return self._whole(p, graph, rows[row], ends, fixed)

    def with_mean_field(self, log_z: Array) -> None:
        """Raise the lower bounds (rows, 2) to those of mean field, where it is quick enough."""
        if not self.stats["split"]:
            return
        question = MeanField().prepare(self.target, ("log_z",))
        if question.plan.refusal or question.plan.most_seconds > (
            SHARE_OF_MEAN_FIELD * self.method.seconds
        ):
            return
        found = question.run(rng=0)
        size = np.broadcast_to(magnitudes(self.target).total, len(log_z)) + np.abs(found.log_z)
        bound = found.log_z - MEAN_FIELD_ROUNDING * size
        log_z[:, 0] = np.fmax(log_z[:, 0], np.where(found.status.good, bound, -np.inf))


def _lower(pair: tuple[Side, Side]) -> Array:
    """Return the lower bound of a pair of sides; an exact sum is both, less twice its rounding."""
    upper, lower = pair
    if lower is not upper:
        return lower.best
    return upper.exact_lower


def _gap(sides: tuple[Side, Side]) -> Array:
    """Return the gap of both bounds (lanes,), a large number where it is infinite."""
    ends = [np.nan_to_num(side.best, posinf=WIDE, neginf=-WIDE) for side in sides]
    return np.asarray(ends[0] - ends[1])


def _log_z_answers(ends: Array) -> dict[str, Any]:
    """Return log Z in the middle of its bounds, or at the end that is finite."""
    low, high = ends.T
    middle = np.where(np.isneginf(low), high, 0.5 * (low + high))
    middle = np.where(np.isposinf(high), low, middle)
    return {"log_z": middle, "log_z_error": np.zeros(len(ends)), "log_z_interval": ends}


def _probabilities(p: Problem, ends: Array) -> tuple[Array, Array]:
    """Return both bounds (states of the units, rows) of probabilities from those of log Z."""
    all_states = p.conditioned.free.states
    low, high = (np.zeros((int(all_states.sum()), len(ends))) for _ in range(2))
    begin, first = 0, 0
    for v, count in enumerate(all_states.tolist()):
        k = int(p.cards[v])
        own = ends[:, begin : begin + k]
        begin += k
        for s in range(k):
            others = [o for o in range(k) if o != s]
            place = first + int(p.kept[v][s])
            low[place] = _share(own[:, s, 0], own[:, others, 1]) * (1.0 - PROBABILITY_ROUNDING)
            high[place] = _share(own[:, s, 1], own[:, others, 0]) * (1.0 + PROBABILITY_ROUNDING)
        first += count
    return low, np.minimum(high, 1.0)


def _share(own: Array, others: Array) -> Array:
    """Return exp(own) / (exp(own) + sum of exp(others)); 0 and 1 where a term decides it."""
    rest = np.logaddexp.reduce(others, axis=1, initial=-np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        share = 1.0 / (1.0 + np.exp(rest - own))
    # An impossible state has the share 0, unless nothing is known of the others either.
    share = np.where(np.isneginf(own), 0.0, share)
    return np.where(np.isposinf(own) | np.isneginf(rest) & ~np.isneginf(own), 1.0, share)


def _joined(
    target: Target, parts: list[tuple[Array, tuple[Problem, Array, Array]]]
) -> dict[str, Any]:
    """Return intervals of all rows, and the points inside, in the form of answers."""
    found: dict[str, dict[str, Array]] = {"prob": {}, "mean": {}, "low": {}, "high": {}}
    check_divided([rows for rows, _ in parts], target.rows, "marginals")
    for rows, (p, low, high) in parts:
        given = target if len(rows) == target.rows else target.take(rows)
        middle = _inside(p.conditioned.free.states, low, high)
        for key, units in (("low", low), ("high", high), ("prob", middle)):
            e = FromMarginals(
                given, p.conditioned, units, np.empty(0, np.int64), units[:0], {}, given
            )
            answers = e.answers(("marginals",))
            for name, value in answers["prob"].items():
                out = found[key].setdefault(name, np.full((target.rows, *value.shape[1:]), np.nan))
                out[rows] = value
            for name, value in answers["mean"].items() if key == "prob" else ():
                out = found["mean"].setdefault(
                    name, np.full((target.rows, *value.shape[1:]), np.nan)
                )
                out[rows] = value
    both = {n: np.stack((x, found["high"][n]), axis=-1) for n, x in found["low"].items()}
    return {
        "mean": public(target, found["mean"]),
        "prob": squeeze(target, found["prob"]),
        "prob_interval": squeeze(target, both),
    }


def _inside(states: Array, low: Array, high: Array) -> Array:
    """Return points between two bounds (states of the units, rows) that sum to one by unit."""
    first = np.cumsum(states) - states
    least = np.add.reduceat(low, first, axis=0) if len(states) else low
    room = np.add.reduceat(high - low, first, axis=0) if len(states) else low
    part = np.clip((1.0 - least) / np.where(room > 0, room, 1.0), 0.0, 1.0)
    return np.asarray(low + np.repeat(part, states, axis=0) * (high - low))
