"""Expectations of layers, couplings and the gradient, from the moments of an enumeration.

`expected(name)` is F (n, 1 + D, width): F[:, 0] = E[x], F[:, 1 + d] = E[x ind_d]. Axis 1 has as
many entries as the moments have rows: pairs and gradients need all 1 + D, means and probabilities
only the first. The value of a layer is x = origin + ind . steps + rest. The units in `rest` are
independent given the indicators, so all pair statistics of a coupling follow from F.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pgmengine.base.types import Array, States, Weight
from pgmengine.infer.exact.enumeration.log_linear import FiniteBlock, LogLinearForm
from pgmengine.infer.exact.expectations import Expectations, put_second_moments
from pgmengine.model.couplings import Coupling, outer
from pgmengine.model.weights import plus


@dataclass(frozen=True, eq=False)
class FromMoments(Expectations):
    """Expectations from the moments (n, 1 or 1 + D, columns) of a log-linear form."""

    form: LogLinearForm
    moments: Array

    @cached_property
    def indicator(self) -> Array:
        """E[ind_d'] in row 0, E[ind_d ind_d'] in row 1 + d: (n, 1 + D, D)."""
        p = self.form
        start = sum(b.padded * b.offset.shape[2] for b in p.finite)
        return self.moments[:, :, start : start + p.pattern_form.indicators]

    @cached_property
    def weight(self) -> Array:
        """1 in column 0 and E[ind_d] in column 1 + d: (n, 1 + D)."""
        one = np.ones((len(self.moments), 1))
        alone = self.moments.shape[1] == 1
        return one if alone else np.concatenate((one, self.indicator[:, 0]), axis=1)

    @cached_property
    def _finite(self) -> list[tuple[FiniteBlock, Array]]:
        """Each finite block with its probabilities (n, 1 + D, T, K-1)."""
        start, out = 0, []
        for b in self.form.finite:
            k, size = b.offset.shape[2], b.padded
            part = self.moments[:, :, start : start + k * size].reshape(
                *self.moments.shape[:2], k, size
            )
            out.append((b, part[..., : len(b.index)].swapaxes(-1, -2)))
            start += k * size
        return out

    def _statistics(self, name: str, marginalised: bool) -> Iterator[tuple[Array, Array]]:
        """Yield (units, expected values (n, 1 + D, T * w)) of the blocks of a layer."""
        p = self.form
        unit = p.target.structure.layers[name].unit
        for b, prob in self._finite:
            if (b.layer, b.marginalised) == (name, marginalised) and b.complement:
                yield (
                    b.index,
                    self.weight[:, :, None] - prob[..., 0] if marginalised else prob[..., 0],
                )
            elif (b.layer, b.marginalised) == (name, marginalised) and unit.support is not None:
                support = unit.support.reshape(len(unit.support), unit.width)
                value = (
                    prob @ (support[1:] - support[0]) + self.weight[:, :, None, None] * support[0]
                )
                yield b.index, value.reshape(*value.shape[:2], len(b.index) * unit.width)
        start = self.moments.shape[2] - sum(len(s.index) for s in p.smooth)
        for s in p.smooth:
            if (s.layer, s.marginalised) == (name, marginalised):
                yield s.index, self.moments[:, :, start : start + len(s.index)]
            start += len(s.index)
        for q in p.quadratic:
            if (q.layer, q.marginalised) == (name, marginalised):
                mean = self.weight[:, :, None] * q.offset[:, None] + self.indicator @ q.value
                yield q.index, q.curvature * mean

    def rest(self, name: str) -> Array:
        """Return F of the marginalised units, 0 elsewhere: (n, 1 + D, width)."""
        layer = self.form.target.structure.layers[name]
        out = np.zeros((*self.moments.shape[:2], layer.width))
        for index, value in self._statistics(name, marginalised=True):
            out[:, :, layer.columns(index)] = value
        return out

    def expected(self, name: str) -> Array:
        """Return F of a layer, (n, 1 + D, width)."""
        p = self.form
        total = p.origin[name][:, None] * self.weight[:, :, None]
        if len(p.pattern_form.cover.units[name]):
            total += self.indicator @ p.pattern_form.steps[name]
        for index, value in self._statistics(name, marginalised=True):
            total[:, :, p.target.structure.layers[name].columns(index)] += value
        return total

    def score(self, name: str) -> Array:
        """Return the expected score (n, 1 + D, width) of a layer's bias and arrows."""
        p = self.form
        layer = p.target.structure.layers[name]
        if name not in p.target.structure.directed_layers:
            return self.expected(name)
        if not layer.unit.canonical:
            return self._off_score(name)
        out = self.expected(name) * p.pattern_form.counted[name]
        for index, value in self._statistics(name, marginalised=False):
            out[:, :, layer.columns(index)] -= value
        return out

    def _off_score(self, name: str) -> Array:
        """Return the score -(1 - x) + x e^-z / (1 - e^-z) of children with p(0 | z) = e^-z."""
        out = (
            self.expected(name) - self.rest(name) - self.weight[:, :, None]
        ) * self.form.pattern_form.counted[name]
        for b, prob in self._finite:
            if b.layer == name and b.marginalised:
                out[:, :, b.index] = prob[..., 1] - prob[..., 0]
            elif b.layer == name:
                out[:, :, b.index] += prob[..., 0]
        return out

    def prob(self, name: str) -> Array:
        """Return the state probabilities (n, size, K) of a finite layer."""
        p = self.form
        out = p.target.structure.layers[name].one_hot(p.origin[name])
        for d, (owner, unit, a) in enumerate(p.pattern_form.owner):
            if owner == name:
                out[:, unit, a] = self.indicator[:, 0, d]
                out[:, unit, 0] -= self.indicator[:, 0, d]
        for b, prob in self._finite:
            if b.layer == name and b.marginalised:
                later = 1.0 - prob[:, 0, :, :1] if b.complement else prob[:, 0]
                out[:, b.index, 1:] = later
                out[:, b.index, 0] = 1.0 - later.sum(axis=-1)
        return np.minimum(np.maximum(out, 0.0, out=out), 1.0, out=out)

    def marginals(self) -> tuple[States, States]:
        """Return the means of all layers, and the probabilities of states of finite ones."""
        layers = self.target.structure.layers
        mean = {name: self.expected(name)[:, 0] for name in layers}
        return mean, {n: self.prob(n) for n, x in layers.items() if x.unit.support is not None}

    def products(self, c: Coupling) -> Array:
        """Return E[x_a x_b'] of each row, (n, width of a, width of b)."""
        p = self.form
        fb, ra, rb = self.expected(c.b), self.rest(c.a), self.rest(c.b)
        out: Array = np.einsum("ni,nj->nij", p.origin[c.a], fb[:, 0])
        out += np.einsum("di,ndj->nij", p.pattern_form.steps[c.a], fb[:, 1:])
        out += np.einsum("ni,nj->nij", ra[:, 0], p.origin[c.b] + rb[:, 0])
        out += np.einsum("ndi,dj->nij", ra[:, 1:], p.pattern_form.steps[c.b])
        layer = self.target.structure.layers[c.a]
        if c.a == c.b and layer.unit.width > 1:
            put_second_moments(out, layer, self.prob(c.a), p.pattern_form.cover.rest[c.a])
        return out

    def derivatives(self, weights: Array) -> dict[str, Weight]:
        """Return the gradient in biases and weights, summed over rows times their weights."""
        # Biases need no E[ind_d ind_d'].
        alone, s = replace(self, moments=self.moments[:, :1]), self.target.structure
        out: dict[str, Weight] = {f"{n}.bias": weights @ alone.score(n)[:, 0] for n in s.layers}
        return out | {f"{c.key}.weight": self._derivative(c, weights) for c in s.couplings}

    def _derivative(self, c: Coupling, rows: Array) -> Weight:
        """Return d/dW E[log_density] summed over rows times their weights `rows` (n,)."""
        p, heavy, weight = self.form, rows[:, None, None], self.target.model.weight(c)
        fb = heavy * (self.score(c.b) if c.directed else self.expected(c.b))
        total = outer(weight, p.origin[c.a], fb[:, 0])
        if len(p.pattern_form.owner):
            total = plus(total, outer(weight, p.pattern_form.steps[c.a], fb[:, 1:].sum(axis=0)))
        if len(p.pattern_form.cover.rest[c.a]) and not c.directed:
            ra, rb = heavy * self.rest(c.a), self.rest(c.b)
            total = plus(total, outer(weight, ra[:, 0], p.origin[c.b] + rb[:, 0]))
            if len(p.pattern_form.owner):
                total = plus(total, outer(weight, ra[:, 1:].sum(axis=0), p.pattern_form.steps[c.b]))
        return total
