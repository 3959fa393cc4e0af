"""Results for ArviZ and pandas: the same numbers with names."""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.errors import PgmError
from pgmengine.layer import Layer
from pgmengine.target import Target

Array = np.ndarray


def to_arviz(result: Any) -> Any:
    """See Result.to_arviz."""
    from arviz_base import from_dict

    target = _target(result)
    layers, samples = target.structure.layers, result.samples  # NotAsked without samples
    energy = result.stats.get("energy")
    chains = 1 if energy is None else len(energy)
    posterior = {name: _by_chain(v, chains) for name, v in samples.items() if target.free[name].any()}
    dims = {name: ["row", *_dims(layers[name])] for name in layers}
    groups = {"posterior": posterior}
    if energy is not None:
        groups["sample_stats"], dims["energy"] = {"energy": energy}, ["row"]
    seen = {name: _observed(target, name) for name in layers if not target.free[name].all()}
    if seen:
        groups["observed_data"] = seen
    coords = {key: value for layer in layers.values() for key, value in _coords(layer).items()}
    tree = from_dict(groups, dims=dims, coords=coords | {"row": np.arange(target.rows)}, check_conventions=False)
    tree.attrs |= {"inference_library": "pgmengine", "method": repr(result.method), "kind": result.kind}
    return tree


def to_frame(result: Any) -> Any:
    """See Result.to_frame."""
    import pandas as pd

    target = _target(result)
    parts = {}
    for name, layer in target.structure.layers.items():
        flat = np.reshape(result.mean[name], (target.rows, layer.width))
        for i, label in enumerate(_labels(layer)):
            for k in range(layer.unit.width):
                column = (name, label) if layer.unit.width == 1 else (name, f"{label}[{k}]")
                parts[column] = flat[:, i * layer.unit.width + k]
    frame = pd.DataFrame(parts)
    frame.columns = pd.MultiIndex.from_tuples(frame.columns, names=["layer", "unit"])
    return frame.rename_axis("row")


def _target(result: Any) -> Target:
    if result.target is None:
        raise PgmError("only results of pgm.infer know their model and evidence; this one is of a method's run")
    return result.target


def _by_chain(samples: Array, chains: int) -> Array:
    """(chains * draws, rows, ...) as (chains, draws, rows, ...), the draws of one chain being together."""
    return samples.reshape(chains, -1, *samples.shape[1:])


def _labels(layer: Layer) -> list[Any]:
    return list(range(layer.size)) if layer.labels is None else [str(label) for label in layer.labels]


def _dims(layer: Layer) -> list[str]:
    return [f"{layer.name}_unit"] + ([f"{layer.name}_state"] if layer.unit.width > 1 else [])


def _coords(layer: Layer) -> dict[str, list[Any]]:
    return dict(zip(_dims(layer), (_labels(layer), list(range(layer.unit.width))), strict=False))


def _observed(target: Target, name: str) -> Array:
    """Evidence (rows, size[, k]), NaN where there is none."""
    layer = target.structure.layers[name]
    hidden = target.components(name, target.free[name])
    return layer.shaped(np.where(hidden, np.nan, target.evidence.values[name]))
