"""GraphBuilder: declare layers and couplings, check them, build a Model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.errors import PgmError
from pgmengine.graph.couplings import Arrow, Coupling, Lateral, Pair
from pgmengine.graph.layer import Layer
from pgmengine.graph.model import Model
from pgmengine.graph.networks import add_variables
from pgmengine.graph.structure import Structure, layer_graph
from pgmengine.graph.validate import (
    check_bias,
    check_layers,
    check_room,
    check_structure,
    check_weight,
)
from pgmengine.units import Binary, Unit

Rng = int | np.random.Generator | None


@dataclass(eq=False)
class GraphBuilder:
    """Declares a graph whose nodes are layers; nothing is checked before `build`.

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> b.layer("v", pgm.Binary(), 6)
    >>> b.layer("h", pgm.MultiValued(4), 3)
    >>> b.couple("v", "h")
    >>> b.build(rng=0)
    Model(v: 6 Binary(), h: 3 MultiValued(s=4); v-h)
    """

    layers: list[Layer] = field(default_factory=list)
    couplings: list[Coupling] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)  # the bias of each layer, in order; None = zeros
    weights: list[Any] = field(
        default_factory=list
    )  # the weight of each coupling; None = drawn by build

    def layer(
        self,
        name: str,
        unit: Unit,
        size: int,
        bias: Any = None,
        labels: Any = None,
        states: Any = None,
    ) -> None:
        """Add a layer of `size` units; bias (size,), or (size, k) for Categorical(k); None = zeros.

        labels: names of the units; states: names of the states of each unit, in the order of
        unit.support.
        """
        names = [
            _listed(given, f"layer {name!r}: {what}")
            for given, what in ((labels, "labels"), (states, "states"))
        ]
        self.layers.append(Layer(name, unit, size, *names))
        self.given.append(bias)

    def couple(self, a: str, b: str, weight: Any = None) -> None:
        """Couple two layers, x_a W x_b; or a layer with itself, x S x / 2 with S symmetric and zero
        diagonal.
        """
        self.couplings.append(Lateral(a) if a == b else Pair(a, b))
        self.weights.append(weight)

    def cause(self, parent: str, child: str, weight: Any = None) -> None:
        """Add arrows parent -> child: the children's input gains x_parent J."""
        self.couplings.append(Arrow(parent, child))
        self.weights.append(weight)

    @property
    def graph(self) -> nx.MultiDiGraph:
        """The networkx graph behind the declaration: layers as nodes, couplings as edges keyed by
        their names.
        """
        return layer_graph(self.layers, self.couplings)

    def build(self, rng: Rng = None) -> Model:
        """Check everything and build the Model; weights left None are drawn, uniform in +-sqrt(6 /
        (in + out)).

        Raises PgmError for unknown or duplicate names, wrong shapes, values that are not finite,
        directed cycles, an undirected coupling of two unbounded layers, negative weights of NoisyOr
        units, sparse weights whose indices lie outside of them, and what does not fit into free
        memory.
        """
        check_layers(self.layers)
        layers = {layer.name: layer for layer in self.layers}
        check_structure(Structure(layers, tuple(self.couplings)))
        structure = Structure(layers, tuple(c.within(layers[c.a]) for c in self.couplings))
        check_room(structure, self.weights)
        generator = seeded(rng)
        params: dict[str, Any] = {}
        for layer, bias in zip(self.layers, self.given, strict=True):
            params[f"{layer.name}.bias"] = check_bias(layer, bias)
        for coupling, weight in zip(self.couplings, self.weights, strict=True):
            if weight is None:
                weight = draw_weight(structure, coupling, generator)
            params[f"{coupling.key}.weight"] = check_weight(structure, coupling, weight)
        return Model(structure, params)

    @staticmethod
    def from_networkx(graph: nx.Graph, unit: Unit | None = None) -> GraphBuilder:
        """A builder from an nx.Graph or nx.DiGraph whose nodes are variables.

        Node attributes: bias (0), unit (`unit`, Binary() by default), states (names). Edge
        attribute: weight (1; between Categorical units a matrix, its rows the states of the parent,
        or of the node that the graph has first). Nodes become units of layers: c0, c1, ... by
        colour class of an nx.Graph, g0, g1, ... by topological generation of an nx.DiGraph; their
        names are the labels of the units. PgmError for attributes of other names.
        """
        b = GraphBuilder()
        add_variables(b, graph, Binary() if unit is None else unit)
        return b


def _listed(given: Any, what: str) -> tuple[Any, ...] | None:
    try:
        return None if given is None else tuple(given)
    except TypeError:
        raise PgmError(f"{what} must be a list of names, not {given!r}") from None


def draw_weight(structure: Structure, coupling: Coupling, rng: np.random.Generator) -> np.ndarray:
    """Xavier uniform weights (Glorot and Bengio 2010), +-sqrt(6 / (width a + width b)); NoisyOr
    takes their size.
    """
    a, b = structure.layers[coupling.a], structure.layers[coupling.b]
    limit = np.sqrt(6.0 / (a.width + b.width))
    weight = rng.uniform(-limit, limit, (a.width, b.width))
    if coupling.a == coupling.b:
        unit = a.owners(np.arange(a.width))
        weight = np.where(unit[:, None] < unit, weight, 0.0)
        weight = weight if coupling.directed else weight + weight.T
    return np.abs(weight) if coupling.directed and b.unit.nonnegative else weight
