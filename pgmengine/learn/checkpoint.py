"""Checkpoints: everything that a fit needs to go on, in a .safetensors file replaced as a whole.

The arrays are the parameters and the snapshot of the fit; the text holds the mark of the fit (see
mark.py), the state of the random numbers and the history. A checksum covers all of it.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.files import SUM, read_tensors, writable, write_tensors
from pgmengine.base.types import Array
from pgmengine.learn.mark import JSON

FORMAT = "pgmengine-checkpoint-4"
# The format before, whose checksum left out dtypes.
OLD_SUM = "pgmengine-checkpoint-3"
# Seconds after which nobody is writing a file any more.
LEFT = 60.0

Notes = dict[str, Any]


def place_of(path: str | Path) -> Path:
    """Return the place of a checkpoint, symbolic links followed; PgmError if it cannot be there."""
    place = writable(path)
    if not place.parent.is_dir():
        raise PgmError(f"checkpoint: there is no folder {place.parent}")
    return place


def write(
    path: Path, mark: Mapping[str, JSON], arrays: Mapping[str, Array], notes: Mapping[str, Any]
) -> None:
    """Replace the checkpoint as a whole."""
    tensors = {name: np.asarray(value) for name, value in arrays.items()}
    text = json.dumps({"mark": mark, "notes": notes}, default=_plain)
    write_tensors(path, tensors, {"format": FORMAT, "text": text})


def read(path: str | Path, mark: Mapping[str, JSON]) -> tuple[dict[str, Array], Notes] | None:
    """Return the arrays and notes of a checkpoint, None if there is none.

    PgmError if it is damaged, or belongs to a fit with another mark.
    """
    place = place_of(path)
    _clear(place)
    if not place.exists():
        return None
    try:
        arrays, metadata = read_tensors(place)
    except PgmError as error:
        raise PgmError(f"checkpoint: not a readable checkpoint: {error}") from None
    form, text = metadata.get("format"), metadata.get("text", "")
    if form not in (FORMAT, OLD_SUM):
        raise PgmError(
            f"{path}: not a checkpoint of pgmengine (format {form!r}, expected {FORMAT!r})"
        )
    if not (SUM in metadata if form == FORMAT else metadata.get("sum") == _old_sum(text, arrays)):
        _damaged(path, "it is damaged")
    theirs, notes = _parsed(path, text)
    wanted = json.loads(json.dumps(dict(mark), default=_plain))
    other = [name for name in wanted if theirs.get(name) != wanted[name]]
    if other:
        raise PgmError(
            f"{path}: belongs to another fit, which differs in {', '.join(other)}; give another "
            "path, or remove it to start again"
        )
    return arrays, notes


def _damaged(path: str | Path, why: str) -> NoReturn:
    raise PgmError(f"{path}: not a readable checkpoint: {why}; remove it to start again") from None


def _parsed(path: str | Path, text: str) -> tuple[dict[str, JSON], Notes]:
    """Return the mark of the fit, and the notes that learning goes on from."""
    try:
        found = json.loads(text)
        mark, notes = dict(found["mark"]), found["notes"]
        history = {
            name: [(int(u), v if isinstance(v, list) else float(v)) for u, v in pairs]
            for name, pairs in notes["history"].items()
        }
        return mark, {"rng": dict(notes["rng"]), "by": str(notes["by"]), "history": history}
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        _damaged(path, f"its notes are damaged ({type(error).__name__}: {error})")


def _clear(path: Path) -> None:
    """Remove files that killed processes have left beside a checkpoint.

    A young file may belong to a process that is alive.
    """
    name = re.compile(rf"{re.escape(path.name)}\.\d+\.\d+\.part")
    for left in path.parent.iterdir():
        if name.fullmatch(left.name) and time.time() - left.stat().st_mtime > LEFT:
            left.unlink(missing_ok=True)


def _old_sum(text: str, arrays: Mapping[str, Array]) -> str:
    """Return the checksum of the format before, of everything but dtypes."""
    found = zlib.crc32(text.encode())
    for name in sorted(arrays):
        found = zlib.crc32(
            arrays[name].tobytes(), zlib.crc32(f"{name}{arrays[name].shape}".encode(), found)
        )
    return f"{found:08x}"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else repr(value)
