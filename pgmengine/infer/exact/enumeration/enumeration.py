"""Enumeration: exact answers by sums over the states of the cheapest cover.

Rows of one evidence pattern share a cover, and the part of their log-linear form that does not
depend on the observed values.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.division import blocks
from pgmengine.base.work.progress import track
from pgmengine.base.work.threads import shared_out
from pgmengine.engine.cost import NS
from pgmengine.evidence.target import Target, evidence_patterns, one_for_all
from pgmengine.infer.diagnostics.rounding import fits
from pgmengine.infer.exact.enumeration.compiled_enumerator import MIN_SAFE_GAP, STATES_PER_TASK
from pgmengine.infer.exact.enumeration.cover import Cover, choose_cover
from pgmengine.infer.exact.enumeration.cover_states import (
    BYTES_PER_DRAWN_NUMBER,
    MAX_DRAWN_NUMBERS_AT_ONCE,
    draw,
    mode_of,
)
from pgmengine.infer.exact.enumeration.enumerator import make_enumerator
from pgmengine.infer.exact.enumeration.linear_plan import FIRST_PLANNED_QUESTION, linear_plan_of
from pgmengine.infer.exact.enumeration.log_linear import log_linear_form
from pgmengine.infer.exact.enumeration.moments import FromMoments
from pgmengine.infer.exact.enumeration.pattern_form import PatternForm, pattern_form_of
from pgmengine.infer.exact.enumeration.product_mixture import Mixture, gives, shared_mixture
from pgmengine.infer.exact.gathered import Answer, Gathered, check_possible, exact_answers
from pgmengine.infer.exact.zero_leaks import ENUMERATION_LIFT, with_leaks, with_slopes
from pgmengine.infer.question.prepared import AnyPrepared, Method
from pgmengine.infer.results.answer_bytes import answer_bytes, peak_bytes
from pgmengine.infer.results.result import WANTS, Plan, Result

# Quantities that need the moments of every indicator.
NEED_PAIR_MOMENTS = {"pairs", "gradient"}
NEED_MOMENTS = NEED_PAIR_MOMENTS | {"marginals"}
NEED_ALL_UNITS = NEED_MOMENTS | {"samples", "mode"}
# Rows of one pattern are enumerated in groups whose moments fit in this many bytes.
MAX_MOMENT_BYTES = 256 * 2**20
# Seconds for a row, state and unit of a mixture.
MIXTURE_NUMBER_SECONDS = 2e-9
# Numbers in memory at a time for each row, state and unit of a mixture.
MIXTURE_COPIES = 6
# Bytes of the plan of an evidence pattern, which is made for all rows of a question.
PATTERN_BYTES = 20e3
# Largest working arrays, in bytes, with which threads work on several patterns at a time.
MAX_BYTES_FOR_PATTERN_THREADS = 2**20


@dataclass(frozen=True)
class Enumeration(Method["Groups"]):
    """Exact answers by enumeration: Z = sum over states C of the cheapest cover of exp(w(C)).

    Given a state of the cover all other free units are independent, so that they are marginalised
    in closed form. Use it on dense graphs with a small cover. `Exact` takes it where it is cheaper
    than elimination.

    Parameters
    ----------
    max_bits : the largest cover that is enumerated, as log2 of its number of states.
    draws : number of samples where they are wanted.

    >>> import pgmengine as pgm
    >>> model = pgm.rbm(4, 2, rng=0)
    >>> evidence, want = {"v": [1, 0, float("nan"), 1]}, ("marginals", "log_prob")
    >>> r = pgm.infer(model, evidence, want, method=pgm.Enumeration())
    >>> r.mean["h"].shape, r.log_prob.shape, r.kind
    ((2,), (1,), 'exact')
    """

    gives = frozenset(WANTS) - {"bound"}
    subtracts = True
    source = "enumeration gives log_z itself,"
    guarantee = "exact"

    max_bits: float = 25
    draws: int = 1000

    def __post_init__(self) -> None:
        check_limit(self, "max_bits")
        check_whole(self, "draws")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[Groups]:
        """Choose the cheapest cover of every evidence pattern; refuse above max_bits."""
        if target.structure.tables:
            added = {target.structure.findings}
            own = any(added.isdisjoint(tables.layers) for tables in target.structure.tables)
            whose = "this model" if own else "soft evidence that excludes states"
            return Plan(refusal=f"enumeration supports couplings only, and {whose} has tables")
        s = target.structure
        for name in s.directed_layers:
            unit = s.layers[name].unit
            # The formulas of enumeration are those of natural parameters, and of 1 - e^-z.
            if not (unit.canonical or unit.independent_causes):
                return Plan(
                    refusal=f"layer {name!r} of {unit!r} units has a link of its own, which "
                    "enumeration does not know"
                )
        try:
            parts = _parts(target, want)
        except PgmError as error:
            return Plan(refusal=str(error))
        groups = [group for part in parts.values() for group in part]
        work = sum([len(g.rows) * 2.0 ** min(g.cover.bits, 1000) * g.per_state for g in groups])
        working = max([g.bytes for g in groups]) + sum([g.form_bytes for g in groups])
        if "samples" in want:
            width = target.structure.width
            working += BYTES_PER_DRAWN_NUMBER * min(
                target.rows * self.draws * width, MAX_DRAWN_NUMBERS_AT_ONCE
            )
        fixed = PATTERN_BYTES * len(groups)
        memory = peak_bytes(target, want, self.draws, work, working, fixed=fixed)
        largest = max([g.cover for g in groups], key=attrgetter("bits"))
        if largest.bits > self.max_bits:
            refusal = (
                f"cheapest enumeration needs 2^{largest.bits:.4g} states, "
                f"the limit is 2^{self.max_bits:g}"
            )
            return Plan(work=work, bytes=memory, refusal=refusal, basis=parts)
        seconds = _seconds(target, want, groups)
        return Plan(why=largest.described, work=work, bytes=memory, seconds=seconds, basis=parts)

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Enumerate the cover of every evidence pattern."""
        drawing = seeded(rng) if "samples" in question.want else None
        target = question.target
        parts: Groups = question.plan.basis
        log_z, found = _enumerated(parts["posterior"], target, self.draws, drawing)
        if slope := parts.get("slope"):
            check_possible(log_z, np.arange(target.rows), target)
            steep = with_leaks(target, ENUMERATION_LIFT)
            lifted = _enumerated(slope, steep, self.draws)[1]
            found["gradient"] = with_slopes(target, found["gradient"], lifted["gradient"])
        return question.result(exact_answers(question, log_z, found))


