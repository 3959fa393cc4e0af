"""Results for ArviZ and pandas: the same numbers, with names for their axes.

Samples become the group posterior with the dimensions (chain, draw, row, units[, states]); units
and states have their labels as coordinates. Statistics with an axis of draws are sample_stats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.graph import frames
from pgmengine.graph.frames import component_names, unit_names
from pgmengine.graph.layer import Layer
from pgmengine.graph.target import Target
from pgmengine.infer.axes import Axis

# The axes of a statistic of each draw.
OF_DRAWS = (Axis.CHAIN, Axis.DRAW, Axis.ROW)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from pgmengine.infer.result import Result


def to_arviz(result: Result) -> xr.DataTree:
    """Return the samples as an ArviZ DataTree; see Result.to_arviz."""
    from arviz_base import from_dict

    target = _target(result)
    # Raises NotAsked without samples.
    layers, samples = target.structure.layers, result.samples
    taken = {"chain", "draw", "row", *(dim for layer in layers.values() for dim in _dims(layer))}
    for name in layers:
        if name in taken or "/" in name:
            why = "is the name of a dimension" if name in taken else "has a /"
            raise PgmError(
                f"layer {name!r} cannot be a variable of ArviZ: its name {why}; rename the layer"
            )
    energy = result.stats.get("energy")
    chains = 1 if energy is None else len(energy)
    posterior = {
        name: _by_chain(v, chains) for name, v in samples.items() if target.free[name].any()
    }
    dims = {name: ["row", *_dims(layers[name])] for name in layers}
    groups = {"posterior": posterior}
    stats = _sample_stats(result, energy)
    dims |= {name: ["row"] for name in stats}
    if stats:
        groups["sample_stats"] = stats
    seen = {name: _observed(target, name) for name in layers if not target.free[name].all()}
    if seen:
        groups["observed_data"] = seen
    coords = {key: value for layer in layers.values() for key, value in _coords(layer).items()}
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
    """Return means and evidence as a DataFrame; see Result.to_frame."""
    target = _target(result)
    return frames.to_frame(target.structure, result.mean, target.rows)


def _target(result: Result) -> Target:
    """Return the target of a result; raise PgmError for results of a method's own run."""
    if result.target is None:
        raise PgmError(
            "only results of pgm.infer know their model and evidence; this is a result of a "
            "method's run"
        )
    return result.target


def _sample_stats(result: Result, energy: Array | None) -> dict[str, Array]:
    """Return the statistics of each draw, (chains, draws, rows)."""
    if energy is None:
        return {}
    declared = getattr(result.method, "statistics", {})
    of_draws = [name for name, axes in declared.items() if axes == OF_DRAWS]
    out = {"energy": energy, "adaptive": np.zeros(energy.shape, dtype=bool)}
    if "levels" in result.stats:
        # All draws are at beta = 1, the last rung.
        out["level"] = np.full(energy.shape, result.stats["betas"].shape[-1] - 1)
    return out | {name: result.stats[name] for name in of_draws if name in result.stats}


def _tempering(result: Result, rows: int) -> xr.DataTree:
    """Return the rung of every chain at every sweep, adaptive or not, as the variable level."""
    import xarray as xr

    # (sweeps, rows, chains)
    levels = result.stats["levels"]
    dims = {
        "chain": np.arange(levels.shape[2]),
        "sweep": np.arange(len(levels)),
        "row": np.arange(rows),
    }
    return xr.DataTree(
        xr.Dataset(
            {
                "level": (tuple(dims), levels.transpose(2, 0, 1)),
                "adaptive": ("sweep", result.stats["adaptive"]),
            },
            coords=dims,
        )
    )


def _by_chain(samples: Array, chains: int) -> Array:
    """Return samples (chains * draws, rows, ...) as (chains, draws, rows, ...)."""
    return samples.reshape(chains, -1, *samples.shape[1:])


def _dims(layer: Layer) -> list[str]:
    """Return the names of a layer's dimensions."""
    return [f"{layer.name}_unit"] + ([f"{layer.name}_state"] if layer.unit.width > 1 else [])


def _coords(layer: Layer) -> dict[str, list[Any]]:
    """Return the labels of a layer's units and states by dimension."""
    return dict(zip(_dims(layer), (unit_names(layer), component_names(layer)), strict=False))


def _observed(target: Target, name: str) -> Array:
    """Return the evidence (rows, size[, k]), with NaN where there is none."""
    layer = target.structure.layers[name]
    hidden = target.components(name, target.free[name])
    return layer.shaped(np.where(hidden, np.nan, target.evidence.values[name]))
