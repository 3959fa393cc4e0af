"""Mean field in which each unit has its own family, for free units without directed children.

With natural parameters eta and means mu = A'(eta), the sum of entropy and expected base measure is
A(eta) - eta mu. Given all other means, the best eta of a unit is its natural parameter at these
means. Layers are updated one after another, so that the bound never decreases.
"""

from __future__ import annotations

import numpy as np

from pgmengine.base.types import Array, States, Weight
from pgmengine.base.work.cache import remembered
from pgmengine.base.work.progress import track
from pgmengine.engine.packed import packed
from pgmengine.engine.visits import colors
from pgmengine.evidence.relevance import EvidencePattern
from pgmengine.evidence.target import NEVER_ON, Target, times
from pgmengine.infer.accumulator import Accumulator
from pgmengine.infer.variational.lateral import Inside
from pgmengine.infer.variational.saddles import nudged
from pgmengine.model.couplings import Coupling


@remembered
def layer_order(pattern: EvidencePattern) -> tuple[str, ...]:
    """Return layers with free units, by colour classes; the classes next to evidence come first."""
    seen = {name for name, free in pattern.all_free.items() if not free}
    near = {
        name
        for c in pattern.structure.undirected
        for name, other in ((c.a, c.b), (c.b, c.a))
        if other in seen
    }
    free = pattern.some_free
    classes = sorted(
        colors(pattern.structure), key=lambda names: not near & {n for n in names if free[n]}
    )
    return tuple(name for names in classes for name in names if free[name])


@remembered
def coupled(pattern: EvidencePattern) -> tuple[str, ...]:
    """Return the layers with an undirected coupling to free units, ordered by `layer_order`."""
    free, meetings = pattern.some_free, pattern.structure.meetings
    order = layer_order(pattern)
    return tuple(name for name in order if any(free[other] for _, other in meetings[name]))


