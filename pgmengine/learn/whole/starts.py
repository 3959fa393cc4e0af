"""Random starts of learning, of which the best one after some updates goes on.

Random starts are needed where learning could never tell states of a latent variable apart
(exchangeable.py). They also help where the likelihood has several maxima. Again and again, the
better half of the starts goes on for twice as many updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pgmengine.base.errors import listed
from pgmengine.base.types import Snapshot
from pgmengine.learn.whole.exchangeable import perturbed
from pgmengine.learn.whole.objective import Objective
from pgmengine.model.model import Model

# The first words of the note of a fit that has tried several starts.
BEST_OF = "began at the best of"

# Random starts where the one that was given cannot be left, and the updates after which the better
# half of any starts goes on, for twice as many. Of 96 fits of hidden Markov models of three to six
# states by EM, 7 miss the best fit, 1 with fifty starts, and 16 with a single one (em_starts.py).
RANDOM_STARTS, UPDATES_OF_A_START = 12, 5

# Makes an update of a model; the moments of the optimizer change in place.
Update = Callable[[Model, Snapshot], Model]


def begun(
    objective: Objective,
    model: Model,
    stuck: Sequence[str],
    starts: int | None,
    moments: Callable[[], Snapshot],
    update: Update,
    value: Callable[[Model], float | None],
) -> tuple[Model, Snapshot]:
    """Return the model at which learning begins, and the moments of the optimizer there.

    It is the model itself, or the best of several starts after some updates, which a note says.

    Parameters
    ----------
    objective : the rows.
    model : the given start.
    stuck : the latent units with exchangeable states, in words.
    starts : the number of starts; by default 1, or RANDOM_STARTS if states are exchangeable.
    moments : makes the moments before the first update.
    update : makes an update.
    value : returns the objective at a model.
    """
    count = starts or (RANDOM_STARTS if stuck else 1)
    # Starts are compared by their objective.
    count = count if objective.exact else 1
    if count == 1 and not stuck:
        return model, moments()
    first = [] if stuck else [model]
    begins = first + [
        perturbed(model, objective.target, objective.fixed, objective.rng)
        for _ in range(count - len(first))
    ]
    best, updates = _best([(one, moments()) for one in begins], update, value)
    why = f", because states of {listed(stuck)} are exchangeable" if stuck else ""
    kind = "starts" if first else "random starts"
    made = f", after {updates} updates of it" if updates else ""
    objective.notes["starts"] = f"{BEST_OF} {len(begins)} {kind}{made}{why}"
    return best


def _best(
    starts: list[tuple[Model, Snapshot]], update: Update, value: Callable[[Model], float | None]
) -> tuple[tuple[Model, Snapshot], int]:
    """Return the best start after some updates, and the number of its updates."""
    updates, made = UPDATES_OF_A_START, 0
    while len(starts) > 1:
        values = np.full(len(starts), np.nan)
        for i, (model, moments) in enumerate(starts):
            for _ in range(updates):
                model = update(model, moments)
            starts[i] = model, moments
            values[i] = value(model)
        kept = np.argsort(-values, kind="stable")[: len(starts) // 2]
        made += updates
        starts, updates = [starts[i] for i in kept], 2 * updates
    return starts[0], made
