"""Seconds of mean-field rounds: counts of units, entries and rows, times measured rates."""

from __future__ import annotations

import numpy as np

from pgmengine._kernels import LANES
from pgmengine.engine.cost import NS, US, Price, free_units, state_count
from pgmengine.evidence.target import Target
from pgmengine.infer.variational.lateral import compiled
from pgmengine.model.weights import count, is_sparse

# Microseconds to find the barren children of tables in a row with an evidence pattern of its own.
PATTERN_MICROSECONDS = 100.0

# Microseconds and number of rounds of a typical search for possible states (support.py).
SEARCH_MICROSECONDS = 3_000.0
SEARCH_ROUNDS = 24


def rounds_seconds(target: Target, rounds: float, tables: bool) -> float:
    """Return the seconds of mean-field rounds, by tables or with each unit in its family."""
    return _by_tables(target, rounds) if tables else _by_families(target, rounds)


def _by_tables(target: Target, rounds: float) -> float:
    """Return the seconds of rounds of unit_tables.py, for rows padded to whole vectors.

    A single row has terms as lanes, so that it takes about as long as a lane of a vector of rows.
    """
    s = target.structure
    entries = {c: count(target.model.weight(c)) for c in s.couplings}
    units = sum(free_units(target, name) for name in target.pattern.moving)
    noisy = {name for name in s.directed_layers if not s.layers[name].unit.canonical}
    directed = 8 if target.rows == 1 else 17
    prices = {c: 280 if c.b in noisy else directed if c.directed else 5 for c in entries}
    each = sum(n * prices[c] * NS for c, n in entries.items())
    each += (2.0 * float(s.table_index.axis_entries.sum()) + 40.0 * len(s.table_index.unit)) * (
        NS / LANES
    )
    start = 0.3 * sum(entries.values()) + 10 * units + 100 * len(entries)
    start += PATTERN_MICROSECONDS * target.rows * (bool(s.tables) and not target.pattern.alike)
    if len(target.model.table_terms) and np.isneginf(target.model.table_terms).any():
        start, rounds = start + SEARCH_MICROSECONDS, rounds + SEARCH_ROUNDS
    lanes = 1 if target.rows == 1 and not s.tables else LANES * -(-target.rows // LANES)
    return start * US + rounds * each * lanes


def _by_families(target: Target, rounds: float) -> float:
    """Return the seconds of rounds of factors.py."""
    s, each_round = target.structure, Price()
    for name in target.pattern.moving:
        each_round += Price(40 * US, 30 * NS * free_units(target, name))
    for c in s.couplings:
        entries = count(target.model.weight(c))
        if c.a != c.b:
            each_round += Price(20 * US + 0.4 * NS * entries, 0.3 * NS * entries)
        elif not c.directed and c.a in target.pattern.moving:
            each_round += _inside(target, c.a, entries, is_sparse(target.model.weight(c)))
    return each_round.of(target.rows, rounds)


def _inside(target: Target, name: str, entries: int, sparse: bool) -> Price:
    """Return the price of a round over a layer that is coupled with itself (lateral.py)."""
    layer, free = target.structure.layers[name], free_units(target, name)
    each = (2.5 if sparse else 0.4) * NS * entries
    if not compiled(layer.unit):
        return Price(60 * US, 0.3 * US) * free + Price(0.0, each)
    return Price((5 + 10 * state_count(target, name)) * NS * free, 8 * NS * free + each)
