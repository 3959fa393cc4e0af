"""Annealed importance sampling, forward and reverse: log Z from below going up, from above going down.

The two runs check each other only if the reverse one starts from exact draws of the model. These
are to be had where a small cover can be enumerated. Elsewhere the reverse run starts from the
states that the forward run has reached, and both miss a phase that the forward run has missed; the
status is then ONE_SIDED, never OK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import check_whole, seeded
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, RngLike
from pgmengine.engine.chains import refusal, sweep_work
from pgmengine.engine.cost import engine
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.infer.prepared import Method, Prepared, Scheme
from pgmengine.infer.result import Axis, Result, Status
from pgmengine.infer.sampling.annealing import Annealing, Run
from pgmengine.infer.sampling.bounded import below_a_bound
from pgmengine.infer.sampling.schedules import Adaptive, count_of
from pgmengine.infer.sampling.trust import SURE, few, heavy, interval, normal_end


@dataclass(frozen=True)
class AIS(Method):
    """log Z = log Z_0 + log mean exp(w), chains annealed from independent units to the model (Neal
    2001).

    w = sum_t log p_(beta_(t+1))(x_t) - log p_(beta_t)(x_t). The mean of exp(w) is unbiased, so the
    logarithm is low on average. The reverse run anneals model draws down to beta = 0 and is high on
    average (Burda et al. 2015), by more than its error where the model rules states out that are
    possible at beta = 0. This holds if the draws are exact, which they are where a cover of at most
    2^16 states can be enumerated; then the two runs enclose log Z up to their errors, and the
    status is OK. Else they are the states of the forward chains, resampled by their weights and
    swept on: both runs then miss the same phases, the interval holds only if there are none, and
    the status is ONE_SIDED.

    Use it for log Z and log p of models that are too large to enumerate.

    Parameters
    ----------
    chains : for each row of evidence.
    betas : a schedule (Linear, ThreePiece, Adaptive), a number of even steps, or numbers from 0 to
        1.
    kernel : any kernel; the layers that w sums out are drawn by Gibbs sampling all the same.
    reverse : also anneal down, which from exact draws makes the upper end of log_z_interval
        independent of the lower one.
    reference : layer -> natural parameters of the units at beta = 0; base_rates(data) are good
        ones.

    `log_z` is the forward estimate. `log_z_interval` begins three standard errors below it. From
    exact draws it ends three standard errors above the reverse estimate, else three above the
    largest of the reverse estimate, the forward one, and m + s^2 / 2, the log mean of weights whose
    logarithms are normal. Where no chain has found a possible state, log_z is -inf and nothing is
    known: the interval is all numbers. The status is FEW_WEIGHTS where few chains carry the weight,
    where the tail of the weights is heavy, and where the two runs disagree; CONTRADICTED where the
    mean-field lower bound lies above the interval. `stats` holds log_weights (chains, rows),
    log_weight_sd (infinite where a chain weighs nothing), ess, pareto_shape, and reverse_log_z,
    reverse_error, reverse_ess, reverse_pareto_shape and reverse_exact, whether it started from
    exact draws, each (rows,).

    >>> import pgmengine as pgm
    >>> model = pgm.rbm(4, 3, rng=0)
    >>> r = pgm.infer(model, want=("log_z",), method=pgm.AIS(chains=50, betas=pgm.Linear(50)), rng=0)
    >>> bool(abs(r.log_z[0] - pgm.infer(model, want=("log_z",)).log_z[0]) < 0.1)
    True
    """

    gives = frozenset({"log_z", "log_prob"})
    source = "importance weights give"
    statistics = {
        "log_weights": (Axis.CHAIN, Axis.ROW),
        "ess": (Axis.ROW,),
        "log_weight_sd": (Axis.ROW,),
        "pareto_shape": (Axis.ROW,),
        "log_prob_error": (Axis.ROW,),
        "reverse_log_z": (Axis.ROW,),
        "reverse_error": (Axis.ROW,),
        "reverse_ess": (Axis.ROW,),
        "reverse_pareto_shape": (Axis.ROW,),
        "reverse_exact": (Axis.ROW,),
    }
    groups_chains = True

    chains: int = 100
    betas: Any = Adaptive(1000)
    kernel: Any = Gibbs()
    reverse: bool = True
    reference: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_whole(self, "chains")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Scheme:
        """Return the work of annealing up and, with reverse, down again."""
        runs, steps = [target], count_of(self.betas)
        if "log_prob" in want and not target.structure.normalized:
            runs.append(target.nothing_observed)
        if why := next(filter(None, map(refusal, runs)), ""):
            return Scheme(refusal=why)
        chains = [run.rows * self.chains for run in runs]
        passes = 2.25 if self.reverse else 1.0
        width = sum(layer.width for layer in target.structure.layers.values())
        prices = [
            engine(run, self.kernel).anneal(n, steps) for run, n in zip(runs, chains, strict=True)
        ]
        how = f"{self.chains} chains through {steps} temperatures"
        if self.reverse:
            exact = all(Annealing(self, run).exact_draws.plan.accepted for run in runs)
            how += ", up and down" + " from exact draws" * exact
        return Scheme(
            how,
            sum(chains) * steps * sweep_work(target) * passes,
            16.0 * sum(chains) * width,
            passes * sum(prices),
        )

    def answer(
        self, question: Prepared, rng: RngLike, state: Any = None, executor: Executor | None = None
    ) -> Result:
        """Anneal up and down, with the evidence and, for log_prob, without."""
        target, generator, work = question.target, seeded(rng), question.plan.work
        up, down = runs = Annealing(self, target).runs(generator, work, executor)
        ends = _interval(up, down)
        answers = {"log_z": up.log_z, "log_z_error": up.error, "log_z_interval": ends}
        stats, both = _statistics(up, down), [runs]
        note = _notes(up, down, self.chains, target.first)
        if "log_prob" in question.want:
            log_prob, error = up.log_z, up.error
            if not target.structure.normalized:
                whole = target.nothing_observed
                without = Annealing(self, whole).runs(generator, work, executor)
                log_prob = log_prob - without[0].log_z
                error = np.hypot(error, without[0].error)
                both.append(without)
                first = target.first if whole.rows == target.rows else 0
                lines = _notes(*without, self.chains, first)
                note += tuple(f"without evidence, {line}" for line in lines)
            answers["log_prob"], stats["log_prob_error"] = log_prob, error
        status = Status.FEW_WEIGHTS if note else Status.OK if _two_sided(both) else Status.ONE_SIDED
        if low := below_a_bound(target, ends):
            status, note = Status.CONTRADICTED, low + note
        return question.result(answers, stats, status, note or _start(status))


def _statistics(up: Run, down: Run | None) -> dict[str, Array]:
    """Return the statistics of both runs."""
    with np.errstate(invalid="ignore"):
        spread = np.nan_to_num(up.weights.std(axis=1), nan=np.inf)
    stats = {
        "log_weights": up.weights.T,
        "ess": up.ess,
        "log_weight_sd": spread,
        "pareto_shape": up.shape,
    }
    if down is not None:
        stats |= {
            "reverse_log_z": down.log_z,
            "reverse_error": down.error,
            "reverse_ess": down.ess,
            "reverse_pareto_shape": down.shape,
            "reverse_exact": down.exact,
        }
    return stats


def _two_sided(runs: Sequence[tuple[Run, Run | None]]) -> bool:
    """Whether all reverse runs started from exact draws, or there was nothing to draw."""
    return all(not up.error.any() or (down is not None and down.exact.all()) for up, down in runs)


def _start(status: Status) -> tuple[str, ...]:
    """Words on the start of the reverse run, where it is none of its own."""
    return (
        ()
        if status is Status.OK
        else (
            "the reverse run did not start from exact draws: the interval holds if the "
            "forward run has missed no part of the space",
        )
    )


def _interval(up: Run, down: Run | None) -> Array:
    """The interval (rows, 2) of both runs; without exact draws it also ends above what normal log
    weights would give.
    """
    high = down or up
    ends = interval(up.log_z, up.error, high.log_z, high.error)
    with np.errstate(invalid="ignore"):
        at_0 = up.log_z - (log_sum(up.weights, axis=1) - np.log(up.weights.shape[1]))
        alone = np.fmax(up.log_z + SURE * up.error, at_0 + normal_end(up.weights))
    sure = np.zeros(len(ends), dtype=bool) if down is None else down.exact
    ends[:, 1] = np.where(sure | (up.error == 0), ends[:, 1], np.fmax(ends[:, 1], alone))
    return ends


def _notes(up: Run, down: Run | None, chains: int, first: int = 0) -> tuple[str, ...]:
    out = []
    for name, run in (("forward", up), ("reverse", down)):
        if run is not None and chains > 1 and few(run.ess, chains):
            out.append(
                f"{name} annealing: an effective {run.ess.min():.3g} of {chains} chains carry the weight of row "
                f"{first + int(run.ess.argmin())}"
            )
        if run is not None and len(rows := heavy(run.shape)):
            out.append(
                f"{name} annealing: the weights of row {first + rows[0]} have a heavy tail, of Pareto shape "
                f"{run.shape[rows[0]]:.2g}: the largest of them is yet to come"
            )
    if down is not None:
        gap = up.log_z - down.log_z
        wide = 5.0 * np.hypot(up.error, down.error) + 1e-3 * (1.0 + np.abs(up.log_z))
        if np.any(gap > wide) or np.any(-gap > np.maximum(wide, 1.0)):
            row = int(np.abs(gap).argmax())
            out.append(
                f"forward and reverse annealing disagree by {abs(gap[row]):.3g} nats in row {first + row}"
            )
    return tuple(out)
