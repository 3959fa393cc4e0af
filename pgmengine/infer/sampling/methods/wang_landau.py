"""Wang-Landau sampling over the bins of a partition of the state space.

Chains have the density p(x) / g(b(x)), with b(x) the bin of a state. One sweep is

    each unit of a layer that b reads: x_i ~ p(x_i | rest) / g(b(x_i, rest)), over all its values
    every other layer: moved by the kernel for p while adapting: log g_b += log(1 + gamma) / chains,
    for the bin b of each chain

so that g tends to the probabilities of the bins, up to a factor, and all bins are visited equally
often. Draws with frozen weights have the importance weights g(b(x)). `layers` names the layers that
b reads; b is called with these only. Sweeps use the reference kernels in numpy, unit by unit. The
tests compare bin probabilities and means with exact answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from pgmengine.base.checks import check_whole, seeded
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array, RngLike, Snapshot, States
from pgmengine.base.work.progress import track
from pgmengine.engine.chains import sweep_work
from pgmengine.engine.cost import NS, US, Price, free_units, plain, state_count
from pgmengine.engine.kernels import Gibbs, Kernel
from pgmengine.engine.reference import Tilt, sweep
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import few_weights
from pgmengine.infer.question.prepared import AnyPrepared
from pgmengine.infer.results.axes import Axis
from pgmengine.infer.results.result import Named, Result, Status
from pgmengine.infer.sampling.draws.collected import Draws, small, whole
from pgmengine.infer.sampling.draws.draw_costs import small_bytes
from pgmengine.infer.sampling.draws.sampler import CHAIN_STATISTICS, ChainPlan, Sampler
from pgmengine.infer.sampling.ladders.wandering import GammaSchedule, OneOverT, Weights, check_gamma
from pgmengine.model.names.unit_names import Member, as_members

# The largest number of bins in the estimate of memory, because a larger integer may not fit a
# float.
MAX_COUNTED_BINS = 2**60


@dataclass(frozen=True)
class WangLandau(Sampler):
    """Chains that visit all bins of a partition equally often, with importance weights.

    Use it for the probability of rare bins, such as unusual values of a sum of units, and for
    models whose modes a partition tells apart. Sweeps run in numpy, unit by unit, and take many
    times as long as compiled ones.

    Parameters
    ----------
    partition : function of {layer: values (rows, size[, k])} that returns the bin number of each
        row, 0 .. bins - 1. Variables can be read by name, as layers of one unit.
    bins : number of bins.
    kernel : kernel of the layers that the partition does not read.
    chains : number of chains for each row of evidence; they share the weights of the bins.
    warmup : adaptive sweeps.
    draws : sweeps with frozen weights.
    gamma : FlatHistogram() or OneOverT().
    rhat_limit : largest R-hat of chains that have mixed.
    layers : names of the layers and variables that the partition reads, with finite units unless
        they are observed; None for all such layers. The fewer there are, the faster is a sweep.

    Notes
    -----
    Answers are means with importance weights; samples are resampled by their importance weight.
    R-hat and MCSE are of the weighted means, chain by chain, so that chains which stay in different
    bins are seen. The status is FEW_WEIGHTS where few draws carry most of the importance weight.

    `stats` holds the statistics of MCMC but sweeps_apart; log_g, occupancy and bin_prob, each
    (rows, bins); and weight_ess (rows,), the effective number of draws by their importance weights
    alone.

    References
    ----------
    Wang and Landau 2001, "Efficient, multiple-range random walk algorithm to calculate the density
    of states".

    >>> import pgmengine as pgm
    >>> def ones(x):
    ...     return x["v"].sum(axis=1).astype(int)
    >>> method = pgm.WangLandau(ones, bins=5, layers=("v",), warmup=200, draws=200)
    >>> pgm.infer(pgm.rbm(4, 3, rng=0), method=method, rng=0).stats["bin_prob"].shape
    (1, 5)
    """

    statistics = CHAIN_STATISTICS | {
        "log_g": (Axis.ROW, Axis.BIN),
        "occupancy": (Axis.ROW, Axis.BIN),
        "bin_prob": (Axis.ROW, Axis.BIN),
        "weight_ess": (Axis.ROW,),
    }
    # The sweeps are in numpy, in double precision.
    single = False

    partition: Callable[[Mapping[str, Array]], Array]
    bins: int
    kernel: Kernel = Gibbs()
    chains: int = 8
    warmup: int = 2000
    draws: int = 2000
    gamma: GammaSchedule = OneOverT()
    rhat_limit: float = 1.05
    layers: tuple[Member, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gamma(self)
        check_whole(self, "bins")
        if not callable(self.partition):
            raise PgmError(f"WangLandau: partition must be a function, not {told(self.partition)}")
        if self.layers is not None:
            # An iterator of names would be exhausted after the first question.
            object.__setattr__(self, "layers", as_members(self.layers, "WangLandau: layers"))

    def scheme(self, target: Target, want: tuple[str, ...]) -> ChainPlan:
        """Return the work and memory of the chains."""
        sweeps, n = self.warmup + self.draws, target.rows * self.chains
        # Memory holds states, bins and importance weights of all draws, and the resampled draws.
        each = small_bytes(target.structure) + 8.0 * 8
        more = each * n * self.draws + 32.0 * target.rows * min(self.bins, MAX_COUNTED_BINS)
        # Sweeps in numpy ask for a bin for each state of each unit that the partition reads.
        e, asking = plain(target), Price()
        for name in self._read(target):
            one = Price(70 * US, 300 * NS) + Price(25 * US, 100 * NS) * state_count(target, name)
            asking += one * free_units(target, name)
        moving = (e.sweep + asking).of(n, sweeps) + e.density.of(n, self.draws)
        how = (
            f"{self.chains} chains over {self.bins} bins, {self.warmup} adaptive sweeps, "
            f"{self.draws} with fixed ones"
        )
        work = 20.0 * sweeps * n * sweep_work(target)
        return self.scheme_of(target, want, how, work, moving, more=more)

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Adapt the weights of the bins, freeze them, and weight the draws by them."""
        target, want, generator = question.target, question.want, seeded(rng)
        many = target.take(np.repeat(np.arange(target.rows), self.chains))
        weights = Weights(target.rows, self.bins, self.gamma)
        chains = _TiltedChains(self, many, weights, generator)
        for _ in track(range(self.warmup), "adapting"):
            weights.adapt(chains.step().reshape(target.rows, -1))
        states: list[States] = []
        energy = np.empty((self.draws, many.rows))
        bins = np.empty((self.draws, target.rows, self.chains), dtype=np.int64)
        for t in track(range(self.draws), "sampling"):
            bins[t] = chains.step().reshape(target.rows, -1)
            states.append(small(target.structure, chains.x))
            energy[t] = -many.log_density(chains.x)
        w = importance_weights(weights.log_g[np.arange(target.rows)[:, None], bins])
        draws = Draws.none(many, want, self.chains, self.draws)
        for t, x in enumerate(states):
            draws.add(t, whole(target.structure, x), energy[t], w[t].ravel())
        stats, status, note = draws.judged(
            target, self.rhat_limit, question.plan.seconds, type(self).__name__
        )
        ess = effective(w)
        if more := few_weights(ess, self.draws * self.chains, target.row_numbers):
            status, note = Status.FEW_WEIGHTS, note + more
        _resample(draws, target, w, generator)
        stats |= _bin_statistics(weights.log_g, bins)
        stats |= {"weight_ess": ess, "energy": draws.energies(target)}
        return question.result(draws.answers(target), stats, status, note)

    def _read(self, target: Target) -> tuple[str, ...]:
        """Return the layers that the partition reads; PgmError if it cannot read one of them."""
        s = target.structure
        endless = {
            name
            for name, layer in s.layers.items()
            if layer.unit.support is None and target.pattern.some_free[name]
        }
        if self.layers is None:
            return tuple(name for name in s.layers if name not in endless)
        named = tuple(s.names.units(self.layers, "WangLandau: layers"))
        for name in named:
            if name in endless:
                raise PgmError(
                    f"WangLandau: the partition reads layer {name!r} of {s.layers[name].unit!r} "
                    "units, and can read layers of finite units only"
                )
        return named


