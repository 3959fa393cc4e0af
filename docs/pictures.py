"""The pictures of the documentation: `python docs/pictures.py [plots] [readme] [tasks]`.

`plots` makes a picture for each function of `pgmengine.plots`, in docs/_static/plots, which git
ignores: `sphinx-build` calls it. `readme` makes the pictures of README.md in docs/_static/readme.
`tasks` makes the ones of some pages of tasks in docs/_static/tasks, from the numbers that the
blocks of the page compute. Both are kept in the repository, because a code host shows pages without
building anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import pgmengine as pgm
from pgmengine.apps.pictures.style import CYCLE, INK

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
PLOTS, README, OWN = (HERE / "_static" / name for name in ("plots", "readme", "tasks"))
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


def readme() -> None:
    """Make the pictures of README.md: those that its blocks draw, and two more."""
    for name, figure in drawn_by_readme():
        if name is not None:
            save(figure, README / f"{name}.png")
        plt.close(figure)
    save(front(), README / "front.png")
    save(benchmarks(), README / "benchmarks.png")


def drawn_by_readme() -> Iterator[tuple[str | None, Any]]:
    """Run the blocks of README.md; yield each figure with the name of the picture below its block.

    The name is None where a block has no picture of its own.
    """
    text = (HERE.parent / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    parts = re.split(r"```python\n(.*?)```\n", text, flags=re.S)
    for block, after in zip(parts[1::2], parts[2::2], strict=True):
        exec(compile(block, "README.md", "exec"), names)
        # A picture belongs to a block if no prose stands between them, only printed text.
        shown = re.match(r"\s*(?:```text\n.*?```\s*)?!\[[^]]*\]\(\S*/(\w+)\.png\)", after, re.S)
        yield shown.group(1) if shown else None, plt.gcf()


def front() -> Any:
    """Return the first picture of README.md: completed digits, and a network with posteriors."""
    data, model = digits()
    figure = plt.figure(figsize=(11.0, 4.6))
    left = figure.add_axes((0.085, 0.06, 0.46, 0.8))
    # The first unseen image of some digits.
    first = [int(np.argmax(data.y_test == digit)) for digit in (0, 2, 3, 5, 6)]
    seen = np.where(np.arange(64) < 40, data.x_test[first], np.nan)
    pgm.plots.completions(pgm.infer(model, {"v": seen}), "v", (8, 8), ax=left)
    net = pgm.read(pgm.datasets.asia())
    right = figure.add_axes((0.62, 0.0, 0.38, 0.94))
    pgm.plots.graph(net, pgm.infer(net, {"xray": "yes", "dysp": "yes"}), ax=right)
    titles = ("Digits whose lower rows were hidden", "A patient with two findings")
    for x, title in zip((0.31, 0.81), titles, strict=True):
        figure.text(x, 0.95, title, ha="center", fontsize=12, fontweight="bold", color=INK)
    return figure


def tasks() -> None:
    """Make the pictures of pages of tasks."""
    for name, draw in OF_TASKS.items():
        save(draw(computed_by(HERE / "tasks" / f"{name}.md")), OWN / f"{name}.png")


def computed_by(page: Path) -> dict[str, Any]:
    """Run the Python blocks of a page, and return their names."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        exec(compile(block, page.name, "exec"), names)
    return names


def _panels(count: int, width: float, height: float, **more: Any) -> tuple[Any, Any]:
    figure, axes = plt.subplots(1, count, figsize=(width, height), layout="constrained", **more)
    return figure, axes


def crowd_labels(n: dict[str, Any]) -> Any:
    """Return the learned table of each person."""
    figure, axes = _panels(6, 9.6, 2.3, sharey=True)
    for ax, person, table in zip(axes, n["habits"], n["confusion"], strict=True):
        ax.imshow(table, cmap="Blues", vmin=0, vmax=1)
        for (i, j), p in np.ndenumerate(table):
            color = "white" if p > 0.5 else INK
            ax.text(j, i, f"{p:.2f}", ha="center", va="center", fontsize=8, color=color)
        ax.set_title(person, fontsize=11)
        ax.set_xticks(range(3), n["kinds"])
        ax.set_yticks(range(3), n["kinds"])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    axes[0].set_ylabel("truth")
    figure.supxlabel("label", fontsize=10)
    return figure


