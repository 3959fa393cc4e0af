"""Parallel tempering: replicas on a ladder from independent units to the model, which swap places.

With log p_beta(x) = path(x) + beta * power(x) and S = power, one step of a ladder is

    x_k ~ kernel that leaves p_(beta_k) invariant, for each rung k; drawn exactly at beta_0 = 0
    for the pairs k, k + 1 with k even, or in the next step odd:
        log_ratio = (beta_(k+1) - beta_k) (S(x_k) - S(x_(k+1)))
        swap x_k and x_(k+1) with probability min(1, exp(log_ratio))

Even and odd pairs in turn make states travel without turning back (Okabe et al. 2001; Syed et al.
2022). A replica keeps its memory and changes its beta: `at` has the replica on each rung. During
the warm-up the rungs are moved between rounds of doubling length, so that all pairs reject equally
often. Then they are fixed, and the states at beta = 1 are draws.

log Z comes from stepping stones (Xie et al. 2011). For a step d = beta_(k+1) - beta_k,

    log Z_(k+1) - log Z_k = log E_k exp(d S)                                    from below
                          = -log E_(k+1) exp(-d S)                              from above
                          = log E_k exp(d S / 2) - log E_(k+1) exp(-d S / 2)    in the middle

of which the first is low on average, the second high, and the third, the geometric bridge of Meng
and Wong (1996), varies least. The tests compare draws with exact answers, swaps with invariance by
chi-square, and log Z with enumeration.
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
from pgmengine.infer.axes import Axis
from pgmengine.infer.prepared import Prepared, Scheme
from pgmengine.infer.result import Result, Status
from pgmengine.infer.sampling.bounded import below_a_bound
from pgmengine.infer.sampling.collect import OF_CHAINS, OF_DRAWS, Draws, Sampler, kept_bytes
from pgmengine.infer.sampling.schedules import Betas, count_of, ladder
from pgmengine.infer.sampling.trust import BATCHES, SURE, interval, travelled
from pgmengine.protocols import Kernel

# Nats by which the stepping stones of the two directions may differ.
WIDE = 1.0

# Shares of a step that stepping stones take: from the lower rung if positive, else from the upper.
STONES = (1.0, -1.0, 0.5, -0.5)


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

    Notes
    -----
    `log_z_interval` goes from the stepping stones from below to the stepping stones from above,
    three standard errors wider at each end. Both are made of the same replicas, so that it holds if
    these have missed no part of the space. The status is FEW_TRIPS where the replicas of a row
    hardly travelled on their ladders, and FEW_WEIGHTS where the two directions disagree.

    `stats` holds the statistics of MCMC; betas (rungs,) and swap_rejection (rungs - 1,), both with
    an axis of rows in front where parts of a large question have ladders of their own; round_trips
    (rows,); round_trip_rate (rows,), round trips for each sweep and ladder; and swap_accepted
    (chains, draws, rows), the share of accepted swaps before each draw.

    References
    ----------
    Okabe, Kawata, Okamoto and Mikami 2001, "Replica-exchange Monte Carlo method for the
    isobaric-isothermal ensemble". Syed, Bouchard-Cote, Deligiannidis and Doucet 2022,
    "Non-reversible parallel tempering: a scalable highly parallel MCMC scheme". Xie, Lewis, Fan,
    Kuo and Chen 2011, "Improving marginal likelihood estimation for Bayesian phylogenetic model
    selection". Meng and Wong 1996, "Simulating ratios of normalizing constants via a simple
    identity".

    >>> import pgmengine as pgm
    >>> method = pgm.ParallelTempering(rungs=4)
    >>> r = pgm.infer(pgm.rbm(4, 3, rng=0), want=("log_z", "marginals"), method=method, rng=0)
    >>> r.stats["swap_rejection"].shape
    (3,)
    """

    gives = OF_DRAWS | {"log_z", "log_prob"}
    statistics = OF_CHAINS | {
        "betas": (Axis.RUNG,),
        "swap_rejection": (Axis.RUNG,),
        "round_trips": (Axis.ROW,),
        "round_trip_rate": (Axis.ROW,),
        "swap_accepted": (Axis.CHAIN, Axis.DRAW, Axis.ROW),
        "log_prob_error": (Axis.ROW,),
    }
    tempered = True

    rungs: Betas = 12
    kernel: Kernel = Gibbs()
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
        rungs = count_of(self.rungs)
        if rungs < 2 and {"log_z", "log_prob"} & set(want):
            return Scheme(refusal="one temperature gives no log_z")
        twice = "log_prob" in want and not target.structure.normalized
        ladders = self.chains * (1 + twice)
        chains = target.rows * ladders * rungs
        width = sum(layer.width for layer in target.structure.layers.values())
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
        answers = draws.answers(target)
        stats, status, note = draws.judged(target, self.rhat_limit)
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
        """Return ladders after the warm-up, with their rungs adapted."""
        if isinstance(self.rungs, int):
            # A single rung is at beta = 1.
            betas = np.linspace(1, 0, self.rungs)[::-1].copy()
        else:
            betas = ladder(self.rungs, target, self.kernel, rng)
        if len(betas) > 1 and betas[0] != 0.0:
            raise PgmError(
                "ParallelTempering: the rungs must start at 0, where states are drawn exactly, "
                f"not at {betas[0]}"
            )
        ladders = Ladders(target, betas, self.chains, self.kernel, rng)
        for length in rounds(self.warmup):
            for _ in track(range(length), "warming up"):
                ladders.step()
            ladders.adapt()
        ladders.forget(self.draws * self.thin)
        return ladders

    def _without_evidence(self, target: Target, rng: np.random.Generator) -> dict[str, Array]:
        """Return Ladders.log_z of the target with nothing observed."""
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


