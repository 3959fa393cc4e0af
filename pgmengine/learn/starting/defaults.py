"""The model phase and the optimizer of `fit` where the user names none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.exact import Exact
from pgmengine.learn.contracts import Negative, Optimizer
from pgmengine.learn.full_batch.counting import is_complete
from pgmengine.learn.full_batch.objective import is_exact
from pgmengine.learn.full_batch.optimizer_contract import FullBatch
from pgmengine.learn.negative import CD, PCD, ExactGradient, PseudoGradient
from pgmengine.learn.phases.batch import only
from pgmengine.learn.steps.em import EM, counting_suffices, not_counted
from pgmengine.learn.steps.lbfgs import LBFGS, concave
from pgmengine.learn.steps.optimizers import SGD, Adam, noisy_or_floors
from pgmengine.learn.steps.scaled import Scaled
from pgmengine.learn.steps.schedules import linear_decay
from pgmengine.learn.steps.wrappers import Centered

# The largest planned time, in seconds, of exact answers about a mini-batch that are computed at
# every update.
MAX_UPDATE_SECONDS = 2e-3
# The largest planned time, in seconds, of exact answers about all rows, for LBFGS by default.
MAX_ROWS_SECONDS = 0.1
# The largest log2 of the number of states, and the largest number of table entries, for which exact
# answers are considered.
MAX_BATCH_BITS, MAX_BATCH_ENTRIES = 14, 2**14

# The first rate of Centered(Scaled(SGD)). A data phase that is only a bound and the chains of the
# model phase can make each other diverge, which the smaller rate of bounds prevents.
SCALED_RATE, SCALED_RATE_OF_BOUNDS, SCALED_RATE_WITHOUT_CHAINS = 1.2, 0.45, 3.0
# Short runs need larger steps: the rate is multiplied by 1 + SHORT_RUN_UPDATES / updates, but by at
# most this factor. With a factor of 3, bounds diverged in one of three fits of 100 updates.
SHORT_RUN_UPDATES, MAX_RATE_FACTOR, MAX_RATE_FACTOR_OF_BOUNDS = 200, 4.0, 2.0
# The first rate of Adam, for models with tables or noisy-or units: entries of rare rows have small
# gradients, and the gradient of a leak has a pole at 0.
ADAM_RATE = 0.1


def chosen(
    optimizer: Optimizer | FullBatch | None,
    target: Target,
    given: Mapping[str, Array],
    negative: Negative | None,
    positive: object = None,
) -> tuple[Optimizer | FullBatch | None, str]:
    """Return the optimizer, and why it sees all rows if that is a choice made here.

    None is for mini-batches, whose default depends on the phases.
    """
    if optimizer is not None:
        return optimizer, ""
    if negative is None and counting_suffices(target, given):
        if not target.structure.arrows:
            return EM(), "learned by EM, because every parameter is the table of a conditional"
        if positive is None and is_exact(target):
            return EM(), (
                "learned by EM, because every parameter is a conditional that expected counts and "
                "sums determine"
            )
    if negative is None and positive is None and not given and cheap_posterior(target):
        why = not_counted(target, given)
        return LBFGS(), f"learned by LBFGS, because EM cannot learn this model: {why}"
    if not (is_complete(target) and concave(target.structure)):
        return None, ""
    if isinstance(negative, PseudoGradient):
        return LBFGS(), "learned by LBFGS, because the pseudo-likelihood is concave"
    if negative is None and cheap_normaliser(target, given):
        return LBFGS(), (
            "learned by LBFGS, because the likelihood of complete data is concave and its "
            "normaliser is cheap"
        )
    return None, ""


def cheap_posterior(target: Target) -> bool:
    """Return whether LBFGS learns a directed model by exact gradients, in little time.

    Such as a mixture, or a chain with observations that are no tables. Small steps on mini-batches
    would not leave a start at which the states of a latent variable are alike; LBFGS takes random
    starts there. They also end far from the best inputs of real children.
    """
    s = target.structure
    real = any(s.arrows_into[name] and s.layers[name].unit.support is None for name in s.layers)
    if not (s.normalized and (s.tables or real)) or noisy_or_floors(s):
        return False
    exact = Exact(MAX_BATCH_BITS, max_states=MAX_BATCH_ENTRIES, max_work=0)
    plan = exact.plan(target, ("log_z", "gradient"))
    return plan.accepted and plan.seconds <= MAX_ROWS_SECONDS


def cheap_normaliser(target: Target, given: Mapping[str, Array]) -> bool:
    """Return whether the exact gradient of all rows takes little time."""
    rows = only(target, given)
    if any(x.unit.support is None and rows.free[n].any() for n, x in rows.structure.layers.items()):
        return False
    exact = Exact(MAX_BATCH_BITS, max_states=MAX_BATCH_ENTRIES, max_work=0)
    plan = exact.plan(rows, ("log_z", "gradient"))
    return plan.accepted and plan.seconds <= MAX_ROWS_SECONDS


def default_negative(conditioned: Target, given: bool, batch: int) -> Negative:
    """Return the model phase: exact where that is cheap, else chains.

    `conditioned` is the target of the model phase; with `given` units, each row of a mini-batch has
    its own model phase.
    """
    if conditioned.structure.normalized and not given:
        # There is no model phase; PCD here only sets single precision, which is faster.
        return PCD()
    rows = conditioned.take(np.arange(batch if given else 1))
    plan = Exact(MAX_BATCH_BITS, max_states=MAX_BATCH_ENTRIES, max_work=0).plan(rows, ("gradient",))
    if plan.accepted and plan.seconds <= MAX_UPDATE_SECONDS:
        return ExactGradient()
    return CD() if given else PCD()


def default_optimizer(target: Target, *, model_phase: bool, exact: bool, updates: int) -> Optimizer:
    """Return steps with a rate that falls to 0 at the last update.

    Parameters
    ----------
    model_phase : whether there is a model phase; a normalised model has none.
    exact : whether the data phase is exact.
    updates : number of updates of the whole run.
    """
    if target.structure.tables or noisy_or_floors(target.structure):
        return Adam(linear_decay(ADAM_RATE, max(updates, 1)))
    if model_phase and not exact:
        rate = falling_rate(SCALED_RATE_OF_BOUNDS, updates, MAX_RATE_FACTOR_OF_BOUNDS)
    else:
        rate = falling_rate(SCALED_RATE if exact else SCALED_RATE_WITHOUT_CHAINS, updates)
    return Centered(Scaled(SGD(rate)))


def falling_rate(first: float, updates: int, most: float = MAX_RATE_FACTOR) -> linear_decay:
    """Return a rate that falls to 0 at the last update, and is up to `most` times `first`."""
    updates = max(updates, 1)
    return linear_decay(first * min(1 + SHORT_RUN_UPDATES / updates, most), updates)
