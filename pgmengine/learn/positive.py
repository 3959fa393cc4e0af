"""The data phase: E[d log_density | row], exact where the posterior factorises, else mean field, or
any method.
"""

from __future__ import annotations

import math
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np

from pgmengine.base.types import States
from pgmengine.graph.target import Target
from pgmengine.infer.answers import evidence_patterns
from pgmengine.infer.exact.method import Exact
from pgmengine.infer.sampling.mcmc import MCMC
from pgmengine.infer.variational.conditions import obstacle
from pgmengine.infer.variational.factors import Factors
from pgmengine.infer.variational.mean_field import MeanField

BITS = 10  # posteriors of up to so many are enumerated unless `positive` says otherwise


def default_positive(target: Target, precision: type) -> Any:
    """Mean field (exact) when all that is free is independent, Exact when that is cheap, else five
    mean-field updates.

    A short MCMC run for each row where mean field refuses, and with noisy-or children: their score
    has a pole at 0, which the bound's gradient meets wherever a leak is small. Only the graph and
    patterns of evidence decide, never how many rows there are or how much memory is free: updates
    take a few rows at a time.
    """
    each = one_of_each_pattern(target)
    one = MeanField(
        updates=5, tolerance=1e-4 if precision is np.float32 else 0.0, precision=precision
    )
    if each.pattern.independent:
        return one
    exact = Exact(BITS)
    if exact.plan(each, ("gradient",)).accepted:
        return exact
    s = target.structure
    steep = any(s.layers[c.b].unit.nonnegative and target.free[c.a].any() for c in s.arrows)
    return _short_runs(5) if steep or (each.pattern.free_parents and obstacle(target)) else one


def one_of_each_pattern(target: Target) -> Target:
    """Return the target with one row of each evidence pattern."""
    return target.take(np.array([rows[0] for rows in evidence_patterns(target)]))


def factorises(target: Target) -> bool:
    """Whether the posterior of each row is a product, so that mean field is exact."""
    return one_of_each_pattern(target).pattern.independent


def _short_runs(draws: int) -> MCMC:
    return MCMC(chains=1, warmup=10, draws=draws, rhat_limit=math.inf)


def unjudged(method: Any) -> Any:
    """A method that leaves its chains unjudged, if it has chains to judge: an update has no use for
    R-hat.
    """
    known = is_dataclass(method) and not isinstance(method, type) and hasattr(method, "rhat_limit")
    return replace(method, rhat_limit=math.inf) if known else method


def posterior_draw(target: Target, rng: np.random.Generator, q: Any = None) -> States:
    """One draw of what is free given each row, exact if that is cheap, flat; q: what the data phase
    knows of it.
    """
    if target.pattern.independent:
        if not isinstance(q, Factors):
            q = Factors(target, np.float32)
            q.round()
        return q.draw(rng)
    fits = Exact(BITS, draws=1)
    method = fits if fits.plan(target, ("samples",)).accepted else _short_runs(1)
    samples = method.run(target, ("samples",), rng=rng).samples
    return {n: target.structure.layers[n].flat(v[0]) for n, v in samples.items()}
