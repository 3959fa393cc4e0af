"""Sums over draws that all samplers share: answers, traces for diagnostics, and kept samples.

A sampler adds draw t of all chains at once. The draws of all units would not fit into memory, so
that the collector keeps sums over draws, and the series of each unit as at most TRACE batch means,
whose mean and MCSE are the mean and MCSE of the draws (see convergence). Importance weights of mean
1 enter all sums; the series then are the ones of the weighted means.

Arrays of chains are flat, (rows * chains, width), with the chains of a row of evidence together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.graph.couplings import only_parameters
from pgmengine.graph.structure import Structure
from pgmengine.graph.target import Target
from pgmengine.infer.answers import add_gradients, public, squeeze
from pgmengine.infer.axes import Axis
from pgmengine.infer.convergence import chain_statistics
from pgmengine.infer.prepared import Method
from pgmengine.infer.result import Status
from pgmengine.infer.sampling.trust import unmixed_notes
from pgmengine.units import Unit

# A smaller relative variance is due to rounding.
ROUNDING = 1e-13

# Number of batch means as which a longer series is kept.
TRACE = 200

# The quantities that draws of a posterior give.
OF_DRAWS = frozenset({"marginals", "samples", "pairs", "gradient"})

# The statistics of chains.
OF_CHAINS: dict[str, tuple[Axis, ...]] = {
    "ess": (Axis.ROW, Axis.UNIT),
    "rhat": (Axis.ROW, Axis.UNIT),
    "mcse": (Axis.ROW, Axis.UNIT),
    "energy_ess": (Axis.ROW,),
    "energy_rhat": (Axis.ROW,),
    "energy_mcse": (Axis.ROW,),
    "energy": (Axis.CHAIN, Axis.DRAW, Axis.ROW),
}


class Sampler(Method):
    """Base of the methods whose answers are draws of chains, judged by R-hat up to `rhat_limit`."""

    gives = OF_DRAWS
    source = "draws give"
    statistics = OF_CHAINS

    rhat_limit: float

    def unmixed(self, stats: Mapping[str, Any], structure: Structure) -> tuple[str, ...]:
        """Return a line for everything that has not mixed."""
        return unmixed_notes(stats, self.rhat_limit, structure)


def kept_bytes(target: Target, wanted: tuple[str, ...], chains: int, draws: int) -> float:
    """Return the memory of a collector in bytes."""
    width = sum(layer.width for layer in target.structure.layers.values())
    kept = draws if "samples" in wanted else 0
    return 8.0 * target.rows * chains * width * (kept + min(draws, TRACE) + 8)


@dataclass(eq=False)
class Draws:
    """The draws of several chains for each row of evidence, as sums.

    Attributes
    ----------
    target : one row for each chain, the chains of a row of evidence together.
    wanted : the wanted quantities.
    chains : number of chains for each row of evidence.
    draws : number of draws of each chain.
    kept : the states of each draw, if samples are wanted.
    gradient : sum of the gradients of all draws, if wanted.
    """

    target: Target
    wanted: tuple[str, ...]
    chains: int
    draws: int
    kept: list[States] = field(default_factory=list)
    gradient: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        s = self.target.structure
        self.batches = min(self.draws, TRACE)
        rows = self.target.rows
        self.trace = {
            n: np.zeros((self.batches, rows, layer.width)) for n, layer in s.layers.items()
        }
        self.counts = np.bincount(self._batch(np.arange(self.draws)), minlength=self.batches)
        self.weight = np.zeros((self.batches, rows))
        self.energy = np.zeros((self.draws, rows))
        self.prob = {
            n: np.zeros((rows, layer.size, len(layer.unit.support)))
            for n, layer in s.layers.items()
            if layer.unit.support is not None and not _by_mean(layer.unit)
        }
        self.square = {
            n: np.zeros((rows, layer.width))
            for n, layer in s.layers.items()
            if layer.unit.support is None
        }
        self.pairs = {
            c.key: np.zeros((rows // self.chains, s.layers[c.a].width, s.layers[c.b].width))
            for c in s.couplings
            if "pairs" in self.wanted
        }

    def _batch(self, t: Any) -> Any:
        """Return the batch of draw t; of an int an int, of an array an array."""
        return t * self.batches // self.draws

    def add(self, t: int, x: States, energy: Array, weight: Array | None = None) -> None:
        """Add draw number t of all chains.

        Parameters
        ----------
        t : number of the draw.
        x : states, layer -> (rows * chains, width).
        energy : (rows * chains,), minus the log density.
        weight : importance weights (rows * chains,), of mean 1 over all draws of a row.
        """
        weighed = (
            x if weight is None else {name: weight[:, None] * value for name, value in x.items()}
        )
        for name, value in weighed.items():
            self.trace[name][self._batch(t)] += value
        self.weight[self._batch(t)] += 1.0 if weight is None else weight
        self.energy[t] = energy
        for name, total in self.square.items():
            total += weighed[name] * x[name]
        for name, count in self.prob.items():
            states = self.target.structure.layers[name].one_hot(x[name])
            count += states if weight is None else weight[:, None, None] * states
        for c in self.target.structure.couplings:
            if c.key in self.pairs:
                xa, xb = (v.reshape(-1, self.chains, v.shape[-1]) for v in (weighed[c.a], x[c.b]))
                self.pairs[c.key] += np.einsum("rci,rcj->rij", xa, xb)
        if "gradient" in self.wanted:
            self.gradient = add_gradients(self.gradient, self.target.gradient(x, weight))
        if "samples" in self.wanted:
            self.kept.append(x)

    def collected(self) -> dict[str, Any]:
        """Return all sums without the target, to be sent from a worker."""
        return {
            "trace": self.trace,
            "energy": self.energy,
            "weight": self.weight,
            "prob": self.prob,
            "square": self.square,
            "pairs": self.pairs,
            "gradient": self.gradient,
            "kept": self.kept,
        }

    def put(self, found: list[dict[str, Any]]) -> None:
        """Take over sums of all chains, or of groups of the chains of a single row in order.

        Groups have no pairs and no gradient.
        """
        self.trace = _side_by_side([part["trace"] for part in found], axis=1)
        self.energy = np.concatenate([part["energy"] for part in found], axis=1)
        self.weight = np.concatenate([part["weight"] for part in found], axis=1)
        self.prob = _side_by_side([part["prob"] for part in found], axis=0)
        self.square = _side_by_side([part["square"] for part in found], axis=0)
        self.pairs, self.gradient = found[0]["pairs"], found[0]["gradient"]
        self.kept = [
            _side_by_side(list(x), axis=0)
            for x in zip(*(part["kept"] for part in found), strict=True)
        ]

    def answers(self, target: Target) -> dict[str, Any]:
        """Return the wanted answers: means over draws and chains, and samples."""
        s, draws = target.structure, self.draws * self.chains
        out: dict[str, Any] = {}
        if "marginals" in self.wanted:
            mean = {n: self._mean(n, target) for n in self.trace}
            out["mean"] = public(target, mean)
            out["prob"] = squeeze(
                target,
                {
                    n: self._prob(n, mean[n], target)
                    for n, layer in s.layers.items()
                    if layer.unit.support is not None
                },
            )
        if "pairs" in self.wanted:
            out["pairs"] = squeeze(
                target,
                {
                    c.key: only_parameters(c, target.model.weight(c), self.pairs[c.key] / draws)
                    for c in s.couplings
                },
            )
        if "gradient" in self.wanted and self.gradient is not None:
            out["gradient"] = {k: v / draws for k, v in self.gradient.items()}
        if "samples" in self.wanted:
            out["samples"] = {n: self._samples(n, target) for n in s.layers}
        return out

    def judged(
        self, target: Target, limit: float
    ) -> tuple[dict[str, Any], Status, tuple[str, ...]]:
        """Return statistics, status and warnings: whether the chains agree.

        An infinite limit of R-hat leaves the diagnostics out.
        """
        stats: dict[str, Any] = {}
        if limit < math.inf:
            mean = {n: self._mean(n, target) for n in self.trace}
            variance = {n: self._variance(n, mean[n], target) for n in self.trace}
            series = {n: self._series(n, mean[n]) for n in self.trace}
            stats = chain_statistics(series, variance, self.energy, target, self.chains)
        stats["energy"] = self.energies(target)
        note = unmixed_notes(stats, limit, target.structure)
        return stats, Status.NOT_MIXED if note else Status.OK, note

    def energies(self, target: Target) -> Array:
        """Return the energies of the draws, (chains, draws, rows)."""
        return self.energy.reshape(self.draws, target.rows, self.chains).transpose(2, 0, 1)

    def _mean(self, name: str, target: Target) -> Array:
        """Return the mean of all draws of a row, (rows, width)."""
        by_chain = self.trace[name].sum(axis=0).reshape(target.rows, self.chains, -1)
        return np.asarray(by_chain.sum(axis=1) / (self.draws * self.chains))

    def _series(self, name: str, mean: Array) -> Array:
        """Return batch means (batches, rows * chains, width) with the mean and MCSE of the answer.

        The mean of draws with importance weights w is a ratio, sum of w x by sum of w; to first
        order it varies as the mean of w x - (w - 1) mean, w of mean 1. Without importance weights
        these are the draws themselves.
        """
        beyond = (self.weight - self.counts[:, None])[:, :, None]
        shift = np.repeat(mean, self.chains, axis=0) * beyond if beyond.any() else 0.0
        return (self.trace[name] - shift) / self.counts[:, None, None]

    def _variance(self, name: str, mean: Array, target: Target) -> Array:
        """Return the variance of all draws of a row, (rows, width); 0 where all are the same."""
        layer = target.structure.layers[name]
        if layer.unit.support is None:
            by_chain = self.square[name].reshape(target.rows, self.chains, -1)
            square = by_chain.sum(axis=1) / (self.draws * self.chains)
        else:
            support = layer.unit.support.reshape(-1, layer.unit.width)
            square = (self._prob(name, mean, target) @ support**2).reshape(mean.shape)
        found = square - mean**2
        return np.where(found > ROUNDING * (1.0 + square), found, 0.0)

    def _prob(self, name: str, mean: Array, target: Target) -> Array:
        """Return the probabilities of states, (rows, size, states)."""
        layer = target.structure.layers[name]
        assert layer.unit.support is not None
        if layer.unit.one_hot:
            return layer.shaped(mean)
        if name in self.prob:
            total = self.prob[name].reshape(target.rows, self.chains, *self.prob[name].shape[1:])
            return np.asarray(total.sum(axis=1) / (self.draws * self.chains))
        low, high = layer.unit.support
        upper = (mean - low) / (high - low)
        return np.stack((1 - upper, upper), axis=-1)

    def _samples(self, name: str, target: Target) -> Array:
        """Return the samples, (draws * chains, rows, size[, k]), the draws of a chain together."""
        layer = target.structure.layers[name]
        stacked = np.stack([x[name] for x in self.kept])
        split = stacked.reshape(self.draws, target.rows, self.chains, -1)
        return layer.shaped(split.transpose(2, 0, 1, 3).reshape(-1, target.rows, layer.width))


def _by_mean(unit: Unit) -> bool:
    """Return whether the mean of a finite unit gives the probabilities of its states."""
    assert unit.support is not None
    return unit.one_hot or (unit.width == 1 and len(unit.support) == 2)


def _side_by_side(parts: list[dict[str, Array]], axis: int) -> dict[str, Array]:
    """Return the arrays of all parts, concatenated by name."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts], axis=axis) for name in parts[0]}
