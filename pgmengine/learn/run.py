"""The moving parts of one fit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.engine.packed import packed
from pgmengine.graph.model import Model
from pgmengine.graph.target import Target
from pgmengine.graph.weights import elementwise, like, numbers
from pgmengine.learn.batch import Batch, GradientSum, add_expected, only
from pgmengine.learn.checkpoint import digest_of
from pgmengine.learn.negative.base import Negative
from pgmengine.learn.optimizers import Optimizer, Stepped
from pgmengine.learn.outward import outward
from pgmengine.learn.positive import default_positive, posterior_draw, unjudged
from pgmengine.learn.projected import projected
from pgmengine.learn.settled import idle_parameters, settled_layers, without

State = dict[str, Any]
# Numbers that the Mersenne twister makes at a time; numpy does not check where it is among them.
MERSENNE = 624
log = logging.getLogger(__name__)


class Run:
    """One fit under way; `model` is always that of the last complete update."""

    def __init__(
        self,
        model: Model,
        target: Target,
        weights: Array,
        negative: Negative,
        positive: Any,
        given: tuple[str, ...],
        optimizer: Optimizer,
        rng: np.random.Generator,
        executor: Executor | None = None,
    ) -> None:
        model = _model(model, model.params)
        self.model, self.target = model, compact(target.with_model(model), negative.precision)
        self.weights, self.given = weights, given
        self.optimizer, self.rng, self.executor, self.count = optimizer, rng, executor, 0
        self.settings, self.precision = negative, negative.precision
        self.positive = positive or default_positive(target, self.precision)
        self.data_phase = unjudged(self.positive)
        self.moments = optimizer.start(model.params)
        self.normalized = model.structure.normalized and not given
        self.settled = settled_layers(model.structure, given)
        self.idle = idle_parameters(target, given)
        self.outward = outward(target, given)
        phase = self._given(target)
        self.nothing = phase.take(np.zeros(1, dtype=int))
        self.negative = None if self.normalized else negative.start(phase, rng)
        self.order: Array = np.zeros(0, dtype=int)

    def _given(self, target: Target) -> Target:
        return without(only(target, self.given), self.settled)

    def next_rows(self, size: int) -> Array:
        """The next mini-batch: shuffled passes over the rows, the last batch of a pass may be
        smaller.
        """
        if not len(self.order):
            self.order = self.rng.permutation(self.target.rows)
        rows, self.order = self.order[:size], self.order[size:]
        return np.sort(rows)

    def update(self, rows: Array) -> None:
        """One update; `model` changes only when all of it is done."""
        data = self.target.take(rows).with_model(self.model)
        given = self._given(data) if self.given else self.nothing.with_model(self.model)
        weights, total = self.weights[rows], GradientSum(self.model, self.precision)
        q = add_expected(self.data_phase, data, weights / len(rows), total, self.rng, self.executor)
        batch = Batch(given, weights, lambda: posterior_draw(data, self.rng, q), self.outward)
        means = total.means()
        if self.negative is not None:
            total.settled = self.settled
            self.negative.add(total, batch, self.count, self.rng)
        gradient = total.total()
        for name in self.idle:
            gradient[name] = elementwise(
                np.zeros_like, gradient[name]
            )  # not what rounding leaves of it
        gradient.means, gradient.idle = means, self.idle
        params = self.optimizer.step(
            self.model.structure, self.model.params, gradient, self.moments, self.count
        )
        if not isinstance(params, Stepped):
            params = self._checked(params)
        if self.negative is not None:
            self.negative.learned(gradient)
        self.model, self.count = _model(self.model, params), self.count + 1

    def _checked(self, params: Any) -> dict[str, Any]:
        """What an optimizer of a user's own made of the parameters."""
        s, kind = self.model.structure, type(self.optimizer).__name__
        if not isinstance(params, Mapping) or set(params) != set(self.model.params):
            found = sorted(params) if isinstance(params, Mapping) else type(params).__name__
            raise PgmError(
                f"update {self.count + 1}: step of {kind} returned {found}, expected "
                f"{sorted(self.model.params)}"
            )
        try:
            self.model.with_params(projected(s, params))
        except PgmError as error:
            raise PgmError(f"update {self.count + 1}: step of {kind}: {error}") from None
        return dict(params)

    def state(self) -> State:
        """Everything needed to go on but the parameters: name -> array, and the random generator's
        state.
        """
        parts = {
            "optimizer": self.moments,
            "negative": {} if self.negative is None else self.negative.state(),
        }
        out: State = {
            f"{part}/{name}": np.array(v)
            for part, values in parts.items()
            for name, v in values.items()
        }
        by = " and ".join(_kind(part) for part in (self.optimizer, self.settings))
        rest = {
            "by": by,
            "update": self.count,
            "order": self.order,
            "rng": self.rng.bit_generator.state,
        }
        return out | rest | {"parameters": digest_of(self.model)}

    def load(self, state: State) -> None:
        """Go on from a state; PgmError if it is of other phases or another optimizer."""
        mine = self.state()
        now = mine.pop("parameters")
        theirs = set(state) - set(self.params()) - {"parameters"}
        other = sorted((theirs ^ set(mine)) - {"by"})  # moments, averages, chains
        if state.get("by", mine["by"]) != mine["by"] or other:
            apart = f": only one of them has {other[0]!r}" if other else ""
            raise PgmError(
                f"the state is of a fit with {state.get('by')}, this one has {mine['by']}{apart}"
            )
        for name, value in mine.items():
            if np.shape(state[name]) != np.shape(value) and name != "order":
                raise PgmError(
                    f"the state is of another fit: {name!r} has shape {np.shape(state[name])}, expected "
                    f"{np.shape(value)}"
                )
            theirs_is, mine_is = np.asarray(state[name]).dtype, np.asarray(value).dtype
            if theirs_is.kind != mine_is.kind:
                raise PgmError(
                    f"the state is of another fit: {name!r} has entries of {theirs_is}, "
                    f"expected {mine_is}"
                )
        if state.get("parameters", now) != now:
            log.warning(
                "the state is of a fit that ended with other parameters than those of this model: to go on from "
                "a fit, give its model, too"
            )
        self.count, order = int(state["update"]), np.array(state["order"])
        if self.count < 0 or order.ndim != 1 or (order < 0).any():
            raise PgmError(
                "the state is of no fit: its updates and the rows of its order are not numbers "
                "from 0 up"
            )
        self.order = order[order < self.target.rows]  # the data may be others than before
        for name, value in self.moments.items():
            value[...] = state[f"optimizer/{name}"]
        if self.negative is not None:
            own = {
                name.removeprefix("negative/"): v
                for name, v in state.items()
                if name.startswith("negative/")
            }
            self.negative.load(own)
        # The one that was given may be in use elsewhere, so that it is not set back.
        self.rng = np.random.Generator(_bits(type(self.rng.bit_generator), state["rng"]))

    def params(self) -> dict[str, Array]:
        """All parameters as flat arrays, for a checkpoint."""
        return {f"params/{name}": numbers(value) for name, value in self.model.params.items()}

    def set_params(self, arrays: dict[str, Array]) -> None:
        """The parameters of a checkpoint; PgmError for those that the model cannot have."""
        params = dict[str, Any]()
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
        self.model.with_params(params)  # which checks the numbers
        self.model = Model(self.model.structure, params)


def _bits(kind: Any, state: Any) -> Any:
    """A bit generator in a state; PgmError for that of another kind, or of none."""
    try:
        bits = kind()
        bits.state = state
        if not 0 <= dict(bits.state["state"]).get("pos", 0) <= MERSENNE:
            raise ValueError("its position is beyond its numbers")
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise PgmError(f"the state is of a fit with other random numbers: {error}") from None
    return bits


def _kind(settings: Any) -> str:
    """The name of a trainer, or an optimizer with that of the one inside it."""
    inside = getattr(settings, "optimizer", None)
    return type(settings).__name__ + (f"({_kind(inside)})" if inside is not None else "")


def compact(target: Target, precision: type) -> Target:
    """The same rows with values in the precision of learning."""
    e = target.evidence
    values = {
        name: v if v.strides[0] == 0 else v.astype(precision, copy=False)
        for name, v in e.values.items()
    }
    return replace(target, evidence=replace(e, values=values))


def _model(before: Model, params: Mapping[str, Any]) -> Model:
    """The next model; what the optimizer knows in single precision need not be converted again."""
    model = Model(before.structure, projected(before.structure, params))
    if isinstance(params, Stepped):
        packed(model).singles.update(params.singles_of(model.params))
    return model
