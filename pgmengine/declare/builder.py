"""GraphBuilder: declare layers, variables, couplings and tables, check them, build a Model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import seeded
from pgmengine.base.display import counted
from pgmengine.base.errors import PgmError
from pgmengine.base.names import is_sequence
from pgmengine.base.types import Array, RngLike, Weight
from pgmengine.base.work.interrupts import stoppable
from pgmengine.declare.handles import Units, check_scope, in_words
from pgmengine.declare.model import Model
from pgmengine.declare.networks.converters import (
    add_quadratic,
    network_from_pgmpy,
    network_from_pyagrum,
)
from pgmengine.declare.networks.from_networkx import add_variables
from pgmengine.declare.networks.tabular import Declares, Network
from pgmengine.declare.scopes import check_complete, check_conditionals
from pgmengine.declare.terms.declared_terms import (
    Declared,
    Placed,
    placed_terms,
    values_of_terms,
    with_terms,
)
from pgmengine.declare.validate import (
    check_layers,
    check_name,
    check_parameter,
    check_room,
    check_size,
)
from pgmengine.declare.values.table_values import Values, check_log, rows_of, values_of
from pgmengine.model.containers import as_floats
from pgmengine.model.couplings import Coupling
from pgmengine.model.layer import Layer
from pgmengine.model.names.unit_names import Member
from pgmengine.model.names.variables import (
    Variable,
    check_names,
    check_shape,
    check_variable,
    layers_of,
)
from pgmengine.model.parameter_checks import check_bias, check_weight
from pgmengine.model.structure import Structure, layer_graph
from pgmengine.model.terms.term import KINDS_OF_TABLES, Kind
from pgmengine.model.weights import is_sparse
from pgmengine.units import Binary, Unit

if TYPE_CHECKING:
    import networkx as nx


@dataclass(eq=False)
class GraphBuilder:
    """Declare a graph of layers and variables; `build` checks it.

    Layers are arrays of units, which couplings join. Variables are single units with names. Tables
    and conditionals join variables, and units of layers with finitely many states.

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> v = b.layer("v", pgm.Binary(), 6)
    >>> h = b.layer("h", pgm.MultiValued(4), 3)
    >>> b.couple("v", "h")
    >>> b.build(rng=0)
    Restricted Boltzmann machine: 2 layers, 1 coupling, 27 parameters
      v: 6 Binary
      h: 3 MultiValued(s=4)
      couplings: v-h
    >>> b = pgm.GraphBuilder()
    >>> smoke = b.variable("smoke", states=("yes", "no"))
    >>> lung = b.variable("lung", states=("yes", "no"))
    >>> b.conditional(smoke, (), [0.5, 0.5])
    >>> b.conditional(lung, (smoke,), [[0.1, 0.9], [0.01, 0.99]])
    >>> b.build().variables
    ['smoke', 'lung']
    """

    layers: list[Layer] = field(default_factory=list)
    # The bias of each layer, in order; None = zeros.
    given: list[ArrayLike | None] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    # Couplings of whole layers, and the weight of each; None = drawn by build.
    couplings: list[Coupling] = field(default_factory=list)
    weights: list[Weight | None] = field(default_factory=list)
    # Tables, and couplings, arrows and biases of places.
    declared: list[Declared] = field(default_factory=list)

    def __repr__(self) -> str:
        kinds = Counter(one.kind for one in self.declared)
        counts = (
            (len(self.variables), "variable"),
            (len(self.layers), "layer"),
            (len(self.couplings) + kinds[Kind.COUPLING] + kinds[Kind.ARROW], "coupling"),
            (kinds[Kind.CONDITIONAL], "conditional"),
            (kinds[Kind.TABLE], "table"),
        )
        parts = [counted(number, word) for number, word in counts if number]
        return f"GraphBuilder: {', '.join(parts) or 'nothing is declared'}"

    def layer(
        self,
        name: str,
        unit: Unit,
        size: int | Sequence[int],
        bias: ArrayLike | None = None,
        labels: Iterable[Hashable] | None = None,
        states: Iterable[Hashable] | None = None,
    ) -> Units:
        """Add a layer.

        Parameters
        ----------
        name : the name of the layer.
        unit : the type of its units.
        size : the number of its units, or the shape of their array, such as (28, 28).
        bias : (size,), or (size, k) for Categorical(k); None = zeros.
        labels : names of the units.
        states : names of the states of each unit, in the order of unit.support.

        Returns
        -------
        A handle of the units, which indexes like a numpy array, for scopes of tables.
        """
        names = _listed(labels, f"layer {name!r}: labels")
        state_names = _listed(states, f"layer {name!r}: states")
        check_name(name)
        axes = check_shape(size, f"layer {name!r}") if is_sequence(size) else ()
        if isinstance(unit, Unit) and (axes or isinstance(size, int)):
            unit, grid = unit.over(axes or (cast(int, size),))
            axes = grid if axes else ()
            size = math.prod(grid)
        count = math.prod(axes) if axes else cast(int, size)
        layer = Layer(name, unit, count, names, state_names, shape=axes if len(axes) > 1 else ())
        check_size(layer)
        self.layers.append(layer)
        self.given.append(bias)
        return Units(name, np.arange(layer.size).reshape(layer.grid), name, self)

    def variable(
        self,
        name: str,
        states: int | Iterable[Hashable] = 2,
        shape: int | Sequence[int] | None = None,
    ) -> Units:
        """Add a variable: Binary for two states, else Categorical; or an array of variables.

        Parameters
        ----------
        name : its name, which evidence, answers and scopes of tables use.
        states : the number of its states, or their names in order: text, numbers or booleans, such
            as the different values of a column of a table. A value of evidence or data is then the
            name of a state, and never its number: with the states (2, 1, 0), 2 is the first state.
        shape : the shape of an array of variables, such as 300 or (20, 20); None = one variable.
            The array is a layer without biases. Its variables are "z[0]", "z[1]", ..., or
            "s[0,0]", ...; evidence and answers under its name have its shape.

        Returns
        -------
        A handle that indexes like a numpy array, for scopes of conditionals and tables.

        Raises
        ------
        PgmError if the name is no text, if there are fewer than two different states, or if the
        shape has other entries than integers of at least 1.
        """
        one = check_variable(name, states, shape)
        self.variables.append(one)
        axes = one.shape or ()
        return Units(name, np.arange(math.prod(axes)).reshape(axes), name, self)

    def couple(
        self,
        a: Member | Units,
        b: Member | Units,
        weight: Weight | None = None,
        name: str | None = None,
    ) -> None:
        """Couple two layers, or units in many places: the log density gains x_a W x_b.

        Names of two layers couple all units of one with all units of the other. A layer that is
        coupled with itself gains x S x / 2, S symmetric with a zero diagonal.

        Handles, such as those of `layer` and `variable`, broadcast together as in numpy, and couple
        the two units at each place. All places share the weight, as one parameter. Places inside a
        layer are pairs of different units; pairs that are coupled several times add up.

        Parameters
        ----------
        a, b : the names of two layers; or handles such as s[1:], also as text.
        weight : of two layers (width of a, width of b), dense or a scipy sparse array. Of places a
            number, or (k_a, k_b) for units with several components, such as Categorical(k); leading
            axes, which broadcast to the places, give them weights of their own. None = drawn by
            build.
        name : the name of the parameter of places; couplings of one name share it. None = the name
            is made from the handles, such as "s[1:]-s[:-1].weight".

        Raises
        ------
        PgmError for a name beside two layers, and for weights of places that are no numbers or
        sparse.
        `build` checks the rest.

        >>> import numpy as np
        >>> import pgmengine as pgm
        >>> b = pgm.GraphBuilder()
        >>> s = b.layer("s", pgm.Spin(), (20, 20))
        >>> b.couple(s[1:], s[:-1], 0.3, name="vertical")
        >>> b.couple(s[:, 1:], s[:, :-1], 0.3, name="horizontal")
        >>> lattice = b.build()
        >>> lattice.params["vertical"]
        array(0.3)
        >>> pgm.infer(lattice, want=("log_z",)).log_z.round(3)
        array([314.068])

        A convolutional RBM shares a filter of 5 x 5 weights over all windows of an image:

        >>> b = pgm.GraphBuilder()
        >>> v = b.layer("v", pgm.Binary(), (28, 28))
        >>> h = b.layer("h", pgm.Binary(), (24, 24))
        >>> i, j, k, l = np.ogrid[:24, :24, :5, :5]
        >>> b.couple(v[i + k, j + l], h[:, :, None, None], np.zeros((5, 5)), name="filter")
        >>> b.build().params["filter"].shape
        (5, 5)
        """
        self._join((a, b), weight, name, Kind.COUPLING)

    def cause(
        self,
        parent: Member | Units,
        child: Member | Units,
        weight: Weight | None = None,
        name: str | None = None,
    ) -> None:
        """Add arrows parent -> child: the children's input gains x_parent J.

        A Binary child is 1 with the probability sigmoid(input), and the mean of a Gaussian(sigma)
        child is sigma**2 times its input: divide means by sigma**2. Use `conditional` to give the
        distribution of a variable as a table; arrows between two variables need a weight. Handles
        broadcast together, and share the weight over their places, as in `couple`.

        With handles, a weight with a row for each state of the parent is the whole input that a
        child gets from it, such as the mean of each state. The layer of such children learns no
        bias of its own; `bias` adds one.

        Parameters
        ----------
        parent, child : names of layers, or of variables; or handles such as z[1:], also as text.
        weight : (width of the parent, width of the child), dense or a scipy sparse array; of places
            as in `couple`, so that a parent with three states has one number for each state, (3, 1)
            above a Binary or Gaussian child. A parent with two states has rows for both, (2, 1), or
            one number for what its second state adds, (). None = drawn by build.
        name : the name of the parameter of places, as in `couple`.

        Raises
        ------
        PgmError for a name beside two layers, and for weights of places that are no numbers or
        sparse.
        `build` checks the rest.

        >>> import pgmengine as pgm
        >>> b = pgm.GraphBuilder()
        >>> z = b.layer("z", pgm.Binary(), 10)
        >>> b.cause(z[:-1], z[1:], 1.5, name="step")
        >>> b.build().params["step"]
        array(1.5)

        A Gaussian observation has the mean -1, 0 or 2 and the standard deviation 0.5:

        >>> import numpy as np
        >>> b = pgm.GraphBuilder()
        >>> z = b.variable("z", states=3)
        >>> x = b.layer("x", pgm.Gaussian(sigma=0.5), 1)
        >>> b.conditional(z, (), [0.2, 0.3, 0.5])
        >>> b.cause(z, x[0], np.array([[-1.0], [0.0], [2.0]]) / 0.5**2)
        >>> pgm.infer(b.build(), {"z": 2}).mean["x"]
        array([2.])
        """
        self._join((parent, child), weight, name, Kind.ARROW)

    def bias(
        self, units: Member | Units, value: ArrayLike | None = None, name: str | None = None
    ) -> None:
        """Add a bias that many places share: the log density gains value * x_i at each place.

        It is added to the biases that a layer has of its own. Arrays of variables have no others.
        For units with arrows into them it is added to their input.

        Parameters
        ----------
        units : a handle such as s[1:], also as text, or a single unit.
        value : a number, or (k,) for units with k components, such as Categorical(k); leading axes,
            which broadcast to the places, give them values of their own. None = 0.
        name : the name of the parameter; biases of one name share it. None = the name is made from
            the handle, such as "s[1:].bias".

        Raises
        ------
        PgmError for values that are no numbers. `build` checks the rest.

        >>> import pgmengine as pgm
        >>> b = pgm.GraphBuilder()
        >>> s = b.variable("s", states=2, shape=(3, 3))
        >>> b.bias(s, 0.5, name="field")
        >>> round(pgm.infer(b.build()).marginal("s[0,0]")[1], 4)
        0.6225
        """
        self._join((units,), value, name, Kind.BIAS)

    def conditional(
        self,
        child: Member | Units,
        parents: Sequence[Member | Units],
        values: Values | None = None,
        name: str | None = None,
        *,
        rows: Mapping[Any, Any] | None = None,
        otherwise: Any = None,
        log: bool = False,
    ) -> None:
        """Add the conditional distribution p(child | parents) of a unit, or of many units.

        The members of the scope are variables, units of layers, or arrays of them. Arrays
        broadcast together as in numpy, and the conditional is used at each place.

        Parameters
        ----------
        child : the name of a variable, (layer, number of a unit), or a handle such as z[1:].
        parents : the parents in order, empty for a root.
        values : probabilities; the axes are the parents in order, then the child. Each row must
            sum to 1 up to 1e-6, and is normalised. All places share such a table, as one
            parameter; leading axes, which broadcast to the places, give them tables of their own.
            It may also be a function, which `build` calls with the states of the parents, and which
            returns the state of the child, or a row; or a noisy gate, such as
            `pgm.noisy_or([0.4, 0.8])`. `fit` learns a gate in its own numbers, and keeps rows equal
            for which a function returns the same, unless all are.
        name : the name of the parameter; conditionals of one name share it. None = the name is
            made from the scope, such as "x|z.table".
        rows : in place of values, the rows of a few joint states: (states of the parents) -> row. A
            row is a list of probabilities, a dictionary from states to probabilities, or the state
            that has probability one.
        otherwise : the row of all states of the parents that `rows` leaves out, which share it also
            when they are learned.
        log : whether the values are an array of log probabilities, which may be as small as
            -1e30; -inf is a probability of 0.

        States are given by their names, and by their numbers where they have no names.

        Raises
        ------
        PgmError if the parents are no sequence, and for values that are no numbers. `build` checks
        the rest.

        >>> import pgmengine as pgm
        >>> b = pgm.GraphBuilder()
        >>> z = b.variable("z", states=2, shape=4)
        >>> b.conditional(z[0], (), [0.5, 0.5])
        >>> b.conditional(z[1:], (z[:-1],), [[0.9, 0.1], [0.2, 0.8]], name="transition")
        >>> sorted(b.build().params)
        ['transition', 'z.bias', 'z[0]|.table']
        >>> b = pgm.GraphBuilder()
        >>> a, c, d = (b.variable(name, states=("no", "yes")) for name in ("a", "c", "d"))
        >>> b.conditional(a, (), [0.5, 0.5])
        >>> b.conditional(c, (a,), rows={"yes": [0.1, 0.9]}, otherwise="no")
        >>> b.conditional(d, (a, c), lambda a, c: "yes" if a == c else "no")
        >>> round(float(pgm.infer(b.build()).marginal("d")["yes"]), 6)
        0.95
        """
        check_scope(parents, self, f"the parents of {in_words(child)}")
        check_scope((child,), self, "the child")
        what = f"conditional of {in_words(child)}"
        if rows is not None and log:
            raise PgmError(f"{what}: log=True takes an array of values, not rows=")
        table = (
            values_of(values, what, log) if rows is None else rows_of(rows, otherwise, values, what)
        )
        if rows is None and otherwise is not None:
            raise PgmError(f"{what}: otherwise= needs rows=, the rows of some joint states")
        own = check_parameter(name)
        self.declared.append(
            Declared((*parents, child), table, Kind.CONDITIONAL, name=own, log=log)
        )

    def table(
        self,
        scope: Sequence[Member | Units],
        values: Values,
        name: str | None = None,
        *,
        log: bool = False,
    ) -> None:
        """Add a potential: the density is multiplied by the entry at the states of the scope.

        Parameters
        ----------
        scope : variables, (layer, number of a unit), or handles such as s[1:], one for each axis.
            Handles broadcast together as in numpy, and the potential is used at each place.
        values : the entries, axes in the order of the scope; 0 means impossible. All places share
            such a table; leading axes, which broadcast to the places, give them their own. It may
            also be a function, which `build` calls with the states of the scope, and which returns
            an entry, or True or False for 1 or 0.
        name : the name of the parameter; tables of one name share it. None = the name is made
            from the scope, such as "a,b.table".
        log : whether the values are logarithms of entries, such as negative costs, of any size up
            to 1e30; -inf means impossible. They become the parameter as they are, so that a cost
            of 10,000 is no entry of 0.

        Raises
        ------
        PgmError if the scope is no sequence, and for values that are no numbers. `build` checks
        the rest.

        >>> import numpy as np
        >>> import pgmengine as pgm
        >>> b = pgm.GraphBuilder()
        >>> s = b.variable("s", states=2, shape=(20, 20))
        >>> equal = np.exp(0.3 * np.array([[1, -1], [-1, 1]]))
        >>> b.table((s[1:], s[:-1]), equal, name="vertical")
        >>> b.table((s[:, 1:], s[:, :-1]), equal, name="horizontal")
        >>> pgm.infer(b.build(), want=("log_z",)).log_z.round(3)
        array([314.068])
        >>> b = pgm.GraphBuilder()
        >>> region = b.variable("region", states=("red", "green", "blue"), shape=2)
        >>> b.table((region[0], region[1]), lambda north, south: north != south)
        >>> pgm.infer(b.build(), {"region[0]": "red"}).marginal("region[1]")
        {'red': 0.0, 'green': 0.5, 'blue': 0.5}
        >>> b = pgm.GraphBuilder()
        >>> way = b.variable("way", states=("hill", "valley", "sea"))
        >>> b.table((way,), [-10_000.0, -10_001.0, -np.inf], log=True)
        >>> round(pgm.infer(b.build()).marginal("way")["hill"], 3)
        0.731
        """
        check_scope(scope, self, "the scope")
        table = values_of(values, f"table of ({', '.join(map(in_words, scope))})", log)
        own = check_parameter(name)
        self.declared.append(Declared(tuple(scope), table, Kind.TABLE, own, log))

    def tables(
        self, layers: Sequence[str], index: ArrayLike, values: ArrayLike, *, log: bool = False
    ) -> None:
        """Add many potentials of one shape, as `table` does, over units that are given by number.

        `table` with handles, such as (s[1:], s[:-1]), is the same for regular places. Each of these
        tables has entries of its own.

        Parameters
        ----------
        layers : the layer of each axis, m names. A variable stands for a layer of one unit.
        index : (n, m), a row for each table: the numbers of its units in these layers, 0 for a
            variable.
        values : (n, K_1, ..., K_m) entries >= 0, or (K_1, ..., K_m) for n equal tables.
        log : whether the values are logarithms of entries, as in `table`.
        """
        if not is_sequence(layers):
            raise PgmError(f"the layers must be a sequence such as ({layers!r},), not {layers!r}")
        check_log(log, f"tables of {layers!r}")
        table, which = as_floats(values, f"tables of {layers!r}"), as_floats(index, "tables: index")
        self.declared.append(Declared(tuple(layers), table, Kind.TABLE, log=log, index=which))

    @property
    def graph(self) -> nx.MultiDiGraph:
        """The declaration as a networkx graph: layers as nodes, couplings as edges by name."""
        return layer_graph(self.layers, self.couplings)

    @stoppable
    def build(self, rng: RngLike = None) -> Model:
        """Check the declaration and build the Model.

        Weights that are None are drawn, uniform in +-sqrt(6 / (in + out)).

        Raises
        ------
        PgmError for these faults of

        - names: unknown or duplicate ones;
        - couplings: directed cycles, and an undirected coupling of two unbounded layers;
        - parameters: wrong shapes, values that are not finite, negative weights of NoisyOr units,
          sparse weights with indices outside of their shape, and more numbers than fit into memory;
        - tables: wrong shapes, negative entries, and no possible state;
        - conditionals: rows that do not sum to one, and cycles.
        """
        bare, grouped = self.bare()
        placed = placed_terms(bare, self.declared)
        biases = (*self.given, *(None for _ in grouped))
        structure, params = assembled(bare, biases, self.weights, placed, seeded(rng))
        if structure.tables_and_gates:
            check_complete(structure)
        given = [*self.given, *self.weights, *(one.values for one in self.declared)]
        return Model(structure, params, fresh=all(value is None for value in given))

    def bare(self) -> tuple[Structure, list[Layer]]:
        """Return the layers without terms, and those among them that hold single variables."""
        check_names(self.variables, self.layers)
        self._check_causes()
        single = [v.name for v in self.variables if v.shape is None]
        named = [name for c in self.couplings for name in (c.a, c.b)]
        scopes = [one.scope for one in self.declared if one.kind not in KINDS_OF_TABLES]
        members = (m.name if isinstance(m, Units) else m for scope in scopes for m in scope)
        # Single variables in scopes of couplings get layers of their own.
        named += [m for m in members if isinstance(m, str) and m in single]
        taken: list[Hashable] = [layer.name for layer in self.layers]
        # The name of a layer that holds variables must differ from all labels of units.
        taken += [x for layer in self.layers for x in layer.labels or () if isinstance(x, str)]
        grouped = layers_of(self.variables, named, taken)
        check_layers([*self.layers, *grouped])
        layers = {layer.name: layer for layer in (*self.layers, *grouped)}
        bare = Structure(layers, tuple(self.couplings))
        bare = replace(bare, variables=tuple(bare.names.unique[name] for name in single))
        return bare, grouped

    def _join(self, scope: tuple[Any, ...], values: Any, name: str | None, kind: Kind) -> None:
        """Add a coupling, arrows or a bias: of two whole layers, or of units in places."""
        layers = {layer.name for layer in self.layers}
        if len(scope) == 2 and not any(_is_place(end, layers) for end in scope):
            a, b = scope
            if name is not None:
                raise PgmError(
                    f"the coupling of {a!r} and {b!r} has the name {name!r}: only weights that "
                    "places share have names; give handles in place of names of layers"
                )
            self.couplings.append(Coupling(a, b, directed=kind is Kind.ARROW))
            self.weights.append(values)
            return
        check_scope(scope, self, "the units")
        one = Declared(scope, None, kind, check_parameter(name))
        if is_sparse(values) and len(scope) == 2:
            raise PgmError(
                f"{one.what}: the weight is a sparse matrix, which joins two whole layers; give "
                "their names in place of handles"
            )
        numbers = None if values is None else as_floats(values, one.what)
        self.declared.append(replace(one, values=numbers))

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

        Nodes become units of layers, and the names of the nodes become the labels of the units. The
        layers are c0, c1, ... by colour class of an nx.Graph, and g0, g1, ... by topological
        generation of an nx.DiGraph. If a node has the name of a layer, a number is added to that of
        the layer, as in c0_1. Strings with tables and without weights become variables.

        Attributes of other programs, such as "pos" and "club", are left alone. PgmError for the
        ones above where they have no meaning, and for names that are a slip away from them, such as
        "wieght".

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


def assembled(
    bare: Structure,
    biases: Sequence[ArrayLike | None],
    weights: Sequence[Weight | None],
    placed: Sequence[Placed],
    rng: np.random.Generator,
) -> tuple[Structure, dict[str, Weight]]:
    """Return a structure of layers and couplings with terms, and all parameters; PgmError if bad.

    `biases` are those of the layers in order, `weights` those of the couplings; None = the first
    value, which is drawn for weights.
    """
    structure = with_terms(bare, [p.term for p in placed], [p.what for p in placed])
    check_room(bare, weights)
    params: dict[str, Weight] = {}
    for layer, bias in zip(structure.layers.values(), biases, strict=True):
        params[f"{layer.name}.bias"] = check_bias(layer, bias)
    for coupling, weight in zip(structure.weighted, weights, strict=True):
        if weight is None:
            weight = draw_weight(structure, coupling, rng)
        params[f"{coupling.key}.weight"] = check_weight(structure, coupling, weight)
    params |= values_of_terms(structure, placed, rng)
    if structure.tables_and_gates:
        check_conditionals(structure, params)
    return structure, params


def _declared(network: Network) -> GraphBuilder:
    """Return a builder with the variables and tables of a network."""
    b = GraphBuilder()
    network.declare(cast(Declares, b))
    return b


def _is_place(end: object, layers: Container[object]) -> bool:
    """Whether an end of a coupling is units in places, and not a whole layer."""
    written = isinstance(end, str) and "[" in end[1:] and end[-1] == "]" and end not in layers
    return written or isinstance(end, (Units, tuple))


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
