"""Chains of a kernel on a target: where they start, what cannot be swept, and which engine sweeps
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Executor
from copy import deepcopy
from typing import Any, Protocol

import numpy as np

from pgmengine.base.checks import check_kernel
from pgmengine.base.errors import PgmError
from pgmengine.base.executors import part_count, run_jobs, spawn
from pgmengine.base.types import Array, States
from pgmengine.engine import compiled, plain
from pgmengine.graph.model import Model
from pgmengine.graph.target import Target
from pgmengine.graph.weights import count


class Chains(Protocol):
    """One chain for each row of a target; x is a complete state, (rows, width) of every layer.

    `beta` (rows,) may be changed in place between sweeps. At beta = 0 every kernel draws exactly.
    """

    beta: Array
    target: Target

    def sweep(self, count: int, backward: bool = False) -> None:
        """Make `count` sweeps; backward: layers and units in the reverse order, the reversal of a
        sweep.
        """

    def sweep_once(self, anew: Collection[str] = ()) -> None:
        """Make one sweep and keep nothing for the next: faster when the parameters change between
        any two sweeps.

        Layers to be drawn `anew` come from their conditionals, whatever the kernel.
        """

    def trace(self, count: int) -> Array:
        """Make `count` sweeps; the log density after each, (count, rows)."""

    def anneal(self, betas: Array, joint: bool = False, backward: bool = False) -> Array:
        """One sweep at each of betas[1:], all chains together; the log weights added up on the way,
        (rows,).

        log w = sum_t log f_(betas[t+1])(x_t) - log f_(betas[t])(x_t), x_t the state before the
        sweep at betas[t+1] and f the density with the layers that a sweep draws first
        (summed_layers) summed out: they are drawn anew, by Gibbs sampling whatever the kernel,
        before anything depends on them, so the others are a chain of their own, and its weights
        vary less. `joint`: f is the density itself, and all layers move by the kernel.
        """

    def values(self, rows: Any = slice(None), dtype: type = np.float64) -> States:
        """The current states, of some rows if an index is given."""

    def adopt(self, model: Model, kernel: Any, rng: np.random.Generator) -> None:
        """Go on from the present states with other parameters, kernel and random numbers."""

    def place_at(self, x: States) -> None:
        """Go on from other states; observed units keep theirs."""

    def log_density(self) -> Array:
        """Log density of the current states at their beta, (rows,)."""

    def path(self) -> tuple[Array, Array]:
        """(path, power), each (rows,): log p_beta = path + beta * power for the current states."""

    def sweep_path(self) -> tuple[Array, Array]:
        """One sweep, and the path after it."""

    def keep(self) -> Any:
        """A copy of the states, for restore."""

    def restore(self, kept: Any, rows: Array) -> None:
        """Put the rows of a mask back to their kept states."""


def make_chains(
    target: Target, kernel: Any, x: States, rng: np.random.Generator, streams: Array | None = None
) -> Chains:
    """Compiled chains, or the plain engine for kernels and units that it alone knows (those users
    add in Python).

    streams (rows,): the numbers of the chains among all those that are given copies of this rng;
    compiled ones only. PgmError for a target that cannot be swept.
    """
    check_kernel(kernel)
    if why := refusal(target):
        raise PgmError(why)
    if compiled.knows(target, kernel):
        return compiled.CompiledChains(target, kernel, x, rng, streams)
    return plain.PlainChains(target, kernel, x, rng)


def over_chains(
    executor: Executor | None,
    function: Callable[..., Any],
    target: Target,
    kernel: Any,
    x: States,
    rng: np.random.Generator,
    work: float,
    *more: Any,
) -> list[Any]:
    """function(target, x, rng, streams, *more) of groups of chains, in order; of all of them
    without an executor.

    Compiled chains know nothing of each other, so that these are the same bits.
    """
    check_kernel(kernel)
    count = (
        1
        if executor is None or not compiled.knows(target, kernel)
        else part_count(work, target.rows)
    )
    groups, stream = np.array_split(np.arange(target.rows), count), spawn(rng, 1)[0]
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
    """Why this target cannot be swept, or an empty string."""
    s = target.structure
    for name in target.pattern.by_unit:
        if s.layers[name].unit.support is None and any(
            c.a == name for c in target.pattern.live_arrows
        ):
            return (
                f"layer {name!r} has {s.layers[name].unit!r} units, which are free and have directed children: their "
                "conditional is not in the family; observe them"
            )
    return ""


def start(target: Target, rng: np.random.Generator) -> States:
    """A dispersed state: directed layers from their parents, others from the reference; observed
    units clamped.
    """
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
    return x


def sweep_work(target: Target) -> float:
    """Unit updates that a sweep of one chain comes to, changes of inputs included."""
    s = target.structure
    return sum(layer.width for layer in s.layers.values()) + sum(
        count(target.model.weight(c)) / 8 for c in s.couplings
    )
