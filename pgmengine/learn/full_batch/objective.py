"""The objective of a full batch: the log-likelihood of all rows, its gradient, expected counts.

Rows with equal evidence are computed once, with the sum of their weights. Complete rows need no
inference: their counts are taken in one pass, and their log density is evaluated. Other rows are
answered by the method of the data phase. The model phase subtracts the log normaliser:

    objective = sum over rows of weight * [log p*(row) - log normaliser(row)] / sum of weights,

in nats a row. It is known where both phases are exact.

Rows may belong to several models that share parameters by name, such as the models of a template
for each number of steps. Their sums are added; the first model holds all parameters. Where the free
units of all rows are chains, one pass over all of them takes the place of the questions to each
model (infer/exact/long_chains/chain_counts.py). Rows that observe nothing have the log-likelihood 0
at all parameters, so that only their weights count, in the mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pgmengine.base.errors import InternalError, PgmError
from pgmengine.base.types import Array, Params, Weight
from pgmengine.declare.model import Model
from pgmengine.evidence.shards import Shards
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.exact.long_chains.chain_counts import Chains, chains_of
from pgmengine.infer.question.prepared import AnyMethod, AnyPrepared, Method, Prepared
from pgmengine.infer.question.splitting import answer
from pgmengine.learn.contracts import Allowance, ModelPhase, Positive
from pgmengine.learn.full_batch.counting import (
    CountingModel,
    Moments,
    counted,
    data_moments,
    is_complete,
    merged,
    summed_inputs,
)
from pgmengine.learn.full_batch.fixed_rows import slopes_with_kept, with_kept
from pgmengine.learn.phases.batch import Batch, joint_masks, only
from pgmengine.learn.phases.positive import data_phase, default_positive, posterior_draw
from pgmengine.learn.phases.statistics import Statistics
from pgmengine.learn.starting.exchangeable import exchangeable
from pgmengine.learn.starting.symmetry import Symmetry
from pgmengine.learn.steps.optimizers import projected
from pgmengine.model.terms.input_rows import input_rows
from pgmengine.model.weights import plus

# The largest planned time, in seconds, of exact expectations given all rows.
MAX_ROWS_SECONDS = 600.0
# The largest share by which counts may leave their range by rounding, also in single precision.
COUNT_ROUNDING = 1e-5


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The objective at a model, in nats a row, and its gradient or the expected counts.

    `value` is None where it is not known exactly.
    """

    value: float | None
    slopes: dict[str, Weight]


@dataclass(frozen=True, eq=False)
class FitData:
    """The data of a fit, whose rows may belong to several models.

    Attributes
    ----------
    values : the rows of the model that learns, as `fit` takes them.
    others : rows of other models that share its parameters: target, weights, and given units.
    blank : the sum of the weights of rows that observe nothing, and are left out.
    kept : the parameters that stay as they are declared.
    shards : all parts of the data, if they are loaded one by one; `values` is the first table.
    """

    values: Any
    others: tuple[tuple[Target, Array, Mapping[str, Array]], ...] = ()
    blank: float = 0.0
    kept: tuple[str, ...] = ()
    shards: Shards | None = None