def item_response(n: dict[str, Any], people: int = 30) -> Any:
    """Return the skills that some people have and seem to have, and the numbers of the items."""
    figure, (left, right) = _panels(2, 9.6, 2.8, width_ratios=(2.2, 1))
    some = np.lexsort(n["has"][:people].T[::-1])
    left.imshow(n["p"][some].T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    skill, person = np.nonzero(n["has"][some].T)
    left.plot(person, skill, "o", mfc="none", mec=CYCLE[1], ms=7, label="has the skill")
    left.set_yticks(range(3), n["skills"])
    left.set_xticks([])
    left.set_xlabel(f"{people} people")
    left.set_title("probability of each skill (darker: larger)", fontsize=11)
    left.legend(loc="upper left", bbox_to_anchor=(0, -0.02), frameon=False)
    slip, guess = np.array([n["chances"](j) for j in range(len(n["needs"]))]).T
    for values, name, true, color in (
        (slip, "slip", 0.1, CYCLE[1]),
        (guess, "guess", 0.2, CYCLE[0]),
    ):
        right.plot(values, "o", color=color, label=name)
        right.axhline(true, color=color, lw=1, alpha=0.6)
    right.set_ylim(0, 0.4)
    right.set_xticks(range(len(slip)))
    right.set_xlabel("item")
    right.set_title("lines: true numbers", fontsize=11)
    right.legend(ncols=2, frameon=False, loc="upper center")
    right.spines[["top", "right"]].set_visible(False)
    return figure


def mixtures(n: dict[str, Any]) -> Any:
    """Return rows with the groups of a fit, and log p by the number of groups."""
    from matplotlib.patches import Ellipse

    figure, (left, right) = _panels(2, 8.4, 3.6, width_ratios=(1.2, 1))
    fit, order, new = n["fitted"], n["order"], {"x": n["x"], "pays": n["pays"]}
    posterior = pgm.infer(fit, new).marginal("group")
    group = np.argmax([posterior[int(k)] for k in order], axis=0)
    for i, k in enumerate(order):
        mean, log_sd = fit.params["columns"][:, k].T
        left.plot(*n["x"][group == i].T, "o", color=CYCLE[i], ms=3, alpha=0.7, mew=0)
        ring = Ellipse(mean, *(4 * np.exp(log_sd)), fill=False, ec=CYCLE[i], lw=2)
        left.add_patch(ring)
    left.set(xlabel="amount", ylabel="visits", aspect="equal")
    left.set_title("ellipses: two standard deviations", fontsize=11)
    score = {g: pgm.infer(f, n["new"], want=("log_prob",)) for g, f in n["fits"].items()}
    right.plot(list(score), [r.log_prob.mean() for r in score.values()], "o-", color=INK)
    right.set_xticks(list(score))
    right.set(xlabel="groups", ylabel="log p of a new row")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def coupling_analysis(n: dict[str, Any]) -> Any:
    """Return the map of scores, with the true contacts."""
    figure, ax = _panels(1, 5.4, 3.9)
    exact, pseudo = (n["scores"](n[name].params["couplings"]) for name in ("exact", "pseudo"))
    shown = np.where(np.tri(n["length"], dtype=bool), exact, pseudo)
    np.fill_diagonal(shown, np.nan)
    image = ax.imshow(shown, cmap="Blues", vmin=0)
    for i, j in n["contacts"]:
        ax.plot([j, i], [i, j], "o", mfc="none", mec=CYCLE[1], mew=2, ms=17)
    ax.set_xticks(range(n["length"]))
    ax.set_yticks(range(n["length"]))
    ax.set(xlabel="position (above: pseudo-likelihood)", ylabel="position (below: exact)")
    ax.tick_params(length=0)
    figure.colorbar(image, ax=ax, label="norm of the coupling, corrected", shrink=0.85)
    return figure


def denoising(n: dict[str, Any]) -> Any:
    """Return the clean, the noisy and the restored image."""
    figure, axes = plt.subplots(2, 2, figsize=(7.6, 3.6), layout="constrained")
    r = pgm.infer(n["image"](0.8), {"seen": n["noisy"]})
    p = r.marginal("s")[1]
    found = {"true image": n["clean"], "seen": n["noisy"]}
    found |= {"probability of a pixel": p, "above one half": (p > 0.5).astype(float)}
    colors = plt.get_cmap("Greys").with_extremes(bad=CYCLE[0])
    for ax, (title, values) in zip(axes.flat, found.items(), strict=True):
        ax.imshow(values, cmap=colors, vmin=0, vmax=1)
        ax.set_title(title, fontsize=11)
        ax.set(xticks=[], yticks=[])
    return figure


def puzzles(n: dict[str, Any]) -> Any:
    """Draw the harder sudoku: its clues in bold, and the digits that were found."""
    figure, ax = plt.subplots(figsize=(4, 4), layout="constrained")
    clues = np.reshape(n["clues"], (9, 9))
    digits = n["r"].assignment()["z"].reshape(9, 9)
    for (i, j), digit in np.ndenumerate(digits):
        given = not np.isnan(clues[i, j])
        color, weight = ("black", "bold") if given else (CYCLE[0], "normal")
        ax.text(j, i, digit, ha="center", va="center", fontsize=14, color=color, weight=weight)
    for at in range(10):
        for line in (ax.axhline, ax.axvline):
            line(at - 0.5, color="black", linewidth=2.0 if at % 3 == 0 else 0.5)
    ax.set(xticks=[], yticks=[], xlim=(-0.5, 8.5), ylim=(8.5, -0.5))
    return figure


def codes(n: dict[str, Any]) -> Any:
    """Return the received word, and how probable each bit is to be 1 after some sweeps."""
    figure, axes = _panels(4, 9.6, 2.2)
    found = {"received": n["word"].astype(float)}
    for sweeps in (1, 2, 4):
        method = pgm.BeliefPropagation(sweeps=sweeps)
        r = pgm.infer(n["code"], {"received": n["word"]}, method=method)
        found[f"after {sweeps} sweep{'s' * (sweeps > 1)}"] = r.marginal("sent")[1]
    for ax, (title, values) in zip(axes, found.items(), strict=True):
        ax.imshow(values.reshape(30, 40), cmap="Greys", vmin=0, vmax=1)
        ax.set_title(title, fontsize=11)
        ax.set(xticks=[], yticks=[])
    return figure


# Name of a page of tasks -> its picture, from the names that its blocks leave.
OF_TASKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    one.__name__: one
    for one in (
        *(crowd_labels, item_response, mixtures, coupling_analysis, denoising, puzzles, codes),
    )
}


