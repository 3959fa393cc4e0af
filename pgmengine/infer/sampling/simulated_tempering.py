"""Simulated tempering: chains that wander over temperatures, with weights learned on the way."""

from __future__ import annotations

from collections.abc import Mapping
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
from pgmengine.infer.prepared import Method, Prepared, Scheme
from pgmengine.infer.result import Axis, Result, Status
from pgmengine.infer.sampling.bounded import below_a_bound
from pgmengine.infer.sampling.collect import OF_CHAINS, OF_DRAWS, Draws, unmixed_notes
from pgmengine.infer.sampling.levels import FlatHistogram, Levels, check_gamma
from pgmengine.infer.sampling.schedules import Linear, count_of, ladder
from pgmengine.infer.sampling.trust import BATCHES, interval, travelled


@dataclass(frozen=True)
class SimulatedTempering(Method):
    """Wang-Landau adaptive simulated tempering (Salakhutdinov 2010, algorithm 1).

    A chain has a state and a level. After each sweep at its level's beta a neighbouring level is
    proposed; while the chains adapt, the log weight of the level that a chain is at grows by log(1
    + gamma), shared among the chains of a row. Then the weights are frozen, and the states at beta
    = 1 are the draws: adaptive ones are never among them.

    Parameters
    ----------
    betas : a schedule, a number of even steps, or numbers that reach 1; from 0 on, the weights give
        log_z.
    kernel : any kernel.
    chains : for each row of evidence; they share the weights.
    warmup, draws : adaptive sweeps, and sweeps with frozen weights; the draws are those of them at
        beta = 1.
    gamma : FlatHistogram() or OneOverT().

    The status is FEW_TRIPS where the chains of a row hardly went from one end of the ladder to the
    other and back: then the weights have not settled, and neither `log_z` nor the draws can be
    trusted. `log_z` is NaN where the chains, once the weights were frozen, never were at an end of
    the ladder.

    `stats` holds those of MCMC, round_trips (rows,) of the sweeps with frozen weights, log_g,
    occupancy and occupancy_adaptive (rows, levels), levels (warmup + draws, rows, chains), and
    adaptive (warmup + draws,), which sweeps were adaptive.

    >>> import pgmengine as pgm
    >>> method = pgm.SimulatedTempering(betas=pgm.Linear(5), draws=2000)
    >>> r = pgm.infer(pgm.rbm(4, 3, rng=0), method=method, rng=0)
    >>> bool(abs(r.stats["occupancy"].sum() - 1) < 1e-9)
    True
    """

    gives = OF_DRAWS | {"log_z"}
    source = "draws give"
    statistics = OF_CHAINS | {
        "log_g": (Axis.ROW, Axis.RUNG),
        "occupancy": (Axis.ROW, Axis.RUNG),
        "occupancy_adaptive": (Axis.ROW, Axis.RUNG),
        "levels": (Axis.SWEEP, Axis.ROW, Axis.CHAIN),
        "adaptive": (Axis.SWEEP,),
        "betas": (Axis.RUNG,),
        "round_trips": (Axis.ROW,),
    }

    betas: Any = Linear(12)
    kernel: Any = Gibbs()
    chains: int = 8
    warmup: int = 2000
    draws: int = 4000
    gamma: Any = FlatHistogram()
    rhat_limit: float = 1.05

    def __post_init__(self) -> None:
        check_gamma(self)
        check_whole(self, "chains", "draws")
        check_whole(self, "warmup", least=0)
        check_limit(self, "rhat_limit")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Scheme:
        """Return the work and memory of the chains."""
        levels, chains = count_of(self.betas), target.rows * self.chains
        width = sum(layer.width for layer in target.structure.layers.values())
        sweeps = self.warmup + self.draws
        length = (self.warmup, self.draws)
        return Scheme(
            f"{self.chains} chains over {levels} levels, {self.warmup} adaptive sweeps, "
            f"{self.draws} with fixed weights",
            sweeps * chains * sweep_work(target),
            8.0 * chains * sweeps + 16.0 * chains * width * (8 + self.draws / max(levels, 1)),
            wandering(target, self.kernel, want, self.chains, levels, *length, self.rhat_limit),
            refusal=refusal(target),
        )

    def answer(
        self, question: Prepared, rng: RngLike, state: Any = None, executor: Executor | None = None
    ) -> Result:
        """Adapt the weights of the levels, freeze them, and collect the states at beta = 1."""
        target, want, generator = question.target, question.want, seeded(rng)
        betas = ladder(self.betas, target, self.kernel, generator)
        if "log_z" in want and betas[0] != 0.0:
            raise PgmError(f"log_z needs a ladder that starts at 0, not at {betas[0]:g}")
        levels = Levels(target, betas, self.chains, self.kernel, self.gamma, generator)
        seen = np.empty((self.warmup + self.draws, *levels.level.shape), dtype=np.int32)
        for t in track(range(self.warmup), "adapting"):
            levels.step(adapt=True)
            seen[t] = levels.level
        kept = _Kept(target.rows * self.chains)
        for t in track(range(self.draws), "sampling"):
            levels.step(adapt=False)
            seen[self.warmup + t] = levels.level
            kept.add(levels)
        draws, note = kept.draws(target, want, self.chains)
        answers, (stats, status, notes) = (
            draws.answers(target),
            draws.judged(target, self.rhat_limit),
        )
        stats |= _travels(seen, self.warmup, betas) | {"log_g": levels.weights.log_g}
        low: tuple[str, ...] = ()
        if "log_z" in want:
            answers |= _log_z(target, levels.weights.log_g, seen[self.warmup :], len(betas))
            low = below_a_bound(target, answers["log_z_interval"])
        few = travelled(stats["round_trips"], target.first) if len(betas) > 1 else ()
        status = Status.FEW_TRIPS if few else Status.NOT_MIXED if note else status
        status = Status.CONTRADICTED if low else status
        return question.result(answers, stats, status, low + few + note + notes)

    def unmixed(self, stats: Mapping[str, Any]) -> tuple[str, ...]:
        """Return a line for everything that has not mixed."""
        return unmixed_notes(stats, self.rhat_limit)


