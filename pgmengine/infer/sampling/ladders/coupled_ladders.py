"""Coupled adaptive simulated tempering (Salakhutdinov 2010, section 6.1), which CAST uses.

Each pair has a slow chain at beta = 1, whose states are the draws, and a fast chain that moves over
a ladder with adaptive weights (wandering.py). Every `swap_every` steps the two chains of a pair
change places if the fast one is at beta = 1: both then have the same distribution, so that the
exchange leaves the distribution of the slow chain invariant.

The paper exchanges the slow chain with the fast chain's last state at beta = 1. The time at which a
chain arrives at beta = 1 depends on its state, so that this state does not have the distribution at
beta = 1. Where chains rarely leave modes, the slow chains would then visit each mode in proportion
to its share over all temperatures.

The weights of the rungs are one set for all pairs, or one set for each fast chain, as in the paper.
A set of its own follows the mode in which its chain is: all rungs then are equally likely within
each mode, whatever share the mode has there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, States
from pgmengine.engine.chains import Chains, make_chains
from pgmengine.engine.kernels import Kernel
from pgmengine.evidence.target import Target
from pgmengine.infer.sampling.ladders.round_trips import Travels
from pgmengine.infer.sampling.ladders.wandering import GammaSchedule, Weights, hop


class CoupledTempering:
    """Slow chains at beta = 1, each coupled to a fast chain that wanders over a ladder.

    Use it for draws from models that change between the steps, as in learning; pgm.CAST does. Fast
    chains adapt their weights at each step, so that only the states of slow chains are draws of the
    model.

    Parameters
    ----------
    target : one row for each pair of chains.
    betas : (rungs,), ascending to 1.
    kernel : any kernel.
    schedule : increments of the log weights, such as OneOverT(floor=0.05).
    swap_every : steps from one exchange of places to the next.
    rng : numpy Generator.
    weights_per_chain : whether each fast chain has log weights of its own, as in the paper. By
        default all pairs share one set.

    Attributes
    ----------
    weights : log weights of the rungs, one row for all pairs or one for each.
    rung : the rungs of the fast chains, (1, pairs), or (pairs, 1) with weights of their own.
    travels : counts of visits to rungs, changes of rung, round trips and exchanges of the fast
        chains.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> target = pgm.rbm(4, 2, rng=0).given().take(np.zeros(10, dtype=int))
    >>> rng, betas = np.random.default_rng(0), np.array([0.8, 0.9, 1.0])
    >>> coupled = pgm.CoupledTempering(target, betas, pgm.Gibbs(), pgm.OneOverT(), 50, rng)
    >>> coupled.step()
    >>> coupled.states()["v"].shape
    (10, 4)
    """

    def __init__(
        self,
        target: Target,
        betas: Array,
        kernel: Kernel,
        schedule: GammaSchedule,
        swap_every: int,
        rng: np.random.Generator,
        weights_per_chain: bool = False,
    ) -> None:
        self.pairs, self.betas, self.swap_every = target.rows, np.asarray(betas), swap_every
        self.rng, self.steps = rng, 0
        # The chains of a row of `rung` share a row of weights.
        rows = self.pairs if weights_per_chain else 1
        self.weights = Weights(rows, len(self.betas), schedule)
        self.travels = Travels("CAST", len(self.betas), self.pairs)
        self.rung = rng.integers(len(self.betas), size=(rows, self.pairs // rows))
        # The numbers of the chains that are now slow, and of the ones that are fast. An exchange
        # swaps two numbers, and no state is copied.
        self.slow = np.arange(self.pairs)
        self.fast = np.arange(self.pairs) + self.pairs
        both = target.take(np.tile(np.arange(self.pairs), 2))
        beta = np.ones(2 * self.pairs)
        beta[self.fast] = self.betas[self.rung.ravel()]
        self.chains: Chains = make_chains(both.at(beta), kernel, both.at(0.0).draw_at_0(rng), rng)

    def step(self) -> None:
        """Sweep all chains, move the fast ones on the ladder, adapt, and exchange pairs if due."""
        before = self.rung
        power = self.chains.sweep_path()[1][self.fast].reshape(before.shape)
        self.rung = hop(before, power, self.betas, self.weights.log_g, self.rng)
        self.weights.adapt(self.rung)
        self.steps += 1
        due = self.steps % self.swap_every == 0
        now = (self.rung.ravel() == len(self.betas) - 1) & due
        self.slow[now], self.fast[now] = self.fast[now], self.slow[now]
        swapped, hops = int(now.sum()), self.pairs if len(self.betas) > 1 else 0
        taken = int(np.count_nonzero(self.rung != before))
        self.travels.add(self.rung.ravel(), hops, taken, self.pairs if due else 0, swapped)
        self._set_betas()

    def _set_betas(self) -> None:
        """Set the inverse temperatures of all chains by their roles and rungs."""
        self.chains.beta[self.slow] = 1.0
        self.chains.beta[self.fast] = self.betas[self.rung.ravel()]

    def states(self) -> States:
        """Return the states of the slow chains, layer -> (pairs, width)."""
        return self.chains.values(self.slow)

    def state(self) -> dict[str, Any]:
        """Return a snapshot of chains, roles, ladder and weights, under names that no layer has."""
        return {
            **self.chains.values(),
            "/betas": self.betas,
            "/level": self.rung,
            "/slow": self.slow,
            "/fast": self.fast,
            "/steps": self.steps,
            **self.weights.state(),
            **self.travels.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot; PgmError if its numbers of chains or rungs are impossible."""
        betas = np.array(state["/betas"], dtype=np.float64)
        rung, slow, fast = (
            np.array(state[f"/{name}"], dtype=np.int64) for name in ("level", "slow", "fast")
        )
        chains = np.sort(np.concatenate((slow, fast)))
        if not np.array_equal(chains, np.arange(2 * self.pairs)):
            raise PgmError(
                f"the state of coupled chains is damaged: {self.pairs} slow and as many fast "
                f"chains need each number from 0 to {2 * self.pairs - 1} once"
            )
        if not ((rung >= 0) & (rung < len(betas))).all():
            raise PgmError(
                f"the state of coupled chains is damaged: a chain is on rung {rung.max()} or "
                f"{rung.min()} of {len(betas)} rungs"
            )
        self.chains.place_at(state)
        self.betas, self.rung, self.slow, self.fast = betas, rung, slow, fast
        self.steps = int(state["/steps"])
        self.weights.load(state)
        self.travels.load(state)
        self._set_betas()
