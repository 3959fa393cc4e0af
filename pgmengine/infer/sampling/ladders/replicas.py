"""Ladders of replicas that swap places, and log Z from their log densities.

With log p_beta(x) = path(x) + beta * power(x) and S = power, one step of a ladder is

    x_k ~ kernel that leaves p_(beta_k) invariant, for each rung k; drawn exactly at beta_0 = 0
    for the pairs k, k + 1 with k even, or in the next step odd:
        log_ratio = (beta_(k+1) - beta_k) (S(x_k) - S(x_(k+1)))
        swap x_k and x_(k+1) with probability min(1, exp(log_ratio))

Even and odd pairs swap in turn, so that states tend to keep their direction on the ladder (Okabe et
al. 2001; Syed et al. 2022). A swap exchanges the betas of two replicas, and their states stay in
place: `at` has the number of the replica on each rung. During the warm-up the rungs are moved
between rounds of doubling length, so that all pairs reject equally often. Then they are fixed, and
the states at beta = 1 are draws.

A tour of a replica leads from one visit of beta = 0, where its state is drawn anew, to the next.
Draws of different tours are independent. If tour i has n_i draws at beta = 1, all draws are worth
at least as much as this number of independent draws:

    tours = (sum of n_i over the tours that have ended)^2 / (sum of n_i^2 over all tours)

This is the tour effectiveness of Biron-Lattes et al. (2023). Replicas that stay at beta = 1, such
as the few that reached a rare state by luck, give hardly any tours, however often the replicas
below them swap.

Ladders of a row may be moved together (`Moves`), in pairs at each rung between a sweep and the
swaps. The two ladders of a pair are then one chain for all errors: its steps are those of the first
and of the second ladder in turn. Their tours mix, so that both count as one.

log Z comes from stepping_stones.py. The tests compare draws with exact answers, swaps with
invariance by chi-square, and log Z with enumeration.

Where a few units hold all others apart, the replicas are states of these units alone
(cover_chains.py): the path is then another one, and the rest is drawn when it is asked for.

ParallelTempering (parallel_tempering.py) answers questions by these ladders, and the trainer PT
learns by them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.engine.chains import Chains, make_chains
from pgmengine.engine.kernels import Kernel
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import with_rounding
from pgmengine.infer.exact.enumeration.cover import Cover
from pgmengine.infer.sampling.ladders.cover_chains import CoverChains, cover_form
from pgmengine.infer.sampling.ladders.stepping_stones import FromSteppingStones, SteppingStones


class Moves(Protocol):
    """Moves of two replicas at the same beta, which leave the product p(x) p(y) invariant."""

    def swap(
        self, states: dict[str, Array], one: Array, two: Array, rng: np.random.Generator
    ) -> None:
        """Move the states of replicas `one` and `two`, (pairs,) each, in place.

        `states` are numbers of states, layer -> (replicas, size).
        """


class Ladders:
    """Ladders of replicas for each row of a target.

    `moves` are those of pairs of ladders, an even number of which is then needed.

    Attributes
    ----------
    betas : (rungs,), ascending from 0 to 1.
    at : (rows, ladders, rungs), the number of the replica on each rung.
    chains : the states of all replicas.
    accepted : (rows, ladders), share of the last swaps that were accepted.
    highest : (rows,), largest log density at beta = 1 of all states so far.
    together : the number of ladders that are one chain: 2 with moves, else 1.
    """

    def __init__(
        self,
        target: Target,
        betas: Array,
        ladders: int,
        kernel: Kernel,
        rng: np.random.Generator,
        cover: Cover | None = None,
        moves: Moves | None = None,
    ) -> None:
        self.target, self.betas, self.rng, self.sweeps = target, betas, rng, 0
        self.kernel, self.cover, count = kernel, cover, len(betas)
        self.moves, self.together = moves, 1 if moves is None else 2
        rows = np.repeat(np.arange(target.rows), ladders * count)
        many = target.take(rows).at(np.tile(betas, target.rows * ladders))
        self.at = np.arange(len(rows)).reshape(target.rows, ladders, count)
        self.chains: Chains
        self.log_z_at_0 = target.log_z_at_0
        if cover is None:
            self.chains = make_chains(many, kernel, many.draw_at_0(rng), rng)
        else:
            over = CoverChains(cover_form(target, cover), rows, many.beta, kernel, rng)
            # They have the members of chains that ladders of a question use.
            self.chains, self.log_z_at_0 = cast(Chains, over), over.log_z_at_0
        self.came_from_0 = np.zeros(len(rows), dtype=bool)
        self.accepted = np.zeros(self.at.shape[:2])
        self.highest = np.full(target.rows, -np.inf)
        # The log densities at beta = 1 of all replicas, which swaps do not change.
        self.at_1 = np.full(len(rows), np.nan)
        self.forget()

    def forget(self, coming: int = 0) -> None:
        """Set all running sums to 0; the sums for log Z then cover the next `coming` sweeps."""
        rows, ladders, count = self.at.shape
        self.sweeps = 0
        self.rejected, self.proposed = np.zeros(count - 1), np.zeros(count - 1)
        self.trips = np.zeros(rows)
        # The number of sweeps at beta = 1 of each replica in its present tour; then the sum of this
        # number over the tours of a row that have ended, and the sum of its squares.
        self.on_tour = np.zeros(self.at.size)
        self.toured, self.squares = np.zeros(rows), np.zeros(rows)
        self.stepping_stones = SteppingStones(
            self.betas, rows, ladders // self.together, self.together * coming
        )

    def step(self) -> None:
        """Sweep all replicas, then propose to swap the even pairs, or every second time the odd."""
        path, every = self._explored()
        with np.errstate(invalid="ignore"):
            self.at_1 = path + every
        at_1 = self.at_1.reshape(len(self.highest), -1)
        np.fmax(self.highest, np.fmax.reduce(at_1, axis=1), out=self.highest)
        power = every[self.at]
        for first in range(self.together):
            self.stepping_stones.add(power[:, first :: self.together])
        self._swap(power, self.sweeps % 2)
        self.sweeps += 1

    def _explored(self) -> tuple[Array, Array]:
        """Sweep all replicas and move pairs of them; return their path."""
        if self.moves is None:
            return self.chains.sweep_path()
        self.chains.sweep(1)
        # States at beta = 0 are drawn anew in each sweep.
        pairs = self.at[..., int(self.betas[0] == 0.0) :]
        states = self.chains.states()
        self.moves.swap(states, pairs[:, 0::2].ravel(), pairs[:, 1::2].ravel(), self.rng)
        self.chains.place_states(states)
        return self.chains.path()

    def _swap(self, power: Array, parity: int) -> None:
        """Propose to swap the pairs of one parity; add up the acceptance of all pairs."""
        with np.errstate(invalid="ignore"):
            log_ratio = (self.betas[1:] - self.betas[:-1]) * (power[..., :-1] - power[..., 1:])
        log_ratio[np.isnan(log_ratio)] = 0.0
        accept = np.exp(np.minimum(log_ratio, 0.0))
        self.rejected += (1 - accept).mean(axis=(0, 1))
        self.proposed += 1.0
        lower, upper = self.at[..., parity:-1:2], self.at[..., parity + 1 :: 2]
        swap = self.rng.random(lower.shape) < accept[..., parity::2]
        if swap.size:
            self.accepted = swap.mean(axis=-1)
        lower[...], upper[...] = np.where(swap, upper, lower), np.where(swap, lower, upper)
        self.chains.beta[self.at] = self.betas
        self._count_tours()

    def _count_tours(self) -> None:
        """Count round trips, on arrival at beta = 1, and sweeps at beta = 1, tour by tour."""
        bottom, top = self.at[..., 0], self.at[..., -1]
        if len(self.betas) == 1:
            return
        self.came_from_0[bottom] = True
        self.trips += self.came_from_0[top].sum(axis=1)
        self.came_from_0[top] = False
        self.on_tour[top] += 1.0
        ended = self.on_tour[bottom]
        self.toured += ended.sum(axis=1)
        self.squares += np.square(ended).sum(axis=1)
        self.on_tour[bottom] = 0.0

    def tours(self) -> Array:
        """Return the effective number (rows,) of tours from which the states at beta = 1 come."""
        cut_off = np.square(self.on_tour[self.at]).sum(axis=(1, 2))
        found = self.toured**2 / np.maximum(self.squares + cut_off, 1.0)
        return np.asarray(found / self.together)

    def top(self, first: int = 0) -> Array:
        """Return the numbers of the replicas at beta = 1, (rows * ladders / together,).

        They belong to the ladders number `first` of those that are one chain.
        """
        return self.at[:, first :: self.together, -1].ravel()

    def drawn(self, first: int = 0) -> tuple[States, Array]:
        """Return states at beta = 1, layer -> (rows * ladders / together, width), and energies.

        They are those of `top`, after a step.
        """
        top = self.top(first)
        x = self.chains.values(top)
        if self.cover is None:
            return x, np.asarray(-self.at_1[top])
        # The weight of a state of the cover is a sum over all other units.
        rows = np.repeat(np.arange(self.target.rows), len(top) // self.target.rows)
        return x, -self.target.take(rows).log_density(x)

    @property
    def barrier(self) -> float:
        """The estimated communication barrier: the sum of the rejections of all pairs."""
        return float((self.rejected / np.maximum(self.proposed, 1.0)).sum())

    def with_rungs(self, count: int) -> Ladders:
        """Return ladders of another number of rungs, spaced alike, from the nearest replicas."""
        place = np.linspace(0.0, len(self.betas) - 1.0, count)
        betas = np.interp(place, np.arange(len(self.betas)), self.betas)
        own = self.at.shape[1], self.kernel, self.rng, self.cover, self.moves
        new = Ladders(self.target, betas, *own)
        nearest = self.at[..., np.round(place).astype(np.int64)].ravel()
        new.chains.place_at(self.chains.values(nearest))
        return new

    def adapt(self) -> None:
        """Move the rungs so that all pairs reject equally often (Syed et al. 2022); reset all sums.

        The cumulative rejection, as a function of beta, is the communication barrier; its inverse
        at even spacing gives the rungs.
        """
        if len(self.betas) > 2:
            rate = np.maximum(self.rejected / np.maximum(self.proposed, 1.0), 1e-4)
            barrier = np.concatenate(([0.0], np.cumsum(rate)))
            self.betas = np.interp(
                np.linspace(0.0, barrier[-1], len(self.betas)), barrier, self.betas
            )
            self.betas[0], self.betas[-1] = 0.0, 1.0
            self.chains.beta[self.at] = self.betas
        self.forget()

    def log_z(self) -> FromSteppingStones:
        """Return log Z of all rows by stepping stones."""
        found = self.stepping_stones.estimate(self.log_z_at_0())
        log_z, error, ends = with_rounding(self.target, found.log_z, found.error, found.interval)
        return replace(found, log_z=log_z, error=error, interval=ends)

    def state(self) -> dict[str, Any]:
        """Return a snapshot of replicas and rungs, without sums, by names that no layer has."""
        return {
            **self.chains.values(),
            "/betas": self.betas,
            "/at": self.at,
            "/sweeps": self.sweeps,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self.chains.place_at(state)
        self.betas, self.at = np.array(state["/betas"]), np.array(state["/at"])
        self.sweeps = int(state["/sweeps"])
        self.chains.beta[self.at] = self.betas

    def stats(self) -> dict[str, Any]:
        """Return statistics of the ladders and of the round trips of replicas."""
        sweeps = max(self.sweeps, 1)
        return {
            "betas": self.betas,
            "swap_rejection": self.rejected / np.maximum(self.proposed, 1.0),
            "round_trips": self.trips,
            "tours": self.tours(),
            "round_trip_rate": self.trips / (sweeps * self.at.shape[1]),
        }
