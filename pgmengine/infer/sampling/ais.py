"""Annealed importance sampling, forward and reverse: log Z from below and from above.

    forward: x ~ p_0;  for each rung: log w += the change of log f, then one sweep;
             log Z = log Z_0 + log mean w, low on average (Neal 2001)
    reverse: x ~ p_1;  the same downwards;
             log Z = log Z_0 - log mean w, high on average (Burda et al. 2015)

`annealing` does both runs; this module judges them. The two check each other only if the reverse
run starts from exact draws of the model, which need a small cover that can be enumerated, or a
small junction tree. Elsewhere the reverse run starts from the states that the forward run has
reached, and both miss a phase that the forward run has missed; the status is then ONE_SIDED, never
OK. The tests compare log Z, errors and intervals with exact answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import check_whole, seeded
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, RngLike
from pgmengine.engine.chains import refusal, sweep_work
from pgmengine.engine.cost import engine
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.infer.axes import Axis
from pgmengine.infer.prepared import Method, Prepared, Scheme
from pgmengine.infer.result import Result, Status
from pgmengine.infer.sampling.annealing import AnnealedRun, Annealing
from pgmengine.infer.sampling.bounded import below_a_bound
from pgmengine.infer.sampling.schedules import Adaptive, Betas, count_of
from pgmengine.infer.sampling.trust import SURE, few, heavy, interval, normal_end
from pgmengine.protocols import Kernel, Snapshot

# The warning of a reverse run from the states of the forward run.
START = (
    "the reverse run did not start from exact draws: the interval holds if the forward run has "
    "missed no part of the space"
)


@dataclass(frozen=True)
class AIS(Method):
    """Annealed importance sampling of log Z, from below and from above.

    Use it for log Z and log p of models that are too large to enumerate. From exact draws of the
    model, the forward and the reverse run enclose log Z up to their errors; the reverse run is high
    by more than its error where the model rules out states that are possible at beta = 0.

    Parameters
    ----------
    chains : number of chains for each row of evidence.
    betas : a schedule (Linear, ThreePiece, Adaptive), a number of even steps, or numbers from 0 to
        1.
    kernel : any kernel; the layers that the importance weights sum out are drawn by Gibbs sampling
        all the same.
    reverse : whether to anneal down as well. From exact draws, the upper end of log_z_interval is
        then independent of the lower end.
    reference : layer -> (size[, k]), or variable -> a number or (k,): natural parameters of the
        units at beta = 0; base_rates(data) are good ones.

    Notes
    -----
    `log_z` is the forward estimate. `log_z_interval` begins three standard errors below it. From
    exact draws it ends three standard errors above the reverse estimate. Otherwise it ends three
    standard errors above the largest of three numbers: the reverse estimate, the forward estimate,
    and m + s^2 / 2, the log mean of importance weights whose logarithms are normal. Where no chain
    has found a possible state, log_z is -inf, and the interval is all numbers.

    The reverse run starts from exact draws where a cover of at most 2^16 states can be enumerated,
    or a junction tree has at most 2^20 table entries. Otherwise it starts from the last states of
    the forward run, resampled by their importance weights and swept on. Both runs then miss the
    same phases, the interval holds only if there are none, and the status is ONE_SIDED. The status
    is FEW_WEIGHTS where few chains carry most of the importance weight, where the tail of the
    importance weights is heavy, and where the two runs disagree. It is CONTRADICTED where the
    mean-field lower bound lies above the interval.

    `stats` holds log_weights (chains, rows); log_weight_sd (infinite where a chain has no
    importance weight), ess and pareto_shape, each (rows,); and reverse_log_z, reverse_error,
    reverse_ess, reverse_pareto_shape and reverse_exact, whether the reverse run started from exact
    draws, each (rows,).

    References
    ----------
    Neal 2001, "Annealed importance sampling". Burda, Grosse and Salakhutdinov 2015, "Accurate and
    conservative estimates of MRF log-likelihood using reverse annealing".

    >>> import pgmengine as pgm
    >>> model, method = pgm.rbm(4, 3, rng=0), pgm.AIS(chains=50, betas=pgm.Linear(50))
    >>> r = pgm.infer(model, want=("log_z",), method=method, rng=0)
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
    betas: Betas = Adaptive(1000)
    kernel: Kernel = Gibbs()
    reverse: bool = True
    reference: Mapping[str, ArrayLike] | None = None

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
        self, question: Prepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Anneal up and down, with the evidence and, for log_prob, without."""
        target, generator, work = question.target, seeded(rng), question.plan.work
        up, down = runs = Annealing(self, target).runs(generator, work, executor)
        ends = _interval(up, down)
        answers = {"log_z": up.log_z, "log_z_error": up.error, "log_z_interval": ends}
        stats, both = _statistics(up, down), [runs]
        notes = _notes(up, down, self.chains, target.first)
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
                notes += tuple(f"without evidence, {line}" for line in lines)
            answers["log_prob"], stats["log_prob_error"] = log_prob, error
        if low := below_a_bound(target, ends):
            status, notes = Status.CONTRADICTED, low + notes
        elif notes:
            status = Status.FEW_WEIGHTS
        elif not _two_sided(both):
            status, notes = Status.ONE_SIDED, (START,)
        else:
            status = Status.OK
        return question.result(answers, stats, status, notes)


def _statistics(up: AnnealedRun, down: AnnealedRun | None) -> dict[str, Array]:
    """Return the statistics of both runs."""
    with np.errstate(invalid="ignore"):
        spread = np.nan_to_num(up.log_weights.std(axis=1), nan=np.inf)
    stats = {
        "log_weights": up.log_weights.T,
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


def _two_sided(runs: Sequence[tuple[AnnealedRun, AnnealedRun | None]]) -> bool:
    """Return whether all reverse runs started from exact draws, or there was nothing to draw."""
    return all(not up.error.any() or (down is not None and down.exact.all()) for up, down in runs)


def _interval(up: AnnealedRun, down: AnnealedRun | None) -> Array:
    """Return the interval (rows, 2) of both runs.

    Without exact draws it also ends above the log mean of normal log importance weights. It
    contains the estimate of the forward run, which noise may put above the reverse run's end.
    """
    high = down or up
    ends = interval(up.log_z, up.error, high.log_z, high.error)
    ends[:, 1] = np.fmax(ends[:, 1], up.log_z)
    with np.errstate(invalid="ignore"):
        at_0 = up.log_z - (log_sum(up.log_weights, axis=1) - np.log(up.log_weights.shape[1]))
        alone = np.fmax(up.log_z + SURE * up.error, at_0 + normal_end(up.log_weights))
    sure = np.zeros(len(ends), dtype=bool) if down is None else down.exact
    ends[:, 1] = np.where(sure | (up.error == 0), ends[:, 1], np.fmax(ends[:, 1], alone))
    return ends


def _notes(
    up: AnnealedRun, down: AnnealedRun | None, chains: int, first: int = 0
) -> tuple[str, ...]:
    """Return a warning for each reason not to trust the importance weights of the two runs."""
    out = []
    for name, run in (("forward", up), ("reverse", down)):
        if run is not None and chains > 1 and few(run.ess, chains):
            out.append(
                f"{name} annealing: an effective {run.ess.min():.3g} of {chains} chains carry the "
                f"importance weight of row {first + int(run.ess.argmin())}"
            )
        if run is not None and len(rows := heavy(run.shape)):
            out.append(
                f"{name} annealing: the importance weights of row {first + rows[0]} have a heavy "
                f"tail, of Pareto shape {run.shape[rows[0]]:.2g}: the largest of them is yet to "
                "come"
            )
    if down is not None:
        gap = up.log_z - down.log_z
        wide = 5.0 * np.hypot(up.error, down.error) + 1e-3 * (1.0 + np.abs(up.log_z))
        if np.any(gap > wide) or np.any(-gap > np.maximum(wide, 1.0)):
            row = int(np.abs(gap).argmax())
            out.append(
                f"forward and reverse annealing disagree by {abs(gap[row]):.3g} nats in row "
                f"{first + row}"
            )
    return tuple(out)
