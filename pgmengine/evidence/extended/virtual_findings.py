"""Virtual findings: observed children of units, by which soft evidence extends a model.

Each finding is a Binary unit with the conditional P(1 | state), observed to be 1 in the rows that
have the finding. In other rows do() sets it, so that it has no effect at any temperature. All
findings are units of one layer after the layers of the model, whose units keep their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.types import Array, Weight
from pgmengine.evidence.soft import Finding
from pgmengine.model.layer import Layer
from pgmengine.model.names.variables import free_name
from pgmengine.model.structure import Structure
from pgmengine.model.terms.term import Kind, Term
from pgmengine.units import Binary

if TYPE_CHECKING:
    from pgmengine.evidence.target import Target
    from pgmengine.model.parameters import Parameters

FINDINGS_NAME = "findings"


def with_findings(model: Parameters, findings: Sequence[Finding]) -> Parameters:
    """Return a model with an additional unit for each finding."""
    s = model.structure
    # Structures cache plans, so that equal findings share a structure.
    key = ("findings", *((f.place, f.log_prob.tobytes()) for f in findings))
    structure = s.memo.recall(key, lambda: _with_units(s, findings))
    name = structure.findings
    params: dict[str, Weight] = {f"{name}.bias": np.zeros(len(findings))}
    for tables in structure.tables[len(s.tables) :]:
        logs = np.array([findings[i].log_prob for i in tables.index[:, 1]])
        with np.errstate(divide="ignore"):
            rest = np.log(-np.expm1(logs))
        params[tables.key] = np.stack((rest, logs), axis=-1)
    return type(model)(structure, {**model.params, **params}, model.training)


def _with_units(s: Structure, findings: Sequence[Finding]) -> Structure:
    """Return a structure with a layer of findings, and a group of tables for each parent layer."""
    labels = {x for layer in s.layers.values() for x in layer.labels or ()}
    name = free_name(FINDINGS_NAME, {*s.layers, *labels})
    by_parent: dict[str, list[tuple[int, int]]] = {}
    for i, finding in enumerate(findings):
        by_parent.setdefault(finding.place[0], []).append((finding.place[1], i))
    taken = {t.key for t in s.tables}
    tables = tuple(
        Term(
            free_name(f"{name}|{parent}.table", taken),
            Kind.CONDITIONAL,
            (parent, name),
            np.array(index, dtype=np.int64),
            (len(index),),
        )
        for parent, index in by_parent.items()
    )
    layers = {**s.layers, name: Layer(name, Binary(), len(findings))}
    return replace(s, layers=layers, terms=(*s.terms, *tables), findings=name)


def observed_findings(findings: Sequence[Finding], rows: int) -> Array:
    """Return whether each row has each finding, (rows, n) bool."""
    return np.stack([np.broadcast_to(f.rows, (rows,)) for f in findings], axis=1)


def units_with_findings(target: Target) -> dict[str, Array]:
    """Return the units that have a finding in each row, layer -> (rows, size) bool."""
    s, out = target.structure, dict[str, Array]()
    if not s.findings:
        return out
    here = ~target.intervened[s.findings]
    for tables in s.tables:
        if tables.layers[-1] == s.findings:
            parent = tables.layers[0]
            mask = out.setdefault(parent, np.zeros(target.free[parent].shape, dtype=bool))
            for unit, number in tables.index:
                mask[:, unit] |= here[:, number]
    return out
