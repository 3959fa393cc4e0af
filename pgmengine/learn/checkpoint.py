"""Checkpoints: everything that a fit needs to go on, in one .safetensors file that is replaced as a whole."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial, singledispatch
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from pgmengine.errors import PgmError
from pgmengine.model import Model
from pgmengine.store import declaration_of
from pgmengine.weights import numbers

FORMAT = "pgmengine-checkpoint-3"
LEFT = 60.0  # seconds after which nobody is writing a file any more
Array = np.ndarray
SIMPLE = (bool, int, float, str, tuple, list, np.ndarray, np.generic, type(None))  # the same in every process


@singledispatch
def described(value: Any) -> Any:
    """Settings as JSON has them, the same in every process; of an object its class and what it holds."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"class": type(value).__qualname__, **{f.name: described(getattr(value, f.name)) for f in fields(value)}}
    if hasattr(value, "__qualname__"):  # a class, or a function that is not Python's
        return value.__qualname__
    kind, own = type(value).__qualname__, type(value).__repr__ is not object.__repr__
    if hasattr(value, "__dict__"):
        return {"class": kind, **{name: _inside(v) for name, v in vars(value).items()}}
    return repr(value) if own else kind  # object's would say where it lies in memory


@described.register(bool | int | float | str | None)
def _plainly(value: Any) -> Any:
    return value


@described.register
def _number(value: np.generic) -> Any:
    return value.item()


@described.register
def _array(value: np.ndarray) -> Any:
    return [list(value.shape), _digest(repr(value.tolist()) if value.dtype.hasobject else value.tobytes())]


@described.register(list | tuple)
def _each(value: Any) -> Any:
    return [described(v) for v in value]


@described.register
def _generator(value: np.random.Generator) -> Any:
    return described(value.bit_generator)


@described.register
def _bits(value: np.random.BitGenerator) -> Any:
    return _digest(json.dumps(value.state, default=_plain))


@described.register
def _partly(value: partial) -> Any:  # type: ignore[type-arg]
    return [described(value.func), *map(_inside, value.args), *((k, _inside(v)) for k, v in value.keywords.items())]


@described.register
def _method(value: MethodType) -> Any:
    return [described(value.__func__), described(value.__self__)]


@described.register
def _function(value: FunctionType) -> Any:
    inside = [cell.cell_contents for cell in value.__closure__ or ()] + list(value.__defaults__ or ())
    return [value.__qualname__, _digest(_code(value.__code__)), *map(_inside, inside)]


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

    tensors = {name: np.asarray(value, order="C") for name, value in arrays.items()}
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
    for left in path.parent.iterdir():
        if re.fullmatch(rf"{re.escape(path.name)}\.\d+\.part", left.name) and time.time() - left.stat().st_mtime > LEFT:
            left.unlink(missing_ok=True)


def _sum(text: str, arrays: Mapping[str, Array]) -> str:
    """Of everything in a checkpoint."""
    found = zlib.crc32(text.encode())
    for name in sorted(arrays):
        found = zlib.crc32(arrays[name].tobytes(), zlib.crc32(f"{name}{arrays[name].shape}".encode(), found))
    return f"{found:08x}"


def _digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else repr(value)
