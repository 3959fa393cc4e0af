"""Checkpoints: everything that a fit needs to go on, in one .safetensors file that is replaced as a
whole.
"""

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

from pgmengine.base.errors import PgmError
from pgmengine.base.files import SUM, read_tensors, writable, write_tensors
from pgmengine.base.types import Array
from pgmengine.graph.declaration import declaration_of
from pgmengine.graph.model import Model
from pgmengine.graph.weights import numbers, pattern
from pgmengine.learn.described import described, digest

FORMAT = "pgmengine-checkpoint-4"
OLD_SUM = "pgmengine-checkpoint-3"  # whose checksum left out dtypes
LEFT = 60.0  # seconds after which nobody is writing a file any more


def fingerprint(
    model: Model, data: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What a checkpoint must share with the fit that resumes from it."""
    shapes = {name: list(np.shape(value)) for name, value in data.items()}
    return {
        "model": digest(json.dumps(declaration_of(model))),
        "parameters": digest_of(model),
        "data": shapes,
        **{name: described(value) for name, value in settings.items()},
    }


def digest_of(model: Model) -> str:
    """Of the parameters of a model, and where they may be other than 0."""
    params = hashlib.sha256()
    for name, value in model.params.items():
        params.update(name.encode() + numbers(value).tobytes() + pattern(value))
    return params.hexdigest()[:16]


def place_of(path: str | Path) -> Path:
    """Where a checkpoint is, or will be: symbolic links followed; PgmError where it cannot be."""
    place = writable(path)
    if not place.parent.is_dir():
        raise PgmError(f"checkpoint: there is no folder {place.parent}")
    return place


def write(
    path: Path, mark: Mapping[str, Any], arrays: Mapping[str, Any], notes: Mapping[str, Any]
) -> None:
    """Replace the checkpoint as a whole."""
    tensors = {name: np.asarray(value) for name, value in arrays.items()}
    text = json.dumps({"mark": mark, "notes": notes}, default=_plain)
    write_tensors(path, tensors, {"format": FORMAT, "text": text})


def read(
    path: str | Path, mark: Mapping[str, Any]
) -> tuple[dict[str, Array], dict[str, Any]] | None:
    """(arrays, notes) of a checkpoint, None if there is none; PgmError if it belongs to another
    fit.
    """
    place = place_of(path)
    _clear(place)
    if not place.exists():
        return None
    try:
        arrays, metadata = read_tensors(place)
    except PgmError as error:
        raise PgmError(f"checkpoint: not a readable checkpoint: {error}") from None
    form = metadata.get("format")
    if form not in (FORMAT, OLD_SUM):
        raise PgmError(
            f"{path}: not a checkpoint of pgmengine (format {form!r}, expected {FORMAT!r})"
        )
    whole = (
        SUM in metadata
        if form == FORMAT
        else metadata.get("sum") == _old_sum(metadata.get("text", ""), arrays)
    )
    if not whole:
        raise PgmError(
            f"{path}: not a readable checkpoint: it is damaged; remove it to start again"
        )
    theirs, notes = _texts(path, metadata.get("text", ""))
    wanted = json.loads(json.dumps(dict(mark), default=_plain))
    other = [name for name in wanted if theirs.get(name) != wanted[name]]
    if other:
        raise PgmError(
            f"{path}: belongs to another fit, which differs in {', '.join(other)}; give another path, or "
            "remove it to start again"
        )
    return arrays, notes


def _texts(path: str | Path, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The mark of the fit, and the notes that learning goes on from."""
    try:
        found = json.loads(text)
        theirs, notes = dict(found["mark"]), dict(found["notes"])
        notes = {
            "rng": dict(notes["rng"]),
            "by": str(notes["by"]),
            "history": _history(notes["history"]),
        }
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise PgmError(
            f"{path}: not a readable checkpoint: its notes are damaged "
            f"({type(error).__name__}: {error}); "
            "remove it to start again"
        ) from None
    return theirs, notes


def _history(found: Any) -> dict[str, list[Any]]:
    """What was monitored, name -> list of (update, value)."""
    return {
        name: [
            (int(update), value if isinstance(value, list) else float(value))
            for update, value in pairs
        ]
        for name, pairs in found.items()
    }


def _clear(path: Path) -> None:
    """Remove what killed processes have left beside a checkpoint; a file that is young may be of
    one that is alive.
    """
    name = re.compile(rf"{re.escape(path.name)}\.\d+\.\d+\.part")
    for left in path.parent.iterdir():
        if name.fullmatch(left.name) and time.time() - left.stat().st_mtime > LEFT:
            left.unlink(missing_ok=True)


def _old_sum(text: str, arrays: Mapping[str, Array]) -> str:
    """The checksum that the format before this one had, of everything but dtypes."""
    found = zlib.crc32(text.encode())
    for name in sorted(arrays):
        found = zlib.crc32(
            arrays[name].tobytes(), zlib.crc32(f"{name}{arrays[name].shape}".encode(), found)
        )
    return f"{found:08x}"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else repr(value)
