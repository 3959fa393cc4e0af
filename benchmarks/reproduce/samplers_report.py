"""Tables and figure of samplers.py, from the files of its finished runs.

A run of one seed of a phase is compared with the run of its control that has the same seed. With d
the differences of n seeds, t = mean(d) / (sd(d) / sqrt(n)) has n - 1 degrees of freedom. The
p-values of the planned comparisons, one for each phase, are corrected by Holm's method. The
smallest difference that such a test shows with a probability of 80 % is found from the non-central
t distribution, at the level 0.05 divided by the number of comparisons and at the sd that was
measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, stats

sys.path.insert(0, str(Path(__file__).parents[1]))
from apart import put_block, table

# Phase -> the control to which it is compared: as many chains in all, or as much work.
CONTROLS = {
    "SAP 200": "SAP 100",
    "CAST 50+50, one set": "SAP 100",
    "CAST 50+50, own weights": "SAP 100",
    "CAST 100+100, one set": "SAP 200",
    "CAST 100+100, own weights": "SAP 200",
    "Fast PCD 0.0003": "SAP 100",
    "Fast PCD 0.001": "SAP 100",
    "Fast PCD 0.003": "SAP 100",
    "TransSAP": "SAP 200",
}
# Controls with as many chains at beta = 1. These comparisons were added after the first results.
SLOW_CHAINS = {
    "CAST 50+50, one set": "SAP 50",
    "CAST 50+50, own weights": "SAP 50",
    "CAST 100+100, one set": "SAP 100",
    "CAST 100+100, own weights": "SAP 100",
    "TransSAP": "SAP 100",
}
LEVEL, POWER = 0.05, 0.8
Runs = dict[str, dict[int, dict[str, Any]]]


def report(out: Path, page: Path | None) -> None:
    """Write samplers.md and samplers.png beside the runs, and the tables into a page."""
    searches, runs = read(out)
    if not runs:
        return
    annealed = {k: {s: r for s, r in v.items() if "longer" in r} for k, v in runs.items()}
    blocks = {
        "schedules": schedules(searches),
        "floors": floors(searches),
        "bounds": bounds(runs),
        "differences": differences(runs, CONTROLS, primary),
        "best on the way": differences(runs, CONTROLS, secondary),
        "mean of curve": differences(runs, CONTROLS, mean_of_curve),
        "equal slow chains": differences(runs, SLOW_CHAINS, primary),
        "longer annealing": longer_bounds(annealed),
        "differences by longer annealing": differences(annealed, CONTROLS, longer),
        "equal slow chains by longer annealing": differences(annealed, SLOW_CHAINS, longer),
        "all differences": matrix(runs),
        "ladders": ladders(runs),
        "checks": checks(out, runs),
    }
    for name, text in blocks.items():
        if text:
            for path in filter(None, (out / "samplers.md", page)):
                put_block(path, f"samplers.py {out.name}: {name}", text)
    figure(runs, out / "samplers.png")


def read(out: Path) -> tuple[dict[str, dict[str, Any]], Runs]:
    """The runs of the searches, by their titles, and the others by phase and seed."""
    searches: dict[str, dict[str, Any]] = {}
    runs: Runs = {}
    for path in sorted(out.glob("*.json")):
        result = json.loads(path.read_text())
        if path.name.startswith("checks-"):
            continue
        if path.name.startswith(("schedule-", "floor-")):
            searches[path.stem] = result
        else:
            runs.setdefault(result["name"], {})[result["seed"]] = result
    order = ["SAP 50", "SAP 100", *CONTROLS]
    return searches, {name: runs[name] for name in order if name in runs}


def primary(result: dict[str, Any]) -> float:
    """The bound of the test images by the last model."""
    return float(result["final"]["test"])


def secondary(result: dict[str, Any]) -> float:
    """The bound of the test images by the model with the best bound of validation on the way."""
    return float(result["best"]["test"])


def mean_of_curve(result: dict[str, Any]) -> float:
    """The mean of the bounds of validation images on the way."""
    return float(np.mean(result["curve"]["bound"]))


def longer(result: dict[str, Any]) -> float:
    """The bound of the test images by the last model, with longer annealing."""
    return float(result["longer"]["test"])


def spread(values: Any) -> str:
    """Mean and standard error."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return f"{values.mean():.2f}"
    return f"{values.mean():.2f} +- {values.std(ddof=1) / len(values) ** 0.5:.2f}"


