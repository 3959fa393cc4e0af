"""Saul, Jaakkola and Jordan (1996): how tight the bound is, digits by their bounds,
missing pixels, and noisy-or networks.

    python benchmarks/reproduce/belief_nets.py OUT [--scale full] [--data DIRECTORY] [--only
    xi|nets|noisy|digits|missing]

xi: the bound of E[ln(1 + e^z)] as a function of xi for a standard normal z (figure 2). nets: random
2x4x6 networks, weights and biases uniform in [-1, 1], all six leaves 0: the error of the bound
relative to the exact log-likelihood, and that of the guess that all states are equally likely
(figure 5). noisy: networks of two layers like QMR-DT, 24 diseases that cause 150 findings as
noisy-or, with a growing number of positive findings; bound and posterior marginals beside exact
answers. digits: one 8x24x64 network for each digit, 700 images of each to learn from, 400 to test,
5 sweeps at rate 0.05, one image at a time (tables 1 and 3, figure 6); below it larger networks
learned by Adam. DIRECTORY holds usps/usps_8x8_binary.npz. missing: 6x10x64 networks, small enough
for enumeration, with 0 to 90 % of the pixels hidden: errors of classification by the bound and
exactly, and of the hidden pixels' means by the bound, exactly, and by MCMC.

Writes belief_nets.txt (with the part in its name if one is given) and pictures into OUT, and
results of single parts into OUT/parts, from which it goes on when it is run again.
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
from scipy import sparse
from scipy.special import log_expit, logit, logsumexp
from sweep import kept

import pgmengine as pgm

PIXELS = 64


DISEASES, FINDINGS, NEGATIVE = 24, 150, 10


@dataclass(frozen=True)
class Scale:
    """Sizes of the experiment at one scale."""

    nets: int
    train: int  # images of each digit
    test: int
    epochs: int  # of the networks that learn by Adam
    sizes: tuple[tuple[int, ...], ...]  # of these networks, leaves first
    shares: tuple[float, ...]  # of missing pixels
    rows: int  # test images of each digit with missing pixels
    cases: int  # noisy-or networks
    positive: tuple[int, ...]  # their positive findings


SCALES = {
    "small": Scale(100, 15, 5, 2, ((PIXELS, 24, 8),), (0.0, 0.5), 2, 2, (4, 16)),
    "full": Scale(
        10_000,
        700,
        400,
        40,
        ((PIXELS, 24, 8), (PIXELS, 48, 16), (PIXELS, 96, 24)),
        (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
        40,
        30,
        (2, 4, 8, 16, 32),
    ),
}


def main(out: Path, scale: str = "small", data: Path | None = None, only: str = "") -> None:
    """Run the parts, and write the table and the pictures."""
    size, begin, lines = SCALES[scale], time.time(), [f"# scale {scale}"]
    out.mkdir(parents=True, exist_ok=True)

    def report(line: str) -> None:
        lines.append(line)
        print(f"[{time.time() - begin:6.0f} s] {line}", file=sys.stderr, flush=True)
        (out / f"belief_nets{only}.txt").write_text("\n".join(lines) + "\n")

    if only in ("", "xi"):
        bound_of_xi(out, report)
    if only in ("", "nets"):
        random_nets(size, out, report)
    if only in ("", "noisy"):
        noisy_or_nets(size, out, report)
    if data is not None:
        images = load(data, size)
        if only in ("", "digits"):
            digits(size, images, out, report)
        if only in ("", "missing"):
            missing(size, images, out, report)


def bound_of_xi(out: Path, report) -> None:
    """Figure 2: F(xi) = xi E[z] + ln(E[e^(-xi z)] + E[e^((1 - xi) z)]) for a standard normal z."""
    xi = np.linspace(0, 1, 201)
    bound = np.log(np.exp(xi**2 / 2) + np.exp((1 - xi) ** 2 / 2))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    exact = float(weights @ np.logaddexp(0, nodes)) / np.sqrt(2 * np.pi)
    report(
        f"E[ln(1 + e^z)], z standard normal: exact {exact:.4f}, least bound {bound.min():.4f} at "
        f"xi = {xi[bound.argmin()]:.2f}, at xi = 0 (Jensen's inequality) {bound[0]:.4f}"
    )

    def draw(axis) -> None:
        axis.plot(xi, bound, label="bound")
        axis.axhline(exact, linestyle="--", color="grey", label="exact")
        axis.set(xlabel="xi", ylabel="bound of E[ln(1 + e^z)]", title="figure 2")
        axis.legend()

    picture(out / "figure_2.png", draw)


def random_nets(size: Scale, out: Path, report) -> None:
    """Figure 5."""
    found = kept(out / "parts", f"nets-{size.nets}", errors_of_nets, size.nets)
    error, guess, took = found["error"], found["guess"], float(found["took"])
    report(
        f"{size.nets} networks 2x4x6: mean relative error {100 * error.mean():.3f} % (published "
        "1.6), largest "
        f"{100 * error.max():.2f} %, smallest {100 * error.min():.4f} %; uniform guess "
        f"{100 * rms(guess):.1f} % rms "
        f"(22.6); {took:.1f} s for the bounds"
    )
    picture(
        out / "figure_5.png",
        lambda upper, lower: (
            upper.hist(100 * error, bins=60),
            upper.set(title="figure 5: relative error of the bound", xlabel="%", ylabel="networks"),
            lower.hist(100 * guess, bins=60),
            lower.set(title="if all states are equally likely", xlabel="%", ylabel="networks"),
        ),
        rows=2,
    )


def errors_of_nets(nets: int) -> dict[str, np.ndarray]:
    """Relative errors of the bound and of the guess, and seconds for the bounds."""
    rng, empty, leaves = np.random.default_rng(0), pgm.sbn([6, 4, 2], rng=0), {"v": np.zeros(6)}
    drawn = [
        {name: rng.uniform(-1, 1, v.shape) for name, v in empty.params.items()} for _ in range(nets)
    ]
    exact = np.array([log_likelihood(p) for p in drawn])
    method, begin = pgm.MeanField(tolerance=1e-6), time.time()
    bound = np.array(
        [method.run(empty.with_params(p).given(leaves), ("bound",)).bound[0] for p in drawn]
    )
    took = time.time() - begin
    guess = -6 * np.log(2) / exact - 1.0
    return {"error": bound / exact - 1.0, "guess": guess, "took": np.array(took)}


def noisy_or_nets(size: Scale, out: Path, report) -> None:
    """Bounds and marginals of networks like QMR-DT beside exact answers."""
    report(
        f"\nnoisy-or: {size.cases} networks of {DISEASES} diseases and {FINDINGS} findings, 6 "
        f"diseases present, {NEGATIVE} negative findings; exact by elimination"
    )
    report(
        "positive   log p exact   bound below by: mean, median, largest   with 10 random starts   "
        "error of marginals: mean, largest   same side of 1/2   CPU ms: bound, 10 more starts, "
        "exact"
    )
    found = {}
    for positive in size.positive:
        cases = [
            kept(out / "parts", f"noisy-{positive}-{i}", diagnosed, positive, i)
            for i in range(size.cases)
        ]
        whole = {k: np.stack([case[k] for case in cases]) for k in cases[0]}
        gap, off = whole["exact"] - whole["bound"], np.abs(whole["mean field"] - whole["marginals"])
        # Several diseases may have a probability near 1, so that the first of them says little.
        same = (whole["mean field"] > 0.5) == (whole["marginals"] > 0.5)
        report(
            f"{positive:8d}   {whole['exact'].mean():8.2f}      {gap.mean():.3f} +- "
            f"{gap.std(ddof=1) / len(gap) ** 0.5:.3f}, {np.median(gap):.3f}, {gap.max():.3f}"
            f"                  {(whole['exact'] - whole['best bound']).mean():.3f}"
            f"                   {off.mean():.4f}, {off.max():.3f}                    "
            f"{same.mean():.1%}            "
            + ", ".join(f"{ms:.2f}" for ms in np.median(whole["ms"], axis=0))
        )
        assert gap.min() > -1e-9
        found[positive] = (gap, whole)

    def draw(left, right) -> None:
        left.boxplot([gap for gap, _ in found.values()], tick_labels=[str(n) for n in found])
        left.set(xlabel="positive findings", ylabel="exact log p less the bound, nats")
        for positive, (_, whole) in found.items():
            x, y = whole["marginals"].ravel(), whole["mean field"].ravel()
            right.plot(x, y, ".", markersize=3, label=str(positive))
        right.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
        right.set(xlabel="exact posterior of a disease", ylabel="by mean field")
        right.legend(title="positive findings", fontsize=8)

    picture(out / "noisy_or.png", draw, columns=2)


def diagnosed(positive: int, case: int, asked: int = 2) -> dict[str, np.ndarray]:
    """Exact answers and bounds of one network with some positive findings.

    Priors are from 0.005 to 0.1 and leaks from 0.002 to 0.05, uniform in their logarithms. A
    finding has two to eight causes, each of which turns it on with probability 0.1 to 0.9.
    """
    rng = np.random.default_rng(case)
    prior = np.exp(rng.uniform(np.log(0.005), np.log(0.1), DISEASES))
    leak = np.exp(rng.uniform(np.log(0.002), np.log(0.05), FINDINGS))
    cause = np.zeros((DISEASES, FINDINGS))
    for finding in range(FINDINGS):
        parents = rng.choice(DISEASES, rng.integers(2, 9), replace=False)
        cause[parents, finding] = rng.uniform(0.1, 0.9, len(parents))
    b = pgm.GraphBuilder()
    b.layer("disease", pgm.Binary(), DISEASES, bias=logit(prior))
    b.layer("finding", pgm.NoisyOr(), FINDINGS, bias=-np.log1p(-leak))
    b.cause("disease", "finding", weight=sparse.csr_array(-np.log1p(-cause)))
    model = b.build()
    present = rng.choice(DISEASES, 6, replace=False)
    on = rng.random(FINDINGS) > (1 - leak) * np.prod(1 - cause[present], axis=0)
    # Where fewer findings are positive than asked for, all of them are given.
    shown = np.full(FINDINGS, np.nan)
    shown[rng.permutation(np.flatnonzero(on))[:positive]] = 1
    shown[rng.permutation(np.flatnonzero(~on))[:NEGATIVE]] = 0
    answers, times = [], []
    for method, what in (
        (pgm.MeanField(tolerance=1e-8), "bound"),
        (pgm.MeanField(tolerance=1e-8, restarts=10), "bound"),
        (pgm.Exact(), "log_prob"),
    ):
        spent = []
        for _ in range(asked):
            begin = time.process_time()
            r = pgm.infer(model, {"finding": shown}, want=("marginals", what), method=method)
            spent.append(1e3 * (time.process_time() - begin))
        answers.append(r)
        times.append(np.median(spent))
    bound, best, exact = answers
    return {
        "bound": bound.bound[0],
        "best bound": best.bound[0],
        "exact": exact.log_prob[0],
        "mean field": np.ravel(bound.mean["disease"]),
        "marginals": np.ravel(exact.mean["disease"]),
        "ms": np.array(times),
    }


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
    """Tables 1 and 3, figure 6."""
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
    found = classified("8x24x64, 5 sweeps at 0.05", (PIXELS, 24, 8), paper, images, out, report)
    report("confusion: row = digit, column = answer")
    for c in range(10):
        answers = np.bincount(found["labels"][y_test == c], minlength=10)
        report(f"  {c}: " + " ".join(f"{n:4d}" for n in answers))
    report(
        "normalised log-likelihood score of each digit under its own network (published average "
        "-0.511): "
        + " ".join(f"{found['scores'][y_test == c].mean():.3f}" for c in range(10))
        + f"; average {found['scores'].mean():.3f}"
    )
    shown = [v for c in (2, 5) for part in (x[y == c], found["samples"][c]) for v in part[:10]]
    picture(
        out / "figure_6.png",
        lambda axis: (
            axis.imshow(mosaic(shown, 10), cmap="gray"),
            axis.set_axis_off(),
            axis.set_title("figure 6: images, and samples of the networks"),
        ),
        height=1.8,
    )
    for sizes in size.sizes:
        adam = partial(
            pgm.fit,
            positive=pgm.MeanField(updates=20, tolerance=1e-3),
            batch_size=20,
            optimizer=pgm.Adam(0.005, weight_decay=1e-3),
            epochs=size.epochs,
            progress=False,
        )
        name = "x".join(map(str, sizes[::-1]))
        classified(
            f"{name}, Adam 0.005, decay 0.001, {size.epochs} sweeps",
            sizes,
            adam,
            images,
            out,
            report,
        )


def classified(name: str, sizes, learn, images, out: Path, report) -> dict[str, np.ndarray]:
    """Labels and normalised scores of the test images, and samples of the ten networks."""
    y_test = images[3]
    found = kept(out / "parts", f"digits-{name}-{len(images[0])}", answers_of, sizes, learn, images)
    wrong = np.mean(found["labels"] != y_test)
    error = np.sqrt(wrong * (1 - wrong) / len(y_test))
    report(
        f"{name}: {100 * wrong:.2f} +- {100 * error:.2f} % errors (published 4.6 on another file); "
        f"score {found['scores'].mean():.3f}; learned in {float(found['took']):.0f} s"
    )
    return found


def answers_of(sizes, learn, images) -> dict[str, np.ndarray]:
    """Labels, scores, samples and seconds of ten networks that learn the digits."""
    x, y, x_test, y_test = images
    begin = time.time()
    model = pgm.GenerativeClassifier(
        lambda c: small_weights(sizes, c), learn, pgm.MeanField(tolerance=1e-5)
    ).fit(x, y)
    took, bounds = time.time() - begin, model.log_prob(x_test)
    own = bounds[np.arange(len(y_test)), y_test]
    samples = [
        pgm.infer(one, want=("samples",), method=pgm.Forward(draws=20), rng=0).samples["v"]
        for one in model.models_
    ]
    return {
        "labels": model.classes_[(bounds + model.log_prior_).argmax(axis=1)],
        "scores": own / (PIXELS * np.log(2)),
        "samples": np.reshape(samples, (10, -1, PIXELS)),
        "took": np.array(took),
    }


def small_weights(sizes, c: int) -> pgm.Model:
    """A network with weights and biases uniform in [-0.1, 0.1]."""
    rng, model = np.random.default_rng(c), pgm.sbn(sizes, rng=0)
    return model.with_params(
        {name: rng.uniform(-0.1, 0.1, v.shape) for name, v in model.params.items()}
    )


def missing(size: Scale, images, out: Path, report) -> None:
    """Classification and imputation with missing pixels."""
    report(
        f"missing pixels, 6x10x64 networks, {10 * size.rows} images; squared error of the hidden "
        "pixels under the digit's own network (independent pixels: of its training means)"
    )
    report(
        "share   errors: bound  exact   squared error: bound   exact    MCMC   independent   bound "
        "below exact, nats"
    )
    name = f"missing-{size.train}-{size.rows}-{len(size.shares)}"
    found = kept(out / "parts", name, filled_in, size, images)
    for share, wrong, means, gap in zip(
        size.shares, found["wrong"], found["errors"], found["gap"], strict=True
    ):
        report(
            f"{share:4.1f}          {wrong[0]:6.2f} {wrong[1]:6.2f}                  "
            f"{means[0]:.4f}  {means[1]:.4f}"
            f"  {means[2]:.4f}   {means[3]:.4f}        {gap:.3f}"
        )
    picture(
        out / "missing.png",
        lambda axis: (
            axis.imshow(mosaic(found["pictures"], 12), cmap="gray"),
            axis.set_axis_off(),
            axis.set_title("hidden, bound, exact, true: three digits a line"),
        ),
    )


def filled_in(size: Scale, images) -> dict[str, np.ndarray]:
    """Errors of classification (shares, 2), of hidden pixels (shares, 4), gaps, and pictures."""
    x, y, x_test, y_test = images
    learn = partial(
        pgm.fit,
        positive=pgm.MeanField(updates=20, tolerance=1e-3),
        optimizer=pgm.Adam(0.01),
        batch_size=20,
        epochs=max(size.epochs // 2, 1),
        progress=False,
    )
    model = pgm.GenerativeClassifier(
        lambda c: small_weights([PIXELS, 10, 6], c), learn, pgm.MeanField()
    ).fit(x, y)
    chosen = np.concatenate([np.flatnonzero(y_test == c)[: size.rows] for c in range(10)])
    x_test, y_test, rng = x_test[chosen], y_test[chosen], np.random.default_rng(0)
    pictures, failed, squared, gaps = [], [], [], []
    for share in size.shares:
        holes = np.where(rng.random(x_test.shape) < share, np.nan, x_test)
        model.method = pgm.MeanField()
        bound = model.log_prob(holes)
        model.method = pgm.Exact()
        exact = model.log_prob(holes)
        failed.append(
            [100 * np.mean(model.classes_[v.argmax(axis=1)] != y_test) for v in (bound, exact)]
        )
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
        squared.append([np.concatenate(v).mean() if share else 0.0 for v in errors.values()])
        gaps.append(np.mean(exact - bound))
    return {
        "wrong": np.array(failed),
        "errors": np.array(squared),
        "gap": np.array(gaps),
        "pictures": np.array(pictures),
    }


def rms(x) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(x))))


def mosaic(images, columns: int):
    """Images of 8x8 side by side, a frame between them."""
    framed = [np.pad(np.reshape(v, (8, 8)), 1, constant_values=0.5) for v in images]
    framed += [np.full((10, 10), 0.5)] * (-len(framed) % columns)
    return np.block([framed[i : i + columns] for i in range(0, len(framed), columns)])


def picture(path: Path, draw, rows: int = 1, columns: int = 1, height: float = 3.0) -> None:
    """Axes, drawn and saved, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(
        rows,
        columns,
        figsize=(5.5 * columns, height * rows + 1),
        layout="constrained",
        squeeze=False,
    )
    draw(*axes.ravel())
    fig.savefig(path, dpi=72)
    plt.close(fig)


if __name__ == "__main__":
    typer.run(main)
