"""An oracle for log weights of any size: energies are fractions, without rounding.

It sums over all states of the free units of a tiny model with one row of evidence. Energies are
`fractions.Fraction` sums of the parameters; only differences from the largest energy are rounded.
Free Gaussian units are summed out: A(eta) = sigma^2 eta^2 / 2. Written from the formulas of the
design, and not through the package.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
from comparisons import dense


def exact(value):
    """A number as a fraction; -inf stays."""
    return value if value == -math.inf else Fraction(float(value))


def log_sum(logs):
    """log sum exp of fractions and -inf: the largest, a fraction, plus a small float."""
    top = max(logs)
    if top == -math.inf:
        return top
    rest = math.log(math.fsum(math.exp(max(float(a - top), -1e6)) for a in logs if a > -math.inf))
    return top + Fraction(rest)


def values_of(unit):
    """The values of a finite unit as lists of fractions, and the logs of their base measure."""
    kind = type(unit).__name__
    if kind == "MultiValued":
        s = int(unit.s)
        base = Fraction(math.log(2 / (s + 1)))
        return [[Fraction(2 * k - s, s)] for k in range(s + 1)], [base] * (s + 1)
    table = {"Binary": [[0], [1]], "NoisyOr": [[0], [1]], "Spin": [[-1], [1]]}
    rows = np.eye(unit.k).astype(int).tolist() if kind == "Categorical" else table[kind]
    return [[Fraction(x) for x in row] for row in rows], [Fraction(0)] * len(rows)


class ExactSums:
    """The posterior of a tiny model: `log_z`, a fraction, and `prob`, layer -> (size, states).

    `energies` of all `states`, the numbers of the states of all units.

    `evidence` and `soft`: layer -> flat values (width,), NaN where not observed.
    """

    def __init__(self, model, evidence=None, soft=None):
        self.model, self.evidence, self.soft = model, evidence or {}, soft or {}
        s = model.structure
        self.units = [(name, i) for name, x in s.layers.items() for i in range(x.size)]
        self.gaussian = {n for n, x in s.layers.items() if type(x.unit).__name__ == "Gaussian"}
        options = [self._options(name, i) for name, i in self.units]
        energies, states = [], []
        for choice in itertools.product(*options):
            energies.append(self._energy(choice))
            states.append([k for k, _ in choice])
        self.energies, self.states = energies, states
        top = max(energies)
        self.possible = top > -math.inf
        if not self.possible:
            return
        self.log_z = log_sum(energies)
        weights = [
            math.exp(max(float(e - self.log_z), -1e6)) if e > -math.inf else 0.0 for e in energies
        ]
        total = math.fsum(weights)
        self.prob = {}
        for name, layer in s.layers.items():
            if name in self.gaussian:
                continue
            mine = [j for j, (n, _) in enumerate(self.units) if n == name]
            counts = np.zeros((layer.size, len(values_of(layer.unit)[0])))
            for w, state in zip(weights, states):
                for i, j in enumerate(mine):
                    counts[i, state[j]] += w
            self.prob[name] = counts / total

    def _options(self, name, i):
        """(number, value) of each state that a unit may have; None of a free Gaussian unit."""
        layer = self.model.structure.layers[name]
        k = layer.unit.width
        seen = self.evidence.get(name)
        known = None if seen is None else np.asarray(seen, dtype=float)[i * k : (i + 1) * k]
        if known is not None and np.isnan(known).any():
            known = None
        if name in self.gaussian:
            return [(0, None if known is None else [exact(known[0])])]
        values = values_of(layer.unit)[0]
        if known is not None:
            return [(j, v) for j, v in enumerate(values) if [float(x) for x in v] == known.tolist()]
        return list(enumerate(values))

    def _energy(self, choice):
        model, s, total = self.model, self.model.structure, Fraction(0)
        x = {name: [] for name in s.layers}
        state = {}
        for (name, i), (k, value) in zip(self.units, choice):
            x[name] += [None] if value is None else value
            state[s.first_unit[name] + i] = k
        field = {}
        for name, layer in s.layers.items():
            bias = [exact(b) for b in np.ravel(model.params[f"{name}.bias"])]
            # Log-odds h of a spin are a field of h / 2, and the value -1 has the weight 0.
            scale = 2 if type(layer.unit).__name__ == "Spin" else 1
            soft = [exact(b) / scale for b in np.ravel(self.soft.get(name, np.zeros(layer.width)))]
            total += sum(soft) if scale == 2 else 0
            field[name] = bias, soft
        eta = {n: [b + h for b, h in zip(*field[n])] for n in self.gaussian}
        for c in s.couplings:
            weight, half = dense(model.weight(c)), Fraction(1, 2 if c.a == c.b else 1)
            for i, j in zip(*np.nonzero(weight)):
                w, a, b = exact(weight[i, j]), x[c.a][i], x[c.b][j]
                if c.directed:
                    field[c.b][0][j] += w * a
                elif a is None:
                    eta[c.a][i] += w * b
                elif b is None:
                    eta[c.b][j] += w * a
                else:
                    total += half * w * a * b
        for name, layer in s.layers.items():
            total += self._layer(name, layer, x[name], field[name], eta.get(name))
        index = s.table_index if s.tables else None
        logs = model.table_entries
        for t in range(0 if index is None else len(index.child)):
            axes = range(index.start[t], index.start[t + 1])
            entry = index.first[t] + sum(index.stride[a] * state[index.unit[a]] for a in axes)
            total += exact(logs[entry])
        return total

    def _layer(self, name, layer, x, field, eta):
        total, k = Fraction(0), layer.unit.width
        directed = name in self.model.structure.directed_layers
        for j, value in enumerate(x):
            if value is None:
                c = exact(layer.unit.sigma) ** 2
                total += c * eta[j] ** 2 / 2
                continue
            total += value * field[1][j]
            if not directed:
                total += value * field[0][j]
            if name in self.gaussian:
                sigma = exact(layer.unit.sigma)
                total += -(value**2) / (2 * sigma**2)
                total -= Fraction(math.log(layer.unit.sigma * math.sqrt(2 * math.pi)))
        if name in self.gaussian:
            return total
        values, base = values_of(layer.unit)
        for i in range(layer.size):
            own, z = x[i * k : (i + 1) * k], field[0][i * k : (i + 1) * k]
            if not directed:
                total += base[values.index(own)]
            elif type(layer.unit).__name__ == "NoisyOr":
                if own[0] == 0:
                    total -= z[0]
                elif z[0] == 0:
                    return -math.inf
                else:
                    total += Fraction(math.log(-math.expm1(-float(z[0]))))
            else:
                logs = [sum(a * b for a, b in zip(v, z)) + h for v, h in zip(values, base)]
                total += logs[values.index(own)] - log_sum(logs)
        return total
