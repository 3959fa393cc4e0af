"""What every negative phase offers: start(given, rng) makes a run, which adds its share of each
update's gradient.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.engine.chains import Chains, make_chains, start
from pgmengine.engine.compiled import CompiledChains, knows
from pgmengine.graph.model import Model
from pgmengine.graph.target import Target
from pgmengine.infer.sampling.travels import Travels
from pgmengine.learn.batch import Batch, Gradient, GradientSum
from pgmengine.learn.schedules import at

State = dict[str, Any]  # name -> array or number: what a checkpoint keeps


class Negative(Protocol):
    """Settings of a negative phase; `precision` is how exactly its gradient is worth computing."""

    precision: ClassVar[type]

    def start(self, given: Target, rng: np.random.Generator) -> NegativeRun:
        """The moving parts; `given` is the model phase of all data, one row when there are no
        `given` layers.
        """


class NegativeRun(Protocol):
    """A negative phase under way; `travels` counts how its chains move on a ladder, if any."""

    travels: Travels | None = None

    @abstractmethod
    def add(self, total: GradientSum, batch: Batch, update: int, rng: np.random.Generator) -> None:
        """Add -E[d log_density | given], the mean over rows."""

    def learned(self, gradient: Gradient) -> None:
        """Told the gradient of the update."""
        return

    def state(self) -> State:
        """Everything needed to go on, besides the parameters and the random numbers."""
        return {}

    def load(self, state: State) -> None:
        """Go on from a state."""
        return


class Persistent(NegativeRun):
    """Chains that go on from update to update; `move(chains, update, rng)` moves them."""

    def __init__(
        self,
        name: str,
        given: Target,
        count: int,
        kernel: Any,
        rng: np.random.Generator,
        move: Callable[[Chains, int, np.random.Generator], None],
    ) -> None:
        self.one, self.kernel, self.move = unconditioned(name, given), kernel, move
        many = self.one.take(np.zeros(count, dtype=int))
        self.chains = make_chains(many, at(kernel, 0), start(many, rng), rng)

    def add(self, total: GradientSum, batch: Batch, update: int, rng: np.random.Generator) -> None:
        """The mean gradient at the chains' states, after they have moved."""
        self.chains = adopted(
            self.chains, self.driven(batch.given.model), at(self.kernel, update), rng
        )
        self.move(self.chains, update, rng)
        total.mean(self.chains.values(dtype=total.precision), -batch.mass)

    def driven(self, model: Model) -> Model:
        """The model that the chains are of."""
        return model

    def state(self) -> State:
        """The chains' states."""
        return dict(self.chains.values())

    def load(self, state: State) -> None:
        """See NegativeRun."""
        self.chains.place_at(state)


def with_ladder(settings: Any, betas: Array, state: State) -> State:
    """The state, with the ladder of these settings if they say it in numbers: one that was found
    stays.
    """
    return {**state, "/betas": betas} if isinstance(settings.betas, tuple) else state


def moved(chains: Chains, sweeps: int) -> None:
    """Make the sweeps of one update."""
    if sweeps == 1:
        chains.sweep_once()
    else:
        chains.sweep(sweeps)


def unconditioned(name: str, given: Target) -> Target:
    """The one row of the model phase; PgmError when rows of data have a phase of their own."""
    observed = [layer for layer, free in given.free.items() if not (free | given.cut[layer]).all()]
    if observed:
        raise PgmError(
            f"{name} keeps its chains from update to update, but layer {observed[0]!r} is given, so that each "
            "row of data has a model phase of its own: use CD or ExactGradient"
        )
    return given.take(np.zeros(1, dtype=int))


def adopted(chains: Chains, model: Model, kernel: Any, rng: np.random.Generator) -> Chains:
    """The chains with other parameters and perhaps another kernel, in place where their engine
    allows it.
    """
    if isinstance(chains, CompiledChains) != knows(chains.target, kernel):
        return make_chains(
            chains.target.with_model(model).at(chains.beta), kernel, chains.values(), rng
        )
    chains.adopt(model, kernel, rng)
    return chains
