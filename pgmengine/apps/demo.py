"""The demo: an RBM on 8x8 digits, measured exactly, asked three questions about unseen digits."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import pgmengine as pgm
from pgmengine.base.types import Array
from pgmengine.datasets import Dataset

SHOWN = 8  # unseen digits in the picture


def base_rate_log_likelihood(train: Array, x: Array) -> float:
    """Mean log-likelihood of independent pixels with the training means (Laplace-smoothed), nats a
    row.
    """
    p = (train.sum(axis=0) + 1) / (len(train) + 2)
    return float((x @ np.log(p) + (1 - x) @ np.log1p(-p)).mean())


def run_demo(out: Path, epochs: int, seed: int) -> None:
    """Train, measure, ask, draw, save."""
    begin = time.monotonic()
    data = pgm.datasets.digits()
    print(f"pgmengine {pgm.__version__}: a 64x16 restricted Boltzmann machine on {data!r}")
    model = train(data, epochs, seed)
    report_likelihood(model, data)
    unseen = data.x_test[:SHOWN]
    lower, scattered = questions(unseen, seed)
    completed = [
        unseen,
        lower,
        complete(model, lower, "1. upper half given, lower half asked"),
        scattered,
        complete(model, scattered, "2. 10 random pixels missing"),
    ]
    ask_hidden(model, unseen)
    out.mkdir(parents=True, exist_ok=True)
    pgm.save(model, out / "digits.safetensors")
    picture = draw(completed, data.image_shape, out)
    print(f"\nwrote {out / 'digits.safetensors'}" + (f" and {picture}" if picture else ""))
    print(f"done in {time.monotonic() - begin:.1f} s")


def train(data: Dataset, epochs: int, seed: int) -> pgm.Model:
    """PCD with Adam, the rate falling as 1/t."""
    visible = (data.x_train.sum(axis=0) + 1) / (len(data.x_train) + 2)
    model = pgm.rbm(64, 16, rng=seed).with_params({"v.bias": np.log(visible / (1 - visible))})
    begin = time.monotonic()
    found = pgm.fit(
        model,
        {"v": data.x_train},
        negative=pgm.PCD(k=1, chains=200),
        optimizer=pgm.Adam(pgm.harmonic(8, 800)),
        epochs=epochs,
        rng=seed,
    )
    updates = found.state["update"]
    print(
        f"trained: {updates} updates of persistent contrastive divergence in {time.monotonic() - begin:.1f} s"
    )
    return found.model


def report_likelihood(model: pgm.Model, data: Dataset) -> None:
    """Exact mean log-likelihoods beside the baseline."""
    print("\nexact mean log-likelihood, nats an image    train      test")
    ours, base = [], []
    for x in (data.x_train, data.x_test):
        ours.append(pgm.infer(model, {"v": x}, want=("log_prob",)).log_prob.mean())
        base.append(base_rate_log_likelihood(data.x_train, x))
    print(f"  independent pixels                     {base[0]:8.3f}  {base[1]:8.3f}")
    print(f"  this machine                           {ours[0]:8.3f}  {ours[1]:8.3f}")
    print(
        f"  gained                                 {ours[0] - base[0]:8.3f}  {ours[1] - base[1]:8.3f}"
    )


def questions(unseen: Array, seed: int) -> tuple[Array, Array]:
    """The unseen digits with the lower half missing, and with 10 random pixels missing in each."""
    lower, scattered = unseen.copy(), unseen.copy()
    lower[:, 32:] = np.nan
    rng = np.random.default_rng(seed)
    for row in scattered:
        row[rng.choice(64, size=10, replace=False)] = np.nan
    return lower, scattered


def complete(model: pgm.Model, given: Array, title: str) -> Array:
    """Print the plan and return the posterior means of the pixels."""
    print(f"\n{title}\n{pgm.explain(model, {'v': given})}")
    return pgm.infer(model, {"v": given}).mean["v"]


def ask_hidden(model: pgm.Model, unseen: Array) -> None:
    """Ask which images the hidden units stand for."""
    codes = pgm.infer(model, {"v": unseen}, want=("mode",)).mode["h"]
    print(f"\n3. hidden units given, pixels asked\n{pgm.explain(model, {'h': codes})}")
    pixels = pgm.infer(model, {"h": codes}).mean["v"]
    agree = float(((pixels > 0.5) == (unseen > 0.5)).mean())
    print(
        f"16 hidden units restore {100 * agree:.1f} % of the pixels of {len(unseen)} unseen digits"
    )


def draw(rows: list[Array], shape: tuple[int, int], out: Path) -> Path | None:
    """A PNG of the completions if matplotlib is installed, else a small text rendering."""
    try:
        import matplotlib
    except ImportError:
        print("\nupper half given -> completed (matplotlib is not installed, so in text)")
        print(as_text(rows[1][:4], rows[2][:4], shape))
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    titles = ["unseen digit", "upper half given", "completed", "10 pixels missing", "completed"]
    figure, axes = plt.subplots(
        len(rows), SHOWN, figsize=(SHOWN * 1.1, len(rows) * 1.25), squeeze=False
    )
    gaps = plt.get_cmap("gray_r").with_extremes(bad="#d98c3f")
    for line, images, title in zip(axes, rows, titles, strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(np.ma.masked_invalid(image.reshape(shape)), cmap=gaps, vmin=0, vmax=1)
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize=9)
    figure.suptitle("Completions by exact inference (orange: not observed)", fontsize=11)
    figure.tight_layout()
    path = out / "completions.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def as_text(given: Array, completed: Array, shape: tuple[int, int]) -> str:
    """Images side by side in characters: ? missing, # on, + likely, . off."""

    def cell(value: float) -> str:
        return "?" if np.isnan(value) else "#" if value > 0.75 else "+" if value > 0.4 else "."

    lines = []
    for pair in ((given, "given"), (completed, "completed")):
        lines.append(f"{pair[1]}:")
        images = pair[0].reshape(-1, *shape)
        lines += [
            "   ".join("".join(cell(v) for v in image[r]) for image in images)
            for r in range(shape[0])
        ]
    return "\n".join(lines)
