"""Checkpoints: everything that a fit needs to go on, in one .safetensors file that is replaced as a whole."""

from __future__ import annotations

import hashlib
import json
import re
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pgmengine.errors import PgmError
from pgmengine.learn.described import described, digest
from pgmengine.model import Model
from pgmengine.store import declaration_of, write_tensors
from pgmengine.weights import numbers, pattern

FORMAT = "pgmengine-checkpoint-3"
LEFT = 60.0  # seconds after which nobody is writing a file any more
Array = np.ndarray


def fingerprint(model: Model, data: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint must share with the fit that resumes from it."""
    shapes = {name: list(np.shape(value)) for name, value in data.items()}
    return {"model": digest(json.dumps(declaration_of(model))), "parameters": digest_of(model), "data": shapes,
            **{name: described(value) for name, value in settings.items()}}


def digest_of(model: Model) -> str:
    """Of the parameters of a model, and where they may be other than 0."""
    params = hashlib.sha256()
    for name, value in model.params.items():
        params.update(name.encode() + numbers(value).tobytes() + pattern(value))
    return params.hexdigest()[:16]


def write(path: str | Path, mark: Mapping[str, Any], arrays: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
    """Replace the checkpoint as a whole."""
    tensors = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    text = json.dumps({"mark": mark, "notes": notes}, default=_plain)
    write_tensors(path, tensors, {"format": FORMAT, "text": text, "sum": _sum(text, tensors)})


def read(path: str | Path, mark: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
    """(arrays, notes) of a checkpoint, None if there is none; PgmError if it belongs to another fit."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).parent.is_dir():
        raise PgmError(f"checkpoint: there is no folder {Path(path).parent}")
    _clear(Path(path))
    if not Path(path).exists():
        return None
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (OSError, SafetensorError) as error:
        raise PgmError(f"{path}: not a readable checkpoint: {error}") from None
    if metadata.get("format") != FORMAT:
        raise PgmError(f"{path}: not a checkpoint of pgmengine (format {metadata.get('format')!r}, expected {FORMAT!r})")
    if metadata.get("sum") != _sum(metadata.get("text", ""), arrays):
        raise PgmError(f"{path}: not a readable checkpoint: it is damaged")
    text = json.loads(metadata["text"])
    wanted = json.loads(json.dumps(dict(mark), default=_plain))
    other = [name for name in wanted if text["mark"].get(name) != wanted[name]]
    if other:
        raise PgmError(f"{path}: belongs to another fit, which differs in {', '.join(other)}; give another path, or "
                       "remove it to start again")
    return arrays, text["notes"]


def _clear(path: Path) -> None:
    """Remove what killed processes have left beside a checkpoint; a file that is young may be of one that is alive."""
    name = re.compile(rf"{re.escape(path.name)}\.\d+\.\d+\.part")
    for left in path.parent.iterdir():
        if name.fullmatch(left.name) and time.time() - left.stat().st_mtime > LEFT:
            left.unlink(missing_ok=True)


def _sum(text: str, arrays: Mapping[str, Array]) -> str:
    """Of everything in a checkpoint."""
    found = zlib.crc32(text.encode())
    for name in sorted(arrays):
        found = zlib.crc32(arrays[name].tobytes(), zlib.crc32(f"{name}{arrays[name].shape}".encode(), found))
    return f"{found:08x}"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else repr(value)