def _travels(levels: Array, warmup: int, betas: Array) -> dict[str, Any]:
    """Return the statistics of the levels (sweeps, rows, chains) at which the chains were."""
    return {
        "occupancy_adaptive": _occupancy(levels[:warmup], len(betas)),
        "occupancy": _occupancy(levels[warmup:], len(betas)),
        "levels": levels,
        "adaptive": np.arange(len(levels)) < warmup,
        "betas": betas,
        "round_trips": round_trips(levels[warmup:], len(betas)),
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
        """Those of this sweep."""
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
        """As many draws of every chain as the least that one has; a chain without any lends its
        last state.
        """
        note = tuple(
            f"chain {c % chains} of row {target.first + c // chains} never came back to beta = 1"
            for c in np.flatnonzero(self.count == 0)[:3]
        )
        assert self.last is not None
        many = target.take(np.repeat(np.arange(target.rows), chains))
        count = max(int(self.count.min()), 1)
        out = Draws(many, wanted, chains, count)
        chain = np.concatenate([*self.chain, np.flatnonzero(self.count == 0)])
        missing = np.flatnonzero(self.count == 0)
        x = {
            name: np.concatenate([*(part[name] for part in self.x), value[missing]])
            for name, value in self.last[0].items()
        }
        energy = np.concatenate([*self.energy, -self.last[1][missing]])
        order = np.argsort(chain, kind="stable")
        first = np.searchsorted(chain[order], np.arange(len(self.count)))
        for t in range(count):
            index = order[first + t]
            out.add(t, {name: value[index] for name, value in x.items()}, energy[index])
        return out, note


def round_trips(levels: Array, count: int) -> Array:
    """Return how often the chains of each row came from level 0 to the last one, (rows,).

    levels : (sweeps, rows, chains).
    """
    sweep = np.arange(len(levels))[:, None, None]
    # The last sweep at either end of the ladder so far; -1 before the first one.
    low, high = (
        np.maximum.accumulate(np.where(levels == end, sweep, -1), axis=0) for end in (0, count - 1)
    )
    arrived = (levels[1:] == count - 1) & (low[:-1] > high[:-1])
    return np.asarray(arrived.sum(axis=(0, 2)))


def _occupancy(levels: Array, count: int) -> Array:
    """Share of the sweeps that each row's chains spent at each level, (rows, levels)."""
    return (
        np.stack([(levels == level).mean(axis=(0, 2)) for level in range(count)], axis=1)
        if len(levels)
        else np.full((levels.shape[1], count), np.nan)
    )


def _log_z(target: Target, log_g: Array, levels: Array, count: int) -> dict[str, Array]:
    """Log Z_1 - log Z_0 = difference of log(g * occupancy); the error from batches of each chain."""
    parts = np.array_split(levels, BATCHES)  # ends: (batches, 2, rows, chains)
    ends = np.stack([[(part == level).mean(axis=0) for level in (0, count - 1)] for part in parts])
    mean = ends.mean(axis=(0, 3))
    ends = np.moveaxis(ends, 3, 1).reshape(-1, 2, levels.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = (ends[:, 1] / mean[1] - ends[:, 0] / mean[0]).std(axis=0, ddof=1) / np.sqrt(
            len(ends)
        )
        log_z = target.log_z_at_0() + log_g[:, -1] - log_g[:, 0] + np.log(mean[1]) - np.log(mean[0])
    seen = np.isfinite(log_z)  # both ends
    log_z, error = np.where(seen, log_z, np.nan), np.where(seen, spread, np.inf)
    return {
        "log_z": log_z,
        "log_z_error": error,
        "log_z_interval": interval(log_z, error, log_z, error),
    }
