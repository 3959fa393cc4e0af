"""Parallel tempering: draws and log Z by ladders of replicas, from independent units to the model.

The ladders, their swaps and the stepping stones of log Z are in replicas.py. This module warms them
up in rounds of doubling length, after each of which the rungs are moved, collects the states at
beta = 1, and judges the answer.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.checks import check_moves, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.types import RngLike, Snapshot
from pgmengine.base.work.progress import track
from pgmengine.engine.chains import sweep_work
from pgmengine.engine.cost import NS, US, Price, engine
from pgmengine.engine.kernels import Gibbs, Kernel
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import (
    BATCHES_PER_CHAIN,
    MIN_TOURS,
    MIN_TOURS_FOR_LOG_Z,
    Doubts,
    few_tours,
    needed_tours,
    worst,
)
from pgmengine.infer.question.prepared import AnyPrepared
from pgmengine.infer.results.axes import Axis, by_row
from pgmengine.infer.results.result import Plan, Result, Status
from pgmengine.infer.sampling.draws.collected import Draws
from pgmengine.infer.sampling.draws.sampler import (
    CHAIN_STATISTICS,
    WANTS_BY_DRAWS,
    ChainPlan,
    Sampler,
)
from pgmengine.infer.sampling.ladders.replicas import Ladders
from pgmengine.infer.sampling.ladders.stepping_stones import FromSteppingStones
from pgmengine.infer.sampling.ladders.temperatures import (
    Betas,
    check_betas,
    count_of,
    ends_elsewhere,
    ladder,
)
from pgmengine.infer.sampling.methods.bound_check import below_a_bound, below_a_state
from pgmengine.infer.sampling.methods.references import training_rates
from pgmengine.infer.variational.modes import Modes

if TYPE_CHECKING:
    from pgmengine.infer.sampling.clusters.houdayer import Houdayer

# Numbers in memory for each rung of a ladder: four expectations of stepping stones, in batches, and
# their means.
STEPPING_STONE_NUMBERS_PER_RUNG = 8 * BATCHES_PER_CHAIN


@dataclass(frozen=True)
class ParallelTempering(Sampler):
    """Ladders of replicas that swap places between independent units and the model.

    Use it where chains at beta = 1 stay in one mode, and for log_z together with marginals.

    Parameters
    ----------
    rungs : number of rungs, or a schedule, or numbers from 0 to 1, to start the adaptation from.
    kernel : any kernel.
    chains : number of ladders for each row of evidence.
    warmup : sweeps that are dropped, during which the ladder is adapted.
    draws : draws of each ladder.
    thin : sweeps from one draw to the next; a round of swaps follows each sweep.
    rhat_limit : largest R-hat of chains that have mixed.
    moves : moves of pairs of ladders at each temperature, such as Houdayer(); an even number of
        ladders is then needed, and each pair counts as one chain of twice as many draws.

    Notes
    -----
    `log_z` is the estimate half way between the stepping stones from below and from above.
    `log_z_interval` goes from the lowest to the highest of these three estimates, three standard
    errors wider at each end. All three come from the same replicas, so that the interval is valid
    only if these have missed no part of the space. The status is FEW_TRIPS where the draws of a row
    come from few tours of replicas (see `tours` below), NOT_MIXED where the ladders disagree on log
    Z, CONTRADICTED where the stepping stones from below lie above the ones from above, and
    FEW_WEIGHTS where they lie far below.

    `stats` holds the statistics of MCMC but sweeps_apart, and these:

    - betas (rungs,) and swap_rejection (rungs - 1,). They have a first axis of rows if a large
      question is answered in parts, because each part has its own ladder.
    - round_trips (rows,), and round_trip_rate (rows,), the round trips for each sweep and ladder.
    - tours (rows,), the effective number of independent tours from beta = 0 from which the states
      at beta = 1 come; with `moves`, half of this number.
    - swap_accepted (chains, draws, rows), the share of accepted swaps before each draw.
    - log_z_rhat (rows,), the R-hat of log Z, if log_z is wanted.

    References
    ----------
    Okabe, Kawata, Okamoto and Mikami 2001, "Replica-exchange Monte Carlo method for the
    isobaric-isothermal ensemble". Syed, Bouchard-Cote, Deligiannidis and Doucet 2022,
    "Non-reversible parallel tempering: a scalable highly parallel MCMC scheme". Xie, Lewis, Fan,
    Kuo and Chen 2011, "Improving marginal likelihood estimation for Bayesian phylogenetic model
    selection". Biron-Lattes, Campbell and Bouchard-Cote 2023, "Automatic regenerative simulation
    via non-reversible simulated tempering". Meng and Wong 1996, "Simulating ratios of normalizing
    constants via a simple identity".

    >>> import pgmengine as pgm
    >>> method = pgm.ParallelTempering(rungs=4)
    >>> r = pgm.infer(pgm.rbm(4, 3, rng=0), want=("log_z", "marginals"), method=method, rng=0)
    >>> r.stats["swap_rejection"].shape
    (3,)
    """

    gives = WANTS_BY_DRAWS | {"log_z", "log_prob"}
    subtracts = True
    statistics = CHAIN_STATISTICS | {
        "betas": (Axis.RUNG,),
        "swap_rejection": (Axis.RUNG,),
        "swap_accepted": (Axis.CHAIN, Axis.DRAW, Axis.ROW),
        **by_row("round_trips", "round_trip_rate", "tours", "log_z_rhat", "log_prob_error"),
    }
    tempered = True

    rungs: Betas = 12
    kernel: Kernel = Gibbs()
    chains: int = 4
    warmup: int = 500
    draws: int = 4000
    thin: int = 1
    rhat_limit: float = 1.05
    moves: Houdayer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "thin")
        check_betas(self, "rungs")
        if self.moves is not None:
            check_moves(self.moves)
            if self.chains % 2:
                raise PgmError(
                    f"ParallelTempering: moves are those of pairs of ladders, and chains is "
                    f"{self.chains}: take an even number"
                )

    def scheme(self, target: Target, want: tuple[str, ...]) -> ChainPlan:
        """Return the work and memory of all ladders."""
        if why := ends_elsewhere(target):
            return Plan(refusal=why)
        rungs = count_of(self.rungs)
        if rungs < 2 and "log_z" in want:
            return Plan(refusal="one temperature gives no log_z")
        if self.moves is not None and (why := self.moves.refusal(target)):
            return Plan(refusal=why)
        sweeps, e = self.warmup + self.draws * self.thin, engine(target, self.kernel)
        tops = target.rows * self.chains
        n, swapping = tops * rungs, Price(80 * US, 60 * NS)
        moving = (e.sweep + e.density + swapping).of(n, sweeps) + e.density.of(n, self.draws)
        moving += e.values.of(tops, self.draws)
        if self.moves is not None:
            moving += (self.moves.price(target) + e.density).of(n, sweeps)
        more = 8.0 * (self.draws + STEPPING_STONE_NUMBERS_PER_RUNG * rungs)
        return self.scheme_of(
            target,
            want,
            f"{self.chains} ladders of {rungs} chains, {sweeps} sweeps",
            sweeps * n * sweep_work(target),
            moving,
            replicas=rungs,
            more=more * target.rows * self.chains,
            bounded=True,
        )

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Adapt the ladders, then collect the states at beta = 1 after every `thin` steps."""
        target, want, generator = question.target, question.want, seeded(rng)
        ladders = self._warmed(target, generator)
        together = ladders.together
        chains, count = self.chains // together, self.draws * together
        draws = Draws.none(
            target.take(np.repeat(np.arange(target.rows), chains)), want, chains, count
        )
        swapped = np.full((count, target.rows, chains), np.nan)
        for t in track(range(self.draws), "sampling"):
            for _ in range(self.thin):
                ladders.step()
            for first in range(together):
                top, number = ladders.top(first), t * together + first
                draws.add(number, ladders.chains.values(top), ladders.energy_at_1(top))
                swapped[number] = ladders.accepted[:, first::together]
        answers = draws.answers(target)
        name, several = type(self).__name__, len(ladders.betas) > 1
        stats, _, unmixed = draws.judged(
            target,
            self.rhat_limit,
            question.plan.seconds,
            name,
            self.thin,
            ladders.tours() if several else np.inf,
        )
        stats |= ladders.stats() | {"swap_accepted": swapped.transpose(2, 0, 1)}
        doubts: Doubts = []
        if several:
            # log Z is estimated even if it is not wanted: a proven bound above the estimate shows
            # that the replicas have missed a phase.
            found = ladders.log_z()
            doubts += _bounds(ladders, found, question.basis.modes(target))
        if "log_z" in want:
            answers |= found.answers
            stats["log_z_rhat"] = found.rhat
            doubts += _apart(ladders, found)
        needed = MIN_TOURS_FOR_LOG_Z if "log_z" in answers else MIN_TOURS
        doubts += _hardly_travelled(ladders, needed)
        # The R-hat of log Z is judged like the R-hat of a unit.
        unmixed += self.unmixed(stats, target.structure)
        doubts.append((Status.NOT_MIXED, tuple(dict.fromkeys(unmixed))))
        return question.result(answers, stats, *worst(doubts))

    def _warmed(self, target: Target, rng: np.random.Generator) -> Ladders:
        """Return ladders after the warm-up, with their rungs adapted."""
        if isinstance(self.rungs, int):
            # A single rung must be at beta = 1.
            betas = np.linspace(1, 0, self.rungs)[::-1].copy()
        else:
            betas = ladder(self.rungs, target, self.kernel, rng)
        if len(betas) > 1 and betas[0] != 0.0:
            raise PgmError(
                "ParallelTempering: the rungs must start at 0, where states are drawn exactly, "
                f"not at {betas[0]}"
            )
        # Units with the base rates of the training are nearer to a trained model than uniform ones.
        near = target.at(target.beta, training_rates(target))
        moves = None if self.moves is None else self.moves.over(near)
        ladders = Ladders(near, betas, self.chains, self.kernel, rng, moves)
        for length in rounds(self.warmup):
            for _ in track(range(length), "warming up"):
                ladders.step()
            ladders.adapt()
        ladders.forget(self.draws * self.thin)
        return ladders


