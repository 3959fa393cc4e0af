"""The objective of a full batch: the log-likelihood of all rows, its gradient, expected counts.

Rows with equal evidence are computed once, with the sum of their weights. Complete rows need no
inference: their counts are taken in one pass, and their log density is evaluated. Other rows are
answered by the method of the data phase. The model phase subtracts the log normaliser:

    objective = sum over rows of weight * [log p*(row) - log normaliser(row)] / sum of weights,

in nats a row. It is known where both phases are exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine.base.errors import InternalError, PgmError
from pgmengine.base.types import Array, Params, Weight
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.question.prepared import AnyMethod, AnyPrepared, Method, Prepared
from pgmengine.infer.question.splitting import answer
from pgmengine.learn.batch import Batch, joint_masks
from pgmengine.learn.contracts import Allowance, ModelPhase, Positive
from pgmengine.learn.positive import data_phase, default_positive, posterior_draw
from pgmengine.learn.starting.exchangeable import exchangeable
from pgmengine.learn.starting.symmetry import Symmetry
from pgmengine.learn.statistics import Statistics
from pgmengine.learn.steps.optimizers import projected
from pgmengine.learn.whole.counting import CountingModel, counted, is_complete, merged
from pgmengine.learn.whole.fixed_rows import slopes_with_kept, with_kept

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


class Objective:
    """The objective of all rows of a fit.

    Attributes
    ----------
    target, weights : the distinct rows, and the sums of their weights.
    method : the method of the data phase.
    total : the sum of all weights.
    complete : whether every row observes all units.
    counted_once : whether the rows are complete, and their counts do not depend on the parameters,
        as those of the contributions to a gate do.
    given : layer -> mask of the units that are given.
    fixed : parameter -> mask of its stored numbers that stay as they are.
    uninformed : the part of it that stays because no row informs it.
    phase : the model phase.
    rng : random numbers, for starts and for methods that sample.
    notes : sentences for the user, by subject.
    allowance : how many updates starts may make, and whether Ctrl-C has ended them.
    """

    def __init__(
        self,
        target: Target,
        weights: Array,
        positive: Positive | AnyMethod | None,
        phase: ModelPhase,
        given: Mapping[str, Array],
        conditioned: Callable[[Target], Target],
        fixed: Mapping[str, Array],
        uninformed: Mapping[str, Array],
        rng: np.random.Generator,
        notes: dict[str, str],
        executor: Executor | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self.allowance = allowance or Allowance()
        with np.errstate(over="ignore"):
            self.total, self.complete = float(weights.sum()), is_complete(target)
        self.counted_once = self.complete and all(
            t.form is None or t.form.closed for t in target.structure.tables
        )
        if not np.isfinite(self.total):
            raise PgmError("sample_weight: the sum of all weights is infinite, expected a number")
        self.target, self.weights = (target, weights) if self.complete else merged(target, weights)
        self.phase, self.conditioned, self.fixed = phase, conditioned, fixed
        self.given, self.uninformed = given, uninformed
        self.rng, self.notes, self.executor = rng, notes, executor
        self.method: Positive | AnyMethod = positive or self._default_method()
        # Objectives that differ in their fixed entries share these.
        self._counted: list[Array] = []
        self._last: list[tuple[Model, str, Evaluation]] = []
        # The zeros of the parameters at which the question to the data was planned, and the plan.
        self._planned: dict[str, Any] = {}

    def with_fixed(self, fixed: Mapping[str, Array]) -> Objective:
        """Return the objective in which further numbers of parameters stay as they are."""
        out = copy(self)
        out.fixed = joint_masks(self.fixed, fixed)
        return out

    def _default_method(self) -> Positive | AnyMethod:
        """Return the method of the data phase: exact where it fits."""
        plan = None if self.complete else Exact().plan(self.target, ("log_z", "gradient"))
        if plan is None or (plan.accepted and plan.seconds <= MAX_ROWS_SECONDS):
            return Exact()
        return default_positive(self.target, np.float64)

    @property
    def exact(self) -> bool:
        """Whether expectations given the data are exact."""
        return self.complete or getattr(self.method, "guarantee", "") == "exact"

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
        """Yield the rows, with the parameters of a model, and their weights."""
        yield self.target.with_model(model), self.weights

    def exchangeable(self, model: Model, labels: Mapping[str, Array]) -> Symmetry:
        """Return the numbers that learning from a model could never tell apart.

        `labels` are further numbers by which those of a parameter differ, such as pseudocounts.
        """
        return exchangeable(model, self._rows_and_given(model), self.fixed, labels)

    def _rows_and_given(self, model: Model) -> list[tuple[Target, Mapping[str, Array]]]:
        """Return the rows of each length, with the parameters of a model, and their given units."""
        return [(self.target.with_model(model), self.given)]

    def counts(self, model: Model) -> Evaluation:
        """Return the log-likelihood, and the expected counts of all table entries."""
        return self._recalled(model, "counts", self._counts)

    def gradient(self, model: Model) -> Evaluation:
        """Return the objective, and its gradient by parameter."""
        return self._recalled(model, "gradient", self._gradient)

    def _recalled(self, model: Model, kind: str, find: Callable[[Model], Evaluation]) -> Evaluation:
        """Return the evaluation of the last call if it was of this model, else a new one."""
        if not self._last or self._last[0][0] is not model or self._last[0][1] != kind:
            self._last[:] = [(model, kind, find(model))]
        return self._last[0][2]

    def _counts(self, model: Model) -> Evaluation:
        if self.complete:
            if not self._counted:
                found = counted(model.structure, self.target.states, self.weights)
                self._counted.append(found)
            entries = self._counted[0]
            counts = model.parameter_counts(entries)
            return Evaluation(log_likelihood(model, entries) / self.total, counts)
        counting = CountingModel(model.structure, model.params)
        log_z, expected = self._expected(counting, self.weights)
        self._check_counts(expected)
        value = None if log_z is None else float(self.weights @ log_z) / self.total
        return Evaluation(value, {key: expected[key] for key in model.structure.table_groups})

    def _check_counts(self, found: Mapping[str, Array]) -> None:
        """Raise InternalError unless counts are sums of weights times probabilities."""
        places = Counter[str]()
        for t in self.target.structure.tables:
            places[t.key] += len(t.index) * (t.form.draws if t.form else 1)
        for key, number in places.items():
            least, total = found[key].min(), found[key].sum() / number
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

    def _gradient(self, model: Model) -> Evaluation:
        share = self.weights / self.total
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
            given=self.conditioned(target) if self.given else None,
            complete=lambda: posterior_draw(target, self.rng),
            outward=((), ()),
            precision=np.float64,
            data=target,
        )
        found = self.phase.exact(batch)
        if found is None or log_z is None:
            return Evaluation(None, dict(slopes))
        data = Statistics(np.float64)
        data.arrays(slopes, 1.0, 1.0)
        total = (data - found[0]).total(model)
        for t in model.structure.table_groups.values():
            if t.conditional and t.key in self.fixed:
                fixed = self.fixed[t.key]
                total[t.key] = slopes_with_kept(model.params[t.key], total[t.key], fixed)
        return Evaluation(float(share @ log_z) - found[1], total)


def log_likelihood(model: Model, counts: Array) -> float:
    """Return the sum over all entries of count * log entry; entries without a count add 0."""
    seen = counts > 0
    return float(counts[seen] @ model.table_entries[seen])
