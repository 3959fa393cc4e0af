"""Modes: bounds of log Z from spread starts, against enumeration and the default fixed point."""

import numpy as np
from brute import Brute
from loops import one_test_over
from tiny import MODELS, as_evidence, patterns

import pgmengine as pgm
from pgmengine.infer.variational.modes import modes, near, spread_starts


def two_phases(visible=40, hidden=12):
    """An RBM with two phases: nearly all units off, or nearly all on, which holds the mass.

    A hidden unit that is on alone loses 12 nats; all together turn on the visible units.
    """
    model = pgm.rbm(visible, hidden)
    weight = np.full((visible, hidden), 12.0 / hidden)
    bias = {"v.bias": np.full(visible, -8.0), "h.bias": np.full(hidden, -12.0)}
    return model.with_params({"v-h.weight": weight, **bias})


@one_test_over("m", MODELS)
def test_every_bound_is_below_log_z_and_the_best_is_no_worse_than_the_default(m, slack=1e-7):
    if any(x.unit.support is None for x in m.layers):
        # Enumeration integrates continuous units on a grid, to 1e-6.
        slack = 1e-4
    rows = patterns(m)
    target = m.build().given(as_evidence(m, rows))
    if not pgm.MeanField().plan(target, ("bound",)).accepted:
        assert modes(target, np.random.default_rng(0)) is None
        return
    found = modes(target, np.random.default_rng(0))
    exact = np.array([Brute(m, row).log_z for row in rows])
    assert np.all(np.diff(found.bound, axis=1) <= 0)
    assert np.all(found.bound <= exact[:, None] + slack * (1 + np.abs(exact[:, None])))
    least = pgm.MeanField(updates=60, tolerance=1e-4).run(target, ("bound",)).bound
    assert np.all(found.bound[:, 0] >= least - 1e-3)


def test_a_phase_that_no_start_from_the_middle_reaches_is_found():
    model = two_phases()
    exact = pgm.infer(model, want=("log_z",), method=pgm.Exact()).log_z[0]
    found = modes(model.given(), np.random.default_rng(0))
    assert found.bound[0, 0] > exact - 1
    start = next(spread_starts(model.given(), np.random.default_rng(0)))
    assert not any(v.any() for v in start.values())
    assert found.bound[0, -1] < exact - 10


def test_parameters_near_a_fixed_point_have_its_means(atol=0.03):
    """Moved by a fiftieth of the way to the middle, also at the ends of the range."""
    for m in MODELS:
        target = m.build().given()
        found = modes(target, np.random.default_rng(0))
        if found is None:
            continue
        mean = {name: value[:, 0] for name, value in found.mean.items()}
        for name, eta in near(target, mean).items():
            layer = target.structure.layers[name]
            again = layer.flat(layer.unit.mean(layer.shaped(eta)))
            wide = 2.0 if layer.unit.support is None else np.ptp(layer.unit.support)
            np.testing.assert_allclose(again, mean[name], atol=atol * wide)


def test_starts_put_layers_at_both_ends():
    model = two_phases(4, 3)
    starts = list(spread_starts(model.given(), np.random.default_rng(0)))
    h = np.array([pgm.Binary().mean(start["h"][0]) for start in starts])
    assert (h > 0.99).all(axis=1).any() and (h < 0.01).all(axis=1).any()
    assert ((h > 0.9).any(axis=1) & (h < 0.1).any(axis=1)).any()
