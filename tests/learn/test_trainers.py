"""Rates, threads, centred and tied gradients, pretraining, unit types, sparse
weights.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from kept import kept
from likelihoods import mean_log_prob
from loops import one_test_over
from registry import NEGATIVES

import pgmengine as pgm
from pgmengine.learn.phases.statistics import Gradient, Statistics

BARS = pgm.datasets.bars_and_stripes().x_train
STATES = np.array(np.meshgrid(*[[0.0, 1.0]] * 5)).reshape(5, -1).T


@one_test_over(("schedule", "rates"), [
    (pgm.linear_decay(0.5, 4), [0.5, 0.375, 0.25, 0.125, 0.0, 0.0]),
    (pgm.linear_decay(0.5, 4, rise=2), [0.25, 0.375, 0.25, 0.125, 0.0, 0.0]),
    (pgm.linear_decay(0.5, 4, rise=8), [0.0625, 0.09375, 0.09375, 0.0625, 0.0, 0.0]),
    (pgm.harmonic(1, 2), [1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 6, 1 / 7])], ids=repr)  # fmt: skip
def test_each_update_has_the_rate_of_its_schedule(schedule, rates):
    x, seen, exact = {"v": STATES[:3]}, [], pgm.ExactGradient()
    f = pgm.fit(pgm.rbm(5, 2, rng=1), x, negative=exact, optimizer=pgm.SGD(schedule), updates=6,
                callbacks=[lambda model, update: seen.append(model.params)])  # fmt: skip
    for rate, before, after in zip(rates, seen[:-1], seen[1:], strict=True):
        step = pgm.fit(
            f.model.with_params(before), x, negative=exact, optimizer=pgm.SGD(1.0), updates=1
        ).model
        for key, value in after.items():
            np.testing.assert_allclose(
                value, before[key] + rate * (step.params[key] - before[key]), rtol=1e-6, atol=1e-9
            )


def test_one_and_two_threads_learn_the_same_bits(monkeypatch):
    rng, found = np.random.default_rng(0), []
    x = (rng.random((300, 500)) < 0.2).astype(float)
    for threads in ("1", "2"):
        monkeypatch.setenv("PGMENGINE_THREADS", threads)
        found += [
            pgm.fit(m, {"v": x}, negative=n, optimizer=pgm.SGD(0.1), updates=4)
            for m, n in (
                # Fmt: skip
                (pgm.rbm(500, 400, rng=0), pgm.PCD()),
                (pgm.dbm([500, 300, 200], rng=0), pgm.CAST()),
            )
        ]
    for one, two in ((found[0], found[2]), (found[1], found[3])):
        for key, value in one.model.params.items():
            np.testing.assert_array_equal(two.model.params[key], value)


def test_the_centred_gradient_is_that_of_the_centred_parameters():
    """E = -(v - m) W (h - l) - v.a' - h.b': its plain gradient step, taken back to the usual
    parameters.
    """
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (50, 4)).astype(float)
    model = kept(pgm.rbm(4, 3, rng=0))
    rate = 0.3
    plain = pgm.fit(
        model,
        {"v": x},
        negative=pgm.ExactGradient(),
        optimizer=pgm.SGD(1.0),
        updates=1,
        batch_size=50,
    )
    slope = {k: plain.model.params[k] - v for k, v in model.params.items()}
    m = x.mean(axis=0)
    h = pgm.infer(model, {"v": x}).mean["h"].mean(axis=0)
    w, a, b = (model.params[k] for k in ("v-h.weight", "v.bias", "h.bias"))
    # coordinates of the centred model: a' = a + W l, b' = b + m W; gradients there by the chain
    # rule
    new_w = w + rate * (
        slope["v-h.weight"] - np.outer(m, slope["h.bias"]) - np.outer(slope["v.bias"], h)
    )
    new_a = a + w @ h + rate * slope["v.bias"] - new_w @ h
    new_b = b + m @ w + rate * slope["h.bias"] - m @ new_w
    f = pgm.fit(
        model,
        {"v": x},
        negative=pgm.ExactGradient(),
        optimizer=pgm.Centered(pgm.SGD(rate)),
        updates=1,
        batch_size=50,
    )
    np.testing.assert_allclose(f.model.params["v-h.weight"], new_w, atol=1e-12)
    np.testing.assert_allclose(f.model.params["v.bias"], new_a, atol=1e-12)
    np.testing.assert_allclose(f.model.params["h.bias"], new_b, atol=1e-12)


def test_pretraining_halves_the_weights_between_two_undirected_couplings():
    """Both ends of such a coupling get as much again from its neighbours; ends of the stack get it
    from copies.
    """
    model = kept(pgm.dbm([9, 6, 5, 4, 3], rng=0))
    found = pgm.pretrain(
        model, {"v": pgm.datasets.bars_and_stripes(3).x_train}, updates=0, progress=False
    )
    for name, value in model.params.items():
        share = 0.5 if name in ("h1-h2.weight", "h2-h3.weight") else 1.0
        np.testing.assert_array_equal(found.params[name], share * value, err_msg=name)


@pytest.mark.parametrize(
    "model",
    [
        pgm.dbm([9, 8, 6], rng=0),
        pytest.param(pgm.dbm([9, 6, 5, 4], rng=0), marks=pytest.mark.long),
        pgm.dbn([9, 8, 6], rng=0),
    ],
)
def test_pretraining_is_a_better_start(model):
    x = pgm.datasets.bars_and_stripes(3).x_train
    found = pgm.pretrain(
        model, {"v": x}, negative=pgm.PCD(k=5), optimizer=pgm.SGD(0.1), batch_size=14, updates=1500
    )
    assert mean_log_prob(found, {"v": x}) > mean_log_prob(model, {"v": x}) + 1.0
    assert set(found.params) == set(model.params)
    with pytest.raises(pgm.PgmError, match="path"):
        pgm.pretrain(pgm.boltzmann_machine(3, unit=pgm.Binary(), rng=0), {"x": np.zeros((2, 3))})
    with pytest.raises(pgm.PgmError, match=r"layer 'v', row 1, index 2: 0.5 is not a value"):
        pgm.pretrain(model, {"v": np.where(np.arange(18).reshape(2, 9) == 11, 0.5, 0)})


def test_base_rate_start_has_the_means_of_the_data_without_weights(atol=0.02):
    x = pgm.datasets.digits().x_train
    model = pgm.rbm(64, 3).with_params({"v-h.weight": np.zeros((64, 3))})
    found = pgm.infer(pgm.base_rate_start(model, {"v": x}, strength=1e-9)).mean["v"]
    np.testing.assert_allclose(found, x.mean(axis=0), atol=atol)


def test_a_negative_phase_of_ones_own_as_in_the_recipe(tmp_path):
    from dataclasses import dataclass
    from typing import ClassVar

    from pgmengine.learn.negative.phase_chains import Persistent

    @dataclass(frozen=True)
    class Backwards:
        """Sweeps in the reverse order."""

        chains: int = 50
        precision: ClassVar[type] = np.float32

        def start(self, given, rng):
            return Phase("Backwards", given, self.chains, pgm.Gibbs(), rng)

    class Phase(Persistent):
        def statistics(self, batch, update, rng):
            chains = self.adopt(batch.model, update, rng)
            chains.sweep(2, backward=True)
            return batch.mean(chains.values(dtype=batch.precision))

    x = pgm.datasets.bars_and_stripes(3).x_train
    f = pgm.fit(
        pgm.rbm(9, 4, rng=0),
        {"v": x},
        negative=Backwards(),
        optimizer=pgm.Adam(0.02),
        updates=300,
        checkpoint=tmp_path / "c",
    )
    assert mean_log_prob(f.model, {"v": x}) > -5.5


def test_given_and_chains_that_go_on():
    data = {"x": np.zeros((4, 3)), "y": np.zeros((4, 1))}
    for name in ("pcd", "fast", "pt", "trans", "adaptive", "cast"):
        with pytest.raises(pgm.PgmError, match="a model phase of its own"):
            pgm.fit(
                pgm.drbm(3, 2, 2, rng=0), data, given=("x",), negative=NEGATIVES[name], updates=1
            )
    assert pgm.fit(pgm.drbm(3, 2, 2, rng=0), data, given=("x",), updates=2).state["update"] == 2
    pair, x = pgm.rbm(1, 1, rng=0), np.array([[np.nan], [1], [1], [0]])
    for name in (
        "pcd",
        "fast",
        "pt",
        "trans",
        "adaptive",
        "cast",
    ):  # some row will do, whatever the first one is
        with pytest.raises(pgm.PgmError, match="a model phase of its own"):
            pgm.fit(
                pair,
                {"v": x, "h": np.ones((4, 1))},
                given=("v",),
                negative=NEGATIVES[name],
                updates=1,
            )
    missing = {"v": np.full((4, 1), np.nan), "h": np.ones((4, 1))}  # nothing is given after all
    found = [
        pgm.fit(pair, missing, given=given, negative=pgm.PCD(chains=9), updates=5)
        for given in ((), ("v",))
    ]
    # One of them is compiled, and the other one is not.
    np.testing.assert_allclose(*(f.model.params["v-h.weight"] for f in found), rtol=1e-5)
    with pytest.raises(pgm.PgmError, match="given=\\('x',\\)"):
        pgm.fit(pgm.drbm(3, 2, 2, rng=0), data, updates=1)
    with pytest.raises(pgm.PgmError, match="not in the data"):
        pgm.fit(pgm.rbm(3, 2, rng=0), {"v": np.zeros((2, 3))}, given=("h",), updates=1)


@pytest.mark.parametrize(
    ("visible", "rate", "update"), [(pgm.Gaussian(), 1e20, 2), (pgm.Binary(), 1e200, 1)]
)
def test_divergence_names_the_quantity_and_the_update(visible, rate, update):
    with pytest.raises(
        pgm.PgmError, match=rf"update {update}: 'v.bias' is beyond 1e\+30; learning has diverged"
    ):
        pgm.fit(
            pgm.rbm(4, 2, visible=visible, rng=0),
            {"v": np.ones((5, 4))},
            # Exact answers refuse such numbers before they are beyond the limit of learning.
            negative=pgm.PCD(),
            optimizer=pgm.SGD(rate),
            updates=9,
        )


def test_a_gradient_that_is_not_a_number_is_named():
    class Broken:
        start = pgm.SGD().start

        def step(self, structure, params, gradient, state, t):
            gradient["h.bias"] = gradient["h.bias"] * (np.nan if t == 3 else 1)
            return pgm.SGD().step(structure, params, gradient, state, t)

    with pytest.raises(
        pgm.PgmError,
        match="update 4: the gradient of 'h.bias' is not finite; learning has diverged",
    ):
        pgm.fit(pgm.rbm(4, 2, rng=0), {"v": np.ones((5, 4))}, optimizer=Broken(), updates=9)


@pytest.mark.parametrize(
    "negative",
    [pgm.CD(), pgm.PCD(), pgm.PT(3), pgm.CAST(betas=[0.5, 1.0]), pgm.ExactGradient()],
    ids=repr,
)
@pytest.mark.parametrize(
    ("visible", "hidden"),
    [
        (pgm.Gaussian(0.5), pgm.Binary()),
        (pgm.Spin(), pgm.MultiValued(2)),
        (pgm.Categorical(3), pgm.MultiValued(float("inf"))),
    ],
)
def test_unit_types_missing_values_and_small_last_batches(negative, visible, hidden):
    rng = np.random.default_rng(0)
    x = (
        rng.normal(size=(7, 4))
        if visible.support is None
        else rng.integers(0, len(visible.support), (7, 4)).astype(float)
    )
    x = 2 * x - 1 if isinstance(visible, pgm.Spin) else x
    x = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    model = pgm.rbm(4, 3, visible=visible, hidden=hidden, rng=0)
    f = pgm.fit(model, {"v": x}, negative=negative, optimizer=pgm.SGD(0.01), batch_size=3, epochs=2)
    assert f.state["update"] == 6
    assert all(np.isfinite(v).all() for v in f.model.params.values())


def sparse_graph(lateral):
    b, rng = pgm.GraphBuilder(), np.random.default_rng(0)
    b.layer("v", pgm.Binary(), 6)
    if lateral:
        w = np.triu(rng.normal(size=(6, 6)), 1)
        b.couple("v", "v", weight=sp.csr_array(w + w.T))
    else:
        b.layer("h", pgm.Binary(), 4)
        b.couple("v", "h", weight=sp.csr_array(rng.normal(size=(6, 4))))
    return b.build()


@pytest.mark.parametrize(
    "negative", [pgm.CD(), pgm.PCD(chains=2), pgm.FastPCD(chains=2), pgm.ExactGradient()], ids=repr
)
@pytest.mark.parametrize("lateral", [True, False])
def test_stored_entries_whose_slope_is_zero_stay_parameters(negative, lateral):
    x = (np.random.default_rng(0).random((8, 6)) < 0.5) * 1.0
    x[:, :3] = 0.0
    x[0, 0] = np.nan
    model = sparse_graph(lateral)
    f = pgm.fit(
        model, {"v": x}, updates=50, negative=negative, optimizer=pgm.Centered(pgm.Adam(0.01))
    )
    for key, value in model.params.items():
        if sp.issparse(value):
            assert f.model.params[key].nnz == value.nnz
    f.model.with_params(dict(f.model.params))


def test_fast_weights_do_not_take_parameters_out_of_their_range():
    """Above NoisyOr units with arrows inside, whose biases must stay positive for the chains,
    too.
    """
    from pgmengine.learn.negative.fast_pcd import FastPCD

    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    b.layer("v", pgm.NoisyOr(), 3, bias=[0.5] * 3)
    b.layer("h", pgm.Binary(), 2)
    b.layer("g", pgm.Binary(), 2)
    b.couple("g", "h")
    b.cause("h", "v", weight=rng.random((2, 3)))
    b.cause("v", "v", weight=np.triu(rng.random((3, 3)), 1))
    model = b.build(rng=0)
    run = FastPCD(chains=5, rate=1.0).start(model.given(), rng)
    slope = {k: np.full(v.shape, -3.0) for k, v in model.params.items()}
    run.learned(Gradient(slope, Statistics(float)), 0)
    driven = run.driven(model)
    assert driven.params["h.bias"].max() < -2.9
    for name in ("v.bias", "h->v.weight", "v->v.weight"):
        assert driven.params[name].min() >= 0 and model.params[name].max() > 0


def test_what_an_optimizer_has_replaced_is_what_learning_goes_on_with():
    """Not the step as it was, which is at hand in single precision."""

    class Clipped:
        start = staticmethod(pgm.SGD().start)

        def step(self, structure, params, gradient, state, t):
            stepped = pgm.SGD(5.0).step(structure, params, gradient, state, t)
            stepped["v-h.weight"] = np.clip(stepped["v-h.weight"], -0.1, 0.1)
            return stepped

    class Plainly(Clipped):
        def step(self, structure, params, gradient, state, t):
            return dict(super().step(structure, params, gradient, state, t))

    x = pgm.datasets.bars_and_stripes(3).x_train
    one, two = (
        pgm.fit(
            pgm.rbm(9, 4, rng=0), {"v": x}, optimizer=optimizer, updates=5, progress=False
        ).model
        for optimizer in (Clipped(), Plainly())
    )
    assert abs(one.params["v-h.weight"]).max() == 0.1
    for name, value in one.params.items():
        np.testing.assert_array_equal(value, two.params[name])

    class InPlace(Clipped):
        def step(self, structure, params, gradient, state, t):
            stepped = pgm.SGD(5.0).step(structure, params, gradient, state, t)
            np.clip(stepped["v-h.weight"], -0.1, 0.1, out=stepped["v-h.weight"])
            return stepped

    with pytest.raises(ValueError, match="read-only"):
        pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, optimizer=InPlace(), updates=1, progress=False)


@one_test_over("optimizer", [pgm.SGD(0.1), pgm.Adam(0.1), pgm.Centered(pgm.SGD(0.1))], ids=repr)
def test_biases_of_given_layers_stay(optimizer):
    x = np.random.default_rng(0).integers(0, 2, (30, 3)).astype(float)
    data = {"v": x, "h": x[:, :2]}
    model, settings = kept(pgm.rbm(3, 2, rng=0)), {"updates": 20, "progress": False}
    f = pgm.fit(model, data, given=("v",), optimizer=optimizer, **settings)
    np.testing.assert_array_equal(f.model.params["v.bias"], 0.0)
    assert abs(f.model.params["h.bias"]).min() > 0


def test_sparse_noisy_or_weights_that_reach_zero_stay_parameters():
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    b.layer("v", pgm.NoisyOr(), 6, bias=[0.5] * 6)
    b.layer("h", pgm.Binary(), 4, bias=[2.0] * 4)
    b.cause("h", "v", weight=sp.csr_array(rng.random((4, 6)) * 0.3 + 0.05))
    x = (rng.random((20, 6)) < 0.05) * 1.0
    f = pgm.fit(b.build(), {"v": x}, updates=60, optimizer=pgm.Adam(0.1))
    assert f.model.params["h->v.weight"].nnz == 24
    assert f.model.params["h->v.weight"].min() == 0.0


@pytest.mark.parametrize("unit", [pgm.Categorical(3), pgm.MultiValued(3), pgm.Binary()], ids=repr)
@pytest.mark.parametrize("negative", [pgm.ExactGradient(), pgm.PCD(chains=30)], ids=repr)
@pytest.mark.parametrize("optimizer", [pgm.Adam(0.05), pgm.Centered(pgm.SGD(0.05))], ids=repr)
def test_lateral_weights_stay_symmetric_and_zero_inside_a_unit(unit, negative, optimizer, tmp_path):
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    b.layer("x", unit, 3)
    b.couple("x", "x")
    k = len(unit.support)
    x = rng.integers(0, k, (50, 3)) if unit.width > 1 else unit.support[rng.integers(0, k, (50, 3))]
    x = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    f = pgm.fit(
        b.build(rng=0), {"x": x}, updates=60, batch_size=7, optimizer=optimizer, negative=negative
    )
    weight = f.model.params["x-x.weight"]
    np.testing.assert_array_equal(weight, weight.T)
    for i in range(3):
        assert not weight[
            i * unit.width : (i + 1) * unit.width, i * unit.width : (i + 1) * unit.width
        ].any()
    pgm.save(f.model, tmp_path / "m.safetensors")
    pgm.load(tmp_path / "m.safetensors")


@pytest.mark.long
def test_adaptive_sap_is_unbiased_where_temperatures_differ(sure=5.5):
    """Five means of 20,000 chains, of deviations below 1: false alarms are 5 x 4e-8."""
    from tiny import FINITE

    from pgmengine.learn.phases.batch import Batch, only

    tiny_model = next(m for m in FINITE if m.name == "rbm three values")
    model, rng, chains = tiny_model.build(), np.random.default_rng(0), 20_000
    negative = pgm.AdaptiveSAP(betas=[0.5, 0.8, 1.0], every=1, steps=10, chains=chains)
    target = model.given({"v": np.zeros((1, 3))})
    batch = Batch(model, np.ones(1), None, dict, ((), ()), np.float32)
    run = negative.start(only(target, {}), rng)
    run.chains.sweep(200)
    for update in range(8):
        found = run.statistics(batch, update, rng)
    exact = pgm.infer(model, method=pgm.Exact()).mean
    found = found.total(model)
    for name in exact:
        assert np.all(np.abs(found[f"{name}.bias"] - exact[name]) < sure / np.sqrt(chains))


def test_centred_gradients_of_weighted_rows_and_mixed_graphs():
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 2, (6, 4)).astype(float), np.array([3, 1, 0, 2, 1, 1.0])
    repeated = np.repeat(x, w.astype(int), axis=0)
    one, two = (
        pgm.fit(
            kept(pgm.rbm(4, 3, rng=1)),
            {"v": d},
            negative=pgm.ExactGradient(),
            optimizer=pgm.Centered(pgm.SGD(0.5)),
            updates=5,
            batch_size=99,
            sample_weight=s,
        )
        for d, s in ((x, w), (repeated, None))
    )
    for key, value in one.model.params.items():
        np.testing.assert_allclose(two.model.params[key], value, rtol=1e-9, atol=1e-12)
    b = pgm.GraphBuilder()
    for name, size in (("v", 6), ("h1", 3), ("h2", 3)):
        b.layer(name, pgm.Binary(), size)
    b.couple("v", "h2")
    b.cause("h1", "v")
    x = (rng.random((20, 6)) < 0.5) * 1.0
    for optimizer in (pgm.Centered(), pgm.Centered(pgm.Averaged(pgm.SGD(0.1)))):
        assert (
            pgm.fit(b.build(rng=0), {"v": x}, optimizer=optimizer, updates=3).state["update"] == 3
        )


def test_base_rates_of_real_values_are_their_means():
    b = pgm.GraphBuilder()
    b.layer("a", pgm.Gaussian(2.0), 2)
    b.layer("h", pgm.Binary(), 1)
    b.couple("a", "h", weight=np.zeros((2, 1)))
    x = np.stack([np.random.default_rng(0).normal(100, 1, 50), np.full(50, np.nan)], axis=1)
    start = pgm.base_rate_start(b.build(), {"a": x})
    np.testing.assert_allclose(pgm.infer(start).mean["a"], [x[:, 0].mean(), 0.0])
    for strength in (-1, "a", np.inf):
        with pytest.raises(
            pgm.PgmError, match="base_rate_start: strength must be a finite number of at least 0"
        ):
            pgm.base_rate_start(b.build(), {"a": x}, strength=strength)
    with pytest.raises(
        pgm.PgmError, match="data: layer 'v', index 1 has a mean at the edge of its range"
    ):
        pgm.base_rate_start(pgm.rbm(2, 1, rng=0), {"v": [[0, 1], [1, 1]]}, strength=0)
    with pytest.raises(pgm.PgmError, match="data: layer 'v' has 3 rows, and layer 'h' has 2 rows"):
        pgm.base_rates(pgm.rbm(2, 1, rng=0), {"v": np.zeros((3, 2)), "h": np.zeros((2, 1))})


def test_fast_weights_that_are_not_finite_are_named():
    x = pgm.datasets.bars_and_stripes().x_train
    with pytest.raises(pgm.PgmError, match="update 1: the fast weights of .* are not finite"):
        pgm.fit(
            pgm.rbm(16, 4, rng=0), {"v": x}, negative=pgm.FastPCD(rate=lambda t: 1e39), updates=3
        )


def test_pretraining_names_what_is_wrong_with_the_data():
    x = pgm.datasets.bars_and_stripes(3).x_train
    for data, words in (
        (None, "data must map layer names to arrays, not NoneType"),
        (x, "data must map layer names to arrays, not an array"),
        ({}, "pretrain: data"),
        ({"z": x}, "'z'"),
    ):
        with pytest.raises(pgm.PgmError, match=words):
            pgm.pretrain(pgm.dbm([9, 4, 3], rng=0), data, updates=1)


class Own:
    """A user's optimizer that returns given parameters."""

    def __init__(self, change):
        self.change = change

    def start(self, params):
        return {}

    def step(self, structure, params, gradient, state, t):
        return self.change(dict(params))


