"""Learning: gradients, trainers, optimizers, history, interruption."""

import math
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

import numpy as np
import pytest
import scipy.sparse as sp
from kept import kept
from loops import one_test_over

import pgmengine as pgm
from pgmengine.learn.phases.statistics import Statistics


def exact_value(model, data, given=()):
    value = pgm.infer(model, data, want=("log_z",), method=pgm.Exact()).log_z
    base = pgm.infer(model, {k: data[k] for k in given}, want=("log_z",), method=pgm.Exact()).log_z
    return float(np.mean(value - base))


def missing(x, share, rng):
    return np.where(rng.random(x.shape) < share, np.nan, x)


@one_test_over("case", ["rbm", "multivalued", "gaussian", "dbm", "sbn", "drbm", "lateral"])
def test_the_update_follows_the_gradient_of_the_log_likelihood(case):
    """One plain SGD step is rate times the finite-difference gradient of the exact mean
    log-likelihood.
    """
    rng, given = np.random.default_rng(0), ()
    binary = rng.integers(0, 2, (7, 4)).astype(float)
    model, data = {
        "rbm": lambda: (pgm.rbm(4, 3, rng=1), {"v": missing(binary, 0.3, rng)}),
        "multivalued": lambda: (pgm.rbm(4, 2, hidden=pgm.MultiValued(3), rng=1), {"v": binary}),
        "gaussian": lambda: (
            pgm.rbm(4, 3, visible=pgm.Gaussian(), rng=1),
            {"v": rng.normal(size=(7, 4))},
        ),
        "dbm": lambda: (pgm.dbm([4, 3, 2], rng=1), {"v": binary}),
        "sbn": lambda: (pgm.sbn([4, 3, 2], rng=1), {"v": missing(binary, 0.3, rng)}),
        "drbm": lambda: (
            pgm.drbm(4, 3, 3, rng=1),
            {"x": rng.normal(size=(7, 4)), "y": rng.integers(0, 3, 7)},
        ),
        "lateral": lambda: (
            pgm.boltzmann_machine(4, unit=pgm.Binary(), rng=1),
            {"x": missing(binary, 0.3, rng)},
        ),
    }[case]()
    model, given = kept(model), ("x",) if case == "drbm" else ()
    fitted = pgm.fit(
        model,
        data,
        negative=pgm.ExactGradient(),
        optimizer=pgm.SGD(1.0),
        updates=1,
        batch_size=7,
        given=given,
    )
    for name, value in model.params.items():
        step = rng.normal(size=value.shape)
        if case == "lateral" and name.endswith("weight"):
            step = np.triu(step, 1) + np.triu(step, 1).T
        ends = [
            exact_value(model.with_params({name: value + s * 1e-5 * step}), data, given)
            for s in (1, -1)
        ]
        tied = 2 if case == "lateral" and name.endswith("weight") else 1
        moved = ((fitted.model.params[name] - value) * step).sum() / tied
        np.testing.assert_allclose(moved, (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-8)


def test_digits_beat_the_baseline_exactly():
    data = pgm.datasets.digits()
    p = (data.x_train.sum(axis=0) + 1) / (len(data.x_train) + 2)
    base = (data.x_test @ np.log(p) + (1 - data.x_test) @ np.log1p(-p)).mean()
    fitted = pgm.fit(
        pgm.rbm(64, 10, rng=0),
        {"v": data.x_train},
        optimizer=pgm.Adam(0.01),
        epochs=30,
        callbacks=[pgm.ExactLogLikelihood({"v": data.x_test}, "test", every=450)],
    )
    assert fitted.history["test"]["value"][-1] > base + 2
    assert list(fitted.history["test"]["update"]) == [0, 450]


@pytest.mark.parametrize(
    "optimizer",
    [
        pgm.SGD(0.3, momentum=0.5),
        pgm.Adam(0.05),
        pgm.AdaMax(0.05),
        pgm.SGD(pgm.harmonic(30, 100)),
        pgm.Adam(0.05, weight_decay=1e-3),
    ],
    ids=repr,
)
def test_optimizers_climb(optimizer, gain=0.3):
    """Over twelve starts the slowest gains 0.77 +- 0.08 nats, others 2.3 or more; no step 0."""
    x = pgm.datasets.bars_and_stripes(3).x_train
    model = pgm.rbm(9, 6, rng=0)
    exactly = pgm.ExactGradient()
    fitted = pgm.fit(model, {"v": x}, negative=exactly, optimizer=optimizer, updates=300)
    assert exact_value(fitted.model, {"v": x}) > exact_value(model, {"v": x}) + gain


def test_sparse_weights_stay_sparse_and_noisy_or_stays_nonnegative():
    mask = sp.random_array((6, 4), density=0.5, rng=0, format="csr")
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 6)
    b.layer("h", pgm.Binary(), 4)
    b.couple("v", "h", weight=mask)
    x = np.random.default_rng(0).integers(0, 2, (20, 6))
    fitted = pgm.fit(b.build(), {"v": x}, negative=pgm.ExactGradient(), updates=5)
    assert fitted.model.params["v-h.weight"].nnz == mask.nnz
    b = pgm.GraphBuilder()
    b.layer("v", pgm.NoisyOr(), 5, bias=np.full(5, 0.1))
    b.layer("h", pgm.Binary(), 3)
    b.cause("h", "v")
    model = b.build(rng=0)
    x = np.random.default_rng(0).integers(0, 2, (30, 5)).astype(float)
    fitted = pgm.fit(model, {"v": x}, optimizer=pgm.SGD(0.1), updates=60)
    assert all((fitted.model.params[k] >= 0).all() for k in ("v.bias", "h->v.weight"))
    assert exact_value(fitted.model, {"v": x}) > exact_value(model, {"v": x})


