"""Targets from what users give: evidence, soft evidence, interventions and an inverse temperature.

The parts are parsed, repeated to a common number of rows, and checked against each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.equal_rows import common_rows, spread
from pgmengine.base.errors import PgmError
from pgmengine.base.types import LayerValues
from pgmengine.evidence.columns import columns_of, gathered
from pgmengine.evidence.evidence import Evidence, evidence_of
from pgmengine.evidence.extended.virtual_findings import observed_findings, with_findings
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
    joint = _joint(model.structure, evidence, parsed, do, what)
    rows, fields, common = joint.pattern.rows, parsed.fields, parsed.common
    if soft is not None:
        fields = {name: spread(field, rows) for name, field in fields.items()}
        common = None if common is None else np.broadcast_to(common, (rows,))
    target = Target(model, joint, fields, np.ones(rows), {}, common=common)
    return target if isinstance(beta, float) and beta == 1.0 else target.at(beta)


def _joint(
    s: Structure,
    evidence: LayerValues | None,
    soft: SoftEvidence,
    do: LayerValues | None,
    what: str,
) -> Evidence:
    """Return evidence together with the values that do() sets and the findings, for all rows."""
    seen, cut = columns_of(s, evidence, what), [] if do is None else columns_of(s, do, "do")
    given, done = gathered(seen, what, cut, soft.rows), None
    if cut or soft.rows or soft.findings:
        done = gathered(cut, "do", seen, soft.rows)
        counts = [max(map(len, part.values()), default=1) for part in (given, done)]
        common_rows({"evidence": counts[0], "soft": soft.rows or 1, "do": counts[1]})
    if done is not None and soft.findings:
        # A finding is observed in its rows; in others do() sets it, so that it has no effect.
        found = observed_findings(soft.findings, soft.rows or 1)
        given[s.findings] = np.where(found, 1.0, np.nan)
        done[s.findings] = np.where(found, np.nan, 0.0)
    joint = evidence_of(s, given, what, done, soft.rows)
    for name, layer in s.layers.items():
        if layer.unit.observed_only and not joint.pattern.observed[name].all():
            row, index = np.argwhere(~joint.pattern.observed[name])[0]
            raise PgmError(
                f"{layer.place(index, row)} is not observed; {layer.unit!r} units have to be"
            )
    return joint
