"""Tempered transitions: excursions to high temperature, accepted or rejected as a whole.

The method is that of Neal (1996). From a state x_0 at b_0 = 1 the chain sweeps at smaller and
smaller betas b_1 > ... > b_n, which is annealing down. Then it returns to b_1 with the reversed
sweeps, which is annealing up. With S = d log p_beta / d beta,

    log_ratio = sum_i (b_(i+1) - b_i) S(x_i) on the way down + the same sum on the way up,

where the way up ends with the step from b_1 to 1, after which no sweep follows. The end is accepted
with probability min(1, exp(log_ratio)). Both sums are log importance weights from `Chains.anneal`.
They use the joint density, without marginalised layers, because the sweeps must be reversible as a
whole. A rejected chain returns to x_0. The tests check by chi-square that an excursion leaves the
model invariant.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.progress import track
from pgmengine.engine.chains import Chains, make_chains, sweep_work
from pgmengine.engine.cost import engine
from pgmengine.engine.kernels import Gibbs, Kernel
from pgmengine.evidence.target import Target
from pgmengine.infer.question.prepared import AnyPrepared
from pgmengine.infer.results.axes import by_row
from pgmengine.infer.results.result import Plan, Result
from pgmengine.infer.sampling.draws.collected import Draws
from pgmengine.infer.sampling.draws.dispersed_starts import dispersed
from pgmengine.infer.sampling.draws.sampler import CHAIN_STATISTICS, ChainPlan, Sampler
from pgmengine.infer.sampling.ladders.temperatures import (
    Betas,
    Linear,
    check_betas,
    count_of,
    ends_elsewhere,
    ladder,
)


@dataclass(frozen=True)
class TemperedTransitions(Sampler):
    """Plain sweeps that alternate with tempered transitions.

    Use it where draws at beta = 1 alone are wanted, without chains at other temperatures; on large
    models few excursions are accepted, and ParallelTempering is the better choice.

    Parameters
    ----------
    betas : a schedule, a number of even steps, or numbers that reach 1.
    kernel : any kernel.
    chains : number of chains for each row of evidence.
    warmup : excursions, each followed by a sweep, that are dropped.
    draws : draws of each chain, one after each excursion and sweep.
    rhat_limit : largest R-hat of chains that have mixed.

    Notes
    -----
    `stats` holds the statistics of MCMC but sweeps_apart, and acceptance (rows,), the share of
    excursions that were accepted.

    References
    ----------
    Neal 1996, "Sampling from multimodal distributions using tempered transitions".

    >>> import pgmengine as pgm
    >>> method = pgm.TemperedTransitions(betas=pgm.Linear(10), warmup=10, draws=100)
    >>> pgm.infer(pgm.rbm(4, 3, rng=0), method=method, rng=0).stats["acceptance"].shape
    (1,)
    """

    statistics = CHAIN_STATISTICS | by_row("acceptance")

    betas: Betas = Linear(20)
    kernel: Kernel = Gibbs()
    chains: int = 4
    warmup: int = 100
    draws: int = 500
    rhat_limit: float = 1.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_betas(self)

    def scheme(self, target: Target, want: tuple[str, ...]) -> ChainPlan:
        """Return the work and memory of the chains."""
        if why := ends_elsewhere(target):
            return Plan(refusal=why)
        steps, count = count_of(self.betas), self.warmup + self.draws
        e, n = engine(target, self.kernel), target.rows * self.chains
        # An excursion goes down and up the ladder, and back if it is rejected.
        each = 2 * e.anneal(n, steps) + (e.sweep + e.density + e.values * 3).of(n)
        moving = count * each + (e.density + e.values).of(n, self.draws)
        work = count * 2.0 * steps * n * sweep_work(target)
        how = f"{self.chains} chains of {count} excursions over {steps} temperatures"
        return self.scheme_of(target, want, how, work, moving)

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Alternate excursions and sweeps; every state after a sweep is a draw."""
        target, want, generator = question.target, question.want, seeded(rng)
        betas = ladder(self.betas, target, self.kernel, generator)
        many = target.take(np.repeat(np.arange(target.rows), self.chains))
        x = dispersed(many, self.chains, self.kernel, generator)
        chains = make_chains(many, self.kernel, x, generator)
        for _ in track(range(self.warmup), "warming up"):
            excursion(chains, betas, generator)
            chains.sweep(1)
        draws = Draws.none(many, want, self.chains, self.draws)
        accepted = np.zeros(many.rows)
        for t in track(range(self.draws), "sampling"):
            accepted += excursion(chains, betas, generator)
            chains.sweep(1)
            draws.add(t, chains.values(), -chains.log_density())
        stats, status, note = draws.judged(
            target, self.rhat_limit, question.plan.seconds, type(self).__name__
        )
        stats["acceptance"] = accepted.reshape(target.rows, -1).mean(axis=1) / self.draws
        return question.result(draws.answers(target), stats, status, note)


def excursion(chains: Chains, betas: Array, rng: np.random.Generator) -> Array:
    """Make a tempered transition of chains at beta = 1; return a mask (chains,) of accepted ones.

    Parameters
    ----------
    chains : chains at beta = 1; they are at beta = 1 again afterwards.
    betas : (rungs,), ascending to 1.
    rng : numpy Generator, for the acceptance.
    """
    down = betas[::-1]
    if len(down) < 2:
        return np.ones(len(chains.beta), dtype=bool)
    before = chains.keep()
    log_ratio = chains.anneal(down, joint=True)
    up = np.concatenate((down[-1:], betas[:-1]))
    # If the state is impossible before and after, the ratio is NaN, and the end is not accepted.
    with np.errstate(invalid="ignore"):
        log_ratio = log_ratio + chains.anneal(up, joint=True, backward=True)
        log_ratio = log_ratio + np.nan_to_num((1.0 - betas[-2]) * chains.path()[1], nan=0.0)
    chains.beta[:] = 1.0
    accepted: Array = np.log(rng.random(len(log_ratio))) < log_ratio
    chains.restore(before, ~accepted)
    return accepted
