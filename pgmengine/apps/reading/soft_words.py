"""Soft evidence in the words of the command line: NAME=STATE:NUMBER,STATE:NUMBER.

A number of a state may be a likelihood or the logarithm of one, and the two are easily taken for
each other. Therefore they have options of their own, and log weights have a sign, which likelihoods
never have: --likelihood "xray=yes:0.9,no:0.2", --soft "xray=yes:+1.5,no:0".
"""

from __future__ import annotations

import re
from typing import Any

import pgmengine as pgm
from pgmengine.apps.reading.cells import state
from pgmengine.apps.reading.inputs import add, name_and_rest

# A state and its number; names of states may have commas and colons.
STATE_AND_NUMBER = re.compile(r"(.+?):\s*([^,:]+?)\s*(?:,|$)", re.DOTALL)

LIKELIHOOD = re.compile(r"\d*\.?\d+(e[+-]?\d+)?|\d+\.", re.IGNORECASE)
LOG_WEIGHT = re.compile(r"[+-](\d*\.?\d+(e[+-]?\d+)?|\d+\.)|0|0\.0|-inf", re.IGNORECASE)


def read_soft(
    model: pgm.Model, soft: list[str] | None, likelihoods: list[str] | None
) -> dict[str, Any] | None:
    """Return soft evidence from texts with log weights and texts with likelihoods, or None."""
    found = dict[str, Any]()
    for text in soft or ():
        add(found, _weights(model, text, "soft"), f"soft {text!r}")
    for text in likelihoods or ():
        chances = pgm.likelihood(_weights(model, text, "likelihood"))
        add(found, chances, f"likelihood {text!r}")
    return found or None


def _weights(model: pgm.Model, text: str, option: str) -> dict[str, dict[Any, float]]:
    """Return the name of a variable -> the number of each of its states."""
    what, names = f"{option} {text!r}", model.structure.names
    form = "xray=yes:0.9,no:0.2" if option == "likelihood" else "xray=yes:+1.5,no:0"
    if "=" not in text:
        raise pgm.PgmError(f"{what}: expected NAME=STATE:NUMBER,..., such as {form}")
    name, rest = name_and_rest(model, text)
    layer = model.structure.layers[names.unit(name, what)[0]]
    parts, end = list[re.Match[str]](), 0
    while end < len(rest) and (part := STATE_AND_NUMBER.match(rest, end)):
        parts, end = [*parts, part], part.end()
    if not parts or end < len(rest):
        raise pgm.PgmError(
            f"{what}: {rest[end:]!r} is no state with its number, expected {form}, with a number "
            "for each state"
        )
    out = dict[Any, float]()
    for part in parts:
        key, number = state(layer, part[1], what), part[2]
        if key != key:
            raise pgm.PgmError(f"{what}: {part[1]!r} is no state")
        if key in out:
            raise pgm.PgmError(f"{what}: state {part[1].strip()!r} is named twice")
        _check_number(number, option, what, name, rest)
        out[key] = float(number)
    return {name: out}


def _check_number(number: str, option: str, what: str, name: str, rest: str) -> None:
    """Raise PgmError unless a number has the form of the option."""
    if option == "likelihood":
        if not LIKELIHOOD.fullmatch(number):
            raise pgm.PgmError(
                f"{what}: {number!r} is no likelihood, expected a number from 0 up without a sign; "
                "log weights, which have a sign, are given by --soft"
            )
    elif not LOG_WEIGHT.fullmatch(number):
        unsigned = bool(LIKELIHOOD.fullmatch(number))
        other = f": for likelihoods use --likelihood '{name}={rest}'" if unsigned else ""
        raise pgm.PgmError(
            f"{what}: {number!r} is no log weight, expected a number with a sign, such as "
            f"{f'+{number}' if unsigned else '+1.5'}, or 0 or -inf{other}"
        )
