"""Tempered transitions: long excursions to high temperature, accepted or not as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.progress import track
from pgmengine.base.types import Array, RngLike
from pgmengine.engine.chains import Chains, make_chains, refusal, sweep_work
from pgmengine.engine.cost import excursions
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.infer.prepared import Method, Prepared, Scheme
from pgmengine.infer.result import Axis, Result
from pgmengine.infer.sampling.collect import OF_CHAINS, OF_DRAWS, Draws, kept_bytes, unmixed_notes
from pgmengine.infer.sampling.schedules import Linear, count_of, ladder


@dataclass(frozen=True)
class TemperedTransitions(Method):
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

    gives = OF_DRAWS
    source = "draws give"
    statistics = OF_CHAINS | {"acceptance": (Axis.ROW,)}

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

    def scheme(self, target: Target, want: tuple[str, ...]) -> Scheme:
        """Return the work and memory of the chains."""
        steps, count = count_of(self.betas), self.warmup + self.draws
        length = (self.warmup, self.draws)
        return Scheme(
            f"{self.chains} chains of {count} excursions over {steps} temperatures",
            count * 2.0 * steps * target.rows * self.chains * sweep_work(target),
            kept_bytes(target, want, self.chains, self.draws),
            excursions(target, self.kernel, want, self.chains, steps, *length, self.rhat_limit),
            refusal=refusal(target),
        )

    def answer(
        self, question: Prepared, rng: RngLike, state: Any = None, executor: Executor | None = None
    ) -> Result:
        """Alternate excursions and sweeps; every state after a sweep is a draw."""
        target, want, generator = question.target, question.want, seeded(rng)
        betas = ladder(self.betas, target, self.kernel, generator)
        many = target.take(np.repeat(np.arange(target.rows), self.chains))
        chains = make_chains(many, self.kernel, many.draw_at_0(generator), generator)
        for _ in track(range(self.warmup), "warming up"):
            excursion(chains, betas, generator)
            chains.sweep(1)
        draws, taken = Draws(many, want, self.chains, self.draws), np.zeros(many.rows)
        for t in track(range(self.draws), "sampling"):
            taken += excursion(chains, betas, generator)
            chains.sweep(1)
            draws.add(t, chains.values(), -chains.log_density())
        stats, status, note = draws.judged(target, self.rhat_limit)
        stats["acceptance"] = taken.reshape(target.rows, -1).mean(axis=1) / self.draws
        return question.result(draws.answers(target), stats, status, note)

    def unmixed(self, stats: Mapping[str, Any]) -> tuple[str, ...]:
        """Return a line for everything that has not mixed."""
        return unmixed_notes(stats, self.rhat_limit)


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
