"""Targets from what users give: evidence, soft evidence, interventions and an inverse temperature.

The parts are parsed, repeated to a common number of rows, and checked against each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.errors import PgmError
from pgmengine.base.rows import common_rows, spread
from pgmengine.base.types import Array, LayerValues
from pgmengine.evidence.columns import columns_of, gathered
from pgmengine.evidence.evidence import Evidence, evidence_of
from pgmengine.evidence.extended.findings import observed_findings, with_findings
from pgmengine.evidence.relevance import pattern_of
from pgmengine.evidence.soft import Soft, SoftEvidence, parse_soft
from pgmengine.evidence.target import Target
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    from pgmengine.model.parameters import Parameters


def make_target(
    model: Parameters,
    evidence: LayerValues | None = None,
    soft: Soft | None = None,
    do: LayerValues | None = None,
    beta: ArrayLike = 1.0,
    what: str = "evidence",
) -> Target:
    """Parse and check evidence, soft evidence and interventions; messages call evidence `what`."""
    if model.structure.compact_gates:
        if not np.all(np.equal(beta, 1.0)):
            # Only at beta = 1 is the sum over the auxiliary variables the conditional of the gate.
            one = model.structure.names.of(model.structure.compact_gates[0].first_child)
            raise PgmError(f"beta must be 1 in a model with a large noisy gate, that of {one!r}")
        model = model.unfolded
    parsed = SoftEvidence({}) if soft is None else parse_soft(model.structure, soft)
    if parsed.findings:
        model = with_findings(model, parsed.findings)
    s = model.structure
    seen, done = columns_of(s, evidence, what), [] if do is None else columns_of(s, do, "do")
    several = (parsed.rows or 1) > 1
    joint = evidence_of(s, gathered(seen, what, several or any(x.has_rows for x in done)), what)
    fields, common = parsed.fields, parsed.common
    if soft is not None or do is not None:
        others = several or any(x.has_rows for x in seen)
        values = None if do is None else evidence_of(s, gathered(done, "do", others), "do")
        joint = _joint(s, joint, parsed, values)
        rows = joint.pattern.rows
        fields = {name: spread(field, rows) for name, field in fields.items()}
        common = None if common is None else np.broadcast_to(common, (rows,))
    for name, layer in s.layers.items():
        if layer.unit.observed_only and not joint.pattern.observed[name].all():
            row, index = np.argwhere(~joint.pattern.observed[name])[0]
            raise PgmError(
                f"{layer.place(index, row)} is not observed; {layer.unit!r} units have to be"
            )
    target = Target(model, joint, fields, np.ones(joint.pattern.rows), {}, common=common)
    return target if isinstance(beta, float) and beta == 1.0 else target.at(beta)


def _joint(s: Structure, seen: Evidence, soft: SoftEvidence, done: Evidence | None) -> Evidence:
    """Return evidence together with the values that do() sets and the findings, for all rows."""
    rows = common_rows(
        {
            "evidence": seen.pattern.rows if seen.has_rows else 1,
            "soft": soft.rows or 1,
            "do": done.pattern.rows if done is not None and done.has_rows else 1,
        }
    )
    values = {name: spread(value, rows) for name, value in seen.values.items()}
    observed = {name: spread(mask, rows) for name, mask in seen.pattern.observed.items()}
    masks = {n: x for n, (_, x) in s.no_evidence.items()} if done is None else done.pattern.observed
    intervened = {name: spread(mask, rows) for name, mask in masks.items()}
    if done is not None:
        _check_interventions(s, intervened, observed)
        values = {name: value + done.values[name] for name, value in values.items()}
        observed = {name: mask | intervened[name] for name, mask in observed.items()}
    if soft.findings:
        found = observed_findings(soft.findings, rows)
        values[s.findings], intervened[s.findings] = found.astype(np.float64), ~found
        observed[s.findings] = np.ones_like(found)
    has_rows = seen.has_rows or (done is not None and done.has_rows) or soft.rows is not None
    return Evidence(has_rows, values, pattern_of(s, rows, observed, intervened))


def _check_interventions(
    s: Structure, intervened: dict[str, Array], observed: dict[str, Array]
) -> None:
    """PgmError unless do() sets units with a conditional that are not observed.

    do() removes the conditional of a unit. Its undirected couplings and its other tables stay as
    factors of the density.
    """
    for name, mask in intervened.items():
        directed = name in s.directed_layers and name not in s.undirected_layers
        wrong = mask & ~(directed | (s.child_tables[name] >= 0))
        if wrong.any():
            what = s.names.described(name, np.asarray(wrong.any(axis=0)))
            raise PgmError(
                f"do: {what} is not directed: do() cuts arrows, so it needs units with a "
                "conditional, children or roots without undirected couplings"
            )
        both = mask & observed[name]
        if both.any():
            row, index = np.argwhere(both)[0]
            raise PgmError(
                f"do: {s.layers[name].place(index, row)} is both observed and set; "
                "leave out one of the two"
            )