class Rows:
    """The rows of a fit that belong to one model, and the two phases of their gradient.

    Attributes
    ----------
    target, weights : the distinct rows, and the sums of their weights.
    total : the sum of all weights.
    complete : whether every row observes all units.
    given : layer -> mask of the units that are given.
    fixed : parameter -> mask of its stored numbers that stay as they are.
    uninformed : the part of it that stays because no row informs it.
    phase : the model phase.
    positive : the given method of the data phase, or None.
    rng : random numbers, for methods that sample.
    in_memory : whether `target` has all rows; else `moments` has the moments of real children.
    """

    in_memory = True
    moments: Mapping[str, Moments]

    def __init__(
        self,
        target: Target,
        weights: Array,
        given: Mapping[str, Array],
        fixed: Mapping[str, Array],
        uninformed: Mapping[str, Array],
        phase: ModelPhase,
        positive: Positive | AnyMethod | None,
        rng: np.random.Generator,
        executor: Executor | None = None,
    ) -> None:
        with np.errstate(over="ignore"):
            self.total, self.complete = float(weights.sum()), is_complete(target)
        self.target, self.weights = (target, weights) if self.complete else merged(target, weights)
        self.given, self.fixed, self.uninformed, self.phase = given, fixed, uninformed, phase
        self.positive, self.rng, self.executor = positive, rng, executor
        # The zeros of the parameters at which the question to the data was planned, and the plan.
        self._planned: dict[str, Any] = {}

    @cached_property
    def method(self) -> Positive | AnyMethod:
        """The method of the data phase: exact where it fits, if none is given."""
        if self.positive is not None:
            return self.positive
        if self.complete or _exactly_planned(self.target):
            return Exact()
        return default_positive(self.target, np.float64)

    @property
    def exact(self) -> bool:
        """Whether expectations given the rows are exact."""
        return self.complete or getattr(self.method, "guarantee", "") == "exact"

    @cached_property
    def counted(self) -> Array:
        """The counts of all entries of tables in complete rows."""
        return counted(self.target.structure, self.target.states, self.weights)

    def of(self, model: Model) -> Model:
        """Return the model of these rows at the parameters that it shares with another model."""
        if model.structure is self.target.structure:
            return model
        own = self.target.model.params
        shared: dict[str, Any] = {
            key: model.params[key]
            for key, value in own.items()
            if key in model.params and np.shape(model.params[key]) == np.shape(value)
        }
        return Model(self.target.structure, {**own, **shared})

    def counts(self, model: Model) -> tuple[float | None, Mapping[str, Weight]]:
        """Return the weighted sum of log-likelihoods, and the expected counts of table entries."""
        s = model.structure
        if self.complete:
            counts = model.parameter_counts(self.counted)
            if not s.arrows:
                return log_likelihood(model, self.counted), counts
            logs = model.flat_log_density(self.target.evidence.values)
            sums = summed_inputs(model, self.target, self.weights)
            return float(self.weights @ logs), counts | sums
        log_z, found = self._expected(CountingModel(s, model.params), self.weights)
        self._check_counts(found)
        value = None if log_z is None else float(self.weights @ log_z)
        return value, {key: found[key] for key in (*s.table_groups, *input_rows(s).units)}

    def _check_counts(self, found: Mapping[str, Array]) -> None:
        """Raise InternalError unless counts are sums of weights times probabilities."""
        places = Counter[str]()
        for t in self.target.structure.tables:
            places[t.key] += len(t.index) * (t.form.draws if t.form else 1)
        weights = {key: found[key] for key in places}
        for t in self.target.structure.shared:
            if t.key in found:
                # The first of the sums of inputs are weights.
                weights[t.key] = found[t.key][..., 0]
                places[t.key] += len(t.index)
        for key, number in places.items():
            least, total = weights[key].min(), weights[key].sum() / number
            within = least >= -COUNT_ROUNDING * self.total
            if not (within and total <= self.total * (1 + COUNT_ROUNDING)):
                raise InternalError(
                    f"the expected counts of {key!r} add to {total:g} for {self.total:g} rows, "
                    f"and the smallest is {least:g}"
                )

    def _expected(self, model: Model, weights: Array) -> tuple[Array | None, Mapping[str, Weight]]:
        """Return log Z of each row, or None, and the weighted sum of expected gradients."""
        target = self.target.with_model(model)
        method = self.method
        if isinstance(method, Method) and method.guarantee == "exact":
            question = self._question(method, replace(target, weights=weights))
            result = answer(self.executor, question, self.rng)
            return result.log_z, result.gradient
        total = Statistics(np.float64)
        data_phase(method, self.executor).expect(target, weights, total, self.rng)
        return None, total.total(model)

    def _question(self, method: AnyMethod, target: Target) -> AnyPrepared:
        """Return the question about log Z and the gradient, planned anew where that is needed.

        Without couplings and biases, a plan depends on the evidence patterns, which stay, and on
        the zeros of tables.
        """
        s, want = target.structure, ("log_z", "gradient")
        if s.couplings or any(units.any() for units in s.has_bias.values()):
            return method.prepare(target, want)
        zeros = np.isneginf(target.model.table_entries).tobytes()
        if self._planned.get("zeros") != zeros:
            question = method.prepare(target, want)
            self._planned.update(zeros=zeros, plan=question.plan)
            return question
        return Prepared(method, want, self._planned["plan"], target)

    def gradient(self, model: Model, total: float) -> tuple[float | None, Mapping[str, Weight]]:
        """Return the sum of log-likelihoods times weight / total, and its gradient."""
        share = self.weights / total
        if self.complete:
            x = self.target.evidence.values
            log_z: Array | None = model.flat_log_density(x)
            slopes: Mapping[str, Weight] = model.gradient(x, share)
        else:
            log_z, slopes = self._expected(model, share)
        target = self.target.with_model(model)
        batch = Batch(
            model,
            share * target.rows,
            given=only(target, self.given) if self.given else None,
            complete=lambda: posterior_draw(target, self.rng),
            outward=((), ()),
            precision=np.float64,
            data=target,
        )
        found = self.phase.exact(batch)
        if found is None or log_z is None:
            return None, slopes
        data = Statistics(np.float64)
        data.arrays(slopes, 1.0, 1.0)
        return float(share @ log_z) - found[1], (data - found[0]).total(model)