def schedules(searches: dict[str, dict[str, Any]]) -> str:
    """The bound of validation images for each schedule."""
    found = {k: v for k, v in searches.items() if k.startswith("schedule-")}
    rows = [
        [
            r["schedule"],
            f"{r['final']['validation']:.2f}",
            f"{max(r['curve']['bound']):.2f}",
            f"{r['final']['forward']:.2f}, {r['final']['reverse']:.2f}",
            f"{100 * r['final']['constant h1']:.0f} %, {100 * r['final']['constant h2']:.0f} %",
        ]
        for r in found.values()
    ]
    columns = ["rate", "bound of validation", "best on the way", "log Z, up and down", "constant"]
    return table(columns, rows) if rows else ""


def floors(searches: dict[str, dict[str, Any]]) -> str:
    """Use of the ladder for each floor that was tried."""
    columns = ["floor", "least visited rung", "round trips of a chain", "hops", "swaps"]
    rows = [
        [k.removeprefix("floor-"), *use(v["ladder"], 4, 50)]
        for k, v in searches.items()
        if k.startswith("floor-")
    ]
    return table(columns, rows) if rows else ""


def use(found: dict[str, Any], part: int, chains: int) -> list[str]:
    """Least share of a rung in an entry, round trips of a chain, and acceptance, without the first
    entries, one of `part`.
    """
    begin = len(found["round_trips"]) // part
    least = np.array(found["occupancy"][begin:]).min()
    swaps = found.get("swap_acceptance", [])[begin:]
    return [
        f"{100 * least:.2f} %",
        f"{sum(found['round_trips'][begin:]) / chains:.2f}",
        f"{100 * np.mean(found['hop_acceptance'][begin:]):.1f} %",
        f"{100 * np.mean(swaps):.1f} %" if swaps else "",
    ]


def bounds(runs: Runs) -> str:
    """The bounds of each phase."""
    rows, counts = [], [r["final"]["temperatures"] for v in runs.values() for r in v.values()]
    for name, by_seed in runs.items():
        results = list(by_seed.values())
        ends = [r["final"] for r in results]
        gaps = [abs(e["forward"] - e["reverse"]) for e in ends]
        constant = [100 * np.mean([e[f"constant {k}"] for e in ends]) for k in ("h1", "h2")]
        rows.append(
            [
                name,
                str(len(results)),
                spread([primary(r) for r in results]),
                f"{min(map(primary, results)):.2f} to {max(map(primary, results)):.2f}",
                spread([secondary(r) for r in results]),
                spread([mean_of_curve(r) for r in results]),
                f"{max(e['error'] for e in ends):.2f}",
                f"{max(gaps):.2f}",
                str(sum(e["temperatures"] > min(counts) for e in ends)),
                f"{constant[0]:.0f} %, {constant[1]:.0f} %",
                f"{np.median([r['ms'] for r in results]):.1f}",
            ]
        )
    columns = ["phase", "seeds", "test bound", "least and most", "best on the way", "mean of curve"]
    columns += ["error of log Z", "largest gap", "longer", "constant", "ms"]
    return table(columns, rows)


def longer_bounds(runs: Runs) -> str:
    """The bounds of each phase by longer annealing, and the change of log Z."""
    rows = []
    for name, by_seed in runs.items():
        results = list(by_seed.values())
        if not results:
            continue
        more = [r["longer"]["log_z"] - r["final"]["log_z"] for r in results]
        gaps = [abs(r["longer"]["forward"] - r["longer"]["reverse"]) for r in results]
        rows.append(
            [
                name,
                str(len(results)),
                spread([longer(r) for r in results]),
                spread(more),
                f"{max(r['longer']['error'] for r in results):.2f}",
                f"{max(gaps):.2f}",
            ]
        )
    columns = ["phase", "seeds", "test bound", "change of log Z", "error of log Z", "largest gap"]
    return table(columns, rows) if rows else ""


