"""Wang-Landau sampling over the bins of a user's partition of the state space (system 3, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.errors import PgmError
from pgmengine.kernels import Gibbs
from pgmengine.kernels.chains import Chains, make_chains, refusal, sweep_work
from pgmengine.methods.answers import check_want, no_room
from pgmengine.methods.collect import Draws
from pgmengine.methods.levels import OneOverT, Weights
from pgmengine.model import Flat
from pgmengine.progress import track
from pgmengine.result import Plan, Result
from pgmengine.target import Target

Array = np.ndarray


@dataclass(frozen=True)
class WangLandau:
    """Chains of p(x) / g(bin(x)), whose weights g are learned until all bins are visited equally often.

    A sweep of a random share of the units (1, 1/2, 1/4, ...) and its reversal are a move that leaves p in balance; it is
    taken with probability min(1, g(bin(x)) / g(bin(x'))). While adapting, log g of the bin that a chain is in grows.
    Draws with frozen weights have the importance weights g(bin(x)); answers are those of draws resampled by them.

    Parameters
    ----------
    partition : called with {layer: values (rows, size[, k])}, returns the bin number of each row, 0 .. bins - 1.
    bins : their number.
    kernel, chains : as in MCMC; the chains of a row share the weights.
    adapt, draws : adaptive moves, and moves with frozen weights.
    gamma : FlatHistogram() or OneOverT().

    `stats` holds those of MCMC (of the resampled draws), log_weights, occupancy and bin_prob (rows, bins), acceptance.

    >>> import pgmengine as pgm
    >>> count = pgm.WangLandau(partition=lambda x: x["v"].sum(axis=1).astype(int), bins=5, adapt=200, draws=200)
    >>> pgm.infer(pgm.rbm(4, 3, rng=0), method=count, rng=0).stats["bin_prob"].shape
    (1, 5)
    """

    partition: Callable[[Mapping[str, Array]], Array]
    bins: int
    kernel: Any = Gibbs()
    chains: int = 8
    adapt: int = 2000
    draws: int = 2000
    gamma: Any = OneOverT()
    rhat_limit: float = 1.05

    def plan(self, target: Target, want: Iterable[str]) -> Plan:
        """Work and memory of the chains."""
        wanted = check_want(want)
        if cannot := {"mode", "log_z", "log_prob"} & set(wanted):
            return Plan("WangLandau", refusal=f"it gives no {' or '.join(sorted(cannot))}")
        if why := refusal(target):
            return Plan("WangLandau", refusal=why)
        width = sum(layer.width for layer in target.structure.layers.values())
        memory = 8.0 * target.rows * self.chains * width * (self.draws + 16)
        if too_much := no_room(memory):
            return Plan("WangLandau", refusal=too_much)
        work = 2.0 * (self.adapt + self.draws) * target.rows * self.chains * sweep_work(target)
        how = f"{self.chains} chains over {self.bins} bins, {self.adapt} adaptive moves, {self.draws} with fixed weights"
        return Plan("WangLandau", "estimate", how, work, memory)

    def run(self, target: Target, want: Iterable[str] = ("marginals",), rng: Any = None, state: Any = None) -> Result:
        """Adapt the weights, freeze them, draw and resample."""
        wanted = check_want(want)
        plan = self.plan(target, wanted)
        if not plan.accepted:
            raise PgmError(f"WangLandau refused: {plan.refusal}")
        generator = np.random.default_rng(rng)
        many = target.take(np.repeat(np.arange(target.rows), self.chains))
        chains = make_chains(many, self.kernel, many.draw_at_0(generator), generator, partial=True)
        weights = Weights(target.rows, self.bins, self.gamma)
        bins = self._bins(many, chains)
        for _ in track(range(self.adapt), "adapting"):
            bins, _ = self._move(many, chains, bins, weights, generator)
            weights.adapt(bins)
        states: list[tuple[Flat, Array, Array]] = []
        accepted = np.zeros(target.rows)
        for _ in track(range(self.draws), "sampling"):
            bins, taken = self._move(many, chains, bins, weights, generator)
            accepted += taken.mean(axis=1)
            states.append((chains.values(), -chains.log_density(), bins))
        draws, seen = self._resampled(target, many, wanted, states, weights, generator)
        stats, status, note = draws.judged(target, self.rhat_limit)
        prob = np.where(seen > 0, seen * np.exp(weights.log_g - weights.log_g.max(axis=1, keepdims=True)), 0.0)
        stats |= {"log_weights": weights.log_g, "occupancy": seen / seen.sum(axis=1, keepdims=True),
                  "bin_prob": prob / prob.sum(axis=1, keepdims=True), "acceptance": accepted / self.draws}
        return Result(draws.answers(target), "estimate", self, plan, status, (), stats, None, note)

    def _bins(self, many: Target, chains: Chains) -> Array:
        """Bins (rows, chains) of the chains."""
        x = {name: many.structure.layers[name].shaped(value) for name, value in chains.values().items()}
        found = np.asarray(self.partition(x))
        whole = found.shape == (many.rows,) and found.dtype.kind in "iub"
        if not whole or found.min() < 0 or found.max() >= self.bins:
            raise PgmError(f"the partition must return a bin number 0..{self.bins - 1} for each of {many.rows} rows, not "
                           f"{found.dtype} of shape {found.shape} from {found.min()} to {found.max()}")
        return found.reshape(-1, self.chains).astype(np.int64)

    def _move(self, many: Target, chains: Chains, bins: Array, weights: Weights,
              rng: np.random.Generator) -> tuple[Array, Array]:
        kept = chains.keep()
        chains.restrict(some_units(many, rng))
        chains.sweep(1)
        chains.sweep(1, backward=True)
        new, rows = self._bins(many, chains), np.arange(len(bins))[:, None]
        taken = np.log(rng.random(bins.shape)) < weights.log_g[rows, bins] - weights.log_g[rows, new]
        chains.restore(kept, ~taken.ravel())
        return np.where(taken, new, bins), taken

    def _resampled(self, target: Target, many: Target, wanted: tuple[str, ...], states: list[tuple[Flat, Array, Array]],
                   weights: Weights, rng: np.random.Generator) -> tuple[Draws, Array]:
        bins = np.stack([b for _, _, b in states], axis=1)  # (rows, draws, chains)
        rows = np.arange(target.rows)
        seen = np.stack([(bins == b).sum(axis=(1, 2)) for b in range(self.bins)], axis=1).astype(float)
        log_w = weights.log_g[rows[:, None, None], bins].reshape(target.rows, -1)
        p = np.exp(log_w - log_w.max(axis=1, keepdims=True))
        out = Draws(many, wanted, self.chains, self.draws)
        size = self.draws * self.chains
        chosen = np.stack([rng.choice(size, size=size, p=row / row.sum()) for row in p])
        x = {name: np.stack([s[0][name] for s in states]).reshape(self.draws, target.rows, self.chains, -1)
             for name in target.structure.layers}
        energy = np.stack([s[1] for s in states]).reshape(self.draws, target.rows, self.chains)
        for t in range(self.draws):
            draw, chain = np.divmod(chosen[:, t * self.chains: (t + 1) * self.chains], self.chains)
            picked = {name: v[draw, rows[:, None], chain].reshape(many.rows, -1) for name, v in x.items()}
            out.add(t, picked, energy[draw, rows[:, None], chain].ravel())
        return out, seen


def some_units(target: Target, rng: np.random.Generator) -> dict[str, Array]:
    """Random masks (rows, size): each row takes a share of 1, 1/2, 1/4, ... of the units of all layers."""
    most = max(1, int(np.ceil(np.log2(sum(layer.size for layer in target.structure.layers.values())))))
    share = 0.5 ** rng.integers(0, most + 1, size=(target.rows, 1))
    return {name: rng.random((target.rows, layer.size)) < share for name, layer in target.structure.layers.items()}
