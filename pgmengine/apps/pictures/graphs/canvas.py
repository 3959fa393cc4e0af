"""Axes on which the boxes and edges of a model are drawn.

Data are in inches: new Axes have this size, so that text of a fixed size fits into its box. On
other Axes all text is scaled with the boxes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.apps.pictures.boxes import (
    DETAILED_BOXES,
    MARGIN_INCHES,
    NAME_INCHES,
    PERCENT_INCHES,
    STATE_INCHES,
    Box,
    Panel,
    Share,
)
from pgmengine.apps.pictures.graphs.contents import Contents
from pgmengine.apps.pictures.style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    SEEN,
    SMALL,
    VERMILION,
    axes_of,
    bare,
    text_width,
)
from pgmengine.base.extras import needed_by
from pgmengine.declare.pictures.layout import ARCH_INCHES, Route, segments
from pgmengine.declare.pictures.scene import ERRORS_DRAWN, Seen

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The margin around a drawing, a line of its legend and of its title, in inches.
AROUND_INCHES, LEGEND_INCHES, TITLE_INCHES = 0.15, 0.24, 0.26

# The largest side of new Axes in inches, which keeps pictures below the limits of image files.
MOST_INCHES = 120.0

# The colours of edges and frames, of the line about a layer, and of the whole length of a bar.
STEEL, SLATE, TRACK = "#5b7794", "#4b5a68", "#dde5ee"

# The colour and the line around a box whose unit is known in some way.
FRAMES = {Seen.OBSERVED: (INK, "-"), Seen.SOFT: (GREEN, ":"), Seen.DONE: (VERMILION, "--")}


class Canvas:
    """Axes with inches as data, on which boxes and edges are drawn."""

    def __init__(self, found: Contents, title: str, ax: Axes | None) -> None:
        self.found, self.title, self.notes = found, title, legend_of(found)
        left, right, low, high = self._extent()
        widest = max((text_width(note.get_label(), SMALL) for note in self.notes), default=0.0)
        self.columns = max(1, min(len(self.notes), int((right - left) / (widest + 0.45))))
        low -= LEGEND_INCHES * -(-len(self.notes) // self.columns)
        high += TITLE_INCHES * bool(title)
        # The title is not wider than the picture.
        wide, high_of = max(right - left, text_width(title, SMALL + 1) + 0.3), high - low
        middle = (left + right) / 2
        self.sides = (middle - wide / 2, middle + wide / 2, low, high)
        if ax is None:
            with needed_by("pgmengine.plots"):
                import matplotlib.pyplot as plt

            self.scale = min(1.0, MOST_INCHES / max(wide, high_of))
            figure = plt.figure(figsize=(wide * self.scale, high_of * self.scale))
            self.ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        else:
            self.ax = axes_of(ax)
            extent = self.ax.get_window_extent()
            self.scale = min(extent.width / wide, extent.height / high_of) / self.ax.figure.dpi

    def _extent(self) -> tuple[float, float, float, float]:
        """Return the left, right, lower and upper end of all boxes and edges."""
        boxes, placed = self.found.boxes, self.found.placed
        sizes = {node: boxes[node].size if node in boxes else (0.1, 0.1) for node in placed.places}
        left, right, low, high = placed.extent(sizes)
        # The loop of edges inside a box stands at its right side.
        loops = (i for i, box in boxes.items() if box.inside is not None)
        right = max([right, *(placed.places[i][0] + sizes[i][0] / 2 + 0.3 for i in loops)])
        around = AROUND_INCHES
        return left - around, right + around, low - around, high + around

    def draw(self) -> Axes:
        """Draw everything, and return the Axes."""
        ax = bare(self.ax)
        for route, arrow in self.found.drawn.edges(self.found.placed):
            self._edge(arrow, path=path_of(route))
        for node, at in self.found.placed.places.items():
            if node in self.found.boxes:
                self._box(self.found.boxes[node], *at)
            else:
                ax.plot(*at, "s", color=INK, markersize=5 * self.scale, zorder=2)
        left, right, low, high = self.sides
        if self.title:
            self._text(left + 0.12, high - 0.16, self.title, SMALL + 1, ha="left")
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

    def _text(self, x: float, y: float, text: str, points: float, **how: Any) -> None:
        """Write a text, in which $ is only a letter."""
        settings = {"ha": "center", "va": "center", "zorder": 6, "color": INK, **how}
        self.ax.text(x, y, text, fontsize=points * self.scale, parse_math=False, **settings)

    def _rectangle(self, x: float, y: float, wide: float, high: float, **how: Any) -> None:
        with needed_by("pgmengine.plots"):
            from matplotlib.patches import Rectangle

        self.ax.add_artist(Rectangle((x, y), wide, high, **how))

    def _edge(self, arrow: bool, **where: Any) -> None:
        """Draw a line, or an arrow to its end."""
        with needed_by("pgmengine.plots"):
            from matplotlib.patches import FancyArrowPatch

        look: dict[str, Any] = {"lw": 0.9 * self.scale, "color": STEEL, "zorder": 1, "fill": arrow}
        look |= {"arrowstyle": "-|>" if arrow else "-", "mutation_scale": 8 * self.scale}
        self.ax.add_artist(FancyArrowPatch(shrinkA=0, shrinkB=0, **look, **where))

    def _box(self, box: Box, x: float, y: float) -> None:
        """Draw a box around a place."""
        wide, high = box.size
        edge, style = FRAMES.get(box.seen, (STEEL, "-"))
        look: dict[str, Any] = {"edgecolor": edge, "linestyle": style, "zorder": 3}
        look["facecolor"] = SEEN if box.seen.fixed else PAPER
        look["linewidth"] = (0.8 if box.seen is Seen.INFERRED else 2.2) * self.scale
        self._rectangle(x - wide / 2, y - high / 2, wide, high, **look)
        if box.inside is not None:
            # Edges between units of the box are a loop at its right side.
            side, half = x + wide / 2, min(high, 0.4) / 4
            ends = {"posA": (side, y + half), "posB": (side, y - half)}
            self._edge(box.inside, **ends, connectionstyle="arc3,rad=-1.2")
        top = y + high / 2 - MARGIN_INCHES
        middle = top - NAME_INCHES * len(box.name) / 2
        self._text(x, middle, "\n".join(box.name), SMALL, linespacing=1.15)
        top -= NAME_INCHES * len(box.name)
        if box.text:
            self._text(x, top - STATE_INCHES / 2, box.text, SMALL - 1, color=SLATE)
            top -= STATE_INCHES
        left = x - wide / 2 + MARGIN_INCHES
        for share in box.shares:
            self._share(box, left, top - STATE_INCHES / 2, x + wide / 2 - MARGIN_INCHES, share)
            top -= STATE_INCHES
        self._panels(box, left, x, top)

    def _share(self, box: Box, left: float, y: float, right: float, share: Share) -> None:
        """Draw the bar of a state between two places, with its name and its probability."""
        start = left + box.label_width
        full, known = right - start - PERCENT_INCHES, bool(np.isfinite(share.prob))
        self._text(left, y, share.state, SMALL - 1, ha="left")
        self._rectangle(start, y - 0.045, full, 0.09, facecolor=TRACK, zorder=4)
        text = percent(share.prob) if known else "?"
        self._text(right, y, text, SMALL - 1, ha="right")
        if not known:
            return
        color = ORANGE if box.seen.fixed else BLUE
        self._rectangle(start, y - 0.045, full * share.prob, 0.09, facecolor=color, zorder=5)
        if share.error > 0:
            ends = np.clip(share.prob + ERRORS_DRAWN * share.error * np.array([-1, 1]), 0, 1)
            line: dict[str, Any] = {"color": INK, "lw": self.scale, "zorder": 6, "marker": "|"}
            self.ax.plot(start + full * ends, [y, y], markersize=3.5 * self.scale, **line)

    def _panels(self, box: Box, left: float, x: float, top: float) -> None:
        """Draw the strips of an array below one another, or its images side by side."""
        sizes = [panel.size for panel in box.panels]
        across = x - (sum(width for width, _ in sizes) + 0.1 * (len(sizes) - 1)) / 2
        for panel, (width, height) in zip(box.panels, sizes, strict=True):
            if box.strips:
                self._text(left, top - height / 2, panel.label, SMALL - 1, ha="left")
                start, above = left + box.label_width, top
                top -= height + 0.03
            else:
                label = (across + width / 2, top - STATE_INCHES / 2)
                self._text(*label, panel.label, SMALL - 1)
                start, above = across, top - STATE_INCHES
                across += width + 0.1
            self._image(panel, start, above, width, height)

    def _image(self, panel: Panel, left: float, top: float, wide: float, high: float) -> None:
        """Draw numbers as an image in a part of the Axes."""
        with needed_by("pgmengine.plots"):
            from matplotlib.pyplot import get_cmap

        self.ax.imshow(
            panel.values,
            cmap=get_cmap("Blues").with_extremes(bad="#999999"),
            vmin=panel.low,
            vmax=panel.high,
            extent=(left, left + wide, top - high, top),
            interpolation="nearest",
            zorder=4,
        )
        border: dict[str, Any] = {"fill": False, "edgecolor": FAINT, "linewidth": 0.5 * self.scale}
        self._rectangle(left, top - high, wide, high, **border, zorder=5)
        # A line at the lower edge of a unit says that it is observed, or has soft evidence.
        rows, columns = panel.values.shape
        observed = panel.seen & ~panel.seen.all()
        for units, color in ((observed, ORANGE), (panel.soft, GREEN)):
            for row, column in np.argwhere(units):
                corner = left + column * wide / columns, top - (row + 1) * high / rows
                size = wide / columns, 0.22 * high / rows
                self._rectangle(*corner, *size, facecolor=color, lw=0, zorder=5)


def legend_of(found: Contents) -> list[Any]:
    """Return the entries of the legend: everything in the picture that has no label itself."""
    with needed_by("pgmengine.plots"):
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch
        from matplotlib.pyplot import get_cmap

    boxes = found.boxes.values()
    panels = [panel for box in boxes for panel in box.panels]
    inferred = any(box.shares and not box.seen.fixed for box in boxes)
    few = " of the most probable state" * (len(boxes) > DETAILED_BOXES)
    means = all(panel.is_mean for panel in panels)
    ends = ("lowest mean", "highest mean") if means else ("probability 0", "probability 1")
    blues, thin = get_cmap("Blues"), {"edgecolor": FAINT, "lw": 0.5}
    error = {"color": INK, "marker": "|", "markersize": 5, "lw": 1}
    square = {"color": INK, "marker": "s", "markersize": 5, "lw": 0}
    # Whether the picture has a thing, its label, and how it looks.
    entries: list[tuple[bool, str, dict[str, Any]]] = []
    for seen, (color, style) in FRAMES.items():
        fill = SEEN if seen.fixed else PAPER
        frame = {"facecolor": fill, "edgecolor": color, "lw": 1.8, "linestyle": style}
        entries.append((any(box.seen is seen for box in boxes), seen.value, frame))
    mixed = any(panel.seen.any() and not panel.seen.all() for panel in panels)
    entries += [
        (inferred, f"probability{few}", {"facecolor": BLUE}),
        (any(x.error > 0 for box in boxes for x in box.shares), "2 standard errors", error),
        (bool(panels), ends[0], {"facecolor": blues(0.0), **thin}),
        (bool(panels), ends[1], {"facecolor": blues(1.0), **thin}),
        (mixed, "observed unit", {"facecolor": ORANGE}),
        (any(x.soft.any() for x in panels), "unit with soft evidence", {"facecolor": GREEN}),
        (bool(found.drawn.factors), "table of several variables", square),
    ]
    return [
        Line2D([], [], label=label, **look) if "marker" in look else Patch(label=label, **look)
        for there, label, look in entries
        if there
    ]


def path_of(route: Route) -> Any:
    """Return the path of a route: vertical lines beside boxes, curves between lines of boxes."""
    with needed_by("pgmengine.plots"):
        from matplotlib.path import Path

    points, codes = [route[0]], [Path.MOVETO]
    for part in segments(route, -ARCH_INCHES):
        points += part
        codes += [Path.LINETO if len(part) == 1 else Path.CURVE4] * len(part)
    return Path(points, codes)


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
