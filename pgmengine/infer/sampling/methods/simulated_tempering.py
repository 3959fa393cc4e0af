"""Simulated tempering: chains that move over a ladder, with adaptive weights of the rungs.

This is algorithm 1 of Salakhutdinov (2010). `Levels` (wandering.py) holds one step of it and the
log weights of the rungs, log g. Once the weights are frozen, (x, l) has the density p_l(x) / g_l,
so that

    states at beta = 1 are draws of the model,
    log Z_1 - log Z_0 = log(g_1 * occupancy of beta = 1) - log(g_0 * occupancy of beta = 0).

Adaptive sweeps change the distribution that they sample, so their states are never draws. The tests
compare weights and draws with exact answers.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike, Snapshot, States
from pgmengine.base.work.progress import track
from pgmengine.engine.chains import sweep_work
from pgmengine.engine.cost import NS, US, Price, engine
from pgmengine.engine.kernels import Gibbs, Kernel
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.convergence import series_statistics
from pgmengine.infer.diagnostics.trust import (
    BATCHES_PER_CHAIN,
    Doubts,
    few_tours,
    interval,
    needed_tours,
    with_rounding,
    worst,
)
from pgmengine.infer.question.prepared import AnyPrepared
from pgmengine.infer.results.axes import Axis, by_row
from pgmengine.infer.results.result import Plan, Result, Status
from pgmengine.infer.sampling.draws.collected import Draws, small, whole
from pgmengine.infer.sampling.draws.draw_costs import small_bytes
from pgmengine.infer.sampling.draws.sampler import (
    CHAIN_STATISTICS,
    WANTS_BY_DRAWS,
    ChainPlan,
    Sampler,
)
from pgmengine.infer.sampling.ladders.temperatures import (
    Betas,
    Linear,
    check_betas,
    count_of,
    ends_elsewhere,
    ladder,
)
from pgmengine.infer.sampling.ladders.wandering import (
    FlatHistogram,
    GammaSchedule,
    Levels,
    check_gamma,
)
from pgmengine.infer.sampling.methods.bound_check import below_a_bound, below_a_state

# Bytes for each sweep of a chain: for its rung, and for the last sweeps at both ends of the ladder,
# by which round trips are counted.
TRIP_BYTES_PER_SWEEP = 40.0


@dataclass(frozen=True)
class SimulatedTempering(Sampler):
    """Chains that move over a ladder, first with adaptive and then with frozen weights.

    Use it where single chains stay in one mode, and where the share of each rung is of interest;
    ParallelTempering usually needs less care. After each sweep at its rung's beta a chain proposes
    a neighbouring rung. During the warm-up each chain adds log(1 + gamma) / chains to the log
    weight of its rung; the chains of a row share these weights. Then the weights are frozen, and
    the states at beta = 1 are the draws.

    Parameters
    ----------
    betas : a schedule, a number of even steps, or numbers that reach 1. A ladder that starts at 0
        also gives log_z.
    kernel : any kernel.
    chains : number of chains for each row of evidence; they share the weights.
    warmup : adaptive sweeps.
    draws : sweeps with frozen weights; each chain gives as many draws as the chain of the row that
        is at beta = 1 least often.
    gamma : FlatHistogram() or OneOverT().
    rhat_limit : largest R-hat of chains that have mixed.

    Notes
    -----
    The status is FEW_TRIPS where the draws of a row come from few tours of chains from one end of
    the ladder to the other and back: the weights have not converged, and neither `log_z` nor the
    draws can be trusted. It is NOT_MIXED where the chains disagree on log Z. `log_z` is NaN where
    the chains never were at one of the ends with frozen weights.

    `stats` holds the statistics of MCMC but sweeps_apart, and these:

    - round_trips (rows,), those of the sweeps with frozen weights.
    - tours (rows,), the effective number of independent tours from which the draws come.
    - log_z_rhat (rows,), the R-hat of log Z, if log_z is wanted.
    - betas (rungs,), and log_g, occupancy and occupancy_adaptive, each (rows, rungs).
    - levels (warmup + draws, rows, chains), the rung of each chain.
    - adaptive (warmup + draws,), whether a sweep was adaptive.

    References
    ----------
    Salakhutdinov 2010, "Learning deep Boltzmann machines using adaptive MCMC".

    >>> import pgmengine as pgm
    >>> method = pgm.SimulatedTempering(betas=pgm.Linear(5), draws=2000)
    >>> r = pgm.infer(pgm.rbm(4, 3, rng=0), method=method, rng=0)
    >>> bool(abs(r.stats["occupancy"].sum() - 1) < 1e-9)
    True
    """

    gives = WANTS_BY_DRAWS | {"log_z"}
    statistics = CHAIN_STATISTICS | {
        "log_g": (Axis.ROW, Axis.RUNG),
        "occupancy": (Axis.ROW, Axis.RUNG),
        "occupancy_adaptive": (Axis.ROW, Axis.RUNG),
        "levels": (Axis.SWEEP, Axis.ROW, Axis.CHAIN),
        "adaptive": (Axis.SWEEP,),
        "betas": (Axis.RUNG,),
        **by_row("round_trips", "tours", "log_z_rhat"),
    }

    betas: Betas = Linear(12)
    kernel: Kernel = Gibbs()
    chains: int = 8
    warmup: int = 2000
    draws: int = 4000
    gamma: GammaSchedule = FlatHistogram()
    rhat_limit: float = 1.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gamma(self)
        check_betas(self)

    def scheme(self, target: Target, want: tuple[str, ...]) -> ChainPlan:
        """Return the work and memory of the chains."""
        if why := ends_elsewhere(target):
            return Plan(refusal=why)
        rungs, sweeps = count_of(self.betas), self.warmup + self.draws
        e, n = engine(target, self.kernel), target.rows * self.chains
        hopping = Price(40 * US, 60 * NS)
        moving = (e.sweep + e.density + hopping).of(n, sweeps)
        moving += (e.density + e.values).of(n, self.draws)
        # A chain is at beta = 1, where its state is a draw, in one sweep for each rung.
        kept = self.draws / max(rungs, 1)
        # These are the rungs of all sweeps, the counts of round trips, and the states at beta = 1.
        each = TRIP_BYTES_PER_SWEEP * sweeps + max(int(kept), 1) * small_bytes(target.structure)
        how = (
            f"{self.chains} chains over {rungs} rungs, {self.warmup} adaptive sweeps, "
            f"{self.draws} with fixed weights"
        )
        work = sweeps * n * sweep_work(target)
        return self.scheme_of(
            target, want, how, work, moving, draws=kept, more=n * each, bounded=True
        )

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
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
        kept = _Kept(target, self.chains)
        for t in track(range(self.draws), "sampling"):
            levels.step(adapt=False)
            rungs[self.warmup + t] = levels.rung
            kept.add(levels, np.flatnonzero(levels.at_1().ravel()))
        draws, absent = kept.draws(want, levels)
        answers = draws.answers(target)
        travelled = _ladder_statistics(rungs, self.warmup, betas)
        most = travelled["tours"] if len(betas) > 1 else np.inf
        stats, _, unmixed = draws.judged(
            target, self.rhat_limit, question.plan.seconds, type(self).__name__, most=most
        )
        stats |= travelled | {"log_g": levels.weights.log_g}
        doubts: Doubts = []
        if "log_z" in want:
            found, stats["log_z_rhat"] = _log_z(
                target, levels.weights.log_g, rungs[self.warmup :], len(betas)
            )
            answers |= found
            ends = found["log_z_interval"]
            doubts += [
                (Status.CONTRADICTED, below_a_bound(target, ends, question.basis.modes(target))),
                (Status.CONTRADICTED, below_a_state(target, kept.highest, ends)),
            ]
        if len(betas) > 1:
            tours = needed_tours(target, stats["tours"])
            doubts.append((Status.FEW_TRIPS, few_tours(tours, target.row_numbers)))
        # The R-hat of log Z is judged like the R-hat of a unit.
        unmixed = absent + unmixed + self.unmixed(stats, target.structure)
        doubts.append((Status.NOT_MIXED, tuple(dict.fromkeys(unmixed))))
        return question.result(answers, stats, *worst(doubts))


def _ladder_statistics(rungs: Array, warmup: int, betas: Array) -> dict[str, Any]:
    """Return the statistics of the rungs (sweeps, rows, chains) of the chains."""
    return {
        "occupancy_adaptive": _occupancy(rungs[:warmup], len(betas)),
        "occupancy": _occupancy(rungs[warmup:], len(betas)),
        "levels": rungs,
        "adaptive": np.arange(len(rungs)) < warmup,
        "betas": betas,
        "round_trips": round_trips(rungs[warmup:], len(betas)),
        "tours": tours(rungs[warmup:], len(betas)),
    }


class _Kept:
    """The states of each chain at beta = 1, in order."""

    def __init__(self, target: Target, chains: int) -> None:
        self.target, self.chains = target, chains
        self.chain: list[Array] = []
        self.x: list[States] = []
        self.energy: list[Array] = []
        self.count = np.zeros(target.rows * chains, dtype=int)
        # The largest log density at beta = 1 of each chain.
        self.high = np.full(target.rows * chains, -np.inf)

    @property
    def highest(self) -> Array:
        """The largest log density at beta = 1 of the chains of each row, (rows,)."""
        return np.asarray(self.high.reshape(-1, self.chains).max(axis=1))

    def add(self, levels: Levels, index: Array) -> None:
        """Keep the present states of the chains `index`."""
        log_density = np.sum(levels.chains.path(), axis=0)
        np.fmax(self.high, log_density, out=self.high)
        if len(index):
            self.chain.append(index)
            self.x.append(small(self.target.structure, levels.chains.values(index)))
            self.energy.append(-log_density[index])
            self.count[index] += 1

    def draws(self, wanted: tuple[str, ...], levels: Levels) -> tuple[Draws, tuple[str, ...]]:
        """Return equally many draws of every chain, and a warning for each chain without any.

        A chain that never was at beta = 1 contributes its last state.
        """
        target, chains, absent = self.target, self.chains, np.flatnonzero(self.count == 0)
        note = tuple(
            f"chain {c % chains} of row {target.row_numbers[c // chains]} never came back to "
            "beta = 1"
            for c in absent[:3]
        )
        self.add(levels, absent)
        count = int(self.count.min())
        chain, energy = np.concatenate(self.chain), np.concatenate(self.energy)
        # One layer at a time, because its parts and the joined array are in memory together.
        x = {
            name: np.concatenate([part.pop(name) for part in self.x])
            for name in target.structure.layers
        }
        order = np.argsort(chain, kind="stable")
        first = np.searchsorted(chain[order], np.arange(len(self.count)))
        many = target.take(np.repeat(np.arange(target.rows), chains))
        out = Draws.none(many, wanted, chains, count)
        for t in range(count):
            index = order[first + t]
            now = {name: value[index] for name, value in x.items()}
            out.add(t, whole(target.structure, now), energy[index])
        return out, note


def round_trips(rungs: Array, count: int) -> Array:
    """Return the number (rows,) of times that chains came from the first rung to the last.

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


