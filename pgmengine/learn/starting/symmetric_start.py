"""A start that mini-batches would never leave, because latent units or states are exchangeable.

Optimizers that see all rows try several random starts (starts.py). Mini-batches make one
random change. Where a phase draws samples, their noise tells exchangeable units apart, and the
start stays as it is given.
"""

from __future__ import annotations

import numpy as np

from pgmengine.base.types import Array, Params
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.variational.mean_field import MeanField
from pgmengine.learn.full_batch.counting import data_moments
from pgmengine.learn.negative import ExactGradient, PseudoGradient
from pgmengine.learn.phases.batch import joint_masks
from pgmengine.learn.run import Run
from pgmengine.learn.starting.arguments import with_weight
from pgmengine.learn.starting.exchangeable import exchangeable
from pgmengine.learn.starting.random_starts import changed, why_changed
from pgmengine.learn.steps.fixed import Fixed
from pgmengine.learn.steps.wrappers import AsOne


def leave_symmetry(run: Run) -> None:
    """Change what learning could never tell apart, before the first update of mini-batches."""
    exact = run.normalized or isinstance(run.negative, (ExactGradient, PseudoGradient))
    if not (exact and isinstance(run.positive, (Exact, MeanField))):
        return
    model, target = run.model, with_weight(run.target, run.weights).with_model(run.model)
    fixed = joint_masks(run.idle, staying(run.optimizer, model.params))
    found = exchangeable(model, [(target, run.given)], fixed, {})
    if found.masks:
        moments = data_moments([(run.target, run.weights)])
        run.model = changed(model, target, moments, found.masks, fixed, run.rng)
        run.notes["starts"] = f"began at a random start{why_changed(found)}"


def staying(optimizer: object, params: Params) -> dict[str, Array]:
    """Return the masks of numbers that the optimizer fixes, or moves as one."""
    out = dict[str, Array]()
    while optimizer is not None:
        if isinstance(optimizer, Fixed):
            out = joint_masks(out, optimizer.masks(params))
        for group in optimizer.groups if isinstance(optimizer, AsOne) else ():
            out |= {name: np.ones(np.shape(params[name]), dtype=bool) for name in group}
        optimizer = getattr(optimizer, "optimizer", None)
    return out
