"""Trainers to their optimum, resuming, weights of rows, centred and tied gradients, pretraining, monitors."""

import functools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

import pgmengine as pgm
from pgmengine.learn.batch import Gradient

STATES = np.array(np.meshgrid(*[[0.0, 1.0]] * 5)).reshape(5, -1).T
TRAINERS = {
    "exact": pgm.ExactGradient(),
    "cd": pgm.CD(k=20),
    "pcd": pgm.PCD(k=2, chains=500),
    "fast": pgm.FastPCD(k=2, chains=500, rate=0.01),
    "pt": pgm.PT(temperatures=3, k=2, chains=200),
    "trans": pgm.TransSAP(betas=[0.5, 0.8, 1.0], k=1, chains=300),
    "adaptive": pgm.AdaptiveSAP(betas=[0.5, 0.8, 1.0], every=5, steps=5, k=2, chains=500),
    "cast": pgm.CAST(betas=[0.5, 0.8, 1.0], k=2, chains=300, swap_every=10),
}


def log_likelihood(model, data):
    return float(pgm.infer(model, data, want=("log_prob",), method=pgm.Exact()).log_prob.mean())


@pytest.fixture(scope="module")
def teacher():
    """Rows from a known RBM, and the log-likelihood that exact gradients reach."""
    rng = np.random.default_rng(0)
    model = pgm.rbm(5, 2, rng=0)
    model = model.with_params({k: 1.5 * rng.normal(size=v.shape) for k, v in model.params.items()})
    log_p = pgm.infer(model, {"v": STATES}, want=("log_prob",)).log_prob
    x = STATES[rng.choice(32, 400, p=np.exp(log_p))]
    best = pgm.fit(pgm.rbm(5, 2, rng=1), {"v": x}, negative=pgm.ExactGradient(), optimizer=pgm.Adam(0.05), updates=1500,
                   batch_size=400)  # fmt: skip
    return x, log_likelihood(best.model, {"v": x})


@pytest.mark.parametrize("name", [n for n in TRAINERS if n != "exact"])
def test_every_trainer_reaches_the_optimum_of_the_exact_gradient(teacher, name, nats=0.02):
    """Within the noise of its steps: full batches, decaying rates."""
    x, best = teacher
    f = pgm.fit(pgm.rbm(5, 2, rng=1), {"v": x}, negative=TRAINERS[name], optimizer=pgm.Adam(pgm.harmonic(10, 200)),
                batch_size=400, updates=1500, rng=2)  # fmt: skip
    assert best - nats < log_likelihood(f.model, {"v": x}) < best + 1e-3


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [(n, pgm.SGD(0.1, momentum=0.5)) for n in TRAINERS]
    + [("pcd", pgm.Adam(0.01)), ("pcd", pgm.AdaMax()), ("cd", pgm.Centered(pgm.Adam(0.01)))],
    ids=repr,
)
def test_resuming_gives_the_same_bits(tmp_path, name, optimizer):
    x = pgm.datasets.bars_and_stripes().x_train
    settings = {"negative": TRAINERS[name], "optimizer": optimizer, "batch_size": 10, "rng": 3}
    monitor = [pgm.ExactLogLikelihood({"v": x}, every=4)]
    path, start = tmp_path / "c", pgm.rbm(16, 4, rng=0)
    whole = pgm.fit(start, {"v": x}, updates=19, callbacks=monitor, **settings)
    for updates in (7, 8, 19):
        part = pgm.fit(start, {"v": x}, updates=updates, callbacks=monitor, checkpoint=path, **settings)
    for key, value in whole.model.params.items():
        np.testing.assert_array_equal(part.model.params[key], value)
    for key, value in whole.history.items():
        np.testing.assert_array_equal(part.history[key]["value"], value["value"])
    half = pgm.fit(start, {"v": x}, updates=8, **settings)
    warm = pgm.fit(half.model, {"v": x}, updates=19, state=half.state, **settings)
    np.testing.assert_array_equal(warm.model.params["v-h.weight"], whole.model.params["v-h.weight"])


