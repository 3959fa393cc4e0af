"""Read this file first: it is the engine, from a model and evidence to an answer.

A **model** is units and terms. A term has a parameter, the units of each place where it acts, and
a kind. The log density of a joint state x of all units is the sum of all terms, and of the log base
measure h of the units, which is 0 for most of them,

    log_density(x) = log h(x) + sum over terms and their places of theta * f(x of the place).

A **target** is a model with what is given about each row: observed units, interventions and soft
evidence, at an inverse temperature beta, which is 1 but on the path of a ladder. With the sum of
terms s(x), its free units have the density

    p(x_free | row) = h(x) exp(beta * (s(x) + soft(x))) / Z(row).

All answers are about targets: marginals and pairs are means under p, log Z is its normaliser, a
gradient is the mean of f, and log p(evidence) is log Z less log Z of the model without evidence.

A **method** (`Exact`, `MCMC`, `MeanField`, ...) plans a target before it answers. Its **plan** says
how, with which guarantee, in which time and memory, or why not; it holds what planning has found,
such as an elimination order, and refers to no values. `Auto` compares the plans of all methods and
takes the first that is good enough. A **prepared question** is a method, the wanted quantities, a
plan and a target. Its **answer** is a `Result`, with the guarantee that the plan gave, and with a
status that says whether the answer deserves it.

    target = model.given(evidence, soft=soft, do=do)     # evidence/given.py
    question = planned(target, want, method)             # a plan, made or recalled
    result = answered(question, rng)                     # the method runs, rounding is checked
    result = about(model, result, target)                # in the units of the user's model

`asked` below is these lines, and `infer`, prepared questions, templates, estimators, the explorer
and the command line all go through it or through its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import is_dataclass, replace
from functools import partial
from threading import Lock
from weakref import WeakKeyDictionary

from pgmengine.base.checks import check_executor, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.types import RngLike, Snapshot
from pgmengine.base.work.cache import Cache
from pgmengine.base.work.progress import showing
from pgmengine.declare.model import Model
from pgmengine.evidence.extended.extended_targets import on_model
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.rounding import fits, nothing_left
from pgmengine.infer.diagnostics.sure_facts import checked
from pgmengine.infer.question.auto import Auto, within
from pgmengine.infer.question.precision import precise
from pgmengine.infer.question.prepared import (
    AnyMethod,
    AnyPrepared,
    Method,
    MethodLike,
    Prepared,
    as_method,
    pattern_key,
    planned_by_value,
)
from pgmengine.infer.question.splitting import answer
from pgmengine.infer.question.wanted import check_want
from pgmengine.infer.question.ways_out import ways_on, with_ways_out
from pgmengine.infer.results.result import ANSWERS, AnyPlan, Result, quantity
from pgmengine.model.parameters import Parameters

# The method of questions that name none.
DEFAULT = Auto()

# The plans of the last questions about each model. They do not refer to the model, and are deleted
# with it.
REMEMBERED: WeakKeyDictionary[Parameters, Cache[AnyPlan]] = WeakKeyDictionary()
MAX_REMEMBERED_QUESTIONS = 32
_lock = Lock()

# Largest count of parameters and numbers of evidence together for which a plan is remembered.
# Questions about larger models take far longer to answer than to plan.
MAX_REMEMBERED_NUMBERS = 2**19


def asked(
    model: Model,
    target: Target,
    want: Iterable[str],
    method: MethodLike | None,
    rng: RngLike,
    state: Snapshot | None,
    executor: Executor | None,
    progress: bool,
    seconds: float | None,
    tolerance: float | None = None,
) -> Result:
    """Answer a question about a target of a model; the parameters are those of `infer`."""
    wanted = check_want(model.structure, want)
    by = DEFAULT if method is None else method
    if seconds is not None:
        by = within(by, seconds)
    if tolerance is None:
        question = planned(target, wanted, by)
        return about(model, answered(question, rng, state, executor, progress), target)
    # Later rounds need other random numbers than the first one.
    same = partial(asked, model, target, wanted)
    rest = {"rng": seeded(rng), "executor": executor, "progress": progress, "seconds": None}
    return precise(partial(same, **rest), by, state, tolerance, seconds)


def planned(target: Target, want: tuple[str, ...], by: MethodLike) -> AnyPrepared:
    """Plan a question, or recall its plan; raise PgmError where it is refused."""
    method = as_method(by)
    make = partial(plan_of, target, want, method)
    return Prepared(method, want, _recalled(target, want, method, make), target)


def plan_of(target: Target, want: tuple[str, ...], method: AnyMethod) -> AnyPlan:
    """Plan a question; raise PgmError where it is refused.

    Refusals are not remembered: memory that is not free now may be free later.
    """
    question = method.planned(target, want)
    if question.plan.refusal:
        raise PgmError(with_ways_out(question, method.cannot(question.plan)))
    return question.plan


def answered(
    question: AnyPrepared,
    rng: RngLike = None,
    state: Snapshot | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Result:
    """Answer a planned question, with everything that was wanted and nothing else."""
    target = question.target
    if executor is not None:
        check_executor(executor)
    with showing(progress):
        by = question.method.decided(question)
        if by is not question and rng is not None:
            # What is no seed is refused, whether numbers are drawn or not.
            rng = seeded(rng)
        result = checked(target, answer(executor, by, rng, state))
    # log_z also belongs to log_prob, since it is one of its two terms.
    kinds = {*map(quantity, question.want)}
    wanted = kinds | {"log_z"} if "log_prob" in kinds else kinds
    answers = {n: value for n, value in result.answers.items() if ANSWERS.get(n, n) in wanted}
    if lacking := kinds.difference(map(ANSWERS.get, answers)):
        missing = [w for w in question.want if quantity(w) in lacking]
        raise PgmError(
            f"{result.method!r} was asked for {', '.join(missing)}, but its answers are "
            f"{', '.join(result.answers)}"
        )
    found = result.to(target, answers)
    if result.status.good:
        return found
    if not fits(target, single=True) and nothing_left(answers):
        raise PgmError(result.warnings[0])
    return replace(found, ways=ways_on(question, found))


def about(model: Model, result: Result, target: Target) -> Result:
    """Return a result without the findings and auxiliary variables that a target has added."""
    if target.model is model:
        return result
    return replace(result.without_added(target.model, model), target=on_model(target, model))


def _recalled(
    target: Target, want: tuple[str, ...], method: AnyMethod, make: Callable[[], AnyPlan]
) -> AnyPlan:
    """Return the plan of a question, which is remembered if the model is small."""
    size = target.rows * target.structure.width + target.model.parameter_count
    # A method that is not frozen may change between two questions, so its plans are not remembered.
    frozen = isinstance(method, Method) and is_dataclass(method)
    if not frozen or size > MAX_REMEMBERED_NUMBERS or planned_by_value(target):
        return make()
    questions = REMEMBERED.get(target.model)
    if questions is None:
        with _lock:
            questions = REMEMBERED.setdefault(target.model, Cache(most=MAX_REMEMBERED_QUESTIONS))
    # 2 and 2.0 are equal, but a method may treat them differently, so that settings count as text.
    settings = () if method is DEFAULT else (method, repr(method))
    try:
        return questions.recall((settings, want, *pattern_key(target)), make)
    except TypeError:
        # The settings of a method may hold arrays, which have no hash.
        return make()
