"""Methods and prepared questions: a method plans a question once, and may answer it many times.

`method.prepare(target, want)` returns a `Prepared`. `explain` shows its `plan`, and its `run`
answers. Results of planning (covers, elimination orders, ladders) are kept as its `basis`, so that
none is computed twice. A `Planned` is the same question without model and evidence, so that it can
be remembered; its `on` asks the question about any values under the same evidence pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, cast

from pgmengine.base.checks import seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.types import RngLike, Snapshot
from pgmengine.base.work.memory import no_room
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.rounding import (
    checked_difference,
    ease,
    fits,
    raised,
    with_summed_rounding,
    withheld,
)
from pgmengine.infer.question.wanted import check_rows, check_want
from pgmengine.infer.results.axes import Statistics
from pgmengine.infer.results.result import WANTS, Plan, Result, Status, quantity
from pgmengine.model.structure import Structure


@dataclass(frozen=True)
class Scheme:
    """The way in which a method would answer a question, with its cost; made by Method.scheme.

    Attributes
    ----------
    how : the way in words, for the plan.
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

    how: str = ""
    work: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    basis: Any = None
    refusal: str = ""
    most_seconds: float = 0.0


class Method:
    """Base of the inference methods: frozen dataclasses whose fields are their settings.

    A new method says which quantities it `gives`, and defines `scheme` and `answer`. It inherits
    `prepare`, the checks of wanted quantities and of free memory, splitting and caching.

    Attributes
    ----------
    gives : the wanted quantities that it can answer.
    source : the first words of the refusal of other quantities, as in "draws give no mode".
    guarantee : "exact", "estimate" or "lower bound".
    statistics : the entries of `Result.stats` with their axes.
    local : whether its chains move locally, so that Auto confirms their answers.
    tempered : whether it has a ladder of temperatures that can confirm local chains.
    groups_chains : whether it can divide the chains of a single row among workers itself.
    divides : whether it divides questions itself, as Auto does.
    single : whether its chains compute in single precision.

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

    def scheme(self, target: Target, want: tuple[str, ...]) -> Scheme:
        """Return the way in which the method would answer, or a Scheme with a refusal."""
        raise NotImplementedError

    def answer(
        self, question: Prepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
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

    def faster(self, target: Target, want: tuple[str, ...], seconds: float) -> Method | None:
        """Return the method with settings that take at most `seconds`, or None if there are none.

        Auto asks for them if the plan of the method itself would take longer.
        """
        return None

    def cannot(self, plan: Plan) -> str:
        """Return the message of the error that is raised when a refused question is run."""
        return f"{plan.method} refused: {plan.refusal}"

    def prepare(self, target: Target, want: Iterable[str]) -> Prepared:
        """Plan a question, and return it as prepared for answers."""
        return self.planned(target, check_want(target.structure, want))

    def planned(self, target: Target, want: tuple[str, ...]) -> Prepared:
        """Return `prepare` of wanted quantities that have been checked."""
        name = type(self).__name__
        if not self.gives.issuperset(map(quantity, want)):
            missing = sorted({w for w in want if quantity(w) not in self.gives})
            why = f"{self.source} no {' or '.join(missing)}"
            return Prepared(self, want, Plan(name, refusal=why), None, target)
        s = self.scheme(target, want)
        why = s.refusal or no_room(s.bytes)
        guarantee = "" if why else self.guarantee
        most = max(s.seconds, s.most_seconds)
        plan = Plan(name, guarantee, s.how, s.work, s.bytes, why, s.seconds, most)
        return Prepared(self, want, plan, s.basis, target)

    def plan(self, target: Target, want: Iterable[str]) -> Plan:
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


class OtherPlanNeeded(PgmError):
    """The plan of a question does not hold for other values of the evidence."""


@dataclass(frozen=True, eq=False)
class Planned:
    """A planned question without model and evidence, which can be remembered; see Prepared."""

    method: Method
    want: tuple[str, ...]
    plan: Plan
    basis: Any

    def on(self, target: Target) -> Prepared:
        """Return the question about a target with the evidence pattern of the plan."""
        # dataclasses.replace takes twice as long, a tenth of the time of a small answer.
        return Prepared(self.method, self.want, self.plan, self.basis, target)


@dataclass(frozen=True, eq=False)
class Prepared(Planned):
    """A planned question to one method, about the values of a target.

    Attributes
    ----------
    method : the method that has planned it.
    want : the wanted quantities.
    plan : how it would be answered.
    basis : results of planning that the method needs for the answer.
    target : the model and its evidence.

    >>> import pgmengine as pgm
    >>> question = pgm.Exact().prepare(pgm.rbm(2, 1, rng=0).given(), ("log_z",))
    >>> question.plan.guarantee, question.run().log_z.round(3)
    ('exact', array([2.049]))
    """

    target: Target

    def run(
        self, rng: RngLike = None, state: Snapshot | None = None, executor: Executor | None = None
    ) -> Result:
        """Answer the question; raise PgmError with the refusal if the method has refused."""
        self.check()
        target, common = self.target, self.target.common
        # The common log weight is added at the end. Methods that sum answers of parts would count
        # it several times.
        bare = self if common is None else self.on(replace(target, common=None))
        result = bare._answered(rng, state, executor)
        if target.structure.shared and "gradient" in result.answers:
            gradient = target.model.in_parameters(result.answers["gradient"])
            result = replace(result, answers={**result.answers, "gradient": gradient})
        check_rows(target, result.answers)
        if common is not None:
            result = raised(result, common, target)
        if result.kind != "estimate":
            return result
        return with_summed_rounding(_with_note(result), target)

    def _answered(self, rng: RngLike, state: Snapshot | None, executor: Executor | None) -> Result:
        """Return the answer of the method, with its rounding checked."""
        if self.method.divides:
            return checked_difference(self.method.answer(self, rng, state, executor), self.target)
        if fits(self.target, self.method.single):
            return self.method.answer(self, rng, state, executor)
        return self._eased(rng, state, executor)

    def _eased(self, rng: RngLike, state: Snapshot | None, executor: Executor | None) -> Result:
        """Answer a question with large log weights by a target with smaller terms."""
        target, method, generator = self.target, self.method, seeded(rng)
        eased = ease(target, method.single)
        apart = "log_prob" in self.want and not target.structure.normalized
        asked = tuple(dict.fromkeys("log_z" if apart and w == "log_prob" else w for w in self.want))
        # log_prob needs another target, without evidence, whose large terms are reduced separately.
        question = method.prepare(eased.target, asked)
        question.check()
        result = method.answer(question, generator, state, executor)
        result = withheld(replace(result, plan=self.plan), eased, method.single, target)
        if not apart:
            return checked_difference(result, target)
        without = method.prepare(target.nothing_observed, ("log_z",)).run(generator)
        return checked_difference(result.less(without), target)

    def check(self) -> None:
        """Raise PgmError if the method has refused the question."""
        if self.plan.refusal:
            raise PgmError(self.method.cannot(self.plan))

    def detached(self) -> Planned:
        """Return the question without model and evidence."""
        return Planned(self.method, self.want, self.plan, self.basis)

    def refused(self, why: str) -> Prepared:
        """Return the question with a refusal."""
        return replace(self, plan=replace(self.plan, refusal=why))

    def result(
        self,
        answers: Mapping[str, Any],
        stats: Mapping[str, Any] | None = None,
        status: Status = Status.OK,
        warnings: tuple[str, ...] = (),
        state: Snapshot | None = None,
    ) -> Result:
        """Return a result of this question, with the method, the plan and its guarantee."""
        run = self.plan.guarantee, self.method, self.plan, status, (), stats or {}
        return Result(answers, *run, state, warnings)


def _with_note(result: Result) -> Result:
    """Return a result that says so where its estimate of log_prob has no standard error."""
    if "log_prob" not in result.answers or "log_prob_error" in result.stats:
        return result
    note = f"log_prob has no standard error: {result.plan.method} gives none in its stats"
    return replace(result, warnings=(*result.warnings, note))


class MethodLike(Protocol):
    """The smallest method: an object that plans and runs, with `run` of its own."""

    def plan(self, target: Target, want: Iterable[str]) -> Plan:
        """Return the plan of a question."""

    def run(
        self,
        target: Target,
        want: Iterable[str],
        rng: RngLike = None,
        state: Snapshot | None = None,
    ) -> Result:
        """Answer a question."""


class _Foreign(Method):
    """A method that has `plan` and `run` of its own instead of `scheme` and `answer`."""

    def __init__(self, method: MethodLike) -> None:
        self.method = method
        # These are class variables of other methods. Here they are taken from the wrapped object.
        for name in ("statistics", "local", "tempered"):
            setattr(self, name, getattr(method, name, getattr(Method, name)))

    def planned(self, target: Target, want: tuple[str, ...]) -> Prepared:
        """Return the question with the plan of the wrapped object."""
        return Prepared(self, want, self.method.plan(target, want), None, target)

    def answer(
        self, question: Prepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Return the answer of the wrapped object."""
        return self.method.run(question.target, question.want, rng=rng, state=state)


def as_method(given: MethodLike) -> Method:
    """Return a method as it is; wrap an object that has `plan` and `run` only."""
    return cast(Method, given) if hasattr(given, "prepare") else _Foreign(given)