SCRIPT = """
import sys, pgmengine as pgm
from pgmengine.learn import fit as module
sys.modules["pgmengine.learn.fit"].SAVE_EVERY = 0.01
x = pgm.datasets.bars_and_stripes().x_train
f = pgm.fit(pgm.rbm(16, 6, rng=0), {"v": x}, negative=pgm.CAST(chains=20), optimizer=pgm.Adam(0.01),
            updates=int(sys.argv[2]), rng=1, progress=False, checkpoint=sys.argv[1])
pgm.save(f.model, sys.argv[1] + ".model")
"""


def test_a_killed_process_leaves_the_last_good_checkpoint(tmp_path):
    path, updates = tmp_path / "c", 400
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path), "1000000"])
        begin = time.monotonic()
        while not path.exists() and time.monotonic() - begin < 60:
            time.sleep(0.01)
        time.sleep(0.15)
        child.send_signal(signal.SIGKILL)
        child.wait()
        from pgmengine.learn.checkpoint import read

        arrays, _ = read(path, {})
        reached = int(arrays["update"])
        if reached > updates - 50:
            break
    total = reached + 25
    subprocess.run([sys.executable, "-c", SCRIPT, str(path), str(total)], check=True)
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "whole"), str(total)], check=True)
    one, two = (pgm.load(tmp_path / f"{name}.model") for name in ("c", "whole"))
    for key, value in one.params.items():
        np.testing.assert_array_equal(two.params[key], value)
    assert {p.name for p in tmp_path.iterdir() if ".part" not in p.name} == {"c", "whole", "c.model", "whole.model"}


@pytest.mark.parametrize("rows", [7, 32, 50])
def test_a_state_goes_on_with_other_data(rows):
    """Fewer rows, as many, and more; the pass under way ends with those of its rows that there are."""
    first, other = pgm.datasets.bars_and_stripes().x_train, np.ones((rows, 16))
    half = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": first}, batch_size=5, updates=3, progress=False)
    left = half.state["order"]
    assert len(left) == 17 and left.max() >= 7
    f = pgm.fit(half.model, {"v": other}, batch_size=5, updates=4, state=half.state, progress=False)
    assert f.state["update"] == 4
    np.testing.assert_array_equal(f.state["order"], left[left < rows][5:])
    last = pgm.fit(f.model, {"v": other}, batch_size=5, updates=40, state=f.state, progress=False)
    assert last.state["update"] == 40 and set(last.state["order"]) <= set(range(rows))


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    x, path = pgm.datasets.bars_and_stripes().x_train, tmp_path / "c"
    pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=3, checkpoint=path)
    for changed, match in (
        ({"model": pgm.rbm(16, 5, rng=0)}, "model"),
        ({"model": pgm.rbm(16, 4, rng=1)}, "parameters"),
        ({"data": x[:-1]}, "data"),
        ({"optimizer": pgm.Adam(0.1)}, "optimizer"),
        ({"negative": pgm.CD()}, "negative"),
        ({"rng": 5}, "rng"),
    ):
        arguments = {"model": pgm.rbm(16, 4, rng=0), "data": x, **changed}
        with pytest.raises(pgm.PgmError, match=f"another fit.*{match}"):
            pgm.fit(arguments.pop("model"), {"v": arguments.pop("data")}, updates=3, checkpoint=path, **arguments)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(pgm.PgmError, match="not a readable checkpoint"):
        pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=3, checkpoint=path)
    pgm.save(pgm.rbm(16, 4, rng=0), path)
    with pytest.raises(pgm.PgmError, match="not a checkpoint"):
        pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=3, checkpoint=path)


