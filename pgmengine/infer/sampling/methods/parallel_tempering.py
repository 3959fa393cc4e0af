"""Parallel tempering: draws and log Z by ladders of replicas, from independent units to the model.

The ladders, their swaps and the stepping stones of log Z are in replicas.py. This module warms them
up in rounds of doubling length, after each of which the rungs are moved, collects the states at
beta = 1, and judges the answer (Syed et al. 2022).

Where no number of rungs is given, the warm-up begins with one that grows as the square root of the
number of units, as the barrier of similar models does. It then measures the barrier, the sum of the
rejections of all pairs, and keeps about two rungs for each unit of it, which makes most round trips
in the same time. Where no number of draws is given, rounds of draws double until a status is good.
Each round has draws of its own, so that it is judged as if it had been asked for alone.
"""

from __future__ import annotations

import math
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.checks import check_kernel, check_limit, check_moves, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.types import RngLike, Snapshot
from pgmengine.base.work.progress import track
from pgmengine.engine.chains import sweep_work
from pgmengine.engine.cost import NS, US, Price, engine
from pgmengine.engine.kernels import Gibbs, Kernel
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import (
    BATCHES_PER_CHAIN,
    MAX_SHARE_BEYOND_LIMIT,
    MIN_DRAWS_FOR_RHAT,
    MIN_TOURS,
    MIN_TOURS_FOR_LOG_Z,
    Doubts,
    few_tours,
    needed_tours,
    worst,
)
from pgmengine.infer.exact.enumeration.cover import Cover
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
from pgmengine.infer.sampling.ladders.cover_chains import small_cover, sweep_price
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

# Rungs of the first ladder for the square root of the number of units, and the smallest number.
RUNGS_PER_ROOT_OF_UNITS, MIN_FIRST_RUNGS = 1.4, 12

# Rungs for each unit of the barrier, besides the two ends, and the smallest number that is left.
RUNGS_PER_BARRIER, MIN_RUNGS = 2.0, 6

# Seconds of the first round of draws, as planned, and the limits of its draws.
FIRST_SECONDS, FEWEST_DRAWS, MOST_FIRST_DRAWS = 0.5, 1000, 4000

# The most draws of all rounds.
MOST_DRAWS = 2**18

# Another round has at least this many times the draws of the one before.
LEAST_GROWTH = 1.5

# No other round is begun if it would probably need this many times the draws that are left.
HOPE = 4.0


