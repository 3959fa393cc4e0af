"""Annealed importance sampling, forward and reverse: log Z from below and from above.

    forward: x ~ p_0;  for each rung: log w += the change of log f, then one sweep;
             log Z = log Z_0 + log mean w, low on average (Neal 2001)
    reverse: x ~ p_1;  the same downwards;
             log Z = log Z_0 - log mean w, high on average (Burda et al. 2015)

`annealing` does both runs; this module judges them. The two check each other only if the reverse
run starts from exact draws of the model, which need a small cover that can be enumerated, or a
small junction tree. Without exact draws the reverse run starts from the states that the forward run
has reached, and misses the same phases. `references` therefore anneals again from other references,
and down from the states of other chains. The highest estimate is the answer; where no further run
agrees with it, the status is ONE_SIDED, which does not count as good. The tests compare log Z,
errors and intervals with exact answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from numbers import Number

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import check_kernel, check_truth, check_whole, seeded
from pgmengine.base.errors import PgmError, told
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.engine.chains import refusal, sweep_work
from pgmengine.engine.cost import engine
from pgmengine.engine.kernels import Gibbs, Kernel
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import (
    ERRORS_PER_INTERVAL_SIDE,
    few_weights,
    heavy_tail,
    interval,
    normal_end,
)
from pgmengine.infer.question.prepared import AnyPrepared, Method
from pgmengine.infer.results.answer_bytes import peak_bytes
from pgmengine.infer.results.axes import Axis, by_row
from pgmengine.infer.results.result import Plan, Result, Status
from pgmengine.infer.sampling.draws.draw_costs import chain_bytes, packed_bytes, reached_bytes
from pgmengine.infer.sampling.ladders.temperatures import (
    SWEEPS_OF_PILOT,
    Adaptive,
    Betas,
    check_betas,
    count_of,
    ends_elsewhere,
)
from pgmengine.infer.sampling.methods.annealing import (
    SNAPSHOTS_PER_CHAIN,
    Annealing,
    Resources,
    sweeps_before_reverse,
)
from pgmengine.infer.sampling.methods.bound_check import Check, below_a_bound, check_within
from pgmengine.infer.sampling.methods.references import Confirmed, annealed, run_lengths
from pgmengine.infer.variational.modes import CLIMB

# Relative rounding of log Z in single precision, over thousands of temperatures.
ANNEALED_LOG_Z_ROUNDING = 1e-5

# The warning for rows in which no independent run confirms the answer.
UNCONFIRMED_WARNING = (
    "no run from another reference agrees with the highest estimate, and the reverse run did not "
    "start from exact draws: the interval holds if the runs have missed no part of the space"
)


@dataclass(frozen=True)
class AIS(Method[Check]):
    """Annealed importance sampling of log Z, from below and from above.

    Use it for log Z and log p of models that are too large to enumerate. From exact draws of the
    model, the forward and the reverse run enclose log Z up to their errors; the reverse run is high
    by more than its error where the model rules out states that are possible at beta = 0.

    Parameters
    ----------
    chains : number of chains for each row of evidence.
    betas : a schedule (Linear, ThreePiece, Adaptive), a number of even steps, or numbers from 0 to
        1.
    kernel : any kernel; layers that the importance weights marginalise are always drawn by Gibbs
        sampling.
    reverse : whether to anneal down as well. From exact draws, the upper end of log_z_interval is
        then independent of the lower end.
    reference : layer -> (size[, k]), or variable -> a number or (k,): natural parameters of the
        units at beta = 0 in the first run; base_rates(data) are good ones.
    confirm : the largest number of further runs for rows whose reverse run has no exact draws.
        Their references come from chains of the model, from its training and from mean field; the
        last one has four times as many temperatures, if the schedule is adaptive. The highest
        estimate counts. Runs end when one confirms the highest. With 0 such rows stay ONE_SIDED.

    Notes
    -----
    The planned time is a range. It begins with one further run, which confirms most rows, and ends
    with all of them. Where the end exceeds the limit of time of Auto, `confirm` is reduced, to 1 at
    least.

    `log_z` is the forward estimate. `log_z_interval` begins three standard errors below it. From
    exact draws it ends three standard errors above the reverse estimate. Otherwise it ends three
    standard errors above the largest of three numbers: the reverse estimate, the forward estimate,
    and m + s^2 / 2, the log mean of importance weights whose logarithms are normal. Where no chain
    has found a possible state, log_z is -inf, and the interval is all numbers.

    The reverse run starts from exact draws where a cover of at most 2^16 states can be enumerated,
    or a junction tree has at most 2^20 table entries. Otherwise it starts from the last states of
    the forward run, resampled by their importance weights, and makes some sweeps first. Both runs
    then miss the same phases. Further runs start from other references for this reason, and their
    reverse runs from the last states of chains of the model and of the earlier runs. The status is
    ONE_SIDED where these do not agree with the highest estimate. Rows whose free units can all be
    marginalised in closed form, such as rows with all visible units of an RBM observed, need no
    annealing. The status is FEW_WEIGHTS where few chains carry most of the importance weight, where
    the tail of the importance weights is heavy, and where the forward and the reverse run disagree.
    It is CONTRADICTED where a mean-field lower bound lies above the interval.

    `stats` holds two statistics of all runs, each (rows,): `references` counts the runs, and
    `agreed` says whether the forward and the reverse run of another reference agree with the
    highest estimate. The other statistics belong to the run with the highest estimate:

    - log_weights (chains, rows).
    - log_weight_sd, ess and pareto_shape, each (rows,). log_weight_sd is infinite where a chain has
      the importance weight 0.
    - reverse_log_z, reverse_error, reverse_ess and reverse_pareto_shape, each (rows,).
    - reverse_exact (rows,), whether the reverse run started from exact draws.

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
    subtracts = True
    source = "importance weights give"
    statistics = {
        "log_weights": (Axis.CHAIN, Axis.ROW),
        **by_row("ess", "log_weight_sd", "pareto_shape", "log_prob_error"),
        **by_row("reverse_log_z", "reverse_error", "reverse_ess", "reverse_pareto_shape"),
        **by_row("reverse_exact", "references", "agreed"),
    }
    groups_chains = True
    single = True

    chains: int = 100
    betas: Betas = Adaptive(1000)
    kernel: Kernel = Gibbs()
    reverse: bool = True
    reference: Mapping[str, ArrayLike] | None = None
    confirm: int = 4

    def __post_init__(self) -> None:
        check_whole(self, "chains")
        check_whole(self, "confirm", least=0)
        check_betas(self)
        check_kernel(self.kernel)
        check_truth(self, "reverse")
        if isinstance(self.reference, (Number, str)):
            raise PgmError(
                "AIS: reference must be natural parameters by layer, such as base_rates(model, "
                f"data), not {told(self.reference)}"
            )

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[Check]:
        """Return the work of annealing up and, with reverse, down again."""
        if why := refusal(target) or ends_elsewhere(target):
            return Plan(refusal=why)
        steps, passes = count_of(self.betas), 2.25 if self.reverse else 1.0
        working = chain_bytes(target, self.chains)
        how = f"{self.chains} chains through {steps} temperatures"
        exact = Annealing(self, target).exact_draws.plan.accepted
        modes = CLIMB.plan(target, ("bound",)).accepted
        further = [] if exact and self.reverse else run_lengths(self, target, modes)
        if self.reverse:
            how += ", up and down" + " from exact draws" * exact
        if further:
            # Most rows need one more run, which confirms the first.
            passes *= 2.0
            # Rows are annealed again one after the other.
            working = max(working, working / target.rows + reached_bytes(target, self.chains))
            how += ", 2" + f" to {len(further) + 1}" * (len(further) > 1) + " references"
        lengths = further[:1] if self.reverse else further
        seconds, most = self._seconds(target, lengths), self._seconds(target, further)
        check = check_within(target, seconds)
        how, work = how + check.how, target.rows * self.chains * steps * sweep_work(target) * passes
        work += check.work
        memory = peak_bytes(target, want, 0, work, working, fixed=packed_bytes(target))
        seconds, most = seconds + check.seconds, most + check.seconds
        return Plan(
            why=how, work=work, bytes=memory, seconds=seconds, most_seconds=most, basis=check
        )

    def _seconds(self, target: Target, further: Sequence[int]) -> float:
        """Return the seconds of the first run of all rows, and of further runs of these lengths.

        A run is a pilot run of the schedule and the annealing, up and down.
        """
        prices, steps = engine(target, self.kernel), count_of(self.betas)
        chains, before = target.rows * self.chains, sweeps_before_reverse(steps)
        once = prices.anneal(chains, steps)
        if self.reverse:
            once += once + prices.run(chains, before, 1.0)
        pilot = 0.0
        if isinstance(self.betas, Adaptive):
            pilot = prices.anneal(self.betas.chains, self.betas.pilot * SWEEPS_OF_PILOT)
        rows = target.rows * len(further)
        seconds = once * (1 + sum(further)) + pilot * (1 + rows)
        # Chains of the model give the second reference.
        return seconds + prices.run(chains, before, SNAPSHOTS_PER_CHAIN) * bool(further)

    def faster(self, target: Target, want: tuple[str, ...], seconds: float) -> AIS | None:
        """Return the method with the most further runs that fit, at least one."""
        for confirm in range(self.confirm - 1, 0, -1):
            fewer = replace(self, confirm=confirm)
            if fewer.plan(target, want).most_seconds <= seconds:
                return fewer
        return None

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Anneal up and down."""
        target, generator, check = question.target, seeded(rng), question.basis
        found = check.modes(target)
        runs = annealed(self, target, found, Resources(generator, question.plan.work, executor))
        up, ends = runs.best[0], _interval(runs)
        low = below_a_bound(target, ends, found)
        notes = _notes(runs, self.chains, target.row_numbers)
        answers = {"log_z": up.log_z, "log_z_error": up.error, "log_z_interval": ends}
        stats = _statistics(runs)
        if low:
            status, notes = Status.CONTRADICTED, low + notes
        elif notes:
            status = Status.FEW_WEIGHTS
        elif not _confirmed(runs):
            status, notes = Status.ONE_SIDED, (UNCONFIRMED_WARNING,)
        else:
            status = Status.OK
        return question.result(answers, stats, status, notes)


def _statistics(runs: Confirmed) -> dict[str, Array]:
    """Return the statistics of the best runs, and the number of runs."""
    up, down = runs.best
    with np.errstate(invalid="ignore"):
        spread = np.nan_to_num(up.log_weights.std(axis=1), nan=np.inf)
    stats = {
        "log_weights": up.log_weights.T,
        "ess": up.ess,
        "log_weight_sd": spread,
        "pareto_shape": up.shape,
        "references": runs.count,
        "agreed": runs.agreed,
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


def _confirmed(runs: Confirmed) -> bool:
    """Return whether an independent run confirms the answer in every row with annealed units.

    It is a reverse run from exact draws, or a run from another reference.
    """
    up, down = runs.best
    # In rows that are marginalised in closed form, the forward run is exact as well.
    exact = up.closed if down is None else up.closed | down.exact
    return bool((exact | runs.agreed | (up.error == 0)).all())


def _interval(runs: Confirmed) -> Array:
    """Return the interval (rows, 2) of the best runs.

    Without exact draws, the upper end is also above the log mean of normal log importance weights,
    and above the runs from other references that agree. It contains the estimate of the forward
    run, which noise may put above the reverse run's end.
    """
    up, down = runs.best
    high = down or up
    ends = interval(up.log_z, up.error, high.log_z, high.error)
    ends[:, 1] = np.fmax(ends[:, 1], up.log_z)
    with np.errstate(invalid="ignore"):
        at_0 = up.log_z - (log_sum(up.log_weights, axis=1) - np.log(up.log_weights.shape[1]))
        alone = np.fmax(
            up.log_z + ERRORS_PER_INTERVAL_SIDE * up.error, at_0 + normal_end(up.log_weights)
        )
        alone = np.fmax(alone, runs.high)
    sure = np.zeros(len(ends), dtype=bool) if down is None else down.exact
    ends[:, 1] = np.where(sure | (up.error == 0), ends[:, 1], np.fmax(ends[:, 1], alone))
    return ends


def _notes(runs: Confirmed, chains: int, numbers: Array) -> tuple[str, ...]:
    """Return a warning for each reason not to trust the importance weights of the best runs."""
    (up, down), out = runs.best, list[str]()
    for name, run in (("forward", up), ("reverse", down)):
        if run is not None:
            lines = few_weights(run.ess, chains, numbers, "chains") if chains > 1 else ()
            lines += heavy_tail(run.shape, numbers)
            out += [f"{name} annealing: {line}" for line in lines]
    if down is not None:
        # Rows without a possible state have -inf in both.
        same = up.log_z == down.log_z
        gap = np.where(same, 0.0, up.log_z) - np.where(same, 0.0, down.log_z)
        wide = 5.0 * np.hypot(up.error, down.error)
        wide += ANNEALED_LOG_Z_ROUNDING * (1.0 + np.abs(up.log_z))
        if np.any(gap > wide) or np.any(-gap > np.maximum(wide, 1.0)):
            row = int(np.abs(gap).argmax())
            out.append(
                f"forward and reverse annealing disagree by {abs(gap[row]):.3g} nats in row "
                f"{numbers[row]}"
            )
    return tuple(out)
