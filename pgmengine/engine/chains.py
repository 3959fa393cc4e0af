"""Chains of a kernel on a target: the protocol, the choice of an engine, starts and refusals."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Executor
from copy import deepcopy
from typing import Any, Protocol, TypeAlias

import numpy as np

from pgmengine.base.checks import check_kernel
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, States
from pgmengine.base.work.division import check_divided
from pgmengine.base.work.executors import part_count, run_jobs, spawn
from pgmengine.declare.model import Model
from pgmengine.engine import layerwise, reference
from pgmengine.engine.ancestral_draws import Conditionals
from pgmengine.engine.kernels import Kernel
from pgmengine.engine.single_site import sweeps
from pgmengine.evidence.target import Target
from pgmengine.model.weights import count


class Chains(Protocol):
    """One chain for each row of a target, with a complete state (rows, width) of every layer.

    `beta` (rows,) may be changed in place between sweeps. At beta = 0 every kernel draws exactly.
    """

    beta: Array
    target: Target

    def sweep(self, count: int, backward: bool = False) -> None:
        """Make `count` sweeps; backward ones visit layers and units in the reverse order."""

    def sweep_once(self, anew: Collection[str] = ()) -> None:
        """Make one sweep without preparing the next one.

        It is faster than `sweep` if parameters change between any two sweeps. The layers `anew` are
        drawn from their conditionals, whatever the kernel.
        """

    def trace(self, count: int) -> Array:
        """Make `count` sweeps; return the log density after each, (count, rows)."""
        ...

    def anneal(self, betas: Array, joint: bool = False, backward: bool = False) -> Array:
        """Make one sweep at each of betas[1:]; return the importance log weights, (rows,).

        log w = sum_t log f_(betas[t+1])(x_t) - log f_(betas[t])(x_t), with x_t the state before the
        sweep at betas[t+1]. f is the density after marginalising the layers that a sweep draws
        first (marginalised_layers). These are drawn anew by Gibbs sampling, whatever the kernel,
        before any other layer depends on them. The other layers alone are therefore a Markov chain,
        whose importance weights vary less. `joint`: f is the density of all layers, which all move
        by the kernel.
        """
        ...

    def values(self, rows: Rows = slice(None), dtype: type = np.float64) -> States:
        """Return the current states, of some rows if an index is given."""
        ...

    def states(self) -> dict[str, Array]:
        """Return copies of the numbers of the current states, (rows, size), of finite layers."""
        ...

    def place_states(self, states: dict[str, Array]) -> None:
        """Continue from the numbers of other states, (rows, size), of layers with free units.

        Observed units must have the states that they have now.
        """

    def two_valued(self) -> dict[str, Array]:
        """Return the numbers of the current states, (rows, size) bytes that must not be changed.

        A layer is missing unless its units have two values, which are integers, and the chains
        store them as bytes.
        """
        ...

    def adopt(self, model: Model, kernel: Kernel, rng: np.random.Generator) -> None:
        """Continue from the current states with other parameters, kernel and random numbers."""

    def place_at(self, x: States) -> None:
        """Continue from other states; observed units keep their values."""

    def log_density(self) -> Array:
        """Return the log density of the current states at their beta, (rows,)."""
        ...

    def path(self) -> tuple[Array, Array]:
        """Return (path, power), each (rows,), with log p_beta(x) = path + beta * power."""
        ...

    def sweep_path(self) -> tuple[Array, Array]:
        """Make one sweep, and return the path after it."""
        ...

    def keep(self) -> Any:
        """Return a copy of the chain states, for `restore`."""

    def restore(self, kept: Any, rows: Array) -> None:
        """Put the rows of a mask (rows,) back to their kept states."""


# An index of rows.
Rows: TypeAlias = "Array | slice"

Engine: TypeAlias = (
    type[sweeps.TabledChains] | type[layerwise.CompiledChains] | type[reference.PlainChains]
)


def make_chains(
    target: Target,
    kernel: Kernel,
    x: States,
    rng: np.random.Generator,
    streams: Array | None = None,
) -> Chains:
    """Return compiled chains, or chains in numpy for kernels and units of users.

    Parameters
    ----------
    target : one row for each chain; PgmError if it cannot be swept.
    kernel : the transition of a unit.
    x : complete states, (rows, width) of every layer.
    rng : the source of random numbers.
    streams : (rows,) the number of each chain, which selects its stream of random numbers. If
        chains with copies of one rng are divided into groups, numbers run through all groups. Only
        compiled chains read it.
    """
    check_kernel(kernel)
    if why := refusal(target):
        raise PgmError(why)
    return engine_for(target, kernel)(target, kernel, x, rng, streams)


def engine_for(target: Target, kernel: Kernel) -> Engine:
    """Return the class of chains that sweeps a target by a kernel."""
    if sweeps.knows(target, kernel):
        return sweeps.TabledChains
    return layerwise.CompiledChains if layerwise.knows(target, kernel) else reference.PlainChains


def over_chains(
    executor: Executor | None,
    function: Callable[..., Any],
    target: Target,
    kernel: Kernel,
    x: States,
    rng: np.random.Generator,
    work: float,
    *more: Any,
) -> list[Any]:
    """Return function(target, x, rng, streams, *more) of groups of chains, in order.

    Without an executor all chains are one group. Compiled chains do not depend on each other, so
    that the results are the same to the last bit.
    """
    check_kernel(kernel)
    count = (
        1
        if executor is None or engine_for(target, kernel) is reference.PlainChains
        else part_count(work, target.rows)
    )
    groups, stream = np.array_split(np.arange(target.rows), count), spawn(rng, 1)[0]
    check_divided(groups, target.rows, "groups of chains")
    jobs = [
        (target.take(some), {n: v[some] for n, v in x.items()}, deepcopy(stream), some, *more)
        for some in groups
    ]
    return run_jobs(
        executor,
        function,
        jobs if count > 1 else [(target, x, stream, groups[0], *more)],
        "groups of chains",
    )


def refusal(target: Target) -> str:
    """Return the reason why a target cannot be swept, or an empty string."""
    s = target.structure
    for name in target.pattern.by_unit:
        if s.layers[name].unit.support is None and any(
            c.a == name for c in target.pattern.acting_arrows
        ):
            return (
                f"layer {name!r} has {s.layers[name].unit!r} units, which are free and have "
                "directed children: their conditional is not in the family; observe them"
            )
    return ""


def start(target: Target, rng: np.random.Generator) -> States:
    """Draw an overdispersed state: directed units given their parents, others from r."""
    s = target.structure
    x = {name: np.array(value) for name, value in target.evidence.values.items()}
    for name in s.undirected_first:
        layer = s.layers[name]
        if not target.free[name].any():
            continue
        eta = np.zeros_like(x[name]) + target.reference.get(name, 0.0)
        if name in s.directed_layers:
            eta = layer.flat(layer.unit.link(layer.shaped(target.model.inputs(x, name))))
        drawn = layer.flat(layer.unit.sample(layer.shaped(eta), rng))
        x[name] = np.where(target.components(name, target.free[name]), drawn, x[name])
    return _from_conditionals(target, x, rng) if has_conditionals(target) else x


def has_conditionals(target: Target) -> bool:
    """Whether a free unit has a conditional table."""
    s = target.structure
    return any(
        (target.free[name] & (s.child_tables[name] >= 0)).any()
        for name in (s.layers if s.tables else ())
    )


def _from_conditionals(target: Target, x: States, rng: np.random.Generator) -> States:
    """Return states with new draws of units with a conditional, and of layers below them."""
    s, drawn = target.structure, Conditionals(target, x)
    for number, step in enumerate(s.drawing_steps):
        for name in step.layers if number else ():
            drawn.refresh(c.a for c in s.arrows_into[name])
            layer = s.layers[name]
            eta = layer.unit.link(layer.shaped(target.model.inputs(drawn.x, name)))
            new = layer.flat(layer.unit.sample(eta, rng))
            new = np.where(target.components(name, target.free[name]), new, drawn.x[name])
            drawn.put(name, new)
        if step.units:
            drawn.draw(step.units, rng)
    return drawn.refresh(s.layers)


def sweep_work(target: Target) -> float:
    """Return the work of a sweep of one chain in unit updates, with the updates of inputs."""
    s = target.structure
    return sum(layer.width for layer in s.layers.values()) + sum(
        count(target.model.weight(c)) / 8 for c in s.couplings
    )
