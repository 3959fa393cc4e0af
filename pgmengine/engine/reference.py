"""The engine in numpy, for kernels and units that the compiled engines do not support.

A sweep visits colour class by colour class. A layer moves in one step when its units are
independent given all other layers: no coupling or table inside the layer joins them, nor the
normaliser of a child. Other layers move unit by unit, with log weights of the states

    log w_k = u x_k + beta log p(x_k | zeta)
              + beta * sum over children c of log p(x_c | zeta_c at x_k)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import softmax
from pgmengine.base.types import Array, States, Weight
from pgmengine.declare.model import Model
from pgmengine.engine.kernels import Gibbs, Kernel
from pgmengine.engine.visits import marginalised_layers, visited
from pgmengine.evidence.target import NEVER_ON, Target, times
from pgmengine.model.couplings import Coupling
from pgmengine.model.layer import Layer
from pgmengine.model.tables import joined_states
from pgmengine.model.weights import add_rows, is_sparse
from pgmengine.units import Unit


class PlainChains:
    """Chains in numpy; see chains.Chains. All chains draw from one generator."""

    def __init__(
        self,
        target: Target,
        kernel: Kernel,
        x: States,
        rng: np.random.Generator,
        streams: Array | None = None,
    ) -> None:
        self.target, self.kernel, self.x, self.rng = target, kernel, x, rng
        self.beta = target.beta.copy()

    def sweep(self, count: int, backward: bool = False) -> None:
        """Make `count` sweeps."""
        for _ in range(count):
            self.x = sweep(self.target.at(self.beta), self.kernel, self.x, self.rng, backward)

    def sweep_once(self, anew: Collection[str] = ()) -> None:
        """Make one sweep without preparing the next one."""
        self.x = sweep(self.target.at(self.beta), self.kernel, self.x, self.rng, anew=anew)

    def trace(self, count: int) -> Array:
        """Make `count` sweeps; return the log density after each, (count, rows)."""
        out = np.empty((count, self.target.rows))
        for t in range(count):
            self.sweep(1)
            out[t] = self.log_density()
        return out

    def anneal(self, betas: Array, joint: bool = False, backward: bool = False) -> Array:
        """Make one sweep at each of betas[1:]; return the importance log weights, (rows,)."""
        weight = np.zeros(self.target.rows)
        for old, new in zip(betas, betas[1:], strict=False):
            weight += times(new - old, self.path()[1]) if joint else self._gain(old, new, backward)
            self.beta[:] = new
            anew = set() if joint else marginalised_layers(self.target, backward)
            self.x = sweep(
                self.target.at(self.beta), self.kernel, self.x, self.rng, backward, anew=anew
            )
        return weight

    def _gain(self, old: float, new: float, backward: bool) -> Array:
        """Return log p_new - log p_old with layers marginalised; -inf for impossible states."""
        before, after = (self._summed(beta, backward) for beta in (old, new))
        possible = np.isfinite(after)
        return np.where(possible, after - np.where(possible, before, 0.0), -np.inf)

    def _summed(self, beta: float, backward: bool) -> Array:
        """Return the log density at beta without the layers of marginalised_layers, (rows,)."""
        target, x = self.target.at(beta), dict(self.x)
        gained = np.zeros(target.rows)
        for name in marginalised_layers(target, backward):
            layer = target.structure.layers[name]
            eta = layer.shaped(target.natural(self.x, name))
            # Any possible state would do.
            likely = layer.unit.mode(eta)
            x[name] = np.where(
                target.components(name, target.free[name]), layer.flat(likely), x[name]
            )
            own = (
                eta * likely if layer.unit.width == 1 else (eta * likely).sum(axis=-1)
            ) + layer.unit.log_h(likely)
            gained += np.where(target.free[name], layer.unit.log_normalizer(eta) - own, 0.0).sum(
                axis=1
            )
        return gained + target.log_density(x)

    def values(self, rows: Array | slice = slice(None), dtype: type = np.float64) -> States:
        """Return the current states, of some rows if an index is given."""
        return {name: value[rows].astype(dtype, copy=False) for name, value in self.x.items()}

    def adopt(self, model: Model, kernel: Kernel, rng: np.random.Generator) -> None:
        """Continue from the current states with other parameters, kernel and random numbers."""
        self.target, self.kernel, self.rng = self.target.with_model(model), kernel, rng

    def place_at(self, x: States) -> None:
        """Continue from other states; observed units keep their values."""
        self.x = self.target.clamp({name: x[name] for name in self.x})

    def states(self) -> dict[str, Array]:
        """Return copies of the numbers of the current states, (rows, size), of finite layers."""
        layers = self.target.structure.layers
        finite = [name for name in self.x if layers[name].unit.support is not None]
        return {name: layers[name].states(self.x[name]) for name in finite}

    def place_states(self, states: dict[str, Array]) -> None:
        """Continue from the numbers of other states, (rows, size), of layers with free units."""
        x = dict(self.x)
        for name, given in states.items():
            layer = self.target.structure.layers[name]
            assert layer.unit.support is not None
            x[name] = layer.flat(layer.unit.support.take(given, axis=0))
        self.place_at(x)

    def two_valued(self) -> dict[str, Array]:
        """Return no layer: these chains keep no rows of bytes."""
        return {}

    def log_density(self) -> Array:
        """Return the log density of the current states at their beta, (rows,)."""
        return self.target.at(self.beta).log_density(self.x)

    def path(self) -> tuple[Array, Array]:
        """Return (path, power), each (rows,), with log p_beta(x) = path + beta * power."""
        at_0, at_1 = (self.target.at(b).log_density(self.x) for b in (0.0, 1.0))
        return at_0, at_1 - at_0

    def sweep_path(self) -> tuple[Array, Array]:
        """Make one sweep, and return the path after it."""
        self.sweep(1)
        return self.path()

    def keep(self) -> States:
        """Return a copy of the chain states, for `restore`."""
        return self.x

    def restore(self, kept: States, rows: Array) -> None:
        """Put the rows of a mask (rows,) back to their kept states."""
        self.x = {
            name: np.where(rows[:, None], kept[name], value) for name, value in self.x.items()
        }


# (complete state, layer, columns of a unit) -> log weights (rows, K) to add to its values.
Tilt = Callable[[States, str, Array], Array]


def sweep(
    target: Target,
    kernel: Kernel,
    x: States,
    rng: np.random.Generator,
    backward: bool = False,
    tilts: Mapping[str, Tilt] | None = None,
    anew: Collection[str] = (),
) -> States:
    """Make one sweep; return the new complete state, (rows, width) of every layer.

    `tilts` add log weights to the states of the units of some layers, which move unit by unit. The
    layers `anew` are drawn from their conditionals, whatever the kernel.
    """
    tilts = tilts or {}
    by_unit = target.pattern.by_unit | set(tilts)
    x = dict(x)
    order = [name for names in visited(target) for name in names]
    for name in order[::-1] if backward else order:
        by = Gibbs() if name in anew else kernel
        if name in by_unit:
            x[name] = _unit_by_unit(target, by, x, name, rng, backward, tilts.get(name))
        elif target.free[name].any():
            layer = target.structure.layers[name]
            eta = layer.shaped(target.natural(x, name))
            moved = layer.flat(_moved(target, by, layer.unit, eta, layer.shaped(x[name]), rng))
            x[name] = np.where(target.components(name, target.free[name]), moved, x[name])
    return x


@dataclass(eq=False)
class _Child:
    """A directed layer below the layer that moves, with its input kept up to date."""

    layer: Layer
    # (rows, width).
    value: Array
    # (rows, width).
    zeta: Array
    # (rows, size) bool: the units that do() has not set.
    alive: Array
    # (width of parent, width of child).
    weight: Weight

    def rows_of(self, columns: Array) -> tuple[Array, Array]:
        """Return the components of the child that arrows from `parents` reach, and the weights."""
        block = self.weight[columns]
        block = block.toarray() if is_sparse(block) else block
        k = self.layer.unit.width
        units = np.flatnonzero((block != 0).any(axis=0).reshape(-1, k).any(axis=1))
        reached = self.layer.columns(units)
        return reached, block[:, reached]

    def log_prob(self, reached: Array, change: Array) -> Array:
        """Return the sum of log p(x_c | zeta_c + change) over the `reached` components, (rows,)."""
        k = self.layer.unit.width
        shape = (len(self.zeta), -1) if k == 1 else (len(self.zeta), -1, k)
        value, zeta = (
            self.value[:, reached].reshape(shape),
            (self.zeta[:, reached] + change).reshape(shape),
        )
        own = self.layer.unit.log_conditional(value, zeta)
        return np.asarray(np.where(self.alive[:, reached[::k] // k], own, 0.0).sum(axis=1))


def _unit_by_unit(
    target: Target,
    kernel: Kernel,
    x: States,
    name: str,
    rng: np.random.Generator,
    backward: bool,
    tilt: Tilt | None = None,
) -> Array:
    s = target.structure
    layer = s.layers[name]
    x = {**x, name: x[name].copy()}
    value = x[name]
    outer = np.array(target.outer_field(x, name))
    directed = name in s.directed_layers
    zeta = np.array(target.model.inputs(x, name)) if directed else None
    children = [_child(target, x, arrow, zeta) for arrow in s.arrows_from[name]]
    inside = [target.model.weight(c) for c in s.undirected if c.a == c.b == name]
    tables = _Tables(target, x, name) if target.pattern.in_tables else None
    order = np.flatnonzero(target.free[name].any(axis=0))
    for index in order[::-1] if backward else order:
        columns = layer.columns(np.array([index]))
        old = value[:, columns].copy()
        eta = outer[:, columns]
        if directed and zeta is not None:
            link = layer.unit.link(zeta[:, columns] if layer.unit.width > 1 else zeta[:, index])
            eta = eta + target.beta[:, None] * np.maximum(link.reshape(len(link), -1), NEVER_ON)
        extra: Array | float = 0.0 if tilt is None else tilt(x, name, columns)
        if tables is not None:
            extra = extra + tables.log_weights(index)
        new = _moved_unit(target, kernel, layer.unit, eta, old, children, columns, rng, extra)
        new = np.where(target.free[name][:, [index]], new, old)
        value[:, columns] = new
        step = new - old
        if tables is not None:
            tables.moved(index, new)
        for weight in inside:
            add_rows(outer, target.beta[:, None] * step, weight, columns)
        for child in children:
            if child.layer.unit.canonical:
                add_rows(child.zeta, step, child.weight, columns)
            else:
                # Adding up changes would leave rounding errors in an input that is exactly 0.
                child.zeta[:] = target.model.inputs(x, child.layer.name)
    return value


class _Tables:
    """The tables of a target, and the current states of all units."""

    def __init__(self, target: Target, x: States, name: str) -> None:
        s = target.structure
        self.target, self.layer, self.first = target, s.layers[name], s.first_unit[name]
        self.states = joined_states(s, x)
        # The number of the unit whose do() removes a table.
        child = s.table_index.child
        intervened = np.concatenate([target.intervened[n] for n in s.layers], axis=1)
        self.alive = np.where(child >= 0, ~intervened[:, child], True)

    def log_weights(self, unit: int) -> Array:
        """Return the log weights (rows, K) of the states of a unit from its tables."""
        s = self.target.structure
        if not s.tabled[self.layer.name][unit]:
            return np.zeros((1, 1))
        terms, own = self.target.model.table_terms, self.first + unit
        tables, found = s.table_index.log_weights(terms, self.states, own)
        share = np.where(self.alive[:, tables, None], found, 0.0).sum(axis=1)
        return times(self.target.beta[:, None], share)

    def moved(self, unit: int, value: Array) -> None:
        """Update the states with the new values (rows, width) of a unit."""
        shaped = value if self.layer.unit.width > 1 else value[:, 0]
        if self.layer.unit.support is not None:
            self.states[:, self.first + unit] = self.layer.unit.state_of(shaped)


def _child(target: Target, x: States, arrow: Coupling, own_input: Array | None) -> _Child:
    same = arrow.a == arrow.b and own_input is not None
    zeta = own_input if same else np.array(target.model.inputs(x, arrow.b))
    assert zeta is not None
    return _Child(
        target.structure.layers[arrow.b],
        x[arrow.b],
        zeta,
        ~target.intervened[arrow.b],
        target.model.weight(arrow),
    )


def _moved(
    target: Target, kernel: Kernel, unit: Unit, eta: Array, old: Array, rng: np.random.Generator
) -> Array:
    """Return new values of independent units with natural parameters eta."""
    if unit.support is None:
        return unit.sample(eta, rng)
    current = unit.state_of(old)
    prob = transition(target, kernel, unit.prob(eta), current)
    return unit.support[next_state(prob, current, rng.random(current.shape))]


def _moved_unit(
    target: Target,
    kernel: Kernel,
    unit: Unit,
    eta: Array,
    old: Array,
    children: list[_Child],
    columns: Array,
    rng: np.random.Generator,
    extra: Array | float,
) -> Array:
    """Return new values (rows, width of the unit) of one unit in every row."""
    shaped = eta if unit.width > 1 else eta[:, 0]
    if unit.support is None:
        return unit.sample(shaped, rng)[:, None]
    support = unit.support.reshape(len(unit.support), unit.width)
    log_weights = unit.log_weights(shaped)
    for child in children:
        reached, block = child.rows_of(columns)
        if len(reached):
            share = np.stack([child.log_prob(reached, (v - old) @ block) for v in support], axis=1)
            log_weights = log_weights + times(target.beta[:, None], share)
    log_weights = log_weights + extra
    # If all states of a unit are impossible, it moves to any of them.
    impossible = np.isneginf(log_weights).all(axis=1, keepdims=True)
    prob = softmax(np.where(impossible, 0.0, log_weights))
    current = unit.state_of(old if unit.width > 1 else old[:, 0])
    return support[
        next_state(transition(target, kernel, prob, current), current, rng.random(current.shape))
    ]


def transition(target: Target, kernel: Kernel, prob: Array, current: Array) -> Array:
    """Return the probabilities (rows, ..., K) of the next state.

    They come from the kernel; at beta = 0 they are the conditional probabilities.
    """
    exact = (target.beta == 0).reshape(-1, *[1] * (prob.ndim - 1))
    return np.where(exact, prob, moves(kernel, prob, current))


def moves(kernel: Kernel, prob: Array, current: Array) -> Array:
    """Return kernel.transition(prob, current); PgmError unless it consists of probabilities."""
    found = np.asarray(kernel.transition(prob, current))
    if found.shape != prob.shape or not (
        np.all(found >= -1e-12) and np.all(np.abs(found.sum(axis=-1) - 1) < 1e-6)
    ):
        sums = found.sum(axis=-1)
        what = (
            f"shape {found.shape}"
            if found.shape != prob.shape
            else (
                f"numbers from {found.min():.4g} on with sums from {sums.min():.4g} to "
                f"{sums.max():.4g}"
            )
        )
        raise PgmError(
            f"the kernel {kernel!r} must give probabilities of shape {prob.shape} that sum to 1 "
            f"over the last axis, not {what}"
        )
    return found


def next_state(prob: Array, current: Array, u: Array) -> Array:
    """Return states (...,) drawn from probabilities (..., K) by one uniform number each.

    On the unit interval, the moves to other values come first, in the order of the values, and then
    the current state.
    """
    here = np.arange(prob.shape[-1]) == current[..., None]
    hit = ~here & (u[..., None] < np.cumsum(np.where(here, 0.0, prob), axis=-1))
    return np.where(hit.any(axis=-1), hit.argmax(axis=-1), current)
