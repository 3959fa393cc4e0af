"""Waves of sweeps: visits that share a scope keep their order, and no state changes by them."""

from itertools import combinations

import numpy as np
import pytest
from chains_of_units import of_tables
from loops import one_test_over
from random_graphs import random_graph
from registry import COMPILED
from tiny import FINITE

import pgmengine as pgm
from pgmengine.engine.chains import start
from pgmengine.engine.single_site import sweeps
from pgmengine.engine.single_site.independent_visits import Waves, waves
from pgmengine.engine.single_site.sweeps import TabledChains

# Neighbours are mostly alike.
ALIKE = np.exp(0.9 * np.array([[1.0, -1.0], [-1.0, 1.0]]))
kernels = pytest.mark.parametrize("kernel", COMPILED, ids=repr)


def models():
    """Models of all kinds that the engine knows."""
    found = [m.build() for m in FINITE]
    found += [random_graph(seed, 2**10).build() for seed in range(30)]
    return [m for m in found if sweeps.in_lanes(m.structure)]


def neighbours(model):
    """Pairs of units, numbered over all layers, that are in one table, coupling or family."""
    s, pairs = model.structure, set()
    for t in s.tables:
        for row in t.index.tolist():
            members = [s.first_unit[n] + i for n, i in zip(t.layers, row, strict=True)]
            pairs |= set(combinations(sorted(members), 2))
    families = {}
    for c in s.couplings:
        a, b = s.layers[c.a], s.layers[c.b]
        weight = model.weight(c)
        dense = weight.toarray() if hasattr(weight, "toarray") else np.asarray(weight)
        parts = dense.reshape(a.size, a.unit.width, b.size, b.unit.width)
        for i, j in np.argwhere((parts != 0).any(axis=(1, 3))).tolist():
            one, other = s.first_unit[c.a] + i, s.first_unit[c.b] + j
            if c.directed:
                families.setdefault(other, {other}).add(one)
            elif one != other:
                pairs.add((min(one, other), max(one, other)))
    for family in families.values():
        pairs |= set(combinations(sorted(family), 2))
    return pairs


def timetable(found, sweeps):
    """(sweep, unit) -> the time of the visit, as the compiled sweeps make it."""
    out = {}
    for t in range(sweeps):
        for w in range(len(found.start) - 1):
            for unit in found.unit[found.start[w] : found.start[w + 1]]:
                out[t, int(unit)] = w + t * found.period
    return out


@one_test_over("model", models)
def test_visits_of_neighbours_keep_their_order(model):
    target = model.given()
    chains = TabledChains(
        target, pgm.Gibbs(), start(target, np.random.default_rng(0)), np.random.default_rng(0)
    )
    found, sweeps = waves(model, chains.visit), 4
    assert sorted(found.unit) == sorted(chains.visit)
    time = timetable(found, sweeps)
    place = {int(unit): i for i, unit in enumerate(chains.visit)}
    for one, other in neighbours(model):
        if one not in place or other not in place:
            continue
        visits = [(t, place[u], u) for t in range(sweeps) for u in (one, other)]
        times = [time[t, u] for t, _, u in sorted(visits)]
        assert all(np.diff(times) > 0), (one, other, times)


def states_after(target, kernel, sweeps, backward):
    """The states of chains after calls of some sweeps each."""
    x = start(target, np.random.default_rng(0))
    chains = TabledChains(target, kernel, x, np.random.default_rng(1))
    for count in sweeps:
        chains.sweep(count, backward)
    return chains.state


@kernels
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("rows", [1, 2])
def test_waves_change_no_state(rows, backward, kernel, monkeypatch):
    monkeypatch.setattr(sweeps, "MIN_VISITS_A_WAVE", 0.0)
    monkeypatch.setattr(sweeps, "MIN_SWEEPS_A_PLAN", 19)
    for model in [*models(), of_tables(pgm.Spin(), 40, ALIKE)]:
        target = model.given().take(np.zeros(rows, dtype=int)).at(0.7)
        alone = states_after(target, kernel, [1] * 19, backward)
        together = states_after(target, kernel, [19], backward)
        np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("broken", ["period", "order"])
def test_wrong_waves_are_caught(broken, monkeypatch):
    target = of_tables(pgm.Spin(), 40, ALIKE).given()
    alone = states_after(target, pgm.Gibbs(), [1] * 70, False)

    def wrong(model, visit):
        found = waves(model, visit)
        if broken == "period":
            return Waves(found.unit, found.start, found.period - 2)
        return Waves(found.unit[::-1].copy(), found.start, found.period)

    monkeypatch.setattr(sweeps, "waves", wrong)
    assert (states_after(target, pgm.Gibbs(), [70], False) != alone).any()


def test_new_parameters_have_waves_of_their_own():
    """A coupling of weight 0 binds nobody; with another weight its units wait for each other."""
    b = pgm.GraphBuilder()
    for i in range(70):
        b.layer(f"x{i}", pgm.Spin(), 1)
    for i in range(69):
        b.couple(f"x{i}", f"x{i + 1}", weight=np.zeros((1, 1)))
    none = b.build()
    some = none.with_params({f"{c.key}.weight": np.ones((1, 1)) for c in none.structure.couplings})
    found = []
    for counts in ([70], [1] * 70):
        target = none.given()
        x = start(target, np.random.default_rng(0))
        chains = TabledChains(target, pgm.Gibbs(), x, np.random.default_rng(1))
        assert waves(none, chains.visit).period == 1
        chains.sweep(70)
        chains.adopt(some, pgm.Gibbs(), np.random.default_rng(2))
        assert waves(some, chains.visit).period == 2
        for count in counts:
            chains.sweep(count)
        found.append(chains.state.copy())
    np.testing.assert_array_equal(*found)


def test_units_that_all_meet_are_swept_one_by_one():
    """Every unit waits for the one before, so that waves would gain nothing."""
    b = pgm.GraphBuilder()
    for name in "abcdef":
        b.variable(name)
    b.table(tuple("abcdef"), np.random.default_rng(0).gamma(1.0, size=(2,) * 6))
    model = b.build()
    visit = np.arange(6, dtype=np.int32)
    found = waves(model, visit)
    assert found.period == 6
    assert found.width == pytest.approx(1.0)
