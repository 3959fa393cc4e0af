"""Targets of a model and of the same model with more layers: findings, or auxiliary variables.

Soft evidence adds findings to a model, and gates add auxiliary variables. The layers of the model
come first in both, so that its units keep their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.evidence.evidence import Evidence
from pgmengine.evidence.extended.virtual_findings import units_with_findings
from pgmengine.evidence.relevance import EvidencePattern
from pgmengine.evidence.target import Target
from pgmengine.model.terms.term import Term

if TYPE_CHECKING:
    from pgmengine.model.parameters import Parameters


def unfolded_target(target: Target, gates: Sequence[Term]) -> Target:
    """Return the target with the auxiliary variables of some gates, which are free."""
    model, rows = target.model.unfold(gates), target.rows
    values, observed = dict(target.evidence.values), dict(target.pattern.observed)
    intervened = dict(target.intervened)
    for name, layer in model.structure.layers.items():
        if name not in target.structure.layers:
            values[name] = np.broadcast_to(0.0, (rows, layer.width))
            observed[name] = intervened[name] = np.broadcast_to(np.False_, (rows, layer.size))
    pattern = EvidencePattern(model.structure, rows, observed, intervened)
    return replace(
        target, model=model, evidence=Evidence(target.evidence.has_rows, values, pattern)
    )


def on_model(target: Target, model: Parameters) -> Target:
    """Return the target of a model for a target of the same model with more layers."""
    layers, pattern = model.structure.layers, target.pattern
    values, observed, intervened = (
        {name: part[name] for name in layers}
        for part in (target.evidence.values, pattern.observed, pattern.intervened)
    )
    pattern = EvidencePattern(model.structure, target.rows, observed, intervened)
    found = target.found | units_with_findings(target)
    evidence = Evidence(target.evidence.has_rows, values, pattern)
    return replace(target, model=model, evidence=evidence, found=found)