def rounds(total: int) -> list[int]:
    """Return lengths of rounds that double from about 16 and add up to `total`."""
    out: list[int] = []
    while total > 0:
        half = total if total < 48 else (total + 1) // 2
        out.append(half)
        total -= half
    return out[::-1]


def _bounds(ladders: Ladders, found: FromSteppingStones, modes: Modes | None) -> Doubts:
    """Return doubts about log Z where mean field or a single state proves that it is larger."""
    target = ladders.target
    return [
        (Status.CONTRADICTED, below_a_bound(target, found.interval, modes)),
        (Status.CONTRADICTED, below_a_state(target, ladders.highest, found.interval)),
    ]


def _apart(ladders: Ladders, found: FromSteppingStones) -> Doubts:
    """Return doubts about log Z where stepping stones from below and from above disagree."""
    numbers = ladders.target.row_numbers
    return [
        (Status.CONTRADICTED, found.crossed(numbers)),
        (Status.FEW_WEIGHTS, found.apart(numbers)),
    ]


def _hardly_travelled(ladders: Ladders, needed: int) -> Doubts:
    """Return doubts where draws come from few tours that began at beta = 0; none with one rung."""
    several = len(ladders.betas) > 1
    tours = needed_tours(ladders.target, ladders.tours())
    few = few_tours(tours, ladders.target.row_numbers, needed)
    return [(Status.FEW_TRIPS, few)] * several
