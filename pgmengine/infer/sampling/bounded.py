"""A proven lower bound against an estimate of log Z.

Chains that are cooled from independent units do not reach a phase that appears late and suddenly,
and no statistic of these chains can show it. Mean field starts from several points, and its bound
is proven: where it lies above the interval of an estimate, the estimate is wrong.
"""

from __future__ import annotations

import numpy as np

from pgmengine.base.types import Array
from pgmengine.graph.target import Target
from pgmengine.infer.variational.mean_field import MeanField

# Starts of the mean-field iterations; the bound is the best one of their fixed points.
BOUND = MeanField(restarts=4)

# Relative error of a bound by rounding.
ROUNDING = 1e-6


def below_a_bound(target: Target, interval: Array) -> tuple[str, ...]:
    """Return a warning if the mean-field bound of log Z lies above the interval of an estimate.

    Parameters
    ----------
    target : the question, whose log Z was estimated.
    interval : (rows, 2), lower and upper end, in nats.
    """
    question = BOUND.prepare(target, ("bound",))
    if not question.plan.accepted:
        return ()
    bound = question.run(rng=0).bound
    above = bound - interval[:, 1] - ROUNDING * (1.0 + np.abs(bound))
    row = int(np.argmax(above))
    if not above[row] > 0:
        return ()
    return (
        f"row {target.first + row}: mean field proves that log Z is at least {bound[row]:.6g}, "
        f"above the interval of the estimate, which ends at {interval[row, 1]:.6g}",
    )
