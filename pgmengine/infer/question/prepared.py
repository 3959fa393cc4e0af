"""Methods and prepared questions: a method plans a question once, and may answer it many times.

`method.prepare(target, want)` returns a `Prepared`. `explain` shows its `plan`, and its `run`
answers. The plan holds the results of planning (covers, elimination orders, ladders) as its
`basis`, so that none is computed twice. A plan does not refer to model and evidence: it can be
remembered, and answers any values under the same evidence pattern.

log p of the evidence is log Z with the evidence less log Z without. A method that gives log Z
therefore gives log p as well, by two questions, which are planned and joined here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, cast

import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.equal_rows import distinct
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.memory import no_room
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.rounding import (
    check_digits,
    checked_difference,
    ease,
    fits,
    raised,
    with_summed_rounding,
    withheld,
)
from pgmengine.infer.question.missing_cells import check_partly, partly_observed, with_cells
from pgmengine.infer.question.wanted import check_want
from pgmengine.infer.results.axes import Statistics, check_rows
from pgmengine.infer.results.result import (
    WANTS,
    AnyPlan,
    Basis,
    Plan,
    Result,
    Status,
    joint_plan,
    quantity,
)
from pgmengine.model.structure import Structure

# The most quantities that a refusal names.
MOST_MISSING = 3


class Scheme(Plan[Any]):
    """A plan without the name of its method, as `Method.scheme` returns it.

    Parameters
    ----------
    how : the way in words.
    work : unit updates.
    bytes : peak memory besides the model: evidence, answers and working arrays (`peak_bytes`).
    seconds : time on one core.
    basis : results of planning that the answer needs, such as a cover.
    refusal : the reason why it cannot answer, or an empty string.
    most_seconds : the longest time on one core, where that depends on what the run finds; else 0.
        A method with such plans defines `faster`, which then takes no longer than `seconds`.

    >>> import pgmengine as pgm
    >>> pgm.Scheme("100 chains", work=1e6).refusal
    ''
    """

    def __init__(
        self,
        how: str = "",
        work: float = 0.0,
        bytes: float = 0.0,
        seconds: float = 0.0,
        basis: Any = None,
        refusal: str = "",
        most_seconds: float = 0.0,
    ) -> None:
        super().__init__("", "", how, work, bytes, refusal, seconds, most_seconds, basis)


class Method(Generic[Basis]):
    """Base of the inference methods: frozen dataclasses whose fields are their settings.

    A new method says which quantities it `gives`, and defines `scheme` and `answer`. It inherits
    `prepare`, the checks of wanted quantities and of free memory, splitting and caching. With
    `subtracts` it inherits log_prob as well. `Basis` is the type of the results of planning that
    its answers need.

    Attributes
    ----------
    gives : the wanted quantities that it can answer.
    source : the first words of the refusal of other quantities, as in "draws give no mode".
    guarantee : "exact", "bounds", "lower bound", "estimate" or "approximation".
    statistics : the entries of `Result.stats` with their axes.
    local : whether its chains move locally, so that Auto confirms their answers.
    tempered : whether it has a ladder of temperatures that can confirm local chains.
    groups_chains : whether it can divide the chains of a single row among workers itself.
    divides : whether it divides questions itself, as Auto does.
    single : whether its chains compute in single precision.
    subtracts : whether it leaves log_prob to the difference of two answers about log_z.

    >>> import pgmengine as pgm
    >>> class Independent(pgm.Method):
    ...     gives = frozenset({"log_z"})
    ...     def scheme(self, target, want):
    ...         return pgm.Scheme("units as they are at beta = 0", work=target.rows)
    ...     def answer(self, question, rng, state=None, executor=None):
    ...         return question.result({"log_z": question.target.log_z_at_0()})
    >>> pgm.infer(pgm.rbm(2, 1), want=("log_z",), method=Independent()).log_z.round(3)
    array([2.079])
    """

    gives: ClassVar[frozenset[str]] = frozenset(WANTS)
    source: ClassVar[str] = "it can give"
    guarantee: ClassVar[str] = "estimate"
    statistics: Statistics = {}
    local: ClassVar[bool] = False
    tempered: ClassVar[bool] = False
    groups_chains: ClassVar[bool] = False
    divides: ClassVar[bool] = False
    single: ClassVar[bool] = False
    subtracts: ClassVar[bool] = False

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[Basis]:
        """Return the way in which the method would answer, or a plan with a refusal."""
        raise NotImplementedError

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Answer a question that it has accepted.

        Parameters
        ----------
        question : target, wanted quantities, plan and basis.
        rng : int, numpy Generator or None.
        state : the snapshot of an earlier result, or None.
        executor : a concurrent.futures.Executor; methods without `groups_chains` may ignore it.
        """
        raise NotImplementedError

    def unmixed(self, stats: Mapping[str, Any], structure: Structure) -> tuple[str, ...]:
        """Return a warning for everything that has not mixed, from the statistics of all rows.

        `structure` has the names of variables.
        """
        return ()

    def faster(self, target: Target, want: tuple[str, ...], seconds: float) -> AnyMethod | None:
        """Return the method with settings that take at most `seconds`, or None if there are none.

        Auto asks for them if the plan of the method itself would take longer.
        """
        return None

    def decided(self, question: AnyPrepared) -> AnyPrepared:
        """Return a planned question as the method answers it that planning has chosen for good."""
        return question

    def cannot(self, plan: AnyPlan) -> str:
        """Return the message of the error that is raised when a refused question is run."""
        return f"{plan.method} refused: {plan.refusal}"

    def prepare(self, target: Target, want: Iterable[str]) -> Prepared[Basis]:
        """Plan a question, and return it as prepared for answers."""
        return self.planned(target, check_want(target.structure, want))

    def planned(self, target: Target, want: tuple[str, ...]) -> Prepared[Basis]:
        """Return `prepare` of wanted quantities that have been checked."""
        if not (self.subtracts and "log_prob" in want):
            return Prepared(self, want, self._plan(target, want), target)
        own = self._plan(target, _with_log_z(want))
        if own.refusal:
            return Prepared(self, want, own, target)
        if target.structure.normalized and target.untempered:
            return Prepared(self, want, replace(own, terms=(own,)), target)
        if self.guarantee == "lower bound":
            why = "log_prob is a bound less log Z, which is bounded from the same side"
            return Prepared(self, want, Plan(own.method, refusal=why), target)
        both = own, self._plan(target.nothing_observed, ("log_z",))
        larger = max(both, key=lambda plan: (bool(plan.refusal), plan.work))
        plan = replace(joint_plan(both, larger.why), refusal=larger.refusal, terms=both)
        return Prepared(self, want, plan, target)

    def _plan(self, target: Target, want: tuple[str, ...]) -> Plan[Basis]:
        """Return the plan of a question that has no difference of two terms."""
        name = type(self).__name__
        if not self.gives.issuperset(map(quantity, want)):
            missing = sorted({w for w in want if quantity(w) not in self.gives})
            more = f" and {len(missing) - MOST_MISSING} more" * (len(missing) > MOST_MISSING)
            what = " or ".join(missing[:MOST_MISSING])
            return Plan(name, refusal=f"{self.source} no {what}{more}")
        begin = perf_counter()
        s = self.scheme(target, want)
        why = s.refusal or no_room(s.bytes)
        guarantee = "" if why else s.guarantee or self.guarantee
        most = max(s.seconds, s.most_seconds)
        took = perf_counter() - begin
        how = s.why, s.work, s.bytes, why, s.seconds, most, s.basis
        return Plan(name, guarantee, *how, preparation=took)

    def plan(self, target: Target, want: Iterable[str]) -> Plan[Basis]:
        """Return the plan of a question."""
        return self.prepare(target, want).plan

    def run(
        self,
        target: Target,
        want: Iterable[str] | None = None,
        rng: RngLike = None,
        state: Snapshot | None = None,
    ) -> Result:
        """Answer a question. Without `want` it is about marginals, or else about log_z.

        Raises PgmError with the refusal of the plan if the method cannot answer.
        """
        if want is None:
            want = "marginals" if "marginals" in self.gives else "log_z"
        return self.prepare(target, want).run(rng, state)

    def gradient(self, target: Target, weights: Array) -> dict[str, Any]:
        """Return the sum over rows of weight * E[d log_density | row], parameter by parameter.

        Raises PgmError if the method refuses, or if terms are so large that no digits would be
        left.
        """
        weighed = replace(check_digits(target), weights=target.weighed(weights))
        question = self.prepare(weighed, ("gradient",))
        question.check()
        found: dict[str, Any] = self.answer(question, None, None, None).answers["gradient"]
        return found