@dataclass(frozen=True)
class ParallelTempering(Sampler):
    """Ladders of replicas that swap places between independent units and the model.

    Use it where chains at beta = 1 stay in one mode, and for log_z together with marginals.

    Parameters
    ----------
    rungs : number of rungs, or a schedule, or numbers from 0 to 1, to start the adaptation from;
        None for as many as the model needs.
    kernel : any kernel.
    chains : number of ladders for each row of evidence.
    warmup : sweeps that are dropped, during which the ladder is adapted.
    draws : draws of each ladder; None for rounds that double until the status is good, or until
        `seconds` are over. The method of the answer has their number.
    thin : sweeps from one draw to the next; a round of swaps follows each sweep.
    rhat_limit : largest R-hat of chains that have mixed.
    seconds : time in seconds of all rounds, as planned for one core, where `draws` is None. The
        first round may take longer.
    moves : moves of pairs of ladders at each temperature, such as Houdayer(); an even number of
        ladders is then needed, and each pair counts as one chain of twice as many draws.

    Notes
    -----
    By default the ladder has about two rungs for each unit of the communication barrier, which the
    warm-up measures, and draws are made in rounds of about twice the length, until the status of
    a round by itself is good. Where few units hold many others apart, such as the hidden units of a
    small RBM, the replicas are states of these few units, with the others summed in closed form.

    `log_z` is the estimate half way between the stepping stones from below and from above.
    `log_z_interval` goes from the lowest to the highest of these three estimates, three standard
    errors wider at each end. All three come from the same replicas, so that the interval is valid
    only if these have missed no part of the space. The status is FEW_TRIPS where the draws of a row
    come from few tours of replicas (see `tours` below), NOT_MIXED where the ladders disagree on log
    Z, CONTRADICTED where the stepping stones from below lie above the ones from above, and
    FEW_WEIGHTS where they lie far below.

    `stats` holds the statistics of MCMC but sweeps_apart, and these:

    - betas (rungs,) and swap_rejection (rungs - 1,). They have a first axis of rows if a large
      question is answered in parts, because each part has its own ladder, and NaN after the rungs
      of shorter ladders.
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

    rungs: Betas | None = None
    kernel: Kernel = Gibbs()
    chains: int = 4
    warmup: int = 500
    draws: int | None = None
    thin: int = 1
    rhat_limit: float = 1.05
    seconds: float = 8.0
    moves: Houdayer | None = None

    def __post_init__(self) -> None:
        check_whole(self, "chains", "thin")
        check_whole(self, "warmup", least=0)
        check_limit(self, "rhat_limit", "seconds")
        check_kernel(self.kernel)
        if self.draws is not None:
            check_whole(self, "draws")
        if self.rungs is not None:
            check_betas(self, "rungs")
        if self.moves is not None:
            check_moves(self.moves)
            if self.chains % 2:
                raise PgmError(
                    f"ParallelTempering: moves are those of pairs of ladders, and chains is "
                    f"{self.chains}: take an even number"
                )

    def scheme(self, target: Target, want: tuple[str, ...]) -> ChainPlan:
        """Return the work and memory of all ladders; the longest time is the one of all rounds."""
        if why := ends_elsewhere(target):
            return Plan(refusal=why)
        course = self._course(target)
        if course.rungs < 2 and "log_z" in want:
            return Plan(refusal="one temperature gives no log_z")
        if self.moves is not None and (why := self.moves.refusal(target)):
            return Plan(refusal=why)
        draws, most = self._limits(course, target.rows, course.rungs)
        # Fewer rungs may be left after the warm-up, and more draws then fit into the same time.
        left = MIN_RUNGS if self.rungs is None else course.rungs
        kept = self._limits(course, target.rows, left)[1]
        first, last, largest = (self._scheme(target, want, course, n) for n in (draws, most, kept))
        return replace(first, most_seconds=last.seconds, bytes=largest.bytes, why=last.why)

    def _scheme(
        self, target: Target, want: tuple[str, ...], course: _Course, draws: int
    ) -> ChainPlan:
        """Return the plan of one round of draws, or of several with as many together."""
        tops, sweeps = target.rows * self.chains, self.warmup + draws * self.thin
        n, density = tops * course.rungs, engine(target, self.kernel).density
        values = engine(target, self.kernel).values
        moving = course.step.of(n, sweeps) + density.of(n, draws)
        moving += values.of(tops, draws)
        more = 8.0 * (draws + STEPPING_STONE_NUMBERS_PER_RUNG * course.rungs)
        how = f"{self.chains} ladders of {course.rungs} chains, {sweeps} sweeps"
        return self.scheme_of(
            target,
            want,
            how + (", " + course.cover.described if course.cover else ""),
            sweeps * n * sweep_work(target),
            moving,
            draws=draws,
            replicas=course.rungs,
            more=more * target.rows * self.chains,
            bounded=True,
        )

    def faster(
        self, target: Target, want: tuple[str, ...], seconds: float
    ) -> ParallelTempering | None:
        """Return the method with less time for its rounds, or one short round, or None."""
        if self.draws is not None:
            return None
        # Some of the time is left for the judgement of draws.
        shorter = [replace(self, seconds=share * seconds) for share in (0.8, 0.4, 0.0)]
        shorter.append(replace(self, draws=FEWEST_DRAWS // 2))
        fits = (one for one in shorter if one.scheme(target, want).most_seconds <= seconds)
        return next(fits, None)

    def _course(self, target: Target) -> _Course:
        """Return how the ladders start."""
        # Moves of pairs of ladders are about whole states.
        cover = None
        if self.moves is None:
            cover = small_cover(target, target.rows * self.chains * MIN_FIRST_RUNGS)
        units = sum(map(len, cover.units.values())) if cover else _free_units(target)
        rungs = max(math.ceil(RUNGS_PER_ROOT_OF_UNITS * math.sqrt(units)), MIN_FIRST_RUNGS)
        rungs = rungs if self.rungs is None else count_of(self.rungs)
        e, swapping = engine(target, self.kernel), Price(80 * US, 60 * NS)
        step = (sweep_price(cover) if cover else e.sweep + e.density) + swapping
        if self.moves is not None:
            step += self.moves.price(target) + e.density
        return _Course(cover, rungs, step)

    def _limits(self, course: _Course, rows: int, rungs: int) -> tuple[int, int]:
        """Return the draws of the first round, and the most draws of all rounds together."""
        if self.draws is not None:
            return self.draws, self.draws
        each = course.step.of(rows * self.chains * rungs, self.thin)
        first = min(max(int(FIRST_SECONDS / each), FEWEST_DRAWS), MOST_FIRST_DRAWS)
        return first, max(int(min(self.seconds / each, MOST_DRAWS)) - self.warmup, first)

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Adapt the ladders, then collect the states at beta = 1 after every `thin` steps."""
        target, generator = question.target, seeded(rng)
        course = self._course(target)
        ladders, modes = self._warmed(target, course, generator), question.basis.modes(target)
        draws, left = self._limits(course, target.rows, len(ladders.betas))
        while True:
            result = replace(self, draws=draws)._round(question, ladders, modes)
            left -= draws
            if result.status.good or left < LEAST_GROWTH * draws:
                return result
            more = draws * self._times(result)
            if more > HOPE * left:
                return result
            draws = min(math.ceil(more), left)
            ladders.adapt()

    def _times(self, result: Result) -> float:
        """Return how many times as many draws a good status probably needs, 2 at least."""
        stats, tours = result.stats, result.stats["tours"].min()
        least = MIN_TOURS_FOR_LOG_Z if "log_z" in result.answers else MIN_TOURS
        each = [stats["energy_ess"], *stats["ess"].values()] if "ess" in stats else []
        ess = [v[np.isfinite(v)] for v in each if np.isfinite(v).any()]
        few = min((np.quantile(v, MAX_SHARE_BEYOND_LIMIT) for v in ess), default=np.inf)
        return float(max(MIN_DRAWS_FOR_RHAT / max(few, 1.0), least / max(tours, 1.0), 2.0))

    def _round(self, question: AnyPrepared, ladders: Ladders, modes: Modes | None) -> Result:
        """Return the answer by `draws` draws of each ladder."""
        assert self.draws is not None
        target, want = question.target, question.want
        ladders.forget(self.draws * self.thin)
        together = ladders.together
        chains, count = self.chains // together, self.draws * together
        many = target.take(np.repeat(np.arange(target.rows), chains))
        draws = Draws.none(many, want, chains, count)
        swapped = np.full((count, target.rows, chains), np.nan)
        for t in track(range(self.draws), "sampling"):
            for _ in range(self.thin):
                ladders.step()
            for first in range(together):
                number = t * together + first
                draws.add(number, *ladders.drawn(first))
                swapped[number] = ladders.accepted[:, first::together]
        answers, several = draws.answers(target), len(ladders.betas) > 1
        seconds, tours = question.plan.seconds, ladders.tours() if several else np.inf
        name = type(self).__name__
        stats, _, unmixed = draws.judged(target, self.rhat_limit, seconds, name, self.thin, tours)
        stats |= ladders.stats() | {"swap_accepted": swapped.transpose(2, 0, 1)}
        doubts: Doubts = []
        if several:
            # log Z is estimated even if it is not wanted: a proven bound above the estimate shows
            # that the replicas have missed a phase.
            found = ladders.log_z()
            doubts += _bounds(ladders, found, modes)
        if "log_z" in want:
            answers |= found.answers
            stats["log_z_rhat"] = found.rhat
            doubts += _apart(ladders, found)
        needed = MIN_TOURS_FOR_LOG_Z if "log_z" in answers else MIN_TOURS
        doubts += _hardly_travelled(ladders, needed)
        # The R-hat of log Z is judged like the R-hat of a unit.
        unmixed += self.unmixed(stats, target.structure)
        doubts.append((Status.NOT_MIXED, tuple(dict.fromkeys(unmixed))))
        return replace(question.result(answers, stats, *worst(doubts)), method=self)

    def _warmed(self, target: Target, course: _Course, rng: np.random.Generator) -> Ladders:
        """Return ladders after the warm-up, with their rungs adapted."""
        if self.rungs is None or isinstance(self.rungs, int):
            # A single rung must be at beta = 1.
            betas = np.linspace(1, 0, course.rungs)[::-1].copy()
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
        ladders = Ladders(near, betas, self.chains, self.kernel, rng, course.cover, moves)
        needed = course.rungs
        for length in rounds(self.warmup):
            for _ in track(range(length), "warming up"):
                ladders.step()
            needed = max(math.ceil(RUNGS_PER_BARRIER * ladders.barrier) + 2, MIN_RUNGS)
            ladders.adapt()
        if self.rungs is None and needed < course.rungs:
            return ladders.with_rungs(needed)
        return ladders


@dataclass(frozen=True)
class _Course:
    """How ladders start: the cover of their states, if any, their rungs, the price of a step."""

    cover: Cover | None
    rungs: int
    step: Price


def _free_units(target: Target) -> float:
    """Return the largest number of free units of a row."""
    return float(sum(mask.sum(axis=1) for mask in target.free.values()).max())


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