def importance_weights(log_w: Array) -> Array:
    """Return importance weights of mean 1 in each row from log weights (draws, rows, chains)."""
    w = np.exp(log_w - log_w.max(axis=(0, 2), keepdims=True))
    return np.asarray(w / w.mean(axis=(0, 2), keepdims=True))


def _bin_statistics(log_g: Array, bins: Array) -> dict[str, Array]:
    """Return log weights, shares of the draws, and probabilities of bins, each (rows, bins)."""
    count = log_g.shape[1]
    seen = np.stack([(bins == b).sum(axis=(0, 2)) for b in range(count)], axis=1).astype(float)
    g = np.exp(log_g - log_g.max(axis=1, keepdims=True))
    prob = np.where(seen > 0, seen * g, 0.0)
    return {
        "log_g": log_g,
        "occupancy": seen / seen.sum(axis=1, keepdims=True),
        "bin_prob": prob / prob.sum(axis=1, keepdims=True),
    }


def effective(w: Array) -> Array:
    """Return the effective number of draws (rows,) by importance weights (draws, rows, chains)."""
    return np.asarray(w.sum(axis=(0, 2)) ** 2 / np.square(w).sum(axis=(0, 2)))


def _resample(draws: Draws, target: Target, w: Array, rng: np.random.Generator) -> None:
    """Replace samples and energies by draws of equal importance weight; means stay as they are."""
    count, rows, chains = w.shape
    size = count * chains
    p = np.moveaxis(w, 1, 0).reshape(rows, size)
    chosen = np.stack([rng.choice(size, size=size, p=row / row.sum()) for row in p])
    draw, chain = np.divmod(chosen.reshape(rows, count, chains), chains)
    place = chain + chains * np.arange(rows)[:, None, None]
    draws.energy = np.moveaxis(draws.energy[draw, place], 0, 1).reshape(count, rows * chains)
    for kept in draws.kept.values():
        for row in range(rows):
            kept[:, :, row] = kept[chain[row].T, draw[row].T, row]


