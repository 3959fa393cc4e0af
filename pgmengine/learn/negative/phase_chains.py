"""Chains of negative phases, whose parameters change from update to update.

A negative phase is a frozen dataclass of settings whose `start` makes a ModelPhase. Its
`statistics` is the algorithm; the chains, their engine and their snapshots are kept here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Snapshot, States
from pgmengine.declare.model import Model
from pgmengine.engine.chains import Chains, engine_for, make_chains, start
from pgmengine.engine.kernels import Kernel, draws_forests
from pgmengine.evidence.target import Target
from pgmengine.infer.sampling.ladders.round_trips import Travels
from pgmengine.infer.sampling.ladders.temperatures import Betas, ladder
from pgmengine.learn.contracts import ModelPhase
from pgmengine.learn.recorded.recorded_chains import RecordedChains
from pgmengine.learn.recorded.recorder import Recorder
from pgmengine.learn.steps.schedules import Scheduled, at

# A kernel, or a schedule of kernels, update -> kernel.
Kernels: TypeAlias = Scheduled[Kernel]


class Persistent(ModelPhase):
    """Chains that go on from update to update.

    A subclass moves them in `statistics`.
    """

    def __init__(
        self, name: str, given: Target, count: int, kernel: Kernels, rng: np.random.Generator
    ) -> None:
        self.one, self.kernel = unconditioned(name, given), kernel
        many = self.one.take(np.zeros(count, dtype=int))
        self.chains = make_chains(many, at(kernel, 0), start(many, rng), rng)
        self.chains_an_update = count

    def adopt(self, model: Model, update: int, rng: np.random.Generator) -> Chains:
        """Return the chains with the parameters of a model."""
        self.chains = adopted(self.chains, model, self.kernel, update, rng)
        return self.chains

    def snapshot(self) -> Snapshot:
        """Return the states of the chains."""
        return dict(self.chains.values())

    def states(self) -> States:
        """Return the states of the chains at beta = 1."""
        here = self.chains.beta == 1.0
        return {name: value[here] for name, value in self.chains.values().items()}

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from the states of a snapshot."""
        self.chains.place_at(snapshot)


class Laddered(Persistent):
    """Persistent chains that at times leave beta = 1 for a ladder of temperatures."""

    travels: Travels

    def __init__(
        self,
        name: str,
        given: Target,
        count: int,
        kernel: Kernels,
        betas: Betas,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(name, given, count, kernel, rng)
        self.setting, self.betas = betas, ladder(betas, self.one, at(kernel, 0), rng)
        self.travels = Travels(name, len(self.betas), count)

    def snapshot(self) -> Snapshot:
        """Return the states of the chains, the counts of moves, and the ladder."""
        return super().snapshot() | {"/betas": self.betas} | self.travels.state()

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot."""
        super().restore(snapshot)
        self.betas = restored(self.setting, self.betas, snapshot)
        self.travels.load(snapshot)


def adopted(
    chains: Chains, model: Model, kernel: Kernels, update: int, rng: np.random.Generator
) -> Chains:
    """Return the chains with new parameters, in place unless a new kernel needs another engine."""
    if callable(kernel):
        kernel = kernel(update)
        other = type(chains) is not engine_for(chains.target, kernel)
        if other or draws_forests(kernel) != getattr(chains, "forests", False):
            target = chains.target.with_model(model).at(chains.beta)
            return make_chains(target, kernel, chains.values(), rng)
    chains.adopt(model, kernel, rng)
    return chains


def sweep(chains: Chains, count: int) -> None:
    """Make the sweeps of an update; a single sweep has a faster way, which caches nothing."""
    if count == 1:
        chains.sweep_once()
    else:
        chains.sweep(count)


def record_sweeps(
    recorder: Recorder,
    chains: Chains,
    kernel: Kernels,
    count: int,
    single: Mapping[str, Array] | None = None,
) -> None:
    """Append the sweeps of an update, with parameters `single`, or those of the model."""
    moved = RecordedChains(recorder, chains, kernel, single=single)
    if count == 1:
        moved.sweep_once(recorder.key())
    else:
        moved.sweeps(count, recorder.key())


def unconditioned(name: str, given: Target) -> Target:
    """Return the single row of the model phase; PgmError if each row of data has its own phase."""
    for layer, free in given.free.items():
        known = np.logical_not((free | given.intervened[layer]).all(axis=0))
        if not known.any():
            continue
        raise PgmError(
            f"{name} keeps its chains from update to update, but "
            f"{given.structure.names.described(layer, known)} is given, "
            "so that each row of data has a model phase of its own: use CD or ExactGradient"
        )
    return given.take(np.zeros(1, dtype=int))


def restored(setting: Betas, betas: Array, snapshot: Snapshot) -> Array:
    """Return the ladder to go on with: the rungs of the settings, else those of a snapshot."""
    return betas if isinstance(setting, tuple) else np.array(snapshot["/betas"])
