"""Markov chain Monte Carlo: several chains per evidence row, with diagnostics from arviz-stats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.errors import PgmError
from pgmengine.kernels import Gibbs
from pgmengine.kernels.chains import make_chains, start, sweep_work
from pgmengine.kernels.plain import layers_by_unit
from pgmengine.methods.answers import accepted, check_want, no_room
from pgmengine.methods.collect import Draws, kept_bytes, refused
from pgmengine.model import Flat
from pgmengine.progress import track
from pgmengine.result import Plan, Result
from pgmengine.target import Target


@dataclass(frozen=True)
class MCMC:
    """Sweeps of a kernel: `chains` per evidence row, `warmup` sweeps dropped, then `draws` kept every `thin` sweeps.

    `stats` holds ess, rhat and mcse of each layer's means and of the energy, and the energy, (chains, draws, rows).

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(4, 2, rng=0), method=pgm.MCMC(draws=200), rng=0)
    >>> sorted(r.stats), r.kind
    (['energy', 'energy_ess', 'energy_mcse', 'energy_rhat', 'ess', 'mcse', 'rhat'], 'estimate')
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
        if why := refused(target, wanted, {"mode", "log_z", "log_prob", "bound"}):
            return Plan("MCMC", refusal=why)
        sweeps = self.warmup + self.draws * self.thin
        memory = kept_bytes(target, wanted, self.chains, self.draws)
        if too_much := no_room(memory):
            return Plan("MCMC", refusal=too_much)
        slow = sorted(layers_by_unit(target))
        how = f"unit by unit in {', '.join(map(repr, slow))}" if slow else "layer by layer"
        return Plan("MCMC", "estimate", f"{self.chains} chains of {sweeps} {type(self.kernel).__name__} sweeps, {how}",
                    sweeps * target.rows * self.chains * sweep_work(target), memory)

    def run(self, target: Target, want: Iterable[str] = ("marginals",), rng: Any = None, state: Any = None) -> Result:
        """Run the chains; `state` (a Result.state of the same rows and chains) goes on from where it ended."""
        wanted, plan = accepted(self, target, want)
        generator = np.random.default_rng(rng)
        many = target.take(np.repeat(np.arange(target.rows), self.chains))
        x = start(many, generator) if state is None else many.clamp(_checked_state(many, state))
        chains = make_chains(many, self.kernel, x, generator)
        for _ in track(range(self.warmup), "warming up"):
            chains.sweep(1)
        draws = Draws(many, wanted, self.chains, self.draws)
        for t in track(range(self.draws), "sampling"):
            chains.sweep(self.thin)
            draws.add(t, chains.values(), -chains.log_density())
        stats, status, note = draws.judged(target, self.rhat_limit)
        return Result(draws.answers(target), "estimate", self, plan, status, (), stats, chains.values(), note)


def _checked_state(target: Target, state: Flat) -> Flat:
    for name, layer in target.structure.layers.items():
        if name not in state or state[name].shape != (target.rows, layer.width):
            raise PgmError(f"state does not fit: layer {name!r} needs shape {(target.rows, layer.width)}")
    return state
