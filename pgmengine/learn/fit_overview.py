"""Overview of a fit: how it ended, the model, methods, findings, and last values of monitors.

It leaves out the settings of methods, which are in the attributes of `Fit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.display import as_html, as_text, counted, few, plain
from pgmengine.declare.template import as_template
from pgmengine.learn.starting.random_starts import BEST_OF
from pgmengine.model.headline import headline

if TYPE_CHECKING:
    from pgmengine.learn.fit import Fit

FIT_COLUMNS = ("part", "value")


def fit_text(fit: Fit) -> str:
    """Return a fit as text."""
    lines = list(_lines(fit))
    return as_text(_ended(fit), [": ".join(line) for line in lines], len(lines))


def fit_html(fit: Fit) -> str:
    """Return a fit as a table for notebooks."""
    lines = list(_lines(fit))
    return as_html(_ended(fit), FIT_COLUMNS, lines, len(lines))


def _ended(fit: Fit) -> str:
    """Return the number of updates, and how learning ended."""
    ends = (
        "interrupted" if fit.interrupted else "",
        f"stopped: {fit.stopped}" if fit.stopped else "",
        fit.unsaved,
    )
    updates = counted(int(fit.state["update"]), "update")
    # The starts made updates of their own, which are not counted.
    if any(note.startswith(BEST_OF) for note in fit.notes):
        updates += " after those of its starts"
    return "; ".join([f"Fit: {updates}", *(end for end in ends if end)])


def _lines(fit: Fit) -> Iterator[tuple[str, str]]:
    """Yield the model, the methods that learned it, findings, and the last value of monitors."""
    template = as_template(fit)
    text = headline(fit.model.structure, fit.model.params) if template is None else repr(template)
    yield "model", text
    if fit.factorised:
        yield "data phase", "exact, because posteriors factorise"
    else:
        yield "data phase", f"by {type(fit.positive).__name__}"
    if fit.negative is not None:
        yield "model phase", f"by {type(fit.negative).__name__}"
    if fit.optimizer is not None:
        yield "steps", f"by {type(fit.optimizer).__name__}"
    if fit.started:
        yield "started", f"at the base rates of {few(fit.started)}"
    for note in fit.notes:
        yield "note", note
    for finding in fit.findings:
        yield "finding", str(finding)
    for name, entry in fit.history.items():
        if len(entry["value"]):
            value, update = entry["value"][-1], entry["update"][-1]
            yield plain(name), f"{few(f'{x:.6g}' for x in np.ravel(value))} at update {update:,}"
