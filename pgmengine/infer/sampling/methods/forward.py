"""Ancestral sampling with likelihood weighting: independent draws of directed models.

For each draw, with log w = 0, in the order of the arrows:

    x_i ~ p(x_i | parents)                            for a free unit
    x_i = its value, log w += log p(x_i | parents)    for an observed unit
    x_i = its value                                   for an intervened unit, set by do()

and log w += log f(x) for every undirected table and coupling f, so that E[w] = p(evidence) and
E[w f(x)] / E[w] = E[f | evidence] (Fung and Chang 1990; Shachter and Peot 1990). Units are drawn
one by one from conditional tables (engine/ancestral_draws.py), or as layers of children of arrows.
Without evidence below free units all importance weights are equal. With such evidence a few draws,
or even one that has not been drawn, may carry most of the importance weight. The weights are
therefore judged in four ways: by their effective number and the Pareto shape of the largest ones,
by the agreement of independent halves, by a short annealing run (Neal 2001), which finds states of
the parents that are rarely drawn but explain the evidence, and by the mean-field lower bound. The
tests compare with exact answers.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.division import blocks, check_divided
from pgmengine.base.work.progress import track
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.convergence import least_error
from pgmengine.infer.diagnostics.trust import (
    ERRORS_PER_INTERVAL_SIDE,
    MIN_EFFECTIVE_FORWARD_DRAWS,
    few_weights,
    heavy_tail,
    interval,
    pareto_shape,
)
from pgmengine.infer.question.prepared import AnyPrepared, Method
from pgmengine.infer.question.splitting import joined
from pgmengine.infer.results.answer_bytes import answer_bytes, peak_bytes
from pgmengine.infer.results.axes import Axis, by_row
from pgmengine.infer.results.result import WANTS, Plan, Result, Status
from pgmengine.infer.sampling.draws.resampling import resampled
from pgmengine.infer.sampling.draws.weighted import drawing_seconds, drawn, moments, weighing
from pgmengine.infer.sampling.ladders.temperatures import Linear
from pgmengine.infer.sampling.methods.ais import AIS
from pgmengine.infer.sampling.methods.bound_check import Check, below_a_bound, check_within
from pgmengine.model.weights import count

# Bytes of states that are drawn at once.
DRAW_BYTES_AT_ONCE = 2.0**26

# The cross-check by annealing: a short run, without a reverse run.
ANNEALING_CHECK = AIS(chains=40, betas=Linear(200), reverse=False, confirm=0)

# Standard errors by which the estimates of log Z of two halves may differ.
MAX_ERRORS_BETWEEN_HALVES = 4.0

# Relative rounding of log Z.
FORWARD_LOG_Z_ROUNDING = 1e-6


@dataclass(frozen=True)
class Forward(Method[Check]):
    """Draws of parents, then children, with the probability of the evidence as importance weight.

    Use it for directed models, of arrows or of conditional tables, with little evidence below free
    units: the draws are independent, and without such evidence they all count equally. The status
    is FEW_WEIGHTS or CONTRADICTED where one of four tests of the importance weights fails.

    Parameters
    ----------
    draws : smallest number of draws for each row of evidence, and the number of samples returned.
    below : largest number of observed units that may depend on free units, and of undirected tables
        and couplings of free units; with more, few draws would carry most of the importance weight,
        and the question is refused.
    error : standard error of log_z in nats; more draws are made until all rows have reached it.
    most : largest number of draws for each row.

    Notes
    -----
    `stats` holds log_weights (draws, rows) of the first draws; ess, pareto_shape, halves_apart and
    drawn, the number of draws, each (rows,); log_prob_error (rows,), if log_prob is wanted; and
    mcse of each layer's means. Samples are resampled by importance weight. Where no draw can give
    the evidence, means and samples are NaN, and the status is not good.

    References
    ----------
    Fung and Chang 1990, "Weighing and integrating evidence for stochastic simulation in Bayesian
    networks". Shachter and Peot 1990, "Simulation approaches to general probabilistic inference on
    belief networks".

    >>> import pgmengine as pgm
    >>> evidence = {"v": [1, 0, float("nan"), 1]}
    >>> r = pgm.infer(pgm.sbn([4, 3], rng=0), evidence, method=pgm.Forward(2000), rng=0)
    >>> r.mean["h1"].shape, r.kind
    ((3,), 'estimate')
    """

    gives = frozenset(WANTS) - {"mode", "bound"}
    subtracts = True
    source = "draws give"
    statistics = {
        "log_weights": (Axis.DRAW, Axis.ROW),
        "mcse": (Axis.ROW, Axis.UNIT),
        **by_row("ess", "pareto_shape", "halves_apart", "drawn", "log_prob_error"),
    }

    draws: int = 1000
    below: int = 10
    error: float = 0.05
    most: int = 64_000

    def __post_init__(self) -> None:
        check_whole(self, "draws", "most", least=2)
        check_limit(self, "below", "error")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[Check]:
        """Return the work and memory of the draws.

        Free units that have no conditional to be drawn from are refused, and so is much evidence
        below free units. An undirected table or coupling of free units is evidence.
        """
        if why := self._obstacle(target):
            return Plan(refusal=why)
        s = target.structure
        width = _numbers(target)
        # All draws of a row are made at once, and several rows at once where memory allows.
        most = max(self.draws, self.most) if weighing(target).any() else self.draws
        rows = min(target.rows, self._rows_at_once(target, most))
        working = rows * most * _bytes_of_draw(target, want)
        # Log weights of the first draws are kept. While parts are joined, their answers exist
        # twice.
        working += 8.0 * target.rows * self.draws
        working += answer_bytes(target, want, self.draws) * (rows < target.rows)
        arrows = sum(count(target.model.weight(c)) / 8.0 for c in s.arrows)
        arrows += len(s.table_index.unit)
        work = target.rows * self.draws * (10.0 * width + arrows)
        seconds = drawing_seconds(target, want, self.draws)
        how, check = f"{self.draws} draws, parents first", Check()
        if weighing(target).any():
            check = check_within(target, seconds)
            annealing = ANNEALING_CHECK.plan(target, ("log_z",))
            how += check.how
            work += check.work + annealing.work * annealing.accepted
            seconds += check.seconds + annealing.seconds * annealing.accepted
        memory = peak_bytes(target, want, self.draws, work, working)
        return Plan(why=how, work=work, bytes=memory, seconds=seconds, basis=check)

    def _obstacle(self, target: Target) -> str:
        """Return the reason why the method cannot answer, or an empty string."""
        s = target.structure
        for name, mine in _drawn_units(target).items():
            missing = np.asarray((target.free[name] & ~mine).any(axis=0))
            if missing.any():
                return f"{s.names.described(name, missing)} is free and not drawn from its parents"
        if (target.beta != 1).any():
            return "at beta below 1 conditionals are not normalised"
        known = int(weighing(target).max())
        if known > self.below:
            return (
                f"{known} observed units, undirected tables and coupled pairs depend on free "
                f"units, the limit is {self.below}"
            )
        return ""

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Draw until the error of log_z is at most `error`, and judge the importance weights."""
        generator, count = seeded(rng), self.draws
        found = self._drawn(question, generator, count)
        while (needed := self._needed(found.stats["ess"], count)) > count:
            count = needed
            found = self._drawn(question, generator, count)
        return self._judged(question.target, found, question.basis, generator)

    def _needed(self, ess: Array, count: int) -> int:
        """Return the number of draws that the row with the largest error of log_z needs.

        It follows from the effective number (rows,) of `count` draws.
        """
        error = np.sqrt(np.maximum(1.0 / np.maximum(ess, 1.0) - 1.0 / count, 0.0)).max()
        if error <= self.error:
            return count
        # The error estimated from few effective draws is uncertain, so a further round has at least
        # four times as many draws.
        more = max(4.0, (error / max(self.error, 1e-9)) ** 2)
        return max(count, int(min(more * count, self.most)))

    def _rows_at_once(self, target: Target, count: int) -> int:
        """Return the number of rows whose draws, `count` of each, are made at once."""
        return max(int(DRAW_BYTES_AT_ONCE / (8.0 * count * max(_numbers(target), 1))), 1)

    def _drawn(self, question: AnyPrepared, rng: np.random.Generator, count: int) -> Result:
        """Return answers by `count` draws for each row, some rows at a time."""
        target = question.target
        parts = blocks(np.arange(target.rows), self._rows_at_once(target, count))
        found = [
            self._part(question.on(target.take(rows)), rng, count)
            for rows in track(parts, "drawing")
        ]
        check_divided(parts, target.rows, "draws")
        return joined(found, target.structure)

    def _part(self, question: AnyPrepared, rng: np.random.Generator, count: int) -> Result:
        """Return answers about some rows."""
        target, want = question.target, question.want
        found = drawn(target, rng, count)
        log_w = found.log_w.reshape(target.rows, count)
        top = log_w.max(axis=1, keepdims=True)
        # Where no draw can give the evidence, the answers are NaN.
        possible = np.isfinite(top)
        p = np.exp(log_w - np.where(possible, top, 0.0))
        p = np.where(possible, p / np.where(possible, p.sum(axis=1, keepdims=True), 1.0), np.nan)
        ess = np.where(possible[:, 0], 1.0 / np.square(p).sum(axis=1), 0.0)
        half = [log_mean_error(part) for part in np.array_split(log_w, 2, axis=1)]
        stats: dict[str, Any] = {
            "log_weights": log_w[:, : self.draws].T,
            "ess": ess,
            "halves_apart": _apart(*half),
            "pareto_shape": pareto_shape(log_w, ess),
            "drawn": np.full(target.rows, count),
        }
        answers = moments(found, want, p)
        if "mcse" in answers:
            stats["mcse"] = {
                name: _at_least(target, name, value, ess)
                for name, value in answers.pop("mcse").items()
            }
        if "gradient" in want:
            # Impossible draws have no gradient.
            some, x = np.flatnonzero(p.ravel() != 0), found.values(*target.structure.layers)
            answers["gradient"] = target.take(some // count).gradient(
                {n: v[some] for n, v in x.items()}, p.ravel()[some]
            )
        if "samples" in want:
            layers = target.structure.layers
            each = {
                name: value.reshape(target.rows, count, -1)
                for name, value in found.values(*layers).items()
            }
            chosen = resampled(each, p, self.draws, rng)
            answers["samples"] = {
                n: np.swapaxes(layers[n].shaped(v), 0, 1) for n, v in chosen.items()
            }
        answers |= _evidence(log_w, weighing(target) > 0)
        return question.result(answers, stats)

    def _judged(
        self, target: Target, found: Result, check: Check, rng: np.random.Generator
    ) -> Result:
        """Return the result with its status: whether the importance weights can be trusted."""
        ess, count = found.stats["ess"], int(found.stats["drawn"][0])
        numbers = target.row_numbers
        least = min(MIN_EFFECTIVE_FORWARD_DRAWS, count / 3)
        note = few_weights(ess, count, numbers, least=least)
        note += heavy_tail(found.stats["pareto_shape"], numbers)
        if len(rows := np.flatnonzero(found.stats["halves_apart"])):
            note += (f"two halves of the draws disagree on log Z of row {numbers[rows[0]]}",)
        # Where evidence lies below free units, equal importance weights prove nothing, because all
        # draws may be the same state. The bound and annealing judge these rows.
        varies = np.flatnonzero((ess > 0) & (weighing(target) > 0))
        status, ends = Status.FEW_WEIGHTS if note else Status.OK, found.answers["log_z_interval"]
        if len(varies) and not note:
            some = target.take(varies)
            low = below_a_bound(some, ends[varies], check.modes(some))
            note = low or _above_annealing(some, ends[varies], rng)
            status = Status.CONTRADICTED if note else status
        return replace(found, status=status, warnings=note)


