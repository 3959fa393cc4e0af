"""Exact enumeration over the cheapest cover; rows with the same evidence pattern share one problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.numerics import log_sum
from pgmengine.base.progress import track
from pgmengine.base.threads import shared_out
from pgmengine.base.types import Array
from pgmengine.engine.cost import enumerating
from pgmengine.graph.target import Target
from pgmengine.infer.answers import (
    accepted,
    add_gradients,
    check_want,
    evidence_patterns,
    no_room,
    public,
    squeeze,
)
from pgmengine.infer.exact.assemble import Expectations
from pgmengine.infer.exact.cover import Cover, choose_cover
from pgmengine.infer.exact.gray import TASK
from pgmengine.infer.exact.leaks import with_leaks
from pgmengine.infer.exact.problem import Problem, build_problem
from pgmengine.infer.exact.program import program_of
from pgmengine.infer.exact.skeleton import Skeleton, skeleton_of
from pgmengine.infer.exact.states import draw, mode_of
from pgmengine.infer.exact.walk import make_walker
from pgmengine.infer.result import Plan, Result

Answer = dict[str, dict[str, Any]]  # what is wanted -> layer or coupling -> (rows, ...)
PAIRS = {"pairs", "gradient"}  # of these every indicator's moments are needed
MOMENTS = PAIRS | {"marginals"}
NEEDS_ALL = MOMENTS | {"samples", "mode"}
ROWS_BYTES = 256 * 2**20  # rows of one pattern are taken in parts whose moments fit in this
LEAK = 1e-3  # the least input of noisy-or units that compiled walks take
SMALL = 2**20  # bytes of working arrays of a pattern that is one of several at a time


@dataclass(frozen=True)
class Exact:
    """Enumerate the states of the cheapest cover and sum the rest out analytically: Z = sum_C
    exp(w(C)).

    Parameters
    ----------
    max_bits : the largest cover that is enumerated, as log2 of its number of states.
    draws : number of samples when they are wanted.

    >>> import pgmengine as pgm
    >>> model = pgm.rbm(4, 2, rng=0)
    >>> r = pgm.infer(model, {"v": [1, 0, float("nan"), 1]}, want=("marginals", "log_prob"), method=pgm.Exact())
    >>> r.mean["h"].shape, r.log_prob.shape, r.kind
    ((2,), (1,), 'exact')
    """

    max_bits: float = 25
    draws: int = 1000

    def __post_init__(self) -> None:
        check_limit(self, "max_bits")
        check_whole(self, "draws")

    def plan(self, target: Target, want: Iterable[str]) -> Plan:
        """Bits of the cheapest cover of every evidence pattern; refuses above max_bits or the free
        memory.
        """
        wanted = check_want(want)
        if (self, wanted) in target.plans:
            known: Plan = target.plans[self, wanted]
            return known
        plan = self._plan(target, wanted)
        if plan.accepted:  # memory that is not free now may be free later
            target.plans[self, wanted] = plan
        return plan

    def _plan(self, target: Target, wanted: tuple[str, ...]) -> Plan:
        if "bound" in wanted:
            return Plan("Exact", refusal="enumeration gives log_z itself, not a bound")
        try:
            groups = [group for part in _parts(target, wanted) for group in part.groups]
        except PgmError as error:
            return Plan("Exact", refusal=str(error))
        work = sum(len(g.rows) * 2.0 ** min(g.cover.bits, 1000) * g.per_state for g in groups)
        memory = max(g.bytes for g in groups) + _output_bytes(target, wanted, self.draws)
        largest = max((g.cover for g in groups), key=lambda cover: cover.bits)
        if largest.bits > self.max_bits:
            return Plan(
                "Exact",
                work=work,
                bytes=memory,
                refusal=f"cheapest enumeration needs 2^{largest.bits:.4g} "
                f"states, the limit is 2^{self.max_bits:g}",
            )
        if refusal := no_room(memory):
            return Plan("Exact", work=work, bytes=memory, refusal=refusal)
        return Plan(
            "Exact",
            "exact",
            _describe(largest),
            work,
            memory,
            seconds=_seconds(target, wanted, groups),
        )

    def run(
        self,
        target: Target,
        want: Iterable[str] = ("marginals",),
        rng: Any = None,
        state: Any = None,
    ) -> Result:
        """Answer by enumeration; PgmError with the plan's refusal when it does not fit."""
        wanted, plan = accepted(self, target, want)
        answers = _Answers(target, wanted, self.draws, rng)
        for part in _parts(target, wanted):
            answers.take(part)
        return Result(answers.finished(), "exact", self, plan)

    def gradient(self, target: Target, weights: Array) -> dict[str, Any]:
        """Sum over rows of weight * E[d log_density | row], parameter by parameter."""
        accepted(self, target, ("gradient",))
        answers = _Answers(target, ("gradient",), 0, None, weights)
        for part in _parts(target, ("gradient",)):
            answers.take(part)
        return answers.finished()["gradient"]


