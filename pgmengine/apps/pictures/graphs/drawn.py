"""Pictures of models: boxes of layers, arrays and variables, with their marginals, and edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgmengine.apps.pictures.boxes import Answers
from pgmengine.apps.pictures.graphs.canvas import Canvas
from pgmengine.apps.pictures.graphs.contents import contents
from pgmengine.declare.model import Model
from pgmengine.declare.pictures.layout import drawing
from pgmengine.infer.results.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def graph_drawn(model: Model, ax: Axes | None, result: Result | None, row: int) -> Axes:
    """Draw a model, with the marginals of a result."""
    answers = None if result is None else Answers(model.structure, result, row)
    found = contents(model, answers)
    sizes = {node: box.size for node, box in found.boxes.items()}
    placed = drawing(found.graph, sizes, found.lines)
    title = "" if result is None else _title(result, row)
    return Canvas(placed, found, title, ax).draw()


def _title(result: Result, row: int) -> str:
    """Return the guarantee and the status of a result, and its row if it has several."""
    kind = {"exact": "exact probabilities", "estimate": "estimated probabilities"}
    text = kind.get(result.kind, f"probabilities by a {result.kind}")
    if not result.status.good:
        text += f": {result.status.value.partition(':')[0]}"
    rows = 1 if result.target is None else result.target.rows
    return f"{text}, row {row} of 0..{rows - 1}" if rows > 1 else text
