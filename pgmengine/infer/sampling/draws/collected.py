"""Sums over draws that all samplers share: answers, traces for diagnostics, and kept samples.

A sampler adds draw t of all chains at once. The draws of all units would not fit into memory. The
collector therefore keeps sums over draws, and for each unit a series of at most MAX_TRACE_BATCHES
batch means, whose mean and MCSE are the mean and MCSE of the draws (diagnostics/convergence.py).
Importance weights have mean 1 and enter all sums; the series are then those of the weighted means.

Arrays of chains are flat, (rows * chains, width), with the chains of a row of evidence together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.engine.chains import Chains
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.convergence import chain_statistics
from pgmengine.infer.diagnostics.trust import unmixed_notes
from pgmengine.infer.results.axes import add_gradients, public, squeeze
from pgmengine.infer.results.result import Status
from pgmengine.infer.sampling.draws.rao_blackwell import SomeDraws, with_gaps
from pgmengine.model.couplings import only_parameters
from pgmengine.model.structure import Structure
from pgmengine.units import Unit

# A relative variance below this is due to rounding.
VARIANCE_ROUNDING = 1e-13

# The largest number of batch means in the series of a unit; longer series are averaged.
MAX_TRACE_BATCHES = 200

# The largest and the smallest number of draws that each chain keeps for the comparison with exact
# conditionals (rao_blackwell.py). Between them, one chain of each row keeps at most
# MAX_COMPARED_NUMBERS numbers.
MAX_COMPARED_DRAWS, MIN_COMPARED_DRAWS, MAX_COMPARED_NUMBERS = 256, 64, 2**22


@dataclass(eq=False)
class Draws:
    """The draws of several chains for each row of evidence, as sums; `Draws.none` has none yet.

    Attributes
    ----------
    target : one row for each chain, the chains of a row of evidence together.
    wanted : the wanted quantities.
    chains : number of chains for each row of evidence.
    draws : number of draws of each chain.
    trace : layer -> (batches, rows * chains, width), sums over the draws of a batch.
    weight : (batches, rows * chains), sums of the importance weights.
    energy : (draws, rows * chains).
    prob : layer -> (rows * chains, size, K), counts of states, where means do not determine them.
    square : layer -> (rows * chains, width), sums of squares of units with infinitely many values.
    pairs : coupling -> (rows, width of a, width of b), sums of products, if wanted.
    picked : the numbers of the draws that are kept for the comparison with exact conditionals.
    kept : layer -> (chains, draws, rows, width), the states of each draw, if samples are wanted.
    some : the states of the picked draws as bytes (see `small`), with their importance weights.
    gradient : sum of the gradients of all draws, if wanted.
    held : layer -> (rows * chains, size), counts of the draws in the second state, for units with
        two states; they are added to `trace` at the end of a batch.
    holding : number of draws in `held`.
    """

    target: Target
    wanted: tuple[str, ...]
    chains: int
    draws: int
    trace: States
    weight: Array
    energy: Array
    prob: dict[str, Array]
    square: States
    pairs: dict[str, Array]
    picked: frozenset[int]
    kept: States
    some: list[tuple[States, Array]] = field(default_factory=list)
    gradient: dict[str, Any] | None = None
    held: dict[str, Array] = field(default_factory=dict)
    holding: int = 0

    @classmethod
    def none(
        cls, target: Target, wanted: tuple[str, ...], chains: int, draws: int, examined: bool = True
    ) -> Draws:
        """Return sums over no draws; energies and kept states are NaN until they are added.

        `examined` says whether some draws are kept for the comparison with exact conditionals.
        """
        layers, many, batches = target.structure.layers, target.rows, min(draws, MAX_TRACE_BATCHES)
        rows, pairs = many // chains, [c for c in target.structure.couplings if "pairs" in wanted]
        counts = target.structure.state_counts
        kept = layers if "samples" in wanted else {}
        some = compared(target.structure, rows, draws) if examined else 0
        # The picked draws are evenly spaced, and the last one is among them.
        picked = ((np.arange(some) + 1) * draws // max(some, 1) - 1).tolist()
        return cls(
            target,
            wanted,
            chains,
            draws,
            {n: np.zeros((batches, many, x.width)) for n, x in layers.items()},
            np.zeros((batches, many)),
            np.full((draws, many), np.nan),
            {
                n: np.zeros((many, x.size, counts[n]))
                for n, x in layers.items()
                if counts[n] and not by_mean(x.unit)
            },
            {n: np.zeros((many, x.width)) for n, x in layers.items() if not counts[n]},
            {c.key: np.zeros((rows, layers[c.a].width, layers[c.b].width)) for c in pairs},
            frozenset(picked),
            {n: np.full((chains, draws, rows, layers[n].width), np.nan) for n in kept},
        )

    @classmethod
    def joined(cls, target: Target, parts: list[Draws]) -> Draws:
        """Return the draws of all chains of a single row from groups of its chains, in order.

        A group of chains has no sums of pairs and no gradient.
        """
        if len(parts) == 1:
            return replace(parts[0], target=target)
        return replace(
            parts[0],
            target=target,
            chains=sum(part.chains for part in parts),
            trace=_side_by_side([part.trace for part in parts], axis=1),
            weight=np.concatenate([part.weight for part in parts], axis=1),
            energy=np.concatenate([part.energy for part in parts], axis=1),
            prob=_side_by_side([part.prob for part in parts], axis=0),
            square=_side_by_side([part.square for part in parts], axis=0),
            kept=_side_by_side([part.kept for part in parts], axis=0),
            some=[
                (_side_by_side([x for x, _ in each], axis=0), np.concatenate([w for _, w in each]))
                for each in zip(*(part.some for part in parts), strict=True)
            ],
        )

    def detached(self) -> Draws:
        """Return the draws without their target, so that a worker sends less."""
        return replace(self, target=cast(Target, None))

    @cached_property
    def counts(self) -> Array:
        """The number of draws in each batch."""
        return np.bincount(self._batch(np.arange(self.draws)), minlength=len(self.weight))

    def _batch(self, t: Any) -> Any:
        """Return the number of the batch of draw t, elementwise if t is an array."""
        return t * len(self.weight) // self.draws

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
            for name, kept in self.kept.items():
                kept[:, t] = x[name].reshape(-1, self.chains, kept.shape[3]).swapaxes(0, 1)
        if t in self.picked:
            here = np.ones(len(energy)) if weight is None else weight
            self.some.append((small(self.target.structure, x), here))

    def add_now(self, t: int, chains: Chains) -> None:
        """Add draw number t, the present states of all chains.

        If only sums over two-valued units are needed, their states are counted in bytes, and the
        counts are added to the sums at the end of a batch. This takes a tenth of the time.
        """
        states = {} if self._more_than_sums else chains.two_valued()
        if len(states) < len(self.trace):
            self.add(t, chains.values(), -chains.log_density())
            return
        batch, energy = self._batch(t), -chains.log_density()
        for name, state in states.items():
            if self.holding:
                self.held[name] += state
            else:
                self.held[name] = state.copy()
        self.holding += 1
        self.weight[batch] += 1.0
        self.energy[t] = energy
        if t in self.picked:
            copied = {name: state.copy() for name, state in states.items()}
            self.some.append((copied, np.ones(len(energy))))
        last = t + 1 == self.draws or self._batch(t + 1) != batch
        if last or self.holding == np.iinfo(np.uint8).max:
            for name, count in self.held.items():
                low, high = cast(Array, self.target.structure.layers[name].unit.support)
                # Most units have the values 0 and 1, whose counts are the sums.
                zero_one = (low, high) == (0, 1)
                sums = count if zero_one else self.holding * low + (high - low) * count
                self.trace[name][batch] += sums
            self.holding = 0

    @cached_property
    def _more_than_sums(self) -> bool:
        """True if more is collected than sums, energies and the draws for the comparison."""
        return bool(self.square or self.prob or self.pairs or self.kept) or (
            "gradient" in self.wanted
        )

    def answers(self, target: Target) -> dict[str, Any]:
        """Return the wanted answers; the means over draws and chains are always among them."""
        s, draws = target.structure, self.draws * self.chains
        # Means are always needed, because exact means check the chains (sure_facts.py).
        out: dict[str, Any] = {"mean": public(target, self.mean)}
        if "marginals" in self.wanted:
            prob = {n: self._prob(n, target) for n, count in s.state_counts.items() if count}
            out["prob"] = squeeze(target, prob)
        if "pairs" in self.wanted:
            mean = {c: self.pairs[c.key] / draws for c in s.couplings}
            pairs = {c.key: only_parameters(c, target.model.weight(c), x) for c, x in mean.items()}
            out["pairs"] = squeeze(target, pairs)
        if "gradient" in self.wanted and self.gradient is not None:
            out["gradient"] = {k: v / draws for k, v in self.gradient.items()}
        if "samples" in self.wanted:
            out["samples"] = {n: self._samples(n, target) for n in s.layers}
        return out

    def judged(
        self,
        target: Target,
        limit: float,
        seconds: float,
        method: str,
        thin: int = 1,
        most: Array | float = math.inf,
    ) -> tuple[dict[str, Any], Status, tuple[str, ...]]:
        """Return statistics, status and warnings: whether the chains agree.

        With an infinite limit of R-hat there are no diagnostics. `seconds` is the planned time of
        the answer, `method` the name of the method, and `thin` the number of sweeps for each draw.
        `most` (rows,) is the largest number of independent draws that the moves of the chains
        allow, if they are counted.
        """
        stats: dict[str, Any] = {}
        missed: tuple[str, ...] = ()
        if limit < math.inf:
            variance = {n: self._variance(n, target) for n in self.mean}
            stats = chain_statistics(self.series, variance, self.energy, target, self.chains, most)
            # Impossible draws have no conditional; another warning reports them.
            if self.some and np.isfinite(self.energy).all():
                stats["mcse"], missed = with_gaps(self._some(target), self.mean, stats, seconds)
        stats["energy"] = self.energies(target)
        note = unmixed_notes(stats, limit, target.structure, method, thin) + missed
        return stats, Status.NOT_MIXED if note else Status.OK, note

    def energies(self, target: Target) -> Array:
        """Return the energies of the draws, (chains, draws, rows)."""
        return self.energy.reshape(self.draws, target.rows, self.chains).transpose(2, 0, 1)

    def _some(self, target: Target) -> SomeDraws:
        """Return some draws to compare with exact conditionals, the draws of a chain together."""

        def by_row(each: list[Array]) -> Array:
            split = np.stack(each).reshape(len(each), target.rows, self.chains, -1)
            return split.transpose(1, 2, 0, 3).reshape(target.rows, self.chains * len(each), -1)

        x = {name: by_row([x[name] for x, _ in self.some]) for name in self.mean}
        return SomeDraws(target, x, by_row([weight for _, weight in self.some])[:, :, 0])

    @cached_property
    def mean(self) -> States:
        """The mean of all draws of a row, layer -> (rows, width)."""
        total = {name: sums.sum(axis=0) for name, sums in self.trace.items()}
        return {
            name: _in_order(by_chain.reshape(-1, self.chains, by_chain.shape[1]))
            / self.total[:, None]
            for name, by_chain in total.items()
        }

    @cached_property
    def total(self) -> Array:
        """The sum of the importance weights of all draws of a row, (rows,)."""
        return _in_order(self.weight.sum(axis=0).reshape(-1, self.chains))

    @cached_property
    def series(self) -> States:
        """Batch means, layer -> (batches, rows * chains, width), with mean and MCSE of the answer.

        The mean of draws with importance weights w is the ratio of the sum of w x to the sum of w.
        To first order it varies as the mean of w x - (w - 1) mean, where w has mean 1. Without
        importance weights these are the draws themselves. The series overwrite the sums in `trace`
        to save memory, because these are often the largest arrays of an answer.
        """
        beyond, mean = self.weight - self.counts[:, None], self.mean
        trace, self.trace = self.trace, {}
        for name, sums in trace.items():
            if beyond.any():
                each = np.repeat(mean[name], self.chains, axis=0)
                for batch, more in zip(sums, beyond, strict=True):
                    batch -= each * more[:, None]
            sums /= self.counts[:, None, None]
        return trace

    def _variance(self, name: str, target: Target) -> Array:
        """Return the variance of all draws of a row, (rows, width); 0 where all are the same."""
        layer, mean = target.structure.layers[name], self.mean[name]
        if layer.unit.support is None:
            by_chain = self.square[name].reshape(target.rows, self.chains, -1)
            square = by_chain.sum(axis=1) / (self.draws * self.chains)
        else:
            support = layer.unit.support.reshape(-1, layer.unit.width)
            square = (self._prob(name, target) @ support**2).reshape(mean.shape)
        found = square - mean**2
        return np.where(found > VARIANCE_ROUNDING * (1.0 + square), found, 0.0)

    def _prob(self, name: str, target: Target) -> Array:
        """Return the probabilities of states, (rows, size, states)."""
        layer, mean = target.structure.layers[name], self.mean[name]
        assert layer.unit.support is not None
        if layer.unit.one_hot:
            return layer.shaped(mean)
        if name in self.prob:
            total = self.prob[name].reshape(target.rows, self.chains, *self.prob[name].shape[1:])
            return _in_order(total) / self.total[:, None, None]
        low, high = layer.unit.support
        upper = (mean - low) / (high - low)
        return np.stack((1 - upper, upper), axis=-1)

    def _samples(self, name: str, target: Target) -> Array:
        """Return the samples, (draws * chains, rows, size[, k]), the draws of a chain together."""
        layer, kept = target.structure.layers[name], self.kept[name]
        return layer.shaped(kept.reshape(-1, target.rows, layer.width))


def _in_order(parts: Array) -> Array:
    """Return sums over axis 1 in order: a weighted sum of ones is then the sum of the weights."""
    total: Array = parts.cumsum(axis=1)[:, -1]
    return total


def compared(structure: Structure, rows: int, draws: int) -> int:
    """Return the number of draws of a chain that are compared with exact conditionals."""
    units = structure.units * rows
    return min(
        draws, max(MIN_COMPARED_DRAWS, min(MAX_COMPARED_DRAWS, MAX_COMPARED_NUMBERS // units))
    )


def small(structure: Structure, x: States) -> States:
    """Return states in one byte for each finite unit; `whole` turns them back into values."""
    return {
        name: value
        if (support := structure.layers[name].unit.support) is None
        else structure.layers[name].states(value).astype(np.min_scalar_type(len(support) - 1))
        for name, value in x.items()
    }


def whole(structure: Structure, x: States) -> States:
    """Return flat values (..., width) of states that `small` has packed."""
    return {
        name: value
        if (support := structure.layers[name].unit.support) is None
        else structure.layers[name].flat(support.take(value, axis=0))
        for name, value in x.items()
    }


def by_mean(unit: Unit) -> bool:
    """Return whether the mean of a finite unit gives the probabilities of its states."""
    assert unit.support is not None
    return unit.one_hot or (unit.width == 1 and len(unit.support) == 2)


def _side_by_side(parts: list[dict[str, Array]], axis: int) -> dict[str, Array]:
    """Return the arrays of all parts, concatenated by name."""
    return {name: np.concatenate([part[name] for part in parts], axis=axis) for name in parts[0]}