# A row of the picture of ratios: its name, the page, the block of the page, the beginnings of the
# rows of the table, and the column of the other library in tables that have one row for each.
Task = tuple[str, str, str, str]

TASKS: tuple[Task, ...] = (
    (
        "block Gibbs sweeps, RBM 784x500, 100 chains",
        "suite",
        "sweeps, 1 thread",
        "Gibbs sweeps, trained 784x500 RBM, chains: 100 ",
    ),
    (
        "... where half of the units flip",
        "suite",
        "sweeps, 1 thread",
        "Gibbs sweeps, early in training",
    ),
    (
        "block Gibbs sweeps, deep model 784-500-1000",
        "suite",
        "sweeps, 1 thread",
        "Gibbs sweeps, 784-500-1000",
    ),
    (
        "Gibbs sweeps, Ising lattice 512x512",
        "suite",
        "sweeps, 1 thread",
        "Gibbs sweeps, 512x512 Ising",
    ),
    ("an update of PCD-1, RBM 784x500", "suite", "learning, 1 thread", "PCD-1 update, 784x500"),
    ("an update of PCD-1, RBM 16x16", "suite", "learning, 1 thread", "PCD-1 update, 16x16"),
    ("log Z by annealing, RBM 784x500", "suite", "annealing, 1 thread", "AIS"),
    ("exact log Z, RBM 784x20", "suite", "enumeration, 1 thread", "exact log Z, 784x20"),
    (
        "bounds of 1,000 digits, belief net",
        "suite",
        "beliefs, 1 thread",
        "mean-field bound, 8x24x64 belief net, 1000 digits, tolerance 1e-03",
    ),
    (
        "the bound of one row, tiny belief net",
        "suite",
        "beliefs, 1 thread",
        "mean-field bound, 2x4x6 belief net, one row, tolerance 1e-07, by infer",
    ),
    ("all marginals, 24 Bayesian networks", "exact", "networks", ""),
    ("1,000 rows of evidence, 8 networks", "exact", "rows", ""),
    ("conditionals by counting, 10,000 rows", "learning", "counting", ""),
    ("EM with empty cells, 1,000 rows", "learning", "missing", ""),
    ("EM of a hidden Markov model", "learning", "em", ""),
    ("training of a conditional random field", "crf", "one thread", "l1 = 0"),
    ("labels by a conditional random field", "crf", "one thread", "labels of all"),
    *(
        (name, "everyday", "calls", start)
        for name, start in (
            ("mixture, 178 rows, gaps, 12 starts", "mixture of 3 normal classes, 178x6"),
            ("mixture, 1,500 rows, 12 starts", "mixture of 3 normal classes, 1,500x4, complete"),
            ("classes of mixed columns with gaps", "6 normal columns and 2 of states"),
            ("labels of annotators", "labels of 1,000 items"),
            (
                "DINA test by noisy_and",
                "test of 20 items and 4 skills (DINA), 500 people, by noisy",
            ),
            ("imputer, wine table", "imputer, wine table"),
            ("log Z, lattice 64x64 with a field", "log Z of an Ising lattice 64x64"),
            ("marginals, Potts lattice 100x100", "marginals of a Potts lattice 100x100"),
            ("log p of new rows, RBM 784x200", "log p of 200 new rows"),
            ("half letters, RBM 128x300", "a hundred completed halves of letters"),
        )
    ),
)

