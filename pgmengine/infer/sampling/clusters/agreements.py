"""Factors over at most two units of q states each, as fields and couplings of agreement.

A log factor of two units is read as

    f(s_a, s_b) = c + h_a(s_a) + h_b(s_b) + J (2 [s_a = s_b] - 1)

where the fields h of a unit sum to 0. With two states, every factor has this form, and J is the
coupling of spins. With more, it is the form of the Potts model, and other factors are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.equal_rows import distinct_pairs
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.evidence.target import Target, one_for_all
from pgmengine.infer.exact.junction_tree.conditioned_model import Conditioned, Form, condition

# Fields and parts of a factor count as 0 up to this share of the sizes of their terms.
AGREEMENT_ROUNDING = 2.0**-40


@dataclass(frozen=True, eq=False)
class Agreements:
    """The free units of rows of one evidence pattern, `lanes` is 1 if they are alike in all rows.

    Attributes
    ----------
    layers : layer -> its free units.
    edges : (edges, 2) the different pairs of units that factors join.
    constant : (lanes,) the part of the log density that is the same for all states.
    h : (units, states, lanes) fields, and J : (edges, lanes) couplings.
    """

    layers: dict[str, Array]
    edges: Array
    constant: Array
    h: Array
    J: Array


def agreements(target: Target) -> Agreements:
    """Return the fields and couplings of a target whose rows share one evidence pattern.

    PgmError if the free units are not pairs of units with equally many states that agree or not, or
    if a state is impossible.
    """
    conditioned = condition(one_for_all(target, np.arange(target.rows)), Form())
    states = np.unique(conditioned.states)
    if len(states) > 1 or (states < 2).any():
        raise PgmError(
            f"free units have {' or '.join(map(str, states))} states, and clusters are of units "
            "with equally many"
        )
    lengths = np.diff(conditioned.scopes.start)
    if (lengths > 2).any():
        raise PgmError("factors join more than two units, and only pairs can agree")
    entries = conditioned.finite_entries(target)
    lanes, q = entries.shape[1], int(states[0]) if len(states) else 2
    first = conditioned.sizes.cumsum() - conditioned.sizes
    a, b = (_members(conditioned, lengths == 2, i) for i in range(2))
    alone = _members(conditioned, lengths == 1, 0)
    one = entries[first[lengths == 1][:, None] + np.arange(q)]
    two = entries[first[lengths == 2][:, None] + np.arange(q * q)].reshape(len(a), q, q, lanes)
    middle, mean = one.mean(axis=1), two.mean(axis=(1, 2))
    by_a, by_b = two.mean(axis=2) - mean[:, None], two.mean(axis=1) - mean[:, None]
    rest = two - by_a[:, :, None] - by_b[:, None] - mean[:, None, None]
    K = np.trace(rest, axis1=1, axis2=2) / (q - 1)
    beyond = np.abs(rest - K[:, None, None] * (np.eye(q) - 1.0 / q)[:, :, None]).max(axis=(1, 2))
    if (beyond > AGREEMENT_ROUNDING * np.abs(two).max(axis=(1, 2), initial=0.0)).any():
        raise PgmError(
            "factors depend on more than whether two units agree, and only agreement joins units "
            "with more than two states to clusters"
        )
    h, size = np.zeros((2, len(conditioned.states), q, lanes))
    for units, own, whole in (
        (alone, one - middle[:, None], one),
        (a, by_a, two.reshape(len(a), q * q, lanes)),
        (b, by_b, two.reshape(len(a), q * q, lanes)),
    ):
        np.add.at(h, units, own)
        np.add.at(size, units, np.abs(whole).max(axis=1, keepdims=True, initial=0.0))
    # Sums of terms that cancel leave rounding, which is no field.
    h[np.abs(h) <= AGREEMENT_ROUNDING * size] = 0.0
    edges, which = distinct_pairs(np.minimum(a, b), np.maximum(a, b))
    J = np.zeros((len(edges), lanes))
    np.add.at(J, which, K / 2.0)
    constant = entries[first[lengths == 0]].sum(axis=0) + middle.sum(axis=0)
    constant = constant + (mean + K * (0.5 - 1.0 / q)).sum(axis=0)
    layers = conditioned.free.layers
    return Agreements(layers, edges, constant + conditioned.constant(target), h, J)


def _members(conditioned: Conditioned, some: Array, place: int) -> Array:
    """Return the unit at a place of the scope of each of some factors."""
    scopes = conditioned.scopes
    return np.asarray(scopes.scope[scopes.start[:-1][some] + place], dtype=np.int64)
