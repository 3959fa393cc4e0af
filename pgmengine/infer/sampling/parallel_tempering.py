"""Parallel tempering: draws and log Z by ladders of replicas, from independent units to the model.

The ladders, their swaps and the stepping stones of log Z are in replicas.py. This module warms them
up in rounds of doubling length, after each of which the rungs are moved, collects the states at
beta = 1, and judges the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.progress import track
from pgmengine.base.types import Array, RngLike
from pgmengine.engine.chains import refusal, sweep_work
from pgmengine.engine.cost import exchanging
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.infer.axes import Axis
from pgmengine.infer.prepared import Prepared, Scheme
from pgmengine.infer.result import Result, Status
from pgmengine.infer.sampling.bounded import below_a_bound
from pgmengine.infer.sampling.collect import OF_CHAINS, OF_DRAWS, Draws, Sampler, kept_bytes
from pgmengine.infer.sampling.replicas import Ladders
from pgmengine.infer.sampling.schedules import Betas, count_of, ladder
from pgmengine.infer.sampling.trust import SURE, travelled
from pgmengine.protocols import Kernel, Snapshot

# Nats by which the stepping stones of the two directions may differ.
WIDE = 1.0


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
        self, question: Prepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
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
