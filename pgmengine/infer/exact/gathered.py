"""Answers of exact methods: rows from several jobs are gathered and given their public form."""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.errors import InternalError, PgmError
from pgmengine.base.types import Array
from pgmengine.base.work.division import check_divided
from pgmengine.evidence.target import Target
from pgmengine.infer.question.prepared import AnyPrepared
from pgmengine.infer.results.axes import add_gradients, public, squeeze
from pgmengine.model.structure import Structure

# Quantity -> layer, coupling or parameter -> (rows, ...).
Answer = dict[str, dict[Any, Any]]


# The largest number of tables in which an error looks for observations that exclude each other.
MAX_TABLES_SEARCHED = 10_000


def check_possible(log_z: Array, rows: Array, target: Target) -> None:
    """Raise PgmError where the evidence of a row is impossible."""
    if np.count_nonzero(log_z == -np.inf):
        place = int(rows[np.isneginf(log_z).argmax()])
        raise PgmError(
            f"evidence row {target.row_numbers[place]} has probability zero, so it has no "
            f"posterior{_excluded(target, place)}"
        )


def _excluded(target: Target, row: int) -> str:
    """Return which observations of a row exclude each other in a single table, "" if none do."""
    s, index, zero = target.structure, target.structure.table_index, target.model.table_entries
    one = target.take(np.array([row]))
    states = one.states[0]
    free = np.concatenate([one.free[name] for name in s.layers], axis=1)[0]
    for table in np.flatnonzero(~target.model.table_sizes[1])[:MAX_TABLES_SEARCHED].tolist():
        axes = np.arange(*index.start[table : table + 2])
        known = axes[~free[index.unit[axes]]]
        entries = np.array([index.first[table]]) + index.stride[known] @ states[index.unit[known]]
        for axis in np.setdiff1d(axes, known):
            steps = index.stride[axis] * np.arange(index.states[axis])
            entries = np.add.outer(entries, steps).ravel()
        if len(known) and np.isneginf(zero[entries]).all():
            units = [int(unit) for unit in index.unit[known]]
            return f": a table is 0 at {', '.join(_observed(s, u, int(states[u])) for u in units)}"
    return ""


def _observed(s: Structure, unit: int, state: int) -> str:
    """Return a unit and its state by their names, as evidence gives them."""
    place = s.names.at(unit)
    layer = s.layers[place[0]]
    support = layer.unit.support
    assert support is not None
    number: object = f"{support[state]:g}" if np.ndim(support) == 1 else state
    return f"{s.names.of(place)}={layer.state_names[state] if layer.state_names else number}"


class Gathered:
    """The answers of all rows of a target, gathered from jobs that answer some rows each.

    Arrays start as NaN. `complete` returns the answers once exactly one job has answered each row.
    It counts the rows, because NaN would not show a row that counts twice in a gradient.
    """

    def __init__(self, target: Target, what: str) -> None:
        """Start without any row; `what` names the work in messages."""
        self.target, self.what = target, what
        self.log_z: Array | None = None
        self.found = Answer()
        self.jobs: list[Array] = []

    def add(self, rows: Array, log_z: Array, found: Answer) -> None:
        """Add the answers of a job: log_z (rows,) and quantity -> name -> (rows, ...).

        The gradient is a sum over the rows.
        """
        if self.jobs and found.keys() != self.found.keys():
            raise InternalError(f"{self.what}: jobs have answered {[*found]} and {[*self.found]}")
        whole = not self.jobs and len(rows) == len(log_z) == self.target.rows
        self.jobs.append(rows)
        if whole:
            self.log_z, self.found = log_z, found
            return
        self.log_z = self._filled(self.log_z, log_z, rows)
        for what, values in found.items():
            if what == "gradient":
                self.found[what] = add_gradients(self.found.get(what), values)
                continue
            out = self.found.setdefault(what, {})
            for name, value in values.items():
                out[name] = self._filled(out.get(name), value, rows)

    def complete(self) -> tuple[Array, Answer]:
        """Return log_z (rows,) and all other answers; InternalError unless all rows are there."""
        target = self.target
        check_divided(self.jobs, target.rows, self.what)
        # A target without rows has no jobs, and the check above has raised an error.
        log_z = np.empty(0) if self.log_z is None else self.log_z
        if np.count_nonzero(unknown := np.isnan(log_z)):
            row = target.row_numbers[unknown.argmax()]
            raise InternalError(f"{self.what}: log Z of row {row} is no number")
        return log_z, self.found

    def _filled(self, out: Array | None, value: Array, rows: Array) -> Array:
        """Return the array of all rows with the values of `rows` filled in; other rows stay NaN."""
        if len(value) != len(rows):
            raise InternalError(f"{self.what}: {len(value)} answers for {len(rows)} rows")
        if out is None:
            if len(rows) == self.target.rows:
                return value
            # In the layout of the value: samples have their draws first in memory.
            shape = (self.target.rows, *value.shape[1:])
            out = np.full_like(value, np.nan, dtype=np.float64, shape=shape)
        out[rows] = value
        return out


def exact_answers(question: AnyPrepared, log_z: Array, found: Answer) -> dict[str, Any]:
    """Return the answers to a question as users see them, with log_z if it is asked for.

    Samples are (rows, draws, width) inside, and (draws, rows, size[, k]) outside.
    """
    target, out = question.target, dict[str, Any](found)
    out |= {what: public(target, found[what]) for what in ("mean", "mode") if what in found}
    for what in ("prob", "pairs", "joint", "modes"):
        if what in found:
            out[what] = squeeze(target, found[what])
    if "samples" in found:
        layers = target.structure.layers
        out["samples"] = {
            n: layers[n].shaped(v.swapaxes(0, 1)) for n, v in found["samples"].items()
        }
    if "log_z" in question.want:
        out["log_z"], out["log_z_error"] = log_z, np.zeros(len(log_z))
        out["log_z_interval"] = np.repeat(log_z, 2).reshape(-1, 2)
    return out