AnyMethod: TypeAlias = Method[Any]
AnyPrepared: TypeAlias = "Prepared[Any]"


class OtherPlanNeeded(PgmError):
    """The plan of a question does not hold for other values of the evidence."""


def _with_log_z(want: tuple[str, ...]) -> tuple[str, ...]:
    """Return wanted quantities with log_z in the place of log_prob."""
    return tuple(dict.fromkeys("log_z" if w == "log_prob" else w for w in want))


@dataclass(frozen=True, eq=False)
class Prepared(Generic[Basis]):
    """A planned question to one method, about the values of a target.

    Attributes
    ----------
    method : the method that has planned it.
    want : the wanted quantities.
    plan : how it would be answered.
    target : the model and its evidence.

    >>> import pgmengine as pgm
    >>> question = pgm.Exact().prepare(pgm.rbm(2, 1, rng=0).given(), ("log_z",))
    >>> question.plan.guarantee, question.run().log_z.round(3)
    ('exact', array([2.049]))
    """

    method: Method[Basis]
    want: tuple[str, ...]
    plan: Plan[Basis]
    target: Target

    @property
    def basis(self) -> Basis:
        """Results of planning that the method needs for the answer."""
        return self.plan.basis

    def on(self, target: Target) -> Prepared[Basis]:
        """Return the question about a target with the evidence pattern of the plan."""
        # dataclasses.replace takes twice as long, a tenth of the time of a small answer.
        return Prepared(self.method, self.want, self.plan, target)

    def run(
        self, rng: RngLike = None, state: Snapshot | None = None, executor: Executor | None = None
    ) -> Result:
        """Answer the question; raise PgmError with the refusal if the method has refused."""
        self.check()
        return self.accepted(rng, state, executor)

    def accepted(self, rng: RngLike, state: Snapshot | None, executor: Executor | None) -> Result:
        """Answer a question that the method has accepted."""
        if self.plan.terms:
            generator = None if rng is None else seeded(rng)
            return self.difference(lambda term, at: term.run(generator, at, executor), state)
        target, common = self.target, self.target.common
        if partly := partly_observed(target):
            check_partly(target, partly, self.want)
            rng = seeded(rng)
        # The common log weight is added at the end. Methods that sum answers of parts would count
        # it several times.
        bare = self if common is None else self.on(replace(target, common=None))
        result = bare._by_method(rng, state, executor)
        if target.structure.shared and "gradient" in result.answers:
            gradient = target.model.in_parameters(result.answers["gradient"])
            result = replace(result, answers={**result.answers, "gradient": gradient})
        if partly:
            found = with_cells(target, partly, result.answers, seeded(rng))
            result = replace(result, answers=found)
        check_rows(target, result.answers)
        if common is not None:
            result = raised(result, common, target)
        if result.kind == "bounds":
            return with_summed_rounding(result, target)
        if result.kind != "estimate":
            return result
        return with_summed_rounding(_with_note(result), target)

    def difference(
        self, ask: Callable[[AnyPrepared, Snapshot | None], Result], state: Snapshot | None
    ) -> Result:
        """Return the answer with log p, log Z with the evidence less log Z without.

        `ask` answers the question of each term, the first one from a snapshot.
        """
        own, *others = self.plan.terms
        result = ask(Prepared(self.method, _with_log_z(self.want), own, self.target), state)
        whole = None
        for plan in others:
            nothing = self.target.nothing_observed
            whole = ask(Prepared(self.method, ("log_z",), plan, nothing), None)
            if whole.kind != "estimate" and np.isneginf(whole.log_z).any():
                raise PgmError(
                    "the model has no probabilities: its tables contradict each other, so that "
                    "every state is impossible"
                )
        result = checked_difference(result.less(whole).of_plan(self.plan.bare), self.target)
        return _with_note(result) if result.kind == "estimate" else result

    def _by_method(self, rng: RngLike, state: Snapshot | None, executor: Executor | None) -> Result:
        """Return the answer of the method, with its rounding checked."""
        if self.method.divides:
            return checked_difference(self.method.answer(self, rng, state, executor), self.target)
        if fits(self.target, self.method.single):
            return self.method.answer(self, rng, state, executor)
        # Terms with large log weights are answered by a target with smaller ones.
        target, method = self.target, self.method
        if "log_prob" in self.want and not target.structure.normalized:
            # The large terms of log Z without evidence are reduced separately.
            own = method.prepare(target, _with_log_z(self.want)).plan
            whole = method.prepare(target.nothing_observed, ("log_z",)).plan
            plan = replace(self.plan, terms=(own, whole))
            return Prepared(method, self.want, plan, target).run(rng, state, executor)
        eased = ease(target, method.single, method.guarantee == "exact")
        question = method.prepare(eased.target, self.want)
        question.check()
        result = replace(method.answer(question, seeded(rng), state, executor), plan=self.plan.bare)
        return checked_difference(withheld(result, eased, method.single, target), target)

    def check(self) -> None:
        """Raise PgmError if the method has refused the question."""
        if self.plan.refusal:
            raise PgmError(self.method.cannot(self.plan))

    def result(
        self,
        answers: Mapping[str, Any],
        stats: Mapping[str, Any] | None = None,
        status: Status = Status.OK,
        warnings: tuple[str, ...] = (),
        state: Snapshot | None = None,
    ) -> Result:
        """Return a result of this question, with the method, the plan and its guarantee."""
        run = self.plan.guarantee, self.method, self.plan.bare, status, (), stats or {}
        return Result(answers, *run, state, warnings)


