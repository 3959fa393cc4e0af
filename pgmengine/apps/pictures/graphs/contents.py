"""The contents of a picture of a model: boxes of layers, arrays or variables, and their places."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from pgmengine.apps.pictures.boxes import DETAILED_BOXES, Box, layer_box, unit_box
from pgmengine.declare.model import Model
from pgmengine.declare.pictures.layout import Drawing, drawing
from pgmengine.declare.pictures.scene import Values
from pgmengine.declare.pictures.sketch import Sketch, sketch
from pgmengine.model.graph.parent_order import cycle_of, parents_first
from pgmengine.model.structure import Structure

# Arrays and layers of at most so many units are drawn unit by unit where variables are.
MOST_UNITS = 12


@dataclass(frozen=True, eq=False)
class Contents:
    """The sketch that is drawn, the boxes of its nodes by their numbers, and their places."""

    drawn: Sketch
    boxes: dict[Hashable, Box]
    placed: Drawing


def contents(model: Model, values: Values | None) -> Contents:
    """Return layers as boxes, or single units where a model has variables or small arrays."""
    s, apart = model.structure, _units_apart(model.structure)
    drawn = sketch(s, apart, model)
    detailed = len(drawn.nodes) <= DETAILED_BOXES
    boxes: dict[Hashable, Box] = {}
    for i, x in enumerate(drawn.nodes):
        if x.layer.name in apart:
            boxes[i] = unit_box(s, (x.layer.name, x.units[0]), values, detailed)
        else:
            boxes[i] = layer_box(x.layer, x.name, values, drawn.inside.get(i))
    graph, sizes = drawn.graph(range(len(boxes))), {i: box.size for i, box in boxes.items()}
    if apart:
        placed = drawing(graph if drawn.arrows else graph.to_undirected(), sizes)
    else:
        # Children stand below their parents where arrows close no cycle.
        arrows = [(b, a) for a, b in drawn.arrows]
        order = [*boxes] if cycle_of(arrows) else parents_first([*boxes], arrows)
        placed = drawing(graph, sizes, [[node] for node in reversed(order)])
    return Contents(drawn, boxes, placed)


def _units_apart(s: Structure) -> set[str]:
    """Return the layers whose units have boxes of their own."""
    if not s.variables and not any(layer.is_array for layer in s.layers.values()):
        return set()
    held = {name for name, _ in s.variables}
    return {
        name
        for name, layer in s.layers.items()
        if layer.holds_variables or name in held or layer.size <= MOST_UNITS
    }
