"""Recorder: the operations of one update, in the order in which `Run.update` makes them.

A data phase, a model phase and an optimizer that compiled code can run have a method `record`,
which appends their operations (`cython_ext/c/learning.h`) to a recorder. Where one of them has no
such method, or the model or the data have something without an operation, `NotCompiled` is raised,
and the fit makes its updates in Python. The Python update is the reference: both draw the same
random numbers, and differ by rounding only.

All arrays are made here, once. A layer has an array of values with the rows of the chains first,
and the rows of the mini-batch after them. A parameter has an array in single precision, which
products read, and an array in double precision, which steps change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array, States
from pgmengine.base.work.threads import parts
from pgmengine.engine.chains import Chains
from pgmengine.engine.kernels.kernel import Kernel, share_of
from pgmengine.engine.layerwise import CompiledChains, beyond_single
from pgmengine.engine.packed import MIN_UPDATES_A_THREAD, panels, stride_of
from pgmengine.evidence.target import Target
from pgmengine.learn.steps.schedules import GrowingBlend, Rate, Scheduled
from pgmengine.model.couplings import (
    COLUMNS_A_LISTING,
    MAX_SPARSE_SHARE,
    MIN_PRODUCTS_A_THREAD,
    Coupling,
    Pair,
)
from pgmengine.model.layer import Layer
from pgmengine.model.model import Model
from pgmengine.model.weights import is_sparse
from pgmengine.units.base import Draw

# Rows of an operation: of the chains, of the mini-batch, or both.
CHAINS, DATA, BOTH = range(3)

# The most sweeps of an update; after as many sweeps, chains compute their inputs anew.
MAX_SWEEPS = 512
# Numbers for each thread of a short loop.
NUMBERS_PER_THREAD = 20_000
# Rows of a weight whose sums over columns are kept separately; PGM_CENTRE_ROWS of learning.h.
CENTRED_ROWS = 32


class NotCompiled(Exception):
    """An update has a part without a compiled operation."""


@runtime_checkable
class Recordable(Protocol):
    """A part of an update that compiled code can run."""

    def record(self, recorder: Recorder) -> None:
        """Append the operations of this part; NotCompiled if there are none for it."""


@dataclass
class Slopes:
    """The gradient during an update: name -> numbers in single precision, and a factor of each."""

    values: dict[str, Array]
    factors: dict[str, float] = field(default_factory=dict)


def recording(part: Any) -> Any:
    """Return the method `record` of a part; NotCompiled if its class has none of its own.

    An inherited method does not count, because the subclass may work in another way.
    """
    if "record" not in vars(type(part)):
        raise NotCompiled(f"{type(part).__name__} has no compiled operations")
    return part.record


class Recorder:
    """The operations of an update on fixed arrays.

    Parameters
    ----------
    target : all rows of data, with values in single precision.
    weights : (rows,) weights of the rows.
    size : rows of a mini-batch.
    chains : the chains of the model phase, or 0 if it has one for each row of a mini-batch.
    order_key : (4,) the key of the order of the rows.
    moments : the moments of the optimizer, which operations change in place.
    outward : the layers with data, and the other layers by their distance from these.

    Attributes
    ----------
    values : layer -> (chains + size, width) values of the chains, and of the data phase.
    single : parameter -> its numbers in single precision, in its shape.
    rates : learning rates, a number or a schedule each; operations refer to them by number.
    fields : layer -> natural parameters given the mini-batch, if they are exact; else empty.
    kernel : the kernel of the chains, or a schedule.
    keys, uniforms : number of keys for random numbers, and of uniform numbers, in an update.
    """

    def __init__(
        self,
        target: Target,
        weights: Array,
        size: int,
        chains: int,
        order_key: Array,
        moments: Mapping[str, Array],
        outward: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> None:
        check_target(target)
        self.target, self.structure, self.size, self.outward = (
            target,
            target.structure,
            size,
            outward,
        )
        self.chains, self.moments, self.order_key = chains, moments, order_key
        self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        self.rows = (chains or size) + size
        self.values: States = {}
        params = target.model.params
        self.names = {name: i for i, name in enumerate(params)}
        self.single = {k: np.array(v, dtype=np.float32, order="C") for k, v in params.items()}
        self.work = {k: np.empty(v.size) for k, v in params.items()}
        self.rates: list[Rate] = []
        self.kernel: Scheduled[Kernel] | None = None
        self.keys, self.uniforms = 0, 0
        self.fields: States = {}
        self._added: list[tuple[str, dict[str, Any]]] = []
        # Operations that can fail, with a function update -> error.
        self._failures: dict[int, Callable[[int], Exception]] = {}
        # Functions that append operations when the arrays of the gradient are known.
        self.with_gradient: list[Callable[[Slopes], None]] = []
        # Functions that are called after each call of the loop.
        self.afterwards: list[Callable[[], None]] = []
        for name, layer in self.structure.layers.items():
            self.values[name] = np.zeros((self.rows, layer.width), dtype=np.float32)

    def add(
        self, kind: str, failure: Callable[[int], Exception] | None = None, **fields: Any
    ) -> int:
        """Append an operation; return its number.

        `failure` makes the error of an update, by its number, in which the operation fails.
        """
        number = len(self._added)
        self._added.append((kind, fields))
        if failure is not None:
            self._failures[number] = failure
        return number

    def failure(self, operation: int, update: int) -> Exception:
        """Return the error of an operation that has failed in an update."""
        make = self._failures.get(operation)
        return MemoryError() if make is None else make(update)

    def room(self, name: str) -> Array:
        """Return an array for all rows of a layer."""
        return np.zeros_like(self.values[name])

    def rate(self, rate: Rate) -> int:
        """Return the number of a learning rate."""
        self.rates.append(rate)
        return len(self.rates) - 1

    def uniform_numbers(self, count: int) -> None:
        """Let each update have uniform numbers, which are drawn after its keys."""
        self.uniforms += count

    def key(self) -> int:
        """Return the number of a new key of an update."""
        self.keys += 1
        return self.keys - 1

    @property
    def model(self) -> Model:
        """The model at the beginning of the recording."""
        found = self.target.model
        assert isinstance(found, Model)
        return found

    def observed(self) -> list[str]:
        """Return the layers with data."""
        return [name for name, free in self.target.pattern.some_free.items() if not free]

    # ---- data phase ----

    def take_rows(self) -> None:
        """Copy the rows of the mini-batch into the values of their layers."""
        for name in self.observed():
            data = np.ascontiguousarray(self.target.evidence.values[name], dtype=np.float32)
            self.add("take", m=data.shape[1], a=data, out=self.values[name])

    def start_field(self, name: str, span: int, out: Array) -> None:
        """Set a field (rows, at least width) to the bias of a layer."""
        width = self.structure.layers[name].width
        bias = self.single[f"{name}.bias"]
        self.add("start_field", span=span, m=width, a=bias, out=out, apart=out.shape[1])

    def add_product(
        self,
        c: Coupling,
        name: str,
        span: int,
        x: Array,
        out: Array,
        single: Mapping[str, Array] | None = None,
        kind: str = "add_product",
        rows: int = 0,
    ) -> None:
        """Add the field that values x of the other end of a coupling give to a layer.

        With the kind "add_each", x has one row, whose field is added to all rows.
        """
        weight = (single or self.single)[f"{c.key}.weight"]
        n, m = weight.shape if name == c.b else weight.shape[::-1]
        known = {CHAINS: self.rows - self.size, DATA: self.size, BOTH: self.rows}
        self.add(
            kind,
            span=span,
            rows=rows,
            turned=name == c.a,
            n=n,
            m=m,
            apart=out.shape[1],
            a=x,
            b=weight,
            out=out,
            more=np.zeros(m, dtype=np.float32),
            parts=parts((rows or known[span]) * n * m / 4, MIN_PRODUCTS_A_THREAD),
        )

    def jump(self, operations: Sequence[int]) -> None:
        """Let operations go on here, if their condition holds."""
        for number in operations:
            self._added[number][1]["to"] = len(self._added)

    def mean(self, name: str, span: int, eta: Array) -> None:
        """Set the values of a layer to the means of its units with natural parameters eta."""
        layer = self.structure.layers[name]
        self.add(
            "mean",
            span=span,
            m=layer.width,
            a=eta,
            out=self.values[name],
            parts=parts(eta.size, NUMBERS_PER_THREAD),
            **unit_fields(layer),
        )

    # ---- model phase ----

    def chains_of(
        self, chains: Chains, kernel: Scheduled[Kernel], values: States | None = None
    ) -> CompiledChains:
        """Return chains that operations can move.

        Their values are put into the first rows of `values`, by default those of the recorder.
        """
        if type(chains) is not CompiledChains or chains.by_unit:
            raise NotCompiled("the chains visit one unit at a time, or are those of the reference")
        # Other schedules could return a kernel that the reference engine runs as it is written.
        known = (
            isinstance(kernel, GrowingBlend)
            if callable(kernel)
            else "flip_share" in vars(type(kernel))
        )
        if not known:
            raise NotCompiled(f"{kernel!r} may have no compiled transitions")
        if set(chains.moving) != set(self.structure.layers):
            raise NotCompiled("some layers of the chains do not move")
        self.kernel = kernel
        into = self.values if values is None else values
        for name, value in chains.values(dtype=np.float32).items():
            into[name][: len(value)] = value
        return chains

    def sweep_once(
        self,
        chains: CompiledChains,
        key: int,
        number: int = 0,
        anew: Iterable[str] = (),
        single: Mapping[str, Array] | None = None,
        values: States | None = None,
        rows: int = 0,
    ) -> None:
        """Make one sweep, in which each field is computed as a product; see Chains.sweep_once.

        The states are those in `values`, by default those of the recorder; `rows` is the number of
        chains, by default the number of chains of an update.
        """
        for name in chains.order:
            self._fill_field(chains, name, single, self.values if values is None else values, rows)
            self.draw(chains, name, key, number, name in anew, values=values, rows=rows)
            key = -1

    def _fill_field(
        self,
        chains: CompiledChains,
        name: str,
        single: Mapping[str, Array] | None,
        values: States,
        rows: int,
    ) -> None:
        field_ = chains.inputs[name][0]
        assert field_ is not None
        bias = (single or self.single)[f"{name}.bias"]
        width, stride = self.structure.layers[name].width, field_.shape[1]
        self.add("start_field", span=CHAINS, m=width, a=bias, out=field_, apart=stride, rows=rows)
        for c, other in self.structure.meetings[name]:
            self.add_product(c, name, CHAINS, values[other], field_, single, rows=rows)
        if chains.endless:
            self.add(
                "check_field",
                lambda update: beyond_single(name),
                span=CHAINS,
                apart=stride,
                out=field_,
                rows=rows,
            )

    def draw(
        self,
        chains: CompiledChains,
        name: str,
        key: int,
        number: int,
        anew: bool = False,
        forget: bool = False,
        values: States | None = None,
        rows: int = 0,
    ) -> None:
        """Draw a layer from given fields in sweep `number`.

        `anew` draws by Gibbs sampling, and `forget` sets the states to the first value before, so
        that the draws do not depend on them.
        """
        finite = self.structure.layers[name].unit.support is not None
        self.add(
            "draw",
            turned=forget and finite,
            m=chains.arrays[name].shape[1],
            to_states=chains.arrays[name] if finite else None,
            layer=chains.place[name],
            key=key,
            first=number,
            anew=anew,
            chains=chains.routine,
            rows=rows,
            parts=parts(chains.target.rows * chains.units, MIN_UPDATES_A_THREAD / 2),
        )
        self.take_values(chains, name, values, rows)

    def take_states(self, chains: CompiledChains, name: str) -> None:
        """Put the mini-batch into the states of a layer with data."""
        layer, kept = self.structure.layers[name], chains.arrays[name]
        data = self.target.evidence.values[name]
        states = np.zeros((len(data), kept.shape[1]), dtype=kept.dtype)
        states[:, : layer.size] = data if layer.unit.support is None else layer.states(data)
        bytes_ = states.view(np.uint8)
        self.add("take_states", m=bytes_.shape[1], states=bytes_, to_states=kept.view(np.uint8))

    def take_field(self, chains: CompiledChains, name: str, eta: Array) -> None:
        """Put natural parameters of the rows of the mini-batch into the fields of the chains."""
        field = chains.inputs[name][0]
        assert field is not None
        self.add("copy_rows", m=eta.shape[1], a=eta, out=field, apart=field.shape[1])

    def take_biases(
        self, chains: CompiledChains, single: Mapping[str, Array] | None = None
    ) -> None:
        """Give the chains the biases of an update, which sweeps and log densities read."""
        for name, bias in chains.biases.items():
            own = (single or self.single)[f"{name}.bias"].reshape(-1)
            self.add("combine", m=own.size, a=own, b=own, out=bias)

    def take_values(
        self, chains: CompiledChains, name: str, values: States | None = None, rows: int = 0
    ) -> None:
        """Copy the values of the states of a layer."""
        out = (self.values if values is None else values)[name]
        place = chains.place[name]
        self.add("values", layer=place, chains=chains.routine, out=out, rows=rows)

    def sweeps(
        self,
        chains: CompiledChains,
        count: int,
        key: int,
        single: Mapping[str, Array] | None = None,
    ) -> None:
        """Make sweeps that follow the changes of units; see Chains.sweep."""
        if count > MAX_SWEEPS:
            raise NotCompiled(f"{count} sweeps of an update")
        single = single or self.single
        self.take_biases(chains, single)
        for i, (source, name, c, arrow, at_once) in enumerate(chains.links):
            weight = single[f"{c.key}.weight"]
            n, m = weight.shape if name == c.b else weight.shape[::-1]
            packed = panels(
                weight if name == c.b else weight.T, stride_of(self.structure.layers[name])
            )
            place = chains.place
            chains.routine.link(
                i, place[source], place[name], arrow, at_once, packed, None, None, None
            )
            self.add(
                "pack",
                turned=name != c.b,
                n=n,
                m=m,
                tile=packed.shape[2],
                a=weight,
                out=packed,
                parts=parts(n * m / 2, MIN_PRODUCTS_A_THREAD),
            )
        work = count * chains.target.rows * chains.units
        self.add(
            "sweep",
            key=key,
            sweeps=count,
            chains=chains.routine,
            parts=parts(work, MIN_UPDATES_A_THREAD / 2),
        )
        for name in chains.order:
            self.take_values(chains, name)

    # ---- gradient and step ----

    def gradient(self) -> Slopes:
        """Append E[d log_density | data] - E[d log_density]; return the arrays of the gradient."""
        out = {k: np.zeros(v.shape, dtype=np.float32) for k, v in self.single.items()}
        heavy: States = {}
        for name, layer in self.structure.layers.items():
            x, slope = self.values[name], out[f"{name}.bias"]
            self.add("sum", span=BOTH, m=layer.width, a=x, out=slope)
        for c in self.structure.couplings:
            xb, slope = self.values[c.b], out[f"{c.key}.weight"]
            if c.b not in heavy:
                heavy[c.b] = np.zeros_like(xb)
                self.add("weigh", span=BOTH, m=xb.shape[1], a=xb, out=heavy[c.b])
            n, m = self.values[c.a].shape[1], xb.shape[1]
            self.add(
                "outer",
                span=BOTH,
                n=n,
                m=m,
                a=self.values[c.a],
                b=heavy[c.b],
                out=slope,
                parts=parts(self.rows * n * m / 4, MIN_PRODUCTS_A_THREAD),
            )
        slopes = Slopes(out)
        for append in self.with_gradient:
            append(slopes)
        return slopes

    def means_of_data(self) -> States:
        """Append the sums of weight * x over the rows of data; return their arrays, by layer."""
        out: States = {}
        for name, layer in self.structure.layers.items():
            out[name] = np.zeros(layer.width, dtype=np.float32)
            x = self.values[name]
            self.add("sum", span=DATA, m=layer.width, a=x, out=out[name])
        return out

    # ---- the list ----

    def updates(self) -> Any:
        """Return the operations, ready to run."""
        widest = max(v.shape[1] for v in self.values.values())
        tallest = max((g.shape[0] for g in self.single.values() if g.ndim == 2), default=1)
        blocks = -(-max(tallest, widest) // CENTRED_ROWS) + 1
        made = _kernels.Updates(
            rows=self.target.rows,
            size=self.size,
            chains=self.chains,
            keys=self.keys,
            rates=len(self.rates),
            uniforms=self.uniforms,
            order_key=self.order_key,
            weight=self.weights,
            weights=np.zeros(self.rows, dtype=np.float32),
            moved=np.zeros(len(self.structure.layers) + 1, dtype=np.int64),
            scratch=np.empty(blocks * widest, dtype=np.float32),
            sparse_share=MAX_SPARSE_SHARE,
            listing=COLUMNS_A_LISTING,
        )
        for kind, fields in self._added:
            made.add(kind, **fields)
        return made


def check_target(target: Target) -> None:
    """Raise NotCompiled unless layers are observed or free as wholes, with dense couplings."""
    s, pattern = target.structure, target.pattern
    if s.tables or s.directed_layers or s.shared or s.gates or target.soft or target.reference:
        raise NotCompiled("the model has tables, arrows, shared terms or gates")
    for c in s.couplings:
        if type(c) is not Pair or is_sparse(target.model.weight(c)):
            raise NotCompiled(f"{c.key} is inside a layer, or has a sparse weight")
    for name, layer in s.layers.items():
        if layer.unit.draw in (None, Draw.COMPLEMENT) or layer.unit.observed_only:
            raise NotCompiled(f"{name} has units without compiled draws")
        if pattern.some_free[name] and not pattern.all_free[name]:
            raise NotCompiled(f"some units of {name} are observed")
    if not target.untempered:
        raise NotCompiled("the target is tempered")


def unit_fields(layer: Layer) -> dict[str, Any]:
    """Return the fields of an operation that describe the units of a layer."""
    unit = layer.unit
    finite = unit.support is not None
    base = None
    if unit.support is not None:
        log_h = np.zeros(len(unit.support)) if unit.log_base is None else unit.log_base
        base = np.asarray(log_h, dtype=np.float32)
    narrow = finite and unit.width == 1
    return {
        "unit": int(Draw.TABLE if finite else unit.draw or Draw.NORMAL),
        "values": 0 if base is None else len(base),
        "width": unit.width,
        "variance": unit.curvature or 0.0,
        "support": np.asarray(unit.support, dtype=np.float32) if narrow else None,
        "log_base": base,
    }


def shares(kernel: Scheduled[Kernel] | None, updates: Sequence[int]) -> Array:
    """Return the share of flip-the-state in the kernel of each update, (updates,) float32."""
    if kernel is None:
        return np.zeros(len(updates), dtype=np.float32)
    if not callable(kernel):
        return np.full(len(updates), share_of(kernel), dtype=np.float32)
    return np.array([share_of(kernel(t)) for t in updates], dtype=np.float32)
