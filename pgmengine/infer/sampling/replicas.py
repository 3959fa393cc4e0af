"""Ladders of replicas that swap places, and log Z from their log densities.

With log p_beta(x) = path(x) + beta * power(x) and S = power, one step of a ladder is

    x_k ~ kernel that leaves p_(beta_k) invariant, for each rung k; drawn exactly at beta_0 = 0
    for the pairs k, k + 1 with k even, or in the next step odd:
        log_ratio = (beta_(k+1) - beta_k) (S(x_k) - S(x_(k+1)))
        swap x_k and x_(k+1) with probability min(1, exp(log_ratio))

Even and odd pairs in turn make states travel without turning back (Okabe et al. 2001; Syed et al.
2022). A replica keeps its memory and changes its beta: `at` has the replica on each rung. During
the warm-up the rungs are moved between rounds of doubling length, so that all pairs reject equally
often. Then they are fixed, and the states at beta = 1 are draws.

log Z comes from stepping stones (Xie et al. 2011). For a step d = beta_(k+1) - beta_k,

    log Z_(k+1) - log Z_k = log E_k exp(d S)                                    from below
                          = -log E_(k+1) exp(-d S)                              from above
                          = log E_k exp(d S / 2) - log E_(k+1) exp(-d S / 2)    in the middle

of which the first is low on average, the second high, and the third, the geometric bridge of Meng
and Wong (1996), varies least. The tests compare draws with exact answers, swaps with invariance by
chi-square, and log Z with enumeration.

ParallelTempering (parallel_tempering.py) answers questions by these ladders, and the trainer PT
learns by them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array
from pgmengine.engine.chains import Chains, make_chains
from pgmengine.graph.target import Target
from pgmengine.infer.sampling.trust import BATCHES, interval
from pgmengine.protocols import Kernel

# Shares of a step that stepping stones take: from the lower rung if positive, else from the upper.
STONES = (1.0, -1.0, 0.5, -0.5)


class Ladders:
    """Ladders of replicas for each row of a target.

    Attributes
    ----------
    betas : (rungs,), ascending from 0 to 1.
    at : (rows, ladders, rungs), the number of the replica on each rung.
    chains : the states of all replicas.
    accepted : (rows, ladders), share of the last swaps that were accepted.
    """

    def __init__(
        self, target: Target, betas: Array, ladders: int, kernel: Kernel, rng: np.random.Generator
    ) -> None:
        self.target, self.betas, self.rng, self.sweeps = target, betas, rng, 0
        count = len(betas)
        rows = np.repeat(np.arange(target.rows), ladders * count)
        many = target.take(rows).at(np.tile(betas, target.rows * ladders))
        self.at = np.arange(len(rows)).reshape(target.rows, ladders, count)
        self.chains: Chains = make_chains(many, kernel, many.draw_at_0(rng), rng)
        self.came_from_0 = np.zeros(len(rows), dtype=bool)
        self.accepted = np.zeros(self.at.shape[:2])
        self.forget()

    def forget(self, coming: int = 0) -> None:
        """Start all running sums again, with the sums of log Z over the next `coming` sweeps.

        These are kept in BATCHES parts, for standard errors.
        """
        rows, ladders, count = self.at.shape
        self.sweeps, self.coming = 0, coming
        self.rejected, self.proposed = np.zeros(count - 1), np.zeros(count - 1)
        self.trips = np.zeros(rows)
        self.stones = np.full(
            (len(STONES), min(BATCHES, coming), rows, ladders, count - 1), -np.inf
        )

    def step(self) -> None:
        """Sweep all replicas, then propose to swap the even pairs, or in the next step the odd."""
        power = self.chains.sweep_path()[1][self.at]
        if self.sweeps < self.coming:
            self._add_stones(power)
        self._swap(power, self.sweeps % 2)
        self.sweeps += 1

    def _add_stones(self, power: Array) -> None:
        """Add exp(share * step * S) of the replicas to the sums of log Z."""
        batch, steps = self.sweeps * self.stones.shape[1] // self.coming, np.diff(self.betas)
        for sums, share in zip(self.stones[:, batch], STONES, strict=True):
            rung = power[..., :-1] if share > 0 else power[..., 1:]
            np.logaddexp(sums, share * steps * rung, out=sums)

    def _swap(self, power: Array, parity: int) -> None:
        """Propose to swap the pairs of one parity; the probabilities of all pairs are summed."""
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
        self._count_trips()

    def _count_trips(self) -> None:
        """Count the replicas that arrived at beta = 1 and were at beta = 0 since they left it."""
        self.came_from_0[self.at[..., 0]] = True
        top = self.at[..., -1]
        if len(self.betas) > 1:
            self.trips += self.came_from_0[top].sum(axis=1)
        self.came_from_0[top] = False

    def top(self) -> Array:
        """Return the numbers of the replicas at beta = 1, (rows * ladders,)."""
        return self.at[..., -1].ravel()

    def energy_at_1(self, chains: Array) -> Array:
        """Return minus the log density at beta = 1 of some replicas."""
        path, power = self.chains.path()
        return np.asarray(-(path + power)[chains])

    def adapt(self) -> None:
        """Move the rungs so that all pairs reject equally often (Syed et al. 2022), and forget.

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

    def log_z(self, target: Target) -> dict[str, Array]:
        """Return log_z, log_z_error and log_z_interval by stepping stones."""
        counts = np.bincount(np.arange(self.sweeps) * self.stones.shape[1] // self.coming)
        found = [_stones(sums - np.log(counts)[:, None, None, None]) for sums in self.stones]
        (up, up_share), (down, down_share), (half_up, one), (half_down, two) = found
        ends = interval(up, _error(up_share), -down, _error(down_share))
        at_0 = target.log_z_at_0()
        return {
            "log_z": at_0 + half_up - half_down,
            "log_z_error": _error(one - two),
            "log_z_interval": at_0[:, None] + np.sort(ends, axis=1),
        }

    def state(self) -> dict[str, Any]:
        """Return a snapshot of replicas and rungs, without the sums, under names no layer has."""
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
        """Return statistics of the ladders and of the travels of replicas."""
        sweeps = max(self.sweeps, 1)
        return {
            "betas": self.betas,
            "swap_rejection": self.rejected / np.maximum(self.proposed, 1.0),
            "round_trips": self.trips,
            "round_trip_rate": self.trips / (sweeps * self.at.shape[1]),
        }


def _stones(log_means: Array) -> tuple[Array, Array]:
    """Return the sum over rungs of log means (rows,), and the shares of the batches in it.

    The log means of each batch and ladder are (batches, rows, ladders, rungs); a share, (rows,
    batches * ladders), is the sum over rungs of mean / total mean: the variation of the sum to
    first order.
    """
    parts = np.moveaxis(log_means, 1, 0)
    parts = parts.reshape(len(parts), -1, parts.shape[3])
    total = log_sum(parts, axis=1) - np.log(parts.shape[1])
    with np.errstate(invalid="ignore"):
        share = np.exp(parts - total[:, None]).sum(axis=2)
    return total.sum(axis=1), share


def _error(share: Array) -> Array:
    """Return the standard error (rows,) of a mean over batches (rows, batches)."""
    many = share.shape[1]
    error = share.std(axis=1, ddof=1) / np.sqrt(many) if many > 1 else np.full(len(share), np.inf)
    return np.asarray(np.nan_to_num(error, nan=np.inf))