def paired(runs: Runs, name: str, control: str, value: Any) -> np.ndarray:
    """Differences of the seeds that both have."""
    mine, theirs = runs.get(name, {}), runs.get(control, {})
    return np.array([value(mine[s]) - value(theirs[s]) for s in sorted(set(mine) & set(theirs))])


def holm(p: np.ndarray) -> np.ndarray:
    """p-values corrected by Holm's method."""
    order, n = np.argsort(p), len(p)
    found = np.empty(n)
    found[order] = np.minimum(np.maximum.accumulate(p[order] * (n - np.arange(n))), 1.0)
    return found


def smallest(sd: float, n: int, level: float) -> float:
    """The smallest difference that a t test of n pairs shows with probability POWER."""
    limit = stats.t.ppf(1 - level / 2, n - 1)
    # The estimate of the sd divided by the sd, at the middle of 2,000 equally likely parts.
    noise = np.sqrt(stats.chi2.ppf((np.arange(2000) + 0.5) / 2000, n - 1) / (n - 1))

    def missing(shift: float) -> float:
        shown = stats.norm.cdf(shift - limit * noise) + stats.norm.cdf(-shift - limit * noise)
        return float(shown.mean() - POWER)

    return float(optimize.brentq(missing, 0.0, 20 * limit)) * sd / n**0.5


def differences(runs: Runs, controls: dict[str, str], value: Any) -> str:
    """The comparison of each phase with its control."""
    planned = [(k, c) for k, c in controls.items() if len(paired(runs, k, c, value)) > 1]
    if not planned:
        return ""
    found = [paired(runs, *pair, value) for pair in planned]
    p = np.array([stats.ttest_1samp(d, 0.0).pvalue for d in found])
    rows = []
    for (name, control), d, one, corrected in zip(planned, found, p, holm(p), strict=True):
        sd, n = float(d.std(ddof=1)), len(d)
        half = float(stats.t.ppf(0.975, n - 1)) * sd / n**0.5
        rows.append(
            [
                name,
                control,
                f"{d.mean():+.2f} +- {sd / n**0.5:.2f}",
                f"{d.mean() - half:+.2f} to {d.mean() + half:+.2f}",
                f"{one:.3f}",
                f"{corrected:.3f}",
                f"{smallest(sd, n, LEVEL):.2f}, {smallest(sd, n, LEVEL / len(planned)):.2f}",
            ]
        )
    columns = ["phase", "control", "difference", "95 % interval", "p", "p by Holm"]
    return table([*columns, "smallest that would show"], rows)


def matrix(runs: Runs) -> str:
    """Differences of each phase from both kinds of SAP, with intervals and without tests."""
    rows = []
    for name in runs:
        line = [name]
        for value in (primary, mean_of_curve):
            for control in ("SAP 100", "SAP 200"):
                d = paired(runs, name, control, value)
                line.append("" if name == control or not len(d) else spread(d))
        rows.append(line)
    columns = ["phase", "test bound: less SAP 100", "less SAP 200"]
    return table([*columns, "mean of curve: less SAP 100", "less SAP 200"], rows)


