"""Changes of what is given: units are observed, set by do(), softly observed, or released."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from pgmengine.apps.explorer.answered import Answered
from pgmengine.apps.explorer.exploration import Given, tilted
from pgmengine.apps.explorer.messages import number, places, state_number
from pgmengine.base.errors import PgmError
from pgmengine.model.structure import Structure

# Probabilities that dragging a bar can reach, and the largest step in log-odds.
LOWEST, HIGHEST, MAX_STEP = 0.001, 0.999, 10.0


def released(structure: Structure, given: Given, action: Mapping[str, Any]) -> Given:
    """Return what is given without the units of an action."""
    return given.without(places(structure, action.get("at")))


def observed(structure: Structure, given: Given, action: Mapping[str, Any]) -> Given:
    """Observe units, or set them by do(); with `toggle` a state that is given is released."""
    where, done = places(structure, action.get("at")), bool(action.get("do"))
    state = state_number(structure, where[0], action.get("state"))
    for place in where[1:]:
        state_number(structure, place, state)
    held = given.done if done else given.observed
    if action.get("toggle") and all(_same(held.get(place), state) for place in where):
        return given.without(where)
    change = given.doing if done else given.observing
    return change(where, state)


def softly_observed(
    structure: Structure,
    given: Given,
    action: Mapping[str, Any],
    answer: Callable[[Given], Answered],
) -> Given:
    """Give soft evidence that moves the probability of a state `to` a number, or `by` log-odds.

    The log-odds of the state change by the same amount as the log-likelihood of the state, so that
    a bar ends where it was dropped.
    """
    (place,) = places(structure, [action.get("at")])
    state = state_number(structure, place, action.get("state"))
    free = Given(
        {p: v for p, v in given.observed.items() if p != place},
        {p: v for p, v in given.done.items() if p != place},
        given.soft,
    )
    now, name = answer(free), structure.names.of(place)
    if now.result is None:
        raise PgmError(f"soft evidence on {name!r} needs an answer first: {now.error}")
    p = float(now.values.prob[place[0]][place[1], state])
    if not 0 < p < 1:
        raise PgmError(
            f"soft evidence cannot change {name!r}: the probability of this state is {p:.4g}"
        )
    if "to" in action:
        to = min(max(number(action["to"], "to"), LOWEST), HIGHEST)
        change = _log_odds(to) - _log_odds(p)
    else:
        change = min(max(number(action.get("by"), "by"), -MAX_STEP), MAX_STEP)
    before = free.soft.get(place, (1.0,) * structure.state_counts[place[0]])
    return free.weighing(place, tilted(before, state, change))


def _log_odds(p: float) -> float:
    return math.log(p) - math.log1p(-p)


def _same(held: Any, state: int) -> bool:
    return type(held) is int and held == state
