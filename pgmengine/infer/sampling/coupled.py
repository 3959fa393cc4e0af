"""Coupled adaptive simulated tempering (system 3, section 6.1), on which CAST training runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.engine.chains import Chains, make_chains
from pgmengine.graph.target import Target
from pgmengine.infer.sampling.levels import Weights, hop
from pgmengine.infer.sampling.travels import Travels


class CoupledTempering:
    """Slow chains at beta = 1 and as many fast ones that wander over temperatures with adaptive
    weights.

    Every `swap_every` steps each slow chain changes places with its fast chain, if that one is at
    beta = 1 just then: an exchange of two chains of the same distribution. (The paper takes the
    fast chain's last state there. That one, and the next, have another distribution, since when a
    chain comes to beta = 1 depends on where it is: between valleys that are rarely left the slow
    chains would get the shares that these have over all temperatures.) Fast chains adapt at each
    step, so only the slow ones are draws.

    `target` has one row for each pair of chains; the pairs share the weights. `travels` counts
    where the fast chains are, their hops and round trips, and the exchanges.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> target = pgm.rbm(4, 2, rng=0).given().take(np.zeros(10, dtype=int))
    >>> coupled = pgm.CoupledTempering(target, [0.8, 0.9, 1.0], pgm.Gibbs(), pgm.OneOverT(), 50, np.random.default_rng(0))
    >>> coupled.step()
    >>> coupled.states()["v"].shape
    (10, 4)
    """

    def __init__(
        self,
        target: Target,
        betas: Array,
        kernel: Any,
        schedule: Any,
        swap_every: int,
        rng: np.random.Generator,
    ) -> None:
        self.pairs, self.betas, self.swap_every = target.rows, np.asarray(betas), swap_every
        self.rng, self.steps, self.swaps = rng, 0, 0
        self.weights = Weights(1, len(self.betas), schedule)
        self.travels = Travels("CAST", len(self.betas), self.pairs)
        self.level = rng.integers(len(self.betas), size=(1, self.pairs))
        self.slow, self.fast = (
            np.arange(self.pairs),
            np.arange(self.pairs) + self.pairs,
        )  # chain numbers
        both = target.take(np.tile(np.arange(self.pairs), 2))
        beta = np.ones(2 * self.pairs)
        beta[self.fast] = self.betas[self.level[0]]
        self.chains: Chains = make_chains(both.at(beta), kernel, both.at(0.0).draw_at_0(rng), rng)

    def step(self) -> None:
        """One sweep of all chains, one hop of the fast ones, one update of the weights, and the
        swaps that are due.
        """
        power, before = self.chains.sweep_path()[1][None, self.fast], self.level
        self.level = hop(self.level, power, self.betas, self.weights.log_g, self.rng)
        self.weights.adapt(self.level)
        self.steps += 1
        due = self.steps % self.swap_every == 0
        now = (self.level[0] == len(self.betas) - 1) & due
        self.slow[now], self.fast[now] = self.fast[now], self.slow[now]
        swapped, hops = int(now.sum()), self.pairs if len(self.betas) > 1 else 0
        self.swaps += swapped
        taken = int(np.count_nonzero(self.level != before))
        self.travels.add(self.level[0], hops, taken, self.pairs if due else 0, swapped)
        self._set_betas()

    def _set_betas(self) -> None:
        self.chains.beta[self.slow] = 1.0
        self.chains.beta[self.fast] = self.betas[self.level[0]]

    def states(self) -> States:
        """The states of the slow chains, (pairs, width)."""
        return self.chains.values(self.slow)

    def state(self) -> dict[str, Any]:
        """All chains, their roles, the ladder and the weights of its levels, under names that no
        layer has.
        """
        return {
            **self.chains.values(),
            "/betas": self.betas,
            "/level": self.level,
            "/slow": self.slow,
            "/fast": self.fast,
            "/steps": self.steps,
            **self.weights.state(),
            **self.travels.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.chains.place_at(state)
        self.betas, self.level, self.slow, self.fast = (
            np.array(state[f"/{name}"]) for name in ("betas", "level", "slow", "fast")
        )
        self.steps = int(state["/steps"])
        self.weights.load(state)
        self.travels.load(state)
        self._set_betas()
