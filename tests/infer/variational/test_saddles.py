"""Mean field leaves saddles of symmetric models, and says the same about all other models."""

import itertools

import numpy as np
import pytest
from symmetric_models import CASES, inside, symmetric
from tiny import MODELS, as_evidence, patterns

import pgmengine as pgm
from pgmengine.infer.variational.unit_families import Factors
from pgmengine.infer.variational.unit_tables import Belief

WANT = ("log_z",)


def at_reference(model, evidence, updates=500):
    """The Q at which plain rounds from the reference end."""
    target = model.given(evidence)
    by_tables = target.pattern.free_parents or target.pattern.in_tables
    q = Belief(target) if by_tables else Factors(target)
    q.settle(updates, 1e-9)
    return q


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_the_bound_is_near_the_best_of_many_starts_and_above_the_saddle(case, models=3, gap=0.5):
    for seed in range(models):
        model, evidence = case.make(np.random.default_rng(seed))
        found = pgm.infer(model, evidence, want=WANT, method=pgm.MeanField(), rng=0)
        best = pgm.infer(model, evidence, want=WANT, method=pgm.MeanField(restarts=40), rng=seed)
        assert found.log_z[0] >= best.log_z[0] - gap
        assert found.log_z[0] >= at_reference(model, evidence).bound()[0] - 1e-9
        again = pgm.infer(model, evidence, want=WANT, method=pgm.MeanField())
        np.testing.assert_array_equal(again.log_z, found.log_z)


@pytest.mark.parametrize("case", [c for c in CASES if c.name != "interval"], ids=repr)
def test_the_bound_stays_below_log_z(case, models=3, slack=1e-9):
    for seed in range(models):
        model, evidence = case.make(np.random.default_rng(seed))
        exact = pgm.infer(model, evidence, want=WANT, method=pgm.Exact()).log_z
        found = pgm.infer(model, evidence, want=WANT, method=pgm.MeanField()).log_z
        assert np.all(found <= exact + slack * (1 + np.abs(exact)))


def plain_maximum(w):
    """The best mean-field bound of spins coupled by w, in plain numpy, from every corner."""
    best = -np.inf
    for corner in itertools.product((-0.9, 0.9), repeat=len(w)):
        m = np.array(corner)
        for _ in range(200):
            for i in range(len(w)):
                m[i] = np.tanh(w[i] @ m)
        p = np.clip(np.stack(((1 + m) / 2, (1 - m) / 2)), 1e-300, 1)
        best = max(best, m @ w @ m / 2 - (p * np.log(p)).sum())
    return best


@pytest.mark.parametrize("scale", [0.4, 1.0, 5.0])
def test_spins_reach_the_best_of_all_corners(scale, models=4, gap=0.5):
    for seed in range(models):
        w = symmetric(np.random.default_rng(seed), 5, scale)
        found = pgm.infer(inside(pgm.Spin(), 5, w)[0], want=WANT, method=pgm.MeanField())
        best = plain_maximum(w)
        assert best - gap <= found.log_z[0] <= best + 1e-6


@pytest.mark.parametrize("case", CASES[:4], ids=repr)
def test_a_snapshot_of_a_saddle_is_left(case, least=0.01):
    model, evidence = case.make(np.random.default_rng(0))
    q, target = at_reference(model, evidence), model.given(evidence)
    found = pgm.MeanField().run(target, ("log_z", "marginals"), state=q.state)
    assert found.log_z[0] > q.bound()[0] + least


def test_a_snapshot_of_a_maximum_stays(slack=1e-12):
    model, _ = CASES[0].make(np.random.default_rng(0))
    first = pgm.MeanField().run(model.given(), ("log_z",))
    again = pgm.MeanField().run(model.given(), ("log_z",), state=first.state)
    assert again.stats["rounds"] <= 2
    np.testing.assert_allclose(again.log_z, first.log_z, rtol=slack)


def test_rows_leave_their_saddles_by_themselves(atol=1e-6):
    """A row has the bound that it has alone, also where other rows are at no saddle."""
    model, _ = CASES[0].make(np.random.default_rng(0))
    x = np.full((6, 7), np.nan)
    x[1, 0], x[3, 2:], x[4, :5] = 1.0, -1.0, 1.0
    together = pgm.infer(model, {"x": x}, want=WANT, method=pgm.MeanField()).log_z
    alone = [pgm.infer(model, {"x": row}, want=WANT, method=pgm.MeanField()).log_z[0] for row in x]
    np.testing.assert_allclose(together, alone, atol=atol)
    assert together[0] == together[2] == together[5]


@pytest.mark.parametrize(
    "m", [m for m in MODELS if m.name not in ("rbm large weights", "continuous child")], ids=repr
)
def test_maxima_stay_as_they_are(m, monkeypatch):
    """Without a symmetry the answer is where plain rounds end, and takes at most twice the rounds.

    The second part of the rounds is cheaper: it starts near the fixed point.
    """
    target, rounds = m.build().given(as_evidence(m, patterns(m))), []
    q = at_reference_of(target)
    for kind in (Factors, Belief):
        monkeypatch.setattr(kind, "settle", counted(kind.settle, rounds))
    found = pgm.MeanField(updates=2000).run(target, ("log_z", "marginals"))
    stays = np.abs(found.log_z - q.bound()) <= 1e-6 * (1 + np.abs(q.bound()))
    assert np.all((found.log_z >= q.bound()) | stays)
    if stays.all() and not target.pattern.independent:
        assert found.stats["rounds"] == rounds[0] and sum(rounds) <= 2 * rounds[0] + 2


def at_reference_of(target):
    by_tables = target.pattern.free_parents or target.pattern.in_tables
    q = Belief(target) if by_tables else Factors(target, quiet=1e-7)
    q.settle(2000, 1e-7)
    return q


def counted(settle, rounds):
    def settle_and_count(self, *args):
        made = settle(self, *args)
        # The search for possible states makes rounds with softened zeros.
        if len(args) == 2:
            rounds.append(made[0])
        return made

    return settle_and_count


@pytest.mark.parametrize("case", [c for c in CASES if c.name in ("RBM of spins", "tables")])
@pytest.mark.parametrize("updates", [5, 200])
def test_the_data_phase_leaves_saddles(case, updates, least=0.1):
    model, _ = case.make(np.random.default_rng(0))
    target = model.given()
    q = pgm.MeanField(updates=updates, tolerance=0.0).expect(target, np.ones(1), Nothing())
    assert q.bound()[0] > at_reference(model, None).bound()[0] + least


class Nothing:
    """A sum of statistics that nobody reads."""

    def points(self, states, weights):
        pass

    def arrays(self, arrays, factor, weight):
        pass
