"""Pictures (extra "plots"): every function draws on `ax`, or on new axes, and returns the Axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array
from pgmengine.diagnostics import autocorrelation_function
from pgmengine.graph.model import Model


def _axes(ax: Any, size: tuple[float, float] = (6.0, 4.0)) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="tight")[1]


def images(
    rows: Any, shape: tuple[int, int], columns: int = 10, ax: Any = None, **imshow: Any
) -> Any:
    """Rows (n, pixels) as a mosaic of images with `columns` in a line; NaN is light blue.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> ax = pgm.plots.images(np.eye(16), (4, 4), columns=4)
    """
    from matplotlib.pyplot import get_cmap

    rows = np.atleast_2d(np.asarray(rows, dtype=np.float64))
    if not rows.size:
        raise PgmError("there are no rows to be shown")
    if rows.shape[1] != shape[0] * shape[1]:
        raise PgmError(
            f"rows have {rows.shape[1]} pixels, images of shape {shape} have {shape[0] * shape[1]}"
        )
    columns = min(columns, len(rows))
    seen = rows[np.isfinite(rows)]
    low, high = (
        imshow.pop("vmin", seen.min(initial=np.inf)),
        imshow.pop("vmax", seen.max(initial=-np.inf)),
    )
    low, high = (
        (low, high) if low < high else (min(low, 0.0), max(high, 1.0)) if len(seen) else (0.0, 1.0)
    )
    frame = 3 * high - 2 * low  # above the scale: light grey
    framed = [np.pad(row.reshape(shape), 1, constant_values=frame) for row in rows]
    framed += [np.full((shape[0] + 2, shape[1] + 2), frame)] * (-len(framed) % columns)
    mosaic = np.block([framed[i : i + columns] for i in range(0, len(framed), columns)])
    ax = _axes(ax, (max(0.7 * columns, 3.0), max(0.7 * columns, 3.0) * len(framed) / columns**2))
    colors = get_cmap(imshow.pop("cmap", "gray_r")).with_extremes(bad="#bcd3ec", over="#e8e8e8")
    scale = {} if "norm" in imshow else {"vmin": low, "vmax": high}
    ax.imshow(mosaic, **({"cmap": colors, "interpolation": "nearest"} | scale | imshow))
    ax.set_axis_off()
    return ax


def receptive_fields(
    model: Model, coupling: str, shape: tuple[int, int], columns: int = 10, ax: Any = None
) -> Any:
    """The weights of every unit of the second layer of a coupling ("v-h") as images over the units
    of the first.

    For an arrow ("h->v") those of every parent over its children. Blue is negative, red positive.

    >>> import pgmengine as pgm
    >>> ax = pgm.plots.receptive_fields(pgm.rbm(16, 6, rng=0), "v-h", (4, 4))
    """
    key = f"{coupling}.weight"
    if key not in model.params:
        known = [c.key for c in model.structure.couplings]
        raise PgmError(f"coupling {coupling!r} is unknown; the couplings are {listed(known)}")
    weight = model.params[key]
    dense = weight.toarray() if hasattr(weight, "toarray") else weight
    fields = dense if "->" in coupling else dense.T
    top = float(np.abs(fields).max(initial=1e-300))
    return images(fields, shape, columns, ax, cmap="RdBu_r", vmin=-top, vmax=top)


def samples(
    result: Any,
    layer: str,
    shape: tuple[int, int],
    times: int = 12,
    chains: int = 6,
    ax: Any = None,
) -> Any:
    """Draws of a layer as images: a line for each chain (independent draws are one), time to the
    right.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(16, 4, rng=0), want=("samples",), method=pgm.MCMC(draws=50), rng=0)
    >>> ax = pgm.plots.samples(r, "v", (4, 4))
    """
    drawn = result.samples[layer][:, 0]
    by_chain = drawn.reshape(len(result.stats.get("energy", (0,))), -1, drawn.shape[1])
    picked = by_chain[
        :chains, np.linspace(0, by_chain.shape[1] - 1, min(times, by_chain.shape[1])).astype(int)
    ]
    return images(picked.reshape(-1, drawn.shape[1]), shape, picked.shape[1], ax)


def completions(result: Any, layer: str, shape: tuple[int, int], ax: Any = None) -> Any:
    """Evidence above the means that complete it, one column for each row; what is not seen is light
    blue.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> row = np.where(np.arange(16) < 8, 1.0, np.nan)
    >>> ax = pgm.plots.completions(pgm.infer(pgm.rbm(16, 4, rng=0), {"v": row}), "v", (4, 4))
    """
    if result.target is None:
        raise PgmError("only results of pgm.infer know their evidence")
    seen = np.where(result.target.free[layer], np.nan, result.target.evidence.values[layer])
    mean = np.reshape(result.mean[layer], seen.shape)
    low, high = min(0.0, mean.min()), max(1.0, mean.max())
    return images(np.concatenate((seen, mean)), shape, len(seen), ax, vmin=low, vmax=high)


def history(fits: Any, name: str, ax: Any = None, label: str | None = None) -> Any:
    """A monitored value against updates; of several fits (or histories) the mean, with a band of
    two standard errors.

    >>> import pgmengine as pgm
    >>> x = pgm.datasets.bars_and_stripes().x_train
    >>> f = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=20, progress=False)
    >>> ax = pgm.plots.history(f, "weight_norm")
    """
    several = list(fits) if isinstance(fits, (list, tuple)) else [fits]
    histories = [getattr(f, "history", f) for f in several]
    if missing := [h for h in histories if name not in h]:
        raise PgmError(f"{name!r} was not monitored; there is {', '.join(missing[0])}")
    found: list[Mapping[str, Array]] = [h[name] for h in histories]
    ax = _axes(ax)
    values = np.stack([np.asarray(h["value"], dtype=np.float64) for h in found])
    mean = values.mean(axis=0)
    line = ax.plot(found[0]["update"], mean, label=label or name)[0]
    if len(found) > 1:
        error = 2 * values.std(axis=0, ddof=1) / np.sqrt(len(found))
        ax.fill_between(
            found[0]["update"], mean - error, mean + error, alpha=0.25, color=line.get_color()
        )
    ax.set(xlabel="updates", ylabel=name)
    return ax


def levels(result: Any, row: int = 0, chain: int = 0, ax: Any = None) -> Any:
    """The inverse temperature of one chain of SimulatedTempering over time; the adaptive part is
    shaded.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(4, 2, rng=0), method=pgm.SimulatedTempering(draws=100), rng=0)
    >>> ax = pgm.plots.levels(r)
    """
    if "levels" not in result.stats:
        raise PgmError("levels are known to results of SimulatedTempering")
    ax = _axes(ax)
    betas = np.atleast_2d(result.stats["betas"])
    levels = result.stats["levels"][:, row, chain]
    ax.step(np.arange(len(levels)), betas[row if len(betas) > 1 else 0, levels], lw=0.7)
    ax.axvspan(0, int(np.sum(result.stats["adaptive"])), alpha=0.15, color="gray")
    ax.set(xlabel="sweep", ylabel="beta")
    return ax


def autocorrelation(series: Any, lags: int = 100, ax: Any = None, label: str | None = None) -> Any:
    """The autocorrelation function of a series (draws,), or of the energies of the first row, the
    mean over chains.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> ax = pgm.plots.autocorrelation(np.random.default_rng(0).normal(size=500))
    """
    if hasattr(series, "stats") and "energy" not in series.stats:
        raise PgmError(
            f"a Result of {type(series.method).__name__} has no chains whose energies are known"
        )
    chains = (
        [np.asarray(series)]
        if not hasattr(series, "stats")
        else list(series.stats["energy"][:, :, 0])
    )
    curves = np.array([autocorrelation_function(chain)[: lags + 1] for chain in chains])
    ax = _axes(ax)
    ax.plot(curves.mean(axis=0), label=label)
    ax.axhline(0.0, color="gray", lw=0.5)
    ax.set(xlabel="lag, sweeps", ylabel="autocorrelation of the energy")
    return ax


def bound_gap(bound: Any, exact: Any, ax: Any = None, bins: int = 40) -> Any:
    """Histogram of the relative error of bounds, bound / exact - 1 in per cent (figure 5 of system
    4).

    >>> import pgmengine as pgm
    >>> ax = pgm.plots.bound_gap([-4.1, -4.3], [-4.0, -4.2])
    """
    ax = _axes(ax)
    ax.hist(100 * (np.asarray(bound) / np.asarray(exact) - 1), bins=bins)
    ax.set(xlabel="relative error of the bound, %", ylabel="count")
    return ax


def graph(model: Model, ax: Any = None) -> Any:
    """Draw the layers as boxes with their units, parents above children.

    Arrows are directed, lines undirected. Layers that no arrow puts in order keep the order in
    which they were declared, from the bottom up.

    >>> import pgmengine as pgm
    >>> ax = pgm.plots.graph(pgm.dbn([12, 8, 4], rng=0))
    """
    s, ax = model.structure, _axes(ax, (4.0, 0.9 * len(model.structure.layers)))
    inside = {c.a for c in s.couplings if c.a == c.b}
    place = {name: (0.0, float(i)) for i, name in enumerate(s.children_first)}
    box = {"boxstyle": "round,pad=0.5", "facecolor": "#eef3fa", "edgecolor": "#35618f"}
    for c in s.couplings:
        if c.a == c.b:
            continue
        bend = 0.0 if abs(place[c.a][1] - place[c.b][1]) == 1 else 0.5
        ax.annotate(
            "",
            place[c.b],
            place[c.a],
            arrowprops={
                "arrowstyle": "-|>" if c.directed else "-",
                "shrinkA": 16,
                "shrinkB": 16,
                "color": "#35618f",
                "connectionstyle": f"arc3,rad={bend}",
            },
        )
    for name, layer in s.layers.items():
        own = ", coupled inside" if name in inside else ""
        ax.text(
            *place[name],
            f"{name}: {layer.size} {layer.unit!r}{own}",
            ha="center",
            va="center",
            bbox=box,
        )
    ax.set(xlim=(-1.5, 1.5), ylim=(-0.5, len(place) - 0.5))
    ax.set_axis_off()
    return ax
