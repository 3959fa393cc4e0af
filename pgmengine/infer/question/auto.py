"""Auto: the choice of methods, the best one for each part of a question.

A question is divided if its parts have different best methods. For example, log p(evidence) of an
undirected model is log Z with the evidence minus log Z without evidence. For complete rows the
first term is exact, while the second has to be estimated, once for all rows. Quantities that one
method gives together stay together.

For each part, the candidates are tried in order:

    The first candidate whose plan is accepted and within the limits is run. If its run ends well,
    it answers. Chains that move locally cannot tell whether they have visited all modes. A ladder
    of temperatures therefore runs as well: if it takes `confirm_seconds` or less, and where chains
    from opposite starts stayed apart for long, if it takes `retry_seconds` or less.

A ladder that has run and ended well answers, whatever the chains say. The reason: chains that have
nearly missed a part of little weight agree best, so that a choice by their agreement would prefer
them. The time in which chains meet, which decides about the ladder, does not depend on the draws.

A doubtful answer of local chains is replaced by the answer of any later candidate. Rows whose
chains have mixed keep their answers, and only the other rows are asked again. Each later candidate
may take at most `retry_seconds`. The reason: an RBM 784x100 completes 200 half images in 3 s, 38 of
them well; longer chains complete 113 more in 12 s, and a ladder takes two minutes for all of them.

A doubtful answer of another method, such as annealing, is replaced by a good or a better one, and a
later candidate is tried only if it takes `confirm_seconds` or less. The reason: for RBMs 784x100
and 784x500 trained on digits, ladders took 5 to 28 s after annealing, made too few round trips, and
were up to 5 nats further from long runs. Of two doubtful answers, one of chains that did not travel
or mix is the worse one, because its errors are not known. Otherwise the better log Z is the one
with the higher lower end: estimates by importance weights are seldom far too high (references.py),
and often too low. The better means have the smaller error.

An approximation, whose error nobody knows, is the last resort: it answers where no other candidate
can or ends well, and says so. It does not answer some rows beside estimates of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

import numpy as np

from pgmengine.base.checks import check_limit, check_method, real, seeded
from pgmengine.base.display import counted
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.pace import pace
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.convergence import ENERGY_ROUNDING, NORMAL_95
from pgmengine.infer.diagnostics.trust import MAX_MEAN_GAP_IN_ERRORS, met_soon
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.messages.belief_propagation import BeliefPropagation
from pgmengine.infer.modes.mode_search import ModeSearch
from pgmengine.infer.modes.toulbar2 import Toulbar2
from pgmengine.infer.question.joining import (
    joined_parts,
    joined_plans,
    rows_of,
    unmixed_rows,
    with_rest,
)
from pgmengine.infer.question.precision import largest_error
from pgmengine.infer.question.prepared import (
    AnyMethod,
    AnyPrepared,
    Method,
    MethodLike,
    Prepared,
    as_method,
)
from pgmengine.infer.question.splitting import answer
from pgmengine.infer.question.wanted import check_want
from pgmengine.infer.results.result import AnyPlan, Plan, Result, Status, duration_here
from pgmengine.infer.sampling.clusters.cluster_ladder import ClusterLadder
from pgmengine.infer.sampling.clusters.swendsen_wang import SwendsenWang
from pgmengine.infer.sampling.draws.rao_blackwell import NOTABLE_GAP_ERRORS
from pgmengine.infer.sampling.methods.ais import AIS
from pgmengine.infer.sampling.methods.forward import Forward
from pgmengine.infer.sampling.methods.mcmc import MCMC
from pgmengine.infer.sampling.methods.parallel_tempering import ParallelTempering
from pgmengine.infer.variational.mean_field import MeanField

log = logging.getLogger(__name__)

LAST_RESORT = (
    "no method with a guarantee or an error can answer, or none has ended well: `refused` says why"
)


@dataclass(frozen=True)
class Auto(Method["tuple[Choice, ...]"]):
    """The first of several methods whose plan fits and whose run ends well.

    It is the default of `infer`. Pass another method to `infer` for control over its settings.

    Parameters
    ----------
    max_work : largest number of unit updates; no limit by default.
    candidates : methods in the order in which they are tried.
    max_seconds : largest time in seconds of a candidate, as its plan estimates it for one core
        from measured rates; ten minutes by default. The estimate is the same on every computer, so
        that the same candidate answers everywhere. Methods without an estimate are not refused.
        `seconds` of `infer` sets this limit and `retry_seconds` for one question, in seconds of
        this computer (`pgmengine doctor` shows its pace).
    confirm_seconds : largest time in seconds of a ladder of temperatures that runs beside chains
        which meet soon, and of a method that is tried after a doubtful answer of annealing; 0 for
        neither, and for no ladder beside any chains.
    retry_seconds : largest time in seconds of a method that answers rows whose chains have not
        mixed, and of a ladder beside chains that stayed apart for long. If none is as fast,
        `warnings` says how long the next one would take.

    Notes
    -----
    log_prob of undirected models is log Z with the evidence minus log Z without evidence. Where
    every estimate of the first term would take too long, such as annealing for thousands of rows, a
    lower bound takes its place (Salakhutdinov and Hinton 2009). log_prob is then a lower bound if
    log Z without evidence is exact. Otherwise it is an estimate of a lower bound, and the status is
    ESTIMATED_BOUND.

    >>> import pgmengine as pgm
    >>> auto = pgm.Auto(max_seconds=10.0)
    >>> pgm.infer(pgm.rbm(4, 2, rng=0), method=auto).method
    Exact(max_bits=25, draws=1000, max_states=1073741824, max_work=4294967296)
    """

    divides = True

    max_work: float = np.inf
    candidates: tuple[MethodLike, ...] = (
        Exact(),
        Forward(below=0),
        SwendsenWang(),
        MCMC(),
        MCMC(warmup=1000, thin=10),
        ClusterLadder(),
        AIS(),
        Forward(),
        ParallelTempering(),
        MeanField(),
        Toulbar2(),
        ModeSearch(),
        BeliefPropagation(),
    )
    max_seconds: float = 600.0
    confirm_seconds: float = 2.0
    retry_seconds: float = 10.0

    def __post_init__(self) -> None:
        check_limit(self, "max_work", "max_seconds", "confirm_seconds", "retry_seconds")
        if not isinstance(self.candidates, Sequence) or not self.candidates:
            raise PgmError(
                f"Auto: candidates must be a tuple of methods, not {told(self.candidates)}"
            )
        for method in self.candidates:
            check_method(method)

    def planned(self, target: Target, want: tuple[str, ...]) -> Prepared[tuple[Choice, ...]]:
        """Choose the parts of a question, and the first candidate of each."""
        choices, chosen, most = self.choices(target, want), list[AnyPlan](), 0.0
        for choice in choices:
            first = choice.first(target)
            if first is None:
                why = choice.refusal(target)
                why = f"{choice.title}: {why}" if len(choices) > 1 else why
                return Prepared(self, want, Plan("Auto", refusal=why, basis=choices), target)
            chosen.append(choice.known[first][1])
            most += choice.longest(target, first)
        plan = replace(joined_plans(choices, chosen), basis=choices, terms=(), most_seconds=most)
        return Prepared(self, want, plan, target)

    def cannot(self, plan: AnyPlan) -> str:
        """Return the message where no candidate can answer."""
        return f"no method can answer: {plan.refusal}"

    def decided(self, question: AnyPrepared) -> AnyPrepared:
        """Return the question to `Exact` where it is first: no other candidate would be asked."""
        choices: tuple[Choice, ...] = question.plan.basis
        if len(choices) == 1 and 0 in choices[0].known:
            method, plan = choices[0].known[0]
            if type(method) is Exact and not plan.refusal:
                return Prepared(method, question.want, plan, question.target)
        return question

    def plans(self, target: Target, want: Iterable[str]) -> list[AnyPlan]:
        """Return the plan of every candidate for the whole of a question."""
        return list(Choice(self, check_want(target.structure, want)).plans(target))

    def choices(self, target: Target, want: tuple[str, ...]) -> tuple[Choice, ...]:
        """Return the parts of a question: quantities with the same best method are one part.

        The question is not divided if one candidate is the best for each quantity by itself, and
        can answer all of them together.
        """
        whole = Choice(self, want)
        divisible = "log_prob" in want and not target.structure.normalized
        if len(want) == 1 and not divisible:
            return (whole,)
        best = whole.first(target)
        if "bound" in want and best is not None:
            # A bound and the means of its distribution come from the same run.
            return (whole,)
        # log_z is a term of log_prob. One part gives both, so that one method answers both.
        both = {"log_z", "log_prob"} if divisible else set[str]()
        terms = [Choice(self, (name,)) for name in want if name not in both]
        if divisible:
            at = want.index("log_prob")
            terms[at:at] = [
                Choice(self, ("log_z",), difference=True, normaliser=normaliser)
                for normaliser in (False, True)
            ]
        first = [term.first(target) for term in terms]
        if None in first or (best is not None and all(index == best for index in first)):
            return (whole,)
        grouped: dict[tuple[int | None, bool], list[Choice]] = {}
        for term, index in zip(terms, first, strict=True):
            grouped.setdefault((index, term.normaliser), []).append(term)
        return tuple(
            replace(
                group[0],
                want=tuple(dict.fromkeys(w for c in group for w in c.want)),
                difference=any(c.difference for c in group),
                known={},
            )
            for group in grouped.values()
        )

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Answer every part by the first candidate whose run ends well."""
        choices: tuple[Choice, ...] = question.plan.basis
        if len(choices) == 1:
            return self._first_good(choices[0], question.target, executor, rng, state)
        generator = seeded(rng)
        found = [
            self._first_good(
                c, question.target, executor, generator, None if c.normaliser else state
            )
            for c in choices
        ]
        return joined_parts(choices, found)

    def _first_good(
        self,
        choice: Choice,
        target: Target,
        executor: Executor | None,
        rng: RngLike,
        state: Snapshot | None,
        begin: int = 0,
        last: Result | None = None,
    ) -> Result:
        """Try the candidates in order, until a run ends well.

        If no run ends well, return the best result (`_better`). Candidates before `begin` have been
        tried, and `last` is the best of their results.
        """
        # The candidates share one stream of random numbers.
        rng = None if rng is None else seeded(rng)
        refused, slow = list[AnyPlan](), list[str]()
        # Results of ladders that were run to confirm chains; they need not be run again.
        ladders: dict[int, Result] = {}
        for index in range(begin, len(self.candidates)):
            question = choice.question(target, index)
            plan = question.plan.bare
            if last is not None and not plan.refusal:
                why = self._needless(plan, last, begin > 0) or self._slow(plan, last)
                plan = replace(plan, refusal=why)
                slow += [why] * bool(self._slow(plan, last))
            if plan.refusal:
                refused.append(plan)
                continue
            if last is not None:
                chains = last.status.known_wrong or as_method(last.method).local
                most = self.retry_seconds if chains else self.confirm_seconds
                question = _within_seconds(question, most)
            log.debug("%s answers", plan)
            found, bad = self._asked(choice, question, index, executor, rng, state, ladders)
            if refused:
                found = replace(found, refused=(*refused, *found.refused))
            if not bad:
                return _last_resort(found) if refused else found
            rows = _doubtful_rows(choice, target, found, state)
            if rows is not None:
                log.info("%s ended badly in %d rows (%s)", plan.method, rows.sum(), bad)
                some, left = target.take(np.flatnonzero(rows)), replace(choice, known={})
                own = rows_of(found, np.flatnonzero(rows))
                rest = self._first_good(left, some, executor, rng, None, index + 1, own)
                return with_rest(found, rest, rows, target)
            if last is None or _better(found, last):
                last = found
            log.info("%s ended badly (%s): the next candidate is asked", plan.method, bad)
            refused.append(replace(plan, refusal=bad))
        if last is None:
            raise PgmError("no method can answer: " + choice.refusal(target))
        return replace(last, warnings=(*last.warnings, *slow))

    def _needless(self, plan: AnyPlan, doubtful: Result, of_some_rows: bool) -> str:
        """Return why a candidate need not follow a doubtful answer, or an empty string."""
        if plan.guarantee == "lower bound":
            return "there is an estimate already, which says more than a bound"
        if plan.guarantee == "approximation" and of_some_rows:
            return "other rows have estimates, which say more than an approximation"
        if doubtful.status.known_wrong or as_method(doubtful.method).local:
            return ""
        if plan.seconds > self.confirm_seconds:
            return (
                f"about {duration_here(plan.seconds)}, where {plan.method} would follow an estimate"
            )
        return ""

    def _slow(self, plan: AnyPlan, doubtful: Result) -> str:
        """Return why a candidate would take too long after chains, or an empty string."""
        chains = not doubtful.status.known_wrong and as_method(doubtful.method).local
        if not chains or plan.guarantee == "lower bound" or plan.seconds <= self.retry_seconds:
            return ""
        # The factor makes up for rounding to two digits: the limit is not below the time.
        enough = float(f"{1.05 * plan.seconds * pace():.2g}")
        about = f"about {duration_here(plan.seconds)}"
        return f"{plan.method} may give a better answer in {about}: ask with seconds={enough:.15g}"

    def _asked(
        self,
        choice: Choice,
        question: AnyPrepared,
        index: int,
        executor: Executor | None,
        rng: RngLike,
        state: Snapshot | None,
        ladders: dict[int, Result],
    ) -> tuple[Result, str]:
        """Return the result of a candidate, and the reason not to trust it, or an empty string."""
        if index in ladders:
            result = ladders[index]
            return result, _reason(result)
        target = question.target
        ladder = self._ladder(choice, target, index) if question.method.local else None
        if ladder is None:
            result = answer(executor, question, rng, state)
            return result, _reason(result)
        # The means are computed in any case, because they are compared.
        both = tuple(dict.fromkeys((*choice.want, "marginals")))
        compared = choice if both == choice.want else replace(choice, want=both, known={})
        result = answer(executor, compared.question(target, index), rng, state)
        soon = met_soon(result.stats, getattr(question.method, "thin", 1))
        most = self.confirm_seconds if soon else max(self.confirm_seconds, self.retry_seconds)
        beside = _within_seconds(compared.question(target, ladder), most)
        slow = soon and beside.plan.seconds > self.confirm_seconds
        if not result.status.good or slow:
            return result, _reason(result)
        if ladder not in ladders:
            ladders[ladder] = answer(executor, beside, rng)
        bad = disagreement(target, result, ladders[ladder])
        if ladders[ladder].status.good:
            found = with_difference(target, ladders[ladder], result)
            why = bad or "a ladder of temperatures has run as well, and ended well"
            return replace(found, refused=(replace(result.plan, refusal=why),)), ""
        if bad:
            result = replace(result, status=Status.NOT_MIXED, warnings=(*result.warnings, bad))
        return result, bad

    def _ladder(self, choice: Choice, target: Target, index: int) -> int | None:
        """Return the first later candidate whose ladder is cheap enough to run beside chains."""
        most = max(self.confirm_seconds, self.retry_seconds) if self.confirm_seconds else 0.0
        for later in range(index + 1, len(self.candidates)):
            if as_method(self.candidates[later]).tempered:
                plan = choice.question(target, later).plan
                if plan.accepted and plan.seconds <= most:
                    return later
        return None

    def limited(self, plan: AnyPlan) -> str:
        """Return the limit that a plan exceeds, as a refusal, or an empty string."""
        if plan.work > self.max_work:
            return f"about {plan.work:.2g} unit updates, the limit is {self.max_work:.2g}"
        if plan.most_seconds > self.max_seconds:
            takes = plan.seconds if plan.seconds > self.max_seconds else plan.most_seconds
            limit = f"the limit is {duration_here(self.max_seconds)} (Auto's max_seconds)"
            return f"about {duration_here(takes)} on one core, {limit}"
        return ""


