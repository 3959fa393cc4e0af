"""Ancestral sampling with likelihood weighting: independent draws of directed models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.barren import known_softly
from pgmengine.couplings import only_parameters
from pgmengine.methods.answers import accepted, check_want, no_room, public, squeeze
from pgmengine.methods.conditions import of_free_parents, parents_first
from pgmengine.methods.resampling import systematic
from pgmengine.methods.trust import few, interval
from pgmengine.model import Flat
from pgmengine.progress import track
from pgmengine.result import Plan, Result, Status
from pgmengine.settings import check_limit, check_whole, seeded
from pgmengine.shares import joined
from pgmengine.stable import log_sum
from pgmengine.target import Target

Array = np.ndarray
PART = 2.0**26  # bytes of states that are drawn at once


@dataclass(frozen=True)
class Forward:
    """Draw parents, then children; weight each draw by the probability of what is observed below it.

    w = product over observed units of p(x | drawn parents), so E[w] = p(evidence) and E[w f(x)] / E[w] = E[f | evidence]
    (likelihood weighting: Fung and Chang 1990, Shachter and Peot 1990). Draws are independent; without evidence below
    free units all weights are equal.

    Parameters
    ----------
    draws : for each row of evidence.
    below : refused when more observed units than this depend on free ones: few draws would carry the weight.

    `stats` holds log_weights (draws, rows), ess (rows,) and mcse of each layer's means. Samples are resampled by weight.
    Where no draw can give the evidence, means and samples are NaN and the status says so.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.sbn([4, 3], rng=0), {"v": [1, 0, float("nan"), 1]}, method=pgm.Forward(2000), rng=0)
    >>> r.mean["h1"].shape, r.kind
    ((3,), 'estimate')
    """

    draws: int = 1000
    below: int = 10

    def __post_init__(self) -> None:
        check_whole(self, "draws", least=2)
        check_limit(self, "below")

    def plan(self, target: Target, want: Iterable[str]) -> Plan:
        """Work and memory of the draws; refuses undirected couplings of free units and much evidence below."""
        wanted, s = check_want(want), target.structure
        if why := self._obstacle(target, wanted):
            return Plan("Forward", refusal=why)
        width = sum(layer.width for layer in s.layers.values())
        memory = min(8.0 * target.rows * self.draws * width, PART) * 4
        memory += 8.0 * target.rows * self.draws * (width if "samples" in wanted else 1)
        if too_much := no_room(memory):
            return Plan("Forward", refusal=too_much)
        arrows = sum(s.layers[c.a].width * s.layers[c.b].width / 8.0 for c in s.arrows)
        how = f"{self.draws} draws, parents first"
        return Plan("Forward", "estimate", how, target.rows * self.draws * (10.0 * width + arrows), memory)

    def _obstacle(self, target: Target, wanted: tuple[str, ...]) -> str:
        """Why it cannot answer, or an empty string."""
        s = target.structure
        if missing := sorted({"mode", "bound"} & set(wanted)):
            return f"draws give no {' or '.join(missing)}"
        if "log_prob" in wanted and not s.normalized:
            return "log_prob needs log Z of the undirected part"
        for name in s.layers:
            if target.free[name].any() and (name in s.undirected_layers or name not in s.directed_layers):
                return f"layer {name!r} is free and not drawn from its parents"
        if (target.beta != 1).any():
            return "at beta below 1 conditionals are not normalised"
        count = int(_weighing(target).max())
        if count > self.below:
            return f"{count} observed units depend on free ones, the limit is {self.below}"
        return ""

    def run(self, target: Target, want: Iterable[str] = ("marginals",), rng: Any = None, state: Any = None) -> Result:
        """Draw."""
        wanted, plan = accepted(self, target, want)
        generator, width = seeded(rng), sum(layer.width for layer in target.structure.layers.values())
        step = max(int(PART / (8.0 * self.draws * max(width, 1))), 1)
        return joined([self._part(target.take(np.arange(a, min(a + step, target.rows))), wanted, plan, generator)
                       for a in track(range(0, target.rows, step), "drawing")])

    def _part(self, target: Target, wanted: tuple[str, ...], plan: Plan, rng: np.random.Generator) -> Result:
        """Answers about some rows."""
        many = target.take(np.repeat(np.arange(target.rows), self.draws))
        x, log_w = drawn(many, rng)
        log_w = log_w.reshape(target.rows, self.draws)
        top = log_w.max(axis=1, keepdims=True)
        possible = np.isfinite(top)  # else no draw can give the evidence: nothing is known, NaN
        p = np.exp(log_w - np.where(possible, top, 0.0))
        p = np.where(possible, p / np.where(possible, p.sum(axis=1, keepdims=True), 1.0), np.nan)
        ess = np.where(possible[:, 0], 1.0 / np.square(p).sum(axis=1), 0.0)
        x = {name: np.ascontiguousarray(value) for name, value in x.items()}  # sums in one order, wherever they are made
        draws = {name: value.reshape(target.rows, self.draws, -1) for name, value in x.items()}
        answers, stats = _moments(target, wanted, draws, p), {"log_weights": log_w.T, "ess": ess}
        if "mcse" in answers:
            stats["mcse"] = answers.pop("mcse")
        if "gradient" in wanted:
            some = np.flatnonzero(p.ravel() != 0)  # impossible draws have no gradient
            answers["gradient"] = many.take(some).gradient({n: v[some] for n, v in x.items()}, p.ravel()[some])
        if "samples" in wanted:
            layers = target.structure.layers
            answers["samples"] = {n: np.swapaxes(layers[n].shaped(v), 0, 1) for n, v in _resampled(draws, p, rng).items()}
        if {"log_z", "log_prob"} & set(wanted):
            answers |= _evidence(log_w, wanted)
        note: tuple[str, ...] = ()
        if few(ess, self.draws):
            note = (f"an effective {ess.min():.3g} of {self.draws} draws carry the weight of a row",)
        return Result(answers, "estimate", self, plan, Status.FEW_WEIGHTS if note else Status.OK, (), stats, None, note)


def _moments(target: Target, wanted: tuple[str, ...], draws: Flat, p: Array) -> dict[str, Any]:
    """Weighted means, state probabilities and pairs; draws (rows, draws, width), weights p (rows, draws)."""
    layers, answers = target.structure.layers, dict[str, Any]()
    if "marginals" in wanted:
        mean = {n: np.einsum("rd,rdi->ri", p, v) for n, v in draws.items()}
        spread = {n: np.sqrt(np.einsum("rd,rdi->ri", p**2, (v - mean[n][:, None]) ** 2)) for n, v in draws.items()}
        prob = {n: _prob(layers[n], v, p) for n, v in draws.items() if layers[n].unit.support is not None}
        answers = {"mean": public(target, mean), "mcse": public(target, spread), "prob": squeeze(target, prob)}
    if "pairs" in wanted:
        found = {c: np.einsum("rdi,rdj->rij", p[..., None] * draws[c.a], draws[c.b], optimize=True)
                 for c in target.structure.couplings}
        found = {c: only_parameters(c, target.model.weight(c), v) for c, v in found.items()}
        answers["pairs"] = squeeze(target, {c.key: v for c, v in found.items()})
    return answers


def drawn(target: Target, rng: np.random.Generator) -> tuple[Flat, Array]:
    """A draw of each row's free units given those above, flat, and the log weight (rows,) that the evidence gives."""
    s, x = target.structure, dict(target.evidence.values)
    log_w = np.zeros(target.rows)
    for name in s.directed_layers:
        layer, inside = s.layers[name], any(c.a == name for c in s.arrows_into[name])
        groups = parents_first(target, name)[:, None] if inside else np.arange(layer.size)[None]
        for units in groups:
            zeta = layer.shaped(target.model.inputs(x, name))[:, units]
            free = target.free[name][:, units]
            if free.any():
                new = layer.unit.sample(layer.unit.link(zeta), rng).reshape(target.rows, -1)
                mask = np.repeat(free, layer.unit.width, axis=1)
                x[name] = np.array(x[name])
                columns = layer.columns(units)
                x[name][:, columns] = np.where(mask, new, x[name][:, columns])
            own = layer.unit.log_conditional(layer.shaped(x[name])[:, units], zeta)
            log_w += np.where(free | target.cut[name][:, units], 0.0, own).sum(axis=1)
    for name, field in target.soft.items():
        log_w += (x[name] * field).sum(axis=1)
    for name, layer in ((n, layer) for n, layer in s.layers.items() if n not in s.directed_layers):
        log_w += x[name] @ target.model.bias(name) + layer.unit.log_h(layer.shaped(x[name])).sum(axis=-1)
    for c in s.undirected:
        log_w += c.log_density(target.model.weight(c), x[c.a], x[c.b])
    return x, log_w


