"""Simulated tempering: chains that wander over a ladder, with weights learned on the way.

This is algorithm 1 of Salakhutdinov (2010), system 3. `levels` holds one step of it and the log
weights g of the rungs. Once the weights are frozen, (x, l) has the density p_l(x) / g_l, so that

    states at beta = 1 are draws of the model,
    log Z_1 - log Z_0 = log(g_1 * occupancy of beta = 1) - log(g_0 * occupancy of beta = 0).

Adaptive sweeps change their own target: their states are never among the draws. The tests compare
weights and draws with exact answers.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.progress import track
from pgmengine.base.types import Array, RngLike, States
from pgmengine.engine.chains import refusal, sweep_work
from pgmengine.engine.cost import wandering
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.infer.axes import Axis
from pgmengine.infer.prepared import Prepared, Scheme
from pgmengine.infer.result import Result, Status
from pgmengine.infer.sampling.bounded import below_a_bound
from pgmengine.infer.sampling.collect import OF_CHAINS, OF_DRAWS, Draws, Sampler
from pgmengine.infer.sampling.levels import FlatHistogram, GammaSchedule, Levels, check_gamma
from pgmengine.infer.sampling.schedules import Betas, Linear, count_of, ladder
from pgmengine.infer.sampling.trust import BATCHES, interval, travelled
from pgmengine.protocols import Kernel, Snapshot


@dataclass(frozen=True)
class SimulatedTempering(Sampler):
    """Chains that wander over a ladder, first with adaptive and then with frozen weights.

    Use it where single chains stay in one mode, and where the share of each rung is of interest;
    ParallelTempering usually needs less care. After each sweep at its rung's beta a chain proposes
    a neighbouring rung. During the warm-up the log weight of the rung that a chain is on grows by
    log(1 + gamma), shared among the chains of a row. Then the weights are frozen, and the states at
    beta = 1 are the draws.

    Parameters
    ----------
    betas : a schedule, a number of even steps, or numbers that reach 1. A ladder that starts at 0
        also gives log_z.
    kernel : any kernel.
    chains : number of chains for each row of evidence; they share the weights.
    warmup : adaptive sweeps.
    draws : sweeps with frozen weights; a chain has as many draws as the row's chain that is at
        beta = 1 least often.
    gamma : FlatHistogram() or OneOverT().
    rhat_limit : largest R-hat of chains that have mixed.

    Notes
    -----
    The status is FEW_TRIPS where the chains of a row hardly travelled from one end of the ladder to
    the other and back: the weights have not settled, and neither `log_z` nor the draws can be
    trusted. `log_z` is NaN where the chains never were at one of the ends with frozen weights.

    `stats` holds the statistics of MCMC; round_trips (rows,) of the sweeps with frozen weights;
    betas (rungs,); log_g, occupancy and occupancy_adaptive, each (rows, rungs); levels (warmup +
    draws, rows, chains), the rung of each chain; and adaptive (warmup + draws,), whether a sweep
    was adaptive.

    References
    ----------
    Salakhutdinov 2010, "Learning deep Boltzmann machines using adaptive MCMC".

    >>> import pgmengine as pgm
    >>> method = pgm.SimulatedTempering(betas=pgm.Linear(5), draws=2000)
    >>> r = pgm.infer(pgm.rbm(4, 3, rng=0), method=method, rng=0)
    >>> bool(abs(r.stats["occupancy"].sum() - 1) < 1e-9)
    True
    """

    gives = OF_DRAWS | {"log_z"}
    statistics = OF_CHAINS | {
        "log_g": (Axis.ROW, Axis.RUNG),
        "occupancy": (Axis.ROW, Axis.RUNG),
        "occupancy_adaptive": (Axis.ROW, Axis.RUNG),
        "levels": (Axis.SWEEP, Axis.ROW, Axis.CHAIN),
        "adaptive": (Axis.SWEEP,),
        "betas": (Axis.RUNG,),
        "round_trips": (Axis.ROW,),
    }

    betas: Betas = Linear(12)
    kernel: Kernel = Gibbs()
    chains: int = 8
    warmup: int = 2000
    draws: int = 4000
    gamma: GammaSchedule = FlatHistogram()
    rhat_limit: float = 1.05

    def __post_init__(self) -> None:
        check_gamma(self)
        check_whole(self, "chains", "draws")
        check_whole(self, "warmup", least=0)
        check_limit(self, "rhat_limit")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Scheme:
        """Return the work and memory of the chains."""
        rungs, chains = count_of(self.betas), target.rows * self.chains
        width = sum(layer.width for layer in target.structure.layers.values())
        sweeps = self.warmup + self.draws
        length = (self.warmup, self.draws)
        return Scheme(
            f"{self.chains} chains over {rungs} levels, {self.warmup} adaptive sweeps, "
            f"{self.draws} with fixed weights",
            sweeps * chains * sweep_work(target),
            8.0 * chains * sweeps + 16.0 * chains * width * (8 + self.draws / max(rungs, 1)),
            wandering(target, self.kernel, want, self.chains, rungs, *length, self.rhat_limit),
            refusal=refusal(target),
        )

    def answer(
        self, question: Prepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Adapt the weights of the rungs, freeze them, and collect the states at beta = 1."""
        target, want, generator = question.target, question.want, seeded(rng)
        betas = ladder(self.betas, target, self.kernel, generator)
        if "log_z" in want and betas[0] != 0.0:
            raise PgmError(
                f"SimulatedTempering: log_z needs betas that start at 0, not at {betas[0]:g}"
            )
        levels = Levels(target, betas, self.chains, self.kernel, self.gamma, generator)
        rungs = np.empty((self.warmup + self.draws, *levels.rung.shape), dtype=np.int32)
        for t in track(range(self.warmup), "adapting"):
            levels.step(adapt=True)
            rungs[t] = levels.rung
        kept = _Kept(target.rows * self.chains)
        for t in track(range(self.draws), "sampling"):
            levels.step(adapt=False)
            rungs[self.warmup + t] = levels.rung
            kept.add(levels)
        draws, absent = kept.draws(target, want, self.chains)
        answers = draws.answers(target)
        stats, status, notes = draws.judged(target, self.rhat_limit)
        stats |= _travels(rungs, self.warmup, betas) | {"log_g": levels.weights.log_g}
        low: tuple[str, ...] = ()
        if "log_z" in want:
            answers |= _log_z(target, levels.weights.log_g, rungs[self.warmup :], len(betas))
            low = below_a_bound(target, answers["log_z_interval"])
        few = travelled(stats["round_trips"], target.first) if len(betas) > 1 else ()
        status = Status.FEW_TRIPS if few else Status.NOT_MIXED if absent else status
        status = Status.CONTRADICTED if low else status
        return question.result(answers, stats, status, low + few + absent + notes)