def _numbers(target: Target) -> int:
    """Return the numbers of one draw: values of all units, and their states for tables."""
    s = target.structure
    return s.width + (s.units if s.tables else 0)


def _bytes_of_draw(target: Target, want: tuple[str, ...]) -> float:
    """Return the peak memory of one draw: states, values of layers, and temporary arrays.

    A step of units with conditionals takes a random number for each of them. Layers of arrows are
    kept as values, and take a few temporary arrays while they are drawn and averaged. If draws are
    averaged value by value, all layers are kept as values, and are copied one after the other.
    """
    s, layers = target.structure, target.structure.layers
    steps = (sum(map(len, step.units.values())) for step in s.drawing_steps)
    numbers = 6.0 + max(steps, default=0)
    drawn_whole = [layer.width for n, layer in layers.items() if (s.child_tables[n] < 0).any()]
    widths = [layer.width for layer in layers.values()]
    if {"samples", "pairs", "gradient"} & set(want) or s.undirected:
        numbers += sum(widths) * (1 + ("gradient" in want)) + max(widths)
    else:
        numbers += sum(drawn_whole)
    states = s.units if s.tables else 0
    return 8.0 * (numbers + 5 * max(drawn_whole, default=0)) + 4.0 * states


def log_mean_error(log_w: Array) -> tuple[Array, Array]:
    """Return the logarithm (rows,) of the mean of exp(log_w) (rows, draws), and its error."""
    log_mean = log_sum(log_w, axis=1) - np.log(log_w.shape[1])
    same = (log_w == log_w[:, :1]).all(axis=1)
    ratio = np.exp(log_w - np.where(np.isfinite(log_mean), log_mean, 0.0)[:, None])
    if log_w.shape[1] > 1:
        error = np.where(same, 0.0, ratio.std(axis=1, ddof=1) / np.sqrt(log_w.shape[1]))
    else:
        error = np.full(len(log_w), np.inf)
    return log_mean, np.where(np.isfinite(log_mean), error, np.inf)


