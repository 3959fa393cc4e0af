"""Rows of results: the rows whose chains have not mixed, and results of some rows.

Rows of evidence are questions of their own, with chains of their own. A row is judged by its own
statistics, as if it had been asked alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pgmengine.base.types import Array
from pgmengine.infer.question.prepared import as_method
from pgmengine.infer.question.splitting import statistic_axes
from pgmengine.infer.results.axes import Axis, Statistics
from pgmengine.infer.results.result import Result
from pgmengine.model.structure import Structure


def unmixed_rows(result: Result, structure: Structure, rows: int) -> Array:
    """Return a mask (rows,) of the rows that have not mixed.

    It is True everywhere if the result has a warning that its method does not tell from the
    statistics of single rows.
    """
    method = as_method(result.method)
    if any(line not in method.unmixed(result.stats, structure) for line in result.warnings):
        return np.ones(rows, dtype=bool)
    alone = (np.array([row]) for row in range(rows))
    each = (_rows_of_statistics(method.statistics, result.stats, row) for row in alone)
    return np.array([bool(method.unmixed(stats, structure)) for stats in each])


def rows_of(result: Result, rows: Array) -> Result:
    """Return the result of some rows, or of all rows in another order; it has no gradient."""
    answers = {
        name: _taken(value, rows, 1 if name == "samples" else 0)
        for name, value in result.answers.items()
    }
    stats = _rows_of_statistics(as_method(result.method).statistics, result.stats, rows)
    # The snapshot of a sampler has a row for each chain.
    return replace(result, answers=answers, stats=stats, state=None)


def _rows_of_statistics(
    statistics: Statistics, stats: Mapping[str, Any], rows: Array
) -> dict[str, Any]:
    """Return the statistics of some rows; statistics without an axis of rows stay as they are."""
    out = {}
    for name, value in stats.items():
        axes = statistic_axes(statistics.get(name), value)
        out[name] = _taken(value, rows, axes.index(Axis.ROW)) if Axis.ROW in axes else value
    return out


def _taken(value: Any, rows: Array, axis: int) -> Any:
    """Return some rows of an array, or of a mapping of arrays."""
    if isinstance(value, Mapping):
        return {name: _taken(part, rows, axis) for name, part in value.items()}
    return np.take(value, rows, axis=axis)