def test_same_seed_same_bits_and_updates_override_epochs():
    x = pgm.datasets.bars_and_stripes().x_train
    a, b = (
        pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=7, epochs=99, batch_size=10, rng=3)
        for _ in range(2)
    )
    assert a.state["update"] == 7
    assert all(np.array_equal(a.model.params[k], b.model.params[k]) for k in a.model.params)


@pytest.fixture
def ctrl_c():
    """Makes callbacks that press it after four updates, of what they have seen."""
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a background job starts with Ctrl-C ignored

    def stopping(seen):
        def stop(model, update):
            seen.append(model)
            if update == 4:
                signal.raise_signal(signal.SIGINT)

        return stop

    yield stopping
    signal.signal(signal.SIGINT, before)


def test_interrupt_leaves_the_last_complete_state(ctrl_c):
    x, seen = pgm.datasets.bars_and_stripes().x_train, []
    fitted = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=50, callbacks=[ctrl_c(seen)])
    assert fitted.interrupted and fitted.state["update"] == 4
    for name, value in seen[-1].params.items():
        assert fitted.model.params[name] is value
    assert pgm.infer(fitted.model, want=("log_z",)).kind == "exact"


def test_interrupt_ends_what_makes_several_fits(ctrl_c):
    x = pgm.datasets.bars_and_stripes(3).x_train
    for number, make in enumerate(
        (
            lambda seen: pgm.pretrain(
                pgm.dbm([9, 4, 3], rng=0), {"v": x}, updates=9, callbacks=[ctrl_c(seen)]
            ),
            lambda seen: pgm.GenerativeClassifier(
                pgm.rbm(9, 2, rng=0), partial(pgm.fit, updates=9, callbacks=[ctrl_c(seen)])
            ).fit(x, x[:, 0]),
        )
    ):
        seen = []
        with pytest.raises(KeyboardInterrupt):
            make(seen)
        assert len(seen) == 5, number


@one_test_over(
    ("data", "match"),
    [
        ({}, "empty"),
        ({"v": np.zeros((0, 4))}, "no rows"),
        ({"v": np.full((3, 4), 2.0)}, "layer 'v', row 0, index 0"),
        ({"v": np.full((3, 4), np.inf)}, "row 0, index 0"),
        ({"w": np.zeros((3, 4))}, "'w' is unknown"),
        ({"v": np.zeros((3, 5))}, "shape"),
        ({"v": np.zeros((3, 4)), "h": np.zeros((2, 2))}, "rows"),
    ],
)
def test_bad_data(data, match):
    with pytest.raises(pgm.PgmError, match=match):
        pgm.fit(pgm.rbm(4, 2, rng=0), data, updates=1)