def tours(rungs: Array, count: int) -> Array:
    """Return the effective number (rows,) of tours from which sweeps on the last rung come.

    A tour of a chain leads from one visit of the first rung to the next; see replicas.py.

    Parameters
    ----------
    rungs : (sweeps, rows, chains).
    count : number of rungs.
    """
    return np.array([_tours(rungs[:, row], count) for row in range(rungs.shape[1])])


def _tours(rungs: Array, count: int) -> float:
    """Return the effective number of tours of the chains of one row, rungs (sweeps, chains)."""
    sweeps, chains = rungs.shape
    # The number of the tour of each chain in each sweep.
    tour = np.cumsum(rungs == 0, axis=0)
    place = tour + (sweeps + 1) * np.arange(chains)
    held = np.bincount(place[rungs == count - 1], minlength=chains * (sweeps + 1))
    unfinished = held[place[-1]].sum() if sweeps else 0
    return float((held.sum() - unfinished) ** 2 / max(np.square(held).sum(), 1))


def _occupancy(rungs: Array, count: int) -> Array:
    """Return the share of the sweeps that each row's chains spent on each rung, (rows, rungs)."""
    if not len(rungs):
        return np.full((rungs.shape[1], count), np.nan)
    return np.stack([(rungs == rung).mean(axis=(0, 2)) for rung in range(count)], axis=1)


