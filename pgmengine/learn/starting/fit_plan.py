"""A fit before its first update: its arguments are checked, and its defaults are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.checks import whole
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.evidence.shards import Shards
from pgmengine.evidence.target import Target
from pgmengine.infer.question.prepared import AnyMethod
from pgmengine.learn.contracts import Monitor, Negative, Optimizer, PhaseMonitor, Positive
from pgmengine.learn.full_batch.counting import data_moments
from pgmengine.learn.full_batch.full_batch_run import WholeRun
from pgmengine.learn.full_batch.objective import FitData
from pgmengine.learn.full_batch.optimizer_contract import FullBatch
from pgmengine.learn.loop import UnderWay
from pgmengine.learn.monitoring.findings import watch_of
from pgmengine.learn.monitoring.history import History
from pgmengine.learn.phases.batch import idle_entries, joint_masks
from pgmengine.learn.run import Run
from pgmengine.learn.starting.arguments import (
    check_left,
    check_scales,
    hidden_variables,
    mean_one,
    shared_leaves,
    target_of,
    uninformed_parameters,
    with_weight,
    without_impossible,
)
from pgmengine.learn.starting.base_rate_start import at_data, observed_means, started
from pgmengine.learn.starting.defaults import chosen
from pgmengine.learn.starting.probabilities import check_mini_batches, probabilities_of
from pgmengine.learn.starting.symmetric_start import leave_symmetry, staying
from pgmengine.learn.steps.wrappers import holds
from pgmengine.model.names.unit_names import Member

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Passes over the data by mini-batches, if neither updates nor epochs are given.
DEFAULT_EPOCHS = 10


@dataclass(frozen=True)
class Length:
    """The length of a fit.

    Attributes
    ----------
    batch_size : rows of an update.
    updates : number of updates in all.
    by_default : whether neither updates nor epochs were given.
    """

    batch_size: int
    updates: int
    by_default: bool

    @classmethod
    def of(cls, rows: int, batch_size: int, epochs: int | None, updates: int | None) -> Length:
        """Return the length of a fit to this many rows; PgmError for wrong numbers."""
        size = min(whole("batch_size", batch_size), rows)
        if updates is None:
            passes = DEFAULT_EPOCHS if epochs is None else whole("epochs", epochs, 0)
            return cls(size, passes * -(-rows // size), epochs is None)
        return cls(size, whole("updates", updates, 0), False)


@dataclass(frozen=True, eq=False)
class FitPlan:
    """The data, the methods and the length of a fit.

    Attributes
    ----------
    target : the model at which learning begins, with the data as evidence.
    data : the data, as they were given.
    rows : the data by layer.
    given : the units to condition on, layer -> (size,) bool.
    weights : (rows,), the weight of each row; mini-batches have a mean weight of 1.
    hidden : a note on variables that no row observes, or an empty string.
    means : the mean of each unit over the rows that observe it.
    negative, positive, callbacks, executor, state : see `fit`.
    probabilities : layer -> (rows, size), the data that are drawn anew in each pass.
    optimizer : the given or the chosen one; None for mini-batches, whose default depends on the
        phases.
    why : why the optimizer sees all rows, if that is a choice made here.
    length : how long it learns.
    given_rows : the number of rows of the data, with those of weight 0.
    """

    target: Target
    data: FitData
    rows: Mapping[str, Any]
    given: Mapping[str, Array]
    weights: Array
    hidden: str
    means: dict[str, Array]
    negative: Negative | None
    positive: Positive | AnyMethod | None
    optimizer: Optimizer | FullBatch | None
    why: str
    length: Length
    callbacks: Sequence[Monitor | PhaseMonitor]
    state: Mapping[str, Any] | None
    executor: Executor | None
    probabilities: Mapping[str, Array]
    given_rows: int

    def begun(
        self, model: Model, target: Target, rng: np.random.Generator, other: UnderWay | None = None
    ) -> UnderWay:
        """Return a fit that begins at a model; it is watched as the other one is."""
        names: tuple[str, ...] = ()
        if self.state is None:
            rows = [(target, self.weights), *(part[:2] for part in self.data.others)]
            fixed = joint_masks(
                idle_entries(target, self.given), staying(self.optimizer, model.params)
            )
            # The biases of the steps of a template stay as they are declared.
            moments = data_moments(rows)
            learned = {key: own for key, own in moments.items() if key not in self.data.kept}
            model = at_data(model, learned, fixed)
            if model.fresh:
                model, names = started(model, self.means)
        length = self.length
        run = (WholeRun if holds(self.optimizer, FullBatch) else Run)(
            model,
            target.with_model(model),
            self.weights,
            self.negative,
            self.positive,
            self.given,
            self.optimizer,
            rng,
            (length.batch_size, length.updates),
            self.executor,
            self.probabilities,
            self.data,
        )
        notes = {
            "optimizer": self.why,
            "hidden": self.hidden,
            "leaves": shared_leaves(self.target.structure),
            "uninformed": uninformed_parameters(run.masks_of_uninformed()),
        }
        run.notes |= {subject: note for subject, note in notes.items() if note}
        updates = run.most_updates(length.updates) if length.by_default else length.updates
        run.allowance.updates = updates
        if self.state is None and not isinstance(run, WholeRun):
            leave_symmetry(run)
        history = History(self.callbacks, run.model_phase)
        if self.state is not None:
            run.load(self.state)
            check_left(updates - run.count, 1, run.count, "the state")
        watch = (
            other.watch.anew() if other else watch_of(run, self.means, length.batch_size, updates)
        )
        return UnderWay(run, history, watch, updates, names)


def read_data(data: Any, sample_weight: ArrayLike | None) -> FitData:
    """Return the data of a fit; of shards, the first table and all parts."""
    if not isinstance(data, Shards):
        return FitData(data)
    if sample_weight is not None:
        raise PgmError("sample_weight: rows of Shards have no weights; leave it out")
    first = data.parts[0]
    table = next(first.tables(), None)
    if table is None:
        raise PgmError(f"{first.title} has no rows, and the first part needs some: starts use them")
    return FitData(table, shards=data)


def plan_fit(
    model: Model,
    data: FitData,
    negative: Negative | None,
    positive: Positive | AnyMethod | None,
    given: Iterable[Member] | None,
    optimizer: Optimizer | FullBatch | None,
    batch_size: int,
    epochs: int | None,
    updates: int | None,
    callbacks: Sequence[Monitor | PhaseMonitor],
    sample_weight: ArrayLike | None,
    state: Mapping[str, Any] | None,
    executor: Executor | None,
    probabilities: Iterable[Member] | None = None,
) -> FitPlan:
    """Read the data and choose what was left open; PgmError for data that cannot be learned."""
    chances = probabilities_of(model.structure, data.values, probabilities)
    check_mini_batches(optimizer, chances)
    with nullcontext() if data.shards is None else data.shards.parts[0].named():
        target, rows, known, weights = target_of(model, data.values, given, sample_weight, chances)
    optimizer, why = (
        (optimizer, "") if chances else chosen(optimizer, target, known, negative, positive)
    )
    all_rows = holds(optimizer, FullBatch)
    if not all_rows:
        check_scales([(target, known)])
        if data.shards is not None:
            by = "mini-batches" if optimizer is None else repr(optimizer)
            raise PgmError(
                f"Shards: this fit learns by {by}, and parts are loaded for passes over all rows: "
                "take optimizer=pgm.EM() or pgm.LBFGS(), or fit part by part with state="
            )
    length = Length.of(target.rows, target.rows if all_rows else batch_size, epochs, updates)
    scaled = mean_one(weights)
    means = observed_means(_at_probabilities(target, chances), scaled)
    if all_rows:
        target, weights = with_weight(target, weights), weights[weights > 0]
    else:
        target, weights = without_impossible(target, weights), scaled
    return FitPlan(
        target,
        data,
        rows,
        known,
        weights,
        hidden_variables(target),
        means,
        negative,
        positive,
        optimizer,
        why,
        length,
        callbacks,
        state,
        executor,
        chances,
        len(scaled),
    )


def _at_probabilities(target: Target, chances: Mapping[str, Array]) -> Target:
    """Return the target with probabilities in the place of states, for means of the data."""
    if not chances:
        return target
    own = target.evidence.values
    drawn = {name: np.where(np.isnan(p), own[name], p) for name, p in chances.items()}
    return replace(target, evidence=replace(target.evidence, values={**own, **drawn}))
