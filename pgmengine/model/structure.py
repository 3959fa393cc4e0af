"""Structure: the layers, couplings and terms of a model without their parameters."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.types import Array, Params
from pgmengine.base.work.cache import Cache
from pgmengine.model.couplings import Coupling
from pgmengine.model.graph.parent_order import (
    Step,
    conditional_generations,
    drawing_steps,
    parents_first,
)
from pgmengine.model.layer import Layer
from pgmengine.model.names.origin import Origin
from pgmengine.model.names.unit_names import Names
from pgmengine.model.tables import TableIndex, index_tables
from pgmengine.model.terms.expansion import Expansion
from pgmengine.model.terms.term import Kind, Term, of_whole_layers

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, eq=False)
class Structure:
    """Layers in the order of their declaration, couplings and terms; shared during learning.

    `terms` are the tables, and the couplings, arrows and biases of places. `couplings` has one
    coupling for each pair of layers that terms join, and `without_weight` the keys of those that
    have no weight of their own.
    `compact` are the gates, by `Term.store`, whose conditional is too large for a table.
    `variables` are the places (layer, unit) of the units that were declared as variables, in order.
    `auxiliary` are the layers of auxiliary variables of gates (forms/unfolding.py).
    `findings` is the name of the layer of virtual findings (findings.py), "" if there are none.
    `origin` says which data the model was declared from, None if from none.
    """

    layers: dict[str, Layer]
    couplings: tuple[Coupling, ...]
    terms: tuple[Term, ...] = ()
    variables: tuple[tuple[str, int], ...] = ()
    auxiliary: frozenset[str] = frozenset()
    findings: str = ""
    without_weight: frozenset[str] = frozenset()
    compact: frozenset[tuple[str, int]] = frozenset()
    origin: Origin | None = None
    # Covers and belief nets of evidence patterns. They depend on the graph, the pattern and the
    # positions of zero weights. All models of a structure share them, also during learning.
    memo: Cache[Any] = field(default_factory=lambda: Cache(most=1000), init=False, repr=False)

    @cached_property
    def left_out(self) -> frozenset[Hashable]:
        """The columns of data, besides the variables, that readers of whole frames leave out."""
        return frozenset(self.origin.left_out if self.origin else ())

    @cached_property
    def undirected(self) -> tuple[Coupling, ...]:
        """The undirected couplings."""
        return tuple([c for c in self.couplings if not c.directed])

    @cached_property
    def arrows(self) -> tuple[Coupling, ...]:
        """The directed couplings."""
        return tuple([c for c in self.couplings if c.directed])

    @cached_property
    def weighted(self) -> tuple[Coupling, ...]:
        """The couplings with a weight of their own, params[key + ".weight"]."""
        return tuple([c for c in self.couplings if c.key not in self.without_weight])

    @cached_property
    def shared(self) -> tuple[Term, ...]:
        """The couplings, arrows and biases of places."""
        return tuple([t for t in self.terms if not t.is_table])

    @cached_property
    def tables(self) -> tuple[Term, ...]:
        """The tables, also of gates that are small enough."""
        return tuple([t for t in self.tables_and_gates if t.store not in self.compact])

    @cached_property
    def gates(self) -> tuple[Term, ...]:
        """The whole conditionals with causal independence, whose form are `Steps`."""
        return tuple([t for t in self.tables_and_gates if t.is_gate])

    @cached_property
    def parameters(self) -> dict[str, Term]:
        """Name of each parameter -> the first term that has it, in order.

        Biases and weights of whole layers come first.
        """
        whole = [of_whole_layers(f"{name}.bias", Kind.BIAS, name) for name in self.layers]
        for c in self.weighted:
            kind = Kind.ARROW if c.directed else Kind.COUPLING
            whole.append(of_whole_layers(f"{c.key}.weight", kind, c.a, c.b))
        return first_of([*whole, *self.terms])

    @cached_property
    def shared_counts(self) -> dict[str, float]:
        """Parameter of such terms -> the mean number of places in which each weight is used."""
        counts: dict[str, float] = dict.fromkeys(first_of(self.shared), 0.0)
        for term in self.shared:
            counts[term.key] += len(term.index) / max(math.prod(term.lead), 1)
        return counts

    @cached_property
    def weight_names(self) -> frozenset[str]:
        """The names of all parameters that are weights of couplings."""
        found = self.parameters.items()
        return frozenset(key for key, t in found if not (t.is_bias or t.is_table))

    @cached_property
    def expansion(self) -> Expansion:
        """The terms as they act on the weights and biases of whole layers."""
        return Expansion(self.layers, self.couplings, self.shared)

    def expanded(self, params: Params) -> Params:
        """Return parameters with all biases and weights of whole layers, shared terms included."""
        return self.expansion.expanded(params) if self.shared else params

    @cached_property
    def units(self) -> int:
        """The number of units of all layers."""
        return sum([layer.size for layer in self.layers.values()])

    @cached_property
    def width(self) -> int:
        """The number of components of the values of all units."""
        return sum([layer.width for layer in self.layers.values()])

    @cached_property
    def first_unit(self) -> dict[str, int]:
        """Layer -> the number of its first unit among the units of all layers."""
        ends = np.cumsum([0, *(layer.size for layer in self.layers.values())])
        return dict(zip(self.layers, map(int, ends), strict=False))

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Layer -> its units among the units of all layers."""
        begin = self.first_unit
        return {name: slice(begin[name], begin[name] + x.size) for name, x in self.layers.items()}

    @cached_property
    def state_counts(self) -> dict[str, int]:
        """Layer -> the number of states of its units, 0 if there are infinitely many."""
        return {name: layer.state_count for name, layer in self.layers.items()}

    @cached_property
    def with_base(self) -> frozenset[str]:
        """Layers whose units have a base measure other than 1 for some value."""
        units = {name: layer.unit for name, layer in self.layers.items()}
        flat = {
            name
            for name, unit in units.items()
            if unit.support is not None
            and ((h := unit.log_base) is None or not np.count_nonzero(h))
        }
        return frozenset(self.layers) - flat

    @cached_property
    def table_groups(self) -> dict[str, Term]:
        """Parameter of tables and gates -> the first term that has it, in order.

        Parts of a gate have its parameter together.
        """
        return first_of(self.tables_and_gates)

    @cached_property
    def stored_tables(self) -> dict[tuple[str, int], Term]:
        """`Term.store` -> the first term with these entries, in order."""
        groups: dict[tuple[str, int], Term] = {}
        for tables in self.tables:
            groups.setdefault(tables.store, tables)
        return groups

    @cached_property
    def table_places(self) -> dict[tuple[str, int], slice]:
        """`Term.store` -> their entries among all entries that are stored."""
        sizes = [math.prod(tables.shape(self.layers)) for tables in self.stored_tables.values()]
        ends = list(accumulate(sizes, initial=0))
        return {store: slice(*ends[i : i + 2]) for i, store in enumerate(self.stored_tables)}

    @cached_property
    def stored_entries(self) -> int:
        """The number of entries of all tables that are stored."""
        return max((places.stop for places in self.table_places.values()), default=0)

    @cached_property
    def table_index(self) -> TableIndex:
        """All tables as arrays."""
        return index_tables(self)

    @cached_property
    def child_tables(self) -> dict[str, Array]:
        """Layer -> (size,) number of the conditional of each unit among all tables, or -1."""
        found = np.full(self.units, -1)
        child = self.table_index.child
        found[child[child >= 0]] = np.flatnonzero(child >= 0)
        return {name: found[own] for name, own in self.slices.items()}

    @cached_property
    def has_bias(self) -> dict[str, Array]:
        """Layer -> (size,) bool: the units with a bias.

        Units with a conditional have none, nor have arrays of variables, Input units, and children
        of arrows with a row for each state of the parent: such rows are the whole input.
        """
        found = {
            n: ~self.conditioned[n] & (not (x.is_array or x.unit.observed_only))
            for n, x in self.layers.items()
        }
        for t in self.shared:
            # The bias of a noisy-or unit is its leak, without which its likelihood has a pole.
            if t.has_all_rows(self.layers) and not self.layers[t.layers[1]].unit.nonnegative:
                found[t.layers[1]][t.index[:, 1]] = False
        return found

    @cached_property
    def compact_gates(self) -> tuple[Term, ...]:
        """The gates whose conditional is too large for a table."""
        return tuple([t for t in self.tables_and_gates if t.store in self.compact])

    @cached_property
    def tables_and_gates(self) -> tuple[Term, ...]:
        """The tables, and the gates without a table."""
        return tuple([t for t in self.terms if t.is_table])

    @cached_property
    def conditioned(self) -> dict[str, Array]:
        """Layer -> (size,) bool: the units with a conditional, by a table or a gate."""
        found = {name: tables >= 0 for name, tables in self.child_tables.items()}
        for one in self.compact_gates:
            found[one.layers[-1]][one.index[:, -1]] = True
        return found

    @cached_property
    def conditional_generations(self) -> tuple[dict[str, Array], ...]:
        """Units with a conditional, parents first: layer -> units of each generation.

        The parents of a unit that have a conditional are in earlier generations.
        """
        return conditional_generations(self)

    @cached_property
    def drawing_steps(self) -> tuple[Step, ...]:
        """Directed layers, and units with a conditional, in an order that draws parents first."""
        return drawing_steps(self)

    @cached_property
    def tabled(self) -> dict[str, Array]:
        """Layer -> (size,) bool: the units in the scope of a table."""
        inside = np.zeros(self.units, dtype=bool)
        inside[self.table_index.unit] = True
        return {name: inside[own] for name, own in self.slices.items()}

    @cached_property
    def names(self) -> Names:
        """The names of layers, variables and units."""
        return Names(self.layers, self.variables)

    @cached_property
    def by_state(self) -> frozenset[str]:
        """Layers whose units are shown by the probabilities of their states, not by a mean.

        They are variables, and units whose states have names. The mean of a unit with two states is
        the probability of the second one, which no name would tell.
        """
        variables = {name for name, _ in self.variables}
        variables |= {name for name, layer in self.layers.items() if layer.is_array}
        named = (n for n, x in self.layers.items() if n in variables or x.state_names is not None)
        return frozenset(name for name in named if self.state_counts[name])

    @cached_property
    def meetings(self) -> dict[str, tuple[tuple[Coupling, str], ...]]:
        """Layer -> (coupling, layer at the other end) of its undirected couplings."""
        return {
            name: tuple(
                (c, c.a if name == c.b else c.b) for c in self.undirected if name in (c.a, c.b)
            )
            for name in self.layers
        }

    @cached_property
    def arrows_into(self) -> dict[str, tuple[Coupling, ...]]:
        """Layer -> arrows into it."""
        return {name: tuple(c for c in self.arrows if c.b == name) for name in self.layers}

    @cached_property
    def arrows_from(self) -> dict[str, tuple[Coupling, ...]]:
        """Layer -> arrows out of it."""
        return {name: tuple(c for c in self.arrows if c.a == name) for name in self.layers}

    @cached_property
    def undirected_layers(self) -> frozenset[str]:
        """Layers with at least one undirected coupling."""
        return frozenset(name for c in self.undirected for name in (c.a, c.b))

    @cached_property
    def directed_layers(self) -> tuple[str, ...]:
        """Layers with a normalised conditional, parents first.

        They are layers with directed parents, and roots: layers with directed children and without
        undirected couplings or conditional tables.
        """
        if not self.arrows:
            return ()
        chosen = {
            name
            for name in self.layers
            if self.arrows_into[name]
            or (
                self.arrows_from[name]
                and name not in self.undirected_layers
                and (self.child_tables[name] < 0).all()
            )
        }
        arrows = [(c.a, c.b) for c in self.arrows if c.a != c.b]
        return tuple(n for n in parents_first([*self.layers], arrows) if n in chosen)

    @cached_property
    def undirected_first(self) -> tuple[str, ...]:
        """All layers: first layers without a normalised conditional, then others, parents first."""
        return (
            tuple(name for name in self.layers if name not in self.directed_layers)
            + self.directed_layers
        )

    @cached_property
    def children_first(self) -> tuple[str, ...]:
        """All layers, children before their parents."""
        return parents_first([*self.layers], [(c.b, c.a) for c in self.arrows if c.a != c.b])

    @cached_property
    def no_evidence(self) -> dict[str, tuple[Array, Array]]:
        """Layer -> values (1, width) and mask (1, size), read only, of a row without evidence."""
        out = {
            name: (np.zeros((1, x.width)), np.zeros((1, x.size), dtype=bool))
            for name, x in self.layers.items()
        }
        for value, mask in out.values():
            value.setflags(write=False)
            mask.setflags(write=False)
        return out

    @cached_property
    def normalized(self) -> bool:
        """Whether the joint density sums to one.

        It does if all couplings are directed, all tables are conditionals, and every unit has a
        conditional.
        """
        directed = set(self.directed_layers)
        return (
            not self.undirected
            and all(t.conditional for t in self.tables)
            and all(n in directed or self.conditioned[n].all() for n in self.layers)
        )


def first_of(terms: Iterable[Term]) -> dict[str, Term]:
    """Return parameter -> the first of some terms that has it, in order."""
    groups: dict[str, Term] = {}
    for term in terms:
        groups.setdefault(term.key, term)
    return groups


def layer_graph(layers: Iterable[Layer], couplings: Iterable[Coupling]) -> nx.MultiDiGraph:
    """Return layers as nodes with unit and size, and couplings as edges by name with directed."""
    import networkx as nx

    graph: nx.MultiDiGraph = nx.MultiDiGraph()
    for layer in layers:
        graph.add_node(layer.name, unit=layer.unit, size=layer.size)
    for c in couplings:
        graph.add_edge(c.a, c.b, key=c.key, directed=c.directed)
    return graph
