"""Answers, plans and draws by name: as JSON for programs, and in .npz, .json and .csv files.

Entries have the names of variables, arrays and layers, and states have their names. Arrays keep
their shape. JSON has no NaN and no infinities: a number that is not known is null, and an infinite
one is the text "Infinity" or "-Infinity", which Python's float() and JavaScript's Number() read.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO, StringIO
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import pgmengine as pgm
from pgmengine.base.files import writable, write_whole
from pgmengine.base.types import Array
from pgmengine.evidence.frames import Shown, shown_units, state_keys
from pgmengine.infer.question.explanation import Explanation
from pgmengine.infer.results.axes import state_errors
from pgmengine.infer.results.by_name import asked, marginal, state_values
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import text_of
from pgmengine.model.structure import Structure

# Names of the answers that have an axis of units.
ANSWERS_BY_UNIT = ("mean", "prob", "mode", "samples")

# Answers, or statistics of them, with a number for each row.
BY_ROW = ("log_z", "log_z_error", "log_z_interval", "log_prob", "bound", "log_prob_error")

# The entries of a plan; those about its cost are called by their units.
PLAN = ("method", "guarantee", "why", "refusal", "work", "bytes", "seconds", "most_seconds")
CALLED = {"work": "unit_updates"}


def named_units(structure: Structure) -> Iterator[tuple[str, Layer, int]]:
    """Yield the units with names and finitely many states: arrays of variables, then variables.

    Each is the name of the variable with its index in an array, the layer, and its number there.
    """
    for x in shown_units(structure):
        if x.layer.unit.support is not None and (x.variable or x.layer.is_array):
            for i in x.units:
                yield structure.names.of((x.layer.name, i)), x.layer, i


def flat_answers(result: pgm.Result, structure: Structure) -> dict[str, Array]:
    """Return the answers as arrays: "log_z", "mean.v" of layer v, and "prob.rain" of a variable.

    Arrays of a variable have no axis of units. "states.rain" has the names of its states, in the
    order in which "prob.rain" and "mean.rain" have their probabilities.
    """
    arrays: dict[str, Array] = {}
    storage = {name for name, _ in structure.variables}
    for name, value in result.answers.items():
        if name == "mean" and "prob" in result.answers:
            # Under "mean", a variable has the probabilities of its states.
            value = {k: result.answers["prob"][k] if k in storage else v for k, v in value.items()}
        if name in ANSWERS_BY_UNIT:
            value = by_name(name, value, structure)
        if isinstance(value, Mapping):
            arrays |= {f"{name}.{key}": np.asarray(v) for key, v in value.items()}
        else:
            arrays[name] = np.asarray(value)
    for x in shown_units(structure) if "prob" in result.answers else ():
        if x.variable:
            arrays[f"states.{x.name}"] = np.array(state_keys(x.layer))
    return arrays


def by_name(answer: str, values: Mapping[str, Array], structure: Structure) -> dict[str, Array]:
    """Return layer or variable -> array; states are given by their names."""
    out: dict[str, Array] = {}
    for x in shown_units(structure):
        if x.layer.name not in values:
            continue
        value = np.asarray(values[x.layer.name])
        if answer in ("mode", "samples") and (x.layer.state_table is not None or x.variable):
            states = _states_as_text(x.layer, value)
            out[x.name] = states[..., x.units[0]] if x.variable else states
        else:
            out[x.name] = value[..., x.units[0], :] if x.variable else value
    return out


def _states_as_text(layer: Layer, values: Array) -> Array:
    """Return names of states as text, empty where a value was withheld.

    States without names stay numbers.
    """
    if (table := layer.state_table) is None:
        return np.asarray(state_values(layer, values))
    texts = np.array(table.texts, dtype=object)
    lost = np.isnan(values) if layer.unit.width == 1 else np.isnan(values).any(axis=-1)
    return np.where(lost, "", texts[layer.unit.state_of(values)]).astype(str)


def result_as_json(result: pgm.Result) -> dict[str, Any]:
    """Return the guarantee, the status, the plan and all answers of a result.

    Entries have the axes of the public `Result`: arrays over rows where the evidence has rows, else
    single values.
    """
    target, status, answers = asked(result.target), result.status, result.answers
    rows = target.rows if target.evidence.has_rows else None
    found: dict[str, Any] = {
        "kind": result.kind,
        "status": {"name": status.name, "good": status.good, "text": status.value},
        "warnings": list(result.warnings),
        "ways": list(result.ways),
        "plan": _plan(result.plan),
        "refused": [_plan(plan) for plan in result.refused],
        "rows": rows,
    }
    for name in BY_ROW:
        held = result.stats if name == "log_prob_error" else answers
        if name in held:
            value = np.asarray(held[name])
            found[name] = value if rows is not None else value[0]
    if "prob" in answers:
        found |= _marginals(result)
    found |= {n: _states(result, n, rows) for n in ("mode", "samples") if n in answers}
    return found | {n: dict(answers[n]) for n in ("pairs", "gradient") if n in answers}


def _plan(plan: pgm.Plan[Any]) -> dict[str, Any]:
    """Return a plan."""
    return {CALLED.get(name, name): getattr(plan, name) for name in PLAN}


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


def _marginals(result: pgm.Result) -> dict[str, Any]:
    """Return probabilities of states by name, and means of layers of numbers.

    Estimates have the standard errors of the probabilities beside them.
    """
    target = asked(result.target)
    s, prob = target.structure, result.answers["prob"]
    out = dict[str, dict[str, Any]](marginals={}, errors={}, means={})
    for x in shown_units(s):
        layer = x.layer
        named = x.variable or layer.is_array or layer.state_names is not None
        if layer.unit.support is not None and (named or layer.unit.one_hot):
            shares = marginal(s, prob, (layer.name, x.units[0]) if x.variable else x.name)
            out["marginals"][x.name] = {text_of(state): p for state, p in shares.items()}
        else:
            out["means"][x.name] = layer.in_shape(result.answers["mean"][layer.name], -1)
    for name, layer, unit in named_units(s):
        if (errors := state_errors(result.stats, layer)) is not None:
            columns = errors[:, unit].T if target.evidence.has_rows else errors[0, unit]
            keys = map(text_of, state_keys(layer))
            out["errors"][name] = dict(zip(keys, columns, strict=True))
    return {name: found for name, found in out.items() if found or name == "marginals"}


def _states(result: pgm.Result, name: str, rows: int | None) -> dict[str, Any]:
    """Return modes or draws by name, with names of states; null where a value was withheld."""
    s, out = asked(result.target).structure, dict[str, Any]()
    found = by_name(name, result.answers[name], s)
    for x in shown_units(s):
        if x.name in found:
            value = found[x.name]
            value = _shaped(x, value[:, 0] if name == "samples" and rows is None else value)
            if value.dtype.kind == "U":
                # The text of a state is empty where it was withheld.
                lost, value = value == "", value.astype(object)
                value[lost] = None
            out[x.name] = value
    return out


def _shaped(shown: Shown, value: Array) -> Array:
    """Return values of a layer in its shape."""
    if shown.variable or not shown.layer.shape:
        return value
    named = shown.layer.state_table is not None or shown.layer.unit.width == 1
    return shown.layer.in_shape(value, -1 if named else -2)


def as_json(value: Any) -> Any:
    """Return arrays, numbers, lists and mappings as values of JSON.

    >>> import numpy as np
    >>> as_json({"a": np.array([0.5, np.nan, -np.inf]), "b": np.int64(3)})
    {'a': [0.5, None, '-Infinity'], 'b': 3}
    """
    if isinstance(value, Mapping):
        return {str(key): as_json(x) for key, x in value.items()}
    if isinstance(value, np.ndarray):
        finite = value.dtype.kind in "biuU" or (
            value.dtype.kind == "f" and bool(np.isfinite(value).all())
        )
        return value.tolist() if finite else as_json(value.tolist())
    if isinstance(value, (list, tuple)):
        return [as_json(x) for x in value]
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return value


def json_text(values: Mapping[str, Any]) -> str:
    """Return a mapping as a JSON object, with a line for each entry."""
    each = as_json(values).items()
    lines = (f"  {json.dumps(key)}: {json.dumps(x, allow_nan=False)}" for key, x in each)
    return "{\n" + ",\n".join(lines) + "\n}"


def check_names_in_files(structure: Structure) -> None:
    """Raise PgmError, before any work, if the text of a state's name means another state."""
    for layer in structure.layers.values():
        if layer.state_table is not None:
            for state in range(len(layer.state_table.names)):
                layer.state_table.text(state, layer.title)