@dataclass(frozen=True, eq=False)
class Choice:
    """A part of a question, with its candidates, each planned when it is first needed.

    It holds neither model nor evidence. Its methods take targets, which have the model and the
    evidence; all these targets have the same evidence pattern.

    Attributes
    ----------
    auto : candidates and limits.
    want : the quantities of this part.
    difference : whether its log Z is one of the two terms of log_prob.
    normaliser : whether this term is log Z without evidence.
    known : number of a candidate -> the method, with settings that fit the limits, and its plan.
    """

    auto: Auto
    want: tuple[str, ...]
    difference: bool = False
    normaliser: bool = False
    known: dict[int, tuple[AnyMethod, AnyPlan]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The quantities in words."""
        return ", ".join(self.want) + (" without evidence" if self.normaliser else "")

    def question(self, target: Target, index: int) -> AnyPrepared:
        """Return the question as one candidate prepares it, refused if it exceeds the limits."""
        here = target.nothing_observed if self.normaliser else target
        if index not in self.known:
            method = as_method(self.auto.candidates[index])
            found = method.planned(here, self.want)
            if not found.plan.refusal and found.plan.most_seconds > self.auto.max_seconds:
                faster = method.faster(here, self.want, self.auto.max_seconds)
                found = found if faster is None else faster.planned(here, self.want)
            if not found.plan.refusal:
                bounds = self.difference and found.plan.guarantee == "lower bound"
                why = "a bound of log Z is no bound of log p" if bounds and self.normaliser else ""
                why = why or (self._estimated(target, index) if bounds else "")
                why = why or self.auto.limited(found.plan)
                if why:
                    found = replace(found, plan=replace(found.plan, refusal=why))
                elif bounds:
                    found = replace(found, plan=_of_a_difference(found.plan))
            self.known[index] = found.method, found.plan
        method, plan = self.known[index]
        return Prepared(method, self.want, plan, here)

    def _estimated(self, target: Target, index: int) -> str:
        """Return the reason to refuse a bound, a later candidate's estimate, or an empty string."""
        later = range(index + 1, len(self.auto.candidates))
        plans = (self.question(target, i).plan for i in later)
        weaker = ("lower bound", "approximation")
        estimate = next((p for p in plans if p.accepted and p.guarantee not in weaker), None)
        return "" if estimate is None else f"{estimate.method} estimates log p itself"

    def longest(self, target: Target, index: int) -> float:
        """Return the seconds of a candidate with all that may follow if its chains do not mix."""
        method, plan = self.known[index]
        most, several = plan.most_seconds, len(self.auto.candidates)
        for later in range(index + 1, several if method.local else 0):
            other = self.question(target, later).plan
            follows = other.accepted and other.guarantee != "lower bound"
            most += other.seconds * (follows and other.seconds <= self.auto.retry_seconds)
        return most

    def plans(self, target: Target) -> Iterator[AnyPlan]:
        """Yield the plan of every candidate."""
        return (
            self.question(target, index).plan.bare for index in range(len(self.auto.candidates))
        )

    def refusal(self, target: Target) -> str:
        """Return why no candidate can answer, and which one would be the fastest without limit."""
        plans = list(self.plans(target))
        # Plans that a method has refused itself have no guarantee.
        slow = [
            i for i, p in enumerate(plans) if p.guarantee and p.most_seconds > self.auto.max_seconds
        ]
        if not slow:
            # A plan that a limit alone refuses says more than the first one.
            shown = next((p for p in plans if p.guarantee), plans[0])
            others = len({p.method for p in plans} - {shown.method})
            more = f"; {counted(others, 'other method')} cannot either, and explain says why"
            return f"{shown}{more * (others > 0)}"
        best = min(slow, key=lambda i: (plans[i].guarantee == "approximation", plans[i].seconds))
        time, memory = duration_here(plans[best].seconds), plans[best].sizes[2]
        # The factor makes up for rounding to two digits: the limit is not below the time.
        limit = float(f"{1.05 * plans[best].seconds * pace():.2g}")
        rows = int(target.rows * self.auto.max_seconds / plans[best].seconds)
        fewer = f", or about {rows} rows at a time" * (rows > 0)
        return (
            f"{self.auto.candidates[best]!r} would take about {time} on one core and {memory}: ask "
            f"with seconds={limit:.15g}{fewer}"
        )

    def first(self, target: Target) -> int | None:
        """Return the number of the first candidate that can answer, or None."""
        for index in range(len(self.auto.candidates)):
            if not self.question(target, index).plan.refusal:
                return index
        return None


def _doubtful_rows(
    choice: Choice, target: Target, found: Result, state: Snapshot | None
) -> Array | None:
    """Return a mask (rows,) of the rows that chains have not answered well.

    It is None if the rows cannot be asked again by themselves, or if no row has a good answer.
    """
    divisible = not choice.normaliser and state is None and "gradient" not in choice.want
    if not divisible or found.status.known_wrong or not as_method(found.method).local:
        return None
    rows = unmixed_rows(found, target.structure, target.rows)
    return rows if rows.any() and not rows.all() else None


def _last_resort(found: Result) -> Result:
    """Return a result that says so where it is an approximation, after other candidates."""
    if found.kind != "approximation":
        return found
    return replace(found, warnings=(*found.warnings, LAST_RESORT))


def _within_seconds(question: AnyPrepared, seconds: float) -> AnyPrepared:
    """Return a ladder's question with settings that take at most `seconds`, if there are some."""
    if not question.method.tempered or question.plan.most_seconds <= seconds:
        return question
    faster = question.method.faster(question.target, question.want, seconds)
    return question if faster is None else faster.planned(question.target, question.want)


def _better(found: Result, last: Result) -> bool:
    """Return whether a doubtful answer is better than the one of an earlier candidate."""
    if last.status.known_wrong or found.status.known_wrong:
        return last.status.known_wrong
    if as_method(last.method).local:
        return True
    blind = [r.status in (Status.FEW_TRIPS, Status.NOT_MIXED) for r in (found, last)]
    if blind[0] != blind[1]:
        return blind[1]
    for name in ("log_z_interval", "log_prob_interval"):
        if all(name in r.answers for r in (found, last)):
            low, before = (np.fmax(r.answers[name][:, 0], -np.inf) for r in (found, last))
            return bool(np.count_nonzero(low > before) > np.count_nonzero(low < before))
    return largest_error(found) < largest_error(last)


def _of_a_difference(plan: AnyPlan) -> AnyPlan:
    """Return the plan of a bound of a term of log_prob; it says what log_prob is."""
    what = "log_prob is this bound less log Z, an estimate of a lower bound if log Z is estimated"
    return replace(plan, why=f"{plan.why}; {what}")


def _reason(result: Result) -> str:
    """Return the reason to ask the next candidate, or an empty string.

    If log weights have lost their digits, no other method can do better, and the string is empty.
    """
    accepted = result.status.good or result.status is Status.ROUNDED
    return "" if accepted else result.status.value


def only(method: MethodLike, seconds: float = np.inf) -> Auto:
    """Return an Auto with one candidate and a time limit."""
    return Auto(candidates=(method,), max_seconds=seconds, confirm_seconds=0.0)


def within(method: MethodLike, seconds: float | None) -> MethodLike:
    """Return a method whose plans are refused above a time; None leaves it as it is."""
    if seconds is None:
        return method
    if not real(seconds) > 0:
        raise PgmError(f"seconds must be a number above 0, or math.inf, not {told(seconds)}")
    # Users give seconds of their machine, and plans have those of the machine of the prices.
    most = float(seconds) / pace()
    if isinstance(method, Auto):
        return replace(method, max_seconds=most, retry_seconds=most)
    return only(method, most)


def drawing(draws: int) -> Auto:
    """Return an Auto whose candidates draw at least `draws` samples, MCMC with ten sweeps each."""
    far_apart = MCMC(chains=4, draws=max(4, -(-draws // 4)), thin=10)
    return Auto(candidates=(Exact(draws=draws), Forward(draws=max(draws, 2)), far_apart))


def with_difference(target: Target, ladder: Result, chains: Result) -> Result:
    """Return the answer of a ladder, with errors that cover its difference from chains.

    Differences of up to NOTABLE_GAP_ERRORS standard errors, of a unit and of the sum over its
    layer, are due to chance and change nothing.
    """
    wider = {}
    for each in _differences(target, ladder, chains):
        in_total = max(each.in_total, default=0.0) > NOTABLE_GAP_ERRORS
        with np.errstate(invalid="ignore"):
            notable = in_total | (each.score > NOTABLE_GAP_ERRORS)
            beyond = np.hypot(each.own, np.maximum(each.gap / NORMAL_95 - each.other, 0.0))
        error = np.where(notable, beyond, each.own)
        wider[each.name] = error.reshape(np.shape(ladder.stats["mcse"][each.name]))
    return replace(ladder, stats={**ladder.stats, "mcse": wider})


def disagreement(target: Target, chains: Result, ladder: Result) -> str:
    """Return the layer whose means differ between chains and a ladder, or an empty string.

    Means of units, sums over a layer and energies differ if they are more than
    MAX_MEAN_GAP_IN_ERRORS standard errors apart.
    """
    for each in _differences(target, chains, ladder):
        apart = np.flatnonzero(each.score > MAX_MEAN_GAP_IN_ERRORS)
        if len(apart):
            return (
                f"a ladder of temperatures disagrees on {len(apart)} means of layer "
                f"{each.name!r}, by up to {each.gap.ravel()[apart].max():.3g}"
            )
        if max(each.in_total, default=0.0) > MAX_MEAN_GAP_IN_ERRORS:
            return (
                f"a ladder of temperatures disagrees on the sum over layer {each.name!r}, by "
                f"{max(each.in_total):.3g} standard errors"
            )
    return _other_energy(chains, ladder)


def _other_energy(chains: Result, ladder: Result) -> str:
    """Return that the mean energies of two answers differ, or an empty string."""
    if not all("energy_mcse" in r.stats for r in (chains, ladder)):
        return ""
    one, two = (np.mean(r.stats["energy"], axis=(0, 1)) for r in (chains, ladder))
    error = np.hypot(chains.stats["energy_mcse"], ladder.stats["energy_mcse"])
    # Impossible draws, whose energy is infinite, have warnings of their own.
    with np.errstate(invalid="ignore"):
        gap = np.abs(one - two)
        apart = gap > MAX_MEAN_GAP_IN_ERRORS * error + ENERGY_ROUNDING * (1.0 + np.abs(one))
    if not apart.any():
        return ""
    return f"a ladder of temperatures disagrees on the mean energy, by up to {gap[apart].max():.3g}"


@dataclass(frozen=True, eq=False)
class _Difference:
    """The difference of two answers about the means of a layer.

    Attributes
    ----------
    name : the layer.
    gap : the sizes of the differences of means; `own` and `other` are the errors of the means.
    in_total : differences of sums over the layer in standard errors; empty for a layer of one unit.
    """

    name: str
    gap: Array
    own: Array
    other: Array
    in_total: tuple[float, ...]

    @property
    def score(self) -> Array:
        """The differences in standard errors; 0 where there is none."""
        # Series that were not examined have the error NaN, and are not compared.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.gap > 0, self.gap / np.hypot(self.own, self.other), 0.0)


def _differences(target: Target, one: Result, two: Result) -> Iterator[_Difference]:
    """Yield the difference of the means of each layer."""
    for name, layer in target.structure.layers.items():
        means = [np.asarray(r.answers["mean"][name], dtype=np.float64) for r in (one, two)]
        own, other = (np.reshape(r.stats["mcse"][name], means[0].shape) for r in (one, two))
        total: tuple[float, ...] = ()
        if name in one.stats.get("sum_mcse", {}):
            errors = np.hypot(*(r.stats["sum_mcse"][name] for r in (one, two)))
            sums = [m.reshape(len(errors), layer.size, -1).sum(axis=1) for m in means]
            errors = errors.reshape(sums[0].shape)
            with np.errstate(divide="ignore", invalid="ignore"):
                score = np.abs(sums[0] - sums[1]) / errors
            total = tuple(score[np.isfinite(score)].tolist())
        yield _Difference(name, np.abs(means[0] - means[1]), own, other, total)
