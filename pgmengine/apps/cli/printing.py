"""Models and answers as lines of text, one variable a line, on terminals and in pipes alike.

Lines are never cut: a terminal wraps long ones, and programs such as grep see them whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

import pgmengine as pgm
from pgmengine.apps.cli.answers import flat_answers, named_units
from pgmengine.base.types import Array
from pgmengine.declare.summary import parents
from pgmengine.evidence.frames import shown_units, state_keys
from pgmengine.infer.results.axes import state_errors
from pgmengine.infer.results.by_name import asked, state_values
from pgmengine.infer.results.overview import AT_LEAST, NO_PAIRS, headline, interval_text
from pgmengine.model.headline import headline as model_headline
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import text_of

# Answers with a number for each row, and the statistics with their standard errors. The interval of
# log_z says more than its standard error, which knows nothing of other runs.
NUMBERS_OF_ROWS = {"log_z": "", "log_prob": "log_prob_error", "bound": ""}

# Numbers of an array that is printed whole.
MAX_NUMBERS_SHOWN = 60

Row = tuple[str, ...]


def lines_of_model(model: pgm.Model) -> Iterator[str]:
    """Yield a headline, the variables with states and parents, the layers, and the parameters."""
    s = model.structure
    yield model_headline(s, model.params)
    if s.variables:
        yield from _table(("variable", "states", "parents", "tables"), _variables(model))
    if not s.variables or len(s.variables) < s.units:
        yield from _table(("layer", "unit or states", "size"), _layers(model))
    yield from _table(("parameter", "shape", "smallest", "largest"), _parameters(model))


def _table(head: Row, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table in columns; columns without entries are left out."""
    kept = [i for i in range(len(head)) if any(row[i] for row in rows)]
    if not rows:
        return
    cells = [[row[i] for i in kept] for row in (head, *rows)]
    # A long entry does not move the other columns away.
    widths = [min(max(len(line[i]) for line in cells), 40) for i in range(len(kept))]
    yield ""
    for line in cells:
        padded = [x.ljust(width) for x, width in zip(line, widths, strict=True)]
        yield "  ".join(padded).rstrip()


def _variables(model: pgm.Model) -> list[Row]:
    """Return the variables, with their states, parents, and numbers of tables that are no parents.

    The last column counts the potentials that a variable is in.
    """
    s = model.structure
    above = parents(s, s.variables)
    inside = Counter(
        place
        for t in s.tables
        if not t.conditional
        for units in t.index.tolist()
        for place in zip(t.layers, units, strict=True)
    )
    rows = list[Row]()
    for place in s.variables:
        states = ", ".join(map(str, state_keys(s.layers[place[0]])))
        name, tables = s.names.of(place), str(inside[place] or "")
        rows.append((name, states, ", ".join(above[place]), tables))
    return rows


def _layers(model: pgm.Model) -> list[Row]:
    """Return the layers whose units are no variables."""
    rows = list[Row]()
    for x in shown_units(model.structure):
        if not x.variable:
            states = ", ".join(map(str, state_keys(x.layer))) if x.layer.is_array else ""
            size = " x ".join(map(str, x.layer.grid))
            rows.append((x.name, states or repr(x.layer.unit), size))
    return rows


def _parameters(model: pgm.Model) -> list[Row]:
    """Return the parameters with their ranges.

    For a model with variables it leaves out tables, and biases of variables if they are 0.
    """
    s, rows = model.structure, list[Row]()
    tables = {t.key for t in s.tables} if s.variables else set()
    biases = {f"{name}.bias" for name, _ in s.variables}
    biases |= {f"{name}.bias" for name, units in s.has_bias.items() if not units.any()}
    for name, value in model.params.items():
        dense = np.asarray(value.data if hasattr(value, "tocoo") else value)
        if name in tables or (name in biases and not dense.any()):
            continue
        layer = s.layers.get(name.removesuffix(".bias"))
        held = layer is not None and layer.holds_variables and name in biases
        # A layer that holds variables is only their storage, so each variable gets its own line.
        parts = zip(layer.unit_texts, dense, strict=True) if held and layer else [(name, dense)]
        for one, part in parts:
            low, high = (f"{f(part):.4g}" if np.size(part) else "-" for f in (np.min, np.max))
            shape = np.shape(part) or (1,) if held else value.shape
            axes = "x".join(map(str, shape)) or "1"
            rows.append((f"{one}.bias" if held else name, axes, low, high))
    return rows


