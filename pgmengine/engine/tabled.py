"""Compiled sweeps of models with tables: chains are lanes, one unit moves at a time (tabled.h).

A unit is visited in all chains at once, so that its neighbours may be anywhere in the graph: no
colouring, and no inputs that are kept between visits. The graph is packed once for a structure, the
parameters once for a model. Every array has a row for each unit (or component) and a column for
each chain; a few chains are kept one after the other instead. Plain.py is the reference
implementation.

The engine also sweeps models without tables that have many small couplings (many_small).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from pgmengine import _kernels
from pgmengine.base.threads import parts
from pgmengine.base.types import Array, States, Weight
from pgmengine.engine.compiled import share_of
from pgmengine.engine.packed import padded, zeros
from pgmengine.graph.model import Model
from pgmengine.graph.queries import summed_layers
from pgmengine.graph.rows import distinct
from pgmengine.graph.structure import Structure
from pgmengine.graph.target import Target, times
from pgmengine.graph.weights import count, is_sparse
from pgmengine.protocols import Kernel
from pgmengine.units.base import Draw

if TYPE_CHECKING:
    import scipy.sparse as sp

# Chains up to which one after the other is faster than all of them as lanes.
FEW_CHAINS = 2

# Layers and couplings of a network of single variables at least, and entries of a unit at most.
MANY_COUPLINGS = 64
FEW_ENTRIES = 16

# Unit updates: of a thread, and between two looks at Ctrl-C.
WORTH_A_THREAD = 20_000
AT_ONCE = 10_000_000

# The fields of pgm_site and pgm_slot (cython_ext/c/routines.h).
SITE_FIELDS = (
    *("states", "width", "support", "slot", "slots", "component", "value", "soft"),
    *("rank", "linear", "based", "moves", "summed", "directed", "complement"),
)
SLOT_FIELDS = ("first", "stride", "configs", "member", "members", "child", "leads")
SITE, SLOT = (
    np.dtype([(name, np.int64) for name in fields]) for fields in (SITE_FIELDS, SLOT_FIELDS)
)


def knows(target: Target, kernel: Kernel) -> bool:
    """Whether this engine can sweep, and is the one to take: a blend of Gibbs and FlipState.

    An inherited `flip_share` does not count, because the subclass may have another transition.
    """
    return (
        "flip_share" in vars(type(kernel))
        and target.pattern.in_lanes
        and (bool(target.structure.tables) or many_small(target.model))
    )


def many_small(model: Model) -> bool:
    """Whether a model has many couplings with few weights, as networks of single variables have.

    Sweeps of layers search through all couplings at each unit; sweeps of single units sum up the
    inputs of the unit and of its children at each visit.
    """
    s = model.structure
    if len(s.layers) + len(s.couplings) < MANY_COUPLINGS:
        return False
    if s not in _entries:
        _entries[s] = sum(count(model.weight(c)) for c in s.couplings)
    return _entries[s] <= FEW_ENTRIES * sum(layer.size for layer in s.layers.values())


@dataclass(frozen=True, eq=False)
class PackedGraph:
    """The units, tables and kinds of units of a structure.

    Attributes
    ----------
    sites : (units,) of dtype SITE; soft, rank, linear, moves and summed are those of a target.
    slots : (n,) of dtype SLOT, the axes of all tables in the order of their units.
    members : (p, 2) unit and stride of the other axes of the table of each slot.
    support, log_base : values of the states of each kind of unit, and log h.
    first_value : layer -> row of its first component in the values; coupled layers and parents.
    values : the number of these rows.
    first_component : layer -> its first component among those of all layers.
    """

    sites: Array
    slots: Array
    members: Array
    support: Array
    log_base: Array
    first_value: dict[str, int]
    values: int
    first_component: dict[str, int]


def pack_graph(s: Structure) -> PackedGraph:
    """Return the packed graph of a structure."""
    layers = list(s.layers.values())
    sizes = np.array([layer.size for layer in layers])
    supports, bases = [], []
    # Kind of unit -> states, width, place of its support, whether log h differs from 0.
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
    slots, members = _pack_tables(s, sites)
    return PackedGraph(
        sites,
        slots,
        members,
        np.concatenate(supports).astype(np.float32),
        np.concatenate(bases).astype(np.float32),
        first_value,
        values,
        dict(zip(s.layers, _starts([layer.width for layer in layers]), strict=True)),
    )


def _pack_tables(s: Structure, sites: Array) -> tuple[Array, Array]:
    """Return slots and members of all tables, and fill in the slots of the units."""
    index = s.table_index
    order, first = index.axes_of
    counts = np.bincount(index.unit, minlength=len(sites))
    sites["slots"], sites["slot"] = counts, np.cumsum(counts) - counts
    table = index.table[order]
    arity = np.diff(index.start)[table]
    slots = np.zeros(len(order), dtype=SLOT)
    slots["first"], slots["stride"] = index.first[table], index.stride[order]
    slots["configs"] = np.diff(index.first)[table] // index.states[order]
    slots["members"], slots["member"] = arity - 1, np.cumsum(arity - 1) - (arity - 1)
    slots["child"], slots["leads"] = index.child[table], order == index.start[table]
    # Every axis of the table of a slot, and then without the slot's own.
    owner = np.repeat(np.arange(len(order)), arity)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(arity) - arity, arity)
    axis = index.start[table][owner] + within
    axis = axis[axis != order[owner]]
    members = np.stack((index.unit[axis], index.stride[axis]), axis=1).astype(np.int32)
    return slots, members


def _starts(sizes: list[int]) -> list[int]:
    """Return where each of some runs begins."""
    return [0, *map(int, np.cumsum(sizes)[:-1])]


@dataclass(frozen=True, eq=False)
class PackedParameters:
    """The parameters of a model: float32, with all couplings of a kind as one matrix.

    Attributes
    ----------
    terms : logarithms of the entries of all tables.
    bias : (components,).
    links, arrows : undirected couplings, and weights from parents, csr (components, values).
    children : the children of each unit, csr (units, units).
    linear : (units,) whether a unit has a bias, a coupling or parents.
    """

    terms: Array
    bias: Array
    links: sp.csr_array
    arrows: sp.csr_array
    children: sp.csr_array
    linear: Array


def pack_parameters(model: Model, graph: PackedGraph) -> PackedParameters:
    """Return the packed parameters of a model."""
    s = model.structure
    bias = np.concatenate([model.bias(name) for name in s.layers]).astype(np.float32)
    undirected = [
        (source, to, block) for to, blocks in model.neighbours.items() for source, block in blocks
    ]
    links = _joined(graph, undirected, len(bias))
    arrows = _joined(graph, [(c.a, c.b, model.weight(c)) for c in s.arrows], len(bias))
    has = (bias != 0) | (np.diff(links.indptr) > 0)
    linear = np.logical_or.reduceat(has, graph.sites["component"]) | (graph.sites["directed"] > 0)
    children = _children(graph, arrows)
    return PackedParameters(
        model.table_terms.astype(np.float32), bias, links, arrows, children, linear
    )


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


_graphs: WeakKeyDictionary[Structure, PackedGraph] = WeakKeyDictionary()
_parameters: WeakKeyDictionary[Model, PackedParameters] = WeakKeyDictionary()
# Entries of all weights.
_entries: WeakKeyDictionary[Structure, int] = WeakKeyDictionary()


def packed_graph(s: Structure) -> PackedGraph:
    """Return the packed graph of a structure, which all its models share."""
    found = _graphs.get(s)
    if found is None:
        found = _graphs[s] = pack_graph(s)
    return found


def packed_parameters(model: Model) -> PackedParameters:
    """Return the packed parameters of a model, which all chains on it share."""
    found = _parameters.get(model)
    if found is None:
        found = _parameters[model] = pack_parameters(model, packed_graph(model.structure))
    return found


class TabledChains:
    """Chains in compiled code, unit by unit; see chains.Chains.

    `beta` (chains,) float32 may be changed in place between sweeps. Each chain draws from the
    stream of its number: its states depend neither on the other chains nor on the number of
    threads.
    """

    def __init__(
        self,
        target: Target,
        kernel: Kernel,
        x: States,
        rng: np.random.Generator,
        streams: Array | None = None,
    ) -> None:
        s = target.structure
        self.target, self.x, self.made, self.kernel = target, x, 0, kernel
        self.graph, self.rows = packed_graph(s), target.rows
        self.alone = self.rows <= FEW_CHAINS
        self.lanes = self.rows if self.alone else padded(self.rows)
        self.moving = frozenset(target.pattern.moving)
        beta, stream = zeros((self.lanes,)), zeros((self.lanes,), np.uint32)
        beta[:] = 1.0
        self.beta = beta[: self.rows]
        self.beta[:] = target.beta
        stream[: self.rows] = np.arange(self.rows) if streams is None else streams
        self.state = self._array(len(self.graph.sites), np.uint8)
        self.value = self._array(max(self.graph.values, 1), np.float32)
        self.sites = self.graph.sites.copy()
        soft = self._soften()
        self._place(x)
        visit = self._order()
        self.units = len(visit)
        components = sum(layer.width for layer in s.layers.values())
        reference = zeros((components,)) if target.reference else None
        for name, given in target.reference.items():
            assert reference is not None
            at = self.graph.first_component[name]
            reference[at : at + len(given)] = given
        self.routine = _kernels.TabledSweeps(
            chains=self.rows,
            alone=self.alone,
            sites=self.sites.view(np.int64).reshape(-1, len(SITE_FIELDS)),
            slots=_some(self.graph.slots).view(np.int64).reshape(-1, len(SLOT_FIELDS)),
            members=_some(self.graph.members),
            visit=visit,
            support=self.graph.support,
            log_base=self.graph.log_base,
            beta=beta,
            stream=stream,
            state=self.state,
            value=self.value,
            soft=soft,
            free_units=self._mask(target.free, self._all_alike(target.free)),
            cut=self._mask(target.cut, not any(distinct(c).any() for c in target.cut.values())),
            reference=reference,
        )
        self._take_parameters(rng)

    def adopt(self, model: Model, kernel: Kernel, rng: np.random.Generator) -> None:
        """Go on from the present states with other parameters, kernel and random numbers."""
        self.target, self.kernel, self.made = self.target.with_model(model), kernel, 0
        self._take_parameters(rng)

    def _take_parameters(self, rng: np.random.Generator) -> None:
        """Pass the parameters of the model, the kernel and a new key to the routine."""
        p = packed_parameters(self.target.model)
        linear = p.linear | (self.sites["soft"] >= 0) | bool(self.target.reference)
        self.sites["linear"] = linear
        self.routine.parameters(
            _some(p.terms), p.bias, *_csr(p.links), *_csr(p.arrows), *_csr(p.children)[:2]
        )
        self.key = rng.integers(0, 2**32, size=4, dtype=np.uint32)
        self.routine.rekey(self.key, share_of(self.kernel))

    def place_at(self, x: States) -> None:
        """Go on from other states; observed units keep their values."""
        self._place(self.target.clamp({name: x[name] for name in self.moving}))

    def _place(self, x: States) -> None:
        """Write states and values of some layers."""
        s = self.target.structure
        for name, given in x.items():
            layer = s.layers[name]
            self._view(self.state, s.first_unit[name], layer.size)[:] = layer.states(given)
            if name in self.graph.first_value:
                self._view(self.value, self.graph.first_value[name], layer.width)[:] = given

    def sweep(self, count: int, backward: bool = False) -> None:
        """Make `count` sweeps."""
        self._pieces(count, backward=backward)

    def sweep_once(self, anew: Collection[str] = ()) -> None:
        """Make one sweep and keep nothing for the next one."""
        if not anew:
            self.sweep(1)
            return
        s, mask = self.target.structure, np.zeros(len(self.sites), dtype=np.uint8)
        for name in anew:
            mask[s.first_unit[name] :][: s.layers[name].size] = 1
        self._pieces(1, anew=mask)

    def trace(self, count: int) -> Array:
        """Make `count` sweeps; return the log density after each, (count, rows)."""
        out = np.empty((count, self.rows, 2))
        self._pieces(count, trace=out)
        return out[..., 0] + times(self.beta, out[..., 1])

    def anneal(self, betas: Array, joint: bool = False, backward: bool = False) -> Array:
        """Make one sweep at each of betas[1:]; return the importance log weights, (rows,)."""
        weight = np.zeros(self.rows)
        self._pieces(
            len(betas) - 1,
            betas=np.ascontiguousarray(betas, dtype=np.float64),
            log_weight=weight,
            joint=joint,
            backward=backward,
        )
        return weight

    def values(self, rows: Array | slice = slice(None), dtype: type = np.float64) -> States:
        """Return the current states, of some rows if an index is given."""
        return {
            name: self._now(name, rows, dtype)
            if name in self.moving
            else x[rows].astype(dtype, copy=False)
            for name, x in self.x.items()
        }

    def _now(self, name: str, rows: Array | slice, dtype: type) -> Array:
        """Return the values of a layer, (rows, width)."""
        s = self.target.structure
        layer = s.layers[name]
        state = self._view(self.state, s.first_unit[name], layer.size)[rows]
        assert layer.unit.support is not None
        values: Array = layer.unit.support.astype(dtype).take(state, axis=0)
        return values.reshape(len(state), layer.width)

    def log_density(self) -> Array:
        """Return the log density of the current states at their beta, (rows,)."""
        path, power = self.path()
        return path + times(self.beta, power)

    def path(self) -> tuple[Array, Array]:
        """Return (path, power), each (rows,), with log p_beta(x) = path + beta * power."""
        out = np.empty((self.rows, 2))
        self.routine.log_density(out, parts(self.rows * len(self.sites), WORTH_A_THREAD / 2))
        return out[:, 0], out[:, 1]

    def sweep_path(self) -> tuple[Array, Array]:
        """Make one sweep, and return the path after it."""
        self.sweep(1)
        return self.path()

    def keep(self) -> tuple[Array, Array]:
        """Return a copy of the chain states, for `restore`."""
        return self.state.copy(), self.value.copy()

    def restore(self, kept: tuple[Array, Array], rows: Array) -> None:
        """Put the rows of a mask (rows,) back to their kept states."""
        for array, old in zip((self.state, self.value), kept, strict=True):
            count = array.shape[1] if self.alone else array.shape[0]
            self._view(array, 0, count)[rows] = self._view(old, 0, count)[rows]

    def _pieces(
        self, count: int, trace: Array | None = None, betas: Array | None = None, **options: Any
    ) -> None:
        """Make sweeps, in calls between which Ctrl-C takes effect."""
        most, done = max(1, AT_ONCE // max(1, self.rows * self.units)), 0
        while done < count:
            some = min(count - done, most)
            self.routine.sweep(
                self.made,
                some,
                parts(some * self.rows * self.units, WORTH_A_THREAD / 2),
                trace=None if trace is None else trace[done : done + some],
                betas=None if betas is None else betas[done : done + some + 1],
                **options,
            )
            self.made += some
            done += some

    def _array(self, rows: int, dtype: type) -> Array:
        """Return zeros with a row for each unit or component, as the routine wants them."""
        return zeros((self.lanes, rows) if self.alone else (rows, self.lanes), dtype)

    def _view(self, array: Array, first: int, count: int) -> Array:
        """Return the part (chains, count) of an array from a row on."""
        if self.alone:
            return array[:, first : first + count]
        return array[first : first + count, : self.rows].T

    def _soften(self) -> Array:
        """Return the soft evidence of the layers that have any, and note its rows."""
        s, soft = self.target.structure, self.target.soft
        out = self._array(max(1, sum(s.layers[name].width for name in soft)), np.float32)
        self.sites["soft"], row = -1, 0
        for name, given in soft.items():
            layer = s.layers[name]
            own = row + layer.unit.width * np.arange(layer.size)
            self.sites["soft"][s.first_unit[name] :][: layer.size] = own
            self._view(out, row, layer.width)[:] = given
            row += layer.width
        return out

    def _order(self) -> Array:
        """Return the units that move, in the order of a sweep; note their ranks among all units."""
        target, s = self.target, self.target.structure
        names = [name for names in target.visited for name in names]
        order = np.concatenate(
            [s.first_unit[name] + np.arange(s.layers[name].size) for name in names]
        )
        self.sites["rank"][order] = np.arange(len(order))
        moves = np.concatenate([distinct(target.free[name]).any(axis=0) for name in s.layers])
        self.sites["moves"] = moves
        for bit, backward in ((1, False), (2, True)):
            for name in summed_layers(target, backward):
                self.sites["summed"][s.first_unit[name] :][: s.layers[name].size] |= bit
        visited: Array = order[(moves & (self.sites["states"] > 1))[order]]
        return visited.astype(np.int32)

    def _all_alike(self, masks: dict[str, Array]) -> bool:
        """Whether all rows have the same masks."""
        return all((distinct(mask) == mask[0]).all() for mask in masks.values())

    def _mask(self, masks: dict[str, Array], spared: bool) -> Array | None:
        """Return masks of all units as bytes, or None if they are spared."""
        if spared:
            return None
        s, out = self.target.structure, self._array(len(self.sites), np.uint8)
        for name, mask in masks.items():
            self._view(out, s.first_unit[name], s.layers[name].size)[:] = mask
        return out


def _csr(matrix: sp.csr_array) -> tuple[Array, Array, Array]:
    """Return row starts, columns and entries of a matrix as the routine reads them."""
    columns = matrix.indices.astype(np.int32)
    return matrix.indptr.astype(np.int64), _some(columns), _some(matrix.data)


def _some(array: Array) -> Array:
    """Return the array, or one element of zeros in place of none."""
    return array if len(array) else np.zeros((1, *array.shape[1:]), dtype=array.dtype)
