"""Annealing runs: chains that are moved from one end of a ladder to the other, with their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from pgmengine.base.numerics import log_sum, softmax
from pgmengine.base.types import Array, States
from pgmengine.engine.chains import make_chains, over_chains
from pgmengine.graph.queries import summed_layers
from pgmengine.graph.target import Target
from pgmengine.infer.exact.method import Exact
from pgmengine.infer.prepared import Prepared
from pgmengine.infer.sampling.resampling import systematic
from pgmengine.infer.sampling.schedules import ladder
from pgmengine.infer.sampling.trust import pareto_shape

# The rounding of single precision, in which chains are.
ROUNDING = 2.0**-24

# States of a cover that are enumerated to start the reverse run.
SMALL = 2.0**16


class Settings(Protocol):
    """The settings of an annealing run."""

    @property
    def chains(self) -> int:
        """Chains for each row."""

    @property
    def betas(self) -> Any:
        """A schedule of inverse temperatures."""

    @property
    def kernel(self) -> Any:
        """The kernel of the chains."""

    @property
    def reverse(self) -> bool:
        """Whether to anneal down, too."""

    @property
    def reference(self) -> Mapping[str, Any] | None:
        """Natural parameters at beta = 0."""


@dataclass(frozen=True, eq=False)
class Run:
    """log Z of each row and what speaks for it.

    Attributes
    ----------
    log_z, error, ess : (rows,).
    weights : (rows, chains), log importance weights.
    shape : (rows,) of the Pareto tail of the weights.
    exact : (rows,) bool, whether the run started from exact draws.
    """

    log_z: Array
    error: Array
    ess: Array
    weights: Array
    shape: Array
    exact: Array


class Annealing:
    """Annealing of the rows of one target.

    Rows in which the same layers move are annealed together: the layers that the weights sum out
    must not depend on a row's company.
    """

    def __init__(self, settings: Settings, target: Target) -> None:
        self.settings, self.target = settings, target

    @cached_property
    def exact_draws(self) -> Prepared:
        """The question for exact draws to start the reverse run from; refused where too large."""
        exact = Exact(max_bits=np.log2(SMALL), draws=self.settings.chains)
        return exact.prepare(self.target.at(1.0), ("samples",))

    def runs(
        self, rng: np.random.Generator, work: float, executor: Executor | None
    ) -> tuple[Run, Run | None]:
        """Return the forward run and the reverse run, if there is to be one."""
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
    ) -> tuple[Run, Run | None]:
        """Anneal from independent units to the model, and from draws of the model back."""
        count, target = self.settings.chains, self.target.at(0.0, self.settings.reference)
        betas = ladder(self.settings.betas, target, self.settings.kernel, rng)
        betas = betas if betas[0] == 0.0 else np.concatenate(([0.0], betas))
        many = target.take(np.repeat(np.arange(target.rows), count))
        at_0 = target.log_z_at_0()
        moves = np.any([mask.any(axis=1) for mask in target.free.values()], axis=0)
        x = many.draw_at_0(rng)
        weights, x = self._annealed(executor, many, x, rng, work, 0, betas)
        up = _estimate(weights.reshape(target.rows, -1), at_0, 1.0, moves)
        if not self.settings.reverse:
            return up, None
        # Rows without a possible state have no draws that could be annealed down.
        live, dead = np.flatnonzero(up.ess > 0), np.flatnonzero(up.ess == 0)
        runs = [_nothing(len(dead), count)]
        if len(live):
            chains = (live[:, None] * count + np.arange(count)).ravel()
            last = {name: value[chains] for name, value in x.items()}
            x, sweeps, exact = self._model_draws(live, last, up.weights[live], len(betas), rng)
            some = many.take(chains).at(1.0)
            weights, _ = self._annealed(executor, some, x, rng, work, sweeps, betas[::-1])
            down = _estimate(weights.reshape(len(live), -1), at_0[live], -1.0, moves[live])
            runs.insert(0, replace(down, exact=exact | ~moves[live]))
        return up, _joined(runs, np.argsort(np.concatenate((live, dead))))

    def _model_draws(
        self, rows: Array, last: States, weights: Array, steps: int, rng: np.random.Generator
    ) -> tuple[States, int, bool]:
        """Return states at beta = 1, the sweeps that they still need, and whether they are exact."""
        count = self.settings.chains
        whole = len(rows) == self.target.rows
        part = self if whole else Annealing(self.settings, self.target.take(rows))
        if part.exact_draws.plan.accepted:
            drawn = part.exact_draws.run(rng).samples
            layers = self.target.structure.layers
            x = {n: np.swapaxes(v, 0, 1).reshape(-1, layers[n].width) for n, v in drawn.items()}
            return x, 0, True
        chosen = systematic(softmax(weights), rng)
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
        """Return log weights (rows * chains,) of annealing from x, and the last states."""
        kernel = self.settings.kernel
        found = over_chains(executor, _anneal, many, kernel, x, rng, work, kernel, sweeps, betas)
        last = {n: np.concatenate([end[n] for _, end in found]) for n in x}
        return np.concatenate([w for w, _ in found]), last


def _anneal(
    many: Target,
    x: States,
    rng: np.random.Generator,
    streams: Array,
    kernel: Any,
    sweeps: int,
    betas: Array,
) -> tuple[Array, States]:
    """Sweep some chains, then anneal them along the betas."""
    chains = make_chains(many, kernel, x, rng, streams)
    chains.sweep(sweeps)
    return chains.anneal(betas, backward=_backward(many)), chains.values()


def _nothing(rows: int, chains: int) -> Run:
    """Return the reverse run of rows for which no possible state is known."""
    unknown = np.full(rows, np.inf)
    none = np.full((rows, chains), -np.inf)
    return Run(unknown, unknown, np.zeros(rows), none, -unknown, np.zeros(rows, dtype=bool))


def _joined(runs: Sequence[Run], order: Array) -> Run:
    """Runs of some rows each as one, the rows in this order."""
    parts = ([getattr(run, field.name) for field in fields(Run)] for run in runs)
    return Run(*(np.concatenate(part)[order] for part in zip(*parts, strict=True)))


def _backward(target: Target) -> bool:
    """Whether sweeps in the reverse order are cheaper: they sum fewer units out."""
    sizes = [
        sum(target.structure.layers[n].size for n in summed_layers(target, back))
        for back in (False, True)
    ]
    return 0 < sizes[1] < sizes[0] or not sizes[0]


def _estimate(weights: Array, at_0: Array, sign: float, moves: Array) -> Run:
    """From log weights (rows, chains): log Z = log Z_0 + sign * log mean exp(w); rows where nothing
    moves are exact.
    """
    count = weights.shape[1]
    top = weights.max(axis=1, keepdims=True)
    w = np.exp(weights - np.where(np.isfinite(top), top, 0.0))
    mean = w.mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # of rows without any weight
        error = (
            w.std(axis=1, ddof=1) / (mean * np.sqrt(count))
            if count > 1
            else np.full(len(w), np.inf)
        )
        error = np.hypot(
            error, ROUNDING * np.maximum(np.abs(at_0), np.abs(top[:, 0]))
        )  # all there is if none is drawn
        error = np.where(mean > 0, np.where(moves, error, 0.0), np.inf)
        ess = np.where(mean > 0, w.sum(axis=1) ** 2 / np.square(w).sum(axis=1), 0.0)
    return Run(
        at_0 + sign * (log_sum(weights, axis=1) - np.log(count)),
        error,
        ess,
        weights,
        pareto_shape(weights, ess),
        np.full(len(w), True),
    )