def rounds(total: int) -> list[int]:
    """Return lengths of rounds that double from about 16 and add up to `total`."""
    out: list[int] = []
    while total > 0:
        half = total if total < 48 else (total + 1) // 2
        out.append(half)
        total -= half
    return out[::-1]


class Ladders:
    """Ladders of replicas for each row of a target.

    Attributes
    ----------
    betas : (rungs,), ascending from 0 to 1.
    at : (rows, ladders, rungs), the number of the replica on each rung.
    chains : the states of all replicas.
    accepted : (rows, ladders), share of the last swaps that were accepted.
    """

    def __init__(
        self, target: Target, betas: Array, ladders: int, kernel: Kernel, rng: np.random.Generator
    ) -> None:
        self.target, self.betas, self.rng, self.sweeps = target, betas, rng, 0
        count = len(betas)
        rows = np.repeat(np.arange(target.rows), ladders * count)
        many = target.take(rows).at(np.tile(betas, target.rows * ladders))
        self.at = np.arange(len(rows)).reshape(target.rows, ladders, count)
        self.chains: Chains = make_chains(many, kernel, many.draw_at_0(rng), rng)
        self.came_from_0 = np.zeros(len(rows), dtype=bool)
        self.accepted = np.zeros(self.at.shape[:2])
        self.forget()

    def forget(self, coming: int = 0) -> None:
        """Start all running sums again, with the sums of log Z over the next `coming` sweeps.

        These are kept in BATCHES parts, for standard errors.
        """
        rows, ladders, count = self.at.shape
        self.sweeps, self.coming = 0, coming
        self.rejected, self.proposed = np.zeros(count - 1), np.zeros(count - 1)
        self.trips = np.zeros(rows)
        self.stones = np.full(
            (len(STONES), min(BATCHES, coming), rows, ladders, count - 1), -np.inf
        )

    def step(self) -> None:
        """Sweep all replicas, then propose to swap the even pairs, or in the next step the odd."""
        power = self.chains.sweep_path()[1][self.at]
        if self.sweeps < self.coming:
            self._add_stones(power)
        self._swap(power, self.sweeps % 2)
        self.sweeps += 1

    def _add_stones(self, power: Array) -> None:
        """Add exp(share * step * S) of the replicas to the sums of log Z."""
        batch, steps = self.sweeps * self.stones.shape[1] // self.coming, np.diff(self.betas)
        for sums, share in zip(self.stones[:, batch], STONES, strict=True):
            rung = power[..., :-1] if share > 0 else power[..., 1:]
            np.logaddexp(sums, share * steps * rung, out=sums)

    def _swap(self, power: Array, parity: int) -> None:
        """Propose to swap the pairs of one parity; the probabilities of all pairs are summed."""
        with np.errstate(invalid="ignore"):
            log_ratio = (self.betas[1:] - self.betas[:-1]) * (power[..., :-1] - power[..., 1:])
        log_ratio[np.isnan(log_ratio)] = 0.0
        accept = np.exp(np.minimum(log_ratio, 0.0))
        self.rejected += (1 - accept).mean(axis=(0, 1))
        self.proposed += 1.0
        lower, upper = self.at[..., parity:-1:2], self.at[..., parity + 1 :: 2]
        swap = self.rng.random(lower.shape) < accept[..., parity::2]
        if swap.size:
            self.accepted = swap.mean(axis=-1)
        lower[...], upper[...] = np.where(swap, upper, lower), np.where(swap, lower, upper)
        self.chains.beta[self.at] = self.betas
        self._count_trips()

    def _count_trips(self) -> None:
        """Count the replicas that arrived at beta = 1 and were at beta = 0 since they left it."""
        self.came_from_0[self.at[..., 0]] = True
        top = self.at[..., -1]
        if len(self.betas) > 1:
            self.trips += self.came_from_0[top].sum(axis=1)
        self.came_from_0[top] = False

    def top(self) -> Array:
        """Return the numbers of the replicas at beta = 1, (rows * ladders,)."""
        return self.at[..., -1].ravel()

    def energy_at_1(self, chains: Array) -> Array:
        """Return minus the log density at beta = 1 of some replicas."""
        path, power = self.chains.path()
        return np.asarray(-(path + power)[chains])

    def adapt(self) -> None:
        """Move the rungs so that all pairs reject equally often (Syed et al. 2022), and forget.

        The cumulative rejection, as a function of beta, is the communication barrier; its inverse
        at even spacing gives the rungs.
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
        """Return log_z, log_z_error and log_z_interval by stepping stones."""
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
        """Return a snapshot of replicas and rungs, without the sums, under names no layer has."""
        return {
            **self.chains.values(),
            "/betas": self.betas,
            "/at": self.at,
            "/sweeps": self.sweeps,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self.chains.place_at(state)
        self.betas, self.at = np.array(state["/betas"]), np.array(state["/at"])
        self.sweeps = int(state["/sweeps"])
        self.chains.beta[self.at] = self.betas

    def stats(self) -> dict[str, Any]:
        """Return statistics of the ladders and of the travels of replicas."""
        sweeps = max(self.sweeps, 1)
        return {
            "betas": self.betas,
            "swap_rejection": self.rejected / np.maximum(self.proposed, 1.0),
            "round_trips": self.trips,
            "round_trip_rate": self.trips / (sweeps * self.at.shape[1]),
        }


def _apart(found: Mapping[str, Array], first: int = 0) -> tuple[str, ...]:
    """Return a warning where the stepping stones of the two directions disagree."""
    gap, error = np.diff(found["log_z_interval"], axis=1)[:, 0], found["log_z_error"]
    allowed = WIDE + 2 * SURE * error
    endless = np.isinf(allowed)
    row = int(np.argmax(np.where(endless, -np.inf, gap - np.where(endless, 0.0, allowed))))
    if gap[row] <= allowed[row]:
        return ()
    return (
        f"stepping stones up and down are {gap[row]:.3g} nats apart in row {first + row}: "
        "use more rungs",
    )


def _stones(log_means: Array) -> tuple[Array, Array]:
    """Return the sum over rungs of log means (rows,), and the shares of the batches in it.

    The log means of each batch and ladder are (batches, rows, ladders, rungs); a share, (rows,
    batches * ladders), is the sum over rungs of mean / total mean: the variation of the sum to
    first order.
    """
    parts = np.moveaxis(log_means, 1, 0)
    parts = parts.reshape(len(parts), -1, parts.shape[3])
    total = log_sum(parts, axis=1) - np.log(parts.shape[1])
    with np.errstate(invalid="ignore"):
        share = np.exp(parts - total[:, None]).sum(axis=2)
    return total.sum(axis=1), share


def _error(share: Array) -> Array:
    """Return the standard error (rows,) of a mean over batches (rows, batches)."""
    many = share.shape[1]
    error = share.std(axis=1, ddof=1) / np.sqrt(many) if many > 1 else np.full(len(share), np.inf)
    return np.asarray(np.nan_to_num(error, nan=np.inf))
