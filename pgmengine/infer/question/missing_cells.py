"""Answers about groups of columns that rows observe in part (`Normal(full=True)`).

Methods take such a group as observed, with the density of its observed cells, so that everything
about other units is right. Its missing cells are independent of all other units given the state k
of the parent and the observed cells x_o, so that the answers about them follow from those about the
parent:

    E[x_u | row] = sum over k of P(k | row) E[x_u | x_o, k],   and x_u | x_o, k for each draw of k.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.model.terms.input_rows import input_rows, shared_numbers


def partly_observed(target: Target) -> dict[str, Array]:
    """Return layer -> the units that some rows observe in part, (rows, size)."""
    found = {}
    for name, layer in target.structure.layers.items():
        if layer.unit.has_cells:
            values = layer.shaped(target.evidence.values[name])
            if (mask := layer.unit.partial(values)).any():
                found[name] = np.broadcast_to(mask, (target.rows, layer.size))
    return found


def check_partly(target: Target, partly: Mapping[str, Array], want: tuple[Any, ...]) -> None:
    """Raise PgmError for quantities that have no answer about units observed in part."""
    s = target.structure
    for name, mask in partly.items():
        row, unit = (int(i) for i in np.argwhere(mask)[0])
        where = f"{s.layers[name].place(unit, row)} has observed and missing cells"
        if (mask & target.intervened[name]).any():
            raise PgmError(f"do: {where}; set all cells of a group or none")
        if name in target.soft:
            raise PgmError(f"soft: {where}; give soft evidence about whole groups alone")
        if "mode" in want or "pairs" in want:
            raise PgmError(
                f"want: {where}, about which there are marginals, samples and log_prob; ask for "
                "these, for pgm.Mode(units) of the other units, or leave out the whole group"
            )


def with_cells(
    target: Target,
    partly: Mapping[str, Array],
    answers: Mapping[str, Any],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return answers with means and draws of the missing cells of units observed in part."""
    out, s = dict(answers), target.structure
    rows, theta = input_rows(s), shared_numbers(target.model)
    for kind in {"mean", "samples"}.intersection(answers):
        out[kind] = {k: np.array(v) if k in partly else v for k, v in answers[kind].items()}
    for name, mask in partly.items():
        own, layer = rows.layers[name], s.layers[name]
        values = layer.shaped(target.evidence.values[name])
        for unit in np.flatnonzero(mask.any(axis=0)).tolist():
            above, index = s.names.at(int(own.parent[unit]))
            places = own.of(np.array([unit]), int(own.states[unit]))[0]
            zeta = theta[places[:, None] + np.arange(layer.unit.width)]
            at = np.flatnonzero(mask[:, unit])
            x = values[at, unit]
            if "mean" in out:
                each = layer.unit.completed(x[:, None], zeta[None])
                # Means and probabilities of one case have no axis of rows.
                mean, prob = (
                    a if target.evidence.has_rows else a[None]
                    for a in (out["mean"][name], out["prob"][above])
                )
                prob = prob[at, index]
                mean[at, unit] = np.einsum("rk,rkw->rw", prob, each)
            if "samples" in out:
                state = s.layers[above].unit.state_of(out["samples"][above][:, at, index])
                drawn = layer.unit.completed(x, zeta[state], rng)
                out["samples"][name][:, at, unit] = drawn
    return out
