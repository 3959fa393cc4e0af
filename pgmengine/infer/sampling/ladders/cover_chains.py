"""Chains over the states of a cover, with all other free units marginalised.

Given a state c of the cover, all other free units are independent, so that the log weight of c is
known in closed form (log_linear.py). With F(c) this log weight, a chain at beta moves by

    p_beta(c) = exp(beta F(c)) / Z_beta,     uniform at beta = 0, the model's own p(c) at beta = 1

unit by unit: the log weights of all states of a unit, given the other units of the cover, take one
pass over the marginalised units. The path differs from the one of whole states (x, c), whose
energies are scaled before they are summed. There, hundreds of units that are nearly independent
given c change the weight of c at every beta, so that states that are likely at beta = 1 may be
rare at all lower temperatures, and hold back units of the cover that they agree with. On RBMs
784x16 trained on digits the barrier of a ladder is 2 to 3 instead of 8, and the states of the cover
change 30 times as often.

The inputs a_tk of the marginalised units follow the changes of the cover, in single precision, and
are computed anew every REFRESH_SWEEPS sweeps. The tests compare F with enumeration, and the chains
with exact answers.
"""

from __future__ import annotations

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, States
from pgmengine.engine.cost import NS, US, Price
from pgmengine.engine.kernels import Kernel
from pgmengine.evidence.target import Target, evidence_patterns, one_for_all
from pgmengine.infer.exact.enumeration.cover import Cover, choose_cover
from pgmengine.infer.exact.enumeration.log_linear import LogLinearForm, log_linear_form
from pgmengine.infer.exact.enumeration.pattern_form import pattern_form_of

# Sweeps after which the inputs of the marginalised units are computed anew.
REFRESH_SWEEPS = 64

# Inputs that are moved together: arrays of 128 KiB stay in the cache.
PART_ENTRIES = 2**15

# Smallest number of marginalised units for each unit of a cover. With many, the path over whole
# states is bad, and the cover small; on a lattice half of the units are in the cover.
MIN_MARGINALISED_PER_UNIT = 8

# Longest sweep of all chains, in seconds: others are left to whole states, whose sweeps are faster.
MAX_SWEEP_SECONDS = 4e-3


def small_cover(target: Target, chains: int) -> Cover | None:
    """Return the cover of a target whose chains had better move over its states alone, or None.

    `chains` is the number of chains.
    """
    s = target.structure
    alike = target.untempered and len(evidence_patterns(target)) == 1
    if s.tables or s.directed_layers or not alike or _least_cover(target) > _most_cover(target):
        return None
    try:
        cover = choose_cover(one_for_all(target, np.arange(target.rows)), False, False)
    except PgmError:
        # A unit with infinitely many values cannot be in a cover.
        return None
    units = [s.layers[n].unit for n, index in cover.rest.items() if len(index)]
    if any(unit.support is None or unit.curvature is not None for unit in units):
        return None
    few = 0 < sum(map(len, cover.units.values())) <= _most_cover(target)
    return cover if few and sweep_price(cover).of(chains) <= MAX_SWEEP_SECONDS else None


def _most_cover(target: Target) -> float:
    """Return the largest number of units of a cover that is small."""
    free = sum(int(mask[0].sum()) for mask in target.free.values())
    return free / (1 + MIN_MARGINALISED_PER_UNIT)


def _least_cover(target: Target) -> float:
    """Return a lower bound of the units of a cover: all couplings, over the most of a single unit.

    It is found at once, where the search for a cover may take seconds.
    """
    free = {n: target.components(n, mask[:1])[0] for n, mask in target.free.items()}
    degrees = [np.zeros(1)]
    for name, near in target.model.neighbours.items():
        met = sum(free[source] @ (block != 0).astype(np.float64) for source, block in near)
        degrees.append(np.broadcast_to(met, free[name].shape)[free[name]])
    each = np.concatenate(degrees)
    return float(each.sum() / 2 / max(each.max(), 1.0))


def cover_form(target: Target, cover: Cover) -> LogLinearForm:
    """Return the log weights of the states of a cover, at beta = 1."""
    plain = target.at(1.0)
    return log_linear_form(plain, pattern_form_of(plain.take(np.zeros(1, dtype=np.int64)), cover))


