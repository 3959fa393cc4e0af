"""Replies to front ends as JSON objects: evidence, numbers, the foot line and the picture."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pgmengine.apps.explorer.answered import Answered
from pgmengine.apps.explorer.exploration import Given, state_given
from pgmengine.apps.explorer.messages import place_text
from pgmengine.base.display import plain
from pgmengine.declare.pictures.scene import Form, Scene, Values
from pgmengine.declare.pictures.svg import svg
from pgmengine.infer.results.overview import AT_LEAST, status_text
from pgmengine.infer.results.result import Result
from pgmengine.model.names.unit_names import Place
from pgmengine.model.structure import Structure

# Decimals of log p(evidence) that are shown.
MAX_LOG_DECIMALS = 9


def evidence_listed(structure: Structure, given: Given, ground: Given) -> list[dict[str, Any]]:
    """Return what is given about each unit, with its name and in words; `ground` cannot change."""
    out = []
    for word, part in (("observed", given.observed), ("do", given.done), ("soft", given.soft)):
        for place, value in part.items():
            layer, name = structure.layers[place[0]], plain(structure.names.of(place))
            # Variables of one storage layer are listed by their own names.
            own = layer.holds_variables or layer.is_variable
            out.append(
                {"at": place_text(structure, place), "kind": word}
                | _in_words(structure, place, word, value)
                | {"layer": name if own else plain(layer.name), "fixed": place in ground.observed}
            )
    return out


def _in_words(structure: Structure, place: Place, word: str, value: Any) -> dict[str, Any]:
    layer, name = structure.layers[place[0]], plain(structure.names.of(place))
    if isinstance(value, tuple):
        shown = ", ".join(f"{x:g}" for x in value)
        return {"text": f"{name}: likelihoods {shown}", "likelihoods": list(value)}
    text = f"{name} = {plain(state_given(layer, value))}"
    state = value if isinstance(value, int) else None
    return {"text": f"do({text})" if word == "do" else text, "state": state}


def units_shown(
    structure: Structure, drawn: Scene, now: Answered, prior: Answered
) -> list[dict[str, Any]]:
    """Return the numbers of every unit that is drawn, and of its prior."""
    out = []
    for node in drawn.nodes:
        at = [place_text(structure, (node.layer, u)) for u in node.units]
        if node.form is Form.MEANS:
            mean = now.values.mean[node.layer][:, 0]
            scale = float(np.nanmax(np.abs(mean), initial=0.0)) or 1.0
            out += [
                {"at": where, "mean": _json(mean[u]), "share": _json(mean[u] / scale)}
                for where, u in zip(at, node.units, strict=True)
            ]
            continue
        error = now.values.error.get(node.layer)
        prob, before = now.values.prob[node.layer], prior.values.prob.get(node.layer)
        for where, u in zip(at, node.units, strict=True):
            one: dict[str, Any] = {"at": where, "p": [_json(p) for p in prob[u]]}
            if error is not None:
                one["error"] = [_json(e) for e in error[u]]
            if before is not None:
                one["prior"] = [_json(p) for p in before[u]]
            out.append(one)
    return out


def foot_line(now: Answered) -> dict[str, Any]:
    """Return guarantee, status, plan and log p(evidence) in words."""
    r = now.result
    if r is None:
        return {"kind": "no answer", "good": False, "status": now.error, "plan": "", "log": ""}
    status = status_text(r) if r.status.good or not r.warnings else r.warnings[0]
    return {
        "kind": r.kind,
        "good": r.status.good,
        "status": status,
        "plan": str(r.plan),
        "log": _log_text(r),
    }


def _log_text(r: Result) -> str:
    """Return log p(evidence) with its standard error, or an empty text if it was not asked."""
    if "log_prob" not in r.answers:
        return ""
    # Without evidence it is 0, up to the rounding of the two sums that are subtracted.
    number = round(float(r.log_prob[0]), MAX_LOG_DECIMALS) + 0.0
    error = float(r.log_prob_error[0])
    at_least = AT_LEAST * (r.kind == "lower bound")
    return f"log p(evidence){at_least} = {number:.6g}" + (f" ± {error:.2g}" if error > 0 else "")


def picture(structure: Structure, drawn: Scene) -> dict[str, Any]:
    """Return the picture, with the names that a screen reader says."""
    nodes = [
        {
            "number": n.number,
            "name": n.name,
            "form": n.form.value,
            "columns": n.columns,
            "states": n.states,
            "units": {
                place_text(structure, (n.layer, u)): name
                for u, name in zip(n.units, n.names, strict=True)
            },
        }
        for n in drawn.nodes
    ]
    return {"svg": svg(structure, drawn, Values()), "nodes": nodes}


def _json(x: Any) -> float | None:
    """Return a number for JSON, None where an answer was withheld."""
    return float(x) if math.isfinite(x) else None
