"""Structures and models in the layout of the compiled sweeps of single units (tabled.h).

The units, tables and kinds of units are packed once for a structure, the parameters once for a
model: float32, with all couplings of a kind as one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.types import Array, Weight
from pgmengine.base.work.cache import remembered
from pgmengine.engine.single_site.conditional_tables import Children, joined
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure
from pgmengine.model.tables import TableIndex
from pgmengine.model.weights import is_sparse
from pgmengine.units import Unit
from pgmengine.units.base import Draw

if TYPE_CHECKING:
    import scipy.sparse as sp

# The fields of pgm_site and pgm_slot (cython_ext/c/routines.h).
SITE_FIELDS = (
    *("states", "width", "support", "slot", "slots", "component", "value", "soft"),
    *("rank", "linear", "based", "moves", "summed", "directed", "complement"),
)
# Bits of the fields linear and directed.
SWEEPS, DENSITIES = 1, 2
SLOT_FIELDS = ("first", "stride", "configs", "member", "members", "child", "leads")
SITE, SLOT = (
    np.dtype([(name, np.int64) for name in fields]) for fields in (SITE_FIELDS, SLOT_FIELDS)
)


@dataclass(frozen=True, eq=False)
class PackedGraph:
    """The units, tables and kinds of units of a structure.

    Attributes
    ----------
    sites : (units,) of dtype SITE; the fields soft, rank, moves and summed belong to a target, and
        slot, slots, linear and directed to a model.
    kinds : position of the support of a kind of unit -> its unit type.
    support, log_base : values of the states of each kind of unit, and log h.
    first_value : layer -> row of its first component in the values, for coupled layers and parents.
    values : the number of these rows.
    first_component : layer -> its first component among those of all layers.
    """

    sites: Array
    kinds: dict[int, Unit]
    support: Array
    log_base: Array
    first_value: dict[str, int]
    values: int
    first_component: dict[str, int]


@remembered
def packed_graph(s: Structure) -> PackedGraph:
    """Return the packed graph of a structure, which all its models share."""
    layers = list(s.layers.values())
    sizes = np.array([layer.size for layer in layers])
    supports, bases = [], []
    # Kind of unit -> states, width, position of its support, whether log h differs from 0.
    kinds: dict[Any, tuple[int, int, int, bool]] = {}
    place = 0
    for layer in layers:
        if layer.unit not in kinds:
            support, base = layer.unit.support, layer.unit.log_base
            assert support is not None and base is not None
            kinds[layer.unit] = len(base), layer.unit.width, place, bool(np.any(base))
            supports.append(support if layer.unit.width == 1 else np.arange(len(base)))
            bases.append(base)
            place += len(base)
    of_layer = np.array([kinds[layer.unit] for layer in layers], dtype=np.int64)
    sites = np.zeros(int(sizes.sum()), dtype=SITE)
    for column, name in enumerate(("states", "width", "support", "based")):
        sites[name] = np.repeat(of_layer[:, column], sizes)
    sites["component"] = np.cumsum(sites["width"]) - sites["width"]
    first_value, values = {}, 0
    sites["value"] = -1
    for layer in layers:
        name, here = layer.name, slice(s.first_unit[layer.name], None)
        sites["complement"][here][: layer.size] = layer.unit.draw is Draw.COMPLEMENT
        if name in s.undirected_layers or s.arrows_from[name]:
            first_value[name] = values
            own = values + layer.unit.width * np.arange(layer.size)
            sites["value"][here][: layer.size] = own
            values += layer.width
    for name in s.directed_layers:
        sites["directed"][s.first_unit[name] :][: s.layers[name].size] = 1
    return PackedGraph(
        sites,
        {place: unit for unit, (_, _, place, _) in kinds.items()},
        np.concatenate(supports).astype(np.float32),
        np.concatenate(bases).astype(np.float32),
        first_value,
        values,
        dict(zip(s.layers, _starts([layer.width for layer in layers]), strict=True)),
    )


def _pack_tables(index: TableIndex, counted: int) -> tuple[Array, Array]:
    """Return slots and members of all tables; log densities read only the first `counted`."""
    order, _ = index.axes_of
    table = index.table[order]
    arity = np.diff(index.start)[table]
    slots = np.zeros(len(order), dtype=SLOT)
    slots["first"], slots["stride"] = index.first[table], index.stride[order]
    slots["configs"] = index.size[table] // index.states[order]
    slots["members"], slots["member"] = arity - 1, np.cumsum(arity - 1) - (arity - 1)
    slots["child"], slots["leads"] = index.child[table], order == index.start[table]
    slots["leads"] &= table < counted
    # List all axes of the table of each slot, and then leave out the axis of the slot itself.
    owner = np.repeat(np.arange(len(order)), arity)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(arity) - arity, arity)
    axis = index.start[table][owner] + within
    axis = axis[axis != order[owner]]
    members = np.stack((index.unit[axis], index.stride[axis]), axis=1).astype(np.int32)
    return slots, members


def _starts(sizes: list[int]) -> list[int]:
    """Return the start of each of several consecutive runs."""
    return [0, *map(int, np.cumsum(sizes)[:-1])]


@dataclass(frozen=True, eq=False)
class PackedParameters:
    """The parameters of a model: float32, with all couplings of a kind as one matrix.

    Attributes
    ----------
    counts : (units,) the number of tables of each unit.
    slots : (n,) of dtype SLOT, the axes of all tables in the order of their units.
    members : (p, 2) unit and stride of the other axes of the table of each slot.
    terms : logarithms of the entries of all tables.
    bias : (components,).
    links, arrows : undirected couplings, and weights from parents, csr (components, values).
    children : the children of each unit whose conditionals are no tables, csr (units, units).
    linear : (units,) bits SWEEPS and DENSITIES: a unit has a bias, a coupling or parents.
    directed : (units,) the same bits: its directed input is summed up.
    """

    counts: Array
    slots: Array
    members: Array
    terms: Array
    bias: Array
    links: sp.csr_array
    arrows: sp.csr_array
    children: sp.csr_array
    linear: Array
    directed: Array


def pack_parameters(model: Parameters, graph: PackedGraph) -> PackedParameters:
    """Return the packed parameters of a model."""
    s = model.structure
    bias = np.concatenate([model.bias(name) for name in s.layers]).astype(np.float32)
    undirected = [
        (source, to, block) for to, blocks in model.neighbours.items() for source, block in blocks
    ]
    links = _joined(graph, undirected, len(bias))
    arrows = _joined(graph, [(c.a, c.b, model.weight(c)) for c in s.arrows], len(bias))
    index, terms, sites = s.table_index, model.table_terms, graph.sites
    declared, listed, children = (
        len(index.child),
        np.zeros(len(sites), bool),
        _children(graph, arrows),
    )
    if s.directed_layers:
        of_children, entries = _listed(graph, bias, arrows, children)
        index, terms = joined(index, of_children), np.concatenate([terms, entries])
        listed[of_children.child] = True
        children.data[listed[children.indices]] = 0
        children.eliminate_zeros()
    slots, members = _pack_tables(index, declared)
    directed = sites["directed"] * (DENSITIES | SWEEPS * ~listed)
    # The bias of a child belongs to its directed input.
    owner = np.repeat(sites["directed"] > 0, sites["width"])
    has = ((bias != 0) & ~owner) | (np.diff(links.indptr) > 0)
    own = np.logical_or.reduceat(has, sites["component"])
    return PackedParameters(
        np.bincount(index.unit, minlength=len(sites)),
        slots,
        members,
        terms.astype(np.float32),
        bias,
        links,
        arrows,
        children,
        own * (SWEEPS | DENSITIES) | directed,
        directed,
    )


def _listed(
    graph: PackedGraph, bias: Array, arrows: sp.csr_array, children: sp.csr_array
) -> tuple[TableIndex, Array]:
    """Return the tables of children with few joint states of their parents, and their entries."""
    sites = graph.sites
    unit = np.flatnonzero(sites["directed"])
    own = Children(
        unit,
        children.T.tocsr()[unit],
        bias.astype(float),
        arrows,
        sites["component"],
        sites["value"],
        sites["support"],
        graph.kinds,
        sites["states"],
    )
    return own.listed()


def _joined(
    graph: PackedGraph, blocks: list[tuple[str, str, Weight]], components: int
) -> sp.csr_array:
    """Return weights (from, to, matrix) as one matrix (components, values), without zeros."""
    import scipy.sparse as sp

    rows, columns, entries = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
    for source, to, block in blocks:
        own = (block if is_sparse(block) else sp.coo_array(block)).tocoo()
        rows.append(own.col + graph.first_component[to])
        columns.append(own.row + graph.first_value[source])
        entries.append(own.data)
    data, at = np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))
    joined = sp.csr_array((data.astype(np.float32), at), shape=(components, max(graph.values, 1)))
    joined.sort_indices()
    return joined


def _children(graph: PackedGraph, arrows: sp.csr_array) -> sp.csr_array:
    """Return the children of each unit as a matrix (units, units)."""
    import scipy.sparse as sp

    sites, units = graph.sites, len(graph.sites)
    owner = np.repeat(np.arange(units), sites["width"])
    coupled = sites["value"] >= 0
    holder = np.repeat(np.arange(units)[coupled], sites["width"][coupled])
    entries = arrows.tocoo()
    at = (holder[entries.col], owner[entries.row])
    found = sp.csr_array((np.ones(len(entries.data), np.int8), at), shape=(units, units))
    found.sort_indices()
    return found


@remembered
def packed_parameters(model: Parameters) -> PackedParameters:
    """Return the packed parameters of a model, which all chains on it share."""
    return pack_parameters(model, packed_graph(model.structure))
