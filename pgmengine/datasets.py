"""Data sets: two that ship with the package, two generated ones, two in standard files."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pgmengine.base.checks import real, seeded, whole
from pgmengine.base.errors import PgmError
from pgmengine.base.extras import install
from pgmengine.base.files import cache_folder
from pgmengine.base.types import Array, RngLike

MNIST_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images and labels for training and test.

    Attributes
    ----------
    name : name of the data set.
    x_train, x_test : (rows, pixels), values 0 and 1, or grey values in [0, 1].
    y_train, y_test : (rows,), integer labels.
    image_shape : rows and columns of an image.
    """

    name: str
    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    image_shape: tuple[int, int]

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, {len(self.x_train)} train, {len(self.x_test)} test, "
            f"images {self.image_shape})"
        )


def asia() -> Path:
    """Return the path of asia.bif, a Bayesian network of eight variables.

    Use it to try `read`, and as an example of a .bif file. It is the chest clinic: smoking and a
    visit to Asia change the probabilities of three diseases, which an X-ray and shortness of breath
    indicate.

    References
    ----------
    Lauritzen and Spiegelhalter (1988), Local computations with probabilities on graphical
    structures and their application to expert systems.

    >>> import pgmengine as pgm
    >>> net = pgm.read(pgm.datasets.asia())
    >>> round(pgm.infer(net, {"smoke": "yes"}).marginal("lung")["yes"], 6)
    0.1
    """
    return Path(__file__).parent / "data" / "asia.bif"


def digits(threshold: float | None = 7.5) -> Dataset:
    """Return the 1,797 digits of 8x8 pixels that scikit-learn ships.

    Use it for small models of real images. 1,437 digits are for training and 360 for test, in a
    fixed random split.

    Parameters
    ----------
    threshold : a pixel, from 0 to 16, becomes 1 if it is above the threshold; None gives grey
        values in [0, 1].

    >>> import pgmengine as pgm
    >>> pgm.datasets.digits()
    Dataset('digits', 1437 train, 360 test, images (8, 8))
    """
    threshold = _threshold("digits", threshold)
    with np.load(Path(__file__).parent / "data" / "digits.npz", allow_pickle=False) as packed:
        pixels, labels = packed["pixels"].astype(np.float64), packed["labels"].astype(np.int64)
    x = pixels / 16 if threshold is None else (pixels > threshold).astype(np.float64)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1437], order[1437:]
    return Dataset("digits", x[train], labels[train], x[test], labels[test], (8, 8))


def bars_and_stripes(side: int = 4) -> Dataset:
    """Return all images of full rows (label 0) and all images of full columns (label 1).

    Use it where the distribution of the data is known: for side 4, the best possible mean
    log-likelihood is -(28/32) ln 32 - (4/32) ln 16 = -3.379 nats. The two blank images are in both
    classes. Training and test data are equal.

    Parameters
    ----------
    side : rows and columns of an image; there are 2^side images of each class.

    >>> import pgmengine as pgm
    >>> pgm.datasets.bars_and_stripes().x_train.shape
    (32, 16)
    """
    whole("bars_and_stripes: side", side)
    bits = (np.arange(2**side)[:, None] >> np.arange(side)) & 1
    rows = np.repeat(bits[:, :, None], side, axis=2).reshape(-1, side * side)
    columns = np.repeat(bits[:, None, :], side, axis=1).reshape(-1, side * side)
    x = np.concatenate((rows, columns)).astype(np.float64)
    y = np.repeat([0, 1], 2**side)
    return Dataset("bars_and_stripes", x, y, x.copy(), y.copy(), (side, side))


