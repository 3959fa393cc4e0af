"""Compiled sweeps of models with tables: chains are lanes, one unit moves at a time (tabled.h).

A unit is visited in all chains at once, so that its neighbours may be anywhere in the graph. There
is no colouring, and no inputs are kept between visits. packed_units.py packs structures and models.
Every array has a row for each unit (or component) and a column for each chain; with few chains, it
has a row for each chain instead. reference.py is the reference implementation.

The engine also sweeps models without tables that have many small couplings (many_small), and all
models that it can for kernels that draw forests (forests.h).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine import _kernels
from pgmengine.base.equal_rows import distinct
from pgmengine.base.types import Array, States
from pgmengine.base.work.cache import remembered
from pgmengine.base.work.threads import parts
from pgmengine.engine.kernels import Kernel, draws_forests, share_of
from pgmengine.engine.packed import MIN_UPDATES_A_THREAD, padded, zeros
from pgmengine.engine.single_site.independent_visits import (
    MIN_VISITS_A_WAVE,
    SWEEPS_TOGETHER,
    waves,
)
from pgmengine.engine.single_site.packed_units import (
    DENSITIES,
    SITE_FIELDS,
    SLOT_FIELDS,
    SWEEPS,
    packed_graph,
    packed_parameters,
)
from pgmengine.engine.visits import marginalised_layers, visited
from pgmengine.evidence.target import Target, times
from pgmengine.model.graph.unit_graph import unit_graph, units_of
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure
from pgmengine.model.weights import count
from pgmengine.units.unit import Draw

if TYPE_CHECKING:
    import scipy.sparse as sp

# Up to this number, chains are faster one after the other than all together as lanes of vectors.
MAX_CHAINS_IN_TURN = 2

# A model counts as a network of single variables if it has at least MIN_COUPLINGS_PACKED layers and
# couplings together, and at most MAX_ENTRIES_A_UNIT entries of weights for each unit.
MIN_COUPLINGS_PACKED = 64
MAX_ENTRIES_A_UNIT = 16

# The number of unit updates between two looks at Ctrl-C.
UPDATES_A_POLL = 10_000_000

# The smallest number of sweeps with the same parameters for which it pays to plan their waves.
MIN_SWEEPS_A_PLAN = 64


def knows(target: Target, kernel: Kernel) -> bool:
    """Whether this engine can sweep by a blend of Gibbs and FlipState, and is the fastest one.

    An inherited `flip_share` does not count, because the subclass may have another transition.
    """
    return (
        "flip_share" in vars(type(kernel))
        and in_lanes(target.structure)
        and (bool(target.structure.tables) or many_small(target.model) or draws_forests(kernel))
    )


@remembered
def in_lanes(s: Structure) -> bool:
    """Whether these sweeps can draw every unit.

    They support tables, couplings and arrows between units with finitely many states.
    """
    entries = int(s.table_index.size.max(initial=0))
    return (
        all(layer.unit.draw in (Draw.TABLE, Draw.COMPLEMENT) for layer in s.layers.values())
        and max(s.state_counts.values()) <= _kernels.MOST_STATES
        # Positions in a table are 32-bit integers.
        and entries < 2**31
    )


def many_small(model: Parameters) -> bool:
    """Whether a model has many couplings with few weights, as networks of single variables have.

    Sweeps of layers search through all couplings at each unit. Sweeps of single units add up the
    inputs of the unit and of its children at each visit.
    """
    s = model.structure
    if len(s.layers) + len(s.couplings) < MIN_COUPLINGS_PACKED:
        return False
    entries: int = s.memo.recall(
        "entries of weights", lambda: sum(count(model.weight(c)) for c in s.couplings)
    )
    return entries <= MAX_ENTRIES_A_UNIT * s.units


class TabledChains:
    """Chains in compiled code, unit by unit; see chains.Chains.

    `beta` (chains,) float32 may be changed in place between sweeps. Each chain draws from the
    stream of its number, so that its states depend neither on the other chains nor on the number of
    threads. Forests, which all chains share, have the units that are free in any row.
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
        self.forests = draws_forests(kernel)
        # Forests are drawn in lanes.
        self.alone = self.rows <= MAX_CHAINS_IN_TURN and not self.forests
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
        self.visit = self._order()
        self.units = len(self.visit)
        reference = zeros((s.width,)) if target.reference else None
        for name, given in target.reference.items():
            assert reference is not None
            at = units_of(s).first_component[name]
            reference[at : at + len(given)] = given
        self.routine = _kernels.TabledSweeps(
            chains=self.rows,
            alone=self.alone,
            sites=self.sites.view(np.int64).reshape(-1, len(SITE_FIELDS)),
            visit=self.visit,
            support=self.graph.support,
            log_base=self.graph.log_base,
            beta=beta,
            stream=stream,
            state=self.state,
            value=self.value,
            soft=soft,
            free_units=self._mask(target.free, self._all_alike(target.free)),
            cut=self._mask(
                target.intervened, not any(distinct(c).any() for c in target.intervened.values())
            ),
            reference=reference,
        )
        self._take_parameters(rng)

    def adopt(self, model: Parameters, kernel: Kernel, rng: np.random.Generator) -> None:
        """Continue from the current states with other parameters, kernel and random numbers."""
        self.target, self.kernel, self.made = self.target.with_model(model), kernel, 0
        self._take_parameters(rng)

    def _take_parameters(self, rng: np.random.Generator) -> None:
        """Pass the parameters of the model, the kernel and a new key to the routine."""
        p = packed_parameters(self.target.model)
        others = (self.sites["soft"] >= 0) | bool(self.target.reference)
        self.sites["linear"] = p.linear | others * (SWEEPS | DENSITIES)
        self.sites["directed"] = p.directed
        self.sites["slots"], self.sites["slot"] = p.counts, np.cumsum(p.counts) - p.counts
        self.routine.parameters(
            _some(p.slots).view(np.int64).reshape(-1, len(SLOT_FIELDS)),
            _some(p.members),
            _some(p.terms),
            p.bias,
            *_csr(p.links),
            *_csr(p.arrows),
            p.children.start,
            _some(p.children.columns.astype(np.int32)),
        )
        if self.forests:
            near, units = unit_graph(self.target.model).near, units_of(self.target.structure)
            held = self.graph.place >= 0
            self.routine.by_forests(
                near.start,
                _some(near.columns.astype(np.int32)),
                _some(units.owner[held].astype(np.int32)),
            )
        self.planned = not self.alone
        self.key = rng.integers(0, 2**32, size=4, dtype=np.uint32)
        self.routine.rekey(self.key, share_of(self.kernel))

    def place_at(self, x: States) -> None:
        """Continue from other states; observed units keep their values."""
        self._place(self.target.clamp({name: x[name] for name in self.moving}))

    def _place(self, x: States) -> None:
        """Write states and values of some layers."""
        s = self.target.structure
        for name, given in x.items():
            layer = s.layers[name]
            self._view(self.state, s.first_unit[name], layer.size)[:] = layer.states(given)
            row = int(self.sites["value"][s.first_unit[name]])
            if row >= 0:
                self._view(self.value, row, layer.width)[:] = given

    def sweep(self, count: int, backward: bool = False) -> None:
        """Make `count` sweeps."""
        if not self.planned and self.made + count >= MIN_SWEEPS_A_PLAN:
            self._overlap()
        self._pieces(count, backward=backward)

    def _overlap(self) -> None:
        """Let several sweeps of each chain be in progress at once, if that is faster."""
        self.planned, found = True, waves(self.target.model, self.visit)
        # Uniforms are made for all units, which costs too much if few of them move.
        if found.width >= MIN_VISITS_A_WAVE and 4 * self.units >= len(self.sites):
            blocks = -(-len(self.sites) // 64)
            room = zeros((self.rows, SWEEPS_TOGETHER * 64 * blocks))
            self.routine.by_waves(found.unit, found.start, found.period, room)

    def sweep_once(self, anew: Collection[str] = ()) -> None:
        """Make one sweep without preparing the next one."""
        if not anew:
            self.sweep(1)
            return
        s, mask = self.target.structure, np.zeros(len(self.sites), dtype=np.uint8)
        for name in anew:
            mask[s.slices[name]] = 1
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

    def states(self) -> dict[str, Array]:
        """Return copies of the numbers of the current states, (rows, size), of finite layers."""
        s = self.target.structure
        return {
            name: self._view(self.state, s.first_unit[name], layer.size).copy()
            for name, layer in s.layers.items()
        }

    def place_states(self, states: dict[str, Array]) -> None:
        """Continue from the numbers of other states, (rows, size), of layers with free units."""
        s = self.target.structure
        for name, given in states.items():
            layer = s.layers[name]
            self._view(self.state, s.first_unit[name], layer.size)[:] = given
            row = int(self.sites["value"][s.first_unit[name]])
            if row >= 0:
                assert layer.unit.support is not None
                values = layer.unit.support.astype(np.float32).take(given, axis=0)
                self._view(self.value, row, layer.width)[:] = values.reshape(len(given), -1)

    def two_valued(self) -> dict[str, Array]:
        """Return no layer: these chains keep no rows of bytes."""
        return {}

    def log_density(self) -> Array:
        """Return the log density of the current states at their beta, (rows,)."""
        path, power = self.path()
        return path + times(self.beta, power)

    def path(self) -> tuple[Array, Array]:
        """Return (path, power), each (rows,), with log p_beta(x) = path + beta * power."""
        out = np.empty((self.rows, 2))
        self.routine.log_density(out, parts(self.rows * len(self.sites), MIN_UPDATES_A_THREAD / 2))
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
        most, done = max(1, UPDATES_A_POLL // max(1, self.rows * self.units)), 0
        while done < count:
            some = min(count - done, most)
            self.routine.sweep(
                self.made,
                some,
                parts(some * self.rows * self.units, MIN_UPDATES_A_THREAD / 2),
                trace=None if trace is None else trace[done : done + some],
                betas=None if betas is None else betas[done : done + some + 1],
                **options,
            )
            self.made += some
            done += some

    def _array(self, rows: int, dtype: type) -> Array:
        """Return zeros with a row for each unit or component, in the layout of the routine."""
        return zeros((self.lanes, rows) if self.alone else (rows, self.lanes), dtype)

    def _view(self, array: Array, first: int, count: int) -> Array:
        """Return `count` rows of an array, from row `first`, as (chains, count)."""
        if self.alone:
            return array[:, first : first + count]
        return array[first : first + count, : self.rows].T

    def _soften(self) -> Array:
        """Return the soft evidence of all layers as one array; write its rows into the sites."""
        s, soft = self.target.structure, self.target.soft
        out = self._array(max(1, sum(s.layers[name].width for name in soft)), np.float32)
        self.sites["soft"], row = -1, 0
        for name, given in soft.items():
            layer = s.layers[name]
            self.sites["soft"][s.slices[name]] = row + layer.unit.width * np.arange(layer.size)
            self._view(out, row, layer.width)[:] = given
            row += layer.width
        return out

    def _order(self) -> Array:
        """Return the moving units in the order of a sweep; write their ranks into the sites."""
        target, s = self.target, self.target.structure
        names = [name for names in visited(target) for name in names]
        every = np.arange(s.units)
        order = np.concatenate([every[s.slices[name]] for name in names])
        self.sites["rank"][order] = np.arange(len(order))
        moves = np.concatenate([distinct(target.free[name]).any(axis=0) for name in s.layers])
        self.sites["moves"] = moves
        for bit, backward in ((1, False), (2, True)):
            for name in marginalised_layers(target, backward):
                self.sites["summed"][s.slices[name]] |= bit
        moving: Array = order[(moves & (self.sites["states"] > 1))[order]]
        return moving.astype(np.int32)

    def _all_alike(self, masks: dict[str, Array]) -> bool:
        """Whether all rows have the same masks."""
        return all((distinct(mask) == mask[0]).all() for mask in masks.values())

    def _mask(self, masks: dict[str, Array], spared: bool) -> Array | None:
        """Return masks of all units as bytes, or None if they are not needed."""
        if spared:
            return None
        s, out = self.target.structure, self._array(len(self.sites), np.uint8)
        for name, mask in masks.items():
            self._view(out, s.first_unit[name], s.layers[name].size)[:] = mask
        return out


def _csr(matrix: sp.csr_array) -> tuple[Array, Array, Array]:
    """Return row starts, columns and entries of a matrix in the types of the routine."""
    columns = matrix.indices.astype(np.int32)
    return matrix.indptr.astype(np.int64), _some(columns), _some(matrix.data)


def _some(array: Array) -> Array:
    """Return the array, or a single zero if it is empty."""
    return array if len(array) else np.zeros((1, *array.shape[1:]), dtype=array.dtype)
