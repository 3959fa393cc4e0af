"""A fit under way: the model, the two phases of its gradient, and the optimizer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pgmengine import _kernels
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Params, States, Weight
from pgmengine.declare.model import Model
from pgmengine.engine.packed import packed
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.question.prepared import AnyMethod
from pgmengine.learn.contracts import (
    Allowance,
    ModelPhase,
    Negative,
    NormalizedPhase,
    Optimizer,
    Positive,
)
from pgmengine.learn.full_batch.objective import FitData, Objective
from pgmengine.learn.full_batch.optimizer_contract import FullBatch
from pgmengine.learn.full_batch.spreads import collapsed
from pgmengine.learn.monitoring.finding import Finding
from pgmengine.learn.phases.batch import (
    Batch,
    idle_entries,
    joint_masks,
    layers_by_means,
    only,
    outward,
    uninformed_entries,
    without,
)
from pgmengine.learn.phases.positive import data_phase, default_positive, factorises, posterior_draw
from pgmengine.learn.phases.statistics import Gradient, Statistics
from pgmengine.learn.recorded.recorded_updates import Call, CompiledUpdates, RowOrder
from pgmengine.learn.recorded.recorder import NotCompiled, Recorder, recording
from pgmengine.learn.saving.checkpoint import parameters_digest
from pgmengine.learn.starting.arguments import with_weight
from pgmengine.learn.starting.defaults import default_negative, default_optimizer
from pgmengine.learn.starting.probabilities import draw
from pgmengine.learn.steps.optimizers import Stepped, floors, raised, with_normalised
from pgmengine.model.weights import elementwise, like, numbers

# `Fit.state`: the snapshots of optimizer and model phase under "optimizer/..." and "negative/...",
# the count of updates, the order of the rows left in this pass, and the random numbers.
State = dict[str, Any]

# The entries of a state from which the orders of later passes follow.
ORDER_ENTRIES = {"order_key", "passes"}
# Numbers that the Mersenne twister makes at a time; numpy does not check its position among them.
MERSENNE_NUMBERS = 624
log = logging.getLogger(__name__)


def _without(idle: Array, slope: Array) -> Array:
    """Return a gradient with 0 in its idle entries."""
    return np.where(idle, np.zeros((), slope.dtype), slope)


class Run:
    """A fit under way, by mini-batches; `model` is the one after the last complete update.

    An update is one `call` for the compiled loop, or None, and one `finish`. A subclass makes its
    updates in another way: it has its own `_begin`, `call` and `finish`.

    Attributes
    ----------
    value : the objective at the model, in nats a row, where the optimizer knows it, else None.
    notes : sentences about this run that a user should read, by subject.
    uninformed : parameter -> mask of its stored numbers that no row informs.
    idle : parameter -> mask of the numbers that stay: uninformed ones, and ones that act on
        given units only.
    watched : whether the findings of the fit need scores of the model.
    objective : the log-likelihood of all rows, where updates see all of them.
    start : the model before the first update.
    """

    positive: Positive | AnyMethod
    negative: Negative
    optimizer: Any
    precision: type
    factorised = False
    watched = True
    objective: Objective | None = None
    by_means: tuple[str, ...] = ()

    def __init__(
        self,
        model: Model,
        target: Target,
        weights: Array,
        negative: Negative | None,
        positive: Positive | AnyMethod | None,
        given: Mapping[str, Array],
        optimizer: Optimizer | FullBatch | None,
        rng: np.random.Generator,
        plan: tuple[int, int] = (100, 1000),
        executor: Executor | None = None,
        probabilities: Mapping[str, Array] | None = None,
        data: FitData | None = None,
    ) -> None:
        s = model.structure
        self.data = data or FitData({})
        self.weights, self.given, self.rng, self.count = weights, given, rng, 0
        self.value: float | None = None
        self.notes: dict[str, str] = {}
        self.executor = executor
        self.allowance = Allowance()
        self.floors = floors(s)
        self.uninformed = uninformed_entries(with_weight(target, weights), given)
        self.idle = joint_masks(idle_entries(target, given), self.uninformed)
        self.model = Model(s, self._kept(model.params, raised(model.params, self.floors)))
        self.start = self.model
        self.normalized = s.normalized and not given
        self.model_phase: ModelPhase = NormalizedPhase()
        self.order = RowOrder(
            rng.integers(0, 2**32, size=4, dtype=np.uint32), np.zeros(target.rows, dtype=np.int64)
        )
        self.size = plan[0]
        self._compiled: CompiledUpdates | None = None
        self._recorded = False
        self._begin(target.with_model(self.model), negative, positive, optimizer, plan)
        self.probabilities = probabilities or {}
        self._own_values()
        self.moments = self.optimizer.start(self.model.params)

    def _begin(
        self,
        target: Target,
        negative: Negative | None,
        positive: Positive | AnyMethod | None,
        optimizer: Any,
        plan: tuple[int, int],
    ) -> None:
        """Choose both phases and the optimizer where none is given, and start the phases."""
        size, updates = plan
        self.outward = outward(target, self.given)
        self.by_means = layers_by_means(target.structure, self.given)
        if negative is None:
            negative = default_negative(self.conditioned(target), bool(self.given), size)
        self.negative = negative
        if not self.normalized:
            self.model_phase = negative.start(self.conditioned(target), self.rng)
        self.precision = self.model_phase.precision or negative.precision
        self.target = compact(target, self.precision)
        self.positive = positive or default_positive(target, self.precision)
        self.factorised = factorises(target)
        self.data_phase = data_phase(self.positive, self.executor, self.factorised)
        self.optimizer = optimizer or default_optimizer(
            target,
            model_phase=not self.normalized,
            exact=self.factorised or isinstance(self.positive, Exact),
            updates=updates,
        )

    @property
    def phase(self) -> Negative | None:
        """The method of the model phase; None for a normalised model."""
        return None if self.normalized else self.negative

    def most_updates(self, total: int) -> int:
        """Return the number of updates of a fit whose length is not given."""
        return total

    def call(self, most: int) -> Call | None:
        """Return at most `most` updates for the compiled loop; None if they are made in Python."""
        # The first update is made in Python. Optimizers then know the scales of the data.
        if self.count and not self._recorded:
            self._compiled, self._recorded = self._record(), True
        if self._compiled is None:
            return None
        if self.probabilities:
            # The data change between two passes.
            if not self.order.left:
                self._draw(self.order.passes)
            most = min(most, -(-(self.order.left or self.target.rows) // self.size))
        return self._compiled.call(self.model.params, self.count, most, self.rng, self.order)

    def finish(self, call: Call | None) -> str:
        """Take the parameters of a call; without a call, make one update in Python.

        Returns the reason for which learning ends, or an empty string.
        """
        if call is None:
            self.update(self.next_rows(self.size))
        else:
            self.model = Model(self.model.structure, call.result())
            call.updates.last = self.model.params, call.ends
            self.count += call.count
        return ""

    def _record(self) -> CompiledUpdates | None:
        """Return the compiled updates; None where a part of the update has no operations."""
        try:
            if _kernels.PROCESSOR == "plain":
                raise NotCompiled("the routines of this process are plain ones")
            if self.idle or self.given or self.by_means or self.executor is not None:
                raise NotCompiled("the model phase depends on the row, or leaves layers out")
            if self.probabilities and self.precision is not np.float32:
                raise NotCompiled("the loop would copy the data, which change in each pass")
            recorder = Recorder(
                self.target.with_model(self.model),
                self.weights,
                min(self.size, self.target.rows),
                self.model_phase.chains_an_update,
                self.order.key,
                self.moments,
                self.outward,
            )
            if self.probabilities and recorder.partly:
                raise NotCompiled("the loop would copy the data, which change in each pass")
            recorder.take_rows()
            recording(self.data_phase)(recorder)
            recording(self.model_phase)(recorder)
            recording(self.optimizer)(recorder, recorder.gradient())
            return CompiledUpdates(recorder)
        except NotCompiled as why:
            log.info("updates are made in Python: %s", why)
            return None

    def next_rows(self, size: int) -> Array:
        """Return the next mini-batch of shuffled passes; the last one of a pass may be smaller."""
        order, count = self.order, self.target.rows
        if not order.left:
            self._draw(order.passes)
            order.rows[:] = _kernels.shuffled(order.key, order.passes, count)
            order.passes, order.left = order.passes + 1, count
        first = count - order.left
        rows = np.sort(order.rows[first : first + size])
        order.left -= len(rows)
        return rows

    def _own_values(self) -> None:
        """Give the run values of its own where its data are probabilities, and draw them."""
        e = self.target.evidence
        own = dict[str, Array]()
        for name in self.probabilities:
            own[name] = np.array(e.values[name], dtype=self.precision, order="C")
        self.target = replace(self.target, evidence=replace(e, values={**e.values, **own}))
        self._draw(0)

    def _draw(self, number: int) -> None:
        """Draw the data of a pass that are probabilities."""
        for name, chance in self.probabilities.items():
            draw(self.target.evidence.values[name], chance, self.order.key, number)

    def update(self, rows: Array) -> None:
        """Step along E[d log_density | data] - E[d log_density | given] of a mini-batch."""
        model, weights, t = self.model, self.weights[rows], self.count
        target = self.target.take(rows).with_model(model)
        for value in target.evidence.values.values():
            # Read-only arrays allow products with them to be kept from phase to phase.
            value.flags.writeable = False

        data = Statistics(self.precision)
        posterior = self.data_phase.expect(target, weights / len(rows), data, self.rng)

        batch = Batch(
            model,
            weights,
            given=self.conditioned(target) if self.given else None,
            complete=lambda: posterior_draw(target, self.rng, posterior),
            outward=self.outward,
            precision=self.precision,
            by_means=self.by_means,
            data=target,
        )
        given = self.model_phase.statistics(batch, t, self.rng)

        gradient = Gradient((data - given).total(model), data, self.idle)
        # These entries are set to exactly 0, because the difference leaves rounding errors.
        for name, idle in self.idle.items():
            gradient[name] = elementwise(partial(_without, idle), gradient[name])

        params = self.optimizer.step(model.structure, model.params, gradient, self.moments, t)
        stepped = self._stepped(params)
        self.model_phase.learned(gradient, t)
        self.model, self.count = stepped, t + 1

    def conditioned(self, target: Target) -> Target:
        """Return the target of the model phase, in which only the given units are observed."""
        return without(only(target, self.given), self.by_means)

    def _stepped(self, params: Params) -> Model:
        """Return the model at the parameters of a step, all of them within their ranges."""
        made = params.singles if isinstance(params, Stepped) else None
        if made is None:
            self._check_step(params)
        model = Model(self.model.structure, self._projected(params))
        # Chains use the numbers in single precision, and need not convert them again.
        packed(model).singles |= {
            k: single
            for k, (value, single) in (made or {}).items()
            if model.expanded.get(k) is value
        }
        return model

    def _projected(self, params: Params) -> Params:
        """Return the parameters of a step in their ranges, as `projected` does."""
        found = with_normalised(self.model.structure, raised(params, self.floors))
        return self._kept(self.model.params, found)

    def _kept(self, before: Params, after: Params) -> Params:
        """Return parameters with the idle numbers of the model before the update."""
        out: dict[str, Weight] = dict(after)
        for name, idle in self.idle.items():
            if after[name] is not before[name]:
                own, new = numbers(before[name]), numbers(after[name])
                out[name] = like(after[name], np.where(idle.ravel(), own, new))
        return out if self.idle else after

    def _check_step(self, params: Params) -> None:
        """Raise PgmError if an optimizer, such as one of a user's own, made unusable parameters."""
        kind = type(self.optimizer).__name__
        if not isinstance(params, Mapping) or set(params) != set(self.model.params):
            found = sorted(params) if isinstance(params, Mapping) else type(params).__name__
            raise PgmError(
                f"update {self.count + 1}: step of {kind} returned {found}, expected "
                f"{sorted(self.model.params)}"
            )
        try:
            self.model.with_params(raised(params, self.floors))
        except PgmError as error:
            raise PgmError(f"update {self.count + 1}: step of {kind}: {error}") from None

    def last_chains(self) -> States:
        """Return the states of persistent chains of the whole model; {} without any."""
        return {} if self.given or self.by_means else self.model_phase.states()

    def masks_of_uninformed(self) -> Mapping[str, Array]:
        """Return the masks of the numbers that no row informs."""
        return self.uninformed

    def findings(self) -> tuple[Finding, ...]:
        """Return signs, other than the scores, that the model could be much better."""
        return collapsed(self.model, [(self.target.with_model(self.model), self.weights)])

    def state(self) -> State:
        """Return everything that is needed to go on, except the parameters."""
        snapshots = {"optimizer": self.moments, "negative": self.model_phase.snapshot()}
        return {
            **{
                f"{part}/{name}": np.array(value)
                for part, snapshot in snapshots.items()
                for name, value in snapshot.items()
            },
            "by": " and ".join(_kind(part) for part in (self.optimizer, self.negative)),
            "update": self.count,
            "order": self.order.rows[self.target.rows - self.order.left :].copy(),
            "order_key": self.order.key,
            "passes": self.order.passes,
            "rng": self.rng.bit_generator.state,
            "parameters": parameters_digest(self.model),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; PgmError if it is of other phases or another optimizer."""
        self._check(state)
        self.count, order = int(state["update"]), np.array(state["order"])
        passes = int(state.get("passes", 0))
        if self.count < 0 or order.ndim != 1 or (order < 0).any() or passes < 0:
            raise PgmError(
                "the state is of no fit: its updates, passes and the rows of its order are not "
                "numbers from 0 up"
            )
        if len(np.unique(order)) < len(order):
            raise PgmError("the state is of no fit: a row is twice in the order of a pass")
        # The data of this fit may have fewer rows than the data before.
        order = order[order < self.target.rows]
        rows = np.zeros(self.target.rows, dtype=np.int64)
        rows[len(rows) - len(order) :] = order
        key = np.array(state.get("order_key", self.order.key), dtype=np.uint32)
        self.order = RowOrder(key, rows, len(order), passes)
        self._draw(max(passes - 1, 0))
        self._compiled, self._recorded = None, False
        for name, value in self.moments.items():
            value[...] = state[f"optimizer/{name}"]
        start = "negative/"
        self.model_phase.restore(
            {k.removeprefix(start): np.asarray(v) for k, v in state.items() if k.startswith(start)}
        )
        # The generator that the user gave may be in use elsewhere, so its state is not changed.
        self.rng = np.random.Generator(_bits(type(self.rng.bit_generator), state["rng"]))

    def _check(self, state: Mapping[str, Any]) -> None:
        """Raise PgmError unless a state has the entries, shapes and types of this fit."""
        mine = self.state()
        now = mine.pop("parameters")
        theirs = set(state) - set(self.params()) - {"parameters"}
        # Versions before 0.2 drew the order of each pass by `rng`.
        mine = {k: v for k, v in mine.items() if k not in (ORDER_ENTRIES - theirs)}
        other = sorted((theirs ^ set(mine)) - {"by"})
        if state.get("by", mine["by"]) != mine["by"] or other:
            apart = f": only one of them has {other[0]!r}" if other else ""
            raise PgmError(
                f"the state is of a fit with {state.get('by')}, this one has {mine['by']}{apart}"
            )
        for name, value in mine.items():
            own, found = np.asarray(value), np.asarray(state[name])
            if found.shape != own.shape and name != "order":
                raise PgmError(
                    f"the state is of another fit: {name!r} has shape {found.shape}, expected "
                    f"{own.shape}"
                )
            if found.dtype.kind != own.dtype.kind:
                raise PgmError(
                    f"the state is of another fit: {name!r} has entries of {found.dtype}, "
                    f"expected {own.dtype}"
                )
        if state.get("parameters", now) != now:
            log.warning(
                "the state is of a fit that ended with other parameters than those of this model: "
                "to go on from a fit, give its model, too"
            )

    def params(self) -> dict[str, Array]:
        """Return all parameters as flat arrays, for a checkpoint."""
        return {f"params/{name}": numbers(value) for name, value in self.model.params.items()}

    def set_params(self, arrays: Mapping[str, Array]) -> None:
        """Take the parameters of a checkpoint; PgmError if the model cannot have them."""
        params: dict[str, Weight] = {}
        for name, value in self.model.params.items():
            found, own = arrays.get(f"params/{name}"), numbers(value)
            if found is None or found.shape != own.shape or found.dtype != own.dtype:
                said = (
                    "is missing" if found is None else f"has {found.shape} entries of {found.dtype}"
                )
                raise PgmError(
                    f"the checkpoint is of another model: parameter {name!r} {said}, expected "
                    f"{own.shape} of {own.dtype}"
                )
            params[name] = like(value, found)
        # with_params checks the numbers.
        self.model.with_params(params)
        self.model = Model(self.model.structure, params)


def _bits(kind: type[np.random.BitGenerator], state: Any) -> np.random.BitGenerator:
    """Return a bit generator in a given state; PgmError if the state is of another kind."""
    try:
        bits = kind()
        bits.state = state
        if not 0 <= dict(bits.state["state"]).get("pos", 0) <= MERSENNE_NUMBERS:
            raise ValueError("its position is beyond its numbers")
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise PgmError(f"the state is of a fit with other random numbers: {error}") from None
    return bits


def _kind(settings: object) -> str:
    """Return the name of a trainer, or of an optimizer and the optimizer inside it."""
    inside = getattr(settings, "optimizer", None)
    return type(settings).__name__ + (f"({_kind(inside)})" if inside is not None else "")


def compact(target: Target, precision: type) -> Target:
    """Return the same rows with values in the precision of learning."""
    e = target.evidence
    values = {
        name: v if v.strides[0] == 0 else v.astype(precision, copy=False)
        for name, v in e.values.items()
    }
    return replace(target, evidence=replace(e, values=values))
