"""Annealing runs: chains that move from one end of a ladder to the other, with importance weights.

A run starts with exact or resampled draws x_0 at the first beta and makes one sweep at each of the
following ones. With f_beta the unnormalised density, whose fast layers are summed out,

    log w = sum_t log f_(beta_(t+1))(x_t) - log f_(beta_t)(x_t),    x_t the state before sweep t + 1

has E[w] = Z_end / Z_start (Neal 2001). Going up, log Z = log Z_0 + log mean w; going down, log Z =
log Z_0 - log mean w. `Chains.anneal` does the sweeps and adds up log w; this module has the starts
of both runs, and the statistics of their importance weights. Chains are in single precision, whose
rounding is the least error that a run reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.numerics import log_sum, softmax
from pgmengine.base.types import Array, States
from pgmengine.engine.chains import make_chains, over_chains
from pgmengine.graph.queries import summed_layers
from pgmengine.graph.target import Target
from pgmengine.infer.exact.elimination import Elimination
from pgmengine.infer.exact.enumeration import Enumeration
from pgmengine.infer.exact.exact import least_width
from pgmengine.infer.exact.planning import rough_entries
from pgmengine.infer.prepared import Prepared
from pgmengine.infer.sampling.resampling import systematic
from pgmengine.infer.sampling.schedules import Betas, ladder
from pgmengine.infer.sampling.trust import pareto_shape
from pgmengine.protocols import Kernel

# Relative rounding of single precision, in which chains compute.
ROUNDING = 2.0**-24

# Largest number of states of a cover that are enumerated for exact draws.
SMALL = 2.0**16

# Largest number of table entries of a junction tree for exact draws, whose pass takes milliseconds.
# There is no search for a tree so small: a quick order has to give it.
ENTRIES = 2.0**20


class Settings(Protocol):
    """The settings of an annealing run."""

    @property
    def chains(self) -> int:
        """Number of chains for each row."""

    @property
    def betas(self) -> Betas:
        """The ladder."""

    @property
    def kernel(self) -> Kernel:
        """The kernel of the chains."""

    @property
    def reverse(self) -> bool:
        """Whether to anneal down as well."""

    @property
    def reference(self) -> Mapping[str, ArrayLike] | None:
        """Natural parameters of the units at beta = 0."""


@dataclass(frozen=True, eq=False)
class AnnealedRun:
    """Estimates of log Z by one run, with the statistics of their importance weights.

    Attributes
    ----------
    log_z, error : (rows,), in nats.
    ess : (rows,), effective number of chains.
    log_weights : (rows, chains), log importance weights.
    shape : (rows,), shape of the Pareto tail of the importance weights.
    exact : (rows,), whether the run started from exact draws.
    """

    log_z: Array
    error: Array
    ess: Array
    log_weights: Array
    shape: Array
    exact: Array


class Annealing:
    """Annealing of all rows of a target.

    Rows in which the same layers move are annealed together: the layers that the importance weights
    sum out must not depend on the other rows of a question.
    """

    def __init__(self, settings: Settings, target: Target) -> None:
        self.settings, self.target = settings, target

    @cached_property
    def exact_draws(self) -> Prepared:
        """The question for exact draws to start the reverse run from; refused where too large."""
        target, count = self.target.at(1.0), self.settings.chains
        walk = Enumeration(np.log2(SMALL), count).prepare(target, ("samples",))
        wide = walk.plan.accepted or least_width(target) > np.log2(ENTRIES)
        if wide or rough_entries(target) > ENTRIES:
            return walk
        return Elimination(ENTRIES, count, max_work=0).prepare(target, ("samples",))

    def runs(
        self, rng: np.random.Generator, work: float, executor: Executor | None
    ) -> tuple[AnnealedRun, AnnealedRun | None]:
        """Return the forward run, and the reverse run if the settings ask for it."""
        moving = np.stack([free.any(axis=1) for free in self.target.free.values()])
        kind = np.unique(moving, axis=1, return_inverse=True)[1].ravel()
        if not kind.any():
            return self._both(rng, work, executor)
        rows = [np.flatnonzero(kind == k) for k in range(kind.max() + 1)]
        parts = [Annealing(self.settings, self.target.take(some)) for some in rows]
        ups, downs = zip(*(part._both(rng, work, executor) for part in parts), strict=True)
        back = np.argsort(np.concatenate(rows))
        return _joined(ups, back), None if downs[0] is None else _joined(downs, back)

    def _both(
        self, rng: np.random.Generator, work: float, executor: Executor | None
    ) -> tuple[AnnealedRun, AnnealedRun | None]:
        """Anneal from independent units to the model, and from draws of the model back."""
        count, target = self.settings.chains, self.target.at(0.0, self.settings.reference)
        betas = ladder(self.settings.betas, target, self.settings.kernel, rng)
        betas = betas if betas[0] == 0.0 else np.concatenate(([0.0], betas))
        many = target.take(np.repeat(np.arange(target.rows), count))
        at_0 = target.log_z_at_0()
        moves = np.any([mask.any(axis=1) for mask in target.free.values()], axis=0)
        # Up: x ~ p_0, one sweep at each rung, and log Z = log Z_0 + log mean w.
        x = many.draw_at_0(rng)
        log_w, x = self._annealed(executor, many, x, rng, work, 0, betas)
        up = _estimate(log_w.reshape(target.rows, -1), at_0, 1.0, moves)
        if not self.settings.reverse:
            return up, None
        # Down: x ~ p_1, one sweep at each rung, and log Z = log Z_0 - log mean w.
        # Rows without a possible state have no draws that could be annealed down.
        live, dead = np.flatnonzero(up.ess > 0), np.flatnonzero(up.ess == 0)
        runs = [_nothing(len(dead), count)]
        if len(live):
            chains = (live[:, None] * count + np.arange(count)).ravel()
            last = {name: value[chains] for name, value in x.items()}
            x, sweeps, exact = self._model_draws(live, last, up.log_weights[live], len(betas), rng)
            some = many.take(chains).at(1.0)
            log_w, _ = self._annealed(executor, some, x, rng, work, sweeps, betas[::-1])
            down = _estimate(log_w.reshape(len(live), -1), at_0[live], -1.0, moves[live])
            runs.insert(0, replace(down, exact=exact | ~moves[live]))
        return up, _joined(runs, np.argsort(np.concatenate((live, dead))))

    def _model_draws(
        self, rows: Array, last: States, log_weights: Array, steps: int, rng: np.random.Generator
    ) -> tuple[States, int, bool]:
        """Return states at beta = 1, the sweeps that they still need, and whether they are exact.

        Without exact draws these are the last states of the forward run, resampled by importance
        weight.
        """
        count = self.settings.chains
        whole = len(rows) == self.target.rows
        part = self if whole else Annealing(self.settings, self.target.take(rows))
        if part.exact_draws.plan.accepted:
            drawn = part.exact_draws.run(rng).samples
            layers = self.target.structure.layers
            x = {n: np.swapaxes(v, 0, 1).reshape(-1, layers[n].width) for n, v in drawn.items()}
            return x, 0, True
        chosen = systematic(softmax(log_weights), rng)
        index = (chosen + count * np.arange(len(rows))[:, None]).ravel()
        return {name: value[index] for name, value in last.items()}, max(steps // 4, 50), False

    def _annealed(
        self,
        executor: Executor | None,
        many: Target,
        x: States,
        rng: np.random.Generator,
        work: float,
        sweeps: int,
        betas: Array,
    ) -> tuple[Array, States]:
        """Return log importance weights (rows * chains,) of annealing x, and the last states."""
        kernel = self.settings.kernel
        found = over_chains(executor, _anneal, many, kernel, x, rng, work, kernel, sweeps, betas)
        last = {n: np.concatenate([end[n] for _, end in found]) for n in x}
        return np.concatenate([w for w, _ in found]), last


def _anneal(
    many: Target,
    x: States,
    rng: np.random.Generator,
    streams: Array,
    kernel: Kernel,
    sweeps: int,
    betas: Array,
) -> tuple[Array, States]:
    """Sweep some chains at the first beta, then anneal them along the betas."""
    chains = make_chains(many, kernel, x, rng, streams)
    chains.sweep(sweeps)
    return chains.anneal(betas, backward=_backward(many)), chains.values()


def _nothing(rows: int, chains: int) -> AnnealedRun:
    """Return the reverse run of rows without a possible state."""
    unknown = np.full(rows, np.inf)
    none = np.full((rows, chains), -np.inf)
    return AnnealedRun(unknown, unknown, np.zeros(rows), none, -unknown, np.zeros(rows, dtype=bool))


def _joined(runs: Sequence[AnnealedRun], order: Array) -> AnnealedRun:
    """Return runs of some rows each as one run, with the rows in the given order."""
    parts = ([getattr(run, field.name) for field in fields(AnnealedRun)] for run in runs)
    return AnnealedRun(*(np.concatenate(part)[order] for part in zip(*parts, strict=True)))


def _backward(target: Target) -> bool:
    """Return whether sweeps in reverse order are cheaper, because they sum out fewer units."""
    sizes = [
        sum(target.structure.layers[n].size for n in summed_layers(target, back))
        for back in (False, True)
    ]
    return 0 < sizes[1] < sizes[0] or not sizes[0]


def _estimate(log_weights: Array, at_0: Array, sign: float, moves: Array) -> AnnealedRun:
    """Return log Z = log Z_0 + sign * log mean w from log importance weights (rows, chains).

    Rows in which nothing moves are exact.
    """
    count = log_weights.shape[1]
    top = log_weights.max(axis=1, keepdims=True)
    w = np.exp(log_weights - np.where(np.isfinite(top), top, 0.0))
    mean = w.mean(axis=1)
    # Rows without any importance weight divide by 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        if count > 1:
            error = w.std(axis=1, ddof=1) / (mean * np.sqrt(count))
        else:
            error = np.full(len(w), np.inf)
        # Where all layers are summed out, nothing is drawn, and rounding is the only error.
        error = np.hypot(error, ROUNDING * np.maximum(np.abs(at_0), np.abs(top[:, 0])))
        error = np.where(mean > 0, np.where(moves, error, 0.0), np.inf)
        ess = np.where(mean > 0, w.sum(axis=1) ** 2 / np.square(w).sum(axis=1), 0.0)
    return AnnealedRun(
        at_0 + sign * (log_sum(log_weights, axis=1) - np.log(count)),
        error,
        ess,
        log_weights,
        pareto_shape(log_weights, ess),
        np.full(len(w), True),
    )
