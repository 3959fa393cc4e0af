"""The paths of edges in a picture of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.extras import needed_by
from pgmengine.declare.pictures.layout import Route


def is_arch(route: Route) -> bool:
    """Whether a route leaves and enters two boxes of one line at their lower edges."""
    return len(route) == 4 and route[1][1] == route[2][1]


def path_of(route: Route) -> Any:
    """Return the path of a route: vertical lines beside boxes, curves between lines of boxes."""
    with needed_by("pgmengine.plots"):
        from matplotlib.path import Path

    points, codes = [route[0]], [Path.MOVETO]
    if len(route) == 2:
        return Path([*points, route[1]], [*codes, Path.LINETO])
    for i in range(1, len(route), 2):
        # The head of an arrow has no direction on a line without length.
        if not np.allclose(route[i], points[-1]):
            points.append(route[i])
            codes.append(Path.LINETO)
        if i + 1 < len(route):
            (x1, y1), (x2, y2) = route[i], route[i + 1]
            # The curve stays within its four points, thus between the two lines of boxes.
            middle = (y1 + y2) / 2 if y1 != y2 else y1 - 0.3
            points += [(x1, middle), (x2, middle), (x2, y2)]
            codes += [Path.CURVE4] * 3
    return Path(points, codes)
