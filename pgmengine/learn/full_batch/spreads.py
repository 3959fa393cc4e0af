"""The spread of data about their means, beside the standard deviation that a model has for them.

The standard deviation of a Normal child is learned, and has a smallest value: with one value, or
equal ones, for itself, a state gains likelihood without limit as its standard deviation falls.
`collapsed` finds the children with this value. Where the rows of a parameter are the whole inputs
of children, each row belongs to a state of their parents; elsewhere parents are drawn.

The standard deviation of a Gaussian child is a setting, which no fit changes. At the maximum of the
likelihood it is the root of E[(x - mean)^2 | row], the mean over rows and places; the mean is the
one that the parents give. One draw of the parents for each row estimates it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.learn.full_batch.objective import Objective
from pgmengine.learn.monitoring.finding import Finding, FindingKind
from pgmengine.learn.phases.positive import posterior_draw
from pgmengine.model.names.state_names import text_of
from pgmengine.model.structure import Structure
from pgmengine.model.terms.input_rows import rows_of_inputs
from pgmengine.units import FullNormal, Gaussian, Normal, Unit

log = logging.getLogger(__name__)

# The types whose standard deviations are learned.
LEARNED = Normal, FullNormal
# The largest number of rows of each length of which parents are drawn.
MAX_ROWS_DRAWN = 200
# A spread is another one if its square differs from the declared variance by more than this share,
# and by so many standard errors: with n numbers, another sigma then gains n (3 sqrt(2 / n))^2 / 4 =
# 4.5 nats.
MIN_SHARE, MIN_ERRORS = 0.05, 3.0
# A logarithm of a standard deviation that is so near to the smallest one counts as equal.
ROUNDING = 1e-9


def other_spreads(objective: Objective, model: Model) -> dict[str, tuple[float, float]]:
    """Return layer -> (sigma, spread about the means) of layers where the two differ.

    Only Gaussian layers whose units have parents count.
    """
    if not _children(model.structure):
        return {}
    rng, squares = np.random.default_rng(0), dict[str, list[Array]]()
    try:
        for target, weights in objective.weighed_rows(model):
            for name, found in _squares(target, weights, rng).items():
                squares.setdefault(name, []).append(found)
    except PgmError as error:
        log.info("no spread, because parents cannot be drawn: %s", error)
        return {}
    spreads = dict[str, tuple[float, float]]()
    for name, parts in squares.items():
        z, w = np.concatenate(parts, axis=1)
        if not w.any():
            continue
        mean = float(np.average(z, weights=w))
        standard_error = np.sqrt((w**2) @ (z - mean) ** 2) / w.sum()
        if abs(mean - 1.0) > max(MIN_SHARE, MIN_ERRORS * standard_error):
            sigma = _sigma(model.structure, name)
            spreads[name] = sigma, sigma * math.sqrt(mean)
    return spreads


def _children(s: Structure) -> list[str]:
    """Return the Gaussian layers whose units have parents."""
    return [name for name in s.directed_layers if _sigma(s, name) and s.arrows_into[name]]


def _sigma(s: Structure, name: str) -> float:
    """Return the standard deviation that a layer declares; 0 where its units have none."""
    unit = s.layers[name].unit
    return unit.sigma if isinstance(unit, Gaussian) else 0.0


def _squares(target: Target, weights: Array, rng: np.random.Generator) -> dict[str, Array]:
    """Return layer -> (x - mean)^2 / variance of its observed units, and their weights, (2, n).

    There is one draw of the parents for each row.
    """
    s = target.structure
    rows = _spaced(np.arange(target.rows))
    some = target.take(rows)
    x = posterior_draw(some, rng)
    out = {}
    for name in _children(s):
        unit, zeta = s.layers[name].unit, some.model.inputs(x, name)
        seen = np.broadcast_to(~(some.free[name] | some.intervened[name]), zeta.shape)
        z = (x[name] - unit.mean(zeta)) ** 2 / unit.variance(zeta)
        w = np.broadcast_to(weights[rows][:, None], z.shape)
        out[name] = np.stack([z[seen], w[seen]])
    return out


def collapsed(model: Model, rows: Iterable[tuple[Target, Array]]) -> tuple[Finding, ...]:
    """Return a finding for each layer with Normal children of the smallest standard deviation.

    Parameters
    ----------
    model : the learned model.
    rows : the rows of data of each length, with its parameters, and their weights.
    """
    s, found = model.structure, dict[str, list[str]]()
    named = {key: unit for key, unit in rows_of_inputs(s).items() if isinstance(unit, LEARNED)}
    for term in s.shared:
        if unit := named.get(term.key):
            low = _lowest(unit, np.asarray(model.params[term.key]))
            states = np.flatnonzero(low.reshape(-1, low.shape[-1]).any(axis=0))
            if len(states):
                words = _states(s, term.layers[0], states)
                found.setdefault(term.layers[1], []).append(words)
    covered = {t.layers[1] for t in s.shared if t.key in named}
    others = [n for n, x in s.layers.items() if isinstance(x.unit, LEARNED) and n not in covered]
    for name in _drawn_low(others, rows) if others else ():
        found[name] = ["units"]
    return tuple(
        Finding(
            FindingKind.COLLAPSED,
            np.nan,
            0.0,
            f"{listed(list(dict.fromkeys(words)))} in {name!r}",
            sigma=_least_sigma(s, name),
        )
        for name, words in found.items()
    )


def _least_sigma(s: Structure, name: str) -> float:
    """Return the smallest standard deviation of a layer of Normal units."""
    unit = s.layers[name].unit
    assert isinstance(unit, LEARNED)
    return unit.least_sigma


def _lowest(unit: Unit, zeta: Array) -> Array:
    """Return where inputs (..., width) have a smallest standard deviation, but for rounding."""
    return np.asarray((zeta <= np.array(unit.least_inputs) + ROUNDING).any(axis=-1))


def _states(s: Structure, parent: str, states: Array) -> str:
    """Return states of a parent in words."""
    names = s.layers[parent].state_names
    words = [text_of(names[k]) if names else str(k) for k in states]
    return f"{'state' if len(words) == 1 else 'states'} {listed(words)} of {parent!r}"


def _drawn_low(names: list[str], rows: Iterable[tuple[Target, Array]]) -> list[str]:
    """Return the layers with observed units of the lowest spread at draws of their parents."""
    rng, found = np.random.default_rng(0), list[str]()
    try:
        for target, weights in rows:
            some = target.take(_spaced(np.flatnonzero(weights > 0)))
            x = posterior_draw(some, rng)
            for name in names:
                layer = target.structure.layers[name]
                assert isinstance(layer.unit, LEARNED)
                low = _lowest(layer.unit, layer.shaped(some.model.inputs(x, name)))
                if (low & ~(some.free[name] | some.intervened[name])).any():
                    found.append(name)
    except PgmError as error:
        log.info("no smallest spread is found, because parents cannot be drawn: %s", error)
    return list(dict.fromkeys(found))


def _spaced(rows: Array) -> Array:
    """Return at most about MAX_ROWS_DRAWN rows."""
    return rows[:: max(1, len(rows) // MAX_ROWS_DRAWN)]
