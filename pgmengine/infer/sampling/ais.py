"""Annealed importance sampling, forward and reverse: log Z, low on average going up and high going
down.

The two runs check each other only if the reverse one starts from exact draws of the model. These
are to be had where a small cover can be enumerated. Elsewhere the reverse run starts from the
states that the forward run has reached, and both miss a phase that the forward run has missed; the
status is then ONE_SIDED, never OK.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from pgmengine.base.checks import amount, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.limits import IN_RANGE
from pgmengine.base.numerics import log_sum, softmax
from pgmengine.base.types import Array, States
from pgmengine.engine.chains import make_chains, over_chains, refusal, sweep_work
from pgmengine.engine.cost import engine
from pgmengine.engine.kernels import Gibbs
from pgmengine.engine.plain import summed_layers
from pgmengine.graph.evidence import parse_layer
from pgmengine.graph.frames import data_by_layer
from pgmengine.graph.layer import Layer
from pgmengine.graph.target import Target
from pgmengine.graph.validate import as_floats
from pgmengine.infer.answers import accepted, check_want
from pgmengine.infer.exact.method import Exact
from pgmengine.infer.result import Plan, Result, Status
from pgmengine.infer.sampling.bounded import below_a_bound
from pgmengine.infer.sampling.resampling import systematic
from pgmengine.infer.sampling.schedules import Adaptive, count_of, ladder
from pgmengine.infer.sampling.trust import SURE, few, heavy, interval, normal_end, pareto_shape
from pgmengine.units import Unit

ANSWERS = {"log_z", "log_prob"}
ROUNDING = 2.0**-24  # of single precision, in which chains are
SMALL = 2.0**16  # states that are enumerated to start the reverse run


@dataclass(frozen=True, eq=False)
class _Run:
    """log Z and what speaks for it, each (rows,); weights (rows, chains)."""

    log_z: Array
    error: Array
    ess: Array
    weights: Array
    shape: Array  # of the Pareto tail of the weights
    exact: Array  # bool: whether the run started from exact draws


@dataclass(frozen=True)
class AIS:
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

    chains: int = 100
    betas: Any = Adaptive(1000)
    kernel: Any = Gibbs()
    reverse: bool = True
    reference: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_whole(self, "chains")

    def plan(self, target: Target, want: Iterable[str]) -> Plan:
        """Work of annealing up and, with reverse, down again."""
        wanted = check_want(want)
        if not set(wanted) <= ANSWERS:
            return Plan(
                "AIS",
                refusal=f"weights give log_z and log_prob, not {', '.join(sorted(set(wanted) - ANSWERS))}",
            )
        if why := refusal(target) or ("log_prob" in wanted and refusal(target.nothing_observed)):
            return Plan("AIS", refusal=str(why))
        runs, steps = self._targets(target, wanted), count_of(self.betas)
        rows = sum(t.rows for t in runs)
        passes = 2.25 if self.reverse else 1.0
        work = rows * self.chains * steps * sweep_work(target) * passes
        seconds = passes * sum(
            engine(t, self.kernel).anneal(t.rows * self.chains, steps) for t in runs
        )
        memory = (
            16.0
            * rows
            * self.chains
            * sum(layer.width for layer in target.structure.layers.values())
        )
        how = f"{self.chains} chains through {steps} temperatures" + (
            ", up and down" if self.reverse else ""
        )
        if self.reverse and all(self._draws_exactly(t) for t in runs):
            how += " from exact draws"
        return Plan("AIS", "estimate", how, work, memory, seconds=seconds)

    def run(
        self, target: Target, want: Iterable[str] = ("log_z",), rng: Any = None, state: Any = None
    ) -> Result:
        """Anneal."""
        return self.run_on(None, target, want, rng)

    def run_on(
        self, executor: Executor | None, target: Target, want: Iterable[str], rng: Any
    ) -> Result:
        """The same bits, the chains in groups on an executor."""
        wanted, plan = accepted(self, target, want)
        generator = seeded(rng)
        up, down = self._by_kind(executor, target, generator, plan.work)
        answers = {
            "log_z": up.log_z,
            "log_z_error": up.error,
            "log_z_interval": _interval(up, down),
        }
        note, runs = _notes(up, down, self.chains, target.first), [(up, down)]
        with np.errstate(invalid="ignore"):
            spread = np.nan_to_num(up.weights.std(axis=1), nan=np.inf)
        stats = {
            "log_weights": up.weights.T,
            "ess": up.ess,
            "log_weight_sd": spread,
            "pareto_shape": up.shape,
        }
        if "log_prob" in wanted:
            answers["log_prob"], stats["log_prob_error"] = up.log_z, up.error
            if not target.structure.normalized:
                whole = self._by_kind(executor, target.nothing_observed, generator, plan.work)
                runs.append(whole)
                answers["log_prob"] = up.log_z - whole[0].log_z
                stats["log_prob_error"] = np.hypot(up.error, whole[0].error)
                offset = target.first if target.nothing_observed.rows == target.rows else 0
                note += tuple(
                    f"without evidence, {line}" for line in _notes(*whole, self.chains, offset)
                )
        if down is not None:
            stats |= {
                "reverse_log_z": down.log_z,
                "reverse_error": down.error,
                "reverse_ess": down.ess,
                "reverse_pareto_shape": down.shape,
                "reverse_exact": down.exact,
            }
        status = Status.FEW_WEIGHTS if note else Status.OK if _two_sided(runs) else Status.ONE_SIDED
        if low := below_a_bound(target, answers["log_z_interval"]):
            status, note = Status.CONTRADICTED, low + note
        return Result(
            answers, "estimate", self, plan, status, (), stats, None, note or _start(status)
        )

    def _targets(self, target: Target, wanted: tuple[str, ...]) -> list[Target]:
        whole = "log_prob" in wanted and not target.structure.normalized
        return [target, target.nothing_observed] if whole else [target]

    def _by_kind(
        self, executor: Executor | None, target: Target, rng: np.random.Generator, work: float
    ) -> tuple[_Run, _Run | None]:
        """Rows in which the same layers move together: what weights sum out must not depend on a
        group's other rows.
        """
        moving = np.stack([free.any(axis=1) for free in target.free.values()])
        kind = np.unique(moving, axis=1, return_inverse=True)[1].ravel()
        if not kind.any():
            return self._both(executor, target, rng, work)
        rows = [np.flatnonzero(kind == k) for k in range(kind.max() + 1)]
        ups, downs = zip(
            *(self._both(executor, target.take(some), rng, work) for some in rows), strict=True
        )
        back = np.argsort(np.concatenate(rows))
        return _joined(ups, back), None if downs[0] is None else _joined(downs, back)

    def _both(
        self, executor: Executor | None, target: Target, rng: np.random.Generator, work: float
    ) -> tuple[_Run, _Run | None]:
        target = target.at(0.0, self.reference)
        betas = ladder(self.betas, target, self.kernel, rng)
        if betas[0] != 0.0:
            betas = np.concatenate(([0.0], betas))
        many = target.take(np.repeat(np.arange(target.rows), self.chains))
        at_0, moves = (
            target.log_z_at_0(),
            np.any([mask.any(axis=1) for mask in target.free.values()], axis=0),
        )
        weights, x = self._annealed(executor, many, many.draw_at_0(rng), rng, work, 0, betas)
        up = _estimate(weights.reshape(target.rows, -1), at_0, 1.0, moves)
        if not self.reverse:
            return up, None
        live, dead = np.flatnonzero(up.ess > 0), np.flatnonzero(up.ess == 0)
        unknown = np.full(
            len(dead), np.inf
        )  # no draws that could be annealed down, and perhaps no possible state
        runs = [
            _Run(
                unknown,
                unknown,
                np.zeros(len(dead)),
                -np.inf * np.ones((len(dead), self.chains)),
                -unknown,
                unknown < 0,
            )
        ]
        if len(live):
            chains = (live[:, None] * self.chains + np.arange(self.chains)).ravel()
            some, x = target.take(live), {name: value[chains] for name, value in x.items()}
            x, sweeps, exact = self._model_draws(some, x, up.weights[live], len(betas), rng)
            weights, _ = self._annealed(
                executor, many.take(chains).at(1.0), x, rng, work, sweeps, betas[::-1]
            )
            down = _estimate(weights.reshape(len(live), -1), at_0[live], -1.0, moves[live])
            runs.insert(0, replace(down, exact=exact | ~moves[live]))
        return up, _joined(runs, np.argsort(np.concatenate((live, dead))))

    def _annealed(
        self,
        executor: Executor | None,
        many: Target,
        x: States,
        rng: np.random.Generator,
        work: float,
        sweeps: int,
        betas: Array,
    ) -> tuple[Array, States]:
        """Log weights (rows * chains,) of annealing from x, after some sweeps, and the last states."""
        found = over_chains(executor, self._anneal, many, self.kernel, x, rng, work, sweeps, betas)
        return np.concatenate([w for w, _ in found]), {
            n: np.concatenate([last[n] for _, last in found]) for n in x
        }

    def _anneal(
        self,
        many: Target,
        x: States,
        rng: np.random.Generator,
        streams: Array,
        sweeps: int,
        betas: Array,
    ) -> tuple[Array, States]:
        chains = make_chains(many, self.kernel, x, rng, streams)
        chains.sweep(sweeps)
        return chains.anneal(betas, backward=_backward(many)), chains.values()

    def _draws_exactly(self, target: Target) -> bool:
        """Whether exact draws can start the reverse run."""
        exact = Exact(max_bits=np.log2(SMALL), draws=self.chains)
        return bool(exact.plan(target.at(1.0), ("samples",)).accepted)

    def _model_draws(
        self, target: Target, last: States, weights: Array, steps: int, rng: np.random.Generator
    ) -> tuple[States, int, bool]:
        """States at beta = 1, (rows * chains, width), how many sweeps they still need, and whether
        they are exact.
        """
        if self._draws_exactly(target):
            exact = Exact(max_bits=np.log2(SMALL), draws=self.chains)
            drawn = exact.run(target.at(1.0), ("samples",), rng=rng).samples
            layers = target.structure.layers
            return (
                {n: np.swapaxes(v, 0, 1).reshape(-1, layers[n].width) for n, v in drawn.items()},
                0,
                True,
            )
        chosen = systematic(softmax(weights), rng)
        index = (chosen + self.chains * np.arange(target.rows)[:, None]).ravel()
        return {name: value[index] for name, value in last.items()}, max(steps // 4, 50), False


def _two_sided(runs: Sequence[tuple[_Run, _Run | None]]) -> bool:
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


def _joined(runs: Sequence[_Run], order: Array) -> _Run:
    """Runs of some rows each as one, the rows in this order."""
    parts = ([getattr(run, field.name) for field in fields(_Run)] for run in runs)
    return _Run(*(np.concatenate(part)[order] for part in zip(*parts, strict=True)))


def _backward(target: Target) -> bool:
    """Whether sweeps in the reverse order are cheaper: they sum fewer units out."""
    sizes = [
        sum(target.structure.layers[n].size for n in summed_layers(target, back))
        for back in (False, True)
    ]
    return 0 < sizes[1] < sizes[0] or not sizes[0]


def _estimate(weights: Array, at_0: Array, sign: float, moves: Array) -> _Run:
    """From log weights (rows, chains): log Z = log Z_0 + sign * log mean exp(w); rows where nothing
    moves are exact.
    """
    count = weights.shape[1]
    top = weights.max(axis=1, keepdims=True)
    w = np.exp(weights - np.where(np.isfinite(top), top, 0.0))
    mean = w.mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # of rows without any weight
        error = (
            w.std(axis=1, ddof=1) / (mean * np.sqrt(count))
            if count > 1
            else np.full(len(w), np.inf)
        )
        error = np.hypot(
            error, ROUNDING * np.maximum(np.abs(at_0), np.abs(top[:, 0]))
        )  # all there is if none is drawn
        error = np.where(mean > 0, np.where(moves, error, 0.0), np.inf)
        ess = np.where(mean > 0, w.sum(axis=1) ** 2 / np.square(w).sum(axis=1), 0.0)
    return _Run(
        at_0 + sign * (log_sum(weights, axis=1) - np.log(count)),
        error,
        ess,
        weights,
        pareto_shape(weights, ess),
        np.full(len(w), True),
    )


def _interval(up: _Run, down: _Run | None) -> Array:
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


def _notes(up: _Run, down: _Run | None, chains: int, first: int = 0) -> tuple[str, ...]:
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


def base_rates(model: Any, data: Any, shrink: float = 1.0) -> dict[str, Array]:
    """Natural parameters of independent units with the means of the data, A'(eta) = mean: a
    reference for annealing.

    `shrink` observations of what the unit is at eta = 0 are added where values are bounded, because
    a mean at the edge has no finite eta (PgmError if shrink is 0 there); NaN is left out. Layers
    without data, Input units, and units of several components that are not one-hot, are left at 0.

    >>> import pgmengine as pgm
    >>> pgm.base_rates(pgm.rbm(2, 1, rng=0), {"v": [[0, 1], [0, 1]]})["v"].round(3)
    array([-1.609,  1.609])
    """
    amount("base_rates: shrink", shrink)
    out = {}
    for name, given in data_by_layer(model.structure, data).items():
        layer = model.structure.layer(name, what="data: layer")
        if layer.unit.observed_only or (layer.unit.width > 1 and not layer.unit.one_hot):
            continue
        x = layer.shaped(_values(layer, given))
        seen, middle = (~np.isnan(x)).sum(axis=0), layer.unit.mean(np.zeros(layer.bias_shape))
        more = np.where(seen == 0, 1.0, shrink if layer.unit.bounded else 0.0)
        with np.errstate(divide="ignore"):
            eta = _natural(
                layer.unit, (np.nansum(x, axis=0) + more * middle) / (seen + more)
            ).ravel()
        if len(bad := np.flatnonzero(~np.isfinite(eta))):
            raise PgmError(
                f"data: layer {name!r}, index {bad[0] // layer.unit.width} has a mean at the edge of its "
                "range: shrink must be above 0"
            )
        out[name] = eta
    return out


def _values(layer: Layer, given: Any) -> Array:
    """Data (rows, width), NaN where missing; of units of one component any numbers, grey levels for
    two values, say.
    """
    if layer.unit.width > 1:
        return parse_layer(layer, given, "data")[0]
    x = as_floats(given, f"data: layer {layer.name!r}")
    x = x[:, None] if x.ndim == 1 and layer.size == 1 else x  # as fit takes them
    if x.ndim not in (1, 2) or x.shape[-1] != layer.size:
        raise PgmError(
            f"data: layer {layer.name!r} has shape {x.shape}, expected (rows, {layer.size})"
        )
    x = x.reshape(-1, layer.size)
    low, high = (
        (-1.0, 1.0)
        if layer.unit.support is None
        else (layer.unit.support.min(), layer.unit.support.max())
    )
    beyond = (x < low) | (x > high) if layer.unit.bounded else np.isinf(x)
    if beyond.any():
        row, index = (int(i) for i in np.argwhere(beyond)[0])
        expected = f"a number from {low:g} to {high:g}" if layer.unit.bounded else IN_RANGE
        raise PgmError(
            f"data: layer {layer.name!r}, row {row}, index {index} is {x[row, index]:g}, expected {expected}"
        )
    return x


def _natural(unit: Unit, mean: Array) -> Array:
    """Eta with A'(eta) = mean, (size[, k]): in closed form, or by bisection."""
    if unit.one_hot and unit.log_base is not None:
        return np.log(mean) - unit.log_base
    if unit.curvature is not None:
        return mean / unit.curvature
    if unit.support is not None and unit.log_base is not None and len(unit.support) == 2:
        (low, high), (h_low, h_high) = unit.support, unit.log_base
        share: Array = (mean - low) / (high - low)
        return (np.log(share / (1 - share)) - (h_high - h_low)) / (high - low)
    low, high = np.full(mean.shape, -1.0), np.full(mean.shape, 1.0)
    while (wide := (unit.mean(low) > mean) | (unit.mean(high) < mean)).any() and np.abs(
        high
    ).max() < 1e4:
        low, high = np.where(wide, 2 * low, low), np.where(wide, 2 * high, high)
    for _ in range(60):
        half = (low + high) / 2
        below = unit.mean(half) < mean
        low, high = np.where(below, half, low), np.where(below, high, half)
    return half
