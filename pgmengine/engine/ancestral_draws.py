"""Draws of units with a conditional table from their parents, in arrays (units, draws).

    p(x_u = k | parents) = T_u[states of the parents, k]

The routine of c/ancestral.h draws a step of units, whose parents have been drawn before, and adds
up log p of the observed ones. States are stored as numbers, and converted to values only for
functions that read values. The reference implementation, in the tests, draws unit by unit in numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array, States
from pgmengine.base.work.threads import parts
from pgmengine.evidence.target import Target
from pgmengine.model.tables import joined_states

# The smallest number of draws of single units for which a further thread is started: they take half
# a millisecond.
MIN_DRAWS_A_THREAD = 50_000

# The treatment of a unit in a row, numbered as in c/routines.h.
LEFT, DRAWN, WEIGHED = range(3)


class Conditionals:
    """Draws of all units for each row; units with a conditional are drawn step by step.

    Attributes
    ----------
    states : (units, rows * each) int32, with the draws of a row side by side; 0 for units with
        infinitely many values.
    x : layer -> (rows * each, width), values. `refresh` brings the values of units with a
        conditional up to date. Before its first call, a layer with only such units is absent.
    """

    def __init__(self, target: Target, x: States, each: int = 1) -> None:
        """Begin with `each` copies of the values x, layer -> (rows, width)."""
        self.target, self.each, s = target, each, target.structure
        own = joined_states(s, x).T.astype(np.int32, order="C")
        self.states = np.repeat(own, each, axis=1)
        whole = {name for name in s.layers if (s.child_tables[name] >= 0).all()}
        self.x = {name: np.repeat(v, each, axis=0) for name, v in x.items() if name not in whole}

    def put(self, name: str, value: Array) -> None:
        """Replace the values (draws, width) of a layer."""
        s = self.target.structure
        self.x[name], layer, first = value, s.layers[name], s.first_unit[name]
        if layer.unit.support is not None:
            self.states[first : first + layer.size] = layer.states(value).T

    def refresh(self, names: Iterable[str]) -> States:
        """Return x, with the values of these layers updated from the current states."""
        s = self.target.structure
        for name in names:
            layer, own = s.layers[name], np.flatnonzero(s.child_tables[name] >= 0)
            if not len(own):
                continue
            assert layer.unit.support is not None
            states = np.ascontiguousarray(self.states[s.first_unit[name] + own].T)
            values = layer.unit.support.take(states, axis=0).reshape(len(states), -1)
            if len(own) == layer.size:
                self.x[name] = values
            else:
                self.x[name] = self.x[name].copy()
                self.x[name][:, layer.columns(own)] = values
        return self.x

    def draw(self, chosen: Mapping[str, Array], rng: np.random.Generator) -> Array:
        """Draw the free units among layer -> units; return log p (draws,) of the observed ones.

        Units that do() has set are neither drawn nor weighed.
        """
        target, s = self.target, self.target.structure
        log_p = np.zeros(self.states.shape[1])
        unit = np.concatenate([s.first_unit[name] + own for name, own in chosen.items()])
        role = np.concatenate([_role(target, name, own) for name, own in chosen.items()])
        table = np.concatenate([s.child_tables[name][own] for name, own in chosen.items()])
        index = s.table_index
        # The last axis of a conditional is its child.
        counts = index.start[table + 1] - index.start[table] - 1
        start = np.append(0, np.cumsum(counts))
        axes = np.repeat(index.start[table] - start[:-1], counts) + np.arange(start[-1])
        drawn = (role == DRAWN).any(axis=1)
        _kernels.draw_step(
            unit,
            index.states[index.start[table + 1] - 1],
            index.first[table],
            start,
            index.unit[axes],
            index.stride[axes],
            role,
            np.where(drawn, np.cumsum(drawn) - 1, 0),
            rng.random((int(drawn.sum()), len(log_p))),
            target.model.table_prob,
            target.model.table_entries,
            self.states,
            log_p,
            parts(self.states.shape[1] * len(unit), MIN_DRAWS_A_THREAD),
        )
        return log_p

    def entries(self, tables: Array) -> Array:
        """Return the entries (draws, n) of some tables at the current states."""
        return self.target.structure.table_index.entries_of(self.states.T, tables)

    def counted(self, name: str, p: Array) -> tuple[Array, Array]:
        """Return sums over draws at each state of a layer, (rows, size, K), of p and of p^2.

        p (rows, each) are importance weights.
        """
        s, layer = self.target.structure, self.target.structure.layers[name]
        assert layer.unit.support is not None
        first, rows = s.first_unit[name], len(p)
        states = self.states[first : first + layer.size].reshape(layer.size, rows, -1)
        out = np.empty((layer.size, rows, len(layer.unit.support), 2))
        _kernels.tally(states, p, out, parts(states.size, MIN_DRAWS_A_THREAD))
        # If the weights of a row are NaN, so are all its sums.
        out[:, np.isnan(p[:, 0])] = np.nan
        return np.swapaxes(out[..., 0], 0, 1), np.swapaxes(out[..., 1], 0, 1)


def _role(target: Target, name: str, units: Array) -> Array:
    """Return LEFT, DRAWN or WEIGHED for some units of a layer, (units, rows)."""
    free, intervened = target.free[name][:, units], target.intervened[name][:, units]
    role = np.where(free, DRAWN, np.where(intervened, LEFT, WEIGHED))
    return np.ascontiguousarray(role.T, dtype=np.uint8)