def lines_of_result(result: pgm.Result, want: Collection[str]) -> Iterator[str]:
    """Yield the guarantee, the status and the plan, then a line for each row and variable.

    `want` has the quantities to show; log_prob comes with log_z, which then is left out.
    """
    target = asked(result.target)
    yield headline(result).removeprefix("Result: ")
    yield f"plan: {result.plan.why}; about {', '.join(x for x in result.plan.sizes if x)}"
    for row in range(target.rows if target.evidence.has_rows else 1):
        head = f"row {row}, " if target.evidence.has_rows else ""
        for line in (*_numbers_of_row(result, want, row), *_lines_of_row(result, row)):
            yield f"{head}{line}"
    seen = {*NUMBERS_OF_ROWS, *NUMBERS_OF_ROWS.values(), "log_z_error", "log_z_interval"}
    if "pairs" in want and not result.answers.get("pairs", True):
        yield f"pairs: {NO_PAIRS}"
    # Variables, and arrays of variables, have lines of their own.
    whole = [
        x.name
        for x in shown_units(target.structure)
        if x.variable or (x.layer.is_array and x.layer.unit.support is not None)
    ]
    of_variables = {f"{a}.{v}" for a in ("mean", "prob", "mode", "states") for v in whole}
    for name, array in flat_answers(result, target.structure).items():
        if name not in seen | of_variables:
            yield f"{name}: {_text_of_array(array)}"


def _numbers_of_row(result: pgm.Result, want: Collection[str], row: int) -> Iterator[str]:
    """Yield the numbers of a row, with their standard errors."""
    for name, error_name in NUMBERS_OF_ROWS.items():
        if name in want:
            value = result.answers[name][row]
            error = result.answers.get(error_name, result.stats.get(error_name))
            spread = 0.0 if error is None else error[row]
            low, high = result.log_z_interval[row] if name == "log_z" else (value, value)
            text = interval_text(value, low, high)
            mark = AT_LEAST if result.kind == "lower bound" else ""
            yield f"{name}{mark}: {text}{f' ± {spread:.2g}' if spread > 0 else ''}"


def _lines_of_row(result: pgm.Result, row: int) -> Iterator[str]:
    """Yield a line for each variable, with the answers for a row."""
    target, answers = asked(result.target), result.answers

    def own(answer: str, layer: str) -> Array:
        values: Array = answers[answer][layer]
        return values[row] if target.evidence.has_rows else values

    for name, layer, unit in named_units(target.structure):
        parts = list[str]()
        if "prob" in answers:
            found = state_errors(result.stats, layer)
            errors = None if found is None else found[min(row, len(found) - 1), unit]
            parts.append(_shares(layer, own("prob", layer.name)[unit], errors))
        if "mode" in answers:
            states = state_values(layer, own("mode", layer.name))
            parts.append(f"mode {texts_of_states(states[unit])}")
        if parts:
            yield f"{name}: {'; '.join(parts)}"


def _shares(layer: Layer, prob: Array, errors: Array | None) -> str:
    """Return "yes=0.25, no=0.75", with standard errors where the answer is an estimate."""
    spread = np.zeros(len(prob)) if errors is None else errors
    return ", ".join(
        f"{text_of(state)}={p:.4g}{f' ± {e:.1g}' if e > 0 else ''}"
        for state, p, e in zip(state_keys(layer), prob, spread, strict=True)
    )


def _text_of_array(array: Array) -> str:
    """Return an array on one line, with its shape if it has several axes."""
    text = np.array2string(
        array, precision=4, suppress_small=True, threshold=MAX_NUMBERS_SHOWN, max_line_width=10**9
    )
    shape = f"{'x'.join(map(str, array.shape))}, " if array.ndim > 1 else ""
    return f"{shape}{' '.join(text.split())}"


def print_draws(named: Mapping[str, Array]) -> None:
    """Print a line for each draw and row of evidence, with the states of all layers."""
    draws, rows = next(iter(named.values())).shape[:2]
    for i, row in np.ndindex(draws, rows):
        head = f"row {row}: " if rows > 1 else ""
        layers = (f"{name}={texts_of_states(value[i, row], ',')}" for name, value in named.items())
        print(head + "  ".join(layers))


def texts_of_states(values: object, between: str = " ") -> str:
    """Return a state, or the states of many rows or units, as text."""
    each = np.ravel(np.asarray(values, dtype=object)).tolist()
    return between.join(f"{x:g}" if isinstance(x, float) else text_of(x) for x in each)
