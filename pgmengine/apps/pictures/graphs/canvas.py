"""Axes on which the boxes and edges of a model are drawn.

Data are in inches: new Axes have this size, so that text of a fixed size fits into its box. On
other Axes all text is scaled with the boxes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.apps.pictures.boxes import (
    MARGIN_INCHES,
    NAME_INCHES,
    PERCENT_INCHES,
    STATE_INCHES,
    Box,
    Seen,
)
from pgmengine.apps.pictures.graphs.contents import Contents
from pgmengine.apps.pictures.graphs.legend import FRAMES, legend_of
from pgmengine.apps.pictures.graphs.paths import is_arch, path_of
from pgmengine.apps.pictures.style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    SEEN,
    SMALL,
    axes_of,
    bare,
    text_width,
)
from pgmengine.base.extras import needed_by
from pgmengine.declare.pictures.layout import Drawing, Route

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The margin around a drawing, a line of its legend and of its title, in inches.
AROUND_INCHES, LEGEND_INCHES, TITLE_INCHES = 0.15, 0.24, 0.26

# The largest side of new Axes in inches, which keeps pictures below the limits of image files.
MOST_INCHES = 120.0

# 95 % of a normal distribution lie within so many standard errors.
BAND = 2.0


class Canvas:
    """Axes with inches as data, on which boxes and edges are drawn."""

    def __init__(self, placed: Drawing, found: Contents, title: str, ax: Axes | None) -> None:
        self.placed, self.found, self.title = placed, found, title
        left, right, low, high = self._extent()
        notes = legend_of(self.found)
        self.columns = self._columns(notes, right - left)
        lines = -(-len(notes) // self.columns) if notes else 0
        low -= LEGEND_INCHES * lines
        high += TITLE_INCHES * bool(title)
        # The title is not wider than the picture.
        self.width = max(right - left, text_width(title, SMALL + 1) + 0.3)
        self.height = high - low
        middle = (left + right) / 2
        self.sides = (middle - self.width / 2, middle + self.width / 2, low, high)
        self.ax = self._axes(ax)
        self.notes = notes

    def _extent(self) -> tuple[float, float, float, float]:
        """Return the left, right, lower and upper end of all boxes and edges."""
        x, y = list[float](), list[float]()
        for node, (at, level) in self.placed.places.items():
            box = self.found.boxes.get(node)
            wide, high = box.size if box else (0.1, 0.1)
            # The loop of edges inside a box stands at its right side.
            loop = 0.3 if box and box.inside is not None else 0.0
            x += [at - wide / 2, at + wide / 2 + loop]
            y += [level - high / 2, level + high / 2]
        for route in self.placed.routes.values():
            x += [at for at, _ in route]
            y += [level - 0.3 * is_arch(route) for _, level in route]
        around = AROUND_INCHES
        return min(x) - around, max(x) + around, min(y) - around, max(y) + around

    def _axes(self, ax: Axes | None) -> Axes:
        """Return the Axes, and set the scale of text on them."""
        if ax is None:
            with needed_by("pgmengine.plots"):
                import matplotlib.pyplot as plt

            self.scale = min(1.0, MOST_INCHES / max(self.width, self.height))
            figure = plt.figure(figsize=(self.width * self.scale, self.height * self.scale))
            return figure.add_axes((0.0, 0.0, 1.0, 1.0))
        ax = axes_of(ax)
        extent = ax.get_window_extent()
        dots = ax.figure.dpi
        self.scale = min(extent.width / self.width, extent.height / self.height) / dots
        return ax

    def draw(self) -> Axes:
        """Draw everything, and return the Axes."""
        ax = bare(self.ax)
        for (up, down), route in self.placed.routes.items():
            data = self.found.graph.get_edge_data(up, down)
            back = self.found.graph.get_edge_data(down, up)
            arrow = self.found.graph.is_directed() and (data or back).get("directed", True)
            self._edge(route if data else route[::-1], arrow)
        for node, at in self.placed.places.items():
            if node in self.found.boxes:
                self._box(self.found.boxes[node], at)
            else:
                ax.plot(*at, "s", color=INK, markersize=5 * self.scale, zorder=2)
        left, right, low, high = self.sides
        if self.title:
            self._text(left + 0.12, high - 0.16, self.title, SMALL + 1, ha="left", color=INK)
        if self.notes:
            ax.legend(
                handles=self.notes,
                loc="lower left",
                bbox_to_anchor=(0.0, 0.0),
                ncols=self.columns,
                frameon=False,
                fontsize=SMALL * self.scale,
                handlelength=1.6,
                columnspacing=1.2,
            )
        ax.set_aspect("equal")
        ax.set(xlim=(left, right), ylim=(low, high))
        return ax

    def _edge(self, route: Route, arrow: bool) -> None:
        """Draw a line, or an arrow to the end of the route."""
        with needed_by("pgmengine.plots"):
            from matplotlib.patches import FancyArrowPatch

        look: dict[str, Any] = {"lw": 0.9 * self.scale, "color": "#5b7794", "zorder": 1}
        self.ax.add_artist(
            FancyArrowPatch(
                path=path_of(route),
                arrowstyle="-|>" if arrow else "-",
                mutation_scale=8 * self.scale,
                shrinkA=0,
                shrinkB=0,
                fill=arrow,
                **look,
            )
        )

    def _box(self, box: Box, at: tuple[float, float]) -> None:
        """Draw a box around a place."""
        with needed_by("pgmengine.plots"):
            from matplotlib.patches import Rectangle

        (x, y), (wide, high) = at, box.size
        edge, style = FRAMES.get(box.seen, ("#5b7794", "-"))
        frame = Rectangle((x - wide / 2, y - high / 2), wide, high, zorder=3)
        frame.set(
            facecolor=SEEN if box.seen.fixed else PAPER,
            edgecolor=edge,
            linewidth=(0.8 if box.seen is Seen.INFERRED else 2.2) * self.scale,
            linestyle=style,
        )
        self.ax.add_artist(frame)
        if box.inside is not None:
            self._loop(x + wide / 2, y, min(high, 0.4), box.inside)
        top = y + high / 2 - MARGIN_INCHES
        middle = top - NAME_INCHES * len(box.name) / 2
        self._text(x, middle, "\n".join(box.name), SMALL, color=INK, linespacing=1.15)
        top -= NAME_INCHES * len(box.name)
        if box.text:
            self._text(x, top - STATE_INCHES / 2, box.text, SMALL - 1, color="#4b5a68")
            top -= STATE_INCHES
        left = x - wide / 2 + MARGIN_INCHES
        for share in box.shares:
            self._share(box, (left, top - STATE_INCHES / 2, x + wide / 2 - MARGIN_INCHES), share)
            top -= STATE_INCHES
        self._panels(box, left, x, top)

    def _share(self, box: Box, at: tuple[float, float, float], share: Any) -> None:
        """Draw the bar of a state at (left, y, right), with its name and its probability."""
        with needed_by("pgmengine.plots"):
            from matplotlib.patches import Rectangle

        left, y, right = at
        start = left + box.label_width
        full = right - start - PERCENT_INCHES
        small = SMALL - 1
        self._text(left, y, share.state, small, ha="left", color=INK)
        track = Rectangle((start, y - 0.045), full, 0.09, facecolor="#dde5ee", zorder=4)
        self.ax.add_artist(track)
        if not np.isfinite(share.prob):
            self._text(right, y, "?", small, ha="right", color=INK)
            return
        color = ORANGE if box.seen.fixed else BLUE
        bar = Rectangle((start, y - 0.045), full * share.prob, 0.09, facecolor=color, zorder=5)
        self.ax.add_artist(bar)
        if share.error > 0:
            ends = np.clip([share.prob - BAND * share.error, share.prob + BAND * share.error], 0, 1)
            line: dict[str, Any] = {
                "color": INK,
                "lw": 1.0 * self.scale,
                "zorder": 6,
                "marker": "|",
            }
            self.ax.plot(start + full * ends, [y, y], markersize=3.5 * self.scale, **line)
        self._text(right, y, percent(share.prob), small, ha="right", color=INK)

    def _panels(self, box: Box, left: float, x: float, top: float) -> None:
        """Draw the strips of an array below one another, or its images side by side."""
        sizes = [panel.size for panel in box.panels]
        across = x - (sum(width for width, _ in sizes) + 0.1 * (len(sizes) - 1)) / 2
        for panel, (width, height) in zip(box.panels, sizes, strict=True):
            if box.strips:
                self._text(left, top - height / 2, panel.label, SMALL - 1, ha="left", color=INK)
                start, above = left + box.label_width, top
                top -= height + 0.03
            else:
                label = (across + width / 2, top - STATE_INCHES / 2)
                self._text(*label, panel.label, SMALL - 1, color=INK)
                start, above = across, top - STATE_INCHES
                across += width + 0.1
            self._image(panel, (start, start + width, above - height, above))

    def _image(self, panel: Any, extent: tuple[float, float, float, float]) -> None:
        """Draw numbers as an image in a part of the Axes."""
        with needed_by("pgmengine.plots"):
            from matplotlib.patches import Rectangle
            from matplotlib.pyplot import get_cmap

        self.ax.imshow(
            panel.values,
            cmap=get_cmap("Blues").with_extremes(bad="#999999"),
            vmin=panel.low,
            vmax=panel.high,
            extent=extent,
            interpolation="nearest",
            zorder=4,
        )
        left, right, low, high = extent
        border = Rectangle((left, low), right - left, high - low, fill=False, zorder=5)
        border.set(edgecolor=FAINT, linewidth=0.5 * self.scale)
        self.ax.add_artist(border)
        # A line at the lower edge of a unit says that it is observed, or has soft evidence.
        tall, wide = (high - low) / len(panel.values), (right - left) / panel.values.shape[1]
        observed = panel.seen & ~panel.seen.all()
        for units, color in ((observed, ORANGE), (panel.soft, GREEN)):
            for row, column in np.argwhere(units):
                corner = left + column * wide, high - (row + 1) * tall
                mark = Rectangle(corner, wide, 0.22 * tall, facecolor=color, lw=0, zorder=5)
                self.ax.add_artist(mark)

    def _loop(self, x: float, y: float, high: float, arrow: bool) -> None:
        """Draw the edges between units of a box as a loop at its right side."""
        with needed_by("pgmengine.plots"):
            from matplotlib.patches import FancyArrowPatch

        self.ax.add_artist(
            FancyArrowPatch(
                (x, y + high / 4),
                (x, y - high / 4),
                connectionstyle="arc3,rad=-1.2",
                arrowstyle="-|>" if arrow else "-",
                mutation_scale=8 * self.scale,
                shrinkA=0,
                shrinkB=0,
                lw=0.9 * self.scale,
                color="#5b7794",
                zorder=1,
            )
        )

    def _text(self, x: float, y: float, text: str, points: float, **how: Any) -> None:
        """Write a text, in which $ is only a letter."""
        settings: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 6}
        self.ax.text(x, y, text, fontsize=points * self.scale, parse_math=False, **(settings | how))

    def _columns(self, notes: list[Any], width: float) -> int:
        """Return the number of entries of the legend on one line."""
        if not notes:
            return 1
        widest = max(text_width(note.get_label(), SMALL) for note in notes) + 0.45
        return max(1, min(len(notes), int(width / widest)))


def percent(prob: float) -> str:
    """Return a probability in per cent, with more digits near 0 and 1, never rounded to these.

    >>> percent(0.314), percent(0.0021), percent(1e-9), percent(1.0), percent(0.99996)
    ('31 %', '0.2 %', '<0.1 %', '100 %', '>99.9 %')
    """
    if 0 < prob < 0.001:
        return "<0.1 %"
    if 0.999 < prob < 1:
        return ">99.9 %"
    digits = 1 if 0 < prob < 0.0995 or 0.9 < prob < 1 else 0
    return f"{100 * prob:.{digits}f} %"
