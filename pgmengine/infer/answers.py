"""Pieces that every method shares: the wanted quantities, the rows axis, evidence patterns.

Inside, arrays are flat and have a rows axis: layer -> (rows, width). Users see (rows, size[, k]),
and no rows axis where neither the evidence nor the hints had one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, States
from pgmengine.graph.rows import distinct
from pgmengine.graph.structure import Structure
from pgmengine.graph.target import Target
from pgmengine.graph.weights import plus
from pgmengine.infer.by_name import Joint, units_of
from pgmengine.infer.result import WANTS


def check_want(s: Structure, want: Iterable[str]) -> tuple[str, ...]:
    """Return the wanted quantities as a tuple; PgmError for unknown names, also of units."""
    known = f"ask for any of {', '.join(WANTS)}, or pgm.Joint(units)"
    if isinstance(want, str):
        want = (want,)
    if not isinstance(want, Iterable):
        raise PgmError(f"want must be a name or several, not {want!r}; {known}")
    wanted = tuple(want)
    for name in wanted:
        if name not in WANTS and not isinstance(name, Joint):
            raise PgmError(f"want: {name!r} is unknown; {known}")
        if isinstance(name, Joint):
            units_of(s, name)
    if not wanted:
        raise PgmError(f"want is empty; {known}")
    return wanted


def public(target: Target, flat: States) -> dict[str, Array]:
    """Return flat arrays (rows, width) as (rows, size[, k]), or (size[, k]) without a rows axis."""
    out = {name: target.structure.layers[name].shaped(value) for name, value in flat.items()}
    return out if target.evidence.has_rows else {name: value[0] for name, value in out.items()}


def squeeze(target: Target, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return arrays without their rows axis if the evidence had none."""
    if target.evidence.has_rows:
        return arrays
    return {name: value[0] for name, value in arrays.items()}


def evidence_patterns(target: Target) -> list[Array]:
    """Return the rows of each evidence pattern and beta, as a list of index arrays."""
    masks = [
        m
        for name in target.structure.layers
        for m in (target.pattern.observed[name], target.cut[name])
    ]
    if target.rows == 1:
        return [np.zeros(1, dtype=int)]
    if (
        all((m == m[0]).all() for m in map(distinct, masks))
        and (target.beta == target.beta[0]).all()
    ):
        return [np.arange(target.rows)]
    packed = np.concatenate(
        [np.packbits(m, axis=1) for m in masks]
        + [np.ascontiguousarray(target.beta).view(np.uint8).reshape(target.rows, -1)],
        axis=1,
    )
    _, group = np.unique(packed, axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group.ravel()[order])) + 1)


def add_gradients(total: dict[str, Any] | None, part: dict[str, Any]) -> dict[str, Any]:
    """Return the sum of two gradients, parameter by parameter."""
    if total is None:
        return part
    return {name: plus(total[name], value) for name, value in part.items()}