def test_one_and_two_threads_learn_the_same_bits():
    rng, found = np.random.default_rng(0), []
    x = (rng.random((300, 500)) < 0.2).astype(float)
    before = os.environ.get("PGMENGINE_THREADS")
    try:
        for threads in ("1", "2"):
            os.environ["PGMENGINE_THREADS"] = threads
            found += [pgm.fit(m, {"v": x}, negative=n, optimizer=pgm.SGD(0.1), updates=4) for m, n in (
                (pgm.rbm(500, 400, rng=0), pgm.PCD()), (pgm.dbm([500, 300, 200], rng=0), pgm.CAST()))]  # fmt: skip
    finally:
        if before is None:
            del os.environ["PGMENGINE_THREADS"]
        else:
            os.environ["PGMENGINE_THREADS"] = before
    for one, two in ((found[0], found[2]), (found[1], found[3])):
        for key, value in one.model.params.items():
            np.testing.assert_array_equal(two.model.params[key], value)


def weighted_case(case):
    """(model, data, given) with six rows."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (6, 4)).astype(float)
    if case == "drbm":
        return pgm.drbm(4, 3, 3, rng=1), {"x": x, "y": rng.integers(0, 3, (6, 1)).astype(float)}, ("x",)
    return (pgm.dbm([4, 3, 2], rng=1) if case == "dbm" else pgm.rbm(4, 3, rng=1)), {"v": x}, ()


@pytest.mark.parametrize("case", ["rbm", "drbm", "dbm"])
def test_a_row_of_weight_three_counts_as_three_rows(case, rtol=1e-9):
    model, data, given = weighted_case(case)
    weights = np.array([3, 1, 0, 2, 1, 1])
    repeated = {k: np.repeat(v, weights, axis=0) for k, v in data.items()}
    settings = {
        "negative": pgm.ExactGradient(),
        "given": given,
        "optimizer": pgm.SGD(0.5),
        "updates": 5,
        "batch_size": 99,
    }
    one = pgm.fit(model, data, sample_weight=weights, **settings)
    two = pgm.fit(model, repeated, **settings)
    for key, value in one.model.params.items():
        np.testing.assert_allclose(two.model.params[key], value, rtol=rtol, atol=1e-12)


def cd_step(case, weights, change=None):
    """What one update of CD with weighted rows adds to the parameters; `change`: a row that gets other values."""
    model, data, given = weighted_case(case)
    if change is not None:
        data = {k: v.copy() for k, v in data.items()}
        for v in data.values():
            v[change] = 1 - v[change] if v.shape[1] > 1 else (v[change] + 1) % 3
    f = pgm.fit(model, data, negative=pgm.CD(), given=given, optimizer=pgm.SGD(0.5), updates=1, sample_weight=weights)
    return np.concatenate([np.ravel(f.model.params[k] - v) for k, v in model.params.items()])


@pytest.mark.parametrize("case", ["rbm", "drbm", "dbm"])
def test_a_step_of_cd_is_linear_in_the_weights(case, atol=1e-6):
    one, two = np.array([3, 1, 0, 1, 1, 0.0]), np.array([0, 1, 2, 0, 1, 2.0])
    both = (cd_step(case, one) + cd_step(case, two)) / 2
    np.testing.assert_allclose(cd_step(case, (one + two) / 2), both, atol=atol)
    assert np.abs(cd_step(case, one) - cd_step(case, two)).max() > 100 * atol


@pytest.mark.parametrize("case", ["rbm", "drbm"])
def test_a_row_without_weight_has_no_part_in_cd(case):
    """Neither in the data phase nor in the chains that start from it."""
    weights = np.array([3, 1, 0, 2, 1, 1.0])
    np.testing.assert_array_equal(cd_step(case, weights), cd_step(case, weights, change=2))
    assert not np.array_equal(cd_step(case, weights), cd_step(case, weights, change=1))


@pytest.mark.parametrize(
    ("weight", "match"),
    [([1, 2], "shape"), ([1, -1, 1], "row 1 is -1"), ([0, 0, 0], "nothing"), ([1, np.nan, 1], "sample_weight")],
)
def test_bad_sample_weights(weight, match):
    with pytest.raises(pgm.PgmError, match=match):
        pgm.fit(pgm.rbm(2, 2, rng=0), {"v": np.zeros((3, 2))}, updates=1, sample_weight=weight)


def test_the_centred_gradient_is_that_of_the_centred_parameters():
    """E = -(v - m) W (h - l) - v.a' - h.b': its plain gradient step, taken back to the usual parameters."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (50, 4)).astype(float)
    model = pgm.rbm(4, 3, rng=0)
    rate = 0.3
    plain = pgm.fit(model, {"v": x}, negative=pgm.ExactGradient(), optimizer=pgm.SGD(1.0), updates=1, batch_size=50)
    slope = {k: plain.model.params[k] - v for k, v in model.params.items()}
    m = x.mean(axis=0)
    h = pgm.infer(model, {"v": x}).mean["h"].mean(axis=0)
    w, a, b = (model.params[k] for k in ("v-h.weight", "v.bias", "h.bias"))
    # coordinates of the centred model: a' = a + W l, b' = b + m W; gradients there by the chain rule
    new_w = w + rate * (slope["v-h.weight"] - np.outer(m, slope["h.bias"]) - np.outer(slope["v.bias"], h))
    new_a = a + w @ h + rate * slope["v.bias"] - new_w @ h
    new_b = b + m @ w + rate * slope["h.bias"] - m @ new_w
    f = pgm.fit(model, {"v": x}, negative=pgm.ExactGradient(), optimizer=pgm.Centered(pgm.SGD(rate)), updates=1,
                batch_size=50)  # fmt: skip
    np.testing.assert_allclose(f.model.params["v-h.weight"], new_w, atol=1e-12)
    np.testing.assert_allclose(f.model.params["v.bias"], new_a, atol=1e-12)
    np.testing.assert_allclose(f.model.params["h.bias"], new_b, atol=1e-12)


