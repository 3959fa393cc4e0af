"""Answers, plans and fits as JSON for programs.

Entries of a result have the axes of the public `Result`: arrays over rows where the evidence has
rows, else single values. Arrays of variables and layers keep their shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pgmengine as pgm
from pgmengine.apps.cli.files_of_answers import by_name
from pgmengine.apps.cli.units import NamedUnit, error_of_states, named_units
from pgmengine.base.types import Array
from pgmengine.evidence.frames import Shown, shown_units, state_keys
from pgmengine.infer.question.explanation import Explanation
from pgmengine.infer.results.by_name import asked, marginal
from pgmengine.model.names.state_names import text_of

# Answers with a number for each row.
BY_ROW = ("log_z", "log_z_error", "log_z_interval", "log_prob", "bound")


def result_as_json(result: pgm.Result) -> dict[str, Any]:
    """Return the guarantee, the status, the plan and all answers of a result."""
    target = asked(result.target)
    rows = target.rows if target.evidence.has_rows else None
    found: dict[str, Any] = {
        "kind": result.kind,
        "status": {
            "name": result.status.name,
            "good": result.status.good,
            "text": result.status.value,
        },
        "warnings": list(result.warnings),
        "plan": _plan(result.plan),
        "refused": [_plan(plan) for plan in result.refused],
        "rows": rows,
    }
    for name in BY_ROW:
        if name in result.answers:
            value = np.asarray(result.answers[name])
            found[name] = value if rows is not None else value[0]
    if "log_prob_error" in result.stats:
        error = np.asarray(result.stats["log_prob_error"])
        found["log_prob_error"] = error if rows is not None else error[0]
    if "prob" in result.answers:
        found |= _marginals(result)
    for name in ("mode", "samples"):
        if name in result.answers:
            found[name] = _states(result, name, rows)
    for name in ("pairs", "gradient"):
        if name in result.answers:
            found[name] = dict(result.answers[name])
    return found


def _plan(plan: pgm.Plan[Any]) -> dict[str, Any]:
    """Return a plan."""
    return {
        "method": plan.method,
        "guarantee": plan.guarantee,
        "why": plan.why,
        "refusal": plan.refusal,
        "unit_updates": plan.work,
        "bytes": plan.bytes,
        "seconds": plan.seconds,
        "most_seconds": plan.most_seconds,
    }


def _marginals(result: pgm.Result) -> dict[str, Any]:
    """Return probabilities of states by name, and means of layers of numbers.

    Estimates have the standard errors of the probabilities beside them.
    """
    s, prob = asked(result.target).structure, result.answers["prob"]
    marginals, means = dict[str, Any](), dict[str, Any]()
    for x in shown_units(s):
        if _has_states(x):
            key = (x.layer.name, x.units[0]) if x.variable else x.name
            found = marginal(s, prob, key)
            marginals[x.name] = {text_of(state): p for state, p in found.items()}
        else:
            means[x.name] = x.layer.in_shape(result.answers["mean"][x.layer.name], -1)
    out: dict[str, Any] = {"marginals": marginals}
    errors = {unit.name: _errors(result, unit) for unit in named_units(s)}
    if errors := {name: found for name, found in errors.items() if found is not None}:
        out["errors"] = errors
    return out | ({"means": means} if means else {})


def _errors(result: pgm.Result, unit: NamedUnit) -> dict[str, Any] | None:
    """Return the standard error of the probability of each state, None where there is none."""
    found = error_of_states(result, unit)
    if found is None:
        return None
    has_rows = asked(result.target).evidence.has_rows
    columns = found.T if has_rows else found[0]
    return {text_of(s): e for s, e in zip(state_keys(unit.layer), columns, strict=True)}


def _has_states(shown: Shown) -> bool:
    """Return whether units have states with names, or a probability for each component."""
    layer = shown.layer
    return layer.unit.support is not None and (
        shown.variable or layer.is_array or layer.state_names is not None or layer.unit.one_hot
    )


def _states(result: pgm.Result, name: str, rows: int | None) -> dict[str, Any]:
    """Return modes or draws by name, with names of states; null where a value was withheld."""
    s = asked(result.target).structure
    found = by_name(name, result.answers[name], s)
    out = dict[str, Any]()
    for x in shown_units(s):
        if x.name not in found:
            continue
        value = found[x.name]
        if name == "samples" and rows is None:
            value = value[:, 0]
        out[x.name] = _withheld(value if x.variable else _shaped(x, value))
    return out


def _shaped(shown: Shown, value: Array) -> Array:
    """Return values of a layer in its shape."""
    named = shown.layer.state_table is not None or shown.layer.unit.width == 1
    return shown.layer.in_shape(value, -1 if named else -2) if shown.layer.shape else value


def _withheld(value: Array) -> Any:
    """Return an array with None where the text of a state is empty because it was withheld."""
    if value.dtype.kind != "U":
        return value
    texts = value.astype(object)
    texts[value == ""] = None
    return texts


def plans_as_json(found: Explanation) -> dict[str, Any]:
    """Return the plans of a question, for each of its parts."""
    parts = [
        {
            "title": part.title,
            "chosen": None if part.chosen is None else _plan(part.chosen),
            "plans": [_plan(plan) for plan in part.plans],
        }
        for part in found.parts
    ]
    return {"question": found.head, "parts": parts}
