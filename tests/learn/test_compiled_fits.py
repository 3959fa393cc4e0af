"""Fits in compiled code against the same fits in Python, which are the reference."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from loops import one_test_over
from registry import UNITS
from scipy import stats

import pgmengine as pgm
from pgmengine import _kernels
from pgmengine.base.work.executors import spawn
from pgmengine.engine.unit_draws import drawn_units
from pgmengine.learn.recorded.recorder import mean_fields
from pgmengine.learn.run import Run
from pgmengine.units.unit import Draw

DRAWN = [u for u in UNITS if u.draw not in (None, Draw.COMPLEMENT) and not u.observed_only]


def built(*layers):
    """A model of layers (unit, size), each coupled with the one before."""
    b = pgm.GraphBuilder()
    for i, (unit, size) in enumerate(layers):
        b.layer(f"l{i}", unit, size)
        if i:
            b.couple(f"l{i - 1}", f"l{i}")
    return spread(b.build())


def spread(model, seed=1, size=0.3):
    rng = np.random.default_rng(seed)
    return model.with_params(
        {k: rng.normal(0, size / max(v.shape) ** 0.5, v.shape) for k, v in model.params.items()}
    )


def some_data(layer, rows, seed=0):
    rng, unit = np.random.default_rng(seed), layer.unit
    shape = (rows, layer.size) if unit.width == 1 else (rows, layer.size, unit.width)
    return unit.sample(rng.normal(0, 0.8, shape), rng)


MODELS = {
    "binary": built((pgm.Binary(), 16), (pgm.Binary(), 9)),
    "spins": built((pgm.Spin(), 17), (pgm.Spin(), 16)),
    "categorical below": built((pgm.Categorical(3), 6), (pgm.Binary(), 5)),
    "categorical above": built((pgm.Binary(), 12), (pgm.Categorical(4), 5)),
    "three values": built((pgm.Binary(), 12), (pgm.MultiValued(2), 7)),
    "interval": built((pgm.Spin(), 12), (pgm.MultiValued(math.inf), 7)),
    "gaussian below": built((pgm.Gaussian(0.7), 12), (pgm.Binary(), 7)),
    "gaussian above": built((pgm.Binary(), 12), (pgm.Gaussian(0.5), 7)),
    "wide": built((pgm.Binary(), 131), (pgm.Binary(), 70)),
    "small at the edges": built((pgm.Binary(), 128), (pgm.Binary(), 64)),
    "one unit": built((pgm.Binary(), 1), (pgm.Binary(), 1)),
    "deep": built((pgm.Binary(), 20), (pgm.Binary(), 11), (pgm.Binary(), 6)),
    "deep mixed": built((pgm.Spin(), 14), (pgm.Categorical(3), 5), (pgm.Binary(), 6)),
}
ROUNDS = pgm.MeanField(updates=5, tolerance=1e-4, precision=np.float32)
SHALLOW = [name for name in MODELS if not name.startswith("deep")]
PHASES = {
    "PCD-1": pgm.PCD(chains=13),
    "PCD-3": pgm.PCD(k=3, chains=8, kernel=pgm.Blend(0.4)),
    "growing": pgm.PCD(chains=7, kernel=pgm.GrowingBlend(1, 4)),
    "CD-1": pgm.CD(),
    "CD-3": pgm.CD(k=3, kernel=pgm.FlipState()),
    "FastPCD": pgm.FastPCD(chains=9, rate=0.02),
    "CAST": pgm.CAST(chains=9, betas=[0.7, 0.85, 1.0], swap_every=2),
    "CAST, own weights": pgm.CAST(
        chains=9, betas=[0.7, 0.85, 1.0], swap_every=3, weights_per_chain=True
    ),
    "CAST, one rung": pgm.CAST(chains=5, betas=[1.0], swap_every=2),
    "FastPCD-2": pgm.FastPCD(k=2, chains=9, rate=pgm.linear_decay(0.02, 9)),
}
# Steps that do not depend on the sign of a gradient that is 0 up to rounding.
STEPS = {
    "SGD": pgm.SGD(0.05),
    "momentum": pgm.SGD(pgm.harmonic(1, 30), momentum=0.6, weight_decay=0.01, l1=0.002),
    "Adam": pgm.Adam(0.01, epsilon=0.1),
    "AdaMax": pgm.AdaMax(0.01, epsilon=0.1),
    "centred": pgm.Centered(pgm.SGD(0.05), follow=0.2),
    "default": pgm.Centered(pgm.Scaled(pgm.SGD(0.3))),
    "averaged": pgm.Averaged(pgm.Centered(pgm.Scaled(pgm.Adam(0.01, epsilon=0.1))), follow=0.1),
}


@pytest.fixture
def in_python(monkeypatch):
    """A function that makes a fit without the compiled loop."""

    def fit(*args, **settings):
        with monkeypatch.context() as patch:
            patch.setattr(Run, "_record", lambda run: None)
            return pgm.fit(*args, **settings)

    return fit


@pytest.fixture
def compiled(monkeypatch):
    """A function that makes a fit, and fails if the compiled loop makes none of its updates."""
    calls = []
    plain = _kernels.make_updates

    def make_updates(fits, parts):
        calls.append(len(fits))
        plain(fits, parts)

    monkeypatch.setattr(_kernels, "make_updates", make_updates)

    def fit(*args, **settings):
        calls.clear()
        found = pgm.fit(*args, **settings)
        assert calls, "no update was made by the compiled loop"
        return found

    return fit


def assert_alike(a, b, rtol, atol):
    for k, value in a.model.params.items():
        np.testing.assert_allclose(value, b.model.params[k], rtol=rtol, atol=atol, err_msg=k)
    for k, value in a.state.items():
        if k.startswith(("optimizer/", "negative/")):
            np.testing.assert_allclose(value, b.state[k], rtol=rtol, atol=atol, err_msg=k)


def assert_same(a, b):
    assert_alike(a, b, 0, 0)
    assert a.state["rng"] == b.state["rng"]
    np.testing.assert_array_equal(a.state["order"], b.state["order"])


def settings_of(model, phase, step, rows=29, **more):
    layer = model.structure.layers["l0"]
    return (model, {"l0": some_data(layer, rows)}), {
        "negative": PHASES[phase],
        # By default, small models have an exact data phase.
        "positive": ROUNDS if len(model.structure.layers) > 2 else None,
        "optimizer": STEPS[step],
        "batch_size": 11,
        "updates": 6,
        "progress": False,
    } | more


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", MODELS)
def test_models_and_phases(name, phase, compiled, in_python, rtol=1e-4, atol=2e-5):
    if phase.startswith("CD") and name not in SHALLOW:
        pytest.skip("CD is compiled where hidden units are independent given the data")
    args, settings = settings_of(MODELS[name], phase, "SGD")
    assert_alike(compiled(*args, **settings), in_python(*args, **settings), rtol, atol)


@pytest.mark.parametrize("phase", ["PCD-1", "FastPCD", "CAST"])
@pytest.mark.parametrize("name", MODELS)
def test_rows_with_gaps(name, phase, compiled, in_python, rtol=1e-4, atol=2e-5):
    """Also batches without a gap, rows of gaps alone, and a second layer with some data."""
    args, settings = settings_of(MODELS[name], phase, "SGD", positive=ROUNDS, batch_size=5)
    rng, data = np.random.default_rng(2), args[1]
    data["l0"][rng.random(data["l0"].shape[:2]) < 0.3] = np.nan
    data["l0"][:4], data["l0"][11] = some_data(args[0].structure.layers["l0"], 4), np.nan
    if name.startswith("deep"):
        data["l1"] = some_data(args[0].structure.layers["l1"], 29, 5)
        data["l1"][rng.random(data["l1"].shape[:2]) < 0.7] = np.nan
    assert_alike(compiled(*args, **settings), in_python(*args, **settings), rtol, atol)


def test_probabilities_with_gaps_are_drawn_in_each_pass(in_python):
    args, settings = settings_of(
        MODELS["binary"], "PCD-1", "SGD", positive=ROUNDS, updates=9, probabilities=("l0",)
    )
    rng = np.random.default_rng(0)
    args[1]["l0"] = np.where(rng.random((29, 16)) < 0.2, np.nan, rng.random((29, 16)))
    assert_same(pgm.fit(*args, **settings), in_python(*args, **settings))


@pytest.mark.parametrize("phase", [name for name in PHASES if name != "CAST, one rung"])
def test_several_layers_with_data(phase, compiled, in_python, rtol=1e-4, atol=2e-5):
    """Two coupled layers with data, and a triangle."""
    b = pgm.GraphBuilder()
    for name, unit, size in (("x", pgm.Binary(), 9), ("y", pgm.Spin(), 6), ("h", pgm.Binary(), 5)):
        b.layer(name, unit, size)
    for pair in (("x", "y"), ("x", "h"), ("y", "h")):
        b.couple(*pair)
    model = spread(b.build(), 3, 1.5)
    data = {n: some_data(model.structure.layers[n], 25, i) for i, n in enumerate("xy")}
    settings = {
        "negative": PHASES[phase],
        "optimizer": pgm.Centered(pgm.SGD(0.05)),
        "batch_size": 10,
        "updates": 6,
        "progress": False,
    }
    fit = pgm.fit if phase.startswith("CAST") else compiled
    assert_alike(fit(model, data, **settings), in_python(model, data, **settings), rtol, atol)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ["binary", "categorical above", "deep"])
def test_steps(name, step, compiled, in_python, rtol=1e-4, atol=2e-5):
    args, settings = settings_of(MODELS[name], "PCD-1", step)
    assert_alike(compiled(*args, **settings), in_python(*args, **settings), rtol, atol)


@one_test_over(
    "steps",
    [
        pgm.Scaled(pgm.Scaled(pgm.SGD(0.3))),
        pgm.Scaled(pgm.Averaged(pgm.SGD(0.3))),
        pgm.Centered(pgm.Centered(pgm.SGD(0.05))),
        pgm.Averaged(pgm.Averaged(pgm.SGD(0.05))),
    ],
    ids=repr,
)
def test_steps_inside_each_other(steps, compiled, in_python, rtol=1e-4, atol=2e-5):
    args, settings = settings_of(MODELS["binary"], "PCD-1", "SGD", optimizer=steps)
    assert_alike(compiled(*args, **settings), in_python(*args, **settings), rtol, atol)


def test_centred_gradients_inside_scaled_ones_stay_in_python(in_python):
    steps = pgm.Scaled(pgm.Centered(pgm.SGD(0.1)))
    args, settings = settings_of(MODELS["binary"], "PCD-1", "SGD", optimizer=steps)
    assert_same(pgm.fit(*args, **settings), in_python(*args, **settings))


@pytest.mark.parametrize("phase", ["PCD-1", "CD-1"])
def test_first_batches_that_weigh_nothing(phase, compiled, in_python, rtol=1e-4, atol=2e-5):
    """The offsets of centred gradients are unknown until a batch has a weight."""
    args, settings = settings_of(
        MODELS["binary"], phase, "default", batch_size=1, updates=25, optimizer=STEPS["centred"]
    )
    for seed in range(3):
        weight = np.random.default_rng(seed).poisson(0.4, 29) * 1.0
        settings["sample_weight"] = weight
        fits = [fit(*args, rng=seed, **settings) for fit in (compiled, in_python)]
        assert_alike(*fits, rtol, atol)


@pytest.mark.parametrize("phase", ["PCD-1", "CD-1"])
def test_weights_of_rows(phase, compiled, in_python, rtol=1e-4, atol=2e-5):
    rng = np.random.default_rng(0)
    weight = rng.random(29) * (rng.random(29) < 0.6)
    args, settings = settings_of(MODELS["binary"], phase, "default", sample_weight=weight)
    assert_alike(compiled(*args, **settings), in_python(*args, **settings), rtol, atol)


@pytest.mark.parametrize("phase", PHASES)
def test_bits_do_not_depend_on_who_looks_or_on_threads(phase, compiled, monkeypatch):
    model = spread(pgm.rbm(300, 120, rng=0), 2)
    rng = np.random.default_rng(1)
    data = {"v": (rng.random((70, 300)) < 0.3) * 1.0}
    settings = {
        "negative": PHASES[phase],
        "optimizer": pgm.Averaged(pgm.Centered(pgm.Scaled(pgm.SGD(0.2)))),
        "batch_size": 32,
        "progress": False,
    }
    monkeypatch.setenv("PGMENGINE_THREADS", "1")
    plain = compiled(model, data, updates=23, **settings)
    looked = compiled(model, data, updates=23, callbacks=[lambda m, u: {"u": u}], **settings)
    assert_same(plain, looked)
    assert looked.history["u"]["update"].tolist() == list(range(24))
    monkeypatch.setenv("PGMENGINE_THREADS", "3")
    assert_same(plain, compiled(model, data, updates=23, **settings))
    half = compiled(model, data, updates=9, **settings)
    assert_same(plain, compiled(half.model, data, updates=23, state=half.state, **settings))


def test_a_checkpoint_goes_on_to_the_same_bits(tmp_path, compiled):
    args, settings = settings_of(MODELS["wide"], "FastPCD", "averaged", updates=None)
    del settings["updates"]
    plain = compiled(*args, updates=31, **settings)
    path = tmp_path / "fit.checkpoint"
    compiled(*args, updates=14, checkpoint=path, **settings)
    assert_same(plain, compiled(*args, updates=31, checkpoint=path, **settings))


def test_a_state_without_a_key_of_orders_goes_on(compiled):
    """As versions before 0.2 wrote it."""
    args, settings = settings_of(MODELS["binary"], "PCD-1", "SGD")
    half = compiled(*args, **settings)
    state = {k: v for k, v in half.state.items() if k not in ("order_key", "passes")}
    more = compiled(half.model, args[1], **settings | {"state": state, "updates": 20})
    assert more.state["update"] == 20


@one_test_over(
    ("phase", "entry", "value", "message"),
    [
        ("PCD-1", "order", [3, 3, 5], "a row is twice"),
        ("PCD-1", "order", [-1, 3], "not numbers"),
        ("CAST", "negative//slow", np.full(9, -1), "each number from 0 to 17 once"),
        ("CAST", "negative//level", np.full((1, 9), 3), "on rung 3"),
    ],
)
def test_damaged_states_are_refused(phase, entry, value, message):
    args, settings = settings_of(MODELS["binary"], phase, "SGD")
    half = pgm.fit(*args, **settings)
    state = half.state | {entry: np.array(value)}
    with pytest.raises(pgm.PgmError, match=message):
        pgm.fit(half.model, args[1], **settings | {"state": state, "updates": 20})


def test_monitors_measure_at_their_updates(compiled):
    args, settings = settings_of(MODELS["binary"], "PCD-1", "SGD", updates=50)
    monitor = pgm.WeightNorms(every=7)
    found = compiled(*args, callbacks=[monitor], **settings).history["norm l0-l1.weight"]
    assert found["update"].tolist() == list(range(0, 50, 7))
    each = compiled(*args, callbacks=[pgm.WeightNorms(every=1)], **settings)
    np.testing.assert_array_equal(found["value"], each.history["norm l0-l1.weight"]["value"][::7])


def test_a_monitor_with_a_call_of_its_own_sees_every_update(compiled):
    class Own(pgm.WeightNorms):
        def __call__(self, model, update):
            return {"seen": update}

    args, settings = settings_of(MODELS["binary"], "PCD-1", "SGD", updates=12)
    found = compiled(*args, callbacks=[Own(every=5)], **settings)
    assert found.history["seen"]["update"].tolist() == list(range(13))


def test_learning_that_diverges_is_named(in_python):
    args, settings = settings_of(
        MODELS["binary"], "PCD-1", "SGD", optimizer=pgm.SGD(lambda t: 1e35 if t == 3 else 0.01)
    )
    messages = []
    for fit, callbacks in ((pgm.fit, ()), (pgm.fit, [lambda m, u: None]), (in_python, ())):
        with pytest.raises(pgm.PgmError) as error:
            fit(*args, callbacks=callbacks, **settings)
        messages.append(str(error.value))
    assert len(set(messages)) == 1 and messages[0].startswith("update 4: 'l0.bias' is beyond")


def test_fast_weights_that_diverge_are_named():
    args, settings = settings_of(
        MODELS["binary"], "PCD-1", "SGD", negative=pgm.FastPCD(rate=1e30, decay=1.0), updates=400
    )
    settings["negative"] = pgm.FastPCD(chains=5, rate=lambda t: 3e38 if t > 2 else 0.1)
    with pytest.raises(pgm.PgmError, match="update .*: the fast weights of .* are not finite"):
        pgm.fit(*args, **settings)


def test_inputs_beyond_single_precision_are_named():
    model = MODELS["gaussian below"]
    data = {"l0": some_data(model.structure.layers["l0"], 20) * 1e15}
    with pytest.raises(pgm.PgmError, match="single precision|not finite|beyond"):
        pgm.fit(model, data, negative=pgm.CD(), optimizer=pgm.SGD(1e8), updates=50, progress=False)


class OwnSteps(pgm.SGD):
    """Steps of half the length, in a class that inherits the operations of SGD."""

    def step(self, structure, params, gradient, moments, t):
        half = {k: 0.5 * v for k, v in gradient.items()}
        return super().step(structure, params, gradient.replaced(half), moments, t)


class OwnBlend(pgm.GrowingBlend):
    """A schedule that inherits, and could return any kernel."""


class Shifted(pgm.Binary):
    """Units with means of their own."""

    def mean(self, eta):
        return 0.5 * super().mean(eta)


def test_units_and_phases_with_methods_of_their_own_stay_in_python(monkeypatch, in_python):
    monkeypatch.setattr(_kernels, "make_updates", None)
    args, settings = settings_of(built((pgm.Binary(), 9), (Shifted(), 4)), "PCD-1", "SGD")
    pgm.fit(*args, **settings)

    class Watched(pgm.PCD):
        def start(self, given, rng):
            phase = super().start(given, rng)
            plain = phase.statistics
            phase.statistics = lambda batch, update, rng: plain(batch, update, rng)
            return phase

    args, settings = settings_of(MODELS["binary"], "PCD-1", "SGD", negative=Watched(chains=4))
    pgm.fit(*args, **settings)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"negative": pgm.PCD(kernel=OwnBlend(1, 4))}, "no compiled transitions"),
        ({"optimizer": OwnSteps(0.05)}, "OwnSteps has no compiled operations"),
        ({"negative": pgm.PT(chains=3)}, "has no compiled operations"),
        ({"negative": pgm.PCD(kernel=lambda t: pgm.Gibbs())}, "no compiled transitions"),
        ({"given": ("l1",)}, "the model phase depends on the row"),
        ({"positive": pgm.Exact()}, "has no compiled operations"),
    ],
    ids=["blend", "steps", "PT", "schedule", "given", "Exact"],
)
def test_other_updates_are_made_in_python(change, why, caplog, in_python):
    caplog.set_level("INFO")
    args, settings = settings_of(MODELS["binary"], "PCD-1", "SGD", **change)
    if "given" in change:
        args[1]["l1"], settings["negative"] = np.zeros((29, 9)), pgm.CD()
    found = pgm.fit(*args, **settings)
    assert any(why in record.getMessage() for record in caplog.records)
    assert_same(found, in_python(*args, **settings))


def test_gaps_with_exact_rows_or_cd_tables_and_sparse_weights_stay_in_python(monkeypatch):
    monkeypatch.setattr(_kernels, "make_updates", None)
    x = np.array([[0, 1, np.nan], [1, 1, 0]])
    settings = {"negative": pgm.PCD(chains=3), "updates": 4, "progress": False}
    pgm.fit(pgm.rbm(3, 2, rng=0), {"v": x}, **settings)
    pgm.fit(pgm.rbm(3, 2, rng=0), {"v": x}, **settings | {"negative": pgm.CD()}, positive=ROUNDS)
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 4)
    b.layer("h", pgm.Binary(), 3)
    b.couple("v", "h", sp.csr_array(np.eye(4, 3)))
    pgm.fit(b.build(), {"v": np.eye(4)}, **settings)
    b.table((("v", 0), ("v", 1)), np.ones((2, 2)))
    pgm.fit(b.build(), {"v": np.eye(4)}, **settings)


# ---- parts of the loop ----


@one_test_over("rows", [1, 2, 63, 64, 65, 1000])
def test_a_pass_has_every_row_once(rows):
    key = np.arange(4, dtype=np.uint32)
    for number in (0, 1, 2**40):
        found = _kernels.shuffled(key, number, rows)
        np.testing.assert_array_equal(np.sort(found), np.arange(rows))
    if rows > 60:
        assert (_kernels.shuffled(key, 0, rows) != _kernels.shuffled(key, 1, rows)).any()


def test_orders_of_rows_are_uniform(least=1e-6):
    """Chi-square of the 24 orders of four rows; a false alarm in a million runs."""
    key = np.random.default_rng(0).integers(0, 2**32, 4, dtype=np.uint32)
    orders = {order: i for i, order in enumerate(itertools.permutations(range(4)))}
    counts = np.zeros(24)
    for number in range(24_000):
        counts[orders[tuple(_kernels.shuffled(key, number, 4).tolist())]] += 1
    assert stats.chisquare(counts).pvalue > least


@one_test_over("unit", DRAWN, ids=repr)
def test_means_are_those_of_the_unit(unit, rtol=2e-6, atol=2e-6):
    rng = np.random.default_rng(0)
    layer = built((unit, 7), (pgm.Binary(), 1)).structure.layers["l0"]
    eta = rng.normal(0, 1, (40, layer.width)) * np.geomspace(1e-3, 60, 40)[:, None]
    eta[0], eta[1] = 0.0, np.where(np.arange(layer.width) % 2, 300.0, -300.0)
    eta = eta.astype(np.float32)
    expected = layer.flat(layer.unit.mean(layer.shaped(eta.astype(np.float64))))
    fields = mean_fields(layer.unit)
    found = np.empty_like(eta)
    _kernels.means(
        fields["unit"],
        fields["values"],
        fields["width"],
        fields["variance"],
        fields["support"],
        fields["log_base"],
        eta,
        found,
        2,
    )
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("unit", [u for u in DRAWN if u.support is not None], ids=repr)
def test_draws_have_the_probabilities_of_the_unit(unit, least=1e-6):
    """Chi-square of 40,000 draws of each of three units."""
    layer = built((unit, 3), (pgm.Binary(), 1)).structure
    name, rows = "l0", 40_000
    own = layer.layers[name]
    eta = np.random.default_rng(5).normal(0, 0.7, own.width)
    key = np.random.default_rng(1).integers(0, 2**32, 4, dtype=np.uint32)
    eta_rows = np.broadcast_to(eta, (rows, own.width)).astype(np.float32)
    states = own.states(drawn_units(layer, {name: eta_rows}, key)[name])
    prob = own.unit.prob(own.shaped(eta[None]))[0]
    for unit_number in range(3):
        counts = np.bincount(states[:, unit_number], minlength=prob.shape[-1])
        assert stats.chisquare(counts, rows * prob[unit_number]).pvalue > least


# ---- several fits at once ----


def test_fits_at_once_are_the_fits_one_after_the_other(compiled):
    models = [spread(pgm.rbm(16, 6, rng=0), seed) for seed in range(4)]
    data = {"v": pgm.datasets.bars_and_stripes().x_train}
    settings = {"negative": pgm.CD(), "updates": 17, "batch_size": 7, "progress": False}
    together = compiled(models, data, repeats=4, rng=3, **settings)
    rngs = spawn(np.random.default_rng(3), 4)
    for found, model, rng in zip(together, models, rngs, strict=True):
        assert_same(found, pgm.fit(model, data, rng=rng, **settings))
    same = pgm.fit(models[0], data, repeats=2, rng=3, **settings)
    assert_same(same[0], together[0])
    assert any(
        (same[0].model.params[k] != same[1].model.params[k]).any() for k in same[0].model.params
    )


class UntilLarge:
    """Ends a fit at its tenth update if its largest bias is above 1."""

    def __call__(self, model, update):
        return {"largest": model.params["v.bias"].max()} if update == 10 else None

    def stops(self, history):
        return "large" if any(value > 1 for _, value in history.get("largest", [])) else ""


def test_a_fit_that_stops_leaves_the_others():
    data = {"v": pgm.datasets.bars_and_stripes().x_train}
    models = [
        pgm.rbm(16, 4, rng=i).with_params({"v.bias": np.full(16, bias)})
        for i, bias in enumerate([0.0, 3.0, 0.0])
    ]
    found = pgm.fit(
        models,
        data,
        repeats=3,
        callbacks=[UntilLarge()],
        updates=60,
        negative=pgm.PCD(chains=20),
        optimizer=pgm.SGD(0.001),
        progress=False,
    )
    assert [f.state["update"] for f in found] == [60, 10, 60]
    assert [f.stopped for f in found] == ["", "large", ""]


def test_findings_of_fits_at_once_are_counted(caplog):
    data = {"v": pgm.datasets.bars_and_stripes().x_train}
    found = pgm.fit(pgm.rbm(16, 8, rng=0), data, repeats=3, updates=40, rng=0, progress=False)
    nats = [finding.nats for f in found for finding in f.findings]
    assert {finding.kind.name for f in found for finding in f.findings} == {"STILL_RISING"}
    said = f"in {len(nats)} of 3 fits, learning was still rising, by up to {max(nats):.3g} nats"
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith(said)


def test_fits_at_once_of_other_kinds():
    """EM, and updates in Python."""
    net = pgm.sbn([4, 3], rng=0)
    x = np.random.default_rng(0).integers(0, 2, (20, 4)) * 1.0
    found = pgm.fit(net, {"v": x}, repeats=2, updates=5, progress=False)
    assert len(found) == 2 and found[0].state["update"] == 5


@one_test_over(
    ("model", "settings", "message"),
    [
        (pgm.rbm(3, 2), {"repeats": 0}, "repeats"),
        ([pgm.rbm(3, 2)], {"repeats": 2}, "repeats is 2, but there are 1 models"),
        ([pgm.rbm(3, 2), pgm.rbm(3, 4)], {"repeats": 2}, "model 1 has another structure"),
        (pgm.rbm(3, 2), {"repeats": 2, "checkpoint": "x"}, "of a single fit"),
    ],
)
def test_refusals(model, settings, message):
    with pytest.raises(pgm.PgmError, match=message):
        pgm.fit(model, {"v": np.eye(3)}, updates=2, progress=False, **settings)


def test_an_error_names_the_fit():
    """Weights that decay by a thousand times themselves diverge, the sooner the larger they are."""
    models = [spread(pgm.rbm(16, 4, rng=0), 1, size) for size in (1.0, 1e25)]
    data = {"v": pgm.datasets.bars_and_stripes().x_train}
    steps = pgm.SGD(1.0, weight_decay=1e3)
    with pytest.raises(pgm.PgmError, match=r"fit 2 of 2: update \d: 'v-h.weight' is beyond 1e"):
        pgm.fit(
            models, data, repeats=2, optimizer=steps, negative=pgm.PCD(), updates=5, progress=False
        )