def test_tied_parameters_stay_equal_and_follow_the_common_gradient():
    b = pgm.GraphBuilder()
    for name, size in (("a", 4), ("b", 4), ("h", 3)):
        b.layer(name, pgm.Binary(), size)
    w = np.random.default_rng(0).normal(size=(4, 3))
    b.couple("a", "h", weight=w)
    b.couple("b", "h", weight=w)
    model, x = b.build(), np.random.default_rng(1).integers(0, 2, (20, 4)).astype(float)
    tied = pgm.Tied(pgm.SGD(0.1), (("a-h.weight", "b-h.weight"), ("a.bias", "b.bias")))
    f = pgm.fit(model, {"a": x, "b": x}, optimizer=tied, updates=10)
    np.testing.assert_array_equal(f.model.params["a-h.weight"], f.model.params["b-h.weight"])
    state, gradient = tied.start(model.params), Gradient({k: np.ones(v.shape) for k, v in model.params.items()})
    gradient.means = dict
    stepped = tied.step(model.structure, model.params, gradient, state, 0)
    np.testing.assert_allclose(stepped["a-h.weight"] - w, 0.2)
    np.testing.assert_allclose(stepped["h.bias"], 0.1)
    with pytest.raises(pgm.PgmError, match="differ"):
        pgm.Tied(pgm.SGD(), (("a.bias", "h.bias"),)).start({"a.bias": np.ones(2), "h.bias": np.zeros(2)})
    with pytest.raises(pgm.PgmError, match="unknown"):
        pgm.Tied(pgm.SGD(), (("z.bias",),)).start(model.params)


@pytest.mark.parametrize("family", [pgm.dbm, pgm.dbn])
def test_pretraining_is_a_better_start(family):
    x = pgm.datasets.bars_and_stripes(3).x_train
    model = family([9, 8, 6], rng=0)
    found = pgm.pretrain(model, {"v": x}, negative=pgm.PCD(k=5), optimizer=pgm.SGD(0.1), batch_size=14, updates=1500)
    assert log_likelihood(found, {"v": x}) > log_likelihood(model, {"v": x}) + 1.0
    assert set(found.params) == set(model.params)
    with pytest.raises(pgm.PgmError, match="path"):
        pgm.pretrain(pgm.boltzmann_machine(3, unit=pgm.Binary(), rng=0), {"x": np.zeros((2, 3))})


