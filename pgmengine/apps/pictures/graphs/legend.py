"""The legend of a picture of a model."""

from __future__ import annotations

from typing import Any

from pgmengine.apps.pictures.boxes import DETAILED_BOXES, Seen
from pgmengine.apps.pictures.graphs.contents import Contents
from pgmengine.apps.pictures.style import BLUE, FAINT, GREEN, INK, ORANGE, PAPER, SEEN, VERMILION
from pgmengine.base.extras import needed_by

# The colour and the line around a box whose unit is known in some way.
FRAMES = {Seen.OBSERVED: (INK, "-"), Seen.SOFT: (GREEN, ":"), Seen.DONE: (VERMILION, "--")}


def legend_of(found: Contents) -> list[Any]:
    """Return the entries of the legend: everything in the picture that has no label itself."""
    with needed_by("pgmengine.plots"):
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

    boxes, out = found.boxes.values(), list[Any]()
    for seen, (color, style) in FRAMES.items():
        if any(box.seen is seen for box in boxes):
            look: dict[str, Any] = {
                "facecolor": SEEN if seen.fixed else PAPER,
                "edgecolor": color,
                "lw": 1.8,
                "linestyle": style,
            }
            out.append(Patch(label=seen.value, **look))
    if any(box.shares and not box.seen.fixed for box in boxes):
        few = len(boxes) > DETAILED_BOXES
        label = "probability of the most probable state" if few else "probability"
        out.append(Patch(label=label, facecolor=BLUE))
    if any(share.error > 0 for box in boxes for share in box.shares):
        bar: dict[str, Any] = {"color": INK, "marker": "|", "markersize": 5, "lw": 1}
        out.append(Line2D([], [], label="2 standard errors", **bar))
    panels = [panel for box in boxes for panel in box.panels]
    if panels:
        means = all(panel.is_mean for panel in panels)
        for share, label in ((0.0, "lowest"), (1.0, "highest")):
            label = f"{label} mean" if means else f"probability {share:.0f}"
            color = _blues(share)
            out.append(Patch(label=label, facecolor=color, edgecolor=FAINT, lw=0.5))
    if any(panel.seen.any() and not panel.seen.all() for panel in panels):
        out.append(Patch(label="observed unit", facecolor=ORANGE))
    if any(panel.soft.any() for panel in panels):
        out.append(Patch(label="unit with soft evidence", facecolor=GREEN))
    if len(found.graph) > len(found.boxes):
        square: dict[str, Any] = {"color": INK, "marker": "s", "markersize": 5, "lw": 0}
        out.append(Line2D([], [], label="table of several variables", **square))
    return out


def _blues(share: float) -> Any:
    """Return the colour of a probability in strips and images."""
    with needed_by("pgmengine.plots"):
        from matplotlib.pyplot import get_cmap

    return get_cmap("Blues")(share)
