"""The compiled loops of learning against plain numpy."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
from loops import one_test_over

import pgmengine as pgm
from pgmengine import _kernels
from pgmengine.engine.packed import Packed, packed, panels
from pgmengine.learn.phases.statistics import Gradient, Statistics
from pgmengine.model.couplings import columns_times, outer, sum_of_rows, weighted_sum

SIZES = [
    (1, 1, 1),
    (3, 15, 16),
    (2, 17, 31),
    (65, 63, 65),
    (100, 20, 500),
    (97, 130, 40),
    (200, 64, 129),
    (130, 300, 150),
    (300, 40, 290),
]


def sparse_values(rng, shape, share, dtype=np.float32):
    return (rng.random(shape) * (rng.random(shape) < share)).astype(dtype)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("rows", "a", "b"), SIZES)
def test_outer_products_and_weighted_sums(rows, a, b, share, rtol=2e-5):
    rng = np.random.default_rng(rows + a + b)
    x, y = sparse_values(rng, (rows, a), share), rng.normal(size=(rows, b)).astype(np.float32)
    scale = np.abs(x).sum() + 1
    for found in (
        outer(np.zeros((a, b)), x, y),
        sum_of_rows(x, y),
        columns_times(x, y),
    ):  # as chosen, and either way
        np.testing.assert_allclose(found, x.T.astype(float) @ y, atol=rtol * scale)
    w = rng.normal(size=rows).astype(np.float32)
    np.testing.assert_allclose(
        weighted_sum(w, y), w.astype(float) @ y, atol=rtol * (np.abs(w).sum() + 1) * 4
    )
    np.testing.assert_allclose(
        outer(np.zeros((a, b)), x.astype(float), y.astype(float)), x.T @ y.astype(float), atol=1e-4
    )


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("rows", "a", "b"), SIZES)
def test_products_with_both_directions_of_a_weight(rows, a, b, share, rtol=2e-5):
    model = pgm.rbm(a, b, rng=rows)
    c, weight, rng = (
        model.structure.couplings[0],
        model.params["v-h.weight"],
        np.random.default_rng(rows),
    )
    up, down = sparse_values(rng, (rows, a), share), sparse_values(rng, (rows, b), share)
    for name, x, turned in (("h", up, weight), ("v", down, weight.T)):
        before = rng.normal(size=(rows, 7 + turned.shape[1])).astype(np.float32)
        field = before.copy()
        Packed(model).add_product(c, name, x, field[:, 3:-4])
        np.testing.assert_allclose(
            field[:, 3:-4], before[:, 3:-4] + x @ turned, atol=rtol * (len(turned) + 4)
        )
        np.testing.assert_array_equal(
            np.delete(field, np.s_[3:-4], 1), np.delete(before, np.s_[3:-4], 1)
        )
        summed = before.copy()
        _kernels.add_product(x, turned.astype(np.float32), summed[:, 3:-4], 1)
        np.testing.assert_allclose(summed, field, atol=rtol * (len(turned) + 4))
    for w in (weight.astype(np.float32), weight.astype(np.float32).T):
        found = panels(w, -(-w.shape[1] // 16) * 16)
        flat = found.transpose(1, 0, 2).reshape(w.shape[0], -1)
        np.testing.assert_array_equal(flat[:, : w.shape[1]], w)
        assert not flat[:, w.shape[1] :].any()


def test_products_with_any_view_of_a_weight_and_any_kind_of_zero(rtol=2e-5):
    """Views that lie in order neither by rows nor by columns; -0 counts as 0, NaN does not; any
    number of threads.
    """
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(400, 300)).astype(np.float32)
    for weight in (whole[::2, 7:260:3], whole[:, :64], whole[3:, 1:].T, whole[:1], whole[:, :1].T):
        x = sparse_values(rng, (150, weight.shape[0]), 0.3) * rng.choice(
            [-1.0, 1.0], (150, weight.shape[0])
        )
        x, found = x.astype(np.float32), []
        for threads in (1, 2, 5):
            out = np.ones((150, weight.shape[1]), dtype=np.float32)
            _kernels.add_product(x, weight, out, threads)
            found.append(out)
        np.testing.assert_allclose(
            found[0], 1 + x @ weight.astype(float), atol=rtol * (len(weight) + 1)
        )
        assert np.array_equal(found[0], found[1])
        assert np.array_equal(found[0], found[2])
    x[3, 0] = np.nan
    _kernels.add_product(x, weight, out, 1)
    assert np.isnan(out[3]).all()
    assert not np.isnan(np.delete(out, 3, axis=0)).any()


@pytest.mark.parametrize("share", [0.02, 0.4, 1.0])
@one_test_over(("rows", "a", "b"), [*SIZES, (150, 400, 700)])
def test_ones_are_only_added_row_by_row(rows, a, b, share, rtol=2e-5):
    """Rows of zeros and ones among others: each has the bits that it has alone, for any number of
    threads.
    """
    rng = np.random.default_rng(rows + a)
    x = (rng.random((rows, a)) < share).astype(np.float32)
    x[1::3] *= rng.choice(
        np.array([0.5, -1.0, 2.0, -0.0, 1.0], dtype=np.float32), (len(x[1::3]), a)
    )
    whole = rng.normal(size=(a, b)).astype(np.float32)
    for weight in (whole, np.asfortranarray(whole)):
        found = []
        for threads in (1, 2, 3, 7):
            out = np.zeros((rows, b), dtype=np.float32)
            _kernels.add_product(x, weight, out, threads)
            found.append(out)
        np.testing.assert_allclose(found[0], x @ weight.astype(float), atol=rtol * (a + 1))
        assert all(np.array_equal(out, found[0]) for out in found)
        alone = np.zeros((1, b), dtype=np.float32)
        _kernels.add_product(x[-1:], weight, alone, 1)
        assert np.array_equal(alone[0], found[0][-1])
    ones, y = (x != 0).astype(np.float32), rng.normal(size=(rows, b)).astype(np.float32)
    for values in (ones, x):
        sums = [np.full((a, b), np.nan, dtype=np.float32) for _ in range(3)]
        for out, threads in zip(sums, (1, 2, 7), strict=True):
            _kernels.outer(values, y, out, threads)
        np.testing.assert_allclose(sums[0], values.T.astype(float) @ y, atol=rtol * (rows + 1))
        assert np.array_equal(sums[0], sums[1])
        assert np.array_equal(sums[0], sums[2])


@pytest.mark.parametrize("turned", [False, True])
def test_small_terms_are_not_lost_beside_a_large_field(turned, rtol=1e-7):
    """The sum is rounded once at the size of the field, not with every term."""
    x = sparse_values(np.random.default_rng(0), (40, 2000), 0.3)
    weight = np.full((100, 2000) if turned else (2000, 100), 1e-3, dtype=np.float32)
    field = np.full((40, 100), 1000.0, dtype=np.float32)
    _kernels.add_product(x, weight.T if turned else weight, field, 1)
    found = 1000 + x.astype(float).sum(axis=1) / 1000
    np.testing.assert_allclose(field, np.repeat(found[:, None], 100, axis=1), rtol=rtol)


def test_panels_of_double_weights_are_those_of_single_ones(monkeypatch):
    """Converted a few panels at a time, in both directions, whole and in parts."""
    w = np.random.default_rng(0).normal(size=(70, 333))
    for weight in (w, w.T, w[:, 5:200]):
        stride = -(-weight.shape[1] // 16) * 16 + 32
        whole = panels(weight.astype(np.float32), stride)
        for slab in (1, 5000, 2**16):
            monkeypatch.setattr("pgmengine.engine.packed.CONVERTED_AT_ONCE", slab)
            assert np.array_equal(panels(weight, stride), whole)


def test_packed_parameters_live_as_long_as_their_model():
    model = pgm.rbm(3, 2, rng=0)
    kept = weakref.ref(packed(model))
    assert packed(model) is kept()
    del model
    gc.collect()
    assert kept() is None


def twin(optimizer, p, g, state, t):
    """One step in numpy: (new parameter, new moments)."""
    decay = optimizer.weight_decay * p + optimizer.l1 * np.sign(p)
    g = g - decay
    if isinstance(optimizer, pgm.SGD):
        m = optimizer.momentum * state[0] + g
        return p + optimizer.rate * m, (m, None)
    m = optimizer.beta1 * state[0] + (1 - optimizer.beta1) * g
    m_hat = m / (1 - optimizer.beta1 ** (t + 1))
    if isinstance(optimizer, pgm.Adam):
        v = optimizer.beta2 * state[1] + (1 - optimizer.beta2) * g**2
        return p + optimizer.rate * m_hat / (
            np.sqrt(v / (1 - optimizer.beta2 ** (t + 1))) + optimizer.epsilon
        ), (m, v)
    v = np.maximum(optimizer.beta2 * state[1], np.abs(g))
    return p + optimizer.rate * m_hat / (v + optimizer.epsilon), (m, v)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "optimizer",
    [
        pgm.SGD(0.3),
        pgm.SGD(0.3, momentum=0.9, weight_decay=0.1, l1=0.02),
        pgm.Adam(0.05, weight_decay=0.1, l1=0.02),
        pgm.AdaMax(0.05, weight_decay=0.1, l1=0.02),
    ],
    ids=repr,
)
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (8, 16), (301, 400)])
def test_optimizers_against_numpy(optimizer, dtype, size, rtol=1e-12):
    rng, model = np.random.default_rng(0), pgm.rbm(*size, rng=0)
    params = {k: v + 0.01 for k, v in model.params.items()}
    params["v-h.weight"] = params["v-h.weight"] * (rng.random(size) < 0.8)  # the sign of 0 is 0
    state, plain = (
        optimizer.start(params),
        {k: (np.zeros(v.shape), np.zeros(v.shape)) for k, v in params.items()},
    )
    own = {k: np.array(v) for k, v in params.items()}
    for t in range(4):
        g = {k: rng.normal(size=v.shape).astype(dtype) for k, v in params.items()}
        gradient = Gradient(g, Statistics(dtype))
        params = optimizer.step(model.structure, params, gradient, state, t)
        for k in own:
            bare = (
                optimizer
                if k.endswith("weight")
                else type(optimizer)(**{**vars(optimizer), "weight_decay": 0, "l1": 0})
            )
            own[k], plain[k] = twin(bare, own[k], g[k].astype(float), plain[k], t)
            np.testing.assert_allclose(params[k], own[k], rtol=rtol, atol=1e-14)
            np.testing.assert_array_equal(params.singles[k][1], params[k].astype(np.float32))


def given(p, g, n):
    """The arguments of one step from parameters p with gradient g."""
    return {
        "rate": 0.1,
        "keep": (0.9, 0.9),
        "unbias": (1.0, 1.0),
        "epsilon": 1e-8,
        "decay": (0.0, 0.0),
        "p": p,
        "g": g,
        "p2": np.empty(n),
        "copy": np.empty(n, dtype=np.float32),
    }


def test_a_step_out_of_range_is_seen_wherever_it_is():
    for n in (1, 7, 8, 9, 100):
        for bad in {0, n // 2, n - 1}:
            p, g = np.zeros(n), np.zeros(n)
            for size, fine in (
                (1.0, True),
                (-1.0, True),
                (1.0001, False),
                (-1.0001, False),
                (np.inf, False),
            ):
                p[bad] = size * _kernels.LARGEST
                assert (
                    _kernels.ascend(_kernels.SGD, **given(p, g, n), m=None, v=None, parts=1) == fine
                )
            p[bad] = 0.0
            g[bad] = np.nan
            for kind in (_kernels.SGD, _kernels.ADAM, _kernels.ADAMAX):
                for gradient, fine, parts in ((g, False, 1), (np.zeros(n), True, 2)):
                    m, v = np.zeros(n), np.zeros(n)
                    step = given(p, gradient, n)
                    assert _kernels.ascend(kind, **step, m=m, v=v, parts=parts) == fine


def test_wrong_shapes_are_refused_before_memory_is_touched():
    f = np.zeros((4, 3), dtype=np.float32)
    with pytest.raises(ValueError, match="fit"):
        _kernels.outer(f, np.zeros((5, 2), dtype=np.float32), np.zeros((3, 2), dtype=np.float32), 1)
    with pytest.raises(ValueError, match="fit"):
        _kernels.add_product(
            f, np.zeros((4, 16), dtype=np.float32), np.zeros((4, 16), dtype=np.float32), 1
        )
    with pytest.raises(ValueError, match="fit"):
        _kernels.add_product(
            f, np.zeros((3, 16), dtype=np.float32), np.zeros((4, 20), dtype=np.float32), 1
        )
    with pytest.raises(ValueError, match="fit"):
        _kernels.add_product(
            f, np.zeros((3, 16), dtype=np.float32), np.zeros((4, 32), dtype=np.float32)[:, ::2], 1
        )
    with pytest.raises(ValueError, match="fit"):
        _kernels.add_times(
            f, np.zeros((3, 16), dtype=np.float32), False, np.zeros((16, 4), dtype=np.float32).T, 1
        )
    weight, field = np.zeros((3, 16), dtype=np.float32), np.zeros((4, 16), dtype=np.float32)
    records = np.zeros(4, [("a", "f4", (16,)), ("b", "i1")])["a"]
    for odd in (field[::-1], np.lib.stride_tricks.as_strided(field, (4, 16), (0, 4)), records):
        with pytest.raises(ValueError, match="fit"):
            _kernels.add_product(f, weight, odd, 1)
        with pytest.raises(ValueError, match="fit"):
            _kernels.add_times(f, weight, False, odd, 1)
    with pytest.raises(ValueError, match="fit"):
        _kernels.add_product(np.zeros((4, 4), dtype=np.float32), records, field, 1)
    with pytest.raises(ValueError, match="fit"):
        _kernels.pack(f, np.zeros((1, 3, 16), dtype=np.float32), 1, 1)


def test_sparse_weights_take_the_same_way():
    weight = sp.random_array((30, 20), density=0.2, rng=0, format="csr")
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 30)
    b.layer("h", pgm.Binary(), 20)
    b.couple("v", "h", weight=weight)
    model, x = b.build(), np.random.default_rng(0).integers(0, 2, (9, 30)).astype(np.float32)
    c = model.structure.couplings[0]
    field = np.ones((len(x), weight.shape[1]), dtype=np.float32)
    packed(model).add_product(c, "h", x, field)
    np.testing.assert_allclose(field, 1 + x @ weight, atol=1e-5)
    h = np.random.default_rng(1).random((9, 20)).astype(np.float32)
    np.testing.assert_allclose(
        outer(weight, x, h).toarray(), (x.T @ h) * (weight.toarray() != 0), atol=1e-5
    )


TEAM = """
import os, sys, threading, warnings
import subprocess
import sys

import numpy as np
from pgmengine.model.couplings import outer
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
x, y = rng.random((90, 300)).astype("f4"), rng.random((90, 200)).astype("f4")
w = np.zeros((300, 200))
x[rng.random(x.shape) < 0.8] = 0
truth = outer(w, x, y)

def right(times):
    for _ in range(times):
        if not np.array_equal(outer(w, x, y), truth):
            os._exit(1)

right(50)
callers = [threading.Thread(target=right, args=(300,)) for _ in range(4)]
[c.start() for c in callers]
children = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        right(50)
        os._exit(0)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
[c.join() for c in callers]
right(50)
print(codes)
"""


@pytest.mark.parametrize("threads", [1, 2, pytest.param(5, marks=pytest.mark.long)])
def test_the_team_of_threads_with_many_callers_and_forks(threads):
    """The same bits for any number of threads, callers in turn, and in children forked in the
    middle of a job.
    """
    script = TEAM.replace(
        "import os,", f"import os; os.environ['PGMENGINE_THREADS'] = '{threads}'\nimport os,", 1
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100
    )
    assert done.stdout.strip() == "[0, 0, 0, 0, 0]", done.stderr