def test_base_rate_start_has_the_means_of_the_data_without_weights(atol=0.02):
    x = pgm.datasets.digits().x_train
    model = pgm.rbm(64, 3).with_params({"v-h.weight": np.zeros((64, 3))})
    found = pgm.infer(pgm.base_rate_start(model, {"v": x}, strength=1e-9)).mean["v"]
    np.testing.assert_allclose(found, x.mean(axis=0), atol=atol)


def test_a_negative_phase_of_ones_own_as_in_the_recipe(tmp_path):
    from dataclasses import dataclass
    from typing import ClassVar

    from pgmengine.learn.negative.base import Persistent

    @dataclass(frozen=True)
    class Backwards:
        """Sweeps in the reverse order."""

        chains: int = 50
        precision: ClassVar[type] = np.float32

        def start(self, given, rng):
            return Persistent(
                "Backwards", given, self.chains, pgm.Gibbs(), rng, lambda c, t, r: c.sweep(2, backward=True)
            )

    x = pgm.datasets.bars_and_stripes(3).x_train
    f = pgm.fit(
        pgm.rbm(9, 4, rng=0),
        {"v": x},
        negative=Backwards(),
        optimizer=pgm.Adam(0.02),
        updates=300,
        checkpoint=tmp_path / "c",
    )
    assert log_likelihood(f.model, {"v": x}) > -5.5


# ---- what fit refuses ----


def test_given_and_chains_that_go_on():
    data = {"x": np.zeros((4, 3)), "y": np.zeros((4, 1))}
    for name in ("pcd", "fast", "pt", "trans", "adaptive", "cast"):
        with pytest.raises(pgm.PgmError, match="a model phase of its own"):
            pgm.fit(pgm.drbm(3, 2, 2, rng=0), data, given=("x",), negative=TRAINERS[name], updates=1)
    assert pgm.fit(pgm.drbm(3, 2, 2, rng=0), data, given=("x",), updates=2).state["update"] == 2
    with pytest.raises(pgm.PgmError, match="given=\\('x',\\)"):
        pgm.fit(pgm.drbm(3, 2, 2, rng=0), data, updates=1)
    with pytest.raises(pgm.PgmError, match="not in the data"):
        pgm.fit(pgm.rbm(3, 2, rng=0), {"v": np.zeros((2, 3))}, given=("h",), updates=1)


def test_divergence_names_the_quantity_and_the_update():
    x = np.ones((5, 4))
    with pytest.raises(pgm.PgmError, match="update [0-9]+: .*'.*' is not finite"), np.errstate(all="ignore"):
        pgm.fit(pgm.rbm(4, 2, visible=pgm.Gaussian(), rng=0), {"v": x}, optimizer=pgm.SGD(1e200), updates=9)


