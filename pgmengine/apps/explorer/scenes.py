"""The part of a model that is drawn: all of it, or the neighbourhood of a variable."""

from __future__ import annotations

from pgmengine.apps.explorer.exploration import Given
from pgmengine.declare.pictures.scene import Scene, scene
from pgmengine.declare.pictures.sketch import Sketch
from pgmengine.model.structure import Structure

# Nodes of a model that are all drawn. Of a larger one: the nodes around a variable that are enough,
# and the most of them and of given nodes.
MAX_NODES, ENOUGH_AROUND, MAX_AROUND, MAX_GIVEN = 60, 10, 30, 20


def is_large(drawn: Sketch) -> bool:
    """Whether only a part of a model is drawn."""
    return len(drawn.nodes) > MAX_NODES


def first_focus(drawn: Sketch) -> int:
    """Return the node with the most neighbours that still fit in the picture."""
    joined = [0] * len(drawn.nodes)
    for pair in (*drawn.arrows, *drawn.lines, *drawn.factors):
        for node in pair:
            joined[node] += 1
    return max(range(len(joined)), key=lambda i: (joined[i] <= MAX_AROUND // 2) * joined[i])


def scene_around(structure: Structure, drawn: Sketch, focus: int, given: Given) -> Scene:
    """Return the picture of the model, or of the neighbourhood of a node and given nodes."""
    nodes = range(len(drawn.nodes))
    if not is_large(drawn):
        return scene(structure, drawn, nodes)
    held = {*given.observed, *given.done, *given.soft}
    seen = [i for i in nodes if (drawn.nodes[i].layer.name, drawn.nodes[i].units[0]) in held]
    around = drawn.near(focus, ENOUGH_AROUND, MAX_AROUND)
    return scene(structure, drawn, {*around, *seen[:MAX_GIVEN]})
