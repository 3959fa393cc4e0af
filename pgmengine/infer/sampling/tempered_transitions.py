"""Tempered transitions: long excursions to high temperature, accepted or not as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.progress import track
from pgmengine.base.types import Array
from pgmengine.engine.chains import Chains, make_chains, sweep_work
from pgmengine.engine.cost import excursions
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.infer.answers import accepted, check_want, no_room
from pgmengine.infer.result import Plan, Result
from pgmengine.infer.sampling.collect import Draws, kept_bytes, refused
from pgmengine.infer.sampling.schedules import Linear, count_of, ladder


@dataclass(frozen=True)
class TemperedTransitions:
    """One draw = a plain sweep and a tempered transition (Neal 1996).

    From x the chain sweeps at ever smaller betas b_1 > ... > b_n and, with the reversed sweeps,
    back to b_1. The end is accepted with probability min(1, exp(w)), w = sum (b_(i+1) - b_i) S(x_i)
    on the way up and the same with the opposite sign on the way down, S = d log p_beta / d beta;
    b_0 = 1.

    Parameters
    ----------
    betas : a schedule, a number of even steps, or numbers that reach 1.
    kernel, chains, warmup, draws : as in MCMC.

    `stats` holds those of MCMC and acceptance (rows,).

    >>> import pgmengine as pgm
    >>> method = pgm.TemperedTransitions(betas=pgm.Linear(10), warmup=10, draws=100)
    >>> pgm.infer(pgm.rbm(4, 3, rng=0), method=method, rng=0).stats["acceptance"].shape
    (1,)
    """

    betas: Any = Linear(20)
    kernel: Any = Gibbs()
    chains: int = 4
    warmup: int = 100
    draws: int = 500
    rhat_limit: float = 1.05

    def __post_init__(self) -> None:
        check_whole(self, "chains", "draws")
        check_whole(self, "warmup", least=0)
        check_limit(self, "rhat_limit")

    def plan(self, target: Target, want: Iterable[str]) -> Plan:
        """Work and memory of the chains."""
        wanted = check_want(want)
        if why := refused(target, wanted, {"mode", "log_z", "log_prob", "bound"}):
            return Plan("TemperedTransitions", refusal=why)
        steps = count_of(self.betas)
        memory = kept_bytes(target, wanted, self.chains, self.draws)
        if too_much := no_room(memory):
            return Plan("TemperedTransitions", refusal=too_much)
        work = (
            (self.warmup + self.draws)
            * 2.0
            * steps
            * target.rows
            * self.chains
            * sweep_work(target)
        )
        how = f"{self.chains} chains of {self.warmup + self.draws} excursions over {steps} temperatures"
        seconds = excursions(
            target,
            self.kernel,
            wanted,
            self.chains,
            steps,
            self.warmup,
            self.draws,
            self.rhat_limit,
        )
        return Plan("TemperedTransitions", "estimate", how, work, memory, seconds=seconds)

    def run(
        self,
        target: Target,
        want: Iterable[str] = ("marginals",),
        rng: Any = None,
        state: Any = None,
    ) -> Result:
        """Run the chains."""
        wanted, plan = accepted(self, target, want)
        generator = seeded(rng)
        betas = ladder(self.betas, target, self.kernel, generator)
        many = target.take(np.repeat(np.arange(target.rows), self.chains))
        chains = make_chains(many, self.kernel, many.draw_at_0(generator), generator)
        for _ in track(range(self.warmup), "warming up"):
            excursion(chains, betas, generator)
            chains.sweep(1)
        draws, taken = Draws(many, wanted, self.chains, self.draws), np.zeros(many.rows)
        for t in track(range(self.draws), "sampling"):
            taken += excursion(chains, betas, generator)
            chains.sweep(1)
            draws.add(t, chains.values(), -chains.log_density())
        stats, status, note = draws.judged(target, self.rhat_limit)
        stats["acceptance"] = taken.reshape(target.rows, -1).mean(axis=1) / self.draws
        return Result(draws.answers(target), "estimate", self, plan, status, (), stats, None, note)


def excursion(chains: Chains, betas: Array, rng: np.random.Generator) -> Array:
    """One tempered transition of chains at beta = 1, over betas that ascend to 1; mask (chains,) of
    those accepted.
    """
    down = betas[::-1]
    if len(down) < 2:
        return np.ones(len(chains.beta), dtype=bool)
    kept = chains.keep()
    weight = chains.anneal(down, joint=True)
    with np.errstate(invalid="ignore"):  # impossible before and after: NaN, not taken
        weight = weight + chains.anneal(
            np.concatenate((down[-1:], betas[:-1])), joint=True, backward=True
        )
        weight = weight + np.nan_to_num((1.0 - betas[-2]) * chains.path()[1], nan=0.0)
    chains.beta[:] = 1.0
    taken = np.log(rng.random(len(weight))) < weight
    chains.restore(kept, ~taken)
    return taken
