"""The demo: an RBM learns 8x8 digits, is measured exactly, and answers three questions."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import pgmengine as pgm
from pgmengine.base.extras import install
from pgmengine.base.types import Array
from pgmengine.datasets import Dataset
from pgmengine.learn.fit import pass_on

# The number of unseen digits in the picture.
DIGITS_SHOWN = 8


def base_rates(train: Array) -> Array:
    """Return the share of rows in which each pixel is on, smoothed by Laplace's rule."""
    rates: Array = (train.sum(axis=0) + 1) / (len(train) + 2)
    return rates


def base_rate_log_likelihood(train: Array, x: Array) -> float:
    """Return the mean log-likelihood of independent pixels, in nats for each row of x."""
    p = base_rates(train)
    return float((x @ np.log(p) + (1 - x) @ np.log1p(-p)).mean())


def run_demo(out: Path, epochs: int, seed: int) -> None:
    """Learn the digits, and write a picture and the model into the folder `out`."""
    begin = time.monotonic()
    data = pgm.datasets.digits()
    print(f"pgmengine {pgm.__version__}: a 64x16 restricted Boltzmann machine on {data!r}")
    model = train(data, epochs, seed)
    report_likelihood(model, data)
    unseen = data.x_test[:DIGITS_SHOWN]
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
    """Learn by PCD with Adam, whose rate falls as 1/t."""
    visible = base_rates(data.x_train)
    model = pgm.rbm(64, 16, rng=seed).with_params({"v.bias": np.log(visible / (1 - visible))})
    begin = time.monotonic()
    found = pgm.fit(
        model,
        {"v": data.x_train},
        negative=pgm.PCD(k=1, chains=200),
        optimizer=pgm.Adam(pgm.harmonic(6, 600)),
        epochs=epochs,
        rng=seed,
    )
    pass_on(found)
    updates = found.state["update"]
    seconds = time.monotonic() - begin
    print(f"trained: {updates} updates of persistent contrastive divergence in {seconds:.1f} s")
    return found.model


def report_likelihood(model: pgm.Model, data: Dataset) -> None:
    """Print exact mean log-likelihoods beside the baseline."""
    sets = (data.x_train, data.x_test)
    base = [base_rate_log_likelihood(data.x_train, x) for x in sets]
    ours = [pgm.infer(model, {"v": x}, want=("log_prob",)).log_prob.mean() for x in sets]
    gain = [a - b for a, b in zip(ours, base, strict=True)]
    print("\nexact mean log-likelihood, nats an image    train      test")
    for name, (train, test) in (("independent pixels", base), ("this model", ours), ("gain", gain)):
        print(f"  {name:38} {train:8.3f}  {test:8.3f}")


def questions(unseen: Array, seed: int) -> tuple[Array, Array]:
    """Return the digits without their lower halves, and without 10 random pixels each."""
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
    """Ask for the pixels that belong to the hidden units of unseen digits."""
    codes = pgm.infer(model, {"v": unseen}, want=("mode",)).mode["h"]
    print(f"\n3. hidden units given, pixels asked\n{pgm.explain(model, {'h': codes})}")
    pixels = pgm.infer(model, {"h": codes}).mean["v"]
    agree = float(((pixels > 0.5) == (unseen > 0.5)).mean())
    print(
        f"16 hidden units restore {100 * agree:.1f} % of the pixels of {len(unseen)} unseen digits"
    )


def draw(rows: list[Array], shape: tuple[int, int], out: Path) -> Path | None:
    """Write a picture of the completions, or print them as text without matplotlib."""
    try:
        import matplotlib
        import matplotlib.pyplot as plt
    except ImportError:
        why = f"as text; for pictures: {install('matplotlib')}"
        print(f"\nupper half given -> completed ({why})")
        print(as_text(rows[1][:4], rows[2][:4], shape))
        return None
    matplotlib.use("Agg")
    titles = ["unseen digit", "upper half given", "completed", "10 pixels missing", "completed"]
    figure, axes = plt.subplots(
        len(rows), DIGITS_SHOWN, figsize=(DIGITS_SHOWN * 1.1, len(rows) * 1.25), squeeze=False
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
    """Return images side by side as text: ? is missing, # is on, + is likely on, . is off."""

    def cell(value: float) -> str:
        return "?" if np.isnan(value) else "#" if value > 0.75 else "+" if value > 0.4 else "."

    lines = []
    for rows, name in ((given, "given"), (completed, "completed")):
        lines.append(f"{name}:")
        images = rows.reshape(-1, *shape)
        lines += [
            "   ".join("".join(cell(v) for v in image[r]) for image in images)
            for r in range(shape[0])
        ]
    return "\n".join(lines)
