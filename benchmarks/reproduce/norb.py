"""The second experiment of Salakhutdinov (2010) as a pipeline: grey images, a Gaussian-binary RBM,
and a deep Boltzmann machine on top.

    python benchmarks/reproduce/norb.py OUT [--file FILE] [--scale full] [--data DIRECTORY]
    [--hidden 4000] [--deep 4000] [--updates N]

The paper learns NORB with a Gaussian RBM of 4,000 hidden units, whose features a DBM of two layers
of 4,000 units learns by CAST. FILE is a .mat or .npz file of images: the first array in it, or the
one called x, images, data or train_data, with the images along its longest axis. NORB is not at
hand: without FILE the grey levels of USPS (16x16) are used, read from DIRECTORY. Layers are then
smaller: 400 and 200 units with --scale full, and a few with --scale small, which tries the command
in seconds.

Pixels are shifted and scaled to mean 0 and standard deviation 1. Writes norb.txt and norb.png into
OUT: images, their reconstructions from the features, and samples of the whole model. What the parts
have learned is kept in OUT/parts, from which it goes on when it is run again.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import typer
from sweep import kept

import pgmengine as pgm
from pgmengine.engine.chains import make_chains, start

# Features, units of each deep layer, and updates of each part.
SCALES = {"small": (20, 10, 40), "full": (400, 200, 3_000)}
NAMES = ("x", "images", "data", "train_data")


def main(
    out: Path,
    file: Path | None = None,
    scale: str = "small",
    hidden: int = 0,
    deep: int = 0,
    updates: int = 0,
    data: Path | None = None,
) -> None:
    """Learn both parts, and write the table and the picture."""
    of_scale = SCALES[scale]
    hidden, deep, updates = hidden or of_scale[0], deep or of_scale[1], updates or of_scale[2]
    if data is not None:
        os.environ["PGMENGINE_DATA"] = str(data)
    out.mkdir(parents=True, exist_ok=True)
    begin, lines = (
        time.time(),
        [f"# scale {scale}: {hidden} features, deep layers of {deep}, {updates} updates each"],
    )
    images = read_images(file) if file is not None else pgm.datasets.usps(threshold=None).x_train
    mean, sd = images.mean(axis=0), images.std(axis=0) + 1e-2
    x = (images - mean) / sd

    def report(line: str) -> None:
        lines.append(line)
        print(f"[{time.time() - begin:6.0f} s] {line}", file=sys.stderr, flush=True)
        (out / "norb.txt").write_text("\n".join(lines) + "\n")

    parts = out / "parts"
    name = f"features-{hidden}-{updates}"
    found = kept(parts, name, gaussian_rbm, x, hidden, updates)
    features = pgm.rbm(x.shape[1], hidden, visible=pgm.Gaussian()).with_params(learned(found))
    report(
        "Gaussian RBM, mean square error of reconstruction (images have variance 1): "
        + ", ".join(f"{v:.3f} at {u}" for u, v in zip(found["at"], found["error"], strict=True))
    )
    rows = sampled(features, x)
    report(f"features are on with probability {rows.mean():.3f}")
    found = kept(parts, f"deep-{hidden}-{deep}-{updates}", deep_model, rows, deep, updates)
    top = pgm.dbm([hidden, deep, deep]).with_params(learned(found))
    report(
        "deep model, variational bound of the features, nats: "
        + ", ".join(f"{v:.1f} at {u}" for u, v in zip(found["at"], found["bound"], strict=True))
    )
    some = np.linspace(0, len(x) - 1, 12).astype(int)  # files may be sorted by class
    shown = [x[some], means(features, rows[some]), means(features, samples(top, 12))]
    report(
        f"sample pixels: mean {shown[2].mean():.3f}, standard deviation {shown[2].std():.3f} "
        "(images: "
        f"{x.mean():.3f}, {x.std():.3f})"
    )
    figure([part * sd + mean for part in shown], out / "norb.png")


def read_images(path: Path) -> np.ndarray:
    """Images (rows, pixels) of a .mat or .npz file, in [0, 1] if they were bytes."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    else:
        from scipy.io import loadmat

        found = {name: value for name, value in loadmat(path).items() if not name.startswith("__")}
    name = next((n for n in NAMES if n in found), next(iter(found)))
    array = np.asarray(found[name])
    array = np.moveaxis(array, int(np.argmax(array.shape)), 0)
    flat = array.reshape(len(array), -1).astype(np.float64)
    return flat / 255.0 if array.dtype == np.uint8 else flat


