"""Log Z by chains of cluster moves at a ladder of temperatures.

The free units are spins (exact/spins.py) with the log density c + beta S(s), where

    S(s) = sum_ab J_ab s_a s_b + sum_a h_a s_a,

from n independent fair spins at beta = 0, Z_0 = 2^n, to the model at beta = 1. Each rung of a
ladder has a chain of cluster moves (moves.py) of its own: replicas need not swap places, because
clusters mix well at every temperature. Stepping stones (ladders/stepping_stones.py) add up

    log Z_(k+1) - log Z_k = log E_k exp(d S / 2) - log E_(k+1) exp(-d S / 2)

with d = beta_(k+1) - beta_k.
Rungs are STEP standard deviations of S apart, as measured at even rungs during the warm-up. Half of
the ladders begin at random states, and half at the states that satisfy all couplings; the R-hat of
log Z compares them.

Reference: the exact log Z of the torus (Kaufman 1949), in the tests.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from pgmengine.base.checks import check_limit, check_truth, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.division import check_divided
from pgmengine.base.work.executors import spawn
from pgmengine.base.work.progress import track
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import Doubts, log_z_apart, worst
from pgmengine.infer.question.prepared import AnyPrepared, Method
from pgmengine.infer.results.answer_bytes import peak_bytes
from pgmengine.infer.results.axes import by_row
from pgmengine.infer.results.result import Plan, Result, Status
from pgmengine.infer.sampling.clusters.moves import Part, allowed_parts, cluster_parts
from pgmengine.infer.sampling.clusters.swendsen_wang import CALL_SECONDS, EDGE_SECONDS, UNIT_SECONDS
from pgmengine.infer.sampling.ladders.stepping_stones import FromSteppingStones, SteppingStones

# Rungs at which the standard deviation of S is measured.
RUNGS_OF_PILOT = 32

# The distance of two rungs, in standard deviations of S.
STEP = 1.0

# The smallest standard deviation that counts, as a share of the largest one.
LEAST_SHARE = 0.02

# The sum of the standard deviations over beta, as a multiple of the norm of all J and h, for plans.
# Square lattices have 0.9 to 1.2.
LENGTH_OF_NORM = 1.2


@dataclass(frozen=True)
class ClusterLadder(Method[None]):
    """Log Z by cluster moves at a ladder of temperatures.

    Use it for log Z of lattices and other graphs of units with two states whose couplings are not
    frustrated (see `SwendsenWang`), at any temperature, where they are too large for exact answers.
    `Auto` takes it there.

    Parameters
    ----------
    chains : number of ladders for each row of evidence.
    warmup : moves that are dropped, in each of two rounds; the first one places the rungs.
    draws : moves after which the states count.
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
    warmup: int = 100
    draws: int = 1000
    rhat_limit: float = 1.05
    frustrated: bool = False

    def __post_init__(self) -> None:
        check_whole(self, "chains", "draws")
        check_whole(self, "warmup", least=1)
        check_limit(self, "rhat_limit")
        check_truth(self, "frustrated")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[None]:
        """Return the work of all ladders; refuse couplings that are frustrated."""
        rungs, seconds, work, most = 0, 0.0, 0.0, 0.0
        try:
            parts = allowed_parts(target, self.frustrated)
        except PgmError as error:
            return Plan(refusal=str(error))
        for part in parts:
            each = len(part.edges) + len(part.h)
            own = max(RUNGS_OF_PILOT, _planned_rungs(part))
            moves, lanes = 2 * self.warmup + self.draws, self.chains * own
            once = CALL_SECONDS + lanes * (
                2 * EDGE_SECONDS * len(part.edges) + UNIT_SECONDS * len(part.h)
            )
            seconds += len(part.rows) * moves * once
            work += float(len(part.rows) * moves * lanes * each)
            # Chances, signs and uniforms of all edges, and states in two forms.
            most, rungs = max(most, 8.0 * lanes * 5 * each), max(rungs, own)
        how = (
            f"{self.chains} ladders of about {rungs} chains, {2 * self.warmup + self.draws} moves "
            "of clusters"
        )
        memory = peak_bytes(target, want, 0, work, 0.0, fixed=most)
        return Plan(why=how, work=work, bytes=memory, seconds=seconds)

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Move the chains of all rungs, and add up log Z of all rows."""
        target, generator = question.target, seeded(rng)
        rows, found, rungs = list[Array](), list[FromSteppingStones](), list[int]()
        for part in cluster_parts(target):
            for lane, own in enumerate(spawn(generator, len(part.rows))):
                ladder = _Ladder(part.lane(lane), self.chains, own)
                rows.append(part.rows[[lane]])
                found.append(ladder.estimate(self.warmup, self.draws))
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

    def __init__(self, part: Part, chains: int, rng: np.random.Generator) -> None:
        self.part, self.rng, self.chains = part, rng, chains
        self._put_at(np.linspace(0.0, 1.0, RUNGS_OF_PILOT))
        units = len(part.h)
        ordered = np.broadcast_to(part.satisfied, (chains, units))
        random = rng.random((chains, units)) < 0.5
        first = np.where(np.arange(chains)[:, None] % 2, ordered, random)
        # The states of the chains, (ladders, rungs, units).
        self.up = np.repeat(first[:, None], RUNGS_OF_PILOT, axis=1)

    def estimate(self, warmup: int, draws: int) -> FromSteppingStones:
        """Return log Z by the states after each of the last moves."""
        part = self.part
        at_0 = part.constant + len(part.h) * np.log(2.0)
        if not len(part.h):
            return _known(at_0)
        self._place_rungs(np.stack([self._moved() for _ in track(range(warmup), "warming up")]))
        for _ in track(range(warmup), "warming up"):
            self._moved()
        stones = SteppingStones(self.betas, 1, self.chains, draws)
        for _ in track(range(draws), "moving clusters"):
            stones.add(self._moved()[None])
        return stones.estimate(at_0)

    def _put_at(self, betas: Array) -> None:
        """Put the rungs at some temperatures; `tempered` has the spins of all chains there."""
        self.betas, self.tempered = betas, self.part.tempered(np.tile(betas, self.chains))

    def _moved(self) -> Array:
        """Move the clusters of all chains, and return S (ladders, rungs)."""
        lanes, at = self.chains * len(self.betas), self.tempered
        uniform = self.rng.random((lanes, len(at.edges) + len(at.h)))
        up = at.moved(self.up.reshape(lanes, -1), uniform)
        self.up = up.reshape(self.up.shape)
        return self.part.power(up).reshape(self.chains, -1)

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
        self.up = self.up[:, nearest]
        self._put_at(betas)


def _planned_rungs(part: Part) -> int:
    """Return about the number of rungs of the row with the largest couplings and fields."""
    squares = ((x**2).sum(axis=0).max(initial=0.0) for x in (part.J, part.h))
    norm = np.sqrt(sum(squares))
    return 2 + int(np.ceil(LENGTH_OF_NORM * norm / STEP))


def _known(log_z: Array) -> FromSteppingStones:
    """Return log Z (1,) of a row without free units."""
    zero = np.zeros(1)
    return FromSteppingStones(log_z, zero, np.stack([log_z, log_z], axis=1), zero + 1.0, zero, zero)
