"""An oracle by enumeration, written from the formulas of the design and not through the package.

Layers with infinitely many values are put on a fine quadrature grid (Gauss-Legendre), so every
layer is finite here.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from quadrature import hermite, legendre

# log of the root of 2 pi
LOG_SCALE = math.log(2 * math.pi) / 2


def grid(unit):
    """(values (K, w), log weights (K,)): the support with its base measure, or a quadrature of
    it.
    """
    kind = type(unit).__name__
    if kind in ("Binary", "NoisyOr"):
        return np.array([[0.0], [1.0]]), np.zeros(2)
    if kind == "Constant":
        return np.zeros((1, 1)), np.zeros(1)
    if kind == "Spin":
        return np.array([[-1.0], [1.0]]), np.zeros(2)
    if kind == "Categorical":
        return np.eye(unit.k), np.zeros(unit.k)
    nodes, weights = legendre(24)
    if kind == "MultiValued" and math.isinf(unit.s):
        return nodes[:, None], np.log(weights)
    if kind == "MultiValued":
        s = unit.s
        return np.array([[(2 * k - s) / s] for k in range(s + 1)]), np.full(
            s + 1, math.log(2 / (s + 1))
        )
    if kind == "Normal":
        # On a window, because the standard deviation of a child is not known here.
        nodes, weights = legendre(90)
        x = 11 * nodes
        return np.stack([x, x**2], axis=1), np.log(11 * weights) - x**2 / 2 - LOG_SCALE
    if kind != "Gaussian":
        raise NotImplementedError(f"add the values of {kind} and their base measure to brute.grid")
    nodes, weights = hermite(24)
    return unit.sigma * nodes[:, None], np.log(weights / math.sqrt(2 * math.pi))


def log_sum(values):
    top = np.max(values)
    if np.isneginf(top):
        return top
    return top + math.log(np.sum(np.exp(values - top)))


class Brute:
    """All joint states of a tiny model with one row of evidence.

    `evidence`: {layer: list of values or None}, Categorical as labels; `soft`: {layer: list of
    state log weights lists}; `do`: as evidence.
    """

    def __init__(self, tiny_model, evidence=None, soft=None, do=None, beta=1.0, reference=None):
        self.tiny_model, self.beta = tiny_model, beta
        self.units = [(layer.name, i) for layer in tiny_model.layers for i in range(layer.size)]
        by_name = {layer.name: layer for layer in tiny_model.layers}
        fixed = dict(self._fixed(by_name, evidence))
        cut = dict(self._fixed(by_name, do))
        choices = []
        for name, i in self.units:
            values, base = grid(by_name[name].unit)
            known = cut.get((name, i), fixed.get((name, i)))
            options = list(zip(values, base, range(len(base))))
            if known is not None:
                match = [o for o in options if np.allclose(o[0], known)]
                options = match or [(known, self._density(by_name[name].unit, known), 0)]
            choices.append(options)
        self.cut, self.free = cut, {u for u in self.units if u not in fixed and u not in cut}
        states = list(itertools.product(*choices))
        self.index = np.array([[o[2] for o in state] for state in states])
        self.values = {}
        for layer in tiny_model.layers:
            own = [k for k, u in enumerate(self.units) if u[0] == layer.name]
            self.values[layer.name] = np.array(
                [np.concatenate([state[k][0] for k in own]) for state in states]
            )
        base = np.array(
            [sum(o[1] for o, u in zip(state, self.units) if u not in cut) for state in states]
        )
        # Impossible states are possible at beta = 0.
        self.log_weight = base + (beta * self._shares(by_name, soft) if beta else 0.0)
        for name, field in (reference or {}).items():
            for i in range(by_name[name].size):
                if (name, i) in self.free:
                    self.log_weight += (1 - beta) * self.values[name][:, i] * field[i]
        self.log_z = log_sum(self.log_weight)
        self.p = np.exp(self.log_weight - self.log_z)

    @staticmethod
    def _density(unit, value):
        if type(unit).__name__ == "Gaussian":
            return float(
                -(value[0] ** 2) / (2 * unit.sigma**2)
                - math.log(unit.sigma * math.sqrt(2 * math.pi))
            )
        if type(unit).__name__ == "Normal":
            return float(-(value[0] ** 2) / 2 - LOG_SCALE)
        return 0.0

    @staticmethod
    def _fixed(by_name, evidence):
        for name, row in (evidence or {}).items():
            for i, value in enumerate(row):
                if value is not None:
                    unit = by_name[name].unit
                    known = np.eye(unit.width)[value] if unit.one_hot else np.array([value])
                    if type(unit).__name__ == "Normal":
                        known = np.array([value, value**2])
                    yield (name, i), known

    def directed(self):
        m = self.tiny_model
        children = {c for _, c, _ in m.directed}
        coupled = {n for a, b, _ in m.undirected for n in (a, b)}
        own = {scope[-1][0] for scope, _, conditional in m.tables if conditional}
        parents = {p for p, _, _ in m.directed} - own
        return {
            layer.name
            for layer in m.layers
            if layer.name in children or (layer.name in parents and layer.name not in coupled)
        }

    def inputs(self, name):
        layer = next(x for x in self.tiny_model.layers if x.name == name)
        z = np.zeros_like(self.values[name]) + np.ravel(layer.bias)
        for p, c, weight in self.tiny_model.directed:
            if c == name:
                z = z + self.values[p] @ weight
        return z

    def _shares(self, by_name, soft):
        """log density less log h, with soft evidence, of every state."""
        total = np.zeros(len(self.index))
        for a, b, weight in self.tiny_model.undirected:
            share = np.array([x @ weight @ y for x, y in zip(self.values[a], self.values[b])])
            total += share / 2 if a == b else share
        for scope, values, conditional in self.tiny_model.tables:
            columns = [self.units.index(place) for place in scope]
            if conditional and scope[-1] in self.cut:
                continue
            with np.errstate(divide="ignore"):
                total += np.log(values[tuple(self.index[:, columns].T)])
            if conditional:
                base = grid(by_name[scope[-1][0]].unit)[1]
                total -= base[self.index[:, columns[-1]]]
        for layer in self.tiny_model.layers:
            x, w = self.values[layer.name], grid(layer.unit)[0].shape[1]
            if layer.name in self.directed():
                z = self.inputs(layer.name)
                for i in range(layer.size):
                    if (layer.name, i) not in self.cut:
                        total += self.child(
                            layer.unit, x[:, i * w : (i + 1) * w], z[:, i * w : (i + 1) * w]
                        )
            else:
                total += x @ np.ravel(layer.bias)
            for i, log_weights in enumerate((soft or {}).get(layer.name, ())):
                k = [u for u in self.units].index((layer.name, i))
                total += np.array(log_weights)[self.index[:, k]]
        return total

    @staticmethod
    def child(unit, x, z):
        """log p(x | z) - log h(x) of one child in every state."""
        kind = type(unit).__name__
        if kind == "NoisyOr":
            return np.array(
                [
                    math.log(-math.expm1(-zz))
                    if xx == 1 and zz > 0
                    else (-np.inf if xx == 1 else -zz)
                    for xx, zz in zip(x[:, 0], z[:, 0])
                ]
            )
        if kind == "Normal":
            m, log_sigma = z.T
            variance = (unit.least_sigma**8 + np.exp(8 * log_sigma)) ** 0.25
            return (x[:, 0] ** 2 - (x[:, 0] - m) ** 2 / variance - np.log(variance)) / 2
        values, base = grid(unit)
        a = np.array([log_sum(values @ zz + base) for zz in z])
        if kind == "Gaussian":
            a = unit.sigma**2 * z[:, 0] ** 2 / 2
        return np.einsum("si,si->s", x, z) - a

    def mean(self, name):
        return self.p @ self.values[name]

    def prob(self, name):
        layer = next(x for x in self.tiny_model.layers if x.name == name)
        own = [k for k, u in enumerate(self.units) if u[0] == name]
        states = len(grid(layer.unit)[1])
        return np.array([[self.p[self.index[:, k] == a].sum() for a in range(states)] for k in own])

    def pairs(self, a, b):
        return np.einsum("s,si,sj->ij", self.p, self.values[a], self.values[b])

    def mode(self):
        best = self.log_weight.argmax()
        return {name: v[best] for name, v in self.values.items()}, self.log_weight[best]
