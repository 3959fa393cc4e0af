"""Drawing of a graph in the plane, with straight edges that do not cross.

References: Chrobak and Payne (1995) place the vertices on a grid; networkx does it.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from pgmengine.base.types import Array
from pgmengine.model.structure import Structure


def drawing(vertices: int, edges: Array, structure: Structure) -> Array | None:
    """Return the places (vertices, 2) of the vertices of a graph, or None if it is not planar.

    Vertices without an edge are at (0, 0). The structure remembers the drawing.

    Parameters
    ----------
    vertices : number of vertices.
    edges : (edges, 2) their ends; each pair of vertices has at most one edge.
    structure : the structure of the model that has this graph.
    """
    key = "planar drawing", vertices, sha256(np.ascontiguousarray(edges).tobytes()).digest()
    found: Array | None = structure.memo.recall(key, lambda: _drawn(vertices, edges))
    return found


def _drawn(vertices: int, edges: Array) -> Array | None:
    import networkx as nx

    graph: nx.Graph = nx.Graph()
    graph.add_edges_from(edges.tolist())
    planar, embedding = nx.check_planarity(graph)
    if not planar:
        return None
    places = np.zeros((vertices, 2))
    for vertex, place in nx.combinatorial_embedding_to_pos(embedding).items():
        places[vertex] = place
    return places
