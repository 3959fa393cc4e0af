"""System 4 (Saul, Jaakkola and Jordan 1996): how tight the bound is, digits by their bounds, and
missing pixels.

    python benchmarks/reproduce/belief_nets.py OUT [--scale full] [--data DIRECTORY] [--only
    nets|digits|missing]

nets: random 2x4x6 networks, weights and biases uniform in [-1, 1], all six leaves 0: the error of
the bound relative to the exact log-likelihood, and that of the guess that all states are equally
likely (figure 5). digits: one 8x24x64 network for each digit, 700 images of each to learn from, 400
to test, 5 sweeps at rate 0.05, one image at a time (tables 1 and 3); below it larger networks
learned by Adam. DIRECTORY holds usps/usps_8x8_binary.npz. missing: 6x10x64 networks, small enough
for enumeration, with 0 to 90 % of the pixels hidden: errors of classification by the bound and
exactly, and of the hidden pixels' means by the bound, exactly, and by MCMC.

Writes belief_nets.txt and pictures into OUT.
"""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import typer
from scipy.special import log_expit, logsumexp

import pgmengine as pgm

PIXELS = 64


@dataclass(frozen=True)
class Scale:
    """Sizes of the experiment at one scale."""

    nets: int
    train: int  # images of each digit
    test: int
    best_epochs: int
    shares: tuple[float, ...]  # of missing pixels
    rows: int  # test images of each digit with missing pixels


SCALES = {
    "small": Scale(1_000, 100, 50, 20, (0.0, 0.5), 5),
    "full": Scale(10_000, 700, 400, 40, (0.0, 0.1, 0.3, 0.5, 0.7, 0.9), 40),
}


def main(out: Path, scale: str = "small", data: Path | None = None, only: str = "") -> None:
    """Run the parts, and write the table and the pictures."""
    size, begin, lines = SCALES[scale], time.time(), [f"# scale {scale}"]
    out.mkdir(parents=True, exist_ok=True)

    def report(line: str) -> None:
        lines.append(line)
        print(f"[{time.time() - begin:6.0f} s] {line}", file=sys.stderr, flush=True)
        (out / f"belief_nets{only}.txt").write_text("\n".join(lines) + "\n")

    if only in ("", "nets"):
        random_nets(size, out, report)
    if data is not None:
        images = load(data, size)
        if only in ("", "digits"):
            digits(size, images, out, report)
        if only in ("", "missing"):
            missing(size, images, out, report)


def random_nets(size: Scale, out: Path, report) -> None:
    """Figure 5."""
    rng, empty, leaves = np.random.default_rng(0), pgm.sbn([6, 4, 2], rng=0), {"v": np.zeros(6)}
    drawn = [
        {name: rng.uniform(-1, 1, v.shape) for name, v in empty.params.items()}
        for _ in range(size.nets)
    ]
    exact = np.array([log_likelihood(p) for p in drawn])
    method, begin = pgm.MeanField(tolerance=1e-6), time.time()
    bound = np.array(
        [method.run(empty.with_params(p).given(leaves), ("bound",)).bound[0] for p in drawn]
    )
    took = time.time() - begin
    error, guess = bound / exact - 1.0, -6 * np.log(2) / exact - 1.0
    report(
        f"{size.nets} networks 2x4x6: mean relative error {100 * error.mean():.3f} % (published "
        "1.6), largest "
        f"{100 * error.max():.2f} %, smallest {100 * error.min():.4f} %; uniform guess "
        f"{100 * rms(guess):.1f} % rms "
        f"(22.6); {took:.1f} s for the bounds"
    )
    picture(
        out / "nets.png",
        lambda axis: (
            axis.hist(100 * error, bins=60),
            axis.set(xlabel="relative error of the bound, %", ylabel="networks"),
        ),
    )