# Library -> colour and marker.
LIBRARIES = {
    "PyTorch": (CYCLE[1], "s"),
    "JAX": (CYCLE[0], "o"),
    "numpy": (CYCLE[6], "v"),
    "scikit-learn": (CYCLE[5], "D"),
    "THRML": (CYCLE[2], "^"),
    "rbms": (CYCLE[4], "P"),
    "pyAgrum": (CYCLE[3], "o"),
    "hmmlearn": (CYCLE[2], "s"),
    "CRFsuite": (CYCLE[1], "D"),
}


def ratios(page: str, block: str, row: str) -> list[tuple[str, float]]:
    """Return (library, its time divided by the time of pgmengine) from a page of results."""
    text = (RESULTS / f"{page}.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- (\w+\.py) {re.escape(block)} -->(.*?)<!-- end of \1", text, re.S)
    assert found, f"{page}.md has no block {block!r}"
    table = [line.strip("| ").split(" | ") for line in found[2].splitlines() if line[:1] == "|"]
    heads, cells = table[0], [line for line in table[2:] if f"{line[0]} ".startswith(row)]
    assert cells, f"block {block!r} of {page}.md has no row {row!r}"
    if "medians" in heads:
        medians = cells[0][heads.index("medians")]
        each = re.findall(r"(?:^|, )([A-Za-z-]+) [^,()]*\(([\d.e+]+)\)", medians)
        return [(library, float(ratio)) for library, ratio in each]
    if (others := "others (ratio of times)") in heads:
        # Parts such as "hmmlearn, log 6.5 s (2.36)"; the ratio is absent where there is no answer.
        parts = [part for line in cells for part in line[heads.index(others)].split("; ")]
        matched = [re.match(r"([A-Za-z-]+).*\(([\d.e+-]+)\)$", part) for part in parts]
        return [(found[1], float(found[2])) for found in matched if found]
    if "library" not in heads:
        # A cell is empty where a library did not answer.
        each = [line[heads.index("ratio")] for line in cells]
        return [("pyAgrum", float(ratio)) for ratio in each if ratio]
    column, ratio = heads.index("library"), heads.index("ratio")
    others = [line for line in cells if not line[column].startswith("pgmengine")]
    return [(line[column].split(",")[0], float(line[ratio])) for line in others]


def benchmarks() -> Any:
    """Return the picture of the ratios of times, from the pages of results."""
    figure, ax = plt.subplots(figsize=(9.6, 7.0), layout="constrained")
    for i, (_, *place) in enumerate(TASKS):
        for library, ratio in ratios(*place):
            color, marker = LIBRARIES[library]
            ax.plot(ratio, -i, marker, color=color, ms=6, alpha=0.75, mew=0, label=library)
    ax.axvline(1.0, color=INK, lw=1.0, zorder=1)
    ax.set(xscale="log", ylim=(-len(TASKS) + 0.4, 0.6))
    ax.set_yticks([-i for i in range(len(TASKS))], [task[0] for task in TASKS])
    ticks = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.grid(axis="y", color="#e3e8ee", lw=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("time of the other library / time of pgmengine (logarithmic)")
    for x, text, side in (
        (0.93, "the other is faster", "right"),
        (1.07, "pgmengine is faster", "left"),
    ):
        ax.text(x, 0.75, text, ha=side, va="bottom", fontsize=9, color=INK)
    handles = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    order = [library for library in LIBRARIES if library in handles]
    ax.legend(
        [handles[name] for name in order],
        order,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
    )
    return figure


def main(wanted: Sequence[str]) -> None:
    """Make the pictures whose kinds are named, or all of them."""
    kinds = {"plots": plots, "readme": readme, "tasks": tasks}
    for kind in wanted or kinds:
        kinds[kind]()


if __name__ == "__main__":
    main(sys.argv[1:])
