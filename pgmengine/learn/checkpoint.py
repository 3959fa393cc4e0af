"""Checkpoints: everything that a fit needs to go on, in one .safetensors file that is replaced as a whole."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from pgmengine.errors import PgmError
from pgmengine.model import Model
from pgmengine.store import declaration_of
from pgmengine.weights import numbers

FORMAT = "pgmengine-checkpoint-2"
Array = np.ndarray
SIMPLE = (bool, int, float, str, tuple, list, np.ndarray, np.generic, type(None))  # the same in every process


def described(value: Any) -> Any:
    """Settings as JSON has them, the same in every process."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"class": type(value).__qualname__, **{f.name: described(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, np.random.Generator):
        return _digest(json.dumps(value.bit_generator.state, default=_plain))
    if isinstance(value, (np.ndarray, list, tuple)):
        return [described(v) for v in np.asarray(value).tolist()] if isinstance(value, np.ndarray) else [
            described(v) for v in value]
    if isinstance(value, partial):
        return [described(value.func), *map(_inside, value.args), *((k, _inside(v)) for k, v in value.keywords.items())]
    if isinstance(value, FunctionType):
        inside = [cell.cell_contents for cell in value.__closure__ or ()] + list(value.__defaults__ or ())
        return [value.__qualname__, _digest(_code(value.__code__)), *map(_inside, inside)]
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return getattr(value, "__qualname__", type(value).__qualname__)
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _inside(value: Any) -> Any:
    """What a function holds, as far as other processes can tell, too."""
    return described(value) if isinstance(value, SIMPLE) or is_dataclass(value) else type(value).__qualname__


def _code(code: CodeType) -> str:
    """What a function does, whatever line of its file it stands on."""
    inner = [_code(c) if isinstance(c, CodeType) else sorted(map(repr, c)) if isinstance(c, frozenset) else repr(c)
             for c in code.co_consts]
    return repr((code.co_code, code.co_names, inner))


def fingerprint(model: Model, data: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint must share with the fit that resumes from it."""
    params = hashlib.sha256()
    for name, value in model.params.items():
        params.update(name.encode() + numbers(value).tobytes())
    shapes = {name: list(np.shape(value)) for name, value in data.items()}
    return {"model": _digest(json.dumps(declaration_of(model))), "parameters": params.hexdigest()[:16], "data": shapes,
            **{name: described(value) for name, value in settings.items()}}


def write(path: str | Path, mark: Mapping[str, Any], arrays: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
    """Write beside the file, then replace it: whatever happens, one whole checkpoint is there."""
    from safetensors.numpy import save

    tensors = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    for name, value in arrays.items():  # ascontiguousarray makes numbers into (1,)
        tensors[name] = tensors[name].reshape(np.shape(value))
    text = json.dumps({"mark": mark, "notes": notes}, default=_plain)
    metadata = {"format": FORMAT, "text": text, "sum": _sum(text, tensors)}
    beside = Path(f"{path}.{os.getpid()}.part")
    try:
        with open(beside, "wb") as file:
            file.write(save(tensors, metadata=metadata))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def read(path: str | Path, mark: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]] | None:
    """(arrays, notes) of a checkpoint, None if there is none; PgmError if it belongs to another fit."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).parent.is_dir():
        raise PgmError(f"checkpoint: there is no folder {Path(path).parent}")
    for left in Path(path).parent.glob(f"{Path(path).name}.*.part"):  # of a killed process
        left.unlink(missing_ok=True)
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


def _sum(text: str, arrays: Mapping[str, Array]) -> str:
    """Of everything in a checkpoint."""
    found = zlib.crc32(text.encode())
    for name in sorted(arrays):
        found = zlib.crc32(arrays[name].tobytes(), zlib.crc32(f"{name}{arrays[name].shape}".encode(), found))
    return f"{found:08x}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else repr(value)
