"""The contents of the boxes of a graph: names, probabilities of states, strips of arrays.

A box stands for one unit, or for a whole layer or array. Its sizes are in inches, so that text of
a fixed size fits into it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np

from pgmengine.apps.pictures.style import SMALL, text_width
from pgmengine.base.types import Array
from pgmengine.declare.pictures.scene import Seen, Values, side_of_square
from pgmengine.declare.summary import layer_text
from pgmengine.model.layer import Layer
from pgmengine.model.names.unit_names import Place
from pgmengine.model.structure import Structure

# Names of variables and states are broken, or cut, after so many letters.
NAME_LETTERS, STATE_LETTERS = 26, 20

# Drawings of at most so many boxes have a line for each of so many states; larger ones have a line
# for the most probable state alone.
DETAILED_BOXES, DETAILED_STATES = 60, 6

# Heights of a line of a name and of a state, the margin, and the length of a full bar, in inches.
NAME_INCHES, STATE_INCHES, MARGIN_INCHES, BAR_INCHES = 0.16, 0.145, 0.07, 0.55

# The width of ">99.9 %" with the gap before it, in inches.
PERCENT_INCHES = 0.43

# The longest strip of an array, and the size of a unit in it, in inches.
STRIP_INCHES, CELL_INCHES, PANEL_INCHES = 4.5, 0.14, 1.5

# Strips of arrays have at most so many states.
PANEL_STATES = 8


@dataclass(frozen=True)
class Share:
    """The probability of a state, with its standard error (0 where it is exact)."""

    state: str
    prob: float
    error: float


@dataclass(frozen=True, eq=False)
class Panel:
    """Numbers of the units of an array (rows, columns): probabilities, or means on a scale.

    `seen` says which units are observed, and `soft` which have soft evidence.
    """

    label: str
    values: Array
    seen: Array
    soft: Array
    is_mean: bool = False
    low: float = 0.0
    high: float = 1.0

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        rows, columns = self.values.shape
        if rows == 1:
            return float(np.clip(columns * CELL_INCHES, 1.2, STRIP_INCHES)), CELL_INCHES
        scale = PANEL_INCHES / max(rows, columns)
        return columns * scale, rows * scale


@dataclass(frozen=True, eq=False)
class Box:
    """The contents of a box.

    Attributes
    ----------
    name : the lines of its title.
    text : a line about a layer, or an empty text.
    shares : probabilities of states of one unit.
    panels : probabilities or means of the units of an array.
    seen : how the units are known.
    inside : whether arrows (true) or lines (false) join units of the box, or None.
    """

    name: tuple[str, ...]
    text: str = ""
    shares: tuple[Share, ...] = ()
    panels: tuple[Panel, ...] = ()
    seen: Seen = Seen.INFERRED
    inside: bool | None = None

    @property
    def head(self) -> float:
        """The height of the title in inches."""
        return NAME_INCHES * len(self.name) + STATE_INCHES * bool(self.text)

    @property
    def label_width(self) -> float:
        """The width of the names of states in inches."""
        labels = [share.state for share in self.shares]
        labels += [panel.label for panel in self.panels if len(panel.values) == 1]
        return max((text_width(label, SMALL - 1) for label in labels), default=0.0) + 0.08

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        wide = max(text_width(line, SMALL) for line in self.name)
        wide = max(wide, text_width(self.text, SMALL - 1))
        high = self.head
        if self.shares:
            wide = max(wide, self.label_width + BAR_INCHES + PERCENT_INCHES)
            high += STATE_INCHES * len(self.shares)
        sizes = [panel.size for panel in self.panels]
        if sizes and self.strips:
            wide = max(wide, self.label_width + max(width for width, _ in sizes))
            high += sum(height + 0.03 for _, height in sizes)
        elif sizes:
            wide = max(wide, sum(width for width, _ in sizes) + 0.1 * (len(sizes) - 1))
            high += max(height for _, height in sizes) + STATE_INCHES
        return max(wide + 2 * MARGIN_INCHES, 0.5), high + 2 * MARGIN_INCHES

    @property
    def strips(self) -> bool:
        """Whether the panels are lines below one another, not images side by side."""
        return bool(self.panels) and len(self.panels[0].values) == 1


def state_texts(layer: Layer) -> list[str]:
    """Return the names of the states of a unit as short text."""
    support = layer.unit.support
    if layer.state_names:
        names: list[Hashable] = list(layer.state_names)
    elif support is None:
        names = []
    elif support.ndim > 1:
        names = list(range(len(support)))
    else:
        names = [f"{value:g}" for value in support]
    return [_cut(str(name), STATE_LETTERS) for name in names]


def _cut(text: str, letters: int) -> str:
    """Return a text with at most so many letters, with an ellipsis inside if it is longer."""
    if len(text) <= letters:
        return text
    half = (letters - 1) // 2
    return f"{text[:half]}\u2026{text[-(letters - 1 - half) :]}"


def name_lines(name: str) -> tuple[str, ...]:
    """Return a name on one to three lines, broken at spaces and underscores where it has some."""
    if len(name) <= NAME_LETTERS:
        return (name,)
    spaced = name.replace("_", "_\0")
    lines, line = list[str](), ""
    for part in spaced.replace(" ", " \0").split("\0"):
        if line and len(line) + len(part) > NAME_LETTERS:
            lines.append(line.rstrip())
            line = ""
        line += part
    whole = [*lines, line]
    lines = [one for part in whole for one in textwrap.wrap(part, NAME_LETTERS)]
    if len(lines) > 3:
        lines = [*lines[:2], f"\u2026{name[-(NAME_LETTERS - 1) :]}"]
    return tuple(lines)


def unit_box(structure: Structure, place: Place, values: Values | None, detailed: bool) -> Box:
    """Return the box of one unit."""
    (layer_name, unit), layer = place, structure.layers[place[0]]
    name = name_lines(structure.names.of(place))
    if values is None:
        return Box(name)
    seen = values.seen(layer_name, [unit])
    if layer_name not in values.prob:
        mean = ", ".join(f"{value:.3g}" for value in values.mean[layer_name][unit])
        return Box(name, f"mean {mean}", seen=seen)
    prob = values.prob[layer_name][unit].tolist()
    errors = values.errors_of(layer_name)[unit].tolist()
    shares = [Share(*one) for one in zip(state_texts(layer), prob, errors, strict=True)]
    return Box(name, shares=tuple(_shown(shares, detailed)), seen=seen)


def _shown(shares: list[Share], detailed: bool) -> Iterator[Share]:
    """Yield the states that are drawn: all of a few, or the most probable ones and the rest."""
    most = DETAILED_STATES if detailed else 1
    # A single line has the most probable state alone.
    kept = len(shares) if len(shares) <= most else max(most - 1, 1)
    first = sorted(range(len(shares)), key=lambda i: -np.nan_to_num(shares[i].prob))[:kept]
    yield from (shares[i] for i in sorted(first))
    rest = [share for i, share in enumerate(shares) if i not in first]
    if rest and detailed:
        yield Share(f"{len(rest)} others", sum(share.prob for share in rest), 0.0)


def layer_box(layer: Layer, name: str, values: Values | None, inside: bool | None) -> Box:
    """Return the box of a layer or of an array."""
    text = layer_text(layer)
    text += " (coupled inside)" * (inside is not None and not layer.is_array)
    if values is None:
        if not layer.is_array:
            return Box((f"{name}: {text}",), inside=inside)
        return Box(name_lines(name), text, inside=inside)
    seen = values.seen(layer.name, range(layer.size))
    return Box(name_lines(name), text, (), tuple(_panels(layer, values)), seen, inside)


def _panels(layer: Layer, values: Values) -> Iterator[Panel]:
    """Yield the probabilities of each state, or the means, of the units of a layer."""
    square = 0 if len(layer.grid) > 1 or layer.is_array else side_of_square(layer.size)
    shape = (-1, square or layer.grid[-1])
    seen, soft = (x[layer.name].reshape(shape) for x in (values.observed, values.soft))
    if layer.name not in values.prob:
        means = values.mean[layer.name].T
        for i, mean in enumerate(means):
            low, high = float(np.nanmin(mean)), float(np.nanmax(mean))
            number = f" {i}" if len(means) > 1 else ""
            label = f"mean{number}, {low:.3g} to {high:.3g}"
            high = high if high > low else low + 1.0
            yield Panel(label, mean.reshape(shape), seen, soft, True, low, high)
        return
    states, prob = state_texts(layer), values.prob[layer.name]
    # Of two states, one says everything.
    first = len(states) - 1 if len(states) == 2 else 0
    for i in range(first, min(len(states), PANEL_STATES)):
        yield Panel(f"P({states[i]})", prob[:, i].reshape(shape), seen, soft)
