"""Log Z by chains of cluster moves at a ladder of temperatures.

The free units agree or not along edges (agreements.py). The edges are divided into those within
blocks, which a junction tree sums together with the fields, and those between blocks
(summed_part.py). The log density is c + fields + couplings within blocks + beta S(s), where

    S(s) = sum of J_ab (2 [s_a = s_b] - 1) over the edges between blocks,

from the separate blocks at beta = 0, whose Z_0 is exact, to the model at beta = 1. Each rung of a
ladder has a chain of cluster moves (moves.py) of its own: replicas need not swap places, because
clusters mix well at every temperature. Stepping stones (ladders/stepping_stones.py) add up

    log Z_(k+1) - log Z_k = log E_k exp(d S / 2) - log E_(k+1) exp(-d S / 2)

with d = beta_(k+1) - beta_k. Rungs are STEP standard deviations of S apart, as measured at even
rungs during the warm-up. Half of the ladders begin at random states, and half at a state that
satisfies all couplings; the R-hat of log Z compares them.

The error is examined after an eighth, a quarter and a half of all moves, and the run ends where it
is small enough, and where ladders agree. If the sum of the standard deviations of S is L, n moves
of each of K rungs have an error of about L (2 tau / (n K))^0.5.

References: the exact log Z of the torus (Kaufman 1949), and transfer matrices, in the tests.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from pgmengine.base.checks import check_limit, check_number, check_truth, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.division import check_divided
from pgmengine.base.work.executors import spawn
from pgmengine.base.work.progress import track
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import BATCHES_PER_CHAIN, Doubts, log_z_apart, worst
from pgmengine.infer.question.prepared import AnyPrepared, Method
from pgmengine.infer.results.answer_bytes import peak_bytes
from pgmengine.infer.results.axes import by_row
from pgmengine.infer.results.result import Plan, Result, Status
from pgmengine.infer.sampling.clusters.moves import Part, allowed_parts, cluster_parts
from pgmengine.infer.sampling.clusters.summed_part import SummedPart, summed_part
from pgmengine.infer.sampling.clusters.swendsen_wang import CALL_SECONDS, EDGE_SECONDS, UNIT_SECONDS
from pgmengine.infer.sampling.ladders.stepping_stones import FromSteppingStones, SteppingStones

# Rungs at which the standard deviation of S is measured.
RUNGS_OF_PILOT = 8

# The distance of two rungs, in standard deviations of S.
STEP = 1.0

# The smallest standard deviation that counts, as a share of the largest one.
LEAST_SHARE = 0.02

# The sum of the standard deviations over beta, as a multiple of the norm of the J between blocks,
# for plans. Square lattices have 0.9 to 1.2.
LENGTH_OF_NORM = 1.2

# The first examination of the error is after this share of all moves, the next ones each after
# twice as many. There are none before the first batches are full.
FIRST_SHARE = 1 / 8

# Twice the autocorrelation time of S in moves, for plans.
TWICE_TAU = 1.0


@dataclass(frozen=True)
class ClusterLadder(Method["tuple[SummedPart, ...]"]):
    """Log Z by cluster moves at a ladder of temperatures.

    Use it for log Z of lattices and other graphs of units with two states whose couplings are not
    frustrated, and of Potts models (see `SwendsenWang`), at any temperature, where they are too
    large for exact answers. `Auto` takes it there. Blocks of neighbours are summed exactly, and the
    ladder joins them.

    Parameters
    ----------
    chains : number of ladders for each row of evidence.
    warmup : moves that are dropped, in each of two rounds; the first one places the rungs.
    draws : largest number of moves after which the states count.
    tolerance : standard error of log Z in nats that is small enough: the run then ends after an
        eighth, a quarter or a half of `draws`. With 0, all moves are made.
    rhat_limit : largest R-hat of log Z of ladders that agree.
    frustrated : whether to answer about frustrated couplings as well, as in `SwendsenWang`.

    Notes
    -----
    `log_z` is the estimate half way between the stepping stones from below and from above.
    `log_z_interval` goes from the lowest to the highest of these three estimates, three standard
    errors wider at each end. The status is NOT_MIXED where ladders from random and from ordered
    starts disagree, CONTRADICTED where the stepping stones from below lie above the ones from
    above, and FEW_WEIGHTS where they lie far below.

    `stats` holds log_z_rhat (rows,), the R-hat of log Z, and rungs (rows,), the number of
    temperatures.

    References
    ----------
    Swendsen and Wang (1987); Meng and Wong (1996); Xie et al. (2011).

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> s = b.layer("s", pgm.Spin(), (24, 24))
    >>> after = (np.arange(24) + 1) % 24
    >>> b.couple(s, s[after], 0.5)
    >>> b.couple(s, s[:, after], 0.5)
    >>> r = pgm.infer(b.build(), want=("log_z",), method=pgm.ClusterLadder(), rng=0)
    >>> r.status.name
    'OK'
    >>> bool(abs(r.log_z[0] - 591.5) < 1)
    True
    """

    gives = frozenset({"log_z", "log_prob"})
    subtracts = True
    source = "ladders of cluster moves give"
    statistics = by_row("log_z_rhat", "rungs", "log_prob_error")

    chains: int = 4
    warmup: int = 50
    draws: int = 1000
    rhat_limit: float = 1.05
    frustrated: bool = False
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        check_whole(self, "chains", "draws")
        check_whole(self, "warmup", least=1)
        check_limit(self, "rhat_limit")
        check_number(self, "tolerance")
        check_truth(self, "frustrated")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[tuple[SummedPart, ...]]:
        """Return the work of all ladders; refuse couplings that are frustrated."""
        try:
            parts = allowed_parts(target, self.frustrated)
        except PgmError as error:
            return Plan(refusal=str(error))
        blocks = tuple(summed_part(part) for part in parts)
        rungs, seconds, longest, work, most = 0, 0.0, 0.0, 0.0, 0.0
        for part, summed in zip(parts, blocks, strict=True):
            each = len(part.edges) + len(part.h)
            own = max(RUNGS_OF_PILOT, _planned_rungs(part, summed))
            lanes, rows = self.chains * own, len(part.rows)
            once = CALL_SECONDS + lanes * (
                EDGE_SECONDS * len(part.edges) + UNIT_SECONDS * len(part.h)
            )
            enough = self._enough(own)
            seconds += rows * ((2 * self.warmup + enough) * once + summed.seconds)
            longest += rows * ((2 * self.warmup + self.draws) * once + summed.seconds)
            work += float(rows * (2 * self.warmup + enough) * lanes * each)
            # Chances, signs and uniforms of all edges, and states in two forms.
            bytes_of_tree = 16.0 * summed.entries
            most, rungs = max(most, 8.0 * lanes * 5 * each + bytes_of_tree), max(rungs, own)
        how = (
            f"{self.chains} ladders of about {rungs} chains that join blocks, up to "
            f"{2 * self.warmup + self.draws} moves of clusters"
        )
        memory = peak_bytes(target, want, 0, work, 0.0, fixed=most)
        return Plan(
            why=how, work=work, bytes=memory, seconds=seconds, most_seconds=longest, basis=blocks
        )

    def _enough(self, rungs: int) -> int:
        """Return about the number of moves after which the error is small enough."""
        needed = np.inf
        if self.tolerance:
            needed = TWICE_TAU * (rungs * STEP / self.tolerance) ** 2 / (self.chains * rungs)
        enough = self._first
        while enough < min(needed, self.draws):
            enough *= 2
        return min(enough, self.draws)

    @property
    def _first(self) -> int:
        """The number of moves after which the error is first examined."""
        first = int(np.ceil(FIRST_SHARE * self.draws))
        return first if first >= BATCHES_PER_CHAIN else self.draws

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Move the chains of all rungs, and add up log Z of all rows."""
        target, generator = question.target, seeded(rng)
        rows, found, rungs = list[Array](), list[FromSteppingStones](), list[int]()
        for part, summed in zip(cluster_parts(target), question.plan.basis, strict=True):
            for lane, own in enumerate(spawn(generator, len(part.rows))):
                ladder = _Ladder(part.lane(lane), summed, self, own)
                rows.append(part.rows[[lane]])
                found.append(ladder.estimate())
                rungs.append(len(ladder.betas))
        check_divided(rows, target.rows, "ladders of clusters")
        order = np.argsort(np.concatenate(rows))
        whole = FromSteppingStones(
            *(
                np.concatenate([getattr(one, name) for one in found])[order]
                for name in ("log_z", "error", "interval", "rhat", "gap", "gap_error")
            )
        )
        numbers = target.row_numbers
        doubts: Doubts = [
            (Status.CONTRADICTED, whole.crossed(numbers)),
            (Status.FEW_WEIGHTS, whole.apart(numbers)),
            (Status.NOT_MIXED, log_z_apart(whole.rhat, self.rhat_limit)),
        ]
        stats = {"log_z_rhat": whole.rhat, "rungs": np.array(rungs, dtype=np.float64)[order]}
        return question.result(whole.answers, stats, *worst(doubts))