def _apart(one: tuple[Array, Array], two: tuple[Array, Array]) -> Array:
    """Return whether log Z of two halves differs by more than the errors explain, (rows,)."""
    with np.errstate(invalid="ignore"):
        gap = np.abs(one[0] - two[0])
        explained = MAX_ERRORS_BETWEEN_HALVES * np.hypot(one[1], two[1])
        explained += FORWARD_LOG_Z_ROUNDING * (1.0 + np.abs(one[0]))
        return np.asarray(gap > explained)


def _above_annealing(target: Target, ends: Array, rng: np.random.Generator) -> tuple[str, ...]:
    """Return a warning if annealing finds log Z above the upper end of an interval (rows, 2)."""
    annealing = ANNEALING_CHECK.prepare(target, ("log_z",))
    if not annealing.plan.accepted:
        return ()
    found = annealing.run(rng)
    log_z, error = found.log_z, found.log_z_error
    with np.errstate(invalid="ignore"):
        above = log_z - ERRORS_PER_INTERVAL_SIDE * error - ends[:, 1]
    row = int(np.nan_to_num(above, nan=-np.inf).argmax())
    if not above[row] > 0:
        return ()
    return (
        f"annealing puts log Z of row {target.row_numbers[row]} at {log_z[row]:.6g}, above the "
        f"interval of these draws, which ends at {ends[row, 1]:.6g}",
    )