@pytest.mark.parametrize(
    "negative", [pgm.CD(), pgm.PCD(), pgm.PT(3), pgm.CAST(betas=[0.5, 1.0]), pgm.ExactGradient()], ids=repr
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


# ---- found by a reviewer ----


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


@pytest.mark.parametrize("negative", [pgm.CD(), pgm.PCD(chains=2), pgm.FastPCD(chains=2), pgm.ExactGradient()], ids=repr)
@pytest.mark.parametrize("lateral", [True, False])
def test_stored_entries_whose_slope_is_zero_stay_parameters(negative, lateral):
    x = (np.random.default_rng(0).random((8, 6)) < 0.5) * 1.0
    x[:, :3] = 0.0
    x[0, 0] = np.nan
    model = sparse_graph(lateral)
    f = pgm.fit(model, {"v": x}, updates=50, negative=negative, optimizer=pgm.Centered(pgm.Adam(0.01)))
    for key, value in model.params.items():
        if sp.issparse(value):
            assert f.model.params[key].nnz == value.nnz
    f.model.with_params(dict(f.model.params))


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
    f = pgm.fit(b.build(rng=0), {"x": x}, updates=60, batch_size=7, optimizer=optimizer, negative=negative)
    weight = f.model.params["x-x.weight"]
    np.testing.assert_array_equal(weight, weight.T)
    for i in range(3):
        assert not weight[i * unit.width : (i + 1) * unit.width, i * unit.width : (i + 1) * unit.width].any()
    pgm.save(f.model, tmp_path / "m.safetensors")
    pgm.load(tmp_path / "m.safetensors")


def test_adaptive_sap_is_unbiased_where_temperatures_differ(sure=5.0):
    from tiny import FINITE

    from pgmengine.learn.batch import Batch, GradientSum, only

    machine = next(m for m in FINITE if m.name == "rbm three values")
    model, rng, chains = machine.build(), np.random.default_rng(0), 20_000
    negative = pgm.AdaptiveSAP(betas=[0.5, 0.8, 1.0], every=1, steps=10, chains=chains)
    target = model.given({"v": np.zeros((1, 3))})
    batch = Batch(target, only(target, ()), np.ones(1), dict)
    run = negative.start(batch.given, rng)
    run.chains.sweep(200)
    for update in range(8):
        total = GradientSum(model, np.float32)
        run.add(total, batch, update, rng)
    exact = pgm.infer(model, method=pgm.Exact()).mean
    found = total.total()
    for name in exact:
        assert np.all(np.abs(-found[f"{name}.bias"] - exact[name]) < sure / np.sqrt(chains))


def test_centred_gradients_of_weighted_rows_and_mixed_graphs():
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 2, (6, 4)).astype(float), np.array([3, 1, 0, 2, 1, 1.0])
    repeated = np.repeat(x, w.astype(int), axis=0)
    one, two = (
        pgm.fit(pgm.rbm(4, 3, rng=1), {"v": d}, negative=pgm.ExactGradient(), optimizer=pgm.Centered(pgm.SGD(0.5)),
                updates=5, batch_size=99, sample_weight=s) for d, s in ((x, w), (repeated, None)))  # fmt: skip
    for key, value in one.model.params.items():
        np.testing.assert_allclose(two.model.params[key], value, rtol=1e-9, atol=1e-12)
    b = pgm.GraphBuilder()
    for name, size in (("v", 6), ("h1", 3), ("h2", 3)):
        b.layer(name, pgm.Binary(), size)
    b.couple("v", "h2")
    b.cause("h1", "v")
    x = (rng.random((20, 6)) < 0.5) * 1.0
    for optimizer in (pgm.Centered(), pgm.Centered(pgm.Tied(pgm.SGD(0.1), (("v.bias",),)))):
        assert pgm.fit(b.build(rng=0), {"v": x}, optimizer=optimizer, updates=3).state["update"] == 3


def test_distinct_row_weights_are_no_loop_over_rows(monkeypatch):
    calls = []
    real = pgm.Exact.gradient
    monkeypatch.setattr(pgm.Exact, "gradient", lambda self, t, w: calls.append(t.rows) or real(self, t, w))
    x = np.random.default_rng(0).integers(0, 2, (50, 5)).astype(float)
    pgm.fit(pgm.dbm([5, 3, 2], rng=0), {"v": x}, updates=2, sample_weight=np.arange(1.0, 51))
    assert calls == [50, 50]


