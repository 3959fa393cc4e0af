"""Hand-written numpy: float32, in place, with reused buffers; float64 where the number of digits
matters.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit

Array = np.ndarray
Run = Callable[[int], Array]


def _f32(*arrays: Array) -> list[Array]:
    return [np.array(a, dtype=np.float32) for a in arrays]


class Layer:
    """Buffers of a layer of states (rows, size), drawn from fields that are made in place."""

    def __init__(self, rows: int, bias: Array, rng: np.random.Generator) -> None:
        self.bias, self.rng = bias, rng
        self.field, self.u, self.x = (
            np.zeros((rows, len(bias)), dtype=np.float32) for _ in range(3)
        )

    def field_from(self, *terms: tuple[Array, Array]) -> None:
        """field = bias + sum of x @ w."""
        (x, w), *more = terms
        np.matmul(x, w, out=self.field)
        for x, w in more:
            self.field += x @ w
        self.field += self.bias

    def gibbs(self) -> None:
        """x = u < 1 / (1 + e^-field), as u (1 + e^-field) < 1; e^-field may be infinite."""
        np.negative(self.field, out=self.field)
        with np.errstate(over="ignore"):
            np.exp(self.field, out=self.field)
        self.field += 1
        self.rng.random(out=self.u, dtype=np.float32)
        self.u *= self.field
        np.less(self.u, 1, out=self.x, casting="unsafe")

    def flip_state(self) -> None:
        """x flips with probability min(1, e^(field (1 - 2x))), the Metropolis step to the other
        state.
        """
        self.field *= 1 - 2 * self.x
        np.minimum(self.field, 0, out=self.field)
        np.exp(self.field, out=self.field)
        self.rng.random(out=self.u, dtype=np.float32)
        np.not_equal(self.x, self.u < self.field, out=self.x, casting="unsafe")


def sweeps(weight: Array, b: Array, c: Array, v: Array) -> Run:
    """Block Gibbs sweeps of an RBM, hidden units first; run(count) returns the visible states."""
    return _rbm(weight, b, c, v, Layer.gibbs)


def flip_sweeps(weight: Array, b: Array, c: Array, v: Array) -> Run:
    """Flip-the-state sweeps of an RBM; otherwise like `sweeps`."""
    return _rbm(weight, b, c, v, Layer.flip_state)


def clamped_sweeps(weight: Array, b: Array, c: Array, rows: Array) -> Run:
    """Gibbs sweeps with the visible units of each row that are not NaN held fixed."""
    seen = ~np.isnan(rows)
    known = np.nan_to_num(rows).astype(np.float32)
    return _rbm(weight, b, c, known, Layer.gibbs, lambda v: np.copyto(v, known, where=seen))


def _rbm(
    weight: Array,
    b: Array,
    c: Array,
    v: Array,
    move: Callable[[Layer], None],
    clamp: Callable[[Array], None] = lambda v: None,
) -> Run:
    rng = np.random.default_rng(0)
    w, b, c = _f32(weight, b, c)
    back = np.ascontiguousarray(w.T)
    visible, hidden = Layer(len(v), b, rng), Layer(len(v), c, rng)
    visible.x[:] = v

    def run(count: int) -> Array:
        for _ in range(count):
            hidden.field_from((visible.x, w))
            move(hidden)
            visible.field_from((hidden.x, back))
            move(visible)
            clamp(visible.x)
        return visible.x

    return run


def dbm_sweeps(w1: Array, w2: Array, a: Array, b: Array, c: Array, v: Array) -> Run:
    """Block Gibbs sweeps of a DBM of three layers: the middle one, then the other two."""
    rng = np.random.default_rng(0)
    w1, w2, a, b, c = _f32(w1, w2, a, b, c)
    down, middle, top = (Layer(len(v), bias, rng) for bias in (a, b, c))
    down.x[:] = v
    back1, back2 = np.ascontiguousarray(w1.T), np.ascontiguousarray(w2.T)

    def run(count: int) -> Array:
        for _ in range(count):
            middle.field_from((down.x, w1), (top.x, back2))
            middle.gibbs()
            down.field_from((middle.x, back1))
            down.gibbs()
            top.field_from((middle.x, w2))
            top.gibbs()
        return down.x

    return run


def ising(n: int, beta: float) -> Run:
    """Sweeps of a periodic n x n lattice of spins, even and odd sites in boards (n, n / 2) of their
    own.
    """
    rng = np.random.default_rng(0)
    up = expit(2 * beta * np.arange(-4, 5)).astype(np.float32)
    boards = [rng.choice(np.array([-1, 1], dtype=np.int8), size=(n, n // 2)) for _ in range(2)]
    odd_rows = (np.arange(n) % 2 == 1)[:, None]

    def run(count: int) -> Array:
        for _ in range(count):
            for own, other, left in ((0, 1, ~odd_rows), (1, 0, odd_rows)):
                x = boards[other]
                near = np.where(left, np.roll(x, 1, 1), np.roll(x, -1, 1))
                near += x
                near += np.roll(x, 1, 0)
                near += np.roll(x, -1, 0)
                near += 4
                new = rng.random(x.shape, dtype=np.float32) < up[near]
                boards[own] = 2 * new.astype(np.int8) - 1
        return boards

    return run


def _states(bits: int) -> Array:
    """All states of so many units, (2^bits, bits)."""
    return ((np.arange(2**bits)[:, None] >> np.arange(bits)) & 1).astype(np.float32)


def log_z(
    weight: Array, b: Array, c: Array, bits: int, precision: type, chunk: int = 9
) -> Callable[[], float]:
    """Log Z by the states of the hidden units, 2^bits of them (all, if bits is their number), in
    chunks of 2^chunk.

    The fields of a chunk are those of its low bits, computed once, and one row for its high bits:
    no products. float64: np.logaddexp, as one would write it; float32: softplus in place, in passes
    that numpy has vector instructions for.
    """
    chunk = min(chunk, bits)
    w, b, c = (np.asarray(a, dtype=precision) for a in (weight, b, c))
    low, high = _states(chunk).astype(precision), _states(bits - chunk).astype(precision)
    fields, weights = low @ w[:, :chunk].T + b, low @ c[:chunk]
    sums = (
        _softplus_sums
        if precision is np.float32
        else lambda x, work: np.logaddexp(0, x).sum(axis=1)
    )

    def job() -> float:
        x, work, parts = np.empty_like(fields), np.empty_like(fields), []
        for state in high:
            np.add(fields, w[:, chunk:bits] @ state, out=x)
            total = sums(x, work).astype(np.float64) + weights + state @ c[chunk:bits]
            parts.append(np.logaddexp.reduce(total))
        return float(np.logaddexp.reduce(parts))

    return job


def _softplus_sums(x: Array, work: Array) -> Array:
    """Sums over columns of log(1 + e^x) = max(x, 0) + log(1 + e^-|x|); x is destroyed."""
    np.abs(x, out=work)
    np.negative(work, out=work)
    np.exp(work, out=work)
    np.log1p(work, out=work)
    np.maximum(x, 0, out=x)
    work += x
    return work.sum(axis=1)


def posterior(
    weight: Array, b: Array, c: Array, rows: Array
) -> Callable[[int], tuple[Array, Array]]:
    """Exact posterior means of every row's missing pixels (as many in each) and of its hidden
    units.

    run(count): of the next `count` rows, by the 2^missing states of their pixels with the hidden
    units summed out.
    """
    w, b, c = _f32(weight, b, c)
    missing = np.argwhere(np.isnan(rows))[:, 1].reshape(len(rows), -1)
    known = np.nan_to_num(rows).astype(np.float32)
    states = _states(missing.shape[1])
    field, x, work = (np.empty((len(states), len(c)), dtype=np.float32) for _ in range(3))
    place = {"next": 0}

    def one(row: int) -> tuple[Array, Array]:
        np.matmul(states, w[missing[row]], out=field)
        np.add(field, known[row] @ w + c, out=field)
        np.copyto(x, field)
        total = _softplus_sums(x, work) + states @ b[missing[row]]
        p = np.exp(total - total.max())
        p /= p.sum()
        np.negative(field, out=field)
        np.exp(field, out=field)
        np.add(field, 1, out=field)
        np.reciprocal(field, out=field)
        return p @ states, p @ field

    def run(count: int) -> tuple[Array, Array]:
        start = place["next"]
        place["next"] += count
        pairs = [one(row % len(rows)) for row in range(start, start + count)]
        return np.array([p for p, _ in pairs]), np.array([h for _, h in pairs])

    return run


def belief_bound(
    biases: list[Array], weights: list[Array], x: Array, tolerance: float
) -> Callable[[], Array]:
    """The mean-field bound of a belief network v <- h1 <- h2 with all of v observed, (rows,): see
    BeliefRounds.
    """

    def job() -> Array:
        rounds = BeliefRounds(biases, weights, x)
        rounds.settle(tolerance)
        return rounds.bound()

    return job


class BeliefRounds:
    """Eqs. 20 to 25 of Saul, Jaakkola and Jordan (1996), all rows at once: unit after unit, xi by
    Newton steps.

    biases: of h2, h1, v; weights: h2 -> h1, h1 -> v.
    """

    def __init__(self, biases: list[Array], weights: list[Array], x: Array) -> None:
        self.bias, self.weight = biases, weights
        self.mean = [np.full((len(x), len(b)), 0.5) for b in self.bias[:2]] + [x]
        self.xi = [np.full((len(x), len(b)), 0.5) for b in self.bias[1:]]

    def log_sums(self, child: int, xi: Array) -> list[Array]:
        """log E[exp((k - xi) z)] for k = 0, 1, and the tilted means and variances of z, each (2,
        rows, children).
        """
        q, weight, bias = self.mean[child][:, :, None], self.weight[child], self.bias[child + 1]
        out = []
        for k in (0.0, 1.0):
            t = (k - xi)[:, None, :] * weight
            e = np.exp(t)
            sums = 1.0 - q + q * e
            tilted = q * e / sums
            out.append(
                (
                    np.log(sums).sum(axis=1) + (k - xi) * bias,
                    (tilted * weight).sum(axis=1) + bias,
                    (tilted * (1 - tilted) * weight**2).sum(axis=1),
                )
            )
        return [np.stack(part) for part in zip(*out, strict=True)]

    def tighten(self, child: int) -> None:
        """One Newton step in xi, kept where it does not raise F; F of every child."""
        mean = self.mean[child] @ self.weight[child] + self.bias[child + 1]
        logs, m1, m2 = self.log_sums(child, self.xi[child])
        phi = expit(logs[1] - logs[0])
        f = self.xi[child] * mean + np.logaddexp(*logs)
        g = mean - (1 - phi) * m1[0] - phi * m1[1]
        h = (1 - phi) * m2[0] + phi * m2[1] + phi * (1 - phi) * (m1[1] - m1[0]) ** 2
        new = np.clip(self.xi[child] - g / (h + 1e-12), 0, 1)
        better = new * mean + np.logaddexp(*self.log_sums(child, new)[0]) <= f
        self.xi[child] = np.where(better, new, self.xi[child])

    def update(self, layer: int) -> float:
        """Eq. 25 for every unit of a layer; the largest change of a mean."""
        child, change = layer, 0.0
        below, xi, weight = self.mean[layer + 1], self.xi[child], self.weight[child]
        logs = self.log_sums(child, xi)[0]
        for j in range(weight.shape[0]):
            q, w = self.mean[layer][:, [j]], weight[j]
            e = [np.exp((k - xi) * w) for k in (0.0, 1.0)]
            sums = [1.0 - q + q * x for x in e]
            phi = expit(logs[1] - logs[0])
            u = self.bias[layer][j] + (w * (below - xi)).sum(axis=1)
            u -= ((1 - phi) * (e[0] - 1) / sums[0] + phi * (e[1] - 1) / sums[1]).sum(axis=1)
            if layer:
                u += self.mean[layer - 1] @ self.weight[layer - 1][:, j]
            new = expit(u)
            for k in (0, 1):
                logs[k] += np.log(1.0 - new[:, None] + new[:, None] * e[k]) - np.log(sums[k])
            change = max(change, np.abs(new - q[:, 0]).max())
            self.mean[layer][:, j] = new
        return change

    def settle(self, tolerance: float, limit: int = 200) -> int:
        """Rounds until no mean changes by more."""
        for child in (0, 1):
            for _ in range(4):
                self.tighten(child)
        for made in range(1, limit + 1):
            change = max(self.update(1), self.update(0))
            for child in (0, 1):
                self.tighten(child)
            if change <= tolerance:
                return made
        return limit

    def bound(self) -> Array:
        """Eq. 20 and the entropy."""
        total = np.zeros(len(self.mean[0]))
        for layer in (0, 1):
            q = np.clip(self.mean[layer], 1e-300, 1 - 1e-16)
            total -= (q * np.log(q) + (1 - q) * np.log1p(-q)).sum(axis=1)
        total += self.mean[0] @ self.bias[0] - np.logaddexp(0, self.bias[0]).sum()
        for child in (0, 1):
            mean = self.mean[child] @ self.weight[child] + self.bias[child + 1]
            f = self.xi[child] * mean + np.logaddexp(*self.log_sums(child, self.xi[child])[0])
            total += (self.mean[child + 1] * mean - f).sum(axis=1)
        return total


def tiny_rbm(weight: Array, b: Array, c: Array) -> Callable[[Array], Array]:
    """p(h = 1 | v) of a small RBM with NaN in v: enumeration of its states, a dozen lines, nothing
    checked.
    """
    states = _states(len(b) + len(c)).astype(np.float64)
    v, h = states[:, : len(b)], states[:, len(b) :]
    density = np.exp(v @ b + h @ c + ((v @ weight) * h).sum(axis=1))

    def ask(row: Array) -> Array:
        seen = ~np.isnan(row)
        p = density * (v[:, seen] == row[seen]).all(axis=1)
        return p @ h / p.sum()

    return ask