def _with_note(result: Result) -> Result:
    """Return a result that says so where its estimate of log_prob has no standard error."""
    if "log_prob" not in result.answers or "log_prob_error" in result.stats:
        return result
    note = f"log_prob has no standard error: {result.plan.method} gives none in its stats"
    return replace(result, warnings=(*result.warnings, note))


class MethodLike(Protocol):
    """The smallest method: an object that plans and runs, with `run` of its own."""

    def plan(self, target: Target, want: Iterable[str]) -> AnyPlan:
        """Return the plan of a question."""

    def run(
        self,
        target: Target,
        want: Iterable[str],
        rng: RngLike = None,
        state: Snapshot | None = None,
    ) -> Result:
        """Answer a question."""


class _Foreign(Method[None]):
    """A method that has `plan` and `run` of its own instead of `scheme` and `answer`."""

    def __init__(self, method: MethodLike) -> None:
        self.method = method
        # These are class variables of other methods. Here they are taken from the wrapped object.
        for name in ("statistics", "local", "tempered"):
            setattr(self, name, getattr(method, name, getattr(Method, name)))

    def planned(self, target: Target, want: tuple[str, ...]) -> Prepared[None]:
        """Return the question with the plan of the wrapped object."""
        return Prepared(self, want, self.method.plan(target, want), target)

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Return the answer of the wrapped object."""
        return self.method.run(question.target, question.want, rng=rng, state=state)


def as_method(given: MethodLike) -> AnyMethod:
    """Return a method as it is; wrap an object that has `plan` and `run` only."""
    return cast(AnyMethod, given) if hasattr(given, "prepare") else _Foreign(given)


def pattern_key(target: Target) -> tuple[object, ...]:
    """Return what tells targets with different plans apart: their rows, and the units given."""
    pattern = target.pattern
    masks = [*pattern.observed.values(), *pattern.intervened.values()]
    masks += [soft != 0 for soft in target.soft.values()]
    return target.rows, *target.soft, *map(np.ndarray.tobytes, masks)


def planned_by_value(target: Target) -> bool:
    """Return whether plans depend on the values of the evidence, not on its pattern alone.

    Plans for noisy-or units depend on their observed values. So do plans for models with inputs or
    interventions: if these are equal in all rows, log_prob needs log Z without evidence only once.
    """
    layers = target.structure.layers.values()
    if any([layer.unit.nonnegative for layer in layers]):
        return True
    if target.rows == 1:
        return False
    intervened = any(distinct(mask).any() for mask in target.intervened.values())
    return intervened or any(layer.unit.observed_only for layer in layers)