@dataclass(frozen=True, eq=False)
class _Group:
    """Rows of one evidence pattern, and what they cost."""

    rows: Array
    cover: Cover
    per_state: float  # unit updates
    width: float  # bytes of working arrays per row

    @property
    def at_once(self) -> int:
        """Rows that are taken together."""
        return max(1, int(ROWS_BYTES // max(self.width, 1.0)))

    @property
    def bytes(self) -> float:
        """Bytes of working arrays."""
        return self.width * min(len(self.rows), self.at_once)


@dataclass(frozen=True, eq=False)
class _Part:
    """One target and what is wanted of it; `normaliser` is that of log_prob, with nothing observed.

    `slope`: the gradient alone, of a target whose leaks of 0 are lifted (leaks.py).
    """

    target: Target
    wanted: frozenset[str]
    normaliser: bool = False
    slope: bool = False

    @property
    def groups(self) -> list[_Group]:
        """The rows by evidence pattern; PgmError when one has no cover."""
        return self.target.groups.recall(
            self.wanted,
            lambda: [
                _group(self.target.take(rows if self.target.soft else rows[:1]), rows, self.wanted)
                for rows in evidence_patterns(self.target)
            ],
        )

    def moments(self, indicators: int) -> int:
        """Rows of moments that a walk over so many indicators has to give."""
        return 1 + indicators if PAIRS & self.wanted else 1 if MOMENTS & self.wanted else 0


def _parts(target: Target, wanted: tuple[str, ...]) -> list[_Part]:
    needs = frozenset(wanted) & NEEDS_ALL
    parts = [_Part(target, needs)]
    if "gradient" in needs and (lifted := with_leaks(target)) is not target:
        slope = _Part(lifted, frozenset({"gradient"}), slope=True)
        parts = [_Part(target, needs - {"gradient"}), slope]
    return (
        [*parts, _Part(target.nothing_observed, frozenset(), True)]
        if "log_prob" in wanted
        else parts
    )


def _group(one: Target, rows: Array, wanted: frozenset[str]) -> _Group:
    """Barren units are pruned where log_z alone is wanted, zero weights covered where their
    statistics are.

    `one` is one of the rows, or all of them if they have hints, which are no part of the pattern.
    """
    cover = choose_cover(one, prune=not wanted, structural=bool(PAIRS & wanted))
    return _Group(
        rows, cover, *one.model.costs.recall((cover, wanted), lambda: _size(one, cover, wanted))
    )


def _size(target: Target, cover: Cover, wanted: frozenset[str]) -> tuple[float, float]:
    """Unit updates per state, and bytes of working arrays per row."""
    layers, inside = target.structure.layers, cover.indicators
    states = {n: 2 if x.unit.support is None else len(x.unit.support) for n, x in layers.items()}
    outside = sum(len(i) * (states[n] - 1) for n, i in cover.rest.items())
    children = sum(layers[n].width for n in target.structure.directed_layers)
    columns, moments = outside + children + inside, 1 + inside if PAIRS & wanted else 1
    width = 8.0 * (
        columns * max(moments, 2) + 3 * sum(layer.width * moments for layer in layers.values())
    )
    return float(max(columns, 1) * (4 if MOMENTS & wanted else 1)), width


def _seconds(target: Target, wanted: tuple[str, ...], groups: list[_Group]) -> float:
    """The walks are compiled, but for noisy-or units that may have an input of nearly 0."""
    s, bias = target.structure, target.model.bias
    plain = any(not s.layers[n].unit.canonical and bias(n).min() < LEAK for n in s.directed_layers)
    sorts = (MOMENTS, PAIRS, {"mode", "samples"})
    moments, pairs, best = (bool(some & set(wanted)) for some in sorts)
    return sum(
        enumerating(
            len(g.rows) * 2.0**g.cover.bits,
            g.per_state / (4 if moments else 1),
            moments,
            pairs,
            best,
            plain,
        )
        for g in groups
    )


def _shared(part: _Part) -> bool:
    """Whether patterns are shared out: each is one small task, and neither draws nor sums over rows
    are made in order.
    """
    small = all(2.0**g.cover.bits <= TASK and g.bytes <= SMALL for g in part.groups)
    return small and not part.wanted & {"samples", "gradient"}


def _output_bytes(target: Target, wanted: tuple[str, ...], draws: int) -> float:
    s = target.structure
    total = sum(layer.width for layer in s.layers.values()) * target.rows * 16.0
    if "pairs" in wanted:
        total += (
            8.0 * target.rows * sum(s.layers[c.a].width * s.layers[c.b].width for c in s.couplings)
        )
    if "samples" in wanted:
        total += 8.0 * target.rows * draws * sum(layer.width for layer in s.layers.values())
    return total


def _describe(cover: Cover) -> str:
    units = listed([f"{len(i)} units of {n!r}" for n, i in cover.units.items() if len(i)], " and ")
    return (
        f"2^{cover.bits:.4g} states of {units}"
        if cover.bits > 0
        else "all that is free is independent"
    )


class _Answers:
    """Collects the answers of all parts, patterns and rows."""

    def __init__(
        self,
        target: Target,
        wanted: tuple[str, ...],
        draws: int,
        rng: Any,
        weights: Array | None = None,
    ) -> None:
        self.target, self.wanted, self.draws = target, wanted, draws
        self.rng: Any = seeded(rng) if "samples" in wanted else None
        self.weights = target.weighed(
            np.ones(target.rows) if weights is None else weights
        )  # of the rows in the gradient
        self.log_z = np.zeros(target.rows)
        self.normaliser = np.zeros(target.rows)
        self.per_row: dict[str, dict[str, Array]] = {}
        self.gradient: dict[str, Any] | None = None

    def take(self, part: _Part) -> None:
        """Work through one part, pattern by pattern; many patterns are shared out among the
        threads.
        """
        jobs = [
            (group, group.rows[start : start + group.at_once])
            for group in part.groups
            for start in range(0, len(group.rows), group.at_once)
        ]
        each = shared_out if _shared(part) else map
        found = each(lambda job: self._solve(part, *job), jobs)
        for (_, rows), (log_z, answers) in zip(track(jobs, "enumerating"), found, strict=True):
            self._keep(part, rows, log_z)
            for what, values in answers.items():
                self._store(what, rows, values)

    def _solve(self, part: _Part, group: _Group, rows: Array) -> tuple[Array, Answer]:
        """log_z of some rows of a pattern, and layer by layer what else is wanted."""
        target = part.target if len(rows) == part.target.rows else part.target.take(rows)
        skeleton = skeleton_of(part.target.take(group.rows[:1]), group.cover)
        return self._by_program(part, target, skeleton) or self._by_walk(
            part, rows, build_problem(target, skeleton)
        )

    def _by_program(
        self, part: _Part, target: Target, skeleton: Skeleton
    ) -> tuple[Array, Answer] | None:
        """Answer by the pattern's program, if it is the only pattern and has one, and if that is
        all that is wanted.
        """
        alone = target is part.target and part.wanted == {"marginals"}
        program = program_of(target, skeleton) if alone else None
        found = program.run(target) if program is not None else None
        return None if found is None else (found[0], {"mean": found[1], "prob": found[2]})

    def _keep(self, part: _Part, rows: Array, log_z: Array) -> None:
        if part.normaliser:
            self.normaliser[rows if part.target.rows == self.target.rows else slice(None)] = log_z
            return
        if not part.slope:
            self.log_z[rows] = log_z
        if part.wanted and np.isneginf(self.log_z[rows]).any():
            row = int(rows[np.flatnonzero(np.isneginf(self.log_z[rows]))[0]]) + self.target.first
            raise PgmError(f"evidence row {row} has probability zero, so it has no posterior")

    def _by_walk(self, part: _Part, rows: Array, p: Problem) -> tuple[Array, Answer]:
        walker = make_walker(p)
        sums, moments = walker.walk(part.moments(p.skeleton.indicators))
        log_z, answers = log_sum(sums), Answer()
        if np.isneginf(log_z).any():
            return log_z, answers
        if moments is not None:
            answers |= self._expected(part, rows, Expectations(p, moments))
        if "mode" in part.wanted:
            answers["mode"] = mode_of(p, walker)
        if "samples" in part.wanted:
            draws = draw(p, walker, sums, self.draws, self.rng)
            answers["samples"] = {n: v.swapaxes(0, 1) for n, v in draws.items()}
        return log_z, answers

    def _expected(self, part: _Part, rows: Array, e: Expectations) -> Answer:
        layers, answers = self.target.structure.layers, Answer()
        if "marginals" in part.wanted:
            answers["mean"] = {n: e.expected(n)[:, 0] for n in layers}
            answers["prob"] = {
                n: e.prob(n) for n, x in layers.items() if x.unit.support is not None
            }
        if "pairs" in part.wanted:
            answers["pairs"] = {c.key: e.pairs(c) for c in self.target.structure.couplings}
        if "gradient" in part.wanted:
            self.gradient = add_gradients(self.gradient, e.all_gradients(self.weights[rows]))
        return answers

    def _store(self, what: str, rows: Array, values: dict[str, Array]) -> None:
        out = self.per_row.setdefault(what, {})
        if len(rows) == self.target.rows:
            out |= values
            return
        for name, value in values.items():
            if name not in out:
                out[name] = np.empty((self.target.rows, *value.shape[1:]))
            out[name][rows] = value

    def finished(self) -> dict[str, Any]:
        """The answers as users see them."""
        target, out = self.target, dict[str, Any]()
        if "marginals" in self.wanted:
            out |= {
                "mean": public(target, self.per_row["mean"]),
                "prob": squeeze(target, self.per_row["prob"]),
            }
        if "mode" in self.wanted:
            out["mode"] = public(target, self.per_row["mode"])
        if "pairs" in self.wanted:
            out["pairs"] = squeeze(target, self.per_row["pairs"])
        if "gradient" in self.wanted:
            out["gradient"] = self.gradient
        if "samples" in self.wanted:
            out["samples"] = {
                n: target.structure.layers[n].shaped(v.swapaxes(0, 1))
                for n, v in self.per_row["samples"].items()
            }
        out["log_z"] = self.log_z
        out["log_z_error"] = np.zeros(target.rows)
        out["log_z_interval"] = np.repeat(self.log_z, 2).reshape(-1, 2)
        if "log_prob" in self.wanted:
            out["log_prob"] = self.log_z - self.normaliser
        return out
