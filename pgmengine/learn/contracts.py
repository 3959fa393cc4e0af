"""Contracts of learning: the two phases of the gradient, optimizers, and monitors."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from pgmengine.base.types import Array, Params, Snapshot, States
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.infer.accumulator import Accumulator
from pgmengine.infer.sampling.ladders.round_trips import Travels
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    from pgmengine.learn.phases.batch import Batch
    from pgmengine.learn.phases.statistics import Gradient, Statistics

# Values of monitors: name -> all pairs (update, value), in order.
Records: TypeAlias = "Mapping[str, Sequence[tuple[int, Any]]]"


@runtime_checkable
class Positive(Protocol):
    """A data phase: an inference method that adds its expectation to a sum itself.

    Other methods are asked for `want=("gradient",)`.
    """

    @abstractmethod
    def expect(
        self, target: Target, weights: Array, total: Accumulator, rng: np.random.Generator
    ) -> object:
        """Add the sum over rows of weight * E[d log_density | row] to `total`.

        Returns the posterior if the method knows it as a product of units, else None.
        """


@runtime_checkable
class Negative(Protocol):
    """Settings of a model phase.

    Attributes
    ----------
    precision : np.float32 or np.float64, the precision of the gradient.
    """

    @property
    @abstractmethod
    def precision(self) -> type:
        """The precision of the gradient."""

    @abstractmethod
    def start(self, given: Target, rng: np.random.Generator) -> ModelPhase:
        """Start the model phase of a fit.

        `given` is the target of the model phase: the rows of data with only the `given` layers
        observed, or a single row when there are none.
        """


class ModelPhase:
    """A model phase under way.

    Attributes
    ----------
    travels : counts of the moves of chains on a ladder of temperatures; None without a ladder.
    precision : the precision of the gradient, if it differs from that of the settings.
    chains_an_update : number of chains of each update, or 0 if each row of a mini-batch has one.
        Compiled updates read it.
    """

    travels: Travels | None = None
    precision: type | None = None
    chains_an_update: int = 0

    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Return E[d log_density | given], the mean over the rows of a batch."""
        return batch.nothing()

    def exact(self, batch: Batch) -> tuple[Statistics, float] | None:
        """Return the statistics with the mean log normaliser of the rows, for full batches.

        The mean log density of the data less this normaliser is the objective, whose gradient the
        statistics give. None if the phase only estimates.
        """
        return None

    def learned(self, gradient: Gradient, update: int) -> None:
        """Use the gradient of an update, such as for fast weights."""

    def states(self) -> States:
        """Return the states of persistent chains, layer -> (n, width); {} without any."""
        return {}

    def snapshot(self) -> Snapshot:
        """Return everything needed to go on, besides the parameters and the random numbers."""
        return {}

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot."""


@dataclass(eq=False)
class Allowance:
    """How far an update may go that makes several updates at once, such as those of random starts.

    Attributes
    ----------
    updates : the number of updates of the whole fit.
    interrupted : returns whether Ctrl-C has asked for the end.
    """

    updates: int = sys.maxsize
    interrupted: Callable[[], bool] = lambda: False


class NormalizedPhase(ModelPhase):
    """The model phase of normalised models: the log normaliser and its gradient are 0."""

    def exact(self, batch: Batch) -> tuple[Statistics, float]:
        """Return empty statistics, and 0."""
        return batch.nothing(), 0.0


@runtime_checkable
class Optimizer(Protocol):
    """Steps that raise the log-likelihood; its snapshot, `moments`, changes in place."""

    @abstractmethod
    def start(self, params: Params) -> Snapshot:
        """Return the moments before the first step."""

    @abstractmethod
    def step(
        self, structure: Structure, params: Params, gradient: Gradient, moments: Snapshot, t: int
    ) -> Params:
        """Return the parameters after step t, counted from 0, of ascent along the gradient."""


class Monitor(Protocol):
    """A callback of a fit, a function or an object, for values of the history."""

    def __call__(self, model: Model, update: int, /) -> Mapping[str, Any] | None:
        """Return name -> number, or row of numbers, or None.

        Called before learning, as update 0, and after every update.
        """


@runtime_checkable
class PhaseMonitor(Protocol):
    """A monitor of the model phase; a fit calls `watching` first."""

    @abstractmethod
    def watching(self, phase: ModelPhase) -> Monitor:
        """Return the monitor bound to a phase; PgmError if the phase has nothing to monitor."""


@runtime_checkable
class Stopping(Protocol):
    """A monitor that can end a fit."""

    @abstractmethod
    def stops(self, history: Records) -> str | bool:
        """Return the reason to end the fit (or True); an empty string or False to go on."""
