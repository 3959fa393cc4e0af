"""Waves of a sweep: visits of units that need not wait for each other.

A visit reads the states of the units that share a scope with its unit. A scope is a table, a
coupling, or a child of arrows with its parents. Only visits in a common scope have to keep their
order. Each unit is therefore in the wave after the latest wave of the units before it in its
scopes. The same wave of the next sweep may begin only `period` waves later, so that several sweeps
are in progress at once. The resulting states are the same as with one visit after the other, but
the processor works on several visits at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array
from pgmengine.model.graph.unit_graph import Rows, unit_graph
from pgmengine.model.parameters import Parameters

# The number of sweeps in progress at once, as PGM_SWEEPS_TOGETHER in routines.h.
SWEEPS_TOGETHER = 8

# Waves are used if they have at least this number of visits on average; they are then faster.
MIN_VISITS_A_WAVE = 1.5


@dataclass(frozen=True, eq=False)
class Waves:
    """The visits of a sweep by waves.

    Attributes
    ----------
    unit : (visits,) the units, wave after wave.
    start : (waves + 1,) the first visit of each wave.
    period : the number of waves from a wave to the same wave of the next sweep.
    """

    unit: Array
    start: Array
    period: int

    @property
    def width(self) -> float:
        """The average number of visits that do not wait for each other."""
        waves = len(self.start) - 1 + (SWEEPS_TOGETHER - 1) * self.period
        return SWEEPS_TOGETHER * len(self.unit) / waves


def waves(model: Parameters, visit: Array) -> Waves:
    """Return the waves of sweeps that visit the units (visits,) in their order."""
    start, scope, count = _scopes(model)
    wave, period = _kernels.waves(visit, start, scope, count)
    visits = Rows.of_keys(wave, int(wave.max(initial=-1)) + 1)
    return Waves(visit[visits.columns], visits.start, period)


def _scopes(model: Parameters) -> tuple[Array, Array, int]:
    """Return the scopes of each unit as a csr matrix (units, scopes): row starts and columns."""
    graph = unit_graph(model)
    one, two = graph.pairs.rows, graph.pairs.columns
    once = one < two
    # One scope for each pair of coupled units, then tables, then children with their parents.
    pairs = np.arange(int(once.sum()))
    unit = np.concatenate([one[once], two[once], graph.members.columns])
    scope = np.concatenate([pairs, pairs, len(pairs) + graph.members.rows])
    found = Rows.of_keys(unit, model.structure.units)
    count = len(pairs) + len(graph.members.start) - 1
    return found.start, scope[found.columns].astype(np.int32), count