def test_a_fit_that_was_stopped_stays_stopped(tmp_path):
    x = pgm.datasets.bars_and_stripes(3).x_train
    stop = pgm.EarlyStopping(pgm.ExactLogLikelihood({"v": x}, every=1), patience=3, least=10.0)
    one, two = (
        pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, updates=100, callbacks=[stop], checkpoint=tmp_path / "c") for _ in "ab"
    )
    assert one.state["update"] == two.state["update"] == 3
    assert one.stopped == two.stopped
    with pytest.raises(pgm.PgmError, match="name="):
        pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, updates=3, callbacks=[pgm.EarlyStopping(pgm.WeightNorms())])
    watched = pgm.EarlyStopping(pgm.WeightNorms(every=1), name="norm v.bias", patience=2, least=100.0)
    assert pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, updates=9, callbacks=[watched]).stopped


def test_early_stopping_on_a_name_that_never_comes_is_told_of(caplog):
    x = pgm.datasets.bars_and_stripes(3).x_train
    for name, told in (("norm v.bais", True), ("norm v.bias", False)):
        caplog.clear()
        stop = pgm.EarlyStopping(pgm.WeightNorms(every=2), name=name)
        pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, updates=4, callbacks=[stop], progress=False)
        assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
            f"EarlyStopping watched {name!r}, of which no callback said anything"] * told


def test_odd_settings(tmp_path):
    x, model = pgm.datasets.bars_and_stripes(3).x_train, pgm.rbm(9, 4, rng=0)
    rate = functools.partial(lambda a, t: a, 0.1)
    for _ in range(2):
        pgm.fit(model, {"v": x}, optimizer=pgm.SGD(rate), updates=2, checkpoint=tmp_path / "c")
    kernel = pgm.GrowingBlend(2, 4)
    for negative in (pgm.TransSAP(pgm.Adaptive(5), kernel=kernel, chains=5), pgm.AdaptiveSAP(kernel=kernel, chains=5)):
        assert pgm.fit(model, {"v": x}, negative=negative, updates=4).state["update"] == 4
    state = pgm.fit(model, {"v": x}, optimizer=pgm.Adam(), updates=1).state
    for other in ({"optimizer": pgm.AdaMax()}, {"negative": pgm.CD()}):
        with pytest.raises(pgm.PgmError, match="the state is of a fit with"):
            pgm.fit(model, {"v": x}, updates=2, state=state, **other)
    plain = pgm.fit(model, {"v": x}, optimizer=pgm.SGD(0.1), updates=1).state  # the same name, but keeps less
    with pytest.raises(pgm.PgmError, match="only one of them has 'optimizer/m/h.bias'"):
        pgm.fit(model, {"v": x}, optimizer=pgm.SGD(0.1, momentum=0.9), updates=2, state=plain)
    with pytest.raises(pgm.PgmError, match="no folder"):
        pgm.fit(model, {"v": x}, updates=1, checkpoint=tmp_path / "none" / "c")
    with pytest.raises(pgm.PgmError, match="no checkpoint"):
        pgm.pretrain(pgm.dbm([9, 4, 3], rng=0), {"v": x}, checkpoint=tmp_path / "c")
    pgm.pretrain(pgm.dbm([9, 4, 3], rng=0), {"v": x}, updates=3, sample_weight=np.arange(1.0, 1 + len(x)))


class Slow:
    """Gibbs sampling that only the plain engine knows."""

    def transition(self, prob, current):
        return prob


def test_a_kernel_schedule_across_engines_resumes_to_the_same_bits(tmp_path):
    schedule = lambda t: Slow() if 3 <= t < 6 else pgm.Gibbs()  # noqa: E731
    x, model = pgm.datasets.bars_and_stripes(3).x_train, pgm.rbm(9, 4, rng=0)
    settings = {"negative": pgm.PCD(chains=20, kernel=schedule), "rng": 1}
    whole = pgm.fit(model, {"v": x}, updates=10, **settings)
    for updates in (4, 7, 10):
        part = pgm.fit(model, {"v": x}, updates=updates, checkpoint=tmp_path / "c", **settings)
    np.testing.assert_array_equal(part.model.params["v-h.weight"], whole.model.params["v-h.weight"])
