"""Markov chain Monte Carlo: several chains per evidence row, with diagnostics from arviz-stats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pgmengine.convergence import chain_statistics
from pgmengine.couplings import only_parameters
from pgmengine.errors import PgmError
from pgmengine.kernels import Gibbs
from pgmengine.kernels.chains import layers_by_unit, make_chains, refusal, start
from pgmengine.methods.answers import add_gradients, available_memory, check_want, public, squeeze
from pgmengine.model import Flat
from pgmengine.progress import track
from pgmengine.result import Plan, Result, Status
from pgmengine.target import Target

Array = np.ndarray
CANNOT = {"log_z", "log_prob"}
TRACE = 200  # a longer run is kept as this many batch means, whose mean and MCSE are those of the draws


@dataclass(frozen=True)
class MCMC:
    """Sweeps of a kernel: `chains` per evidence row, `warmup` sweeps dropped, then `draws` kept every `thin` sweeps.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(4, 2, rng=0), method=pgm.MCMC(draws=200), rng=0)
    >>> sorted(r.stats), r.kind
    (['energy_ess', 'energy_rhat', 'ess', 'mcse', 'rhat'], 'estimate')
    """

    kernel: Any = Gibbs()
    chains: int = 4
    warmup: int = 500
    draws: int = 1000
    thin: int = 1
    rhat_limit: float = 1.05

    def plan(self, target: Target, want: Iterable[str]) -> Plan:
        """Work and memory of the chains; refuses log_z and log_prob, and free parents with infinitely many values."""
        wanted = check_want(want)
        if CANNOT & set(wanted):
            return Plan("MCMC", refusal=f"chains give no {' or '.join(sorted(CANNOT & set(wanted)))}")
        if "mode" in wanted:
            return Plan("MCMC", refusal="the best state that chains visit is not the mode")
        why = refusal(target)
        if why:
            return Plan("MCMC", refusal=why)
        s = target.structure
        per_sweep = sum(layer.width for layer in s.layers.values()) + sum(
            s.layers[c.a].width * s.layers[c.b].width / 8 for c in s.couplings)
        sweeps = self.warmup + self.draws * self.thin
        width = sum(layer.width for layer in s.layers.values())
        kept = self.draws if "samples" in wanted else 0
        memory = 8.0 * target.rows * self.chains * width * (kept + min(self.draws, TRACE) + 8)
        if memory > 0.8 * available_memory():
            free = available_memory() / 2**30
            return Plan("MCMC", refusal=f"its draws need {memory / 2**30:.3g} GiB, {free:.3g} GiB are free; ask for "
                        "fewer draws or rows")
        slow = sorted(layers_by_unit(target))
        how = f"unit by unit in {', '.join(map(repr, slow))}" if slow else "layer by layer"
        return Plan("MCMC", "estimate", f"{self.chains} chains of {sweeps} {type(self.kernel).__name__} sweeps, {how}",
                    sweeps * target.rows * self.chains * per_sweep, memory)

    def run(self, target: Target, want: Iterable[str] = ("marginals",), rng: Any = None, state: Any = None) -> Result:
        """Run the chains; `state` (a Result.state of the same rows and chains) goes on from where it ended."""
        wanted = check_want(want)
        plan = self.plan(target, wanted)
        if not plan.accepted:
            raise PgmError(f"MCMC refused: {plan.refusal}")
        generator = np.random.default_rng(rng)
        many = target.take(np.repeat(np.arange(target.rows), self.chains))
        x = start(many, generator) if state is None else many.clamp(_checked_state(many, state))
        chains = make_chains(many, self.kernel, x, generator)
        for _ in track(range(self.warmup), "warming up"):
            chains.sweep(1)
        sums = _Sums(many, wanted, self)
        for t in track(range(self.draws), "sampling"):
            chains.sweep(self.thin)
            sums.add(t, chains.values(), -chains.log_density())
        stats = chain_statistics(sums.trace, sums.energy, target, self.chains)
        rhat = {"the energy": stats["energy_rhat"], **{f"layer {n!r}": v for n, v in stats["rhat"].items()}}
        note = tuple(f"R-hat of {what} reaches {np.nanmax(v):.3g}, the limit is {self.rhat_limit:g}"
                     for what, v in rhat.items() if unmixed(v, self.rhat_limit))
        status = Status.NOT_MIXED if note else Status.OK
        return Result(sums.answers(target), "estimate", self, plan, status, (), stats, chains.values(), note)


def unmixed(rhat: Array, limit: float) -> bool:
    """Whether R-hats say so: one is infinite (chains stuck apart), or over 1 in 100 are above the limit.

    The largest of thousands of R-hats exceeds any limit by chance alone.
    """
    return bool(np.isinf(rhat).any() or np.mean(rhat > limit) > 0.01)


def _checked_state(target: Target, state: Flat) -> Flat:
    for name, layer in target.structure.layers.items():
        if name not in state or state[name].shape != (target.rows, layer.width):
            raise PgmError(f"state does not fit: layer {name!r} needs shape {(target.rows, layer.width)}")
    return state


@dataclass(eq=False)
class _Sums:
    """Running sums over draws, traces for the diagnostics, and the draws themselves if wanted."""

    target: Target  # rows * chains rows, the chains of one evidence row together
    wanted: tuple[str, ...]
    method: MCMC
    kept: list[Flat] = field(default_factory=list)
    gradient: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        s, m = self.target.structure, self.method
        self.batches = min(m.draws, TRACE)
        rows = self.target.rows
        self.trace = {n: np.zeros((self.batches, rows, layer.width)) for n, layer in s.layers.items()}
        self.counts = np.bincount(self._batch(np.arange(m.draws)), minlength=self.batches)
        self.energy = np.zeros((m.draws, rows))
        self.prob = {n: np.zeros((rows, layer.size, len(layer.unit.support))) for n, layer in s.layers.items()
                     if layer.unit.support is not None and len(layer.unit.support) > 2 and layer.unit.width == 1}
        self.pairs = {c.key: np.zeros((rows // m.chains, s.layers[c.a].width, s.layers[c.b].width))
                      for c in s.couplings if "pairs" in self.wanted}

    def _batch(self, t: Any) -> Any:
        return t * self.batches // self.method.draws

    def add(self, t: int, x: Flat, energy: Array) -> None:
        """One draw of all chains."""
        for name, value in x.items():
            self.trace[name][self._batch(t)] += value
        self.energy[t] = energy
        for name, total in self.prob.items():
            total += np.abs(x[name][:, :, None] - self.target.structure.layers[name].unit.support) < 1e-9
        for c in self.target.structure.couplings:
            if c.key in self.pairs:
                xa, xb = (x[n].reshape(-1, self.method.chains, x[n].shape[1]) for n in (c.a, c.b))
                self.pairs[c.key] += np.einsum("rci,rcj->rij", xa, xb)
        if "gradient" in self.wanted:
            self.gradient = add_gradients(self.gradient, self.target.model.gradient(x))
        if "samples" in self.wanted:
            self.kept.append(x)

    def answers(self, target: Target) -> dict[str, Any]:
        """Means over draws and chains, as users see them."""
        m, s = self.method, target.structure
        draws = m.draws * m.chains
        out: dict[str, Any] = {}
        if "marginals" in self.wanted:
            mean = {n: v.sum(axis=0).reshape(target.rows, m.chains, -1).sum(axis=1) / draws
                    for n, v in self.trace.items()}
            out["mean"] = public(target, mean)
            out["prob"] = squeeze(target, {n: self._prob(n, mean[n], target) for n, layer in s.layers.items()
                                           if layer.unit.support is not None})
        if "pairs" in self.wanted:
            out["pairs"] = squeeze(target, {c.key: only_parameters(c, target.model.weight(c), self.pairs[c.key] / draws)
                                            for c in s.couplings})
        if "gradient" in self.wanted and self.gradient is not None:
            out["gradient"] = {k: v / draws for k, v in self.gradient.items()}
        if "samples" in self.wanted:
            out["samples"] = {n: self._samples(n, target) for n in s.layers}
        for name in self.trace:
            self.trace[name] /= self.counts[:, None, None]
        return out

    def _prob(self, name: str, mean: Array, target: Target) -> Array:
        layer = target.structure.layers[name]
        assert layer.unit.support is not None
        if layer.unit.width > 1:
            return layer.shaped(mean)
        if name in self.prob:
            total = self.prob[name].reshape(target.rows, self.method.chains, *self.prob[name].shape[1:])
            return total.sum(axis=1) / (self.method.draws * self.method.chains)
        low, high = layer.unit.support
        upper = (mean - low) / (high - low)
        return np.stack((1 - upper, upper), axis=-1)

    def _samples(self, name: str, target: Target) -> Array:
        """(draws * chains, rows, size[, k]), the draws of one chain together."""
        layer = target.structure.layers[name]
        stacked = np.stack([x[name] for x in self.kept])  # (draws, rows * chains, width)
        split = stacked.reshape(self.method.draws, target.rows, self.method.chains, -1)
        return layer.shaped(split.transpose(2, 0, 1, 3).reshape(-1, target.rows, layer.width))