def cover_bits(question: AnyPrepared) -> float:
    """Return log2 of the states of the largest cover of a question; infinite if it has none."""
    parts: Groups = question.plan.basis or {}
    bits = [group.cover.bits for part in parts.values() for group in part]
    return max(bits, default=np.inf)


@dataclass(eq=False)
class _Group:
    """Rows of one evidence pattern, or of several that share a mixture, with their cover."""

    # The wanted quantities besides log_z.
    wanted: frozenset[str]
    rows: Array
    cover: Cover
    # Unit updates for each state of the cover.
    per_state: float
    # Bytes of working arrays for each row.
    width: float
    # One mixture for rows of several patterns, in place of a walk for each pattern.
    mixture: Mixture | None = None
    # The log-linear form without values, made for the first answer.
    pattern_form: PatternForm | None = None
    # How often the question was asked.
    asked: int = 0

    @property
    def at_once(self) -> int:
        """The number of rows that are enumerated together."""
        if self.mixture is not None:
            return max(1, int(self.mixture.at_once()))
        return max(1, int(MAX_MOMENT_BYTES // max(self.width, 1.0)))

    @property
    def form_bytes(self) -> float:
        """Bytes of the form: the amounts that indicators add to values and fields."""
        if self.mixture is not None:
            return 0.0
        cover = self.cover
        values = sum(map(len, (*cover.units.values(), *cover.rest.values())))
        return 8.0 * values * (4 + 2 * cover.indicators)

    @property
    def bytes(self) -> float:
        """Bytes of working arrays."""
        return self.width * min(len(self.rows), self.at_once)


# The rows of each target of a question by evidence pattern, see `_parts`.
Groups: TypeAlias = dict[str, list[_Group]]


def _parts(target: Target, wanted: tuple[str, ...]) -> Groups:
    """Return the enumerations of a question by name; PgmError where a row has no cover.

    There is one for the posterior, and one for the model with raised leaks, for the part "slope",
    the derivatives at leaks of 0 (zero_leaks.py).
    """
    needs = frozenset(wanted) & NEED_ALL_UNITS
    lifted = with_leaks(target, ENUMERATION_LIFT) if "gradient" in needs else target
    parts = {"posterior": _part(target, needs)}
    if lifted is not target:
        parts["slope"] = _part(lifted, frozenset({"gradient"}))
    return parts


def _part(target: Target, wanted: frozenset[str]) -> list[_Group]:
    """Return the groups of rows of one target, with their covers.

    Barren units are pruned where log_z alone is wanted. Weights of 0 are covered where their
    statistics are wanted.
    """
    groups, pairs = [], bool(NEED_PAIR_MOMENTS & wanted)
    # A walk over the states of each row keeps the digits that large terms of a mixture would cost.
    several = target.rows > 1 and gives(target, wanted) and fits(target, single=False)
    mixture = shared_mixture(target, np.float64) if several else None
    if mixture is not None:
        each = MIXTURE_COPIES * 8.0 * (mixture.numbers + target.structure.width)
        every, width = np.arange(target.rows), float(target.structure.width)
        return [_Group(wanted, every, mixture.cover, width, each, mixture)]
    for rows in evidence_patterns(target):
        one = one_for_all(target, rows)
        cover = choose_cover(one, prune=not wanted, structural=pairs)
        moments = 1 + cover.indicators if pairs else 1
        values = target.structure.width
        width = 8.0 * (cover.columns * max(moments, 2) + (3 if wanted else 1) * values * moments)
        if "pairs" in wanted:
            # The product of one group is in memory beside the sum over all groups.
            width += answer_bytes(one, ("pairs",), 0)
        per_state = float(max(cover.columns, 1) * (4 if NEED_MOMENTS & wanted else 1))
        groups.append(_Group(wanted, rows, cover, per_state, width))
    return groups


def _seconds(target: Target, wanted: tuple[str, ...], groups: list[_Group]) -> float:
    """Return about the seconds that enumeration takes, with weights and moments of some columns.

    It is compiled, except where the input of noisy-or units may be nearly 0.
    """
    s, bias = target.structure, target.model.bias
    plain = any(
        not s.layers[n].unit.canonical and bias(n).min() < MIN_SAFE_GAP for n in s.directed_layers
    )
    sorts = (NEED_MOMENTS, NEED_PAIR_MOMENTS, {"mode", "samples"})
    moments, pairs, best = [not some.isdisjoint(wanted) for some in sorts]
    seconds = 0.0
    for g in groups:
        states, columns = len(g.rows) * 2.0**g.cover.bits, g.per_state / (4 if moments else 1)
        if g.mixture is not None:
            seconds += 1e-3 + states * columns * MIXTURE_NUMBER_SECONDS
        elif plain:
            seconds += states * columns * (12 + 10 * (moments or pairs or best)) * NS
        else:
            each = 5.0 + columns * (0.07 + 0.17 * moments + 0.5 * pairs + 0.35 * best)
            seconds += 0.6e-3 + states * each * NS
    return seconds


def _enumerated(
    groups: list[_Group], target: Target, draws: int, rng: np.random.Generator | None = None
) -> tuple[Array, Answer]:
    """Return log_z (rows,), and the other answers: quantity -> layer or coupling -> (rows, ...).

    Small patterns are divided among threads. Samples and gradients are computed pattern by pattern,
    so that random numbers and sums over rows have a fixed order.
    """
    wanted = groups[0].wanted
    jobs = [(group, rows) for group in groups for rows in blocks(group.rows, group.at_once)]
    small = all(
        2.0**g.cover.bits <= STATES_PER_TASK and g.bytes <= MAX_BYTES_FOR_PATTERN_THREADS
        for g in groups
    )
    shared = len(jobs) > 1 and small and not wanted & {"samples", "gradient"}
    found = (shared_out if shared else map)(
        lambda job: _solved(wanted, target, job[0], job[1], draws, rng), jobs
    )
    gathered = Gathered(target, "enumeration")
    for (_, rows), (own, more) in zip(track(jobs, "enumerating"), found, strict=True):
        if wanted:
            check_possible(own, rows, target)
        gathered.add(rows, own, more)
    return gathered.complete()


def _solved(
    wanted: frozenset[str],
    whole: Target,
    group: _Group,
    rows: Array,
    draws: int,
    rng: np.random.Generator | None,
) -> tuple[Array, Answer]:
    """Return log_z of some rows of a pattern, and the other answers.

    Marginals of a small pattern come from its linear plan (linear_plan.py) once the question has
    been asked a few times.
    """
    if group.mixture is not None:
        return group.mixture.answers(whole if len(rows) == whole.rows else whole.take(rows), wanted)
    if group.pattern_form is None:
        group.pattern_form = pattern_form_of(whole.take(group.rows[:1]), group.cover)
    pattern_form = group.pattern_form
    group.asked += 1
    target = whole if len(rows) == whole.rows else whole.take(rows)
    if target is whole and wanted == {"marginals"} and group.asked >= FIRST_PLANNED_QUESTION:
        plan = linear_plan_of(target, pattern_form)
        if plan is not None and (found := plan.run(target)) is not None:
            return found[0], {"mean": found[1], "prob": found[2]}
    p = log_linear_form(target, pattern_form)
    enumerator = make_enumerator(p)
    sums, moments = enumerator.sums(
        bool(NEED_MOMENTS & wanted) + pattern_form.indicators * bool(NEED_PAIR_MOMENTS & wanted)
    )
    log_z, answers = log_sum(sums) + p.const, Answer()
    if np.isneginf(log_z).any():
        return log_z, answers
    if moments is not None:
        answers = FromMoments(target, p, moments).answers(wanted)
    if "mode" in wanted:
        answers["mode"] = mode_of(p, enumerator)
    if rng is not None and "samples" in wanted:
        drawn = draw(p, enumerator, sums, draws, rng)
        answers["samples"] = {n: v.swapaxes(0, 1) for n, v in drawn.items()}
    return log_z, answers