def check_folder(out: Path) -> None:
    """Raise PgmError, before any work, unless the file can be written."""
    writable(out)
    if not out.parent.is_dir():
        raise pgm.PgmError(f"{out}: there is no folder {out.parent}")


def check_out(out: Path | None, suffixes: Sequence[str] = (".npz", ".json")) -> None:
    """Raise PgmError unless a file of answers of one of these kinds can be written here."""
    if out is not None and out.suffix not in suffixes:
        *others, last = suffixes
        raise pgm.PgmError(f"out must end in {', '.join(others)} or {last}, not {out}")
    if out is not None:
        check_folder(out)


def write(out: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name to a .npz or .json file."""
    if out.suffix == ".npz":
        held = BytesIO()
        # The stubs of numpy take the names for its option allow_pickle.
        np.savez_compressed(held, **arrays)  # type: ignore[arg-type]
        content = held.getvalue()
    else:
        content = json_text(arrays).encode()
    write_whole(out, content)
    print(f"wrote {out}")


def write_rows(
    samples: Mapping[str, Array], structure: Structure, file: TextIO, comma: str
) -> None:
    """Write draws as lines of text: the names of the units, then a column for each unit.

    Variables come first, then the units of layers. The draws of a row of evidence are adjacent.
    """
    layers = []
    for x in shown_units(structure):
        values = _states_as_text(x.layer, np.asarray(samples[x.layer.name]))
        columns = [(structure.names.text((x.layer.name, i)), values[:, :, i]) for i in x.units]
        layers.append((not x.variable, columns))
    every = [column for _, columns in sorted(layers, key=itemgetter(0)) for column in columns]
    lines = csv.writer(file, delimiter=comma, lineterminator="\n")
    lines.writerow(name for name, _ in every)
    texts = ([text_of(x) for x in values.T.ravel().tolist()] for _, values in every)
    lines.writerows(zip(*texts, strict=True))


def write_csv(out: Path, samples: Mapping[str, Array], structure: Structure) -> None:
    """Write draws to a .csv file."""
    held = StringIO()
    write_rows(samples, structure, held, ",")
    write_whole(out, held.getvalue().encode())
    print(f"wrote {out}")
