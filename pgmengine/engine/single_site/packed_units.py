"""Structures and models in the layout of the compiled sweeps of single units (tabled.h).

The units, tables and kinds of units are packed once for a structure, the parameters once for a
model: float32, with all couplings of a kind as one matrix. Units, weights and parents come from the
graph of units (model/graph/unit_graph.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.types import Array
from pgmengine.base.work.cache import remembered
from pgmengine.engine.single_site.conditional_tables import Children, joined
from pgmengine.model.graph.unit_graph import JoinedWeights, Rows, unit_graph, units_of
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure
from pgmengine.model.tables import TableIndex
from pgmengine.units import Unit
from pgmengine.units.unit import Draw

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
    place : (components,) row of a component in the values; -1 in layers that are neither coupled
        nor parents.
    values : the number of these rows.
    """

    sites: Array
    kinds: dict[int, Unit]
    support: Array
    log_base: Array
    place: Array
    values: int


@remembered
def packed_graph(s: Structure) -> PackedGraph:
    """Return the packed graph of a structure, which all its models share."""
    units, sites = units_of(s), np.zeros(s.units, dtype=SITE)
    sites["states"], sites["width"] = units.states, units.width
    sites["component"] = units.component
    sizes = [layer.size for layer in s.layers.values()]
    supports, bases, of_layer, end = [], [], [], 0
    # Kind of unit -> position of its support, whether log h differs from 0, whether it is drawn by
    # the complement.
    kinds: dict[Unit, tuple[int, bool, bool]] = {}
    for name, layer in s.layers.items():
        unit = layer.unit
        if unit not in kinds:
            support, base = unit.support, unit.log_base
            assert support is not None and base is not None
            kinds[unit] = end, bool(np.any(base)), unit.draw is Draw.COMPLEMENT
            supports.append(support if unit.width == 1 else np.arange(len(base)))
            bases.append(base)
            end += len(base)
        coupled = name in s.undirected_layers or len(s.arrows_from[name]) > 0
        of_layer.append((*kinds[unit], name in s.directed_layers, coupled))
    *fields, coupled_units = np.repeat(np.array(of_layer, dtype=np.int64), sizes, axis=0).T
    for field, values in zip(("support", "based", "complement", "directed"), fields, strict=True):
        sites[field] = values
    holds = coupled_units[units.owner] > 0
    place = np.where(holds, np.cumsum(holds) - 1, -1)
    sites["value"] = place[units.component]
    return PackedGraph(
        sites,
        {place: unit for unit, (place, _, _) in kinds.items()},
        np.concatenate(supports).astype(np.float32),
        np.concatenate(bases).astype(np.float32),
        place,
        int(holds.sum()),
    )


def _pack_tables(index: TableIndex, counted: int) -> tuple[Array, Array]:
    """Return slots and members of all tables; log densities read only the first `counted`."""
    order, _ = index.axes_of
    table = index.table[order]
    arity = np.diff(index.start)[table]
    slots = np.zeros(len(order), dtype=SLOT)
    slots["first"], slots["stride"] = index.first[table], index.stride[order]
    slots["configs"] = index.axis_entries[order] // index.states[order]
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
    children : the children of each unit whose conditionals are no tables.
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
    children: Rows
    linear: Array
    directed: Array


def pack_parameters(model: Parameters, graph: PackedGraph) -> PackedParameters:
    """Return the packed parameters of a model."""
    s, sites = model.structure, graph.sites
    bias = np.concatenate([model.bias(name) for name in s.layers]).astype(np.float32)
    units = unit_graph(model)
    links, arrows = _packed(graph, units.links), _packed(graph, units.arrows)
    index, terms = s.table_index, model.table_terms
    declared, listed = len(index.child), np.zeros(len(sites), bool)
    if s.directed_layers:
        of_children, entries = Children(sites, graph.kinds, units.parents, bias, arrows).listed()
        index, terms = joined(index, of_children), np.concatenate([terms, entries])
        listed[of_children.child] = True
    child = units.parents.rows
    summed = ~listed[child]
    children = Rows.of_pairs(units.parents.columns[summed], child[summed], len(sites))
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


def _packed(graph: PackedGraph, weights: JoinedWeights) -> sp.csr_array:
    """Return weights as one matrix (components, values)."""
    import scipy.sparse as sp

    at, shape = (weights.to, graph.place[weights.source]), (len(graph.place), max(graph.values, 1))
    packed = sp.csr_array((weights.weight.astype(np.float32), at), shape=shape)
    packed.sort_indices()
    return packed


@remembered
def packed_parameters(model: Parameters) -> PackedParameters:
    """Return the packed parameters of a model, which all chains on it share."""
    return pack_parameters(model, packed_graph(model.structure))
