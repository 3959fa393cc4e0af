import gzip
import struct
import sys

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.datasets import MNIST_FILES


def test_digits():
    d = pgm.datasets.digits()
    assert (d.x_train.shape, d.x_test.shape, d.image_shape) == ((1437, 64), (360, 64), (8, 8))
    assert set(np.unique(d.x_train)) == {0.0, 1.0}
    assert np.bincount(np.concatenate((d.y_train, d.y_test))).tolist() == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]
    grey = pgm.datasets.digits(threshold=None)
    assert grey.x_train.max() == 1.0 and np.array_equal(grey.x_train * 16 > 7.5, d.x_train == 1)


def test_asia_is_the_chest_clinic():
    """The probability of each disease, and of a positive X-ray, by sums over published tables."""
    net = pgm.read(pgm.datasets.asia())
    r = pgm.infer(net)
    tub, lung = 0.01 * 0.05 + 0.99 * 0.01, 0.5 * 0.1 + 0.5 * 0.01
    either = 1 - (1 - tub) * (1 - lung)
    for name, expected in (
        ("tub", tub),
        ("lung", lung),
        ("bronc", 0.5 * 0.6 + 0.5 * 0.3),
        ("either", either),
        ("xray", 0.98 * either + 0.05 * (1 - either)),
    ):
        assert r.marginal(name)["yes"] == pytest.approx(expected, rel=1e-12)


def test_bars_and_stripes():
    d = pgm.datasets.bars_and_stripes()
    patterns, counts = np.unique(d.x_train, axis=0, return_counts=True)
    assert d.x_train.shape == (32, 16) and len(patterns) == 30 and sorted(counts)[-2:] == [2, 2]
    best = (counts / 32 * np.log(counts / 32)).sum()
    np.testing.assert_allclose(best, -3.379, atol=5e-4)


def test_artificial_modes():
    d = pgm.datasets.artificial_modes(0.01)
    assert d.x_train.shape == (10_000, 16) and set(d.y_train) == {0, 1, 2, 3}
    modes = [d.x_train[d.y_train == k].mean(axis=0).round() for k in range(4)]
    assert (
        [m.sum() for m in modes] == [0, 16, 8, 8]
        and np.array_equal(modes[2], 1 - modes[3])
        and modes[2][0] == 0
    )
    flips = np.mean([abs(d.x_train[d.y_train == k] - modes[k]).mean() for k in range(4)])
    assert abs(flips - 0.01) < 5 * np.sqrt(0.01 / 160_000)
    assert np.array_equal(d.x_train, pgm.datasets.artificial_modes(0.01).x_train)


def idx(array):
    return (
        b"\x00\x00\x08"
        + bytes([array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.astype(np.uint8).tobytes()
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PGMENGINE_DATA", str(tmp_path))
    return tmp_path


def test_mnist_files(folder):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (5, 28, 28)),
        "y_train": np.arange(5),
        "x_test": rng.integers(0, 256, (3, 28, 28)),
        "y_test": np.arange(3),
    }
    (folder / "mnist").mkdir()
    for i, (key, name) in enumerate(MNIST_FILES.items()):
        if i % 2:
            (folder / name).write_bytes(idx(arrays[key]))
        else:
            (folder / "mnist" / f"{name}.gz").write_bytes(gzip.compress(idx(arrays[key])))
    d = pgm.datasets.mnist(binary=False)
    np.testing.assert_allclose(d.x_train[2] * 255, arrays["x_train"][2].ravel(), rtol=1e-12)
    assert d.y_test.tolist() == [0, 1, 2]
    assert set(np.unique(pgm.datasets.mnist().x_train)) == {0.0, 1.0}
    assert np.array_equal(pgm.datasets.mnist(rng=1).x_test, pgm.datasets.mnist(rng=1).x_test)
    path = folder / "mnist" / f"{MNIST_FILES['x_train']}.gz"
    for content in (gzip.compress(idx(arrays["x_train"])[:-1]), b"nonsense", gzip.compress(b"")):
        path.write_bytes(content)
        with pytest.raises(pgm.PgmError, match=r"train-images-idx3-ubyte\.gz"):
            pgm.datasets.mnist()
    for other in (arrays["x_train"][:4], arrays["x_train"][:, :20]):
        path.write_bytes(gzip.compress(idx(other)))
        with pytest.raises(
            pgm.PgmError, match=r"mnist: the train files have images \(.*\) and labels \(5,\)"
        ):
            pgm.datasets.mnist()


def test_usps_file(folder):
    from scipy.io import savemat

    data = np.zeros((256, 1100, 10), dtype=np.uint8)
    data[1, :, :] = 255  # second pixel down the first column
    data[:, 0, 9] = 200  # the first image of the last class in the file, which is digit 0
    savemat(folder / "usps_all.mat", {"data": data})
    d = pgm.datasets.usps()
    assert d.x_train.shape == (7000, 256) and d.x_test.shape == (4000, 256)
    assert d.x_train[5].reshape(16, 16)[1, 0] == 1 and d.x_train[5].sum() == 1
    assert d.x_train[0].sum() == 256 and d.y_train[0] == 0
    (folder / "usps_all.mat").write_bytes(b"broken")
    with pytest.raises(pgm.PgmError, match="usps_all"):
        pgm.datasets.usps()


def test_absent_files_say_what_to_put_where(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        pgm.PgmError, match="train-images-idx3-ubyte.*PGMENGINE_DATA.*install scikit-learn"
    ):
        pgm.datasets.mnist()
    with pytest.raises(pgm.PgmError, match=r"usps_all\.mat"):
        pgm.datasets.usps()


def test_absent_files_are_fetched(folder, monkeypatch):
    import types

    x = np.zeros((70_000, 784))
    fake = types.SimpleNamespace(fetch_openml=lambda name, **kw: (x, np.array(["7"] * len(x))))
    monkeypatch.setitem(sys.modules, "sklearn", types.SimpleNamespace(datasets=fake))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", fake)
    d = pgm.datasets.mnist()
    assert (len(d.x_train), len(d.x_test), d.y_test[0]) == (60_000, 10_000, 7)


def test_bad_arguments():
    for make in (
        lambda: pgm.datasets.artificial_modes(side=3),
        lambda: pgm.datasets.artificial_modes(side=-2),
        lambda: pgm.datasets.bars_and_stripes(-1),
        lambda: pgm.datasets.bars_and_stripes(2.0),
    ):
        with pytest.raises(pgm.PgmError, match="side"):
            make()
    with pytest.raises(pgm.PgmError, match="samples"):
        pgm.datasets.artificial_modes(samples=-1)


def test_thresholds_and_rates_that_are_no_numbers():
    for make in (pgm.datasets.digits, pgm.datasets.usps, pgm.datasets.artificial_modes):
        with pytest.raises(pgm.PgmError, match="must be a number, not 'a'"):
            make("a")
