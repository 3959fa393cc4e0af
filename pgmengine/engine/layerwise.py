"""The compiled engine: event-driven sweeps that store the inputs of each chain (sweep.h).

The inputs of a layer are kept between visits, and each change of a unit is added to the inputs of
its neighbours. reference.py is the reference implementation.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from pgmengine import _kernels
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, States
from pgmengine.base.work.threads import parts
from pgmengine.declare.model import Model
from pgmengine.engine.densities import base_constant, densities_alone
from pgmengine.engine.kernels import Kernel, share_of
from pgmengine.engine.packed import (
    MIN_UPDATES_A_THREAD,
    mask,
    matrix,
    packed,
    padded,
    random_keys,
    row,
    stride_of,
    unit_fields,
    zeros,
)
from pgmengine.engine.visits import drawable, marginalised_layers, visited
from pgmengine.evidence.target import Target, times
from pgmengine.model.couplings import Coupling
from pgmengine.model.structure import Structure
from pgmengine.units.unit import Draw

# Sweeps after which all inputs are computed anew, so that rounding errors do not add up.
SWEEPS_A_REFRESH = 512

# Units that are drawn together, as PGM_BLOCK in random.h: where all are observed, none is drawn.
FREE_BLOCK = 64

# Updates of units in one call, of all chains. Each takes 10 to 300 ns, a call up to half a second.
UPDATES_A_POLL = 2_000_000

LARGEST_SINGLE = f"{np.finfo(np.float32).max:.1g}"


def knows(target: Target, kernel: Kernel) -> bool:
    """Whether the compiled engine can sweep: it needs `flip_share` and drawable units.

    An inherited `flip_share` does not count, because the subclass may have another transition.
    """
    return "flip_share" in vars(type(kernel)) and drawable(target.pattern)


def beyond_single(name: str) -> PgmError:
    """Return the error for inputs of a layer that are too large for single precision."""
    return PgmError(
        f"layer {name!r}: its inputs in a chain are beyond single precision, {LARGEST_SINGLE}; "
        "are the data standardised, or has learning diverged?"
    )


class CompiledChains:
    """Chains in compiled code; see chains.Chains.

    `beta` (chains,) float32 may be changed in place between sweeps. Each chain draws from the
    stream of its number, so that its states depend neither on the other chains nor on the number of
    threads. The exceptions are `sweep_once`, and the first `sweep_path` after `adopt`: their inputs
    are matrix products, whose rounding may depend on the other chains.
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
        self.target, self.packed, self.x, self.made = target, packed(target.model), x, 0
        self.beta = target.beta.astype(np.float32)
        self.moving = list(target.pattern.moving)
        self.order = [name for names in visited(target) for name in names if name in self.moving]
        self.units = sum(s.layers[name].size for name in self.moving)
        self.by_unit = target.pattern.by_unit
        self.summed = marginalised_layers(target, False), marginalised_layers(target, True)
        self.two_sided, self.read = self._two_sided(), self._read()
        # Layer -> bias, (padded width,), which the routine reads at every visit.
        self.biases = {
            name: row(target.model.bias(name), stride_of(layer)) for name, layer in s.layers.items()
        }
        # Layer -> states, or values if there are infinitely many, (chains, padded size).
        self.arrays: dict[str, Array] = {}
        # Finite layer -> values of its states; None where the values are the states.
        self.supports = {
            n: None
            if np.array_equal(x.unit.support, range(len(x.unit.support)))
            else x.unit.support
            for n, x in s.layers.items()
            if x.unit.support is not None
        }
        self.whole_pairs = _whole_pairs(s)
        # Layer -> field, zeta and the rounding error of zeta, (chains, padded width).
        self.inputs: dict[str, tuple[Array | None, Array | None, Array | None]] = {}
        self.changed = np.zeros(len(s.layers), dtype=np.int64)
        self.place = {name: i for i, name in enumerate(s.layers)}
        self.links = [link for c in s.couplings for link in self._links(c)]
        visits = np.array([self.place[name] for name in self.order], dtype=np.int32)
        stream = np.arange(target.rows) if streams is None else streams
        # The key of the generator of uniform numbers.
        self.key = rng.integers(0, 2**32, size=4, dtype=np.uint32)
        self.kernel, self.share = kernel, share_of(kernel)
        self.routine = _kernels.Chains(
            layers=len(s.layers),
            links=len(self.links),
            visit=visits,
            beta=self.beta,
            key=self.key,
            stream=stream.astype(np.uint32),
            alpha=self.share,
        )
        for name in s.layers:
            self._describe(name)
        # Whether the routine has been given the weights, and whether it keeps fields of all units.
        self.linked, self.whole = False, False
        self.endless = any(not layer.unit.bounded for layer in s.layers.values())
        self.free_constant = np.array(
            [sum(base_constant(layer) for layer in s.layers.values()), 0.0]
        )
        # Rows with any evidence.
        self.any_observed = ~np.all([free.all(axis=1) for free in target.free.values()], axis=0)
        self.constant = self._unknown()
        # Whether the inputs have to be computed before the next sweep.
        self.stale = True
        # Whether parameters have changed, and no sweep has been made since.
        self.adopted = False

    def adopt(self, model: Model, kernel: Kernel, rng: np.random.Generator) -> None:
        """Continue from the current states with other parameters, kernel and random numbers."""
        self.target, self.packed = self.target.with_model(model), packed(model)
        self.made, self.linked, self.stale, self.adopted = 0, False, True, True
        if self.any_observed.any():
            self.constant = self._unknown()
        for name, bias in self.biases.items():
            own = model.bias(name)
            bias[: own.size] = own
        if kernel is not self.kernel:
            self.kernel, self.share = kernel, share_of(kernel)
        self.key = random_keys(rng)
        self.routine.rekey(self.key, self.share)

    def place_at(self, x: States) -> None:
        """Continue from other states; observed units keep their values."""
        self.stale = True
        x = self.target.clamp({name: x[name] for name in self.moving})
        for name in self.moving:
            layer = self.target.structure.layers[name]
            found = layer.states(x[name]) if layer.unit.support is not None else x[name]
            self.arrays[name][:, : layer.size] = found

    def sweep(self, count: int, backward: bool = False) -> None:
        """Make `count` sweeps."""
        self._pieces(count, backward=backward)

    def sweep_once(self, anew: Collection[str] = ()) -> None:
        """Make one sweep without preparing the next one."""
        # Whether the sweep needs other inputs than fields, which are computed as products.
        apart = bool(self.by_unit or self.target.structure.directed_layers)
        if apart and not (anew and self.share):
            self.sweep(1)
            return
        x: States = {}
        for name in self.order:
            if not apart:
                self._fill_field(name, x)
            self.routine.rekey(self.key, 0.0 if name in anew else self.share)
            self._run(1, refresh=apart, only=self.place[name])
            x.pop(name, None)
        self.routine.rekey(self.key, self.share)
        self.made, self.stale, self.adopted = self.made + 1, True, False

    def _fill_field(self, name: str, x: States) -> None:
        """Compute the field of a layer from values of its neighbours; missing ones go into x."""
        s, field = self.target.structure, self.inputs[name][0]
        assert field is not None
        field[:] = self.biases[name]
        inside = field[:, : s.layers[name].width]
        if name in self.target.soft:
            inside += self.target.soft[name]
        for c, other in s.meetings[name]:
            if other not in x:
                x[other] = self._now(other, slice(None), np.float32)
            self.packed.add_product(c, name, x[other], inside)

    def trace(self, count: int) -> Array:
        """Make `count` sweeps; return the log density after each, (count, rows)."""
        out = np.empty((count, self.target.rows, 2))
        self._pieces(count, trace=out)
        out += self._constant()
        return out[..., 0] + times(self.beta, out[..., 1])

    def anneal(self, betas: Array, joint: bool = False, backward: bool = False) -> Array:
        """Make one sweep at each of betas[1:]; return the importance log weights, (rows,)."""
        weight = np.zeros(self.target.rows)
        if self.read:
            # Importance weights read the fields of observed units, too.
            self.routine.keep_whole()
            self.stale |= not self.whole
            self.whole = True
        # Compute the constant before the sweeps, because states at beta = 0 may be impossible.
        self._constant()
        self._pieces(
            len(betas) - 1,
            betas=np.ascontiguousarray(betas, dtype=np.float64),
            log_weight=weight,
            joint=joint,
            backward=backward,
        )
        return weight + times(betas[-1] - betas[0], self._constant()[:, 1])

    def values(self, rows: Array | slice = slice(None), dtype: type = np.float64) -> States:
        """Return the current states, of some rows if an index is given."""
        return {name: self._now(name, rows, dtype) for name in self.x}

    def states(self) -> dict[str, Array]:
        """Return copies of the numbers of the current states, (rows, size), of finite layers."""
        layers = self.target.structure.layers
        finite = [name for name in self.x if layers[name].unit.support is not None]
        return {name: self.arrays[name][:, : layers[name].size].copy() for name in finite}

    def place_states(self, states: dict[str, Array]) -> None:
        """Continue from the numbers of other states, (rows, size), of layers with free units."""
        self.stale = True
        for name, given in states.items():
            self.arrays[name][:, : given.shape[1]] = given

    def two_valued(self) -> dict[str, Array]:
        """Return the numbers of the current states; see chains.Chains."""
        layers = self.target.structure.layers
        return {name: self.arrays[name][:, : layers[name].size] for name in self.whole_pairs}

    def keep(self) -> list[Array]:
        """Return a copy of the chain states, for `restore`."""
        if self.stale:
            self._run(0, refresh=True)
        return [array.copy() for array in self._all()]

    def restore(self, kept: list[Array], rows: Array) -> None:
        """Put the rows of a mask (rows,) back to their kept states."""
        for array, old in zip(self._all(), kept, strict=True):
            array[rows] = old[rows]

    def _all(self) -> list[Array]:
        """Return all arrays that change as the chains move."""
        inputs = [array for name in self.inputs for array in self.inputs[name] if array is not None]
        return [self.arrays[name] for name in self.moving] + inputs

    def _pieces(
        self, count: int, trace: Array | None = None, betas: Array | None = None, **options: Any
    ) -> None:
        """Make sweeps, in calls between which Ctrl-C takes effect."""
        most, done = max(1, UPDATES_A_POLL // max(1, self.target.rows * self.units)), 0
        while done < count:
            some = min(count - done, most, SWEEPS_A_REFRESH - self.made % SWEEPS_A_REFRESH)
            self._run(
                some,
                self.made % SWEEPS_A_REFRESH == 0 or self.stale,
                trace=None if trace is None else trace[done : done + some],
                betas=None if betas is None else betas[done : done + some + 1],
                **options,
            )
            self.made += some
            self.adopted = False
            done += some

    def sweep_path(self) -> tuple[Array, Array]:
        """Make one sweep, and return the path after it."""
        # A sweep with kept inputs would begin with the same products.
        if self.adopted and self.two_sided:
            self.sweep_once()
            both = self._densities(last=True)
        else:
            out = np.empty((1, self.target.rows, 2))
            self._pieces(1, trace=out)
            both = out[0]
        both += self._constant()
        return both[:, 0], both[:, 1]

    def log_density(self) -> Array:
        """Return the log density of the current states at their beta, (rows,)."""
        path, power = self.path()
        return path + times(self.beta, power)

    def path(self) -> tuple[Array, Array]:
        """Return (path, power), each (rows,), with log p_beta(x) = path + beta * power."""
        both = self._densities() + self._constant()
        return both[:, 0], both[:, 1]

    def _unknown(self) -> Array:
        """Return the constants before they are computed: NaN in rows with evidence."""
        return np.where(self.any_observed[:, None], np.nan, self.free_constant)

    def _constant(self) -> Array:
        """Return the terms of evidence in (path, power), (rows, 2): -inf if it is impossible.

        They are computed from the first possible state of a chain, and 0 before there is one.
        """
        missing = np.flatnonzero(np.isnan(self.constant[:, 0]))
        if not len(missing):
            return self.constant
        x, found = (
            {name: v[missing] for name, v in self.values().items()},
            self._densities()[missing],
        )
        at_0, at_1 = densities_alone(self.target.take(missing), x)
        possible = np.isfinite(found[:, 1])
        rest = at_1[possible] - at_0[possible] - found[possible, 1]
        self.constant[missing[possible]] = np.stack(
            (at_0[possible] - found[possible, 0], rest), axis=1
        )
        return np.nan_to_num(self.constant, neginf=-np.inf)

    def _densities(self, last: bool = False) -> Array:
        """Return (path, power) without constants, (rows, 2), from the kept inputs.

        `last`: use only the inputs of the layers that are drawn last; see `_two_sided`.
        """
        if self.stale and not last:
            self._run(0, refresh=True)
        out = np.empty((self.target.rows, 2))
        self.routine.log_density(out, last)
        return out

    def _link(self) -> None:
        """Pass the weights of the current model to the routine."""
        for i, (source, name, c, arrow, at_once) in enumerate(self.links):
            weight = self.packed.into(c, name)
            self.routine.link(i, self.place[source], self.place[name], arrow, at_once, *weight)
        self.linked = True

    def _run(self, sweeps: int, refresh: bool, **options: Any) -> None:
        if not self.linked and (refresh or "only" not in options):
            self._link()
        work = parts(sweeps * self.target.rows * self.units, MIN_UPDATES_A_THREAD / 2)
        self.routine.sweep(self.made, sweeps, refresh, self.changed, work, **options)
        self.stale = False
        if self.endless:
            self._check_inputs()

    def _check_inputs(self) -> None:
        """PgmError if real values have made an input too large for single precision."""
        with np.errstate(all="ignore"):
            far = [
                name
                for name, kept in self.inputs.items()
                for array in kept
                if array is not None and not math.isfinite(np.add.reduce(array, axis=None))
            ]
        if far:
            raise beyond_single(far[0])

    def _describe(self, name: str) -> None:
        target, s = self.target, self.target.structure
        layer, rows = s.layers[name], self.target.rows
        finite, moves, directed = (
            layer.unit.support is not None,
            name in self.moving,
            name in s.directed_layers,
        )
        units, stride = padded(layer.size), stride_of(layer)
        if name not in self.arrays:
            self.arrays[name] = state = zeros((rows, units), np.uint8 if finite else np.float32)
            state[:, : layer.size] = layer.states(self.x[name]) if finite else self.x[name]
        linked = any(name in (c.a, c.b) for c in s.undirected)
        field = (
            zeros((rows, stride))
            if moves and (linked or name in target.soft or not directed)
            else None
        )
        zeta = zeros((rows, stride)) if directed and self._keeps_zeta(name) else None
        complement = layer.unit.draw is Draw.COMPLEMENT
        rest = zeros((rows, stride)) if complement and zeta is not None else None
        self.inputs[name] = field, zeta, rest
        fixed = moves and any(
            name in (c.a, c.b) and not {c.a, c.b} <= set(self.moving) for c in s.undirected
        )
        unit, table = layer.unit, None if not finite else layer.unit.log_base
        uneven = unit.draw is Draw.NORMAL or (table is not None and bool(np.any(table != table[0])))
        begin, end, reads = self._columns(name, stride)
        self.routine.layer(
            self.place[name],
            **unit_fields(unit),
            size=layer.size,
            moves=moves,
            by_unit=name in self.by_unit,
            summed=(name in self.summed[0]) + 2 * (name in self.summed[1]),
            directed=directed,
            complement=complement,
            uneven=uneven,
            bias=self.biases[name],
            reference=row(target.reference[name], stride) if name in target.reference else None,
            soft=matrix(target.soft[name], stride) if name in target.soft and moves else None,
            base=zeros((rows, stride)) if fixed or (moves and name in target.soft) else None,
            field=field,
            zeta=zeta,
            rest=rest,
            state=self.arrays[name] if finite else None,
            value=None if finite else self.arrays[name],
            free_units=mask(target.free[name], units),
            alive=None
            if not target.intervened[name].any()
            else mask(~target.intervened[name], units, False),
            begin=begin,
            end=end,
            reads=reads,
        )

    def _read(self) -> frozenset[str]:
        """Return one end of each coupling of moving layers, whose fields the log density reads.

        The other ends have as many observed units as possible, whose fields need not be kept. It is
        empty where both ends have to be read.
        """
        s, free = self.target.structure, self.target.free
        meet = [c for c in s.couplings if {c.a, c.b} <= set(self.moving)]
        sides = [set(side) & set(self.moving) for side in self.summed]
        sides = [x for x in sides if all((c.a in x) != (c.b in x) for c in meet)]
        if s.directed_layers or not sides:
            return frozenset()
        sides += [set(self.moving) - side for side in sides]
        return frozenset(min(sides, key=lambda x: sum(np.sum(~free[n].any(axis=0)) for n in x)))

    def _columns(self, name: str, stride: int) -> tuple[int, int, int]:
        """Return the first column that sweeps move, the end, and what the log density reads."""
        layer = self.target.structure.layers[name]
        support = layer.unit.support
        reads = (1 if name in self.read else 2) if self.read else 0
        # Sweeps skip whole blocks of two-valued units.
        pairs = layer.unit.width == 1 and support is not None and len(support) == 2
        moving = np.flatnonzero(self.target.free[name].any(axis=0))
        if reads != 2 or not pairs or not len(moving) or name in self.by_unit:
            return 0, stride, reads
        last = int(moving[-1]) // FREE_BLOCK + 1
        begin = int(moving[0]) // FREE_BLOCK * FREE_BLOCK
        return begin, min(last * FREE_BLOCK, stride), reads

    def _two_sided(self) -> bool:
        """Whether the log density follows from biases and the fields of the layers drawn last."""
        s, last = self.target.structure, self.summed[1]
        apart = all((c.a in last) != (c.b in last) for c in s.couplings)
        return apart and not s.directed_layers and not self.target.soft

    def _keeps_zeta(self, name: str) -> bool:
        """Whether the directed input of a layer is read, because it or a parent moves."""
        return name in self.moving or any(
            arrow.a in self.moving for arrow in self.target.structure.arrows_into[name]
        )

    def _links(self, c: Coupling) -> list[tuple[str, str, Coupling, bool, bool]]:
        """Return the directions in which a coupling adds to inputs that are read.

        Each is (from, to, coupling, whether it is an arrow, whether changes are added at once).
        """
        out: list[tuple[str, str, Coupling, bool, bool]] = []
        if c.directed:
            return [(c.a, c.b, c, True, c.a in self.by_unit)] if self._keeps_zeta(c.b) else []
        if c.b in self.moving:
            out.append((c.a, c.b, c, False, c.a == c.b))
        if c.a in self.moving and c.a != c.b:
            out.append((c.b, c.a, c, False, False))
        return out

    def _now(self, name: str, rows: Array | slice, dtype: type) -> Array:
        """Return the values of a layer, (rows, width)."""
        if name not in self.moving:
            return self.x[name][rows].astype(dtype, copy=False)
        layer = self.target.structure.layers[name]
        state = self.arrays[name][rows][:, : layer.size]
        if name not in self.supports:
            found: Array = state.astype(dtype)
            return np.where(self.target.free[name][rows], found, self.x[name][rows]).astype(
                dtype, copy=False
            )
        support = self.supports[name]
        if support is None:
            return state.astype(dtype)
        values: Array = support.astype(dtype).take(state, axis=0)
        return values.reshape(len(state), layer.width)


def _whole_pairs(s: Structure) -> list[str]:
    """Return the layers whose units have two values, which are integers."""
    return [
        name
        for name, layer in s.layers.items()
        if (support := layer.unit.support) is not None
        and support.shape == (2,)
        and np.array_equal(support, np.round(support))
    ]