def _at_least(target: Target, name: str, error: Array, ess: Array) -> Array:
    """Return the MCSE of a layer (rows, size[, k]), at least as large as `least_error`."""
    layer = target.structure.layers[name]
    least = np.where(layer.components(target.free[name]), least_error(layer, ess[:, None]), 0.0)
    return np.maximum(error, layer.shaped(least))


def _drawn_units(target: Target) -> dict[str, Array]:
    """Return the units that are drawn from their parents: layer -> (size,) bool."""
    s = target.structure
    out = {name: np.zeros(layer.size, dtype=bool) for name, layer in s.layers.items()}
    for step in s.drawing_steps:
        for name in step.layers:
            out[name][:] = True
        for name, units in step.units.items():
            out[name][units] = True
    return out


def _evidence(log_w: Array, below: Array) -> dict[str, Array]:
    """Return log_z = log mean w, with its standard error and interval.

    The mask `below` (rows,) marks rows with evidence below free units. In these, equal importance
    weights have an error as well. States with a total probability of up to 3 / n may be missing
    from n draws, so the error is at least 1 / n, and an interval reaches at least 3 / n to each
    side.
    """
    log_z, error = log_mean_error(log_w)
    error = np.where(below, np.maximum(error, 1.0 / log_w.shape[1]), error)
    ends = interval(log_z, error, np.where(np.isfinite(log_z), log_z, np.inf), error)
    return {"log_z": log_z, "log_z_error": error, "log_z_interval": ends}
