"""Networks of tables to models.

`Network` itself is in `graph`, because builders take networks of other libraries, too.
"""

from __future__ import annotations

from typing import cast

from pgmengine.graph.builder import GraphBuilder
from pgmengine.graph.model import Model
from pgmengine.graph.tabular import Declares, Network


def build(network: Network) -> Model:
    """Return the model of a network, by the functions of a builder that declare tables.

    Raises
    ------
    PgmError
        For conditionals that do not sum to 1, and all else that a builder refuses.
    """
    builder = GraphBuilder()
    network.declare(cast(Declares, builder))
    return builder.build()