def learned(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parameters among the results of a part."""
    return {k: v for k, v in found.items() if "." in k}


def gaussian_rbm(x: np.ndarray, hidden: int, updates: int) -> dict[str, np.ndarray]:
    """Parameters of a Gaussian-binary RBM by CD-1 with centred gradients, and errors on the way."""
    rng, size = np.random.default_rng(0), (x.shape[1], hidden)
    model = pgm.rbm(*size, visible=pgm.Gaussian()).with_params(
        {"v-h.weight": rng.normal(0, 0.01, size)}
    )
    error = pgm.ReconstructionError({"v": x[:1000]}, every=max(updates // 4, 1))
    f = pgm.fit(
        model,
        {"v": x},
        negative=pgm.CD(k=1),
        optimizer=pgm.Centered(pgm.SGD(0.005, momentum=0.9)),
        updates=updates,
        callbacks=[error],
        progress=False,
    )
    history = f.history["reconstruction_error"]
    return dict(f.model.params) | {"at": history["update"], "error": history["value"]}


def sampled(model: pgm.Model, x: np.ndarray) -> np.ndarray:
    """Features of all rows, drawn from their posterior."""
    return np.concatenate(
        [
            pgm.Exact(draws=1).run(model.given({"v": part}), ("samples",), rng=i).samples["h"][0]
            for i, part in enumerate(np.array_split(x, max(len(x) // 500, 1)))
        ]
    )


def deep_model(rows: np.ndarray, deep: int, updates: int) -> dict[str, np.ndarray]:
    """Parameters of a DBM on the features by CAST, and bounds on the way."""
    model = pgm.base_rate_start(pgm.dbm([rows.shape[1], deep, deep], rng=0), {"v": rows})
    model = model.with_params(
        {k: 0.1 * v for k, v in model.params.items() if k.endswith(".weight")}
    )
    ais = pgm.AIS(chains=50, betas=300, reverse=False)
    bound = pgm.VariationalBound({"v": rows[:500]}, every=max(updates // 4, 1), log_z=ais)
    optimizer = pgm.Centered(pgm.SGD(pgm.harmonic(10, 2000), momentum=0.9))
    f = pgm.fit(
        model,
        {"v": rows},
        negative=pgm.CAST(chains=100),
        optimizer=optimizer,
        updates=updates,
        callbacks=[bound],
        progress=False,
    )
    history = f.history["bound"]
    return dict(f.model.params) | {"at": history["update"], "bound": history["value"]}


def samples(model: pgm.Model, count: int, sweeps: int = 2_000) -> np.ndarray:
    """Visible states of chains after many sweeps."""
    rng, target = np.random.default_rng(0), model.given().take(np.zeros(count, dtype=int))
    chains = make_chains(target, pgm.Gibbs(), start(target, rng), rng)
    chains.sweep(sweeps)
    return chains.values()["v"]


def means(model: pgm.Model, features: np.ndarray) -> np.ndarray:
    """E[pixels | features]."""
    return pgm.MeanField().run(model.given({"h": features})).mean["v"]


def figure(parts, path: Path) -> None:
    """Images, reconstructions and samples in three rows, if matplotlib is installed and the images
    are square.
    """
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    side = round(parts[0].shape[1] ** 0.5)
    if side * side != parts[0].shape[1]:
        return
    rows = [
        np.hstack([np.clip(image, 0, 1).reshape(side, side) for image in part]) for part in parts
    ]
    figure_, axis = plt.subplots(figsize=(12, 3.4), layout="constrained")
    axis.imshow(np.vstack(rows), cmap="gray")
    axis.set(
        xticks=[],
        yticks=[],
        title="images; reconstructed from their features; samples of the deep model",
    )
    figure_.savefig(path, dpi=100)


if __name__ == "__main__":
    typer.run(main)
