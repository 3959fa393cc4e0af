"""Pictures of models, answers and learning (extra "plots").

Every function draws on the Axes `ax`, or on new ones, and returns the Axes. New figures need no
retouching: axes have names and units, legends stand where they hide nothing, and estimates have
their errors. Save one by `ax.figure.savefig(path)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgmengine.apps.pictures.chain_diagnostics import convergence, levels
from pgmengine.apps.pictures.curves import autocorrelation, bound_gap, history
from pgmengine.apps.pictures.graphs.canvas import Canvas
from pgmengine.apps.pictures.graphs.contents import contents
from pgmengine.apps.pictures.images import completions, images, receptive_fields, samples
from pgmengine.apps.pictures.result_rows import checked_row
from pgmengine.apps.pictures.timelines import sequence
from pgmengine.apps.pictures.traces import trace
from pgmengine.base.errors import PgmError, listed
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.infer.results.by_name import asked
from pgmengine.infer.results.overview import values_drawn
from pgmengine.infer.results.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "autocorrelation",
    "bound_gap",
    "completions",
    "convergence",
    "graph",
    "history",
    "images",
    "levels",
    "receptive_fields",
    "samples",
    "sequence",
    "trace",
]


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return __all__


def graph(
    model: ModelLike, result: Result | None = None, ax: Axes | None = None, row: int = 0
) -> Axes:
    """Draw a model as boxes and edges: its variables, or its layers, with their marginals.

    Parents stand above children. Arrows are conditionals and directed couplings, and lines are
    undirected couplings and tables of two variables; tables of more variables are small squares.
    Edges pass between boxes. Layers without arrows between them stand in the order of their
    declaration, from the bottom up. An arrow at the side of a box joins units inside of it.

    With a result, the box of a variable has a line for each state: its name, a bar, and the
    probability. Where the answer is an estimate, a whisker has two standard errors on each side.
    In drawings of more than 60 boxes there is only the most probable state. Layers, and arrays of
    more than 12 variables, are one box each, with a strip or an image of the probabilities or
    means of their units. Observed variables have thick frames, those set by do() dashed ones.

    Parameters
    ----------
    model : the model to draw.
    result : marginals of this model.
    ax : where to draw, with text scaled to its size; new Axes by default, as large as the graph
        needs.
    row : the row of evidence of the result that is drawn.

    Raises
    ------
    PgmError
        If `result` is not a result, has no marginals or no such row, or belongs to another model.

    >>> import pgmengine as pgm
    >>> ax = pgm.plots.graph(pgm.dbn([12, 8, 4], rng=0))
    """
    model = as_model(model)
    if result is None:
        return Canvas(contents(model, None), "", ax).draw()
    _check_result(model, result)
    values = values_drawn(result, checked_row(result, row))
    return Canvas(contents(model, values), _title(result, row), ax).draw()


def _title(result: Result, row: int) -> str:
    """Return the guarantee and the status of a result, and its row if it has several."""
    kind = {"exact": "exact probabilities", "estimate": "estimated probabilities"}
    text = kind.get(result.kind, f"probabilities by a {result.kind}")
    if not result.status.good:
        text += f": {result.status.value.partition(':')[0]}"
    rows = asked(result.target).rows
    return f"{text}, row {row} of 0..{rows - 1}" if rows > 1 else text


def _check_result(model: Model, result: Result) -> None:
    """Raise PgmError unless a result is one, with the layers of a model."""
    if not isinstance(result, Result):
        raise PgmError(
            f"result must be a Result of pgm.infer, not {type(result).__name__}; give Axes as ax="
        )
    s = asked(result.target).structure
    if s.layers != model.structure.layers:
        theirs, ours = (listed([*map(str, x.names.declared())]) for x in (s, model.structure))
        raise PgmError(
            f"the result belongs to another model, with {theirs}; expected one with {ours}, and "
            "the same states and sizes"
        )
