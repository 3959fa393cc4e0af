"""Answers of exact methods: rows from several parts are joined and given their public form."""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.graph.target import Target
from pgmengine.infer.answers import public, squeeze
from pgmengine.infer.prepared import Prepared

# Quantity -> layer, coupling or parameter -> (rows, ...).
Answer = dict[str, dict[Any, Any]]


def check_possible(log_z: Array, rows: Array, target: Target) -> None:
    """Raise PgmError where the evidence of a row is impossible."""
    if log_z.min() == -np.inf:
        row = int(rows[np.isneginf(log_z).argmax()]) + target.first
        raise PgmError(f"evidence row {row} has probability zero, so it has no posterior")


def put(out: dict[Any, Any], values: dict[Any, Any], rows: Array, count: int) -> None:
    """Put the values of some of `count` rows in their places."""
    if len(rows) == count:
        out |= values
        return
    for name, value in values.items():
        if name not in out:
            out[name] = np.empty((count, *value.shape[1:]))
        out[name][rows] = value


def exact_answers(question: Prepared, log_z: Array, found: Answer) -> dict[str, Any]:
    """Return the answers to a question as users see them, log_z where it is asked for.

    Samples are (rows, draws, width) inside, and (draws, rows, size[, k]) outside.
    """
    target, out = question.target, dict[str, Any](found)
    out |= {what: public(target, found[what]) for what in ("mean", "mode") if what in found}
    for what in ("prob", "pairs", "joint"):
        if what in found:
            out[what] = squeeze(target, found[what])
    if "samples" in found:
        layers = target.structure.layers
        out["samples"] = {
            n: layers[n].shaped(v.swapaxes(0, 1)) for n, v in found["samples"].items()
        }
    if not {"log_z", "log_prob"}.isdisjoint(question.want):
        out["log_z"], out["log_z_error"] = log_z, np.zeros(len(log_z))
        out["log_z_interval"] = np.repeat(log_z, 2).reshape(-1, 2)
    return out


def output_bytes(target: Target, want: tuple[str, ...], draws: int) -> float:
    """Return the memory of the answers."""
    layers = target.structure.layers
    width = sum(layer.width for layer in layers.values())
    each = 16.0 * width + 8.0 * draws * width * ("samples" in want)
    if "pairs" in want:
        each += 8.0 * sum(layers[c.a].width * layers[c.b].width for c in target.structure.couplings)
    return target.rows * each