def ladders(runs: Runs) -> str:
    """Use of the ladders: entries of the last quarter, and round trips of the whole run."""
    rows = []
    for name, by_seed in runs.items():
        found = [r["ladder"] for r in by_seed.values() if r["ladder"]]
        if not found or name not in CONTROLS:
            continue
        chains = 50 if "50+50" in name else 100
        late = {
            k: np.array([f[k][3 * len(f[k]) // 4 :] for f in found])
            for k in found[0]
            if k != "round_trips"
        }
        shares = late["occupancy"].mean(axis=(0, 1))
        trips = np.array([f["round_trips"] for f in found])
        swaps = late.get("swap_acceptance")
        rows.append(
            [
                name,
                f"{np.count_nonzero(late['occupancy'].mean(axis=1), axis=1).min()}"
                f" of {len(shares)}",
                f"{100 * shares[0]:.1f} %",
                f"{100 * shares[-1]:.1f} %",
                f"{100 * late['occupancy'].min():.2f} %",
                f"{trips.sum(axis=1).mean() / chains:.1f}",
                f"{trips[:, 3 * trips.shape[1] // 4 :].sum(axis=1).mean() / chains:.2f}",
                f"{100 * late['hop_acceptance'].mean():.1f} %",
                "" if swaps is None else f"{100 * swaps.mean():.1f} %",
            ]
        )
    columns = ["phase", "rungs visited", "at beta = 1", "at 0.9", "least in an entry"]
    columns += ["round trips of a chain", "in the last quarter", "hops", "swaps"]
    return table(columns, rows) if rows else ""


def checks(out: Path, runs: Runs) -> str:
    """The checks of the models of the first seed."""
    rows = []
    for path in sorted(out.glob("checks-*.json")):
        found, title = json.loads(path.read_text()), path.stem.removeprefix("checks-")
        mine = json.loads((out / f"{title}.json").read_text())
        long = mine.get("longer", mine["final"])
        correlation, how = found["correlation"], "yes" if found["agreed"] else "no"
        rows.append(
            [
                mine["name"],
                f"{mine['final']['forward']:.2f}, {mine['final']['reverse']:.2f}",
                f"{long['forward']:.2f}, {long['reverse']:.2f}, {long['error']:.2f}",
                f"{found['log_z']:.2f} +- {found['error']:.2f}",
                f"{found['references']}, {'exact draws' if found['exact'] else how}",
                *(", ".join(f"{c:.2f}" for c in correlation[beta]) for beta in ("1", "0.9")),
            ]
        )
    order = list(runs)
    rows.sort(key=lambda row: order.index(row[0]))
    columns = [
        "phase",
        "log Z, up and down",
        "longer: up, down, error",
        "highest of all runs",
        "runs, confirmed",
    ]
    columns += ["correlation after 10, 100, 1,000 sweeps at 1", "at 0.9"]
    return table(columns, rows) if rows else ""


def figure(runs: Runs, path: Path) -> None:
    """Bounds on the way and at the end, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shape = {"figsize": (11, 4.5), "layout": "constrained", "width_ratios": (3, 2)}
    picture, (left, right) = plt.subplots(1, 2, **shape)
    styles = {"SAP": "-", "CAS": "--", "Fas": ":", "Tra": "-."}
    for i, (name, by_seed) in enumerate(runs.items()):
        curves = np.array([r["curve"]["bound"] for r in by_seed.values()])
        update = next(iter(by_seed.values()))["curve"]["update"]
        color, ends = f"C{i}", [primary(r) for r in by_seed.values()]
        left.plot(update, curves.mean(axis=0), styles[name[:3]], color=color, label=name)
        right.plot(ends, np.full(len(ends), -i), "o", ms=4, color=color, alpha=0.6)
        right.plot([np.mean(ends)], [-i], "|", ms=16, mew=2, color=color)
    ends = [r["curve"]["bound"][-1] for by_seed in runs.values() for r in by_seed.values()]
    low = min(np.mean([r["curve"]["bound"][2] for r in v.values()]) for v in runs.values())
    left.set(xlabel="updates", ylabel="bound of validation images (nats), mean of seeds")
    left.set(ylim=(max(low, min(ends) - 60), max(ends) + 3))
    left.legend(fontsize=7)
    right.set(xlabel="bound of test images at the end, nats")
    right.locator_params(axis="x", nbins=5)
    right.set_yticks([-i for i in range(len(runs))], list(runs), fontsize=7)
    picture.savefig(path, dpi=110)
    plt.close(picture)