def log_likelihood(params) -> float:
    """log p(leaves all 0) by summing over the 2^6 states above, written from the definition."""
    top = np.array(list(itertools.product((0, 1), repeat=2)))
    middle = np.array(list(itertools.product((0, 1), repeat=4)))
    p_top = (top * log_expit(params["h2.bias"]) + (1 - top) * log_expit(-params["h2.bias"])).sum(
        axis=1
    )
    z = params["h1.bias"] + top @ params["h2->h1.weight"]
    p_middle = middle @ log_expit(z).T + (1 - middle) @ log_expit(-z).T
    p_leaves = log_expit(-(params["v.bias"] + middle @ params["h1->v.weight"])).sum(axis=1)
    return float(logsumexp(p_middle + p_top + p_leaves[:, None]))


def load(data: Path, size: Scale):
    """(x_train, y_train, x_test, y_test): of the 1,100 of each digit the first 700 and the last
    400, or fewer of them.
    """
    kept = np.load(data / "usps" / "usps_8x8_binary.npz")
    x, y = np.unpackbits(kept["X"], axis=1).astype(float), kept["y"].astype(int)
    train = np.concatenate([np.flatnonzero(y == c)[: size.train] for c in range(10)])
    test = np.concatenate([np.flatnonzero(y == c)[700 : 700 + size.test] for c in range(10)])
    return x[train], y[train], x[test], y[test]


def digits(size: Scale, images, out: Path, report) -> None:
    """Tables 1 and 3."""
    x, y, x_test, y_test = images
    distance = (x_test**2).sum(axis=1)[:, None] + (x**2).sum(axis=1) - 2 * x_test @ x.T
    report(f"nearest neighbour: {100 * np.mean(y[distance.argmin(axis=1)] != y_test):.2f} % errors")
    paper = partial(
        pgm.fit,
        positive=pgm.MeanField(updates=20, tolerance=1e-3),
        optimizer=pgm.SGD(0.05),
        batch_size=1,
        epochs=5,
        progress=False,
    )
    found = classified("8x24x64, 5 sweeps at 0.05", [PIXELS, 24, 8], paper, images, report)
    report("confusion: row = digit, column = answer")
    for c in range(10):
        report(f"  {c}: " + " ".join(f"{np.sum(found[0][y_test == c] == a):4d}" for a in range(10)))
    report(
        "normalised log-likelihood score of each digit under its own network (published average "
        "-0.511): "
        + " ".join(f"{found[1][y_test == c].mean():.3f}" for c in range(10))
        + f"; average {found[1].mean():.3f}"
    )
    for sizes in ([PIXELS, 24, 8], [PIXELS, 48, 16], [PIXELS, 96, 24]):
        adam = partial(
            pgm.fit,
            positive=pgm.MeanField(updates=20, tolerance=1e-3),
            batch_size=20,
            optimizer=pgm.Adam(0.005, weight_decay=1e-3),
            epochs=size.best_epochs,
            progress=False,
        )
        name = "x".join(map(str, sizes[::-1]))
        classified(
            f"{name}, Adam 0.005, decay 0.001, {size.best_epochs} sweeps",
            sizes,
            adam,
            images,
            report,
        )


def classified(name: str, sizes, learn, images, report):
    """(labels, normalised scores) of the test images."""
    x, y, x_test, y_test = images
    begin = time.time()
    model = pgm.GenerativeClassifier(
        lambda c: small_weights(sizes, c), learn, pgm.MeanField(tolerance=1e-5)
    ).fit(x, y)
    took, bounds = time.time() - begin, model.log_prob(x_test)
    labels = model.classes_[(bounds + model.log_prior_).argmax(axis=1)]
    own = bounds[np.arange(len(y_test)), y_test]
    wrong = np.mean(labels != y_test)
    error = np.sqrt(wrong * (1 - wrong) / len(y_test))
    report(
        f"{name}: {100 * wrong:.2f} +- {100 * error:.2f} % errors (published 4.6 on another file); "
        "score "
        f"{own.mean() / (PIXELS * np.log(2)):.3f}; learned in {took:.0f} s"
    )
    return labels, own / (PIXELS * np.log(2))


