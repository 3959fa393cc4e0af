"""Overview of a result: the guarantee and the status, then the answers by name, on one screen.

Settings of methods are not shown; `Result.method` and `Result.plan` have them. A variable that is
observed in every row is left out, because its state is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.display import MOST_LINES, MOST_NAMES, MOST_ROWS, as_html, as_text, few, plain
from pgmengine.base.types import Array
from pgmengine.declare.pictures.scene import Values
from pgmengine.declare.pictures.svg import picture
from pgmengine.evidence.frames import Shown, shown_units, state_keys
from pgmengine.infer.diagnostics.two_phases import TWO_PHASES
from pgmengine.infer.results.axes import state_errors
from pgmengine.infer.results.by_name import Mode, asked, assignment_of, marginal, state_values
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    from pgmengine.infer.results.result import Result

# The name of an answer, and its numbers as text.
Line = tuple[str, str]

# Warnings that a text shows; the others are in `Result.warnings`.
MOST_WARNINGS = 2

# The mark of numbers that are lower bounds.
AT_LEAST = " (at least)"

# Answers that are shown in the lines of other answers.
SHOWN_WITH_OTHERS = (
    *("prob", "prob_interval", "mode_gap"),
    *("log_z_error", "log_z_interval", "log_prob_interval"),
)

# Said where pairs were asked for and the model has no couplings.
NO_PAIRS = "none, since there are no couplings; pgm.Joint(...) has joint probabilities of tables"

# Said beside a good status of a lower bound, which judges the bound alone.
OF_THE_BOUND = "means are those of the distribution of the bound, and their error is unknown"

ANSWER_COLUMNS = ("answer", "value")


def result_text(result: Result) -> str:
    """Return a result as text."""
    lines = list(_lines(result))
    shown = [": ".join(line()) for line in lines[:MOST_LINES]]
    return as_text("\n  ".join([headline(result), *_warnings(result)]), shown, len(lines))


def result_html(result: Result) -> str:
    """Return a result for notebooks: a table of its answers, then a picture for a single row."""
    lines = list(_lines(result))
    rows = [line() for line in lines[:MOST_ROWS]]
    table = as_html(headline(result), ANSWER_COLUMNS, rows, len(lines), _warnings(result))
    if result.target is None or result.target.rows > 1 or "prob" not in result.answers:
        return table
    return table + picture(result.target.structure, values_drawn(result))


def values_drawn(result: Result, row: int = 0) -> Values:
    """Return the marginals of a row of evidence, and what is given, for a picture."""
    target = asked(result.target)
    layers, prob = target.structure.layers, result.raw("prob")
    errors = {n: state_errors(result.stats, layers[n]) for n in prob}

    def of_row(values: Array, name: str) -> Array:
        each = np.reshape(values, (target.rows, layers[name].size, -1))
        return np.asarray(each[row], dtype=float)

    return Values(
        {n: of_row(p, n) for n, p in prob.items()},
        {n: of_row(m, n) for n, m in result.raw("mean").items()},
        {n: ~mask[row] for n, mask in target.free.items()},
        {n: mask[row] for n, mask in target.intervened.items()},
        {n: target.with_soft(n)[row] for n in layers},
        {n: error[row] for n, error in errors.items() if error is not None},
    )


def headline(result: Result) -> str:
    """Return the guarantee, the name of the method, and the status."""
    return f"Result: {result.kind} by {result.plan.method}; {status_text(result)}"


def status_text(result: Result) -> str:
    """Return the status in words, and what it does not judge."""
    status = result.status
    if not status.good:
        # What helps in general may not where a model has two phases, which a warning explains.
        text = status.value.partition(":")[0] if TWO_PHASES in result.warnings else status.value
        methods = getattr(result.method, "methods", (result.method,))
        if any(getattr(method, "tempered", False) for method in methods):
            text = text.replace(", or use a tempering method", "")
        return f"{status.name}, {text}"
    # The bound is proven, and its distribution can have chosen one of several modes.
    unjudged = result.kind == "lower bound" and "mean" in result.answers
    return status.value + (f"; {OF_THE_BOUND}" if unjudged else "")


def _warnings(result: Result) -> Iterator[str]:
    """Yield the first warnings, the number of further ones, and calls that may do better."""
    more = len(result.warnings) - MOST_WARNINGS
    for number, warning in enumerate(result.warnings[:MOST_WARNINGS], 1):
        last = number == MOST_WARNINGS and more > 0
        yield f"warning: {warning}{f' ... and {more} more' if last else ''}"
    yield from (f"to do better, {way}" for way in result.ways)


def _lines(result: Result) -> Iterator[Callable[[], Line]]:
    """Yield functions that make the lines: answers of one line first, then units one by one."""
    answers = result.answers
    at_least = AT_LEAST if result.kind == "lower bound" else ""
    for name, value in answers.items():
        if name == "log_z":
            yield from _log_z_line(result, at_least)
        elif name == "log_prob":
            ends = answers.get("log_prob_interval", result.parameter_intervals.get(name))
            yield partial(_numbers, name + at_least, value, ends, result.log_prob_error)
        elif name not in SHOWN_WITH_OTHERS and not isinstance(value, Mapping):
            yield partial(_numbers, name, value)
    for units, table in answers.get("joint", {}).items():
        yield partial(_numbers, f"joint of {', '.join(map(plain, units))}", table)
    for units, states in answers.get("modes", {}).items() if result.target else ():
        yield partial(_mode_of_some, result, Mode(*units), states)
    storage = () if result.target is None else result.target.structure.names.storage
    has_bias = {} if result.target is None else result.target.structure.has_bias
    without = (name for name, units in has_bias.items() if not units.any())
    held = {f"{name}.bias" for name in (*storage, *without)}
    if "pairs" in answers and not answers["pairs"]:
        yield lambda: ("pairs", NO_PAIRS)
    for name in ("pairs", "gradient"):
        for key, value in answers.get(name, {}).items():
            if key not in held:
                yield partial(_numbers, f"{name} of {plain(key)}", value)
    if result.target is None:
        for name in ("mean", "mode", "samples"):
            for key, value in answers.get(name, {}).items():
                yield partial(_numbers, f"{name} of {plain(key)}", value)
        return
    structure = result.target.structure
    free = [
        one
        for one in shown_units(structure)
        if result.target.free[one.layer.name][:, one.units].any()
    ]
    if "samples" in answers and answers["samples"]:
        draws = len(next(iter(answers["samples"].values())))
        yield lambda: ("samples", f"{draws:,} draws of {few([one.name for one in free])}")
    if "mode" in answers:
        yield partial(_mode, free, answers["mode"], result.target.evidence.has_rows)
    for one in free if "mean" in answers else ():
        yield partial(_marginal, structure, one, answers)
        if one.variable and result.parameter_intervals:
            yield partial(_ends, result, one)


def _log_z_line(result: Result, at_least: str) -> Iterator[Callable[[], Line]]:
    """Yield the line of log Z, unless log_prob says the same; it comes with any log_prob."""
    answers = result.answers
    log_z, log_prob = answers["log_z"], answers.get("log_prob")
    if log_prob is not None and np.array_equal(log_z, log_prob):
        return
    name = "log_z" if log_prob is None else "log_z of the evidence"
    # Where other answers are estimates, the guarantee of the result does not say so.
    if result.kind == "estimate" and not np.any(answers.get("log_z_error", np.nan)):
        name += " (exact)"
    ends = answers.get("log_z_interval", result.parameter_intervals.get("log_z"))
    yield partial(_numbers, name + at_least, log_z, ends)


def interval_text(x: float, low: float, high: float) -> str:
    """Return a number, with its interval where that has two ends.

    >>> interval_text(806.176, 805.999, 806.3531), interval_text(2.5, 2.5, 2.5)
    ('806.176 (805.999 to 806.353)', '2.5')
    """
    return f"{x:.6g} ({low:.6g} to {high:.6g})" if low < high < np.inf else f"{x:.6g}"


def _numbers(
    name: str, given: ArrayLike, intervals: ArrayLike | None = None, errors: ArrayLike | None = None
) -> Line:
    """Return the line of an array: its shape if it has several axes, and its first numbers.

    Numbers have their intervals, or else their standard errors above 0.
    """
    array = np.asarray(given)
    # Without intervals each number is both ends of its own.
    ends = np.stack((array, array), axis=-1) if intervals is None else np.asarray(intervals)
    first = zip(array.flat, ends.reshape(-1, 2), strict=True)
    texts = [
        interval_text(x, *between)
        for (x, between), _ in zip(first, range(MOST_NAMES), strict=False)
    ]
    if errors is not None:
        each = zip(texts, np.asarray(errors).flat, strict=False)
        texts = [f"{text} ± {error:.2g}" if error > 0 else text for text, error in each]
    shape = f"{'x'.join(map(str, array.shape))} numbers, " if array.ndim > 1 else ""
    return name, f"{shape}{few(texts, array.size)}"


def _marginal(
    structure: Structure, shown: Shown, answers: Mapping[str, Mapping[str, Array]]
) -> Line:
    """Return the probabilities of the states of a variable, or the means of a layer."""
    layer = shown.layer
    if not shown.variable and not layer.is_array:
        return _numbers(f"mean of {plain(shown.name)}", answers["mean"][layer.name])
    if not shown.variable:
        # The first numbers of each state, in the order of the array.
        p = answers["prob"][layer.name]
        names = state_keys(layer)
        parts = [_numbers(f"p({plain(n)})", p[..., k]) for k, n in enumerate(names[:MOST_NAMES])]
        more = f" ... and {len(names) - len(parts)} more states" * (len(names) > len(parts))
        return plain(shown.name), "; ".join(f"{name} {text}" for name, text in parts) + more
    found = marginal(structure, answers["prob"], (shown.layer.name, shown.units[0]))
    rows = any(np.ndim(p) for p in found.values())
    each = [f"{plain(state)}={_probabilities(p)}" for state, p in found.items()]
    text = "; ".join(each) if rows and len(each) <= MOST_NAMES else few(each)
    return plain(shown.name), text


def _ends(result: Result, shown: Shown) -> Line:
    """Return the intervals of the probabilities of a variable, of the first row of evidence."""
    found = result.marginal_interval((shown.layer.name, shown.units[0]))
    each = [
        f"{plain(state)}={np.ravel(low)[0]:.4g} to {np.ravel(high)[0]:.4g}"
        for state, (low, high) in found.items()
    ]
    return "  95 % with the error of learning", few(each)


def _probabilities(prob: float | Array) -> str:
    """Return a probability as text, or the probabilities of the first rows."""
    each = np.atleast_1d(prob)
    return few([f"{p:.4g}" for p in each[:MOST_NAMES]], len(each))


def _mode(free: list[Shown], mode: Mapping[str, Array], has_rows: bool) -> Line:
    """Return the most probable states of the first units, in the first row if there are rows."""
    texts, number, rows = list[str](), 0, 1
    for one in free:
        values = state_values(one.layer, mode[one.layer.name])
        rows = len(values) if has_rows else 1
        of_row = values[0] if has_rows else values
        number += len(one.units)
        for i in one.units[: MOST_NAMES - len(texts)]:
            name = one.name if one.variable else f"{one.name}[{one.labels[one.units.index(i)]}]"
            state = of_row[i]
            named = one.layer.state_names is not None
            texts.append(f"{name}={plain(state) if named else f'{state:g}'}")
    return "mode", f"{few(texts, number)}{f' (row 0 of {rows})' if has_rows else ''}"


def _mode_of_some(result: Result, mode: Mode, states: Array) -> Line:
    """Return the most probable states of some units, of the first row if there are several."""
    target = asked(result.target)
    rows = target.rows if target.evidence.has_rows else 0
    own = assignment_of(target.structure, mode, states[0] if rows else states)
    texts = [
        f"{plain(name)}={few(np.ravel(value).tolist()) if np.ndim(value) else value}"
        for name, value in own.items()
    ]
    return plain(str(mode)), f"{'; '.join(texts)}{f' (row 0 of {rows})' if rows else ''}"
