"""infer, prepare and explain: one way to ask every question, which is infer/answering.py.

A question is prepared once: the method makes a plan, and the plan stays with the prepared question.
`infer` remembers the plans of small models by model, method, wanted quantities and evidence
pattern, because planning takes longer than answering there. `prepare` gives users a prepared
question that they can ask many times. Answers of both have the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import check_method
from pgmengine.base.display import counted
from pgmengine.base.equal_rows import distinct
from pgmengine.base.errors import PgmError
from pgmengine.base.names import is_several
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.cache import Cache
from pgmengine.base.work.interrupts import stoppable
from pgmengine.declare.handles import Units, units_of_member
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.declare.model_draws import Models
from pgmengine.declare.template import Row, Template, as_template
from pgmengine.evidence.columns import Values
from pgmengine.evidence.relevance import EvidencePattern
from pgmengine.evidence.soft import Soft
from pgmengine.evidence.target import Target
from pgmengine.infer.answering import DEFAULT, about, answered, asked, plan_of
from pgmengine.infer.question.auto import Auto, Choice, only, within
from pgmengine.infer.question.explanation import Explanation, Part
from pgmengine.infer.question.learning_error import models_of, with_learning_error
from pgmengine.infer.question.prepared import (
    MethodLike,
    Prepared,
    as_method,
    pattern_key,
    planned_by_value,
)
from pgmengine.infer.question.templates import questions_of
from pgmengine.infer.question.wanted import check_want
from pgmengine.infer.results.result import AnyPlan, Result
from pgmengine.model.names.unit_names import Member, as_members

if TYPE_CHECKING:
    import pandas as pd

# A mapping from layers to values, or a DataFrame with a column for each unit.
Evidence: TypeAlias = "Mapping[str, ArrayLike] | pd.DataFrame"


@overload
def infer(
    model: Template,
    evidence: Sequence[Row] | Mapping[str, Sequence[ArrayLike]],
    want: Iterable[str] = ...,
    method: MethodLike | None = ...,
    soft: Sequence[Soft | None] | None = ...,
    do: Sequence[Evidence | None] | None = ...,
    rng: RngLike = ...,
    *,
    executor: Executor | None = ...,
    progress: bool = ...,
    seconds: float | None = ...,
    tolerance: float | None = ...,
    parameters: bool = ...,
) -> list[Result]: ...


@overload
def infer(
    model: ModelLike,
    evidence: Evidence | None = ...,
    want: Iterable[str] = ...,
    method: MethodLike | None = ...,
    soft: Soft | None = ...,
    do: Evidence | None = ...,
    rng: RngLike = ...,
    state: Snapshot | None = ...,
    executor: Executor | None = ...,
    progress: bool = ...,
    seconds: float | None = ...,
    tolerance: float | None = ...,
    *,
    parameters: bool = ...,
) -> Result: ...


@stoppable
def infer(
    model: ModelLike | Template,
    evidence: Any = None,
    want: Iterable[str] = ("marginals",),
    method: MethodLike | None = None,
    soft: Any = None,
    do: Any = None,
    rng: RngLike = None,
    state: Snapshot | None = None,
    executor: Executor | None = None,
    progress: bool = True,
    seconds: float | None = None,
    tolerance: float | None = None,
    *,
    parameters: bool = False,
) -> Result | list[Result]:
    """Answer a question about a model under any pattern of evidence.

    Use `prepare` to ask a small model the same question many times, and `explain` to see the plans
    without running them.

    Parameters
    ----------
    model : the model, or the Fit that holds it. For a template, `evidence` is a list of rows of
        any length, such as [{"x": values}, ...], or name -> list of the values of each row. An
        integer in place of a row is a number of steps without evidence. `soft` and `do` have an
        entry, or None, for each row, and the answer is a list of Results, one for each row.
    evidence : layer -> (size,) or (rows, size); NaN is not observed, omitted layers are free.
        Layers and arrays of several axes take their shape, (*shape) or (rows, *shape).
        Categorical layers take labels or one-hot rows. A pandas DataFrame has a column for each
        unit. Units may be given by their names. States that have names are given by these, as text,
        numbers or booleans: 1, 1.0 and "1" are one name. Others are given by values or labels.
    want : any of "marginals", "log_z", "log_prob", "samples", "mode", "pairs", "gradient", and
        "bound", a lower bound of log_z.
    method : Auto() by default.
    soft : soft evidence: log weights that are added to the log density. For a variable, or a unit
        by its name: a log weight for each state, (states,) or (rows, states), or state -> log
        weight; -inf excludes a state. `pgm.likelihood({...})` takes likelihoods in place of log
        weights. For a layer: (..., size, states), or for two-valued units without names their
        log-odds, (..., size), the log weight of the larger value, beside 0 for the smaller one.
    do : values as in `evidence`, for units of directed layers only. They intervene: the arrows into
        a unit with a value are removed.
    rng : int or numpy Generator; the same rng gives the same bits on the same kind of processor,
        with the same versions of numpy and BLAS.
    state : the `state` of an earlier result, to go on from.
    executor : any concurrent.futures.Executor, such as a process pool or the one of
        `distributed.Client.get_executor()`. Large questions are divided among its workers by rows,
        or by the chains of one row; the answer has the same bits as without an executor. The work
        of a worker that fails is done again.
    progress : whether work over two seconds shows its plan and a progress bar on a terminal.
    seconds : the largest time of the answer on this computer, as plans estimate it for one core
        and the pace of this computer, which `pgmengine doctor` shows. Methods whose plans
        take longer are refused, and Auto looks for a faster one. The default is ten minutes with
        Auto, and no limit with another method.
    tolerance : the largest error that is wanted: the standard error of each mean and of log Z, half
        of the distance of proven bounds, or the gap of a mode. An answer with a larger error, or
        with a bad status, is followed by rounds with twice the draws each, until it is reached or
        `seconds` are over (ten minutes by default), which a warning says.
    parameters : whether marginals, log_z, log_prob and joint distributions get intervals of 95 %
        that include the error of learning, `Result.parameter_intervals`. The model is a Fit, whose
        `posterior` is then drawn 200 times, or a Models of `Fit.posterior` or `pgm.bootstrap`, for
        which it is always so. The question is answered once for each model, so that `seconds` and
        `tolerance` hold for each.

    Returns
    -------
    A Result with the answers as attributes, and with its guarantee, plan, status and warnings.

    Raises
    ------
    PgmError if the input is unusable, or if no method can answer.

    >>> import pgmengine as pgm
    >>> want = ("marginals", "log_prob")
    >>> r = pgm.infer(pgm.rbm(4, 2, rng=0), {"v": [[1, 0, 1, 1]]}, want)
    >>> r.mean["h"].shape, r.kind
    ((1, 2), 'exact')
    """
    # An iterator could be read once only, and rows of a template are several questions.
    wanted = tuple(want) if is_several(want) else want
    ask = partial(
        asked,
        want=wanted,
        method=method,
        rng=rng,
        state=state,
        executor=executor,
        progress=progress,
        seconds=seconds,
        tolerance=tolerance,
    )
    if parameters or isinstance(model, Models):
        again = partial(
            infer,
            evidence=evidence,
            want=wanted,
            method=method,
            soft=soft,
            do=do,
            state=state,
            executor=executor,
            progress=progress,
            seconds=seconds,
            tolerance=tolerance,
        )
        return with_learning_error(models_of(model, rng), again, rng, progress)
    template = as_template(model)
    if template is None:
        one = _checked(model, method)
        return ask(one, one.given(evidence, soft=soft, do=do))
    if state is not None:
        raise PgmError("state belongs to the answer of one model; a template answers many rows")
    ask = partial(ask, rng=np.random.default_rng(rng))
    found = dict[int, Result]()
    for q in questions_of(template, evidence, soft, do, "gradient" not in wanted):
        found.update(q.divided(ask(q.model, q.target)))
    return [found[i] for i in range(len(found))]


@stoppable
def explain(
    model: ModelLike | Template,
    evidence: Any = None,
    want: Iterable[str] = ("marginals",),
    method: MethodLike | None = None,
    soft: Any = None,
    do: Any = None,
    seconds: float | None = None,
    *,
    observed: Iterable[Member | Units] = (),
) -> Explanation:
    """Return the plans of all candidate methods as text, with a mark at the one that answers.

    Use it to see how a question would be answered, at what cost, and why methods refuse. No method
    is run. `rich.print` and notebooks show a table.

    Parameters
    ----------
    model, evidence, want, method, soft, do, seconds : as in `infer`. The rows of a template that
        are asked together are a part of the explanation.
    observed : the units that will be observed, as in `prepare`, in place of evidence with their
        values. The evidence of a template is then numbers of steps, such as [100].

    Raises
    ------
    PgmError if the input is unusable.

    >>> import pgmengine as pgm
    >>> print(pgm.explain(pgm.rbm(4, 2, rng=0), want=("log_z",)).splitlines()[0])
    wanted: log_z; 1 evidence row, 0 of 6 units observed
    >>> print(pgm.explain(pgm.rbm(4, 2, rng=0), observed=("v",)).splitlines()[0])
    wanted: marginals; 1 evidence row, 4 of 6 units observed
    """
    chooser = within(DEFAULT if method is None else method, seconds)
    names = (observed,) if isinstance(observed, str) else as_members(observed, "observed")
    template = as_template(model)
    if template is None:
        one = _checked(model, method)
        seen = _seen(one, evidence, names)
        return _explained(one, one.given(seen, soft=soft, do=do), want, chooser)
    wanted = tuple(want) if is_several(want) else want
    seen, together = partial(_seen, observed=names), "gradient" not in wanted
    questions = questions_of(template, evidence, soft, do, together, seen)
    parts = list[Part]()
    for q in questions:
        own = _explained(q.model, q.target, wanted, chooser).parts
        parts += [replace(p, title=f"{q.title}: {p.title}".removesuffix(": ")) for p in own]
    rows = counted(sum(len(q.numbers) for q in questions), "row")
    return Explanation(f"wanted: {', '.join(map(str, wanted))}; {rows} of {template!r}", parts)


def _seen(model: Model, evidence: Any, observed: tuple[Member | Units, ...]) -> Any:
    """Return the evidence, or any values of the units that will be observed."""
    if not observed:
        return evidence
    if evidence is not None:
        raise PgmError(
            "observed names the units that will be observed, in place of evidence with their "
            "values: give one of the two"
        )
    return _any_values(model, _units_of(model, observed))


def _explained(
    model: Model, target: Target, want: Iterable[str], chooser: MethodLike
) -> Explanation:
    """Return the plans for a question about one model."""
    wanted = check_want(model.structure, want)
    if isinstance(chooser, Auto):
        choices = chooser.choices(target, wanted)
    else:
        choices = (Choice(only(chooser), wanted),)
    seen = int(sum(target.pattern.observed[name].sum() for name in model.structure.layers))
    units = model.structure.units
    each = f"{seen} of {units} units observed"
    if target.rows > 1:
        each = f"{seen / target.rows:.4g} of {units} units observed on average"
    head = (
        f"wanted: {', '.join(wanted)}; {target.rows} evidence row{'s' * (target.rows > 1)}, {each}"
    )
    whole = len(choices) == 1
    parts = list[Part]()
    for c in choices:
        plans, first = tuple(c.plans(target)), c.first(target)
        longest = 0.0 if first is None else c.longest(target, first)
        parts.append(Part("" if whole else c.title, plans, longest))
    return Explanation(head, parts)


class Ask:
    """A prepared question, to be called with evidence any number of times, from any thread.

    It is made by `pgm.prepare`.

    Attributes
    ----------
    plan : how the question is answered for one row of evidence.
    """

    def __init__(
        self,
        model: Model,
        observed: tuple[Member | Units, ...],
        want: tuple[str, ...],
        method: MethodLike,
    ) -> None:
        self.model, self.observed, self.want = model, observed, want
        self.method = as_method(method)
        # Layer -> (size,) bool: the units that will be observed.
        self._seen = _units_of(model, observed)
        # The pattern of the last question, which has been compared with these units.
        self._pattern: EvidencePattern | None = None
        # Number of rows, and units with soft evidence or do() -> the question planned for these.
        self._planned: Cache[AnyPlan] = Cache(most=16)
        self.plan = self._plan(model.given(_any_values(model, self._seen))).bare

    @stoppable
    def __call__(
        self,
        evidence: Evidence | None = None,
        rng: RngLike = None,
        executor: Executor | None = None,
        progress: bool = True,
        *,
        soft: Soft | None = None,
        do: Evidence | None = None,
    ) -> Result:
        """Answer for values of the units that the question was prepared for.

        Parameters and result are those of `infer`. Any units may have soft evidence, and any units
        that are free may be set by `do`: the first question with such units is planned, and later
        ones with other numbers about the same units use its plan. Only for log weights of -inf, and
        for those of units that are neither two-valued nor Categorical, a plan holds for equal
        numbers alone.

        Raises
        ------
        PgmError if other units are observed than the question was prepared for.
        """
        target = self.model.given(evidence, soft=soft, do=do)
        # Questions about one row with the same pattern share the object of the pattern.
        known = target.pattern is self._pattern
        for name, expected in () if known else self._seen.items():
            seen = target.pattern.observed[name]
            if do is not None:
                seen = seen & ~target.intervened[name]
            if not (distinct(seen) == expected).all():
                row, index = (int(i) for i in np.argwhere(seen != expected)[0])
                now, then = ("not " * (not one[index]) for one in (seen[row], expected))
                unit = self.model.structure.layers[name].place(index, row)
                raise PgmError(
                    f"{unit} is {now}observed, and the question was prepared with it {then}"
                    "observed; prepare another question, or use infer"
                )
        self._pattern = target.pattern
        plan = self._plan(target)
        question = Prepared(self.method, self.want, plan, target)
        return about(self.model, answered(question, rng, None, executor, progress), target)

    def _plan(self, target: Target) -> AnyPlan:
        """Return the plan of the question for the pattern of a target."""
        make = partial(plan_of, target, self.want, self.method)
        if planned_by_value(target):
            return make()
        # Questions with equal findings share a structure, to which the findings belong.
        return self._planned.recall((target.structure, *pattern_key(target)), make)

    def __repr__(self) -> str:
        given = ", ".join(map(str, self.observed)) or "nothing"
        return f"Ask({', '.join(self.want)} given {given}; {self.plan})"


def _units_of(model: Model, observed: tuple[Member | Units, ...]) -> dict[str, Array]:
    """Return layer -> (size,) bool: the units with these names, or in these parts of arrays."""
    found = {n: np.zeros(x.size, dtype=bool) for n, x in model.structure.layers.items()}
    names, plain = model.structure.names, list[Member]()
    for name in names.alone_or_several(observed):  # type: ignore[arg-type]
        written = isinstance(name, str) and "[" in name and names.layer_of(name) is None
        if written or isinstance(name, Units):
            layer, units, _ = units_of_member(names, name, "observed")
            found[layer][units.ravel()] = True
        else:
            plain.append(name)
    for layer, mask in names.units(plain, "observed").items():
        found[layer] |= mask
    return found


def _any_values(model: Model, seen: Mapping[str, Array]) -> Values:
    """Return evidence with any values of some units, layer -> (size,) bool."""
    evidence = {}
    for name, units in seen.items():
        layer = model.structure.layers[name]
        support = layer.unit.support
        one = np.zeros(layer.unit.width) if support is None else np.atleast_2d(support[:1])[0]
        values = np.where(layer.components(units), np.tile(one, layer.size), np.nan)
        # The values have an axis of rows, because without it k units of Categorical(k) are
        # ambiguous.
        evidence[name] = layer.shaped(values[None])
    return Values({n: v for n, v in evidence.items() if seen[n].any()})


@stoppable
def prepare(
    model: ModelLike,
    observed: Iterable[Member | Units] = (),
    want: Iterable[str] = ("marginals",),
    method: MethodLike | None = None,
    seconds: float | None = None,
) -> Ask:
    """Plan a question once, to ask it for many values of the evidence.

    Use it where a small model is asked the same question many times, so that planning would take
    most of the time.

    Parameters
    ----------
    model : the model, or the Fit that holds it.
    observed : the units that will be observed: names of layers, of variables and arrays, single
        units as (layer, number), and parts of arrays as "z[3:]" or by handles. All other units will
        be free.
    want : as in `infer`.
    method : Auto() by default.
    seconds : the largest time of an answer, as in `infer`.

    Returns
    -------
    An Ask: `ask.plan` says how the question is answered, and `ask(evidence)` or
    `ask(evidence, soft=, do=)` returns a Result. It may be called from several threads at once.

    Raises
    ------
    PgmError if no method can answer.

    >>> import pgmengine as pgm
    >>> ask = pgm.prepare(pgm.rbm(4, 2, rng=0), observed=("v",))
    >>> ask.plan.guarantee, ask({"v": [1, 0, 1, 1]}).mean["h"].shape
    ('exact', (2,))
    """
    model = _checked(model, method)
    names = (observed,) if isinstance(observed, str) else as_members(observed, "observed")
    return Ask(
        model,
        model.structure.names.alone_or_several(names),
        check_want(model.structure, want),
        within(DEFAULT if method is None else method, seconds),
    )


def _checked(model: ModelLike | Template, method: object) -> Model:
    """Return the model; raise PgmError unless these are a model and a method."""
    if method is not None:
        check_method(method)
    return as_model(model)
