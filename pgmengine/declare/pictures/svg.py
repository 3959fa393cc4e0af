"""The text of a picture as SVG without scripts, styles or links, so that it stands alone anywhere.

Colours are attributes, and text and lines have the colour of their surroundings, so that the
picture fits light and dark pages. The explorer takes the same text, with every bar and cell in it,
and moves the bars: `data-at` has the number of the layer and of the unit, `data-state` the number
of the state, and the classes are those of `data/explorer.css`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from pgmengine.base.types import Array
from pgmengine.declare.pictures.scene import (
    BAR_PIXELS,
    MARGIN_PIXELS,
    MAX_STATE_LETTERS,
    NUMBER_PIXELS,
    ROW_PIXELS,
    TITLE_PIXELS,
    Form,
    Node,
    Scene,
    scene,
)
from pgmengine.declare.pictures.sketch import sketch
from pgmengine.model.structure import Structure

# Colours that people with any colour vision can tell apart (Okabe and Ito 2008).
BLUE, ORANGE, PURPLE, GREEN = "#2f7fb8", "#d55e00", "#b0579a", "#00896b"

# Bars and cells of a picture in a notebook, and nodes: larger models are shown in words alone.
MAX_MARKS, MAX_NODES = 1500, 60

# Standard errors on both sides of the end of a bar.
ERRORS_DRAWN = 2.0

# The length and half the width of the head of an arrow, in pixels.
HEAD_PIXELS, HALF_HEAD_PIXELS = 8.0, 3.5


@dataclass(frozen=True, eq=False)
class Values:
    """The numbers of a picture for one row of evidence, by layer.

    Attributes
    ----------
    prob : (size, states) probabilities; layers may be missing.
    mean : (size,) means of layers with infinitely many values.
    observed, intervened, soft : (size,) bool; layers without soft evidence may be missing.
    error : (size, states) standard errors of estimated probabilities; layers may be missing.
    """

    prob: Mapping[str, Array] = field(default_factory=dict)
    mean: Mapping[str, Array] = field(default_factory=dict)
    observed: Mapping[str, Array] = field(default_factory=dict)
    intervened: Mapping[str, Array] = field(default_factory=dict)
    soft: Mapping[str, Array] = field(default_factory=dict)
    error: Mapping[str, Array] = field(default_factory=dict)


def picture(structure: Structure, values: Values | None = None) -> str:
    """Return the picture of a model for notebooks; an empty text if the model is too large."""
    if len(structure.layers) + len(structure.variables) > 2 * MAX_NODES:
        return ""
    drawn = sketch(structure)
    if not 0 < len(drawn.nodes) <= MAX_NODES:
        return ""
    found = scene(structure, drawn, range(len(drawn.nodes)))
    if found.marks > MAX_MARKS and values is not None:
        return ""
    return svg(structure, found, values or Values(), whole=False)


def svg(structure: Structure, found: Scene, values: Values, whole: bool = True) -> str:
    """Return the text of a picture.

    `whole`: draw all bars and cells, also of layers without numbers, for the explorer.
    """
    numbers = {name: i for i, name in enumerate(structure.layers)}
    size = f'width="{found.width:.0f}" height="{found.height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pgm-drawing" {size} '
        f'viewBox="0 0 {found.width:.0f} {found.height:.0f}" role="img" '
        'aria-label="the variables and layers of the model" font-family="system-ui, sans-serif" '
        'font-size="12" fill="currentColor">',
        *_edges(found),
    ]
    for x, y in found.factors:
        parts.append(
            f'<rect class="pgm-factor" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
        )
    for node in found.nodes:
        parts += _node(node, numbers[node.layer], values, whole)
    return "".join([*parts, "</svg>"])


def _edges(found: Scene) -> Iterator[str]:
    """Yield the lines of edges and the heads of arrows."""
    for edge in found.edges:
        way = edge.route
        text = f"M{way[0][0]:.1f} {way[0][1]:.1f}"
        for i, (x, y) in enumerate(way[1:], 1):
            before = way[i - 1]
            if i % 2:
                text += f"L{x:.1f} {y:.1f}"
            else:
                middle = (before[1] + y) / 2
                text += f"C{before[0]:.1f} {middle:.1f} {x:.1f} {middle:.1f} {x:.1f} {y:.1f}"
        yield (
            f'<path class="pgm-edge" d="{text}" fill="none" stroke="currentColor" '
            'stroke-opacity="0.55" stroke-width="1.2"/>'
        )
        if edge.arrow:
            yield _head(way)


def _head(way: list[tuple[float, float]]) -> str:
    """Return the head of an arrow at the end of a route."""
    (x, y), before = way[-1], way[-2]
    # A route may end with a step of no length, after a curve that arrives vertically.
    far = next((p for p in reversed(way[:-1]) if abs(p[0] - x) + abs(p[1] - y) > 0.5), before)
    towards = np.array([x - far[0], y - far[1]]) if len(way) == 2 else np.array([0.0, y - far[1]])
    towards = towards / (np.linalg.norm(towards) or 1.0)
    aside = np.array([-towards[1], towards[0]]) * HALF_HEAD_PIXELS
    back = np.array([x, y]) - towards * HEAD_PIXELS
    points = [(x, y), tuple(back + aside), tuple(back - aside)]
    text = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    return f'<polygon class="pgm-head" points="{text}" fill-opacity="0.7"/>'


def _node(node: Node, layer: int, values: Values, whole: bool) -> Iterator[str]:
    """Yield the parts of a node."""
    from html import escape

    yield f'<g class="pgm-node pgm-{node.form.value}" data-node="{node.number}">'
    yield (
        f'<rect class="pgm-box" x="{node.x:.1f}" y="{node.y:.1f}" width="{node.width:.1f}" '
        f'height="{node.height:.1f}" rx="5" fill="none" stroke="currentColor" '
        'stroke-opacity="0.45"/>'
    )
    yield (
        f'<text class="pgm-title" x="{node.x + 8:.1f}" y="{node.y + 16:.1f}" font-weight="600">'
        f"<title>{escape(node.name)}</title>{escape(node.title)}</text>"
    )
    numbers = values.mean if node.form is Form.MEANS else values.prob
    has_numbers = node.layer in numbers
    if node.form is Form.BARS:
        yield from _bars(node, layer, values, has_numbers, whole)
    else:
        yield from _rows(node)
        if has_numbers or whole:
            yield from _cells(node, layer, values)
        else:
            yield _frame(node)
    yield "</g>"


def _rows(node: Node) -> Iterator[str]:
    """Yield the names of the states beside a strip."""
    from html import escape

    for k, state in enumerate(node.states if node.form is Form.STRIP else ()):
        y = node.y + TITLE_PIXELS + node.cell[1] * k + 13
        yield (
            f'<text class="pgm-label" x="{node.x + MARGIN_PIXELS:.1f}" y="{y:.1f}">'
            f"<title>{escape(state)}</title>{escape(_short(state))}</text>"
        )


def _short(state: str) -> str:
    """Return a name of a state as it is drawn."""
    if len(state) <= MAX_STATE_LETTERS:
        return state
    return f"{state[: MAX_STATE_LETTERS - 1]}…"


def _frame(node: Node) -> str:
    """Return the outline of the cells of a layer without numbers."""
    wide = min(node.columns, len(node.units)) * node.cell[0]
    high = node.height - TITLE_PIXELS - MARGIN_PIXELS
    x = node.x + MARGIN_PIXELS + node.indent
    return (
        f'<rect class="pgm-frame" x="{x:.1f}" y="{node.y + TITLE_PIXELS:.1f}" width="{wide:.1f}" '
        f'height="{high:.1f}" fill="currentColor" fill-opacity="0.08"/>'
    )


def _bars(node: Node, layer: int, values: Values, has_numbers: bool, whole: bool) -> Iterator[str]:
    """Yield the rows of the states of a variable."""
    from html import escape

    unit = node.units[0]
    seen, done, soft = _given(node, values, unit)
    for k, state in enumerate(node.states):
        p = float(values.prob[node.layer][unit, k]) if has_numbers else 0.0
        y, x = node.y + TITLE_PIXELS + ROW_PIXELS * k, node.x + node.indent
        mark = "◐" if soft else ("▲" if done else "●") if seen and p == 1 else ""
        color = GREEN if soft else (PURPLE if done else ORANGE) if seen else BLUE
        yield f'<g class="pgm-state" data-at="{layer},{unit}" data-state="{k}">'
        if whole:
            yield (
                f'<rect class="pgm-hit" x="{node.x + 1:.1f}" y="{y:.1f}" '
                f'width="{node.width - 2:.1f}" height="{ROW_PIXELS:.1f}" fill-opacity="0"/>'
            )
        yield (
            f'<text class="pgm-label" x="{node.x + MARGIN_PIXELS:.1f}" y="{y + 13:.1f}">'
            f"<title>{escape(state)}</title>{escape(_short(state))}</text>"
        )
        if whole:
            yield (
                f'<rect class="pgm-ghost" x="{x:.1f}" y="{y + 2:.1f}" width="0" '
                f'height="{ROW_PIXELS - 4:.1f}"/>'
            )
        if has_numbers or whole:
            yield (
                f'<rect class="pgm-bar" x="{x:.1f}" y="{y + 4:.1f}" width="{BAR_PIXELS * p:.1f}" '
                f'height="{ROW_PIXELS - 8:.1f}" fill="{color}"/>'
            )
            yield from _error(node, values, unit, k, x, y + ROW_PIXELS / 2)
            yield (
                f'<text class="pgm-number" x="{x + BAR_PIXELS + NUMBER_PIXELS - 6:.1f}" '
                f'y="{y + 13:.1f}" text-anchor="end">{mark} '
                f"{percent(p) if has_numbers else ''}</text>"
            )
        yield "</g>"


def _error(node: Node, values: Values, unit: int, k: int, x: float, y: float) -> Iterator[str]:
    """Yield the line of two standard errors on both sides of the end of a bar."""
    if node.layer not in values.error:
        return
    p, error = (float(part[node.layer][unit, k]) for part in (values.prob, values.error))
    if error > 0:
        low, high = max(p - ERRORS_DRAWN * error, 0.0), min(p + ERRORS_DRAWN * error, 1.0)
        yield (
            f'<path class="pgm-spread" d="M{x + BAR_PIXELS * low:.1f} {y:.1f}'
            f'H{x + BAR_PIXELS * high:.1f}" stroke="currentColor" stroke-width="1.4"/>'
        )


def percent(p: float) -> str:
    """Return a probability as it is drawn.

    >>> percent(0.6213), percent(1.0), percent(0.00004)
    ('62.1 %', '100.0 %', '0.0 %')
    """
    return f"{100 * p:.1f} %"


def _given(node: Node, values: Values, unit: int) -> tuple[bool, bool, bool]:
    """Return whether a unit is observed or set by do(), set by do(), and softly observed."""
    soft = node.layer in values.soft and bool(values.soft[node.layer][unit])
    seen = node.layer in values.observed and bool(values.observed[node.layer][unit])
    done = node.layer in values.intervened and bool(values.intervened[node.layer][unit])
    return seen or done, done, soft


def _cells(node: Node, layer: int, values: Values) -> Iterator[str]:
    """Yield the cells of a strip or a picture; ink is as dark as a state is probable."""
    means = values.mean.get(node.layer) if node.form is Form.MEANS else None
    scale = 0.0 if means is None else float(np.abs(means).max(initial=0.0))
    last = len(node.states) - 1
    for i, unit in enumerate(node.units):
        seen, done, soft = _given(node, values, unit)
        column, line = i % node.columns, i // node.columns
        for k in range(len(node.states)) if node.form is Form.STRIP else (last,):
            x = node.x + MARGIN_PIXELS + node.indent + column * node.cell[0]
            y = node.y + TITLE_PIXELS + (k if node.form is Form.STRIP else line) * node.cell[1]
            color, p = BLUE, 0.0
            if means is not None:
                p = abs(float(means[unit])) / scale if scale else 0.0
                color = BLUE if means[unit] >= 0 else ORANGE
            elif node.layer in values.prob:
                p = float(values.prob[node.layer][unit, k])
            place = (
                f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{node.cell[0] - 1:.1f}" '
                f'height="{node.cell[1] - 1:.1f}"'
            )
            edge = 'stroke="none"'
            if seen or soft:
                edge = f'stroke="{PURPLE if done else ORANGE if seen else GREEN}"'
                edge += ' stroke-dasharray="1 2"' * soft
            yield (
                f'<g class="pgm-cell" data-at="{layer},{unit}" data-state="{k}">'
                f'<rect class="pgm-paper" {place} fill="currentColor" fill-opacity="0.08"/>'
                f'<rect class="pgm-ink" {place} fill="{color}" fill-opacity="{p:.3f}" {edge} '
                'stroke-width="1.5"/></g>'
            )
