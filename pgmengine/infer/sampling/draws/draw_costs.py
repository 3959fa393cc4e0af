"""Memory and seconds of chains and of their draws, for the plans of samplers.

The constants are measured peaks (benchmarks/memory.py). Answers and evidence are counted by
`peak_bytes` of infer/results/answer_bytes.py.
"""

from __future__ import annotations

import math

import numpy as np

from pgmengine.engine.cost import NS, US, Price, free_units, state_count
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.convergence import MAX_SERIES_EXAMINED, judging_bytes
from pgmengine.infer.results.answer_bytes import answer_bytes, evidence_bytes, peak_bytes
from pgmengine.infer.sampling.draws.collected import MAX_TRACE_BATCHES, by_mean, compared
from pgmengine.infer.sampling.draws.rao_blackwell import (
    MAX_BLOCK_STATES,
    MAX_BLOCKS,
    MAX_DISTINCT_DRAWS,
    MAX_DISTINCT_NUMBERS,
    comparing,
)
from pgmengine.model.structure import Structure
from pgmengine.model.weights import count

# Bytes for each number in the state of a chain: of its start, and of the chain itself.
BYTES_PER_NUMBER_OF_CHAIN = 40.0

# Bytes for each number in the states from which further annealing runs start: the last states of
# two runs and of chains of the model, and the means of these chains over time.
BYTES_PER_REACHED_NUMBER = 32.0

# Additional bytes for each number of a state where evidence differs between rows, for the log
# density of the evidence.
BYTES_PER_NUMBER_OF_ROW_EVIDENCE = 20.0

# Bytes of the packed weights for each parameter.
BYTES_PER_PACKED_PARAMETER = 12.0

# Bytes of the comparison with exact conditionals. The graph of units takes BYTES_PER_GRAPH_ENTRY
# for each entry of couplings and tables. The distinct draws take BYTES_PER_DISTINCT_NUMBER for each
# of their numbers. A block takes BYTES_PER_BLOCK_STATE for each of its joint states and each
# distinct state of the other units.
BYTES_PER_GRAPH_ENTRY, BYTES_PER_DISTINCT_NUMBER, BYTES_PER_BLOCK_STATE = 64.0, 72.0, 8.0

# The number of copies of the draws that are compared with exact conditionals.
COPIES_OF_COMPARED_DRAWS = 3


def sampler_bytes(
    target: Target,
    wanted: tuple[str, ...],
    chains: int,
    draws: int,
    limit: float,
    work: float,
    replicas: int = 1,
    more: float = 0.0,
) -> float:
    """Return the peak memory of a method with some chains for each row, judged up to a limit.

    Parameters
    ----------
    target, wanted : the question.
    chains : number of chains whose draws are kept.
    draws : number of draws of each of them.
    limit : the limit of R-hat; infinite if the draws are not judged.
    work : number of unit updates, which determines into how many parts the rows are divided.
    replicas : number of chains that move for each chain whose draws are kept.
    more : bytes of other working arrays of the method.
    """
    width = target.structure.width
    working = chain_bytes(target, chains * replicas) + _of_draws(target, wanted, chains, draws)
    # These are three statistics of each unit, the energies, and the last states.
    statistics = 8.0 * target.rows * (3 * width + chains * (draws + width))
    fixed = packed_bytes(target)
    if limit < math.inf:
        batches = judging_bytes(target.rows * width, chains, min(draws, MAX_TRACE_BATCHES))
        energies = judging_bytes(target.rows, chains, draws)
        # The draws are judged, and then compared with exact conditionals.
        fixed += max(batches, energies, _of_comparison(target))
    # The gradient of one draw and the new sum are held in addition to the old sum.
    fixed += 2 * answer_bytes(target, ("gradient",), 0) * ("gradient" in wanted)
    samples = chains * draws
    return peak_bytes(target, wanted, samples, work, working + more, statistics, fixed)


def _of_comparison(target: Target) -> float:
    """Return the memory of the comparison with exact conditionals (rao_blackwell.py)."""
    s, units = target.structure, target.structure.units
    entries = float(sum(count(target.model.weight(c)) for c in s.couplings))
    entries += float(s.table_index.axis_entries.sum())
    distinct = float(min(MAX_DISTINCT_DRAWS, MAX_DISTINCT_NUMBERS // units))
    states = min(distinct * 2.0 ** min(units, 50), MAX_BLOCK_STATES / MAX_BLOCKS)
    return (
        BYTES_PER_GRAPH_ENTRY * entries
        + BYTES_PER_DISTINCT_NUMBER * s.width * distinct
        + BYTES_PER_BLOCK_STATE * states
    )


def packed_bytes(target: Target) -> float:
    """Return the memory of the packed parameters, from which chains read."""
    return BYTES_PER_PACKED_PARAMETER * sum(map(count, target.model.expanded.values()))


def chain_bytes(target: Target, chains: int) -> float:
    """Return the memory of some chains of each row: their starts, states and inputs.

    Chains with evidence have copies of it, and compute its terms of the log density.
    """
    width = target.structure.width
    each = BYTES_PER_NUMBER_OF_CHAIN * width
    if target.rows > 1:
        each += BYTES_PER_NUMBER_OF_ROW_EVIDENCE * width + evidence_bytes(target) / target.rows
    return target.rows * chains * each


def reached_bytes(target: Target, chains: int) -> float:
    """Return the memory of states that further runs of one row start from."""
    return BYTES_PER_REACHED_NUMBER * target.structure.width * chains


def _of_draws(target: Target, wanted: tuple[str, ...], chains: int, draws: int) -> float:
    """Return the memory of `Draws` beside samples."""
    s, many = target.structure, target.rows * chains
    numbers: float = min(draws, MAX_TRACE_BATCHES) * s.width
    # While energies are judged there are two copies, one of them without rounding.
    numbers += 2 * draws
    # The draws for the comparison with exact conditionals are copied while they are ordered.
    numbers += COPIES_OF_COMPARED_DRAWS * compared(s, target.rows, draws) * small_bytes(s) / 8
    for layer in s.layers.values():
        # Squares of units with infinitely many values, counts of states, and the counts of one
        # draw.
        if layer.unit.support is None:
            numbers += 3 * layer.width
        elif not by_mean(layer.unit):
            numbers += 3 * layer.size * len(layer.unit.support)
    pairs = sum(s.layers[c.a].width * s.layers[c.b].width for c in s.couplings)
    return 8.0 * (many * numbers + target.rows * pairs * ("pairs" in wanted))


def small_bytes(structure: Structure) -> float:
    """Return the bytes of one state that `small` has packed."""
    return float(
        sum(
            8 * x.width
            if (support := x.unit.support) is None
            else x.size * np.min_scalar_type(len(support) - 1).itemsize
            for x in structure.layers.values()
        )
    )


# Series with at most this number of different values are judged by counting, all others by sorting
# (series.h).
MAX_COUNTED_VALUES = 32


# Nanoseconds of adding a number to its sum, in arrays of at most so many bytes, and in larger ones.
IN_CACHE, BEYOND_CACHE, CACHE_BYTES = 1.0, 5.0, 2.0**20


def collecting(target: Target, wanted: tuple[str, ...], chains: float, draws: float) -> float:
    """Return the seconds of adding draws of chains (of all rows) to the statistics."""
    s = target.structure
    sums = IN_CACHE if 8.0 * chains * s.width < CACHE_BYTES else BEYOND_CACHE
    each = Price(2 * US * len(s.layers), (sums + 2 * ("samples" in wanted)) * NS * s.width)
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
