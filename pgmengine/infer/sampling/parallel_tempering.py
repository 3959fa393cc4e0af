"""Parallel tempering: a ladder of chains from independent units to the model that exchange their
places.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import log_sum
from pgmengine.base.progress import track
from pgmengine.base.types import Array, RngLike
from pgmengine.engine.chains import Chains, make_chains, refusal, sweep_work
from pgmengine.engine.cost import exchanging
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.infer.prepared import Method, Prepared, Scheme
from pgmengine.infer.result import Axis, Result, Status
from pgmengine.infer.sampling.bounded import below_a_bound
from pgmengine.infer.sampling.collect import OF_CHAINS, OF_DRAWS, Draws, kept_bytes, unmixed_notes
from pgmengine.infer.sampling.schedules import count_of, ladder
from pgmengine.infer.sampling.trust import BATCHES, SURE, interval, travelled

WIDE = 1.0  # nats between the stepping stones of the two directions that are too many
STONES = (1.0, -1.0, 0.5, -0.5)  # shares of a step: from below if > 0, else from above


@dataclass(frozen=True)
class ParallelTempering(Method):
    """Ladders of `rungs` chains; neighbours swap with probability min(1, exp((b - b') (S' - S))), S
    = d log p / d beta.

    Even pairs and odd pairs take turns (Okabe et al. 2001; Syed et al. 2022). The chain at beta = 0
    is drawn exactly at each sweep. During the warm-up the ladder is adapted between rounds of
    doubling length, so that all pairs reject equally often; then it is fixed and draws are
    collected from the chains at beta = 1.

    log Z = log Z_0 + sum over rungs of log mean exp(step S) (stepping stones, Xie et al. 2011), low
    on average when the mean is over the lower rung and high when it is -log mean exp(-step S) over
    the upper one: log_z_interval goes from one to the other, three standard errors wider at each
    end. Both are made of the same chains, so the interval holds if these have missed no part of the
    space. log_z meets half way, log mean exp(step S / 2) below less log mean exp(-step S / 2) above
    (the geometric bridge, Meng and Wong 1996), which varies least.

    Parameters
    ----------
    rungs : number of temperatures, or a schedule, or numbers from 0 to 1, to start from.
    kernel : any kernel.
    chains : ladders for each row of evidence.
    warmup, draws, thin : sweeps dropped, draws kept, sweeps from one draw to the next; a swap after
        each sweep.

    The status is FEW_TRIPS where the chains of a row hardly travelled on their ladders.

    `stats` holds those of MCMC, and betas (rungs,), swap_rejection (rungs - 1,), both with an axis
    of rows in front where parts of a large question have ladders of their own, round_trips (rows,),
    round_trip_rate (rows,), round trips a sweep and ladder, and swap_accepted (chains, draws,
    rows), the share before each draw.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(4, 3, rng=0), want=("log_z", "marginals"), method=pgm.ParallelTempering(rungs=4), rng=0)
    >>> r.stats["swap_rejection"].shape
    (3,)
    """

    gives = OF_DRAWS | {"log_z", "log_prob"}
    source = "draws give"
    statistics = OF_CHAINS | {
        "betas": (Axis.RUNG,),
        "swap_rejection": (Axis.RUNG,),
        "round_trips": (Axis.ROW,),
        "round_trip_rate": (Axis.ROW,),
        "swap_accepted": (Axis.CHAIN, Axis.DRAW, Axis.ROW),
        "log_prob_error": (Axis.ROW,),
    }
    tempered = True

    rungs: Any = 12
    kernel: Any = Gibbs()
    chains: int = 4
    warmup: int = 500
    draws: int = 4000
    thin: int = 1
    rhat_limit: float = 1.05

    def __post_init__(self) -> None:
        check_whole(
            self, "chains", "draws", "thin", *(["rungs"] if isinstance(self.rungs, int) else [])
        )
        check_whole(self, "warmup", least=0)
        check_limit(self, "rhat_limit")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Scheme:
        """Return the work and memory of all ladders."""
        rungs = self._count()
        if rungs < 2 and {"log_z", "log_prob"} & set(want):
            return Scheme(refusal="one temperature gives no log_z")
        twice = "log_prob" in want and not target.structure.normalized
        ladders = self.chains * (1 + twice)
        chains, width = target.rows * ladders * rungs, _width(target)
        length = (self.warmup, self.draws, self.thin)
        sweeps = self.warmup + self.draws * self.thin
        return Scheme(
            f"{self.chains} ladders of {rungs} chains, {sweeps} sweeps",
            sweeps * chains * sweep_work(target),
            kept_bytes(target, want, self.chains, self.draws) + 16.0 * chains * width,
            exchanging(target, self.kernel, want, ladders, rungs, *length, self.rhat_limit),
            refusal=refusal(target),
        )

    def answer(
        self, question: Prepared, rng: RngLike, state: Any = None, executor: Executor | None = None
    ) -> Result:
        """Adapt the ladders, then collect the states at beta = 1 after every `thin` steps."""
        target, want, generator = question.target, question.want, seeded(rng)
        ladders = self._warmed(target, generator)
        many = target.take(np.repeat(np.arange(target.rows), self.chains))
        draws = Draws(many, want, self.chains, self.draws)
        swapped = np.zeros((self.draws, target.rows, self.chains))
        for t in track(range(self.draws), "sampling"):
            for _ in range(self.thin):
                ladders.step()
            top = ladders.top()
            draws.add(t, ladders.chains.values(top), ladders.energy_at_1(top))
            swapped[t] = ladders.accepted
        answers, (stats, status, note) = (
            draws.answers(target),
            draws.judged(target, self.rhat_limit),
        )
        stats |= ladders.stats() | {"swap_accepted": swapped.transpose(2, 0, 1)}
        if {"log_z", "log_prob"} & set(want):
            found, errors, apart = self._log_z(question, ladders, generator)
            answers, stats, note = answers | found, stats | errors, note + apart
            status = Status.FEW_WEIGHTS if apart else status
            if low := below_a_bound(target, answers["log_z_interval"]):
                note, status = low + note, Status.CONTRADICTED
        if few := travelled(stats["round_trips"], target.first) if len(ladders.betas) > 1 else ():
            note, status = few + note, Status.FEW_TRIPS if status.good else status
        return question.result(answers, stats, status, note)

    def unmixed(self, stats: Mapping[str, Any]) -> tuple[str, ...]:
        """Return a line for everything that has not mixed."""
        return unmixed_notes(stats, self.rhat_limit)

    def _log_z(
        self, question: Prepared, ladders: Ladders, rng: np.random.Generator
    ) -> tuple[dict[str, Array], dict[str, Array], tuple[str, ...]]:
        """Return log_z and log_prob, the error of log_prob, and warnings."""
        target, answers = question.target, ladders.log_z(question.target)
        apart = _apart(answers, target.first)
        if "log_prob" not in question.want:
            return answers, {}, apart
        whole = self._without_evidence(target, rng)
        answers["log_prob"] = answers["log_z"] - whole["log_z"]
        error = np.hypot(answers["log_z_error"], whole["log_z_error"])
        first = target.first if len(whole["log_z"]) == target.rows else 0
        apart += tuple(f"without evidence, {line}" for line in _apart(whole, first))
        return answers, {"log_prob_error": error}, apart

    def _warmed(self, target: Target, rng: np.random.Generator) -> Ladders:
        given = isinstance(self.rungs, int)
        betas = (
            np.linspace(1, 0, self.rungs)[::-1].copy()
            if given
            else ladder(self.rungs, target, self.kernel, rng)
        )
        if len(betas) > 1 and betas[0] != 0.0:
            raise PgmError(
                f"the ladder must start at 0, where states are drawn exactly, not at {betas[0]}"
            )
        ladders = Ladders(target, betas, self.chains, self.kernel, rng)
        for length in rounds(self.warmup):
            for _ in track(range(length), "warming up"):
                ladders.step()
            ladders.adapt()
        ladders.forget(self.draws * self.thin)
        return ladders

    def _without_evidence(self, target: Target, rng: np.random.Generator) -> dict[str, Array]:
        """What Ladders.log_z says of the target with nothing observed."""
        if target.structure.normalized:
            return {
                "log_z": np.zeros(1),
                "log_z_error": np.zeros(1),
                "log_z_interval": np.zeros((1, 2)),
            }
        whole = target.nothing_observed
        ladders = self._warmed(whole, rng)
        for _ in track(range(self.draws * self.thin), "sampling without evidence"):
            ladders.step()
        return ladders.log_z(whole)

    def _count(self) -> int:
        return self.rungs if isinstance(self.rungs, int) else count_of(self.rungs)


def _width(target: Target) -> int:
    return sum(layer.width for layer in target.structure.layers.values())


def rounds(total: int) -> list[int]:
    """Lengths that double from about 16, `total` together."""
    out: list[int] = []
    while total > 0:
        half = total if total < 48 else (total + 1) // 2
        out.append(half)
        total -= half
    return out[::-1]


class Ladders:
    """Ladders of chains for each row of a target; chain numbers are (row, ladder, rung) before any
    swap.
    """

    def __init__(
        self, target: Target, betas: Array, ladders: int, kernel: Any, rng: np.random.Generator
    ) -> None:
        self.target, self.betas, self.rng, self.sweeps = target, betas, rng, 0
        count = len(betas)
        rows = np.repeat(np.arange(target.rows), ladders * count)
        many = target.take(rows).at(np.tile(betas, target.rows * ladders))
        self.at = np.arange(len(rows)).reshape(target.rows, ladders, count)  # chain at each rung
        self.chains: Chains = make_chains(many, kernel, many.draw_at_0(rng), rng)
        self.came_from_0 = np.zeros(len(rows), dtype=bool)
        self.accepted = np.zeros(self.at.shape[:2])  # share of the last swaps that were proposed
        self.forget()

    def forget(self, coming: int = 0) -> None:
        """Start all running sums again; those of log Z are kept over the `coming` sweeps, in
        BATCHES parts.
        """
        rows, ladders, count = self.at.shape
        self.sweeps, self.coming = 0, coming
        self.rejected, self.proposed = np.zeros(count - 1), np.zeros(count - 1)
        self.trips = np.zeros(rows)
        self.stones = np.full(
            (len(STONES), min(BATCHES, coming), rows, ladders, count - 1), -np.inf
        )

    def step(self) -> None:
        """One sweep of all chains, and one round of swaps."""
        power = self.chains.sweep_path()[1][self.at]
        if self.sweeps < self.coming:
            batch, gap = self.sweeps * self.stones.shape[1] // self.coming, np.diff(self.betas)
            for sums, share in zip(self.stones[:, batch], STONES, strict=True):
                np.logaddexp(
                    sums, share * gap * (power[..., :-1] if share > 0 else power[..., 1:]), out=sums
                )
        self._swap(power, self.sweeps % 2)
        self.sweeps += 1

    def _swap(self, power: Array, parity: int) -> None:
        with np.errstate(invalid="ignore"):
            log_ratio = (self.betas[1:] - self.betas[:-1]) * (power[..., :-1] - power[..., 1:])
        log_ratio[np.isnan(log_ratio)] = 0.0
        chance = np.exp(np.minimum(log_ratio, 0.0))
        self.rejected += (1 - chance).mean(axis=(0, 1))
        self.proposed += 1.0
        lower, upper = self.at[..., parity:-1:2], self.at[..., parity + 1 :: 2]
        swap = self.rng.random(lower.shape) < chance[..., parity::2]
        if swap.size:
            self.accepted = swap.mean(axis=-1)
        lower[...], upper[...] = np.where(swap, upper, lower), np.where(swap, lower, upper)
        self.chains.beta[self.at] = self.betas
        self.came_from_0[self.at[..., 0]] = True
        top = self.at[..., -1]
        if len(self.betas) > 1:
            self.trips += self.came_from_0[top].sum(axis=1)
        self.came_from_0[top] = False

    def top(self) -> Array:
        """The chains at beta = 1, (rows * ladders,)."""
        return self.at[..., -1].ravel()

    def energy_at_1(self, chains: Array) -> Array:
        """-log density at beta = 1 of some chains."""
        path, power = self.chains.path()
        return -(path + power)[chains]

    def adapt(self) -> None:
        """Move the rungs so that the cumulative rejection is divided evenly (Syed et al. 2022), and
        forget.
        """
        if len(self.betas) > 2:
            rate = np.maximum(self.rejected / np.maximum(self.proposed, 1.0), 1e-4)
            barrier = np.concatenate(([0.0], np.cumsum(rate)))
            self.betas = np.interp(
                np.linspace(0.0, barrier[-1], len(self.betas)), barrier, self.betas
            )
            self.betas[0], self.betas[-1] = 0.0, 1.0
            self.chains.beta[self.at] = self.betas
        self.forget()

    def log_z(self, target: Target) -> dict[str, Array]:
        """log_z, log_z_error and log_z_interval by stepping stones in both directions."""
        counts = np.bincount(np.arange(self.sweeps) * self.stones.shape[1] // self.coming)
        found = [_stones(sums - np.log(counts)[:, None, None, None]) for sums in self.stones]
        (up, up_share), (down, down_share), (half_up, one), (half_down, two) = found
        ends = interval(up, _error(up_share), -down, _error(down_share))
        at_0 = target.log_z_at_0()
        return {
            "log_z": at_0 + half_up - half_down,
            "log_z_error": _error(one - two),
            "log_z_interval": at_0[:, None] + np.sort(ends, axis=1),
        }

    def state(self) -> dict[str, Any]:
        """All chains and their places, under names that no layer has; without the running sums."""
        return {
            **self.chains.values(),
            "/betas": self.betas,
            "/at": self.at,
            "/sweeps": self.sweeps,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.chains.place_at(state)
        self.betas, self.at, self.sweeps = (
            np.array(state["/betas"]),
            np.array(state["/at"]),
            int(state["/sweeps"]),
        )
        self.chains.beta[self.at] = self.betas

    def stats(self) -> dict[str, Any]:
        """The ladder and how states travel on it."""
        sweeps = max(self.sweeps, 1)
        return {
            "betas": self.betas,
            "swap_rejection": self.rejected / np.maximum(self.proposed, 1.0),
            "round_trips": self.trips,
            "round_trip_rate": self.trips / (sweeps * self.at.shape[1]),
        }


def _apart(found: Mapping[str, Array], first: int = 0) -> tuple[str, ...]:
    """A warning when the two directions disagree."""
    gap, error = np.diff(found["log_z_interval"], axis=1)[:, 0], found["log_z_error"]
    allowed = WIDE + 2 * SURE * error
    row = int(
        np.argmax(
            np.where(np.isinf(allowed), -np.inf, gap - np.where(np.isinf(allowed), 0.0, allowed))
        )
    )
    if gap[row] <= allowed[row]:
        return ()
    return (
        f"stepping stones up and down are {gap[row]:.3g} nats apart in row {first + row}: use more rungs",
    )


def _stones(log_means: Array) -> tuple[Array, Array]:
    """Sum over rungs of the log of the mean of exp(log_means) (batches, rows, ladders, rungs),
    (rows,).

    And what each batch of each ladder adds to it, to first order, (rows, batches * ladders).
    """
    parts = np.moveaxis(log_means, 1, 0)
    parts = parts.reshape(len(parts), -1, parts.shape[3])
    total = log_sum(parts, axis=1) - np.log(parts.shape[1])
    with np.errstate(invalid="ignore"):
        share = np.exp(parts - total[:, None]).sum(axis=2)
    return total.sum(axis=1), share


def _error(share: Array) -> Array:
    """Standard error of a mean over the batches (rows, batches)."""
    many = share.shape[1]
    error = share.std(axis=1, ddof=1) / np.sqrt(many) if many > 1 else np.full(len(share), np.inf)
    return np.nan_to_num(error, nan=np.inf)
