"""The pictures of the documentation: `python docs/pictures.py [plots] [readme]`.

`plots` makes a picture for each function of `pgmengine.plots`, in docs/_static/plots, which git
ignores: `sphinx-build` calls it. `readme` makes the pictures of README.md in docs/_static/readme.
These are kept in the repository, because a code host shows README without building anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import pgmengine as pgm

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
PLOTS, README = HERE / "_static" / "plots", HERE / "_static" / "readme"
RESULTS = HERE.parent / "benchmarks" / "results"

# The resolution of pictures, which are shown at half their size or less.
DOTS_PER_INCH = 150


@cache
def digits() -> tuple[Any, pgm.Model]:
    """Return the digits and an RBM that has learned them."""
    data = pgm.datasets.digits()
    fitted = pgm.fit(pgm.rbm(64, 16, rng=0), {"v": data.x_train}, epochs=200, rng=0, progress=False)
    return data, fitted.model


@cache
def machine(hours: int = 48) -> tuple[pgm.Model, list[str | None]]:
    """Return a hidden Markov model of a machine, and sounds of which some were not recorded."""
    b = pgm.GraphBuilder()
    state = b.variable("state", states=("good", "worn", "broken"), shape=hours)
    sound = b.variable("sound", states=("quiet", "loud", "silent"), shape=hours)
    b.conditional(state[0], (), [0.9, 0.1, 0.0], name="start")
    step = [[0.94, 0.06, 0.0], [0.0, 0.95, 0.05], [0.1, 0.0, 0.9]]
    b.conditional(state[1:], (state[:-1],), step, name="transition")
    heard = [[0.8, 0.2, 0.0], [0.3, 0.7, 0.0], [0.1, 0.0, 0.9]]
    b.conditional(sound, (state,), heard, name="emission")
    sounds: list[str | None] = ["quiet"] * 12 + ["loud", "quiet"] + [None] * 6 + ["loud"] * 8
    sounds += ["quiet", "loud", "loud", "silent", "silent", "silent", "quiet", "quiet"]
    return b.build(), sounds + ["quiet"] * 4 + [None] * (hours - len(sounds) - 4)


@cache
def lattice(coupling: float, side: int = 12) -> pgm.Model:
    """Return a lattice of spins, of which each prefers the direction of its neighbours."""
    b = pgm.GraphBuilder()
    s = b.variable("s", states=("down", "up"), shape=(side, side))
    pair = np.exp(coupling * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    b.table((s[1:], s[:-1]), pair, name="vertical")
    b.table((s[:, 1:], s[:, :-1]), pair, name="horizontal")
    return b.build()


@cache
def fits() -> list[pgm.Fit]:
    """Return four fits that differ by their random numbers."""
    x = pgm.datasets.bars_and_stripes().x_train
    watch = pgm.ExactLogLikelihood({"v": x}, every=20)
    settings: dict[str, Any] = {"updates": 400, "callbacks": [watch], "progress": False}
    return [pgm.fit(pgm.rbm(16, 6, rng=i), {"v": x}, rng=i, **settings) for i in range(4)]


def _draw_images() -> Any:
    return pgm.plots.images(digits()[0].x_test[:20], (8, 8))


def _draw_receptive_fields() -> Any:
    return pgm.plots.receptive_fields(digits()[1], "v-h", (8, 8), columns=8)


def _draw_samples() -> Any:
    r = pgm.infer(digits()[1], want=("samples",), method=pgm.MCMC(draws=500), rng=0)
    return pgm.plots.samples(r, "v", (8, 8))


def _draw_completions() -> Any:
    data, model = digits()
    half = data.x_test[:8].copy()
    half[:, 40:] = np.nan
    return pgm.plots.completions(pgm.infer(model, {"v": half}), "v", (8, 8))


def _draw_graph() -> Any:
    net = pgm.read(pgm.datasets.asia())
    return pgm.plots.graph(net, pgm.infer(net, {"xray": "yes", "dysp": "yes"}))


def _draw_sequence() -> Any:
    model, sounds = machine()
    return pgm.plots.sequence(pgm.infer(model, {"sound": sounds}), "state", observed="sound")


def _draw_trace() -> Any:
    r = pgm.infer(lattice(0.5), method=pgm.MCMC(draws=400), rng=0)
    return pgm.plots.trace(r)


def _draw_convergence() -> Any:
    r = pgm.infer(lattice(0.5), method=pgm.ParallelTempering(draws=1000), rng=0)
    return pgm.plots.convergence(r)


def _draw_levels() -> Any:
    return pgm.plots.levels(pgm.infer(digits()[1], method=pgm.SimulatedTempering(), rng=0))


def _draw_autocorrelation() -> Any:
    r = pgm.infer(digits()[1], method=pgm.MCMC(draws=1000), rng=0)
    return pgm.plots.autocorrelation(r, lags=60)


def _draw_history() -> Any:
    return pgm.plots.history(fits(), "log_likelihood")


def _draw_bound_gap() -> Any:
    net = pgm.sbn([6, 4, 3], rng=0)
    rows = pgm.infer(net, want=("samples",), rng=0).samples["v"][:300, 0]
    exact = pgm.infer(net, {"v": rows}, want=("log_prob",), method=pgm.Enumeration()).log_prob
    bound = pgm.infer(net, {"v": rows}, want=("log_prob",), method=pgm.MeanField()).log_prob
    return pgm.plots.bound_gap(bound, exact)


# Name of a function of pgmengine.plots -> its picture.
OF_FUNCTIONS: dict[str, Callable[[], Any]] = {
    name.removeprefix("_draw_"): thing
    for name, thing in list(globals().items())
    if name.startswith("_draw_")
}


def save(figure: Any, path: Path) -> None:
    """Write a picture, without the date and the version that would change its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {"dpi": DOTS_PER_INCH, "metadata": {"Software": None}, "facecolor": "white"}
    figure.savefig(path, **settings)
    plt.close(figure)
    # A palette of 256 colours, since nothing in the pictures needs more.
    from PIL import Image

    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(f"{path.relative_to(HERE.parent)}: {path.stat().st_size / 1000:.0f} kB")


def plots() -> None:
    """Make a picture for each function of pgmengine.plots."""
    for name, draw in OF_FUNCTIONS.items():
        save(draw().figure, PLOTS / f"{name}.png")


def main(wanted: Sequence[str]) -> None:
    """Make the pictures whose kinds are named, or all of them."""
    kinds = {"plots": plots}
    for kind in wanted or kinds:
        kinds[kind]()


if __name__ == "__main__":
    main(sys.argv[1:])
