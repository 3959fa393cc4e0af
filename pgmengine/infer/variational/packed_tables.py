"""The tables of a model as the compiled rounds of mean field read them (expected.h).

A table adds power * E_Q[log T] to the bound. The power is beta, except for conditionals that do not
count, where it is 0: those whose child is intervened, and those whose child is barren, which sum to
one. The tables of a structure are stored in arrays, as in `TableIndex`, with units numbered as in
the net (packed_graph.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.rows import distinct
from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure
from pgmengine.model.unit_graph import Rows

# Smaller probabilities of units in tables with zeros are taken as 0. The limit is larger if
# products of probabilities would otherwise fall below MIN_PRODUCT.
MIN_PROB = 1e-25
MIN_PRODUCT = 1e-290


def scope_arrays(s: Structure, first: dict[str, int], units: int) -> dict[str, Any]:
    """Return the arrays of all tables; `first` is the number of the first unit of each layer."""
    index = s.table_index
    number = np.full(s.units, -1, dtype=np.int64)
    own = np.full(units, -1, dtype=np.int64)
    for name, begin in first.items():
        there = np.arange(begin, begin + s.layers[name].size)
        number[s.slices[name]], own[there] = there, s.child_tables[name]
    axis_unit = number[index.unit]
    axes = Rows.of_keys(axis_unit, units)
    return {
        "table_start": index.start,
        "table_entry": index.first,
        "axis_unit": axis_unit,
        "axis_table": index.table.astype(np.int64),
        "axis_stride": index.stride,
        "in_start": axes.start,
        "in_axis": axes.columns,
        "own_table": own,
    }


def hard_units(model: Parameters, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return which units are in a table with an entry of 0, and their smallest probability."""
    hard = np.zeros(len(arrays["own_table"]), dtype=np.int32)
    if not len(model.table_terms):
        return {"hard": hard, "cut": MIN_PROB}
    table = ~model.table_sizes[1]
    hard[arrays["axis_unit"][table[arrays["axis_table"]]]] = 1
    others = np.diff(arrays["table_start"])[table].max(initial=2) - 1
    return {"hard": hard, "cut": max(MIN_PROB, MIN_PRODUCT ** (1.0 / max(others, 1)))}


def powers(target: Target, hidden: dict[str, Array]) -> Array:
    """Return the power of each table in each row, (rows or 1, tables)."""
    s = target.structure
    absent = {n: distinct(target.intervened[n]) | hidden[n] for n in (s.layers if s.tables else ())}
    beta = np.ones(1) if target.untempered else target.beta
    rows = max((len(beta), *map(len, absent.values())))
    power = np.zeros((rows, len(s.table_index.child))) + beta[:, None]
    for name, mask in absent.items():
        units = np.flatnonzero(s.child_tables[name] >= 0)
        tables = s.child_tables[name][units]
        power[:, tables] = np.where(mask[:, units], 0.0, power[:, tables])
    return power


def units_parents_first(s: Structure, first: dict[str, int], some: dict[str, Array]) -> Array:
    """Return the units with a conditional that the masks `some` (rows, size) have in some row.

    Parents come first; `first` is the number of the first unit of each layer.
    """
    found = [np.zeros(0, dtype=np.int64)]
    for units in s.conditional_generations:
        for name, places in units.items():
            found.append(first[name] + places[some[name][:, places].any(axis=0)])
    return np.concatenate(found)
