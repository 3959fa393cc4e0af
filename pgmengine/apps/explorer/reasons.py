"""The contribution of each observation to a unit, as a list for front ends."""

from __future__ import annotations

from typing import Any

from pgmengine.apps.explorer.answered import MAX_ANSWER_SECONDS
from pgmengine.apps.explorer.exploration import Given, arguments
from pgmengine.apps.explorer.messages import places
from pgmengine.base.display import plain
from pgmengine.base.errors import PgmError
from pgmengine.declare.model import Model
from pgmengine.infer.insight.impact import impact

# Observations that a list of reasons has at most, and log-odds beyond which a bar is full.
MAX_REASONS, FULL_LOG_ODDS = 64, 6.0


def reasons(model: Model, given: Given, at: object) -> dict[str, Any]:
    """Return the contributions of observations to the unit at a place; errors are in words."""
    try:
        (place,) = places(model.structure, [at])
        several = len(given.observed) + len(given.soft)
        if several > MAX_REASONS:
            raise PgmError(
                f"{several} units are given; reasons are listed for at most {MAX_REASONS}"
            )
        asked = arguments(model.structure, given)
        found = impact(
            model,
            asked.evidence,
            place,
            soft=asked.soft,
            do=asked.do or None,
            rng=0,
            seconds=MAX_ANSWER_SECONDS,
        )
    except PgmError as error:
        place_sent = at if isinstance(at, str) else ""
        return {"at": place_sent, "name": "", "error": str(error), "rows": []}
    shown = [*found.after]
    if len(shown) == 2:
        # Two states have opposite log-odds. The first one is shown if states have names, and the
        # second one, which is the state of a picture, if not.
        named = model.structure.layers[place[0]].state_names is not None
        shown = shown[:1] if named else shown[1:]
    rows = [
        {
            "text": str(one),
            "changes": [
                {
                    "state": plain(s),
                    "removed": _signed(one.removed[s]),
                    "alone": _signed(one.alone[s]),
                    "share": min(max(one.removed[s] / FULL_LOG_ODDS, -1.0), 1.0),
                }
                for s in shown
            ],
        }
        for one in found.contributions
    ]
    return {"at": at, "name": plain(found.name), "error": "", "kind": found.kind, "rows": rows}


def _signed(x: float) -> str:
    """Return a change of log-odds as text."""
    return f"{x:+.2f}".replace("inf", "∞").replace("-", "−")
