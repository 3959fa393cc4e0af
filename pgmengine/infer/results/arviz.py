"""Results for ArviZ and pandas: the same numbers, with names for their axes.

Samples become the group posterior, with the dimensions (chain, draw, row, units[, states]). The
labels of units and states are coordinates. A variable of the model has its own entry, without a
dimension for units. Statistics with an axis of draws become the group sample_stats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array
from pgmengine.base.work.interrupts import whole_import
from pgmengine.evidence import frames
from pgmengine.evidence.frames import Shown, component_names, different_texts, shown_units
from pgmengine.evidence.target import Target
from pgmengine.infer.results.axes import Axis
from pgmengine.infer.results.by_name import asked

# The axes of statistics that have a value for each draw.
AXES_OF_DRAWS = (Axis.CHAIN, Axis.DRAW, Axis.ROW)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from pgmengine.infer.results.result import Result


def to_arviz(result: Result) -> xr.DataTree:
    """Return the samples as an ArviZ DataTree; see Result.to_arviz."""
    with needed_by("to_arviz()"), whole_import():
        from arviz_base import from_dict

    target = asked(result.target)
    # This raises NotAsked if the result has no samples.
    samples, shown = result.raw("samples"), shown_units(target.structure)
    taken = {"chain", "draw", "row", *(dim for one in shown for dim in _dims(one))}
    for one in shown:
        if one.name in taken or "/" in one.name:
            why = "is the name of a dimension" if one.name in taken else "has a /"
            what = "variable" if one.variable else "layer"
            raise PgmError(
                f"{what} {one.name!r} cannot be a variable of ArviZ: its name {why}; rename the "
                f"{what}"
            )
    energy = result.stats.get("energy")
    chains = 1 if energy is None else len(energy)
    free = {one.name: target.free[one.layer.name][:, list(one.units)] for one in shown}
    posterior = {
        one.name: _by_chain(_of_units(samples[one.layer.name], one, 2), chains)
        for one in shown
        if free[one.name].any()
    }
    dims = {one.name: ["row", *_dims(one)] for one in shown}
    groups = {"posterior": posterior}
    stats = _sample_stats(result, energy)
    dims |= {name: ["row"] for name in stats}
    if stats:
        groups["sample_stats"] = stats
    seen = {
        one.name: _of_units(_observed(target, one.layer.name), one, 1)
        for one in shown
        if not free[one.name].all()
    }
    if seen:
        groups["observed_data"] = seen
    coords = {key: value for one in shown for key, value in _coords(one).items()}
    tree: xr.DataTree = from_dict(
        groups, dims=dims, coords=coords | {"row": np.arange(target.rows)}, check_conventions=False
    )
    if "levels" in result.stats:
        tree["tempering"] = _tempering(result, target.rows)
    tree.attrs |= {
        "inference_library": "pgmengine",
        "method": repr(result.method),
        "kind": result.kind,
    }
    return tree


def to_frame(result: Result) -> pd.DataFrame:
    """Return probabilities, means and evidence as a DataFrame; see Result.to_frame."""
    target = asked(result.target)
    # This raises NotAsked if the result has no marginals.
    return frames.to_frame(target.structure, result.raw("mean"), result.raw("prob"), target.rows)


def _sample_stats(result: Result, energy: Array | None) -> dict[str, Array]:
    """Return the statistics of each draw, (chains, draws, rows)."""
    if energy is None:
        return {}
    declared = getattr(result.method, "statistics", {})
    of_draws = [name for name, axes in declared.items() if axes == AXES_OF_DRAWS]
    out = {"energy": energy, "adaptive": np.zeros(energy.shape, dtype=bool)}
    if "levels" in result.stats:
        # All draws are at beta = 1, the last rung.
        out["level"] = np.full(energy.shape, result.stats["betas"].shape[-1] - 1)
    return out | {name: result.stats[name] for name in of_draws if name in result.stats}


def _tempering(result: Result, rows: int) -> xr.DataTree:
    """Return the rung of every chain at every sweep, adaptive or not, as the variable level."""
    with needed_by("to_arviz()"), whole_import():
        import xarray as xr

    # (sweeps, rows, chains)
    levels = result.stats["levels"]
    sizes = {"chain": levels.shape[2], "sweep": len(levels), "row": rows}
    variables = {
        "level": (tuple(sizes), levels.transpose(2, 0, 1)),
        "adaptive": ("sweep", result.stats["adaptive"]),
    }
    coords = {name: np.arange(size) for name, size in sizes.items()}
    return xr.DataTree(xr.Dataset(variables, coords=coords))


def _by_chain(samples: Array, chains: int) -> Array:
    """Return samples (chains * draws, rows, ...) as (chains, draws, rows, ...)."""
    return samples.reshape(chains, -1, *samples.shape[1:])


def _of_units(values: Array, shown: Shown, axis: int) -> Array:
    """Return values of the units that are shown; a variable has no axis of units."""
    return values.take(shown.units[0], axis=axis) if shown.variable else values


def _dims(shown: Shown) -> list[str]:
    """Return the names of the dimensions of a layer or a variable."""
    units = [] if shown.variable else [f"{shown.name}_unit"]
    return units + ([f"{shown.name}_state"] if shown.layer.unit.width > 1 else [])


def _coords(shown: Shown) -> dict[str, list[Any]]:
    """Return the labels of units and states by dimension."""
    labels = [] if shown.variable else [list(shown.labels)]
    states = component_names(shown.layer)
    if not all(isinstance(name, (str, int, float)) for name in states):
        # A coordinate of tuples would have two axes.
        states = list(different_texts(states))
    return dict(zip(_dims(shown), [*labels, states], strict=False))


def _observed(target: Target, name: str) -> Array:
    """Return the evidence (rows, size[, k]), with NaN where there is none."""
    layer = target.structure.layers[name]
    hidden = target.components(name, target.free[name])
    return layer.shaped(np.where(hidden, np.nan, target.evidence.values[name]))