def _weighing(target: Target) -> Array:
    """How many known units of each row depend on free ones, (rows,)."""
    count = np.zeros(target.rows, dtype=int)
    for name in target.structure.directed_layers:
        seen = ~target.free[name] & ~target.cut[name] & of_free_parents(target, name)
        count += (seen | (known_softly(target, name) & target.free[name])).sum(axis=1)
    return count


def _evidence(log_w: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
    """log_z = log mean w, with its standard error."""
    log_z = log_sum(log_w, axis=1) - np.log(log_w.shape[1])
    same = (log_w == log_w[:, :1]).all(axis=1)
    ratio = np.exp(log_w - np.where(np.isfinite(log_z), log_z, 0.0)[:, None])
    error = np.where(same, 0.0, ratio.std(axis=1, ddof=1) / np.sqrt(log_w.shape[1]))
    some = np.isfinite(log_z)
    high = np.where(some, log_z, np.inf)
    out = {"log_z": log_z, "log_z_error": np.where(some, error, np.inf),
           "log_z_interval": interval(log_z, error, high, error)}
    return out | ({"log_prob": log_z} if "log_prob" in wanted else {})


def _prob(layer: Any, x: Array, p: Array) -> Array:
    """State probabilities (rows, size, K) from draws (rows, draws, width) and their weights."""
    state = layer.states(x)
    return np.stack([np.einsum("rd,rdi->ri", p, state == k) for k in range(len(layer.unit.support))], axis=-1)


def _resampled(each: Flat, p: Array, rng: np.random.Generator) -> Flat:
    """Draws of equal weight (rows, draws, width): systematic resampling, then in random order."""
    index = rng.permuted(systematic(np.where(np.isnan(p), 1.0, p), rng), axis=1)
    lost = np.isnan(p[:, :1, None])
    return {name: np.where(lost, np.nan, np.take_along_axis(v, index[..., None], axis=1)) for name, v in each.items()}
