"""The text of a picture as SVG without scripts, styles or links, so that it stands alone anywhere.

Colours are attributes, and text and lines have the colour of their surroundings, so that the
picture fits light and dark pages. The explorer takes the same text, with every bar and cell in it,
and moves the bars: `data-at` has the number of the layer and of the unit, `data-state` the number
of the state, and the classes are those of `data/explorer.css`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pgmengine.declare.pictures.layout import Route, segments
from pgmengine.declare.pictures.scene import (
    ARCH_PIXELS,
    BAR_PIXELS,
    ERRORS_DRAWN,
    MARGIN_PIXELS,
    MAX_STATE_LETTERS,
    NUMBER_PIXELS,
    ROW_PIXELS,
    TITLE_PIXELS,
    Form,
    Node,
    Scene,
    Seen,
    Values,
    scene,
)
from pgmengine.declare.pictures.sketch import sketch
from pgmengine.model.structure import Structure

# Colours that people with any colour vision can tell apart (Okabe and Ito 2008).
BLUE, ORANGE, PURPLE, GREEN = "#2f7fb8", "#d55e00", "#b0579a", "#00896b"

# The mark and the colour of a unit that is known in some way.
MARKS = {
    Seen.INFERRED: ("", BLUE),
    Seen.OBSERVED: ("●", ORANGE),
    Seen.DONE: ("▲", PURPLE),
    Seen.SOFT: ("◐", GREEN),
}

# Bars and cells of a picture in a notebook, and nodes: larger models are shown in words alone.
MAX_MARKS, MAX_NODES = 1500, 60

# The length and half the width of the head of an arrow, in pixels.
HEAD_PIXELS, HALF_HEAD_PIXELS = 8.0, 3.5


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
        'font-size="12" fill="currentColor">'
    ]
    for edge in found.edges:
        parts.append(_line("edge", _path(edge.route), fill="none", stroke_opacity="0.55"))
        if edge.arrow:
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _head(edge.route))
            parts.append(_tag("polygon", "head", points=points, fill_opacity="0.7"))
    parts += [_rect("factor", x - 4, y - 4, 8, 8) for x, y in found.factors]
    for node in found.nodes:
        parts += _node(node, numbers[node.layer], values, whole)
    return "".join([*parts, "</svg>"])


def _tag(name: str, kind: str, inner: str | None = None, /, **attributes: float | str) -> str:
    """Return an element; numbers have one decimal, and "_" stands for "-" in attributes."""
    texts = (
        f' {key.replace("_", "-")}="{x if isinstance(x, str) else format(x, ".1f")}"'
        for key, x in attributes.items()
    )
    head = f'<{name} class="pgm-{kind}"{"".join(texts)}'
    return f"{head}/>" if inner is None else f"{head}>{inner}</{name}>"


def _rect(kind: str, x: float, y: float, wide: float, high: float, /, **look: float | str) -> str:
    return _tag("rect", kind, x=x, y=y, width=wide, height=high, **look)


def _line(kind: str, path: str, width: str = "1.2", **look: str) -> str:
    return _tag("path", kind, d=path, stroke="currentColor", stroke_width=width, **look)


def _words(kind: str, x: float, y: float, whole: str, shown: str, **look: str) -> str:
    """Return a text that shows the whole name under the pointer."""
    from html import escape

    inner = f"<title>{escape(whole)}</title>{escape(shown)}"
    return _tag("text", kind, inner, x=x, y=y, **look)


def _path(route: Route) -> str:
    """Return the lines and curves of a route."""
    parts = (
        "LC"[len(points) > 1] + " ".join(f"{x:.1f} {y:.1f}" for x, y in points)
        for points in segments(route, ARCH_PIXELS)
    )
    return f"M{route[0][0]:.1f} {route[0][1]:.1f}{''.join(parts)}"


def _head(way: Route) -> list[tuple[float, float]]:
    """Return the corners of the head of an arrow at the end of a route."""
    (x, y), before = way[-1], way[-2]
    # A route may end with a step of no length, after a curve that arrives vertically.
    far = next((p for p in reversed(way[:-1]) if abs(p[0] - x) + abs(p[1] - y) > 0.5), before)
    towards = np.array([x - far[0], y - far[1]]) if len(way) == 2 else np.array([0.0, y - far[1]])
    towards = towards / (np.linalg.norm(towards) or 1.0)
    aside = np.array([-towards[1], towards[0]]) * HALF_HEAD_PIXELS
    back = np.array([x, y]) - towards * HEAD_PIXELS
    return [(x, y), tuple(back + aside), tuple(back - aside)]


def _node(node: Node, layer: int, values: Values, whole: bool) -> Iterator[str]:
    """Yield the parts of a node."""
    yield f'<g class="pgm-node pgm-{node.form.value}" data-node="{node.number}">'
    look = {"rx": "5", "fill": "none", "stroke": "currentColor", "stroke_opacity": "0.45"}
    yield _rect("box", node.x, node.y, node.width, node.height, **look)
    yield _words("title", node.x + 8, node.y + 16, node.name, node.title, font_weight="600")
    numbers = values.mean if node.form is Form.MEANS else values.prob
    has_numbers = node.layer in numbers
    if node.form is Form.BARS:
        yield from _bars(node, layer, values, has_numbers, whole)
    else:
        for k in range(len(node.states) if node.form is Form.STRIP else 0):
            yield _state(node, k, node.cell[1])
        if has_numbers or whole:
            yield from _cells(node, layer, values)
        else:
            x, wide = node.left, min(node.columns, len(node.units)) * node.cell[0]
            high = node.height - TITLE_PIXELS - MARGIN_PIXELS
            grey = {"fill": "currentColor", "fill_opacity": "0.08"}
            yield _rect("frame", x, node.y + TITLE_PIXELS, wide, high, **grey)
    yield "</g>"


def _state(node: Node, k: int, high: float) -> str:
    """Return the name of a state beside its bar or its cells."""
    state = node.states[k]
    short = state if len(state) <= MAX_STATE_LETTERS else f"{state[: MAX_STATE_LETTERS - 1]}…"
    y = node.y + TITLE_PIXELS + high * k + 13
    return _words("label", node.x + MARGIN_PIXELS, y, state, short)


def _bars(node: Node, layer: int, values: Values, has_numbers: bool, whole: bool) -> Iterator[str]:
    """Yield the rows of the states of a variable."""
    unit = node.units[0]
    seen = values.seen(node.layer, [unit])
    sign, color = MARKS[seen]
    for k in range(len(node.states)):
        p = float(values.prob[node.layer][unit, k]) if has_numbers else 0.0
        y, x = node.y + TITLE_PIXELS + ROW_PIXELS * k, node.x + node.indent
        yield f'<g class="pgm-state" data-at="{layer},{unit}" data-state="{k}">'
        if whole:
            yield _rect("hit", node.x + 1, y, node.width - 2, ROW_PIXELS, fill_opacity="0")
        yield _state(node, k, ROW_PIXELS)
        if whole:
            yield _rect("ghost", x, y + 2, 0.0, ROW_PIXELS - 4)
        if has_numbers or whole:
            yield _rect("bar", x, y + 4, BAR_PIXELS * p, ROW_PIXELS - 8, fill=color)
            error = float(values.error[node.layer][unit, k]) if node.layer in values.error else 0.0
            if error > 0:
                low, high = x + BAR_PIXELS * np.clip([p - (e := ERRORS_DRAWN * error), p + e], 0, 1)
                yield _line("spread", f"M{low:.1f} {y + ROW_PIXELS / 2:.1f}H{high:.1f}", "1.4")
            mark = sign if seen is Seen.SOFT or p == 1 else ""
            text = f"{mark} {percent(p) if has_numbers else ''}"
            right = x + BAR_PIXELS + NUMBER_PIXELS - 6
            yield _tag("text", "number", text, x=right, y=y + 13, text_anchor="end")
        yield "</g>"


def percent(p: float) -> str:
    """Return a probability as it is drawn.

    >>> percent(0.6213), percent(1.0), percent(0.00004)
    ('62.1 %', '100.0 %', '0.0 %')
    """
    return f"{100 * p:.1f} %"


def _cells(node: Node, layer: int, values: Values) -> Iterator[str]:
    """Yield the cells of a strip or a picture; ink is as dark as a state is probable."""
    means = values.mean[node.layer][:, 0] if node.layer in values.mean else np.zeros(0)
    scale = float(np.abs(means).max(initial=0.0)) or 1.0
    wide, high = node.cell
    strip, last = node.form is Form.STRIP, len(node.states) - 1
    for i, unit in enumerate(node.units):
        seen = values.seen(node.layer, [unit])
        edge = {"stroke": "none" if seen is Seen.INFERRED else MARKS[seen][1]}
        if seen is Seen.SOFT:
            edge["stroke_dasharray"] = "1 2"
        line, column = divmod(i, node.columns)
        for k in range(len(node.states)) if strip else (last,):
            y = node.y + TITLE_PIXELS + (k if strip else line) * high
            place = node.left + column * wide + 0.5, y + 0.5, wide - 1, high - 1
            color, p = BLUE, 0.0
            if node.form is Form.MEANS and len(means):
                p, color = abs(float(means[unit])) / scale, BLUE if means[unit] >= 0 else ORANGE
            elif node.layer in values.prob:
                p = float(values.prob[node.layer][unit, k])
            yield f'<g class="pgm-cell" data-at="{layer},{unit}" data-state="{k}">'
            yield _rect("paper", *place, fill="currentColor", fill_opacity="0.08")
            ink = {"fill": color, "fill_opacity": f"{p:.3f}", "stroke_width": "1.5", **edge}
            yield f"{_rect('ink', *place, **ink)}</g>"