def test_a_fit_says_what_it_did(caplog):
    x = pgm.datasets.bars_and_stripes().x_train
    with caplog.at_level("INFO", logger="pgmengine"):
        f = pgm.fit(pgm.sbn([16, 12, 4], rng=0), {"v": x}, updates=2, progress=False)
    assert (
        f.positive == pgm.MeanField(updates=5, tolerance=1e-4, precision=np.float32)
        and f.negative is None
    )
    assert (
        "2 updates" in repr(f)
        and "data phase: by MeanField\n" in repr(f)
        and "data phase by MeanField" in caplog.text
    )
    g = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=2, progress=False)
    assert g.negative == pgm.ExactGradient() and "model phase: by ExactGradient" in repr(g)
    # Both layers are too large for sums over the states of one of them.
    large = pgm.fit(pgm.rbm(40, 40, rng=0), {"v": np.eye(40)}, updates=2, progress=False)
    assert large.negative == pgm.PCD() and "model phase: by PCD" in repr(large)


@pytest.mark.parametrize(
    "hidden", [pgm.Binary(), pgm.Spin(), pgm.Categorical(3), pgm.MultiValued(math.inf)], ids=repr
)
@pytest.mark.parametrize("known", [False, True], ids=["alone", "from the data phase"])
def test_completed_data_are_draws_from_the_posterior(hidden, known, rows=20_000, sure=5.5):
    """At most nine moments in standard errors: false alarms are 9 x 4e-8.

    Also cross moments: hidden units are independent given the row. Gibbs sweeps draw anew and
    would not show it.
    """
    from pgmengine.learn.phases.positive import default_positive, posterior_draw

    # Weights are small, so that every value occurs often enough for a normal error.
    model = pgm.rbm(4, 2, hidden=hidden, rng=3)
    target = model.given({"v": np.tile([1.0, 0.0, 1.0, 1.0], (rows, 1))})
    total = Statistics(np.float32)
    q = default_positive(target, np.float32).expect(target, np.ones(rows), total) if known else None
    found = posterior_draw(target, np.random.default_rng(0), q)["h"]
    exact = np.ravel(pgm.infer(model, {"v": [1, 0, 1, 1]}, method=pgm.Exact()).mean["h"])
    width = found.shape[1] // 2
    moments = np.hstack([found, found[:, :width] * found[:, width:]])
    expected = np.hstack([exact, exact[:width] * exact[width:]])
    error = moments.std(axis=0, ddof=1) / np.sqrt(rows)
    assert np.all(np.abs(moments.mean(axis=0) - expected) < sure * error)
    assert found.std(axis=0).min() > 0.05


def test_blas_runs_on_one_thread_from_the_first_callback_on():
    """Threads of BLAS go on spinning for a tenth of a second after a product, and take time from
    the compiled loops.
    """
    # The BLAS of the compiled loops: one that is loaded later would not get the limit of 2.
    from scipy.linalg import cython_blas  # noqa: F401
    from threadpoolctl import threadpool_info, threadpool_limits

    def counts(model=None, update=0):
        seen.append(
            {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
        )

    seen = []
    with threadpool_limits(2, user_api="blas"):
        counts()
        pgm.fit(
            pgm.rbm(4, 3, rng=0), {"v": np.eye(4)}, updates=2, callbacks=[counts], progress=False
        )
        counts()
    assert seen[1:-1] == [{1}] * 3
    assert seen[0] == seen[-1]


def fits_that_overlap():
    from threadpoolctl import threadpool_info

    def counts():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    first_in, second_in, first_done, seen = Event(), Event(), Event(), []

    def first(model, update):
        if update == 1:
            first_in.set()
            second_in.wait(60)

    def second(model, update):
        if update == 1:
            seen.append(counts())
            second_in.set()
            first_done.wait(60)

    def learn(callback):
        pgm.fit(
            pgm.rbm(4, 3, rng=0), {"v": np.eye(4)}, updates=2, callbacks=[callback], progress=False
        )

    learn(lambda model, update: None)  # BLAS has been loaded
    before = counts()
    with ThreadPoolExecutor(2) as pool:  # whose threads live on
        one = pool.submit(learn, first)
        first_in.wait(60)
        two = pool.submit(learn, second)
        one.result()
        first_done.set()
        two.result()
        assert seen == [[1] * len(before)]
        assert counts() == before == [2] * len(before)


def test_fits_that_overlap_leave_blas_as_it_was():
    """The second one begins under the limit of the first, and ends after it.

    In a fresh process, because BLAS takes its number of threads from the environment.
    """
    environment = os.environ | {
        "OPENBLAS_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    code = "from test_fit import fits_that_overlap; fits_that_overlap()"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
