"""Annealing runs: chains that move from one end of a ladder to the other, with importance weights.

A run starts with exact or resampled draws x_0 at the first beta and makes one sweep at each of the
following ones. With f_beta the unnormalised density, from which some layers are marginalised in
closed form,

    log w = sum_t log f_(beta_(t+1))(x_t) - log f_(beta_t)(x_t),    x_t the state before sweep t + 1

has E[w] = Z_end / Z_start (Neal 2001). Going up, log Z = log Z_0 + log mean w; going down, log Z =
log Z_0 - log mean w. `Chains.anneal` does the sweeps and adds up log w; this module has the starts
of both runs, and the statistics of their importance weights. Chains compute in single precision,
and a run reports at least the error of this rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.equal_rows import rows_by_kind
from pgmengine.base.numerics import softmax
from pgmengine.base.types import Array, States
from pgmengine.base.work.division import check_divided
from pgmengine.engine.chains import make_chains, over_chains, start
from pgmengine.engine.kernels import Kernel
from pgmengine.engine.visits import marginalised_layers
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.rounding import known_log_z, rounding_of_chains
from pgmengine.infer.exact.enumeration.enumeration import Enumeration
from pgmengine.infer.exact.exact import quick
from pgmengine.infer.question.prepared import AnyPrepared
from pgmengine.infer.sampling.draws.dispersed_starts import dispersed
from pgmengine.infer.sampling.draws.resampling import systematic
from pgmengine.infer.sampling.ladders.temperatures import ladder
from pgmengine.infer.sampling.methods.annealed_run import (
    AnnealedRun,
    Runs,
    closed_run,
    estimate,
    impossible_run,
    joined_runs,
)

if TYPE_CHECKING:
    from pgmengine.infer.sampling.methods.ais import AIS

# A reverse run may start from states that other chains have reached, if the log Z of their phase is
# at most this many nats below that of the forward run. A phase far below holds almost no
# probability, and a run from there would confirm nothing.
MAX_NATS_BELOW_RUN = 10.0

# Number of states of each chain that are averaged for a reference.
SNAPSHOTS_PER_CHAIN = 10

# Largest number of states of a cover that are enumerated for exact draws.
MAX_EXACT_DRAW_STATES = 2.0**16

# Largest number of table entries of a junction tree for exact draws, whose pass takes milliseconds.
MAX_EXACT_DRAW_ENTRIES = 2.0**20


@dataclass(frozen=True, eq=False)
class Reached:
    """States of one row that chains have reached, and the log Z of the phases they are in.

    Attributes
    ----------
    states : layer -> (chains, width).
    log_z : in nats; infinite where it is not known.
    """

    states: States
    log_z: float = np.inf


@dataclass(frozen=True, eq=False)
class Resources:
    """The random numbers, the planned work and the workers that all runs of a question share."""

    rng: np.random.Generator
    work: float
    executor: Executor | None

    def chains(
        self, run: Callable[..., Any], many: Target, kernel: Kernel, x: States, *more: Any
    ) -> list[Any]:
        """Return the results of `run` for groups of chains that start at x, in order."""
        return over_chains(self.executor, run, many, kernel, x, self.rng, self.work, kernel, *more)


@dataclass(frozen=True, eq=False)
class Annealing:
    """Annealing of all rows of a target.

    Rows in which the same layers move are annealed together: the set of layers that importance
    weights marginalise must not depend on the other rows of a question. `reference` takes the place
    of the reference of the settings. `drawn` is False if exact draws are known to be too expensive.
    `reached` holds states that other chains of the same row have reached: the reverse run then
    starts from these, so that it meets phases that its own forward run may have missed.
    """

    settings: AIS
    target: Target
    reference: Mapping[str, ArrayLike] | None = None
    drawn: bool = True
    reached: Sequence[Reached] = ()

    @cached_property
    def exact_draws(self) -> AnyPrepared:
        """The question for exact draws, which start the reverse run; it is refused if too large."""
        target, bits = self.target.at(1.0), np.log2(MAX_EXACT_DRAW_STATES)
        return quick(target, ("samples",), bits, MAX_EXACT_DRAW_ENTRIES, self.settings.chains)

    def runs(self, by: Resources) -> Runs:
        """Return the forward run, and the reverse run if the settings ask for it."""
        moving = np.stack([free.any(axis=1) for free in self.target.free.values()])
        rows = rows_by_kind(moving.T)
        if len(rows) == 1:
            return self._both(by)
        parts = [replace(self, target=self.target.take(some)) for some in rows]
        ups, downs = zip(*(part._both(by) for part in parts), strict=True)
        check_divided(rows, self.target.rows, "annealing")
        back = np.argsort(np.concatenate(rows))
        return joined_runs(ups, back), None if downs[0] is None else joined_runs(downs, back)

    def _both(self, by: Resources) -> Runs:
        """Anneal from independent units to the model, and from draws of the model back.

        Where all free units are marginalised in closed form, nothing is annealed.
        """
        closed = Enumeration(0.0, 1).prepare(self.target.at(1.0), ("log_z",))
        if closed.plan.accepted:
            up = closed_run(closed.run().log_z, self.target, self.settings.chains)
            return up, up if self.settings.reverse else None
        settings, rng, count = self.settings, by.rng, self.settings.chains
        given = settings.reference if self.reference is None else self.reference
        target = self.target.at(0.0, given)
        betas = ladder(settings.betas, target, settings.kernel, rng)
        betas = betas if betas[0] == 0.0 else np.concatenate(([0.0], betas))
        many = target.take(np.repeat(np.arange(target.rows), count))
        at_0 = target.log_z_at_0()
        known, rounding = known_log_z(target), rounding_of_chains(target)
        moves = ~np.isfinite(known)
        # Up: x ~ p_0, one sweep at each rung, and log Z = log Z_0 + log mean w.
        x = many.draw_at_0(rng)
        log_w, x = self._annealed(by, many, x, 0, betas)
        up = estimate(log_w.reshape(target.rows, -1), at_0, 1.0, known, rounding)
        if target.rows == 1:
            chosen = systematic(_shares(up.log_weights), rng)[0]
            up = replace(up, last={name: value[chosen] for name, value in x.items()})
        if not settings.reverse:
            return up, None
        # Down: x ~ p_1, one sweep at each rung, and log Z = log Z_0 - log mean w.
        # Rows without a possible state have no draws that could be annealed down.
        some, rest = np.flatnonzero(up.ess > 0), np.flatnonzero(~(up.ess > 0))
        runs = [impossible_run(len(rest), count)]
        if len(some):
            if len(rest):
                chains = (some[:, None] * count + np.arange(count)).ravel()
                many, x = many.take(chains), {name: value[chains] for name, value in x.items()}
            others = self._from_others(up, rng)
            if others:
                x, sweeps, exact = others, sweeps_before_reverse(len(betas)), False
            else:
                x, sweeps, exact = self._model_draws(some, x, up.log_weights[some], len(betas), rng)
            log_w, _ = self._annealed(by, many.at(1.0), x, sweeps, betas[::-1])
            down = estimate(
                log_w.reshape(len(some), -1), at_0[some], -1.0, known[some], rounding[some]
            )
            runs.insert(0, replace(down, exact=exact | ~moves[some]))
        return up, joined_runs(runs, np.argsort(np.concatenate((some, rest))))

    def _from_others(self, up: AnnealedRun, rng: np.random.Generator) -> States:
        """Return states (chains, width) that other chains of this row have reached, if any have.

        The sources whose log Z is at most MAX_NATS_BELOW_RUN below that of `up` give equal numbers
        of states.
        """
        states = [r.states for r in self.reached if r.log_z > up.log_z[0] - MAX_NATS_BELOW_RUN]
        if not states:
            return {}
        pool = {n: np.concatenate([x[n] for x in states]) for n in states[0]}
        chosen = rng.permutation(len(states) * self.settings.chains)[: self.settings.chains]
        return {n: value[chosen] for n, value in pool.items()}

    def _model_draws(
        self, rows: Array, last: States, log_weights: Array, steps: int, rng: np.random.Generator
    ) -> tuple[States, int, bool]:
        """Return states at beta = 1, the sweeps that they still need, and whether they are exact.

        Without exact draws these are the last states of the forward run, resampled by importance
        weight.
        """
        count = self.settings.chains
        whole = len(rows) == self.target.rows
        part = self if whole else replace(self, target=self.target.take(rows))
        if self.drawn and part.exact_draws.plan.accepted:
            drawn = part.exact_draws.run(rng).samples
            layers = self.target.structure.layers
            x = {n: np.swapaxes(v, 0, 1).reshape(-1, layers[n].width) for n, v in drawn.items()}
            return x, 0, True
        chosen = systematic(softmax(log_weights), rng)
        index = (chosen + count * np.arange(len(rows))[:, None]).ravel()
        x = {name: value[index] for name, value in last.items()}
        return x, sweeps_before_reverse(steps), False

    def _annealed(
        self, by: Resources, many: Target, x: States, sweeps: int, betas: Array
    ) -> tuple[Array, States]:
        """Return log importance weights (rows * chains,) of annealing x, and the last states."""
        found = by.chains(_anneal, many, self.settings.kernel, x, sweeps, betas)
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


def has_chains(target: Target) -> bool:
    """Return whether the training of the model has left chains, and nothing is observed."""
    training = target.model.training
    left = training is not None and bool(training.chains)
    return left and all(bool(free.all()) for free in target.free.values())


def swept_chains(
    settings: AIS, target: Target, sweeps: int, by: Resources
) -> tuple[States, States]:
    """Return the last states (chains, width) of chains of a single row, and their means (1, width).

    If nothing is observed and the training of the model has left chains, these go on from their
    last states. Otherwise the chains have dispersed starts. The means are averages over states of
    all sweeps.
    """
    many = target.at(1.0).take(np.zeros(settings.chains, dtype=np.int64))
    training = target.model.training
    if training is not None and has_chains(target):
        left = training.chains
        some = by.rng.permutation(np.arange(settings.chains) % len(next(iter(left.values()))))
        x = start(many, by.rng) | {n: value[some] for n, value in left.items()}
    else:
        x = dispersed(many, settings.chains, settings.kernel, by.rng)
    found = by.chains(_swept, many, settings.kernel, x, sweeps)
    last, means = ({n: np.concatenate([f[i][n] for f in found]) for n in x} for i in (0, 1))
    return last, {n: v.mean(axis=0, keepdims=True) for n, v in means.items()}


def _swept(
    many: Target, x: States, rng: np.random.Generator, streams: Array, kernel: Kernel, sweeps: int
) -> tuple[States, States]:
    """Sweep some chains; return their last states and their means over time."""
    chains = make_chains(many, kernel, x, rng, streams)
    total = {n: np.zeros_like(v) for n, v in x.items()}
    for _ in range(SNAPSHOTS_PER_CHAIN):
        chains.sweep(-(-sweeps // SNAPSHOTS_PER_CHAIN))
        states = chains.values()
        for name, value in states.items():
            total[name] += value
    return states, {n: v / SNAPSHOTS_PER_CHAIN for n, v in total.items()}


def sweeps_before_reverse(steps: int) -> int:
    """Return the number of sweeps before a reverse run of `steps` steps without exact draws."""
    return max(steps // 4, 50)


def _shares(log_weights: Array) -> Array:
    """Return normalised importance weights (rows, chains), equal ones where all are 0."""
    top = log_weights.max(axis=1, keepdims=True)
    return softmax(np.where(np.isfinite(top), log_weights, 0.0))


def _backward(target: Target) -> bool:
    """Return whether sweeps in reverse order are cheaper, because they marginalise fewer units."""
    sizes = [
        sum(target.structure.layers[n].size for n in marginalised_layers(target, back))
        for back in (False, True)
    ]
    return 0 < sizes[1] < sizes[0] or not sizes[0]
