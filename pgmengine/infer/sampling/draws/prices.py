"""Seconds of the work on draws of chains: to collect them, and to judge them."""

from __future__ import annotations

import numpy as np

from pgmengine.engine.cost import NS, US, Price, free_units, state_count
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.convergence import MAX_SERIES_EXAMINED
from pgmengine.infer.sampling.draws.collected import MAX_TRACE_BATCHES, by_mean
from pgmengine.infer.sampling.draws.rao_blackwell import comparing
from pgmengine.model.weights import count

# Series with at most this number of different values are judged by counting, all others by sorting
# (series.h).
MAX_COUNTED_VALUES = 32


def collecting(target: Target, wanted: tuple[str, ...], chains: float, draws: float) -> float:
    """Return the seconds of adding draws of chains (of all rows) to the statistics."""
    s = target.structure
    each = Price(2 * US * len(s.layers), (1 + 2 * ("samples" in wanted)) * NS * s.width)
    for name, layer in s.layers.items():
        if layer.unit.support is not None and not by_mean(layer.unit):
            each += Price(15 * US, 30 * NS * layer.size * state_count(target, name))
    for c in s.couplings:
        if "pairs" in wanted:
            each += Price(20 * US, 0.6 * NS * s.layers[c.a].width * s.layers[c.b].width)
        if "gradient" in wanted:
            each += Price(50 * US, 0.4 * NS * count(target.model.weight(c)))
    return each.of(chains, draws)


def judging(target: Target, chains: float, draws: float, limit: float, drawing: float) -> float:
    """Return the seconds of R-hat, effective sizes and errors; 0 if R-hat has no limit.

    `drawing` is the seconds of the draws that are judged.
    """
    if limit == np.inf:
        return 0.0
    seconds = comparing(target, chains, draws, drawing)
    for name in target.pattern.moving:
        layer, batch = target.structure.layers[name], max(draws / MAX_TRACE_BATCHES, 1.0)
        series = min(target.rows * free_units(target, name) * layer.unit.width, MAX_SERIES_EXAMINED)
        finite = layer.unit.support is not None
        counted = finite and (state_count(target, name) - 1) * batch < MAX_COUNTED_VALUES
        seconds += series * (
            US + (7 if counted else 80) * NS * chains * min(draws, MAX_TRACE_BATCHES)
        )
    return seconds
