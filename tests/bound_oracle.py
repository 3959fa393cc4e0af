"""The variational bound of log Z of a directed or mixed tiny model at any Q, by its formulas, not
through the package.

L(Q) = E_Q[linear part of the log density] + H(Q) + E_Q[log h] + sum over tables of E_Q[log T]
       - sum over children of min_xi F(xi),

F over E_Q[A(z)]. Expectations over the parents of a child are sums over all their joint states, and
xi is found by scipy.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from brute import grid, log_sum
from scipy.optimize import minimize, minimize_scalar


def bound(tiny_model, row, q, soft=None, do=None, xi=None):
    """L(Q) of one row of evidence {layer: values or None}; q {layer: (size, K)}; soft and do as in
    Brute.

    `xi` from 0 to 1 fixes every xi there between the least and the largest value of the child, for
    Categorical at xi / k.
    """
    return Beliefs(tiny_model, row, q, soft, do).bound(xi)


def q_of(found, i):
    """Q of one row of an answer by mean field, layer -> (size, K)."""
    return {name: p[i] for name, p in found.prob.items()}


def bounds(tiny_model, rows, found, xi=None, **given):
    """L(Q) of each row, at the Q of an answer by mean field."""
    each = enumerate(rows)
    return np.array([bound(tiny_model, row, q_of(found, i), xi=xi, **given) for i, row in each])


class Beliefs:
    """The units of a tiny model under Q with one row of evidence: their tables, their parents, and
    the barren ones.
    """

    def __init__(self, tiny_model, row, q, soft=None, do=None):
        self.tiny_model, self.layers = tiny_model, {x.name: x for x in tiny_model.layers}
        self.units = [(x.name, i) for x in tiny_model.layers for i in range(x.size)]
        self.cut = {
            (n, i): v
            for n, values in (do or {}).items()
            for i, v in enumerate(values)
            if v is not None
        }
        self.known = {
            (n, i): v for n, values in row.items() for i, v in enumerate(values) if v is not None
        } | self.cut
        self.soft = {
            (n, i): np.array(w)
            for n, rows in (soft or {}).items()
            for i, w in enumerate(rows)
            if np.any(w)
        }
        self.parents = {u: list(self._parents(u)) for u in self.units}
        self.barren = self._barren()
        self.tables = {u: self._table(u, q) for u in self.units if u not in self.barren}

    def width(self, name):
        return grid(self.layers[name].unit)[0].shape[1]

    def _parents(self, child):
        """The units with an arrow into a child, and their blocks of weights."""
        for p, c, weight in self.tiny_model.directed:
            if c == child[0]:
                w, k, j = self.width(c), self.width(p), child[1]
                for i in range(self.layers[p].size):
                    block = weight[i * k : (i + 1) * k, j * w : (j + 1) * w]
                    if block.any():
                        yield (p, i), block

    def directed(self, name):
        """Has parents, or is a root: children, no undirected coupling and no conditional table."""
        own = {scope[-1][0] for scope, _, conditional in self.tiny_model.tables if conditional}
        is_parent = name not in own and any(p == name for p, _, _ in self.tiny_model.directed)
        return any(c == name for _, c, _ in self.tiny_model.directed) or (
            is_parent and not self.coupled(name)
        )

    def coupled(self, name):
        return any(name in (a, b) for a, b, _ in self.tiny_model.undirected)

    def _barren(self):
        """Free directed units without couplings, tables or soft evidence whose children are barren
        or cut, and free units with a conditional in layers without couplings that are in no table
        but their own and those of children that are barren or cut: they sum to 1.
        """
        return self._barren_of_arrows() | self._barren_of_tables()

    def _barren_of_tables(self):
        tables = self.tiny_model.tables
        joined = {
            n
            for a, b, _ in (*self.tiny_model.undirected, *self.tiny_model.directed)
            for n in (a, b)
        }
        found = {
            scope[-1]
            for scope, _, conditional in tables
            if conditional and scope[-1][0] not in joined and scope[-1] not in self.known
        } - set(self.soft)
        while True:
            needed = {
                u
                for scope, _, conditional in tables
                if not (conditional and (scope[-1] in found or scope[-1] in self.cut))
                for u in scope
            } & found
            if not needed:
                return found
            found -= needed

    def _barren_of_arrows(self):
        inside = {u for scope, _, _ in self.tiny_model.tables for u in scope}
        found = {
            u
            for u in self.units
            if u not in self.known
            and u not in self.soft
            and u not in inside
            and self.directed(u[0])
            and not self.coupled(u[0])
        }
        while True:
            others = [c for c in self.units if c not in found and c not in self.cut]
            needed = {p for c in others for p, _ in self.parents[c]} & found
            if not needed:
                return found
            found -= needed

    def _table(self, unit, q):
        """Values (K, w), their probabilities, log h and soft evidence; one value where it is
        known.
        """
        kind = self.layers[unit[0]].unit
        finite = type(kind).__name__ != "Gaussian" and not math.isinf(getattr(kind, "s", 0))
        values, base = grid(kind)
        soft = self.soft.get(unit, np.zeros(len(values)))
        if unit not in self.known:
            assert finite, "no table for a unit with infinitely many values"
            return values, np.asarray(q[unit[0]][unit[1]], dtype=float), base, soft
        known = self.known[unit]
        if not finite:
            gauss = type(kind).__name__ == "Gaussian"
            density = (
                -(known**2) / (2 * kind.sigma**2) - math.log(kind.sigma * math.sqrt(2 * math.pi))
                if gauss
                else 0.0
            )
            return np.array([[known]]), np.ones(1), np.array([density]), np.zeros(1)
        k = (
            [int(known)]
            if self.width(unit[0]) > 1
            else np.flatnonzero(np.isclose(values[:, 0], known))
        )
        return values[k], np.ones(1), base[k], soft[k]

    def mean(self, unit):
        return self.tables[unit][1] @ self.tables[unit][0]

    def means(self, name):
        return np.concatenate([self.mean((name, i)) for i in range(self.layers[name].size)])

    def bias(self, unit):
        w = self.width(unit[0])
        return np.ravel(self.layers[unit[0]].bias)[unit[1] * w : (unit[1] + 1) * w]

    def inputs(self, child):
        """z (S, w) and its probability in every joint state of the parents."""
        z, p = self.bias(child)[None], np.ones(1)
        for parent, block in self.parents[child]:
            values, prob = self.tables[parent][:2]
            z = (z[:, None] + values @ block).reshape(-1, z.shape[1])
            p = (p[:, None] * prob).ravel()
        return z[p > 0], p[p > 0]

    def bound(self, xi=None):
        total = 0.0
        for u in self.tables:
            _, p, base, soft = self.tables[u]
            total += p @ soft - np.sum(p[p > 0] * np.log(p[p > 0]))
            if u not in self.cut:
                total += p @ base + (
                    self.conditional(u, xi) if self.directed(u[0]) else self.mean(u) @ self.bias(u)
                )
        for a, b, weight in self.tiny_model.undirected:
            share = self.means(a) @ weight @ self.means(b)
            total += share / 2 if a == b else share
        return total + sum(self.expected_tables())

    def expected_tables(self):
        """E_Q[log T] of every table that counts, by its entries; -inf where Q meets 0."""
        for scope, values, conditional in self.tiny_model.tables:
            child = scope[-1]
            if conditional and (child in self.cut or child in self.barren):
                continue
            joint = np.ones(())
            for u in scope:
                joint = joint[..., None] * self.prob_of_states(u)
            met = joint > 0
            with np.errstate(divide="ignore"):
                yield np.sum(joint[met] * np.log(values[met]))
            if conditional:
                yield -self.prob_of_states(child) @ grid(self.layers[child[0]].unit)[1]

    def prob_of_states(self, unit):
        """The probability of every state of a unit, one of them where it is known."""
        values = grid(self.layers[unit[0]].unit)[0]
        known, p = self.tables[unit][:2]
        if len(p) == len(values):
            return p
        return np.all(values == known[0], axis=1) * 1.0

    def conditional(self, child, xi):
        """The bound of E[log p(x | z) - log h(x)]."""
        unit, x, (z, p) = self.layers[child[0]].unit, self.mean(child), self.inputs(child)
        kind = type(unit).__name__
        if kind == "Gaussian":
            return x @ (p @ z) - unit.sigma**2 / 2 * (p @ z[:, 0] ** 2)
        if kind == "Categorical":
            return x @ (p @ z) - simplex_least(z, p, xi)
        if kind == "NoisyOr":
            off = -(1 - x[0]) * (p @ z[:, 0])
            least = np.min(self.layers[child[0]].bias)
            return off - (x[0] * sum(noisy_or_terms(z[:, 0], p, least, xi)) if x[0] > 0 else 0.0)
        return x @ (p @ z) - scalar_least(z[:, 0], p, *grid(unit), xi)


def noisy_or_terms(z, p, least, xi):
    """Bounds of E[log(1 + e^(-2^m z))], whose sum over m is at least -E[log(1 - e^-z)]; no more
    where 2^m z > 40.
    """
    for m in itertools.count():
        yield scalar_least(z, p, np.array([[-(2.0**m)], [0.0]]), np.zeros(2), xi)
        if 2.0**m * least > 40:
            return


def scalar_least(z, p, values, base, xi):
    """min over xi in [min y, max y] of xi E[z] + log sum_k h_k E[exp((y_k - xi) z)], convex in
    xi.
    """
    lo, hi = values.min(), values.max()
    weights = np.log(p)[:, None] + base + z[:, None] * values[:, 0]

    def f(share):
        at = lo + share * (hi - lo)
        return at * (p @ z) + log_sum(weights - at * z[:, None])

    if xi is not None:
        return f(xi)
    inside = minimize_scalar(f, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-12})
    return min(inside.fun, f(0.0), f(1.0))


def simplex_least(z, p, xi):
    """min over xi of xi . E[z] + log sum_k E[exp(z_k - xi . z)], convex in xi: a bound off the
    simplex, too.
    """
    k, mean = z.shape[1], p @ z

    def f(at):
        weights = np.log(p)[:, None] + z - (z @ at)[:, None]
        log_sum_exp = log_sum(weights)
        return at @ mean + log_sum_exp, mean - np.exp(weights - log_sum_exp).sum(axis=1) @ z

    # The bound of one state is exact for every xi.
    if xi is not None or len(p) == 1:
        return f(np.full(k, (xi or 0.0) / k))[0]
    tight = {
        "method": "L-BFGS-B",
        "jac": True,
        "options": {"ftol": 1e-16, "gtol": 1e-11, "maxiter": 5000},
    }
    return min(minimize(f, start, **tight).fun for start in (np.full(k, 1 / k), np.ones(k)))