class _TiltedChains:
    """Chains with the density p / g, for all rows of a target together."""

    def __init__(
        self, method: WangLandau, many: Target, weights: Weights, rng: np.random.Generator
    ) -> None:
        self.method, self.many, self.weights, self.rng = method, many, weights, rng
        self.row = np.arange(many.rows) // method.chains
        self.x = many.draw_at_0(rng)
        self.read = method._read(many)
        self.tilts: dict[str, Tilt] = {n: self._tilt for n in self.read if many.free[n].any()}

    def step(self) -> Array:
        """Sweep all chains once; return their bins (rows * chains,)."""
        self.x = sweep(self.many, self.method.kernel, self.x, self.rng, tilts=self.tilts)
        return self._bins(self.x)

    def _tilt(self, x: States, name: str, columns: Array) -> Array:
        """Return -log g of the bins that the values of a unit lead to, (rows * chains, K)."""
        unit = self.many.structure.layers[name].unit
        assert unit.support is not None
        out, tried = [], {**x, name: x[name].copy()}
        for value in unit.support.reshape(len(unit.support), unit.width):
            tried[name][:, columns] = value
            out.append(-self.weights.log_g[self.row, self._bins(tried)])
        return np.stack(out, axis=1)

    def _bins(self, x: States) -> Array:
        """Return the bins (rows * chains,) of states."""
        s = self.many.structure
        read = {name: s.layers[name].shaped(x[name]) for name in self.read}
        state = Named(read, "the state of a partition", s.names, 1)
        return self._checked(self.method.partition(state))

    def _checked(self, found: object) -> Array:
        """Return bin numbers as integers; raise PgmError for other values of the partition."""
        bins, rows = self.method.bins, self.many.rows
        expected = (
            f"WangLandau: the partition must return a bin number 0..{bins - 1} for each of {rows} "
            "rows, not"
        )
        try:
            given = np.asarray(found)
        except ValueError as error:
            raise PgmError(f"{expected} an array such as this: {error}") from None
        if given.shape != (rows,) or given.dtype.kind not in "iub":
            raise PgmError(f"{expected} {given.dtype} of shape {given.shape}")
        if given.min() < 0 or given.max() >= bins:
            raise PgmError(f"{expected} numbers from {given.min()} to {given.max()}")
        numbers: Array = given.astype(np.int64)
        return numbers