def artificial_modes(
    p_mut: float = 0.1, samples: int = 10_000, side: int = 4, rng: RngLike = 0
) -> Dataset:
    """Return noisy copies of four equally likely images.

    Use it to see whether chains move between modes. The smaller p_mut is, the more distant the
    modes are. The images are: all 0; all 1; upper half 0 and lower half 1; the complement of that.
    The label is the number of the image.

    Parameters
    ----------
    p_mut : probability with which each pixel is flipped.
    samples : images for training, and as many for test.
    side : rows and columns of an image, an even number.
    rng : a seed or a generator.

    References
    ----------
    Brügge, Fischer and Igel (2013), "The flip-the-state transition operator for restricted
    Boltzmann machines".

    >>> import pgmengine as pgm
    >>> pgm.datasets.artificial_modes(0.01).x_train.shape
    (10000, 16)
    """
    whole("artificial_modes: side", side, least=2)
    whole("artificial_modes: samples", samples)
    if side % 2 or not 0 <= _real("artificial_modes: p_mut", p_mut) <= 1:
        raise PgmError(
            f"artificial_modes: side must be even and p_mut in [0, 1], not {side} and {p_mut}"
        )
    half = np.repeat([0.0, 1.0], side * side // 2)
    modes = np.stack((np.zeros(side * side), np.ones(side * side), half, 1 - half))
    generator = seeded(rng)

    def draw() -> tuple[Array, Array]:
        y = generator.integers(4, size=samples)
        flip = generator.random((samples, side * side)) < p_mut
        return np.abs(modes[y] - flip), y

    (x_train, y_train), (x_test, y_test) = draw(), draw()
    return Dataset("artificial_modes", x_train, y_train, x_test, y_test, (side, side))


def mnist(binary: bool = True, rng: RngLike = None) -> Dataset:
    """Return MNIST: 60,000 images of 28x28 for training, and 10,000 for test.

    The standard idx files, plain or .gz, are read from the directory that the environment variable
    PGMENGINE_DATA names (by default the cache of the user), or from a folder mnist in it. If they
    are absent, scikit-learn fetches the images.

    Parameters
    ----------
    binary : whether pixels are 0 and 1; otherwise they are grey values in [0, 1].
    rng : if given, a seed or a generator: a pixel is 1 with a probability equal to its grey value.
        Otherwise it is 1 if its grey value is above 1/2.

    Raises
    ------
    PgmError
        If the files are absent and cannot be fetched, or are damaged.
    """
    files = {key: _find(name, "mnist") for key, name in MNIST_FILES.items()}
    if all(files.values()):
        arrays = {key: _read_idx(path) for key, path in files.items() if path}
    else:
        arrays = _fetched(
            "mnist_784", 60_000, "mnist", [f"{name}[.gz]" for name in MNIST_FILES.values()]
        )
    for part in ("train", "test"):
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if images[0].size != 784 or len(images) != len(labels) or labels.ndim != 1:
            raise PgmError(
                f"mnist: the {part} files have images {images.shape} and labels {labels.shape}, "
                "expected as many labels as images of 28 x 28"
            )
    x = {key: arrays[key].reshape(len(arrays[key]), -1) / 255.0 for key in ("x_train", "x_test")}
    if binary:
        generator = None if rng is None else seeded(rng)
        x = {
            k: (v > (0.5 if generator is None else generator.random(v.shape))).astype(np.float64)
            for k, v in x.items()
        }
    return Dataset(
        "mnist",
        x["x_train"],
        arrays["y_train"].astype(np.int64),
        x["x_test"],
        arrays["y_test"].astype(np.int64),
        (28, 28),
    )


def usps(threshold: float | None = 0.5) -> Dataset:
    """Return USPS digits of 16x16 pixels.

    The file usps_all.mat has 1,100 digits of each class, of which the first 700 are for training
    and 400 for test. It is searched for in the same directory as the files of `mnist`, or in a
    folder usps in it. If it is absent, scikit-learn fetches the 9,298 images of OpenML, of which
    7,291 are for training.

    Parameters
    ----------
    threshold : a pixel is 1 if its grey value in [0, 1] is above the threshold; None gives grey
        values.

    Raises
    ------
    PgmError
        If the file is absent and the images cannot be fetched, or if it is damaged.
    """
    threshold = _threshold("usps", threshold)
    path = _find("usps_all.mat", "usps")
    if path is None:
        arrays = _fetched("USPS", 7_291, "usps", ["usps_all.mat"])
        x_train, x_test = ((arrays[k] + 1) / 2 for k in ("x_train", "x_test"))
        y_train, y_test = (arrays[k].astype(np.int64) - 1 for k in ("y_train", "y_test"))
    else:
        # The axes are 256 pixels, column by column; 1,100 images; classes 1 to 9, then 0.
        data = _read_mat(path)
        images = np.roll(data, 1, axis=2).reshape(16, 16, 1100, 10, order="F").transpose(3, 2, 0, 1)
        flat = images.reshape(10, 1100, 256) / 255.0
        x_train, x_test = flat[:, :700].reshape(-1, 256), flat[:, 700:].reshape(-1, 256)
        y_train, y_test = np.repeat(np.arange(10), 700), np.repeat(np.arange(10), 400)
    if threshold is not None:
        x_train, x_test = ((x > threshold).astype(np.float64) for x in (x_train, x_test))
    return Dataset("usps", x_train, y_train, x_test, y_test, (16, 16))


def _real(what: str, value: object) -> float:
    """Return the value as a float; raise PgmError unless it is a number."""
    if math.isnan(number := real(value)):
        raise PgmError(f"{what} must be a number, not {value!r}")
    return number


def _threshold(name: str, threshold: float | None) -> float | None:
    """Return the threshold of a data set; raise PgmError unless it is a number or None."""
    return None if threshold is None else _real(f"{name}: threshold", threshold)


def data_directory() -> Path:
    """Return the directory in PGMENGINE_DATA, or by default one in the cache of the user."""
    given = os.environ.get("PGMENGINE_DATA")
    return Path(given) if given else cache_folder()


def _find(name: str, folder: str) -> Path | None:
    """Return the path of a data file, plain or .gz, or None."""
    root = data_directory()
    candidates = [place / f"{name}{end}" for place in (root, root / folder) for end in ("", ".gz")]
    return next((path for path in candidates if path.is_file()), None)


def _read_idx(path: Path) -> Array:
    """Return the array of an idx file of bytes.

    The file has two zero bytes, the type 8 (unsigned byte), the number of axes, the length of each
    axis in four bytes, and the data.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise PgmError(f"{path}: not a readable idx file: {error}") from None
    axes = raw[3] if len(raw) > 3 else 0
    if raw[:3] != b"\x00\x00\x08" or not axes or len(raw) < 4 + 4 * axes:
        raise PgmError(f"{path}: not an idx file of bytes")
    shape = np.frombuffer(raw, ">u4", axes, 4).astype(int)
    expected = 4 + 4 * axes + shape.prod()
    if len(raw) != expected:
        raise PgmError(f"{path}: truncated: it has {len(raw)} bytes, expected {expected}")
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _read_mat(path: Path) -> Array:
    """Return the array of usps_all.mat, (256, 1100, 10)."""
    from scipy.io import loadmat

    try:
        data: Array = loadmat(path)["data"]
    except Exception as error:
        # scipy raises many kinds of errors for a damaged file.
        raise PgmError(f"{path}: not a readable usps_all.mat: {error}") from None
    if data.shape != (256, 1100, 10):
        raise PgmError(f"{path}: data has shape {data.shape}, expected (256, 1100, 10)")
    return data


def _fetched(name: str, train: int, folder: str, files: list[str]) -> dict[str, Array]:
    """Return a data set of OpenML, or raise a PgmError that says where to put its files."""
    where = data_directory()
    put = (
        f"put {', '.join(files)} into {where} or {where / folder} "
        "(PGMENGINE_DATA names another directory)"
    )
    try:
        from sklearn.datasets import fetch_openml
    except ImportError:
        raise PgmError(
            f"{folder} is not here: {put}, or install scikit-learn to fetch it: "
            f"{install('sklearn')}"
        ) from None
    try:
        x, y = fetch_openml(name, return_X_y=True, as_frame=False, data_home=str(where))
    except Exception as error:
        # Downloads fail for many reasons, but the remedy is always the same.
        raise PgmError(f"{folder} is not here and could not be fetched ({error}): {put}") from None
    y = np.asarray(y, dtype=np.float64)
    return {"x_train": x[:train], "x_test": x[train:], "y_train": y[:train], "y_test": y[train:]}