def _log_z(
    target: Target, log_g: Array, rungs: Array, count: int
) -> tuple[dict[str, Array], Array]:
    """Return log Z by the occupancies of both ends, and its R-hat.

    To first order log Z varies as a series of batches, whose MCSE is the error.
    """
    batches = np.array_split(rungs, min(BATCHES_PER_CHAIN, len(rungs)))
    # Shares of the sweeps at both ends, (ends, chains, batches, rows).
    low, high = (
        np.stack([(batch == end).mean(axis=0) for batch in batches]).transpose(2, 0, 1)
        for end in (0, count - 1)
    )
    bottom, top = (share.mean(axis=(0, 1)) for share in (low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_z = target.log_z_at_0() + log_g[:, -1] - log_g[:, 0] + np.log(top) - np.log(bottom)
        series = high / top - low / bottom
    # log Z is NaN where the chains never reached one of the ends.
    visited = np.isfinite(log_z)
    found = series_statistics(np.where(visited, series, 0.0)[..., None], ranked=False)
    log_z = np.where(visited, log_z, np.nan)
    error = np.where(visited, np.nan_to_num(found["mcse"][:, 0], nan=np.inf), np.inf)
    ends = interval(log_z, error, log_z, error)
    log_z, error, ends = with_rounding(target, log_z, error, ends)
    answers = {"log_z": log_z, "log_z_error": error, "log_z_interval": ends}
    return answers, found["rhat"][:, 0]
