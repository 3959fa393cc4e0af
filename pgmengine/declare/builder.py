"""GraphBuilder: declare layers, variables, couplings and tables, check them, build a Model."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import seeded
from pgmengine.base.display import counted
from pgmengine.base.errors import PgmError
from pgmengine.base.names import is_sequence
from pgmengine.base.types import Array, RngLike, Weight
from pgmengine.declare.converters import add_quadratic, network_from_pgmpy, network_from_pyagrum
from pgmengine.declare.from_networkx import add_variables
from pgmengine.declare.scopes import Declared, add_tables
from pgmengine.declare.tabular import Declares, Network
from pgmengine.declare.validate import (
    as_floats,
    check_bias,
    check_layers,
    check_name,
    check_room,
    check_structure,
    check_weight,
)
from pgmengine.declare.values.declared import Values, rows_of, values_of
from pgmengine.evidence.names import Member
from pgmengine.model.couplings import Arrow, Coupling, Lateral, Pair
from pgmengine.model.layer import Layer
from pgmengine.model.model import Model
from pgmengine.model.structure import Structure, layer_graph
from pgmengine.model.variables import Variable, check_names, check_variable, layers_of
from pgmengine.units import Binary, Unit


@dataclass(eq=False)
class GraphBuilder:
    """Declare a graph of layers and variables; `build` checks it.

    Layers are arrays of units, which couplings join. Variables are single units with names. Tables
    and conditionals join variables, and units of layers with finitely many states.

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> b.layer("v", pgm.Binary(), 6)
    >>> b.layer("h", pgm.MultiValued(4), 3)
    >>> b.couple("v", "h")
    >>> b.build(rng=0)
    Restricted Boltzmann machine: 2 layers, 1 coupling, 27 parameters
      v: 6 Binary
      h: 3 MultiValued(s=4)
      couplings: v-h
    >>> b = pgm.GraphBuilder()
    >>> b.variable("smoke", states=("yes", "no"))
    >>> b.variable("lung", states=("yes", "no"))
    >>> b.conditional("smoke", (), [0.5, 0.5])
    >>> b.conditional("lung", ("smoke",), [[0.1, 0.9], [0.01, 0.99]])
    >>> b.build().variables
    ['smoke', 'lung']
    """

    layers: list[Layer] = field(default_factory=list)
    couplings: list[Coupling] = field(default_factory=list)
    # The bias of each layer, in order; None = zeros.
    given: list[ArrayLike | None] = field(default_factory=list)
    # The weight of each coupling; None = drawn by build.
    weights: list[Weight | None] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    declared: list[Declared] = field(default_factory=list)

    def __repr__(self) -> str:
        conditionals = sum(one.conditional for one in self.declared)
        counts = (
            (len(self.variables), "variable"),
            (len(self.layers), "layer"),
            (len(self.couplings), "coupling"),
            (conditionals, "conditional"),
            (len(self.declared) - conditionals, "table"),
        )
        parts = [counted(number, word) for number, word in counts if number]
        return f"GraphBuilder: {', '.join(parts) or 'nothing is declared'}"

    def layer(
        self,
        name: str,
        unit: Unit,
        size: int,
        bias: ArrayLike | None = None,
        labels: Iterable[Hashable] | None = None,
        states: Iterable[str] | None = None,
    ) -> None:
        """Add a layer.

        Parameters
        ----------
        name : the name of the layer.
        unit : the type of its units.
        size : the number of its units.
        bias : (size,), or (size, k) for Categorical(k); None = zeros.
        labels : names of the units.
        states : names of the states of each unit, in the order of unit.support.
        """
        names = _listed(labels, f"layer {name!r}: labels")
        state_names = _listed(states, f"layer {name!r}: states")
        check_name(name)
        self.layers.append(Layer(name, unit, size, names, state_names))
        self.given.append(bias)

    def couple(self, a: str, b: str, weight: Weight | None = None) -> None:
        """Couple two layers: the log density gains x_a W x_b.

        A layer that is coupled with itself gains x S x / 2, S symmetric with a zero diagonal. The
        weight (width of a, width of b) is dense or a scipy sparse array; None = drawn by build.
        """
        self.couplings.append(Lateral(a) if a == b else Pair(a, b))
        self.weights.append(weight)

    def cause(self, parent: str, child: str, weight: Weight | None = None) -> None:
        """Add arrows parent -> child: the children's input gains x_parent J.

        A Binary child is 1 with the probability sigmoid(input). Use `conditional` to give the
        distribution of a variable as a table; arrows between two variables need a weight.

        Parameters
        ----------
        parent, child : names of layers, or of variables.
        weight : (width of the parent, width of the child), dense or a scipy sparse array; None =
            drawn by build.
        """
        self.couplings.append(Arrow(parent, child))
        self.weights.append(weight)

    def variable(self, name: str, states: int | Iterable[str] = 2) -> None:
        """Add a variable, a single unit with a name: Binary for two states, else Categorical.

        Parameters
        ----------
        name : its name, which evidence, answers and scopes of tables use.
        states : the number of its states, or their names.

        Raises
        ------
        PgmError if the name is no text, or if there are fewer than two different states.
        """
        self.variables.append(check_variable(name, states))

    def conditional(
        self,
        child: Member,
        parents: Sequence[Member],
        values: Values | None = None,
        *,
        rows: Mapping[Any, Any] | None = None,
        otherwise: Any = None,
    ) -> None:
        """Add the conditional distribution p(child | parents) of a unit.

        Parameters
        ----------
        child : the name of a variable, or (layer, number of a unit).
        parents : the parents in order, empty for a root.
        values : probabilities; the axes are the parents in order, then the child. Each row must
            sum to 1 up to 1e-6, and is normalised. It may also be a function, which `build` calls
            with the states of the parents, and which returns the state of the child, or a row; or a
            noisy gate, such as `pgm.noisy_or([0.4, 0.8])`.
        rows : in place of values, the rows of a few joint states: (states of the parents) -> row. A
            row is a list of probabilities, a dictionary from states to probabilities, or the state
            that has probability one.
        otherwise : the row of all states of the parents that `rows` leaves out.

        States are given by their names, and by their numbers where they have no names.

        >>> import pgmengine as pgm
        >>> b = pgm.GraphBuilder()
        >>> for name in ("a", "b", "c"):
        ...     b.variable(name, states=("no", "yes"))
        >>> b.conditional("a", (), [0.5, 0.5])
        >>> b.conditional("b", ("a",), rows={"yes": [0.1, 0.9]}, otherwise="no")
        >>> b.conditional("c", ("a", "b"), lambda a, b: "yes" if a == b else "no")
        >>> round(float(pgm.infer(b.build()).marginal("c")["yes"]), 6)
        0.95
        """
        if not is_sequence(parents):
            raise PgmError(
                f"the parents of {child!r} must be a sequence such as ({parents!r},), not "
                f"{parents!r}"
            )
        what = f"conditional of {child!r}"
        table = values_of(values, what) if rows is None else rows_of(rows, otherwise, values, what)
        if rows is None and otherwise is not None:
            raise PgmError(f"{what}: otherwise= needs rows=, the rows of some joint states")
        self.declared.append(Declared((*parents, child), table, conditional=True))

    def table(self, scope: Sequence[Member], values: Values) -> None:
        """Add a potential: the density is multiplied by the entry at the states of the scope.

        Parameters
        ----------
        scope : names of variables, or (layer, number of a unit), one for each axis.
        values : the entries, axes in the order of the scope; 0 means impossible. It may also be a
            function, which `build` calls with the states of the scope, and which returns an entry,
            or True or False for 1 or 0.

        >>> import pgmengine as pgm
        >>> b = pgm.GraphBuilder()
        >>> for region in ("north", "south"):
        ...     b.variable(region, states=("red", "green", "blue"))
        >>> b.table(("north", "south"), lambda north, south: north != south)
        >>> pgm.infer(b.build(), {"north": "red"}).marginal("south")
        {'red': 0.0, 'green': 0.5, 'blue': 0.5}
        """
        if not is_sequence(scope):
            raise PgmError(f"the scope must be a sequence such as ({scope!r},), not {scope!r}")
        self.declared.append(Declared(tuple(scope), values_of(values, f"table of {scope!r}")))

    def tables(self, layers: Sequence[str], index: ArrayLike, values: ArrayLike) -> None:
        """Add many potentials of one shape over units of the same layers, or of variables.

        Use it for lattices, chains and large networks, because no Python loop visits its tables.

        Parameters
        ----------
        layers : the layer of each axis, m names. A variable stands for a layer of one unit.
        index : (n, m) numbers of units of these layers; 0 for a variable.
        values : (n, K_1, ..., K_m) entries >= 0, or (K_1, ..., K_m) for n equal tables.
        """
        if not is_sequence(layers):
            raise PgmError(f"the layers must be a sequence such as ({layers!r},), not {layers!r}")
        table = as_floats(values, f"tables of {layers!r}")
        self.declared.append(Declared(tuple(layers), table, as_floats(index, "tables: index")))

    @property
    def graph(self) -> nx.MultiDiGraph:
        """The declaration as a networkx graph: layers as nodes, couplings as edges by name."""
        return layer_graph(self.layers, self.couplings)

    def build(self, rng: RngLike = None) -> Model:
        """Check the declaration and build the Model.

        Weights that are None are drawn, uniform in +-sqrt(6 / (in + out)).

        Raises
        ------
        PgmError for unknown or duplicate names, wrong shapes, values that are not finite, directed
        cycles, an undirected coupling of two unbounded layers, negative weights of NoisyOr units,
        sparse weights whose indices lie outside of them, and parameters that do not fit into free
        memory; tables of wrong shape, with negative entries, or without a possible state;
        conditionals that do not sum to one, or that form a cycle.
        """
        check_names(self.variables, self.layers)
        self._check_causes()
        named = [name for c in self.couplings for name in (c.a, c.b)]
        taken: list[Hashable] = [layer.name for layer in self.layers]
        # The name of a layer that holds variables must differ from all labels of units.
        taken += [x for layer in self.layers for x in layer.labels or () if isinstance(x, str)]
        grouped = layers_of(self.variables, named, taken)
        check_layers([*self.layers, *grouped])
        layers = {layer.name: layer for layer in (*self.layers, *grouped)}
        check_structure(Structure(layers, tuple(self.couplings)))
        structure = Structure(layers, tuple(c.within(layers[c.a]) for c in self.couplings))
        check_room(structure, self.weights)
        generator = seeded(rng)
        params: dict[str, Weight] = {}
        biases = (*self.given, *(None for _ in grouped))
        for layer, bias in zip(layers.values(), biases, strict=True):
            params[f"{layer.name}.bias"] = check_bias(layer, bias)
        for coupling, weight in zip(self.couplings, self.weights, strict=True):
            if weight is None:
                weight = draw_weight(structure, coupling, generator)
            params[f"{coupling.key}.weight"] = check_weight(structure, coupling, weight)
        given = [*self.given, *self.weights, *self.declared]
        fresh = all(value is None for value in given)
        structure, params = add_tables(structure, params, self.declared, self.variables)
        return Model(structure, params, fresh=fresh)

    def _check_causes(self) -> None:
        """PgmError for arrows between variables without a weight, which may be meant as tables."""
        names = {v.name for v in self.variables}
        for c, weight in zip(self.couplings, self.weights, strict=True):
            if c.directed and weight is None and {c.a, c.b} <= names:
                raise PgmError(
                    f"cause({c.a!r}, {c.b!r}) joins two variables by a weight, and none is given: "
                    f"give weight=, or the table of conditional({c.b!r}, ({c.a!r},), values)"
                )

    @staticmethod
    def from_networkx(graph: nx.Graph, unit: Unit | None = None) -> GraphBuilder:
        """Return a builder for an nx.Graph or nx.DiGraph whose nodes are variables.

        Node attributes: bias (0), unit (`unit`, Binary() by default), states (names), and cpt, the
        conditional of the node. It is an array whose axes are the predecessors in the order of the
        graph, then the node, or {"parents": nodes, "values": array}. A node with the attributes
        table (an array of numbers >= 0) and scope (a node for each axis) is a factor and no
        variable; its edges lead to the nodes of its scope.

        Edge attribute: weight (1 by default). Between Categorical units it is a matrix, whose rows
        are the states of the parent, or of the node that comes first in the graph. Edges into a
        node with a cpt have none.

        Nodes become units of layers: c0, c1, ... by colour class of an nx.Graph, g0, g1, ... by
        topological generation of an nx.DiGraph, with a number behind the name of a layer that is
        the name of a node, such as c0_1; the names of the nodes are the labels of the units.
        Strings with tables and without weights become variables. PgmError for attributes of other
        names.

        >>> import networkx as nx
        >>> import pgmengine as pgm
        >>> g = nx.DiGraph([("rain", "wet")])
        >>> g.nodes["rain"]["cpt"] = [0.8, 0.2]
        >>> g.nodes["wet"]["cpt"] = [[0.9, 0.1], [0.2, 0.8]]
        >>> model = pgm.GraphBuilder.from_networkx(g).build()
        >>> round(float(pgm.infer(model, {"wet": 1}).marginal("rain")[1]), 6)
        0.666667
        """
        b = GraphBuilder()
        add_variables(b, graph, Binary() if unit is None else unit)
        return b

    @staticmethod
    def from_pgmpy(model: object) -> GraphBuilder:
        """Return a builder for a discrete Bayesian network or Markov network of pgmpy.

        Variables and states keep their names, as text. PgmError for other objects, and for
        variables without a table.
        """
        return _declared(network_from_pgmpy(model))

    @staticmethod
    def from_pyagrum(model: object) -> GraphBuilder:
        """Return a builder for a BayesNet or MarkovRandomField of pyAgrum.

        Variables and states keep their names; intervals of a discretized variable become states
        such as "[0;1[". Probabilities may be rounded to six digits, as in files that pyAgrum
        writes. PgmError for other objects.
        """
        return _declared(network_from_pyagrum(model))

    @staticmethod
    def from_dimod(model: object) -> GraphBuilder:
        """Return a builder for a BinaryQuadraticModel of dimod.

        Its variables are the units of one layer, "x" ("x_1" if a variable is called "x"), of Spin
        or Binary units, with their names as labels. The log density is the negative energy without
        its constant: log_z of the model is log sum_x e^-E(x), plus the offset of the dimod model.
        PgmError for other objects.
        """
        b = GraphBuilder()
        add_quadratic(b, model, "x")
        return b


def _declared(network: Network) -> GraphBuilder:
    """Return a builder with the variables and tables of a network."""
    b = GraphBuilder()
    network.declare(cast(Declares, b))
    return b


def _listed(given: Iterable[Any] | None, what: str) -> tuple[Any, ...] | None:
    """Return names as a tuple; PgmError unless they have an order, as in a list."""
    if isinstance(given, (set, frozenset)):
        raise PgmError(f"{what} must be a list of names in order, not the set {given!r}")
    try:
        return None if given is None else tuple(given)
    except TypeError:
        raise PgmError(f"{what} must be a list of names, not {given!r}") from None


def draw_weight(structure: Structure, coupling: Coupling, rng: np.random.Generator) -> Array:
    """Return Xavier uniform weights, +-sqrt(6 / (width of a + width of b)).

    Weights into NoisyOr units are the absolute values. Reference: Glorot and Bengio (2010).
    """
    a, b = structure.layers[coupling.a], structure.layers[coupling.b]
    limit = np.sqrt(6.0 / (a.width + b.width))
    weight = rng.uniform(-limit, limit, (a.width, b.width))
    if coupling.a == coupling.b:
        unit = a.owners(np.arange(a.width))
        weight = np.where(unit[:, None] < unit, weight, 0.0)
        weight = weight if coupling.directed else weight + weight.T
    return np.abs(weight) if coupling.directed and b.unit.nonnegative else weight
