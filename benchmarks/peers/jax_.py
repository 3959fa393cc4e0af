"""Hand-written JAX, on the CPU: float32, whole runs compiled, keys of the default generator.

softplus is written out: jax.nn.softplus is logaddexp, which takes five times as long on CPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = np.ndarray


def _f32(*arrays: Array) -> list[jax.Array]:
    return [jnp.asarray(np.asarray(a, dtype=np.float32)) for a in arrays]


def _softplus(x: jax.Array) -> jax.Array:
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


def _gibbs(key: jax.Array, x: jax.Array, field: jax.Array) -> jax.Array:
    return (jax.random.uniform(key, field.shape) < jax.nn.sigmoid(field)).astype(jnp.float32)


def _flip_state(key: jax.Array, x: jax.Array, field: jax.Array) -> jax.Array:
    return jnp.where(jax.random.uniform(key, field.shape) < jnp.exp(field * (1 - 2 * x)), 1 - x, x)


def _going_on(step: Callable[..., Any], state: Any, *fixed: Any) -> Callable[[int], Any]:
    """run(count) of `count` compiled steps (state, key, *fixed) -> state, from where the last run
    ended.
    """

    @partial(jax.jit, donate_argnums=0)
    def steps(state: Any, key: jax.Array, count: int, *fixed: Any) -> Any:
        def body(i: int, pair: Any) -> Any:
            state, key = pair
            key, one = jax.random.split(key)
            return step(state, one, *fixed), key

        return jax.lax.fori_loop(0, count, body, (state, key))

    kept = {"state": state, "key": jax.random.key(0)}

    def run(count: int) -> Any:
        kept["state"], kept["key"] = steps(kept["state"], kept["key"], count, *fixed)
        return jax.block_until_ready(kept["state"])

    return run


def sweeps(weight: Array, b: Array, c: Array, v: Array) -> Callable[[int], jax.Array]:
    """Block Gibbs sweeps of an RBM; run(count) returns the visible states."""
    return _rbm(
        weight, b, c, np.asarray(v), _gibbs, np.zeros(np.shape(v), dtype=bool), clamped=False
    )


def flip_sweeps(weight: Array, b: Array, c: Array, v: Array) -> Callable[[int], jax.Array]:
    """Flip-the-state sweeps of an RBM; otherwise like `sweeps`."""
    return _rbm(
        weight, b, c, np.asarray(v), _flip_state, np.zeros(np.shape(v), dtype=bool), clamped=False
    )


def clamped_sweeps(weight: Array, b: Array, c: Array, rows: Array) -> Callable[[int], jax.Array]:
    """Gibbs sweeps with the visible units of each row that are not NaN held fixed."""
    return _rbm(weight, b, c, np.nan_to_num(rows), _gibbs, ~np.isnan(rows), clamped=True)


def _rbm(
    weight: Array,
    b: Array,
    c: Array,
    v: Array,
    move: Callable[..., jax.Array],
    seen: Array,
    clamped: bool,
) -> Callable[[int], jax.Array]:
    def step(
        state: Any, key: jax.Array, w: jax.Array, b: jax.Array, c: jax.Array, seen: jax.Array
    ) -> Any:
        one, two = jax.random.split(key)
        v, h = state
        h = move(one, h, v @ w + c)
        new = move(two, v, h @ w.T + b)
        return (jnp.where(seen, v, new) if clamped else new), h

    first = (*_f32(v), jnp.zeros((len(v), len(c)), dtype=jnp.float32))
    run = _going_on(step, first, *_f32(weight, b, c), jnp.asarray(seen))
    return lambda count: run(count)[0]


def dbm_sweeps(
    w1: Array, w2: Array, a: Array, b: Array, c: Array, v: Array
) -> Callable[[int], jax.Array]:
    """Block Gibbs sweeps of a DBM of three layers: the middle one, then the other two."""

    def step(state: Any, key: jax.Array, w1: Any, w2: Any, a: Any, b: Any, c: Any) -> Any:
        one, two, three = jax.random.split(key, 3)
        down, top = state
        middle = _gibbs(one, down, down @ w1 + top @ w2.T + b)
        return _gibbs(two, down, middle @ w1.T + a), _gibbs(three, top, middle @ w2 + c)

    first = (*_f32(v), jnp.zeros((len(v), len(c)), dtype=jnp.float32))
    run = _going_on(step, first, *_f32(w1, w2, a, b, c))
    return lambda count: run(count)[0]


def ising(n: int, beta: float) -> Callable[[int], Any]:
    """Sweeps of a periodic n x n lattice of spins, even and odd sites in boards (n, n / 2) of their
    own.
    """
    odd_rows = (jnp.arange(n) % 2 == 1)[:, None]
    boards = tuple(
        jnp.asarray(2 * b - 1, dtype=jnp.float32)
        for b in np.random.default_rng(0).integers(0, 2, (2, n, n // 2))
    )

    def half(key: jax.Array, x: jax.Array, left: jax.Array) -> jax.Array:
        side = jnp.where(left, jnp.roll(x, 1, 1), jnp.roll(x, -1, 1))
        near = x + side + jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0)
        return jnp.where(
            jax.random.uniform(key, x.shape) < jax.nn.sigmoid(2 * beta * near), 1.0, -1.0
        )

    def step(state: Any, key: jax.Array) -> Any:
        one, two = jax.random.split(key)
        even = half(one, state[1], ~odd_rows)
        return even, half(two, even, odd_rows)

    return _going_on(step, boards)


def pcd(
    weight: Array, b: Array, c: Array, x: Array, chain: Array, rate: float, batch: int = 100
) -> Callable[[int], Any]:
    """Updates of PCD-1 of an RBM; chain: hidden states (chains, hidden). run returns (w, b, c)."""

    def step(state: Any, key: jax.Array, rows: jax.Array) -> Any:
        w, b, c, chain, place = state
        one, two = jax.random.split(key)
        v = jax.lax.dynamic_slice_in_dim(rows, place, batch)
        up = jax.nn.sigmoid(v @ w + c)
        down = _gibbs(one, v, chain @ w.T + b)
        h = _gibbs(two, chain, down @ w + c)
        w, b, c = (
            _stepped(w, v, up, down, h, rate),
            _moved(b, v, down, rate),
            _moved(c, up, h, rate),
        )
        return w, b, c, h, (place + batch) % len(rows)

    run = _going_on(step, (*_f32(weight, b, c, chain), jnp.array(0)), *_f32(x))
    return lambda count: run(count)[:3]


def _stepped(w: Any, x: Any, y: Any, fx: Any, fy: Any, rate: float) -> jax.Array:
    return w + rate * (x.T @ y / len(x) - fx.T @ fy / len(fx))


def _moved(b: Any, x: Any, fx: Any, rate: float) -> jax.Array:
    return b + rate * (x.mean(0) - fx.mean(0))


def sap(
    w1: Array,
    w2: Array,
    a: Array,
    b: Array,
    c: Array,
    x: Array,
    chain: Array,
    rate: float,
    rounds: int = 5,
    batch: int = 100,
) -> Callable[[int], Any]:
    """Updates of stochastic approximation for a DBM, `rounds` of mean field; chain: states
    of the middle.
    """

    def step(state: Any, key: jax.Array, rows: jax.Array) -> Any:
        w1, w2, a, b, c, middle, place = state
        one, two, three = jax.random.split(key, 3)
        v = jax.lax.dynamic_slice_in_dim(rows, place, batch)
        below, q2 = v @ w1 + b, jnp.full((batch, len(c)), 0.5)
        for _ in range(rounds):
            q1 = jax.nn.sigmoid(below + q2 @ w2.T)
            q2 = jax.nn.sigmoid(q1 @ w2 + c)
        down, top = _gibbs(one, v, middle @ w1.T + a), _gibbs(two, q2, middle @ w2 + c)
        h = _gibbs(three, middle, down @ w1 + top @ w2.T + b)
        w1, w2 = _stepped(w1, v, q1, down, h, rate), _stepped(w2, q1, q2, h, top, rate)
        a, b, c = _moved(a, v, down, rate), _moved(b, q1, h, rate), _moved(c, q2, top, rate)
        return w1, w2, a, b, c, h, (place + batch) % len(rows)

    run = _going_on(step, (*_f32(w1, w2, a, b, c, chain), jnp.array(0)), *_f32(x))
    return lambda count: run(count)[:5]


def ais(
    weight: Array, b: Array, c: Array, base: Array, betas: Array, chains: int
) -> Callable[[], float]:
    """Log Z by annealing from independent units with log-odds `base`, hidden units summed out of
    the weights.
    """
    arrays, keys = _f32(weight, b, c, base), {"next": jax.random.key(0)}
    pairs = tuple(_f32(betas[:-1], betas[1:]))
    log_z_0 = np.logaddexp(0, base).sum() + len(c) * np.log(2)

    @jax.jit
    def anneal(key: jax.Array, pairs: Any, w: Any, b: Any, c: Any, base: Any) -> jax.Array:
        def step(state: Any, pair: Any) -> Any:
            v, total, key = state
            old, new = pair
            key, one, two = jax.random.split(key, 3)
            field = v @ w + c
            gain = (_softplus(new * field) - _softplus(old * field)).sum(1)
            h = _gibbs(one, field, new * field)
            down = _gibbs(two, v, (1 - new) * base + new * (h @ w.T + b))
            return (down, total + (new - old) * (v @ (b - base)) + gain, key), None

        key, one = jax.random.split(key)
        v = _gibbs(one, base, jnp.broadcast_to(base, (chains, len(base))))
        return jax.lax.scan(step, (v, jnp.zeros(chains), key), pairs)[0][1]

    def job() -> float:
        keys["next"], key = jax.random.split(keys["next"])
        total = np.asarray(anneal(key, pairs, *arrays), dtype=np.float64)
        return float(log_z_0 + np.logaddexp.reduce(total) - np.log(chains))

    return job


def _states(bits: int) -> Array:
    return ((np.arange(2**bits)[:, None] >> np.arange(bits)) & 1).astype(np.float32)


def log_z(weight: Array, b: Array, c: Array, bits: int, chunk: int = 10) -> Callable[[], float]:
    """Log Z by 2^bits states of the hidden units, in chunks whose low bits' fields are computed
    once.
    """
    chunk = min(chunk, bits)
    low, high = _f32(_states(chunk), _states(bits - chunk))
    arrays = _f32(weight, b, c)

    @jax.jit
    def sums(low: Any, high: Any, w: Any, b: Any, c: Any) -> Any:
        fields, weights = low @ w[:, :chunk].T + b, low @ c[:chunk]

        def part(state: Any) -> jax.Array:
            total = (
                _softplus(fields + w[:, chunk:bits] @ state).sum(1)
                + weights
                + state @ c[chunk:bits]
            )
            top = total.max()
            return top + jnp.log(jnp.exp(total - top).sum())

        return jax.lax.map(part, high)

    return lambda: float(
        np.logaddexp.reduce(np.asarray(sums(low, high, *arrays), dtype=np.float64))
    )


def posterior(weight: Array, b: Array, c: Array, rows: Array) -> Callable[[int], Any]:
    """Exact posterior means of every row's missing pixels and hidden units; run(count) of the next
    `count` rows.
    """
    missing = np.argwhere(np.isnan(rows))[:, 1].reshape(len(rows), -1)
    arrays = _f32(weight, b, c, np.nan_to_num(rows), _states(missing.shape[1]))
    place = {"next": 0}

    @jax.jit
    def several(
        start: Any,
        pixels: Any,
        hidden: Any,
        count: Any,
        missing: Any,
        w: Any,
        b: Any,
        c: Any,
        known: Any,
        states: Any,
    ) -> Any:
        def one(i: int, found: Any) -> Any:
            row = (start + i) % len(known)
            gap = missing[row]
            field = states @ w[gap] + (known[row] @ w + c)
            p = jax.nn.softmax(_softplus(field).sum(1) + states @ b[gap])
            return found[0].at[i].set(p @ states), found[1].at[i].set(p @ jax.nn.sigmoid(field))

        return jax.lax.fori_loop(0, count, one, (pixels, hidden))

    def run(count: int) -> Any:
        start = place["next"]
        place["next"] += count
        # A power of two, so that few shapes are compiled.
        room = 2 ** max(0, count - 1).bit_length()
        pixels, hidden = jnp.zeros((room, missing.shape[1])), jnp.zeros((room, len(c)))
        found = jax.block_until_ready(
            several(start, pixels, hidden, count, jnp.asarray(missing), *arrays)
        )
        return found[0][:count], found[1][:count]

    return run


def belief_bound(
    biases: list[Array], weights: list[Array], x: Array, tolerance: float
) -> Callable[[], Array]:
    """The rounds of numpy_.BeliefRounds, compiled whole, in float32: the bound of every row,
    (rows,).
    """
    arrays = tuple(_f32(*biases)), tuple(_f32(*weights)), *_f32(x)

    @jax.jit
    def settled(bias: Any, weight: Any, x: jax.Array) -> jax.Array:
        q = [jnp.full((len(x), len(b)), 0.5) for b in bias[:2]] + [x]
        xi = [jnp.full((len(x), len(b)), 0.5) for b in bias[1:]]
        for _ in range(4):
            xi = _tightened(bias, weight, q, xi)

        def another(state: Any) -> Any:
            q, xi, _, made = state
            new = list(q)
            for layer in (1, 0):
                new[layer] = _updated(bias, weight, new, xi, layer)
            change = jnp.maximum(jnp.abs(new[0] - q[0]).max(), jnp.abs(new[1] - q[1]).max())
            return new, _tightened(bias, weight, new, xi), change, made + 1

        on = (q, xi, jnp.array(jnp.inf), 0)
        q, xi, _, _ = jax.lax.while_loop(lambda s: (s[2] > tolerance) & (s[3] < 200), another, on)
        return _bound(bias, weight, q, xi)

    return lambda: np.asarray(settled(*arrays))


def _log_sums(q: Any, w: Any, b: Any, xi: Any) -> Any:
    """For k = 0, 1: log E[exp((k - xi) z)], and the tilted mean and variance of z, each (rows,
    children).
    """
    found = []
    for k in (0.0, 1.0):
        e = jnp.exp((k - xi)[:, None, :] * w)
        sums = 1 - q[:, :, None] + q[:, :, None] * e
        tilted = q[:, :, None] * e / sums
        variance = (tilted * (1 - tilted) * w**2).sum(1)
        found.append((jnp.log(sums).sum(1) + (k - xi) * b, (tilted * w).sum(1) + b, variance))
    return found


def _tightened(bias: Any, weight: Any, q: Any, xi: Any) -> Any:
    """One Newton step in xi for both layers of children, kept where it does not raise F."""
    out = []
    for child in (0, 1):
        mean = q[child] @ weight[child] + bias[child + 1]
        (log0, m0, s0), (log1, m1, s1) = _log_sums(
            q[child], weight[child], bias[child + 1], xi[child]
        )
        phi = jax.nn.sigmoid(log1 - log0)
        g = mean - (1 - phi) * m0 - phi * m1
        h = (1 - phi) * s0 + phi * s1 + phi * (1 - phi) * (m1 - m0) ** 2
        new = jnp.clip(xi[child] - g / (h + 1e-12), 0, 1)
        after = [s[0] for s in _log_sums(q[child], weight[child], bias[child + 1], new)]
        better = new * mean + _log_add(*after) <= xi[child] * mean + _log_add(log0, log1)
        out.append(jnp.where(better, new, xi[child]))
    return out


def _log_add(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.maximum(x, y) + jnp.log1p(jnp.exp(-jnp.abs(x - y)))


def _updated(bias: Any, weight: Any, q: Any, xi: Any, layer: int) -> jax.Array:
    """Eq. 25 for every unit of a layer, one after the other."""
    w, shift = weight[layer], xi[layer]
    logs = tuple(s[0] for s in _log_sums(q[layer], w, bias[layer + 1], shift))
    above = q[layer - 1] @ weight[layer - 1] if layer else 0.0
    start = bias[layer] + (q[layer + 1] - shift) @ w.T + above

    def unit(j: int, state: Any) -> Any:
        mean, log0, log1 = state
        old, row = mean[:, j][:, None], w[j]
        e0, e1 = jnp.exp(-shift * row), jnp.exp((1 - shift) * row)
        sum0, sum1 = 1 - old + old * e0, 1 - old + old * e1
        phi = jax.nn.sigmoid(log1 - log0)
        u = start[:, j] - ((1 - phi) * (e0 - 1) / sum0 + phi * (e1 - 1) / sum1).sum(1)
        new = jax.nn.sigmoid(u)[:, None]
        log0 += jnp.log((1 - new + new * e0) / sum0)
        log1 += jnp.log((1 - new + new * e1) / sum1)
        return mean.at[:, j].set(new[:, 0]), log0, log1

    return jax.lax.fori_loop(0, len(w), unit, (q[layer], *logs))[0]


def _bound(bias: Any, weight: Any, q: Any, xi: Any) -> jax.Array:
    """Eq. 20 and the entropy."""
    total = q[0] @ bias[0] - _softplus(bias[0]).sum()
    for layer in (0, 1):
        p = jnp.clip(q[layer], 1e-30, 1 - 1e-7)
        total -= (p * jnp.log(p) + (1 - p) * jnp.log1p(-p)).sum(1)
        mean = q[layer] @ weight[layer] + bias[layer + 1]
        f = xi[layer] * mean + _log_add(
            *(s[0] for s in _log_sums(q[layer], weight[layer], bias[layer + 1], xi[layer]))
        )
        total += (q[layer + 1] * mean - f).sum(1)
    return total