def is_exact(target: Target) -> bool:
    """Return whether exact expectations given all rows take little enough time."""
    chains = None if is_complete(target) else chains_of([target], [np.ones(target.rows)])
    return is_complete(target) or chains is not None or _exactly_planned(target)


def _exactly_planned(target: Target) -> bool:
    """Return whether an exact method takes little enough time."""
    plan = Exact().plan(target, ("log_z", "gradient"))
    return plan.accepted and plan.seconds <= MAX_ROWS_SECONDS


class Objective:
    """The objective of all rows of a fit.

    Attributes
    ----------
    parts : the rows of each model; the first model has all parameters.
    target, given : those of the first model.
    total : the sum of all weights.
    complete : whether every row observes all units.
    counted_once : whether the rows are complete, and their counts do not depend on the parameters,
        as those of the contributions to a gate do.
    fixed : parameter -> mask of its stored numbers that stay as they are.
    uninformed : the part of it that stays because no row informs it.
    rng : random numbers, for starts.
    notes : sentences for the user, by subject.
    allowance : how many updates starts may make, and whether Ctrl-C has ended them.
    """

    def __init__(
        self,
        parts: Sequence[Rows],
        data: FitData,
        rng: np.random.Generator,
        notes: dict[str, str],
        allowance: Allowance,
    ) -> None:
        self.parts, self.rng, self.notes, self.allowance = tuple(parts), rng, notes, allowance
        self.target, self.given = parts[0].target, parts[0].given
        self.total = sum(part.total for part in parts) + data.blank
        if not np.isfinite(self.total):
            raise PgmError("sample_weight: the sum of all weights is infinite, expected a number")
        self.complete = all(part.complete for part in parts)
        self.counted_once = self.complete and all(
            t.form is None or t.form.closed for t in self.target.structure.tables
        )
        params = self.target.model.params
        kept = {key: np.ones(np.shape(params[key]), dtype=bool) for key in data.kept}
        self.fixed = joint_masks(self._in_all([part.fixed for part in parts]), kept)
        self.uninformed = self._in_all([part.uninformed for part in parts])
        # Objectives that differ in their fixed entries share these.
        self._known: WeakKeyDictionary[Model, dict[object, Any]] = WeakKeyDictionary()

    def _in_all(self, masks: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Return parameter -> mask of the numbers that the masks of all models with them have."""
        params, out = self.target.model.params, dict(masks[0])
        for part, own in zip(self.parts[1:], masks[1:], strict=True):
            for key in out:
                # The biases of an array stay at every length.
                other = part.target.model.params.get(key)
                if other is not None and np.shape(other) == np.shape(params[key]):
                    out[key] = out[key] & own[key] if key in own else np.zeros_like(out[key])
        return {key: mask for key, mask in out.items() if mask.any()}

    def with_fixed(self, fixed: Mapping[str, Array]) -> Objective:
        """Return the objective in which further numbers of parameters stay as they are."""
        out = copy(self)
        out.fixed = joint_masks(self.fixed, fixed)
        return out

    @cached_property
    def moments(self) -> Mapping[str, Moments]:
        """The moments of the data of children with real values, by parameter."""
        if not self.parts[0].in_memory:
            return self.parts[0].moments
        return data_moments([(part.target, part.weights) for part in self.parts])

    @property
    def method(self) -> Positive | AnyMethod:
        """The method of the data phase of the first model."""
        return Exact() if self.chains is not None else self.parts[0].method

    @property
    def exact(self) -> bool:
        """Whether expectations given the data are exact."""
        return self.chains is not None or all(part.exact for part in self.parts)

    @cached_property
    def chains(self) -> Chains | None:
        """The rows of all models as chains; None where they are none, or not exact."""
        for part in self.parts:
            if part.complete or getattr(part.positive, "guarantee", "exact") != "exact":
                return None
            if not part.in_memory:
                return None
        return chains_of([p.target for p in self.parts], [p.weights for p in self.parts])

    def at(self, params: Params, before: Model) -> Model:
        """Return the model at parameters, which are put into their ranges.

        Fixed entries of conditionals are those of the model `before`.
        """
        s = self.target.structure
        kept = {
            t.key: with_kept(
                before.params[t.key],
                np.exp(params[t.key] - params[t.key].max(axis=-1, keepdims=True)),
                self.fixed[t.key],
            )
            for t in s.table_groups.values()
            if t.conditional and t.key in self.fixed
        }
        return Model(s, projected(s, {**params, **kept}))

    def weighed_rows(self, model: Model) -> Iterator[tuple[Target, Array]]:
        """Yield the rows of each model, at the parameters of one model, and their weights."""
        for part in self.parts:
            yield part.target.with_model(part.of(model)), part.weights

    def exchangeable(self, model: Model, labels: Mapping[str, Array]) -> Symmetry:
        """Return the numbers that learning from a model could never tell apart.

        `labels` are further numbers by which those of a parameter differ, such as pseudocounts.
        """
        rows = [(part.target.with_model(part.of(model)), part.given) for part in self.parts]
        return exchangeable(model, rows, self.fixed, labels)

    def counts(self, model: Model) -> Evaluation:
        """Return the log-likelihood, and the expected counts of all table entries."""
        found: Evaluation = self.recalled(model, "counts", self._counts)
        return found

    def gradient(self, model: Model) -> Evaluation:
        """Return the objective, and its gradient by parameter."""
        found: Evaluation = self.recalled(model, "gradient", self._gradient)
        return found

    def recalled(self, model: Model, kind: object, find: Callable[[Model], Any]) -> Any:
        """Return what is known of a model, which is kept as long as the model is."""
        own = self._known.setdefault(model, {})
        if kind not in own:
            own[kind] = find(model)
        return own[kind]

    def _counts(self, model: Model) -> Evaluation:
        summed = None if self.chains is None else self.chains.counts(model)
        found = [summed] if summed else [part.counts(part.of(model)) for part in self.parts]
        value, counts = _added(found, model)
        return Evaluation(None if value is None else value / self.total, counts)

    def _gradient(self, model: Model) -> Evaluation:
        # Without given units, a normalised model has no other phase.
        plain = model.structure.normalized and not self.given and self.chains is not None
        summed = self.chains.gradient(model, self.total) if plain and self.chains else None
        found = [summed] if summed else [p.gradient(p.of(model), self.total) for p in self.parts]
        value, slopes = _added(found, model)
        for key, number in model.params.items():
            if key not in slopes:
                # Biases that stay as they are declared.
                slopes[key] = np.zeros(np.shape(number))
        for t in model.structure.table_groups.values():
            if t.conditional and t.key in self.fixed:
                slopes[t.key] = slopes_with_kept(
                    model.params[t.key], slopes[t.key], self.fixed[t.key]
                )
        return Evaluation(value, slopes)


def _added(
    found: Sequence[tuple[float | None, Mapping[str, Weight]]], model: Model
) -> tuple[float | None, dict[str, Weight]]:
    """Return the sums of values, None if one is not known, and of slopes by parameter of a model.

    Parameters of other models that this one has in another shape stay as they are declared.
    """
    slopes: dict[str, Weight] = {}
    summed = input_rows(model.structure).units
    for _, own in found:
        for key, slope in own.items():
            if key not in model.params:
                continue
            shape = np.shape(model.params[key])
            alike = np.shape(slope) == shape
            # Sums of inputs have one more component.
            alike |= key in summed and np.shape(slope) == (*shape[:-1], shape[-1] + 1)
            if alike:
                slopes[key] = plus(slopes[key], slope) if key in slopes else slope
    values = [value for value, _ in found if value is not None]
    return sum(values) if len(values) == len(found) else None, slopes


def log_likelihood(model: Model, counts: Array) -> float:
    """Return the sum over all entries of count * log entry; entries without a count add 0."""
    seen = counts > 0
    return float(counts[seen] @ model.table_entries[seen])
