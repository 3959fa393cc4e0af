"""Auto: the choice of methods, for each part of a question the best one.

A question is divided where its parts have different best methods: log p(evidence) of an undirected
model is log Z with the evidence less log Z without, and for complete rows the first term is exact
while the second one has to be estimated, once for all rows. Quantities that one method gives
together stay together.

Chains that move locally cannot tell whether they have met all valleys. Where a ladder of
temperatures takes no longer than `confirm_seconds`, it is run as well, and answers if the two
disagree.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine.base.checks import check_limit, check_method, seeded
from pgmengine.base.errors import PgmError
from pgmengine.graph.target import Target
from pgmengine.infer.answers import check_want
from pgmengine.infer.exact.method import Exact
from pgmengine.infer.result import Plan, Result, Status, duration
from pgmengine.infer.sampling.ais import AIS
from pgmengine.infer.sampling.forward import Forward
from pgmengine.infer.sampling.mcmc import MCMC
from pgmengine.infer.sampling.parallel_tempering import ParallelTempering
from pgmengine.infer.splitting import answer
from pgmengine.infer.variational.mean_field import MeanField

log = logging.getLogger(__name__)

# Standard errors by which the means of chains and of a ladder may differ. Thousands of units are
# compared, with errors that are estimates themselves.
APART = 6.0

# From the strongest to the weakest: a result of several parts promises as little as the weakest.
GUARANTEES = ("exact", "lower bound", "estimate")


@dataclass(frozen=True)
class Question:
    """A part of what is asked, that one method answers: quantities of one target.

    `normaliser` says that this is log Z without evidence, which log_prob needs besides log Z.
    """

    target: Target
    want: tuple[str, ...]
    difference: bool = False
    normaliser: bool = False

    @property
    def title(self) -> str:
        """The quantities in words."""
        return ", ".join(self.want) + (" without evidence" if self.normaliser else "")


@dataclass(frozen=True)
class Several:
    """Methods that have answered parts of one question, in order."""

    methods: tuple[Any, ...]


@dataclass(frozen=True)
class Auto:
    """Walk the candidates in order; the first whose plan fits and whose run ends well answers.

    Parameters
    ----------
    max_work : unit updates allowed.
    candidates : methods in the order in which they are tried.
    max_seconds : seconds allowed, as plans estimate them for one core: a unit update takes 0.1 ns
        where states are enumerated, 0.2 to 2 ns in compiled sweeps of dense layers, up to 1 us
        where layers of one unit are many, and up to 100 us in the engine for users' own kernels
        and units. Methods that say nothing about seconds are not refused.
    confirm_seconds : seconds allowed for a ladder of temperatures that confirms chains; 0 for none.
    """

    max_work: float = 2e11
    candidates: tuple[Any, ...] = (
        Exact(),
        Forward(below=0),
        MCMC(),
        AIS(),
        Forward(),
        ParallelTempering(),
        MeanField(),
    )
    max_seconds: float = 3600.0
    confirm_seconds: float = 2.0

    def __post_init__(self) -> None:
        check_limit(self, "max_work", "max_seconds", "confirm_seconds")
        if not isinstance(self.candidates, Sequence) or not self.candidates:
            raise PgmError(f"Auto: candidates must be a tuple of methods, not {self.candidates!r}")
        for method in self.candidates:
            check_method(method)

    def plans(self, target: Target, want: Iterable[str]) -> list[Plan]:
        """The plan of every candidate, refused when it takes more work than allowed."""
        return [self._limited(method.plan(target, want)) for method in self.candidates]

    def plan(self, target: Target, want: Iterable[str]) -> Plan:
        """The plan of the candidates that would answer, as one."""
        parts = [(q, self.plans_of(q)) for q in self.questions(target, check_want(want))]
        chosen = [(q, next((p for p in plans if p.accepted), None)) for q, plans in parts]
        for (q, plans), (_, plan) in zip(parts, chosen, strict=True):
            if plan is None:
                title = "" if len(parts) == 1 else f"{q.title}: "
                return Plan("Auto", refusal=title + "; ".join(map(str, plans)))
        return _together([(q, plan) for q, plan in chosen if plan is not None])

    def questions(self, target: Target, want: tuple[str, ...]) -> list[Question]:
        """Return the parts of a question: as few as their best methods allow.

        Where one candidate is the first that can answer each quantity alone, and it can answer all
        of them, the question stays whole.
        """
        whole = Question(target, want)
        best = self._first(whole)
        if "bound" in want and best is not None:
            # A bound and the means of the distribution that gives it belong together.
            return [whole]
        terms = [term for name in want for term in _terms(target, name)]
        first = [self._first(term) for term in terms]
        if None in first or (best is not None and all(i == best for i in first)):
            return [whole]
        grouped: dict[tuple[int, bool], list[Question]] = {}
        for term, index in zip(terms, first, strict=True):
            grouped.setdefault((index or 0, term.normaliser), []).append(term)
        return [
            replace(group[0], want=tuple(dict.fromkeys(w for q in group for w in q.want)))
            for group in grouped.values()
        ]

    def run(
        self,
        target: Target,
        want: Iterable[str] = ("marginals",),
        rng: Any = None,
        state: Any = None,
    ) -> Result:
        """Run the first candidate that can answer; fall through when its status is bad."""
        return self.run_on(None, target, check_want(want), rng, state)

    def run_on(
        self,
        executor: Executor | None,
        target: Target,
        want: tuple[str, ...],
        rng: Any,
        state: Any = None,
    ) -> Result:
        """Answer on an executor, with the same bits as without."""
        parts = self.questions(target, want)
        if len(parts) == 1:
            return self._answer(executor, parts[0], rng, state)
        generator = seeded(rng)
        found = [
            self._answer(executor, q, generator, None if q.normaliser else state) for q in parts
        ]
        return joined_parts(parts, found, want)

    def plans_of(self, question: Question) -> list[Plan]:
        """The plan of every candidate for a part of a question."""
        return [
            self._fitting(question, plan) for plan in self.plans(question.target, question.want)
        ]

    def _first(self, question: Question) -> int | None:
        """The first candidate that can answer, None where none can."""
        for index, method in enumerate(self.candidates):
            if self._plan_of(method, question).accepted:
                return index
        return None

    def _plan_of(self, method: Any, question: Question) -> Plan:
        return self._fitting(question, self._limited(method.plan(question.target, question.want)))

    def _fitting(self, question: Question, plan: Plan) -> Plan:
        """The plan, refused where it bounds one of two terms that are subtracted."""
        if plan.accepted and question.difference and plan.guarantee == "lower bound":
            return replace(plan, refusal="a bound of one term is no bound of a difference")
        return plan

    def _limited(self, plan: Plan) -> Plan:
        if plan.accepted and plan.work > self.max_work:
            return replace(
                plan,
                refusal=f"about {plan.work:.2g} unit updates, the limit is {self.max_work:.2g}",
            )
        if plan.accepted and plan.seconds > self.max_seconds:
            limit = f"the limit is {duration(self.max_seconds)} (Auto's max_seconds)"
            return replace(plan, refusal=f"about {duration(plan.seconds)} on one core, {limit}")
        return plan

    def _answer(
        self, executor: Executor | None, question: Question, rng: Any, state: Any = None
    ) -> Result:
        """Walk the candidates."""
        rng = seeded(rng)
        target, want = question.target, question.want
        refused: list[Plan] = []
        last: Result | None = None
        known: dict[int, Result] = {}
        for index, method in enumerate(self.candidates):
            plan = self._plan_of(method, question)
            if plan.accepted and last is not None and plan.guarantee == "lower bound":
                plan = replace(plan, refusal="an estimate has been made, and a bound says less")
            if not plan.accepted:
                refused.append(plan)
                continue
            log.debug("%s answers", plan)
            ladder = self._ladder(index, question) if getattr(method, "local", False) else None
            asked = want if ladder is None else tuple(dict.fromkeys((*want, "marginals")))
            last = (
                known[index]
                if index in known
                else answer(executor, method, target, asked, rng, state)
            )
            last = replace(last, refused=tuple(refused)) if refused else last
            bad = "" if last.status.good else last.status.value
            if not bad and ladder is not None:
                known[ladder] = answer(executor, self.candidates[ladder], target, asked, rng)
                bad = disagreement(target, last, known[ladder])
                last = (
                    replace(last, status=Status.NOT_MIXED, warnings=(*last.warnings, bad))
                    if bad
                    else last
                )
            if not bad:
                return last
            log.info("%s ended badly (%s): the next candidate is asked", plan.method, bad)
            refused.append(replace(plan, refusal=bad))
        if last is None:
            raise PgmError("no method can answer: " + "; ".join(map(str, refused)))
        return last

    def _ladder(self, index: int, question: Question) -> int | None:
        """The first later candidate with a ladder of temperatures that is cheap enough to confirm
        chains.
        """
        for later in range(index + 1, len(self.candidates)):
            if getattr(self.candidates[later], "tempered", False):
                plan = self._plan_of(self.candidates[later], question)
                if plan.accepted and plan.seconds <= self.confirm_seconds:
                    return later
        return None


def drawing(draws: int) -> Auto:
    """Return an Auto whose candidates draw at least so many samples, the chains of MCMC far apart."""
    return Auto(
        candidates=(
            Exact(draws=draws),
            Forward(draws=max(draws, 2)),
            MCMC(chains=4, draws=max(4, -(-draws // 4)), thin=10),
        )
    )


def disagreement(target: Target, chains: Result, ladder: Result) -> str:
    """Return where the means of chains and those of a ladder differ by more than their errors, or
    nothing.
    """
    for name, layer in target.structure.layers.items():
        gap = np.abs(
            np.asarray(chains.answers["mean"][name]) - np.asarray(ladder.answers["mean"][name])
        )
        one, two = (np.reshape(r.stats["mcse"][name], gap.shape) for r in (chains, ladder))
        with np.errstate(invalid="ignore"):
            # Series that were not examined have no error: NaN, no verdict.
            apart = np.flatnonzero(gap > APART * np.hypot(one, two))
        if len(apart):
            return (
                f"a ladder of temperatures disagrees on {len(apart)} means of layer {layer.name!r}, by up to "
                f"{gap.ravel()[apart].max():.3g}"
            )
    return ""


def _terms(target: Target, name: str) -> list[Question]:
    """A quantity as the terms that may have different best methods."""
    if name != "log_prob" or target.structure.normalized:
        return [Question(target, (name,))]
    return [
        Question(target, ("log_z",), difference=True),
        Question(target.nothing_observed, ("log_z",), difference=True, normaliser=True),
    ]


def joined_parts(
    parts: Sequence[Question], found: Sequence[Result], want: tuple[str, ...]
) -> Result:
    """Return one result from those of the parts of a question."""
    own = [(q, r) for q, r in zip(parts, found, strict=True) if not q.normaliser]
    answers = {name: value for _, r in own for name, value in r.answers.items()}
    stats = {name: value for _, r in own for name, value in r.stats.items()}
    whole = next((r for q, r in zip(parts, found, strict=True) if q.normaliser), None)
    if whole is not None:
        answers["log_prob"] = answers["log_z"] - whole.answers["log_z"]
        stats["log_prob_error"] = np.hypot(answers["log_z_error"], whole.answers["log_z_error"])
        stats["without_evidence"] = whole.stats
    plan = _together([(q, r.plan) for q, r in zip(parts, found, strict=True)])
    methods = tuple(
        r.method
        for i, r in enumerate(found)
        if r.method not in [other.method for other in found[:i]]
    )
    status = next(
        (r.status for r in found if not r.status.good),
        next((r.status for r in found if r.status is not Status.OK), Status.OK),
    )
    refused = tuple(dict.fromkeys(p for r in found for p in r.refused))
    notes = tuple(
        f"{'without evidence, ' if q.normaliser else ''}{line}"
        for q, r in zip(parts, found, strict=True)
        for line in r.warnings
    )
    return Result(
        answers,
        _weakest([r.kind for r in found]),
        methods[0] if len(methods) == 1 else Several(methods),
        plan,
        status,
        refused,
        stats,
        next((r.state for _, r in own if r.state is not None), None),
        tuple(dict.fromkeys(notes)),
    )


def _weakest(kinds: Sequence[str]) -> str:
    return max(
        kinds, key=lambda kind: GUARANTEES.index(kind) if kind in GUARANTEES else len(GUARANTEES)
    )


def _together(chosen: Sequence[tuple[Question, Plan]]) -> Plan:
    """Plans of the parts of a question as one."""
    plans = [plan for _, plan in chosen]
    if len(plans) == 1:
        return plans[0]
    return Plan(
        " + ".join(dict.fromkeys(p.method for p in plans)),
        _weakest([p.guarantee for p in plans]),
        "; ".join(f"{q.title} by {p.method}: {p.why}" for q, p in chosen),
        sum(p.work for p in plans),
        max(p.bytes for p in plans),
        seconds=sum(p.seconds for p in plans),
    )


def asked_for(
    answers: Mapping[str, Any], want: tuple[str, ...], which: Mapping[str, str]
) -> dict[str, Any]:
    """Return the answers that belong to what is wanted, whatever else a method found on the way.

    log_z belongs to log_prob, too, of which it is a part.
    """
    wanted = {*want, "log_z"} if "log_prob" in want else {*want}
    return {name: value for name, value in answers.items() if which.get(name, name) in wanted}