class Factors:
    """Independent units with their natural parameters and means, for each row of a target.

    Each layer stores the field from the means of its neighbours. Only changes of means by more than
    `quiet` are added to it, so that rounds get faster as the means converge. A free layer without
    free neighbours has no means before the first round, which gives it exact ones.

    Parameters
    ----------
    target : the model under evidence.
    precision : np.float64 or np.float32.
    mean : means to start from; the means at the reference by default.
    quiet : smaller changes of means are not added to fields.
    rng : random numbers for a random start; none by default.
    step : distance of the start from the reference, in the same direction in all rows, so that the
        rounds do not stay at a saddle of the bound (saddles.py).
    """

    def __init__(
        self,
        target: Target,
        precision: type = np.float64,
        mean: States | None = None,
        quiet: float = 0.0,
        rng: np.random.Generator | None = None,
        step: float = 0.0,
    ) -> None:
        self.target, self.precision, self.quiet = target, precision, quiet
        s = target.structure
        pattern = target.pattern
        self.moving, self.coupled = layer_order(pattern), coupled(pattern)
        self.whole = pattern.all_free
        self.inside = {
            name: Inside(target, name, quiet)
            for name in self.moving
            if any(other == name for _, other in s.meetings[name])
        }
        self.mean: States = {
            name: v.astype(precision, copy=False) for name, v in target.evidence.values.items()
        }
        self.eta: States = {}
        self.sent: States = {}
        self.field = {name: self.constant_field(name) for name in self.moving}
        noise = np.random.default_rng(0)
        for name in self.coupled:
            begin = (
                self._begin(name, rng, step, noise)
                if mean is None
                else mean[name].astype(precision)
            )
            self._set(name, np.broadcast_to(begin, (target.rows, s.layers[name].width)))
            self.sent[name] = begin if self.whole[name] else self.mean[name]
            self._send(name, self.sent[name])

    def settle(self, updates: int, tolerance: float) -> tuple[int, float]:
        """Make rounds until no mean changes by more than the tolerance.

        Returns the number of rounds, and the last change.
        """
        if self.target.pattern.independent:
            self.round()
            return 1, 0.0
        change = np.inf
        for t in track(range(updates), "mean field"):
            before = dict(self.mean)
            self.round()
            if tolerance > 0 or t + 1 == updates:
                change = max(
                    (
                        float(np.abs(self.mean[n] - before[n]).max(initial=0.0))
                        for n in self.coupled
                    ),
                    default=0.0,
                )
            if change <= tolerance:
                return t + 1, change
        return updates, change

    def round(self) -> None:
        """Update every free layer once."""
        for name in self.moving:
            if name in self.inside:
                eta, mean = self.inside[name].update(self.field[name], self.mean[name])
                self.eta[name], self.mean[name] = eta, mean.astype(self.precision, copy=False)
            else:
                layer = self.target.structure.layers[name]
                self.eta[name] = eta = self._tempered(name, self.field[name])
                self._set(name, layer.flat(layer.unit.mean(layer.shaped(eta))))
            if name in self.coupled:
                change = self.mean[name] - self.sent[name]
                if self.quiet > 0:
                    change *= np.abs(change) > self.quiet
                self.sent[name] = self.sent[name] + change
                self._send(name, change)

    def bound(self) -> Array:
        """Return the lower bound of log Z, E_Q[log_density] + H(Q), (rows,)."""
        target, s = self.target, self.target.structure
        total, power = np.zeros(target.rows), np.zeros(target.rows)
        for name, layer in s.layers.items():
            x, free = self.mean[name].astype(np.float64), target.free[name]
            # All parents of a directed layer are observed here.
            if name in s.directed_layers:
                zeta = layer.shaped(target.model.inputs(target.evidence.values, name))
                own = _dot(layer.shaped(x), layer.unit.link(zeta)) - layer.unit.log_partition(zeta)
                power += np.where(target.intervened[name], 0.0, own).sum(axis=1)
            else:
                power += x @ target.model.bias(name)
            power += (x * target.soft.get(name, 0.0)).sum(axis=1)
            if not free.all():
                base = layer.unit.log_h(layer.shaped(target.evidence.values[name]))
                total += np.where(free | target.intervened[name], 0.0, base).sum(axis=1)
            if name in self.eta:
                eta = self.eta[name].astype(np.float64)
                share = layer.unit.log_normalizer(layer.shaped(eta)) - _dot(
                    layer.shaped(x), layer.shaped(eta)
                )
                tilt = _dot(
                    layer.shaped(x),
                    layer.shaped(np.zeros(layer.width) + target.reference.get(name, 0.0)),
                )
                total += np.where(free, share + (1.0 - target.beta[:, None]) * tilt, 0.0).sum(
                    axis=1
                )
        for c in s.undirected:
            power += c.log_density(
                target.model.weight(c),
                self.mean[c.a].astype(np.float64),
                self.mean[c.b].astype(np.float64),
            )
        if s.tables:
            # All units in tables are observed here.
            power += target.table_log_density(target.evidence.values).sum(axis=1)
        return total + times(target.beta, power)

    @property
    def state(self) -> States:
        """The snapshot from which a new Q continues, by `mean`."""
        return self.mean

    def beside(self, size: float, seed: int) -> Factors:
        """Return Q of the snapshot `nudged`."""
        return Factors(self.target, self.precision, self.nudged(size, seed), self.quiet)

    def nudged(self, size: float, seed: int) -> States:
        """Return a snapshot at a small distance from Q, in the same direction in all rows."""
        rng, near = np.random.default_rng(seed), dict(self.mean)
        for name in self.coupled:
            layer = self.target.structure.layers[name]
            near[name] = layer.flat(
                layer.unit.mean(nudged(layer, layer.shaped(self.eta[name]), size, rng))
            )
        return near

    def draw(self, rng: np.random.Generator) -> States:
        """Draw from Q, (rows, width) of every layer."""
        layers = self.target.structure.layers
        drawn = {
            name: layers[name].flat(layers[name].unit.sample(layers[name].shaped(eta), rng))
            for name, eta in self.eta.items()
        }
        return self.target.clamp(
            {name: drawn.get(name, value) for name, value in self.mean.items()}
        )

    def gradient(self, weights: Array) -> dict[str, Weight]:
        """Return E_Q[d log_density / d params], summed over rows with weights (rows,).

        The density is multilinear, so that the gradient at the means is the expected one.
        """
        return self.target.gradient(self.mean, weights)

    def add_slopes(self, weights: Array, total: Accumulator) -> None:
        """Add `gradient`, which is the derivative at the means, to the sum of a phase."""
        total.points(self.mean, weights)

    def prob(self, name: str) -> Array:
        """Return the state probabilities (rows, size, K)."""
        layer, target = self.target.structure.layers[name], self.target
        assert layer.unit.support is not None
        known = layer.one_hot(target.evidence.values[name])
        if name not in self.eta:
            return known
        return np.where(
            target.free[name][..., None], layer.unit.prob(layer.shaped(self.eta[name])), known
        )

    def predicted(self, name: str) -> Array:
        """Return the means (rows, width) of a layer given the means of the others."""
        layer = self.target.structure.layers[name]
        eta = self._tempered(name, np.broadcast_to(self.field[name], self.mean[name].shape))
        return layer.flat(layer.unit.mean(layer.shaped(eta)))

    def constant_field(self, name: str) -> Array:
        """Return the constant part of a layer's natural parameter at beta = 1, (rows, width)."""
        target, s = self.target, self.target.structure
        u: Array = np.zeros((target.rows, s.layers[name].width), dtype=self.precision)
        if name in target.soft:
            u += target.soft[name]
        if name in s.directed_layers:
            layer = s.layers[name]
            link = layer.flat(
                layer.unit.link(layer.shaped(target.model.inputs(target.evidence.values, name)))
            )
            u += np.where(
                target.components(name, target.intervened[name]), 0.0, np.maximum(link, NEVER_ON)
            )
        else:
            u += target.model.bias(name).astype(self.precision, copy=False)
        for c, source in s.meetings[name]:
            if source not in self.moving:
                self._add(c, name, self.mean[source], u)
        return u

    def _begin(
        self, name: str, rng: np.random.Generator | None, step: float, noise: np.random.Generator
    ) -> Array:
        """Return means at or near the reference, (1, width), or random means, (rows, width)."""
        layer, reference = self.target.structure.layers[name], self.target.reference
        random = (
            np.zeros((1, layer.width))
            if rng is None
            else rng.normal(0, 2, (self.target.rows, layer.width))
        )
        eta = layer.shaped(random + reference.get(name, 0.0))
        if step:
            eta = nudged(layer, eta, step, noise)
        return layer.flat(layer.unit.mean(eta)).astype(self.precision)

    def _set(self, name: str, value: Array) -> None:
        """Set the means of the free units of a layer."""
        value = value.astype(self.precision, copy=False)
        self.mean[name] = (
            value
            if self.whole[name]
            else np.where(
                self.target.components(name, self.target.free[name]),
                value,
                self.target.evidence.values[name].astype(self.precision, copy=False),
            )
        )

    def _send(self, name: str, change: Array) -> None:
        """Add a change of means (rows or 1, width) to the fields of the free neighbours."""
        for c, other in self.target.structure.meetings[name]:
            if other in self.moving and other != name:
                self._add(c, other, change, self.field[other])

    def _add(self, c: Coupling, name: str, x: Array, field: Array) -> None:
        """Add the field from values x (rows or 1, width of the other end) to (rows, width)."""
        if self.precision is np.float32:
            to = (
                field
                if len(x) == len(field)
                else np.zeros((len(x), field.shape[1]), dtype=np.float32)
            )
            packed(self.target.model).add_product(c, name, x, to)
            if to is not field:
                field += to
        else:
            weight = self.target.model.weight(c)
            field += x @ (weight if name == c.b else weight.T)

    def _tempered(self, name: str, u: Array) -> Array:
        """Return the natural parameter at beta from its value at 1."""
        if self.target.untempered:
            return np.array(u)
        beta: Array = self.target.beta[:, None].astype(self.precision, copy=False)
        return times(beta, u) + (1 - beta) * self.target.reference.get(name, 0.0)


def _dot(x: Array, eta: Array) -> Array:
    """Return x . eta of each unit, (rows, size); 0 where x is 0 and eta infinite."""
    each = times(x, eta)
    return each if np.ndim(x) < 3 else each.sum(axis=-1)