class _Ladder:
    """The chains of all rungs of some ladders, for one row of evidence."""

    def __init__(
        self, part: Part, summed: SummedPart, settings: ClusterLadder, rng: np.random.Generator
    ) -> None:
        self.part, self.summed, self.settings, self.rng = part, summed, settings, rng
        self._put_at(np.linspace(0.0, 1.0, RUNGS_OF_PILOT))
        shape = settings.chains, len(part.h)
        random = rng.integers(part.states, size=shape)
        first = np.where(np.arange(shape[0])[:, None] % 2, part.satisfied, random)
        # The states of the chains, (ladders, rungs, units).
        self.state = np.repeat(first[:, None], RUNGS_OF_PILOT, axis=1).astype(np.uint8)

    def estimate(self) -> FromSteppingStones:
        """Return log Z by the states after each of the last moves."""
        at_0, set_by = np.array([self.summed.log_z(self.part)]), self.settings
        if not self.summed.cut.any():
            return _known(at_0)
        warmup = range(set_by.warmup)
        self._place_rungs(np.stack([self._moved() for _ in track(warmup, "warming up")]))
        for _ in track(warmup, "warming up"):
            self._moved()
        stones = SteppingStones(self.betas, 1, set_by.chains, set_by._first)
        for done in track(range(1, set_by.draws + 1), "moving clusters"):
            stones.add(self._moved()[None])
            if done < stones.coming or done == set_by.draws:
                continue
            if self._good(stones.estimate(at_0)):
                break
            stones.go_on()
        return stones.estimate(at_0)

    def _good(self, found: FromSteppingStones) -> bool:
        """Return whether the error is small enough, and ladders from other starts agree."""
        apart = log_z_apart(found.rhat, self.settings.rhat_limit)
        return bool(found.error[0] <= self.settings.tolerance and not apart)

    def _put_at(self, betas: Array) -> None:
        """Put the rungs at some temperatures; `tempered` has the units of all chains there."""
        lanes = np.tile(betas, self.settings.chains)
        self.betas, self.tempered = betas, self.part.tempered(lanes, self.summed.cut)

    def _moved(self) -> Array:
        """Move the clusters of all chains, and return S (ladders, rungs)."""
        lanes, at = self.settings.chains * len(self.betas), self.tempered
        uniform = self.rng.random((lanes, len(at.edges) + len(at.h)))
        state = at.moved(self.state.reshape(lanes, -1), uniform)
        self.state = state.reshape(self.state.shape)
        return self.part.coupled(state, self.summed.cut).reshape(self.settings.chains, -1)

    def _place_rungs(self, power: Array) -> None:
        """Place the rungs at even distances, given S (moves, ladders, even rungs) of the pilot.

        The first half of the moves, in which the chains forget where they began, does not count.
        """
        spread = power[len(power) // 2 :].std(axis=(0, 1))
        spread = np.maximum(spread, max(LEAST_SHARE * spread.max(), 1e-12))
        steps = np.diff(self.betas) * (spread[1:] + spread[:-1]) / 2.0
        length = np.concatenate([[0.0], np.cumsum(steps)])
        count = 1 + int(np.ceil(length[-1] / STEP))
        betas = np.interp(np.linspace(0.0, length[-1], count + 1), length, self.betas)
        nearest = np.abs(betas[:, None] - self.betas).argmin(axis=1)
        self.state = self.state[:, nearest]
        self._put_at(betas)


def _planned_rungs(part: Part, summed: SummedPart) -> int:
    """Return about the number of rungs of the row with the largest couplings between blocks."""
    norm = np.sqrt((part.J[summed.cut] ** 2).sum(axis=0).max(initial=0.0))
    return 2 + int(np.ceil(LENGTH_OF_NORM * norm / STEP))


def _known(log_z: Array) -> FromSteppingStones:
    """Return log Z (1,) of a row whose blocks are not coupled."""
    zero = np.zeros(1)
    return FromSteppingStones(log_z, zero, np.stack([log_z, log_z], axis=1), zero + 1.0, zero, zero)
