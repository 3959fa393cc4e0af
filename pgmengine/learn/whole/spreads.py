"""The spread of data about their means, beside the standard deviation that a layer declares.

The standard deviation of a Gaussian child is a setting, which no fit changes. At the maximum of the
likelihood it is the root of E[(x - mean)^2 | row], the mean over rows and places; the mean is the
one that the parents give. One draw of the parents for each row estimates it.
"""

from __future__ import annotations

import logging
import math

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.learn.positive import posterior_draw
from pgmengine.learn.whole.objective import Objective
from pgmengine.model.model import Model
from pgmengine.model.structure import Structure
from pgmengine.units import Gaussian

log = logging.getLogger(__name__)

# The largest number of rows of each length of which parents are drawn.
MAX_ROWS_DRAWN = 200
# A spread is another one if its square differs from the declared variance by more than this share,
# and by so many standard errors: with n numbers, another sigma then gains n (3 sqrt(2 / n))^2 / 4 =
# 4.5 nats.
MIN_SHARE, MIN_ERRORS = 0.05, 3.0


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
    rows = np.arange(0, target.rows, max(1, target.rows // MAX_ROWS_DRAWN))
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