def _travels(rungs: Array, warmup: int, betas: Array) -> dict[str, Any]:
    """Return the statistics of the rungs (sweeps, rows, chains) of the chains."""
    return {
        "occupancy_adaptive": _occupancy(rungs[:warmup], len(betas)),
        "occupancy": _occupancy(rungs[warmup:], len(betas)),
        "levels": rungs,
        "adaptive": np.arange(len(rungs)) < warmup,
        "betas": betas,
        "round_trips": round_trips(rungs[warmup:], len(betas)),
    }


class _Kept:
    """The states of each chain at beta = 1, in order."""

    def __init__(self, chains: int) -> None:
        self.chain: list[Array] = []
        self.x: list[States] = []
        self.energy: list[Array] = []
        self.count = np.zeros(chains, dtype=int)
        self.last: tuple[States, Array] | None = None

    def add(self, levels: Levels) -> None:
        """Keep the states of the chains that are at beta = 1 now."""
        index = np.flatnonzero(levels.at_1().ravel())
        self.last = levels.chains.values(), np.sum(levels.chains.path(), axis=0)
        if len(index):
            self.chain.append(index)
            self.x.append({name: value[index] for name, value in self.last[0].items()})
            self.energy.append(-self.last[1][index])
            self.count[index] += 1

    def draws(
        self, target: Target, wanted: tuple[str, ...], chains: int
    ) -> tuple[Draws, tuple[str, ...]]:
        """Return equally many draws of every chain, and a warning for each chain without any.

        A chain that never was at beta = 1 contributes its last state.
        """
        absent = np.flatnonzero(self.count == 0)
        note = tuple(
            f"chain {c % chains} of row {target.first + c // chains} never came back to beta = 1"
            for c in absent[:3]
        )
        assert self.last is not None
        many = target.take(np.repeat(np.arange(target.rows), chains))
        count = max(int(self.count.min()), 1)
        out = Draws(many, wanted, chains, count)
        chain = np.concatenate([*self.chain, absent])
        x = {
            name: np.concatenate([*(part[name] for part in self.x), value[absent]])
            for name, value in self.last[0].items()
        }
        energy = np.concatenate([*self.energy, -self.last[1][absent]])
        order = np.argsort(chain, kind="stable")
        first = np.searchsorted(chain[order], np.arange(len(self.count)))
        for t in range(count):
            index = order[first + t]
            out.add(t, {name: value[index] for name, value in x.items()}, energy[index])
        return out, note


def round_trips(rungs: Array, count: int) -> Array:
    """Return how often the chains of each row came from the first rung to the last one, (rows,).

    Parameters
    ----------
    rungs : (sweeps, rows, chains).
    count : number of rungs.
    """
    sweep = np.arange(len(rungs))[:, None, None]
    # The last sweep at either end of the ladder so far; -1 before the first one.
    low, high = (
        np.maximum.accumulate(np.where(rungs == end, sweep, -1), axis=0) for end in (0, count - 1)
    )
    arrived = (rungs[1:] == count - 1) & (low[:-1] > high[:-1])
    return np.asarray(arrived.sum(axis=(0, 2)))


def _occupancy(rungs: Array, count: int) -> Array:
    """Return the share of the sweeps that each row's chains spent on each rung, (rows, rungs)."""
    if not len(rungs):
        return np.full((rungs.shape[1], count), np.nan)
    return np.stack([(rungs == rung).mean(axis=(0, 2)) for rung in range(count)], axis=1)


def _log_z(target: Target, log_g: Array, rungs: Array, count: int) -> dict[str, Array]:
    """Return log Z by the occupancies of both ends; the error is from batches of each chain."""
    parts = np.array_split(rungs, BATCHES)
    # Shares of the sweeps at both ends, (batches, 2, rows, chains).
    ends = np.stack([[(part == rung).mean(axis=0) for rung in (0, count - 1)] for part in parts])
    mean = ends.mean(axis=(0, 3))
    ends = np.moveaxis(ends, 3, 1).reshape(-1, 2, rungs.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = (ends[:, 1] / mean[1] - ends[:, 0] / mean[0]).std(axis=0, ddof=1) / np.sqrt(
            len(ends)
        )
        log_z = target.log_z_at_0() + log_g[:, -1] - log_g[:, 0] + np.log(mean[1]) - np.log(mean[0])
    # Nothing is known where the chains missed one of the ends.
    visited = np.isfinite(log_z)
    log_z, error = np.where(visited, log_z, np.nan), np.where(visited, spread, np.inf)
    return {
        "log_z": log_z,
        "log_z_error": error,
        "log_z_interval": interval(log_z, error, log_z, error),
    }