def small_weights(sizes, c: int) -> pgm.Model:
    """A network with weights and biases uniform in [-0.1, 0.1]."""
    rng, model = np.random.default_rng(c), pgm.sbn(sizes, rng=0)
    return model.with_params(
        {name: rng.uniform(-0.1, 0.1, v.shape) for name, v in model.params.items()}
    )


def missing(size: Scale, images, out: Path, report) -> None:
    """Classification and imputation with missing pixels."""
    x, y, x_test, y_test = images
    learn = partial(
        pgm.fit,
        positive=pgm.MeanField(updates=20, tolerance=1e-3),
        optimizer=pgm.Adam(0.01),
        batch_size=20,
        epochs=size.best_epochs // 2,
        progress=False,
    )
    model = pgm.GenerativeClassifier(
        lambda c: small_weights([PIXELS, 10, 6], c), learn, pgm.MeanField()
    ).fit(x, y)
    chosen = np.concatenate([np.flatnonzero(y_test == c)[: size.rows] for c in range(10)])
    x_test, y_test, rng, pictures = x_test[chosen], y_test[chosen], np.random.default_rng(0), []
    report(
        f"missing pixels, 6x10x64 networks, {len(x_test)} images; squared error of the hidden "
        "pixels under the "
        "digit's own network (independent pixels: of its training means)"
    )
    report(
        "share   errors: bound  exact   squared error: bound   exact    MCMC   independent   bound "
        "below exact, nats"
    )
    for share in size.shares:
        holes = np.where(rng.random(x_test.shape) < share, np.nan, x_test)
        model.method = pgm.MeanField()
        bound = model.log_prob(holes)
        model.method = pgm.Exact()
        exact = model.log_prob(holes)
        wrong = [100 * np.mean(model.classes_[v.argmax(axis=1)] != y_test) for v in (bound, exact)]
        errors = {name: [] for name in ("bound", "exact", "MCMC", "independent")}
        for c, one in enumerate(model.models_):
            mine, hidden = holes[y_test == c], np.isnan(holes[y_test == c])
            methods = {
                "bound": pgm.MeanField(),
                "exact": pgm.Exact(),
                "MCMC": pgm.MCMC(chains=4, warmup=200, draws=500),
            }
            guess = {
                n: pgm.infer(one, {"v": mine}, method=m, rng=0).mean["v"]
                for n, m in methods.items()
            }
            guess["independent"] = np.where(hidden, x[y == c].mean(axis=0), mine)
            for n, value in guess.items():
                errors[n].append(np.square(value - x_test[y_test == c])[hidden])
            if c in (2, 5, 8):
                pictures += [
                    np.where(hidden, 0.5, mine)[0],
                    guess["bound"][0],
                    guess["exact"][0],
                    x_test[y_test == c][0],
                ]
        means = [np.concatenate(v).mean() if share else 0.0 for v in errors.values()]
        report(
            f"{share:4.1f}          {wrong[0]:6.2f} {wrong[1]:6.2f}                  "
            f"{means[0]:.4f}  {means[1]:.4f}"
            f"  {means[2]:.4f}   {means[3]:.4f}        {np.mean(exact - bound):.3f}"
        )
    picture(
        out / "missing.png",
        lambda axis: (
            axis.imshow(mosaic(pictures, 12), cmap="gray"),
            axis.set_axis_off(),
            axis.set_title("hidden, bound, exact, true: three digits a line"),
        ),
    )


def rms(x) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(x))))


def mosaic(images, columns: int):
    """Images of 8x8 side by side, a frame between them."""
    framed = [np.pad(np.reshape(v, (8, 8)), 1, constant_values=0.5) for v in images]
    framed += [np.full((10, 10), 0.5)] * (-len(framed) % columns)
    return np.block([framed[i : i + columns] for i in range(0, len(framed), columns)])


def picture(path: Path, draw) -> None:
    """One axis, drawn and saved."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axis = plt.subplots(figsize=(7, 4.5))
    draw(axis)
    fig.tight_layout()
    fig.savefig(path, dpi=120)
    plt.close(fig)


if __name__ == "__main__":
    typer.run(main)
