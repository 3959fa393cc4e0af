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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array, States
from pgmengine.base.work.threads import parts
from pgmengine.declare.model import Model
from pgmengine.engine.kernels import Kernel, share_of
from pgmengine.engine.packed import unit_fields
from pgmengine.evidence.target import Target
from pgmengine.learn.steps.schedules import Rate, Scheduled
from pgmengine.model.couplings import (
    COLUMNS_A_LISTING,
    MAX_SPARSE_SHARE,
    MIN_PRODUCTS_A_THREAD,
    Coupling,
)
from pgmengine.model.weights import is_sparse
from pgmengine.units.unit import Draw, Unit

# Rows of an operation: of the chains, of the mini-batch, or both.
CHAINS, DATA, BOTH = range(3)

# Numbers for each thread of a short loop.
NUMBERS_PER_THREAD = 20_000
# Rows of a weight whose sums over columns are kept separately; PGM_CENTRE_ROWS of learning.h.
CENTRED_ROWS = 32


# The methods of which `record` appends the operations.
REFERENCES = frozenset({"expect", "statistics", "learned", "step"})


class NotCompiled(Exception):
    """An update has a part without a compiled operation."""


@dataclass
class Slopes:
    """The gradient during an update: name -> numbers in single precision, and a factor of each."""

    values: dict[str, Array]
    factors: dict[str, float] = field(default_factory=dict)


def recording(part: Any) -> Any:
    """Return the method `record` of a part; NotCompiled if its class has none of its own.

    An inherited method does not count, because the subclass may work in another way. Neither does
    one of an object whose own methods were replaced.
    """
    replaced = REFERENCES.intersection(getattr(part, "__dict__", ()))
    if "record" not in vars(type(part)) or replaced:
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
    partly : layer -> (rows of data, width) values, NaN where they are not observed, of layers of
        which some units are observed in some row. Their other units move like those of free layers.
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
        self.partly = {name: _with_gaps(target, name) for name in partly_observed(target)}

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

    def take_kernel(self, kernel: Scheduled[Kernel], known: bool) -> None:
        """Let the chains move by a kernel; NotCompiled unless it is known."""
        if not known:
            raise NotCompiled(f"{kernel!r} may have no compiled transitions")
        self.kernel = kernel

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

    def keep(self, name: str, out: Array) -> None:
        """Put the observed values of the mini-batch into their places in an array of a layer."""
        if name in self.partly:
            data = self.partly[name]
            self.add("keep", m=data.shape[1], a=data, out=out)

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
        """Set the values of a layer to the means of its units with natural parameters eta.

        Observed units of the mini-batch keep their values.
        """
        layer = self.structure.layers[name]
        self.add(
            "mean",
            span=span,
            m=layer.width,
            a=eta,
            out=self.values[name],
            parts=parts(eta.size, NUMBERS_PER_THREAD),
            **mean_fields(layer.unit),
        )
        if span == DATA:
            self.keep(name, self.values[name])

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


def partly_observed(target: Target) -> list[str]:
    """Return the layers of which some units are observed in some row, but not all in all rows."""
    pattern = target.pattern
    return [name for name, free in pattern.some_free.items() if free and not pattern.all_free[name]]


def _with_gaps(target: Target, name: str) -> Array:
    """Return the values of a layer in single precision, NaN where they are not observed."""
    free = target.components(name, target.free[name])
    return np.where(free, np.nan, target.evidence.values[name]).astype(np.float32)


def check_target(target: Target) -> None:
    """Raise NotCompiled unless the model has dense couplings of layers with compiled draws."""
    s = target.structure
    if s.tables or s.directed_layers or s.shared or s.gates or target.soft or target.reference:
        raise NotCompiled("the model has tables, arrows, shared terms or gates")
    for c in s.couplings:
        if c.directed or c.lateral or is_sparse(target.model.weight(c)):
            raise NotCompiled(f"{c.key} is inside a layer, or has a sparse weight")
    for name, layer in s.layers.items():
        if layer.unit.draw in (None, Draw.COMPLEMENT) or layer.unit.observed_only:
            raise NotCompiled(f"{name} has units without compiled draws")
        if not has_known_means(layer.unit):
            raise NotCompiled(f"{name} has units with means of their own")
    if not target.untempered:
        raise NotCompiled("the target is tempered")


def mean_fields(unit: Unit) -> dict[str, Any]:
    """Return the fields of an operation that describe the units of a layer."""
    fields = unit_fields(unit)
    return {"unit": int(fields.pop("kind")), "values": fields.pop("states"), **fields}


def has_known_means(unit: Unit) -> bool:
    """Return whether compiled code has the means of a unit: those of its support, or our own."""
    ours = type(unit).__module__.startswith("pgmengine.")
    return ours or (unit.support is not None and type(unit).mean is Unit.mean)


def shares(kernel: Scheduled[Kernel] | None, updates: Sequence[int]) -> Array:
    """Return the share of flip-the-state in the kernel of each update, (updates,) float32."""
    if kernel is None:
        return np.zeros(len(updates), dtype=np.float32)
    if not callable(kernel):
        return np.full(len(updates), share_of(kernel), dtype=np.float32)
    return np.array([share_of(kernel(t)) for t in updates], dtype=np.float32)
