"""Exact enumeration over the cheapest cover; rows of one evidence pattern share a problem."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.numerics import log_sum
from pgmengine.base.progress import track
from pgmengine.base.threads import shared_out
from pgmengine.base.types import Array, RngLike
from pgmengine.engine.cost import enumerating
from pgmengine.graph.target import Target
from pgmengine.infer.answers import add_gradients, evidence_patterns, public, squeeze
from pgmengine.infer.exact.assemble import Expectations
from pgmengine.infer.exact.cover import Cover, choose_cover
from pgmengine.infer.exact.gray import TASK
from pgmengine.infer.exact.leaks import with_leaks
from pgmengine.infer.exact.problem import Problem, build_problem
from pgmengine.infer.exact.program import program_of
from pgmengine.infer.exact.skeleton import Skeleton, skeleton_of
from pgmengine.infer.exact.states import draw, mode_of
from pgmengine.infer.exact.walk import make_walker
from pgmengine.infer.prepared import Method, Prepared, Scheme
from pgmengine.infer.result import WANTS, Result
from pgmengine.protocols import Accumulator

# Wanted quantity -> layer or coupling -> (rows, ...).
Answer = dict[str, dict[str, Any]]
# Quantities that need the moments of every indicator.
PAIRS = {"pairs", "gradient"}
MOMENTS = PAIRS | {"marginals"}
NEEDS_ALL = MOMENTS | {"samples", "mode"}
# Rows of one pattern are taken in groups whose moments fit in this many bytes.
ROWS_BYTES = 256 * 2**20
# The least input of noisy-or units that compiled walks take.
LEAK = 1e-3
# Bytes of working arrays up to which threads work on several patterns at a time.
SMALL = 2**20


@dataclass(frozen=True)
class Exact(Method):
    """Exact answers by enumeration: Z = sum over states C of the cheapest cover of exp(w(C)).

    Given a state of the cover all other free units are independent, so that they are summed out
    analytically. Use it wherever the cover is small: it is tried first by Auto.

    Parameters
    ----------
    max_bits : the largest cover that is enumerated, as log2 of its number of states.
    draws : number of samples where they are wanted.

    >>> import pgmengine as pgm
    >>> model = pgm.rbm(4, 2, rng=0)
    >>> evidence, want = {"v": [1, 0, float("nan"), 1]}, ("marginals", "log_prob")
    >>> r = pgm.infer(model, evidence, want, method=pgm.Exact())
    >>> r.mean["h"].shape, r.log_prob.shape, r.kind
    ((2,), (1,), 'exact')
    """

    gives = frozenset(WANTS) - {"bound"}
    source = "enumeration gives log_z itself,"
    guarantee = "exact"

    max_bits: float = 25
    draws: int = 1000

    def __post_init__(self) -> None:
        check_limit(self, "max_bits")
        check_whole(self, "draws")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Scheme:
        """Choose the cheapest cover of every evidence pattern; refuse above max_bits."""
        try:
            parts = _parts(target, want)
        except PgmError as error:
            return Scheme(refusal=str(error))
        groups = [group for part in parts for group in part.groups]
        work = sum(len(g.rows) * 2.0 ** min(g.cover.bits, 1000) * g.per_state for g in groups)
        memory = max(g.bytes for g in groups) + _output_bytes(target, want, self.draws)
        largest = max((g.cover for g in groups), key=lambda cover: cover.bits)
        if largest.bits > self.max_bits:
            refusal = (
                f"cheapest enumeration needs 2^{largest.bits:.4g} states, "
                f"the limit is 2^{self.max_bits:g}"
            )
            return Scheme(work=work, bytes=memory, refusal=refusal)
        seconds = _seconds(target, want, groups)
        return Scheme(_describe(largest), work, memory, seconds, parts)

    def answer(
        self, question: Prepared, rng: RngLike, state: Any = None, executor: Executor | None = None
    ) -> Result:
        """Enumerate the cover of every evidence pattern."""
        answers = _Answers(question.target, question.want, self.draws, rng)
        for part in question.basis:
            answers.take(part)
        return question.result(answers.finished())

    def expect(
        self, target: Target, weights: Array, total: Accumulator, rng: np.random.Generator
    ) -> None:
        """Add the sum over rows of weight * E[d log_density | row] to the sum of a phase."""
        total.arrays(self.gradient(target, weights), 1.0, float(weights.sum()))

    def gradient(self, target: Target, weights: Array) -> dict[str, Any]:
        """Return the sum over rows of weight * E[d log_density | row], parameter by parameter."""
        question = self.prepare(target, ("gradient",))
        question.check()
        answers = _Answers(target, question.want, 0, None, weights)
        for part in question.basis:
            answers.take(part)
        found: dict[str, Any] = answers.finished()["gradient"]
        return found


@dataclass(frozen=True, eq=False)
class _Group:
    """Rows of one evidence pattern, their cover, and what they cost."""

    rows: Array
    cover: Cover
    per_state: float  # unit updates
    width: float  # bytes of working arrays per row
    made: list[Skeleton] = field(default_factory=list)

    @property
    def at_once(self) -> int:
        """Rows that are taken together."""
        return max(1, int(ROWS_BYTES // max(self.width, 1.0)))

    @property
    def bytes(self) -> float:
        """Bytes of working arrays."""
        return self.width * min(len(self.rows), self.at_once)

    def skeleton(self, whole: Target) -> Skeleton:
        """Return the log-linear problem over the cover without values, made when first needed."""
        if not self.made:
            self.made.append(skeleton_of(whole.take(self.rows[:1]), self.cover))
        return self.made[0]


class _Role(Enum):
    """The targets that one question leads to."""

    POSTERIOR = "the target itself"
    NORMALISER = "the model without evidence, for log_prob"
    SLOPE = "leaks of 0 lifted, for the gradient alone (leaks.py)"

    def of(self, target: Target) -> Target:
        """Return its target."""
        if self is _Role.NORMALISER:
            return target.nothing_observed
        return with_leaks(target) if self is _Role.SLOPE else target


@dataclass(frozen=True, eq=False)
class _Part:
    """A part of a question: quantities of one target, and its rows by evidence pattern."""

    role: _Role
    wanted: frozenset[str]
    groups: list[_Group]

    def moments(self, indicators: int) -> int:
        """Return the rows of moments that a walk over so many indicators has to give."""
        return 1 + indicators if PAIRS & self.wanted else 1 if MOMENTS & self.wanted else 0


def _parts(target: Target, wanted: tuple[str, ...]) -> list[_Part]:
    """Return the parts of a question; PgmError where a row has no cover."""
    needs = frozenset(wanted) & NEEDS_ALL
    if "gradient" in needs and with_leaks(target) is not target:
        parts = [
            _part(_Role.POSTERIOR, target, needs - {"gradient"}),
            _part(_Role.SLOPE, target, frozenset({"gradient"})),
        ]
    else:
        parts = [_part(_Role.POSTERIOR, target, needs)]
    if "log_prob" in wanted:
        parts.append(_part(_Role.NORMALISER, target, frozenset()))
    return parts


def _part(role: _Role, whole: Target, wanted: frozenset[str]) -> _Part:
    target = role.of(whole)
    rows = evidence_patterns(target)
    # Hints are no part of the pattern, so that their rows are looked at all together.
    each = [(target.take(some if target.soft else some[:1]), some) for some in rows]
    return _Part(role, wanted, [_group(one, some, wanted) for one, some in each])


def _group(one: Target, rows: Array, wanted: frozenset[str]) -> _Group:
    """Prune barren units where log_z alone is wanted; cover zero weights whose statistics are."""
    cover = choose_cover(one, prune=not wanted, structural=bool(PAIRS & wanted))
    return _Group(rows, cover, *_size(one, cover, wanted))


def _size(target: Target, cover: Cover, wanted: frozenset[str]) -> tuple[float, float]:
    """Unit updates per state, and bytes of working arrays per row."""
    columns, moments = cover.columns, 1 + cover.indicators if PAIRS & wanted else 1
    values = sum(layer.width for layer in target.structure.layers.values())
    width = 8.0 * (columns * max(moments, 2) + 3 * values * moments)
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
    """Whether threads share the patterns: small tasks, without draws or sums made in order."""
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
        """Work through one part, pattern by pattern; threads share many small ones."""
        whole = part.role.of(self.target)
        jobs = [
            (group, group.rows[start : start + group.at_once])
            for group in part.groups
            for start in range(0, len(group.rows), group.at_once)
        ]
        each = shared_out if len(jobs) > 1 and _shared(part) else map
        found = each(lambda job: self._solve(part, whole, *job), jobs)
        for (_, rows), (log_z, answers) in zip(track(jobs, "enumerating"), found, strict=True):
            self._keep(part, whole, rows, log_z)
            for what, values in answers.items():
                self._store(what, rows, values)

    def _solve(
        self, part: _Part, whole: Target, group: _Group, rows: Array
    ) -> tuple[Array, Answer]:
        """Return log_z of some rows of a pattern, and the other answers layer by layer."""
        target = whole if len(rows) == whole.rows else whole.take(rows)
        alone = target is whole and part.wanted == {"marginals"}
        found = self._by_program(target, group.skeleton(whole)) if alone else None
        return found or self._by_walk(part, rows, build_problem(target, group.skeleton(whole)))

    def _by_program(self, target: Target, skeleton: Skeleton) -> tuple[Array, Answer] | None:
        """Return marginals by the compiled program of a pattern, if it has one."""
        program = program_of(target, skeleton)
        found = program.run(target) if program is not None else None
        return None if found is None else (found[0], {"mean": found[1], "prob": found[2]})

    def _keep(self, part: _Part, whole: Target, rows: Array, log_z: Array) -> None:
        if part.role is _Role.NORMALISER:
            self.normaliser[rows if whole.rows == self.target.rows else slice(None)] = log_z
            return
        if part.role is _Role.POSTERIOR:
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
