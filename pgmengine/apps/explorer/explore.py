"""The explorer as a widget of anywidget, for Jupyter, VS Code and marimo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pgmengine.apps.explorer.session import Session
from pgmengine.base.extras import needed_by
from pgmengine.base.types import LayerValues
from pgmengine.declare.model import ModelLike, as_model

# The front end, which the widget and the page share.
DATA = Path(__file__).parents[2] / "data"
SCRIPT, STYLE = DATA / "explorer.js", DATA / "explorer.css"


def explore(model: ModelLike, evidence: LayerValues | None = None) -> Any:
    """Return a widget that shows a model, and answers as its evidence is changed by clicking.

    Use it in a notebook (Jupyter, VS Code or marimo) to see at once what evidence does. The same
    page without a notebook is the command `pgmengine explore FILE`.

    Parameters
    ----------
    model : the model, or the Fit that holds it.
    evidence : evidence at the start, as in `infer`, of one row.

    Returns
    -------
    A widget of anywidget. Its `session` has the evidence as `session.given`, and `session.code()`
    is the call of `infer` that gives the answer shown.

    Raises
    ------
    PgmError if the evidence is unusable or has several rows, and MissingExtra without the extra
    "explore".

    Examples
    --------
    >>> import pgmengine as pgm
    >>> net = pgm.read(pgm.datasets.asia())
    >>> widget = pgm.explore(net, {"xray": "yes"})  # doctest: +SKIP
    """
    session = Session(as_model(model), evidence)
    with needed_by("explore()", "the command pgmengine explore FILE shows it without the extra"):
        import anywidget

    class Explorer(anywidget.AnyWidget):
        _esm = SCRIPT
        _css = STYLE

        def __init__(self) -> None:
            super().__init__()
            self.session = session
            self.on_msg(lambda widget, message, buffers: widget.send(session.reply(message)))

    return Explorer()