@one_test_over(
    ("change", "match"),
    [
        (lambda p: {k: v * np.nan for k, v in p.items()}, "update 1: step of Own: .*nan"),
        (
            lambda p: {"v.bias": p["v.bias"]},
            r"update 1: step of Own returned \['v.bias'\], expected",
        ),
        (lambda p: p | {"h.bias": np.zeros(7)}, "update 1: step of Own: .*7"),
        (lambda p: None, "update 1: step of Own returned NoneType, expected"),
    ],
)
def test_what_an_optimizer_of_ones_own_returns_is_checked(change, match):
    with pytest.raises(pgm.PgmError, match=match):
        pgm.fit(pgm.rbm(16, 3, rng=0), {"v": BARS}, optimizer=Own(change), updates=1)
    same = pgm.fit(pgm.rbm(16, 3, rng=0), {"v": BARS}, optimizer=Own(lambda p: p), updates=1)
    np.testing.assert_array_equal(
        same.model.params["v-h.weight"], pgm.rbm(16, 3, rng=0).params["v-h.weight"]
    )


def test_one_unit_may_have_its_rows_in_a_vector():
    model = pgm.rbm(1, 2, rng=0)
    one, two = (
        pgm.base_rate_start(model, {"v": np.reshape([0, 1, 1], shape)}) for shape in ((3,), (3, 1))
    )
    assert one.params["v.bias"] == two.params["v.bias"] > 0
