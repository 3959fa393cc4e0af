"""The entries of all tables of a model as one array.

Tables of variables with a thousand states take hundreds of megabytes. A model therefore stores them
once: declared tables are views of the array of all entries. Functions that read all entries do so
in blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pgmengine.base.types import Array
from pgmengine.model.structure import Structure
from pgmengine.model.tables import BLOCK_ENTRIES

# The number of entries of all tables together from which a copy of them is avoided.
MIN_UNCOPIED_ENTRIES = 2**16


def without_base(structure: Structure, entries: Array) -> Array:
    """Return all logarithms of entries; in conditionals, less log h of the state of the child.

    The result is `entries` itself if no child of a conditional has a base measure.
    """
    out = entries
    if structure.with_base.isdisjoint([tables.layers[-1] for tables in structure.tables]):
        return entries
    for store, tables in structure.stored_tables.items():
        base = structure.layers[tables.layers[-1]].unit.log_base
        if tables.conditional and base is not None and tables.layers[-1] in structure.with_base:
            out = entries.copy() if out is entries else out
            out[structure.table_places[store]].reshape(-1, len(base))[...] -= base
    return out


def joined_entries(parts: Sequence[Array]) -> Array:
    """Return the entries of all tables as one array, without a copy if they lie in one already.

    Declared tables are such parts: `values_of_terms` fills one array with all of them.
    """
    if len(parts) == 1:
        return parts[0].ravel()
    whole = parts[0].base if parts else None
    large = sum([part.size for part in parts]) >= MIN_UNCOPIED_ENTRIES
    if large and isinstance(whole, np.ndarray) and whole.dtype == parts[0].dtype:
        ends = np.cumsum([0, *(part.nbytes for part in parts)]).tolist()
        begin = whole.ctypes.data
        places = [part.ctypes.data - begin for part in parts]
        own = all(part.base is whole and part.flags.c_contiguous for part in parts)
        if own and places == ends[:-1] and whole.nbytes == ends[-1]:
            return whole.reshape(-1)
    return np.concatenate([*parts, np.empty(0)], axis=None)


def views_of(entries: Array, own: Mapping[str, Array]) -> dict[str, Array]:
    """Return parameters as views of the array of all entries, to free the memory of their own."""
    entries.flags.writeable, place, views = False, 0, dict[str, Array]()
    for key, part in own.items():
        views[key] = entries[place : place + part.size].reshape(part.shape)
        place += part.size
    return views


def largest_entries(logs: Array, first: Array) -> tuple[Array, Array]:
    """Return the largest |finite entry| of each table, and whether all of its entries are finite.

    Parameters
    ----------
    logs : the logarithms of all entries.
    first : (tables + 1,) the first entry of each table.
    """
    if len(logs) <= BLOCK_ENTRIES and len(logs):
        # Most models have few entries, and this is faster for their first question.
        part = np.abs(logs)
        finite = part < np.inf
        if np.count_nonzero(finite) == len(logs):
            return np.maximum.reduceat(part, first[:-1]), np.ones(len(first) - 1, dtype=bool)
        part[~finite] = 0.0
        return np.maximum.reduceat(part, first[:-1]), np.logical_and.reduceat(finite, first[:-1])
    sizes, whole = np.zeros(len(first) - 1), np.ones(len(first) - 1, dtype=bool)
    for begin in range(0, len(logs), BLOCK_ENTRIES):
        part = np.abs(logs[begin : begin + BLOCK_ENTRIES])
        finite = part < np.inf
        if not finite.all():
            part[~finite] = 0.0
        # Tables with entries in this block.
        tables = slice(
            int(np.searchsorted(first, begin, "right")) - 1,
            int(np.searchsorted(first, begin + len(part))),
        )
        starts = np.maximum(first[tables] - begin, 0)
        sizes[tables] = np.maximum(sizes[tables], np.maximum.reduceat(part, starts))
        whole[tables] &= np.logical_and.reduceat(finite, starts)
    return sizes, whole