def sweep_price(cover: Cover) -> Price:
    """Return the price of a sweep: a pass over the marginalised units for each state of a unit."""
    entries, units = cover.columns - cover.indicators, sum(map(len, cover.units.values()))
    call = units * 35 * US
    return Price(call, call * entries / PART_ENTRIES + cover.indicators * entries * 1.2 * NS)


class CoverChains:
    """One chain for each entry of `rows`, over the states of the cover of a log-linear form.

    Attributes
    ----------
    beta : (chains,), which may be changed in place between sweeps.
    state : (chains, units), the states of the units of the cover.
    log_weight : (chains,), F of the states.
    """

    def __init__(
        self,
        form: LogLinearForm,
        rows: Array,
        beta: Array,
        kernel: Kernel,
        rng: np.random.Generator,
    ) -> None:
        self.form, self.rows, self.kernel, self.rng = form, rows, kernel, rng
        self.theta = form.theta[rows]
        self.beta, self.counts = np.array(beta, dtype=np.float64), form.pattern_form.states
        # The indicators of unit u are start[u] .. start[u + 1] - 1.
        self.start = np.concatenate(([0], np.cumsum(self.counts - 1)))
        self.state = (rng.random((len(rows), len(self.counts))) * self.counts).astype(np.int64)
        spans = zip(self.start[:-1].tolist(), self.start[1:].tolist(), strict=True)
        self.changes = [[_changes(b.value[s:e]) for b in form.finite] for s, e in spans]
        entries = sum(b.offset[0].size for b in form.finite)
        self.parts = parts_of(len(rows), entries)
        self.sweeps = 0
        self._refresh()

    def _refresh(self) -> None:
        """Compute indicators, inputs and log weights from the states."""
        form = self.form
        self.on = np.zeros((len(self.rows), form.pattern_form.indicators))
        row, unit = np.nonzero(self.state)
        self.on[row, self.start[unit] + self.state[row, unit] - 1] = 1.0
        self.inputs = [
            (b.offset[self.rows] + np.tensordot(self.on, b.value, 1)).astype(np.float32)
            for b in form.finite
        ]
        self.sums = self._log_sums(self.inputs)
        linear = ((self.theta + 0.5 * self.on @ form.pair) * self.on).sum(axis=1)
        self.log_weight = form.const[self.rows] + linear + self.sums

    def _log_sums(self, inputs: list[Array]) -> Array:
        """Return the sum over blocks of power * sum_t log(1 + sum_k exp(a_tk)), (chains,)."""
        total: Array = np.zeros(len(inputs[0]))
        for block, a in zip(self.form.finite, inputs, strict=True):
            total += block.power * _log_sum_with_1(a).sum(axis=1)
        return total

    def sweep_path(self) -> tuple[Array, Array]:
        """Draw each unit of the cover, then return the path: log p_beta = 0 + beta F."""
        self.sweeps += 1
        for part in self.parts:
            for unit in range(len(self.counts)):
                self._move(unit, part)
        if self.sweeps % REFRESH_SWEEPS == 0:
            self._refresh()
        return self.path()

    def path(self) -> tuple[Array, Array]:
        """Return (path, power), each (chains,), with log p_beta(c) = path + beta * power."""
        return np.zeros(len(self.rows)), self.log_weight

    def _move(self, unit: int, part: slice) -> None:
        """Draw the state of one unit of some chains given the other units of the cover."""
        count, begin, end = int(self.counts[unit]), self.start[unit], self.start[unit + 1]
        now, on, sums = self.state[part, unit].copy(), self.on[part], self.sums[part]
        every, inputs = np.arange(len(now)), [a[part] for a in self.inputs]
        field = np.zeros((len(now), count))
        field[:, 1:] = self.theta[part, begin:end] + on @ self.form.pair[:, begin:end]
        gain, moved = np.zeros((len(now), count)), list[tuple[Array, list[Array], Array]]()
        for step in range(1, count):
            other = (now + step) % count
            changes = [change[step - 1] for change in self.changes[unit]]
            new = [a + c.take(now, axis=0) for a, c in zip(inputs, changes, strict=True)]
            total = self._log_sums(new)
            gain[every, other] = total - sums + field[every, other] - field[every, now]
            moved.append((other, new, total))
        chosen = self._chosen(gain, now, self.beta[part])
        self.log_weight[part] += gain[every, chosen]
        for other, new, total in moved:
            here = np.flatnonzero(chosen == other)
            sums[here] = total[here]
            for a, values in zip(inputs, new, strict=True):
                a[here] = values[here]
        self.state[part, unit] = chosen
        on[:, begin:end] = chosen[:, None] == np.arange(1, count)

    def _chosen(self, gain: Array, now: Array, beta: Array) -> Array:
        """Return the next states (chains,) of a unit, given log weights (chains, states)."""
        log_p = beta[:, None] * gain
        prob = np.exp(log_p - log_p.max(axis=1, keepdims=True))
        prob /= prob.sum(axis=1, keepdims=True)
        # At beta = 0 every kernel draws exactly.
        prob = np.where(beta[:, None] == 0, prob, self.kernel.transition(prob, now))
        below = np.cumsum(prob, axis=1)[:, :-1]
        return np.asarray((self.rng.random(len(now))[:, None] >= below).sum(axis=1))

    def values(self, chains: Array) -> States:
        """Return complete states of some chains, layer -> (chains, width), the rest drawn anew."""
        form, rows, on = self.form, self.rows[chains], self.on[chains]
        layers, out = form.target.structure.layers, States()
        for name, origin in form.origin.items():
            out[name] = origin[rows] + on @ form.pattern_form.steps[name]
        for block, a in zip(form.finite, self.inputs, strict=True):
            layer, support = layers[block.layer], layers[block.layer].unit.support
            assert block.marginalised and support is not None
            log_p = np.pad(a[chains].astype(np.float64), ((0, 0), (0, 0), (1, 0)))
            below = np.cumsum(np.exp(log_p - log_sum(log_p, axis=2)[..., None]), axis=2)
            drawn = (self.rng.random(below.shape[:2])[..., None] >= below[..., :-1]).sum(axis=2)
            values = support.take(drawn, axis=0).reshape(len(rows), -1)
            out[block.layer][:, layer.columns(block.index)] = values
        return out

    def place_at(self, x: States) -> None:
        """Continue from the values of the cover in complete states, layer -> (chains, width)."""
        layers, cover = self.form.target.structure.layers, self.form.pattern_form.cover
        units = cover.units.items()
        own = [layers[n].states(x[n])[:, index] for n, index in units if len(index)]
        self.state = np.concatenate(own, axis=1).astype(np.int64)
        self._refresh()

    def log_z_at_0(self) -> Array:
        """Return log Z (rows,) of the uniform states at beta = 0."""
        return np.full(len(self.form.const), np.log(self.counts).sum())


def parts_of(chains: int, entries: int) -> list[slice]:
    """Return the chains in parts whose inputs stay in the cache of a core."""
    count = max(-(-chains * entries // PART_ENTRIES), 1)
    ends = np.linspace(0, chains, count + 1).round().astype(np.int64).tolist()
    return [slice(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]


def _changes(value: Array) -> Array:
    """Return the changes of inputs (K - 1, K, T, k) when a unit moves some states on from each."""
    each = np.concatenate((np.zeros((1, *value.shape[1:])), value)).astype(np.float32)
    return np.stack([np.roll(each, -step, axis=0) - each for step in range(1, len(each))])


def _log_sum_with_1(a: Array) -> Array:
    """Return log(1 + sum_k exp(a_tk)) of inputs (chains, T, k), as (chains, T)."""
    if a.shape[2] == 1:
        a = a[:, :, 0]
        # log1p and maximum are several times as slow as these, which lose 1e-7 of a term at most.
        size = np.abs(a)
        return np.asarray(np.log(1.0 + np.exp(-size)) + 0.5 * (a + size))
    top = np.maximum(a.max(axis=2), 0)
    return np.asarray(top + np.log(np.exp(-top) + np.exp(a - top[..., None]).sum(axis=2)))
