"""THRML: its Ising models, blocks, and sampling programs; the outer loop and the chains are
JAX's, as its users write.

Binary units x are spins s = 2 x - 1: biases and weights are converted, the distribution is the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from thrml import Block, SpinNode, sample_blocks
from thrml.models import IsingEBM, IsingSamplingProgram

Array = np.ndarray


def sweeps(weight: Array, b: Array, c: Array, v: Array) -> Callable[[int], jax.Array]:
    """Block Gibbs sweeps of an RBM; run(count) returns the visible states."""
    return _layered([weight], [b, c], (1, 0), v)


def dbm_sweeps(
    w1: Array, w2: Array, a: Array, b: Array, c: Array, v: Array
) -> Callable[[int], jax.Array]:
    """Block Gibbs sweeps of a DBM of three layers: the middle one, then the other two."""
    return _layered([w1, w2], [a, b, c], (1, (0, 2)), v)


def _layered(
    weights: list[Array], biases: list[Array], order: Sequence[Any], v: Array
) -> Callable[[int], jax.Array]:
    layers = [[SpinNode() for _ in b] for b in biases]
    edges = [
        (one, two)
        for low, high in zip(layers[:-1], layers[1:], strict=True)
        for one in low
        for two in high
    ]
    fields = [b / 2 for b in biases]
    for i, w in enumerate(weights):
        fields[i] = fields[i] + w.sum(axis=1) / 4
        fields[i + 1] = fields[i + 1] + w.sum(axis=0) / 4
    numbers = [
        jnp.asarray(np.concatenate(x), dtype=jnp.float32)
        for x in (fields, [w.ravel() / 4 for w in weights])
    ]
    model = IsingEBM([node for layer in layers for node in layer], edges, *numbers, jnp.array(1.0))
    blocks = [
        tuple(Block(layers[i]) for i in part) if isinstance(part, tuple) else Block(layers[part])
        for part in order
    ]
    flat = [i for part in order for i in (part if isinstance(part, tuple) else (part,))]
    states = [
        jnp.asarray(v, dtype=bool) if i == 0 else jnp.zeros((len(v), len(biases[i])), dtype=bool)
        for i in flat
    ]
    run = _run(IsingSamplingProgram(model, blocks, []), states, batched=True)
    return lambda count: run(count)[flat.index(0)]


def ising(n: int, beta: float) -> Callable[[int], list[jax.Array]]:
    """Sweeps of a periodic n x n lattice of spins in two colours; run returns the states of both,
    in rows.
    """
    nodes = [[SpinNode() for _ in range(n)] for _ in range(n)]
    edges = [
        (nodes[i][j], other)
        for i in range(n)
        for j in range(n)
        for other in (nodes[(i + 1) % n][j], nodes[i][(j + 1) % n])
    ]
    numbers = jnp.zeros(n * n), jnp.full(2 * n * n, beta)
    model = IsingEBM([node for row in nodes for node in row], edges, *numbers, jnp.array(1.0))
    colors = [
        Block([nodes[i][j] for i in range(n) for j in range(n) if (i + j) % 2 == odd])
        for odd in (0, 1)
    ]
    states = [jax.random.bernoulli(jax.random.key(i), 0.5, (n * n // 2,)) for i in (0, 1)]
    run = _run(IsingSamplingProgram(model, colors, []), states, batched=False)
    return lambda count: [(2.0 * x - 1).reshape(n, n // 2) for x in run(count)]


def _run(program: Any, states: list[jax.Array], batched: bool) -> Callable[[int], list[jax.Array]]:
    def sweep(key: jax.Array, state: list[jax.Array], program: Any) -> list[jax.Array]:
        return sample_blocks(key, list(state), [], program, [None] * len(state))[0]

    @eqx.filter_jit
    def steps(state: list[jax.Array], key: jax.Array, count: jax.Array, program: Any) -> Any:
        def body(i: int, pair: Any) -> Any:
            state, key = pair
            key, one = jax.random.split(key)
            if batched:
                keys = jax.random.split(one, len(state[0]))
                return jax.vmap(sweep, in_axes=(0, 0, None))(keys, state, program), key
            return sweep(one, state, program), key

        return jax.lax.fori_loop(0, count, body, (state, key))

    kept = {"state": states, "key": jax.random.key(0)}

    def run(count: int) -> list[jax.Array]:
        kept["state"], kept["key"] = steps(kept["state"], kept["key"], jnp.array(count), program)
        return jax.block_until_ready(kept["state"])

    return run
