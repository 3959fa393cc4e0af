"""The style of all pictures: colours that colour-blind readers can tell apart, frames, legends.

Kinds of things have the colours of Okabe and Ito (2008). Probabilities and states in a natural
order have colours from light to dark, so that they can also be told apart in grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

# (left, lower, width, height) as shares of the Axes.
Place: TypeAlias = tuple[float, float, float, float]

BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"

# The colours of curves in order. Yellow is left out, since it is too light for lines.
CYCLE = (BLUE, VERMILION, GREEN, "#cc79a7", "#56b4e9", ORANGE, "#4d4d4d")

# Lines and markers repeat with other periods than colours do.
DASHES, MARKERS = ("-", "--", "-.", ":"), "osD^vPX"

INK, FAINT, PAPER, SEEN, MISSING = "#1b2733", "#7a8794", "#f2f6fb", "#fff3d6", "#bcd3ec"

# The size of small text, in points, and the margin of figures, in inches.
SMALL, PAD_INCHES = 8.0, 0.08


def axes_of(ax: Axes | None, size: tuple[float, float] = (6.0, 3.6)) -> Axes:
    """Return the Axes, or new ones of this size in inches; raise PgmError for another object."""
    if ax is not None:
        if not hasattr(ax, "transAxes"):
            raise PgmError(
                f"ax must be Axes of matplotlib, not {type(ax).__name__}; give arguments by name"
            )
        return ax
    with needed_by("pgmengine.plots"):
        import matplotlib.pyplot as plt
        from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=PAD_INCHES, h_pad=PAD_INCHES)
    return plt.subplots(figsize=size, layout=layout)[1]


def framed(ax: Axes, x: str, y: str) -> Axes:
    """Return the Axes with names for both axes, without the upper and the right line."""
    ax.set(xlabel=x, ylabel=y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=SMALL + 1)
    return ax


def bare(ax: Axes) -> Axes:
    """Return the Axes without lines and ticks, for images and graphs."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax


def legend_beside(ax: Axes, handles: Sequence[Any] | None = None, **how: Any) -> Legend:
    """Put a legend to the right of the Axes, where it hides nothing, and return it."""
    settings: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    settings |= {"frameon": False, "fontsize": SMALL + 1, **how}
    return ax.legend(**settings) if handles is None else ax.legend(handles=handles, **settings)


def color_scale(ax: Axes, picture: Any, label: str, place: Place) -> None:
    """Draw the scale of an image on inner Axes at (left, lower, width, height) of the Axes."""
    scale = ax.inset_axes(place)
    bar = ax.figure.colorbar(picture, cax=scale)
    bar.outline.set_visible(False)
    bar.set_label(label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL, length=2)


def shown(text: str) -> str:
    """Return a text as legends show it: they leave out names that begin with an underscore."""
    return f" {text}" if text.startswith("_") or not text else text


def state_colors(count: int) -> Array:
    """Return a colour (4,) for each of some states, from dark to light."""
    with needed_by("pgmengine.plots"):
        import matplotlib as mpl

    colors: Array = mpl.colormaps["viridis"](np.linspace(0.1, 0.95, max(count, 2)))
    return colors


@lru_cache(maxsize=4096)
def text_width(text: str, points: float) -> float:
    """Return the width of a text in inches."""
    with needed_by("pgmengine.plots"):
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import TextPath

    if not text.strip():
        return 0.0
    # A pair of $ would be read as mathematics.
    shape = TextPath((0, 0), text.replace("$", "S"), prop=FontProperties(size=points))
    # Letters on a screen are moved to whole pixels, which makes text a little wider.
    return 1.07 * float(shape.get_extents().width) / 72
