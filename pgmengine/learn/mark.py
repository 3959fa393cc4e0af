"""Marks of checkpoints: the settings of a fit as JSON, which tell it from another fit.

A mark depends on the types, fields and values of settings, and for functions and classes on their
module and qualified name: not on byte code, which changes with the version of Python, nor on
anything that a function reads from elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pgmengine.graph.declaration import declaration_of
from pgmengine.graph.model import Model
from pgmengine.graph.weights import numbers, pattern

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

JSON: TypeAlias = "None | bool | int | float | str | list[JSON] | dict[str, JSON]"
RANDOM = (np.random.Generator, np.random.BitGenerator, np.random.RandomState)


def mark_of(
    model: Model, data: Mapping[str, ArrayLike], settings: Mapping[str, object]
) -> dict[str, JSON]:
    """Return the mark of a fit, which a checkpoint must share with the fit that resumes from it."""
    return {
        "model": digest(json.dumps(declaration_of(model))),
        "parameters": parameters_digest(model),
        "data": {name: list(np.shape(value)) for name, value in data.items()},
        **{name: described(value) for name, value in settings.items()},
    }


def parameters_digest(model: Model) -> str:
    """Return a digest of the parameters and of the patterns of sparse ones."""
    found = hashlib.sha256()
    for name, value in model.params.items():
        found.update(name.encode() + numbers(value).tobytes() + pattern(value))
    return found.hexdigest()[:16]


def described(value: object, inside: bool = False) -> JSON:
    """Return a setting as JSON, the same in every process.

    Of an object `inside` another one that is no dataclass, only the type counts: it may change in
    use, and may hold the other one.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return described(value.item())
    if isinstance(value, np.ndarray):
        content = repr(value.tolist()) if value.dtype.hasobject else value.tobytes()
        return [list(value.shape), digest(content)]
    if isinstance(value, Mapping):
        return {str(name): described(v, inside) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [described(v, inside) for v in value]
    if isinstance(value, RANDOM):
        return _random(value)
    if isinstance(value, partial):
        return [described(v, inside) for v in (value.func, value.args, value.keywords)]
    if isinstance(value, MethodType):
        return [_name(value.__func__), described(value.__self__, inside)]
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return _name(value)
    return _object(value, inside)


def _object(value: object, inside: bool) -> JSON:
    """Return the type of an object, and its fields or attributes."""
    out: dict[str, JSON] = {"type": _name(type(value))}
    if is_dataclass(value):
        return out | {f.name: described(getattr(value, f.name), inside) for f in fields(value)}
    if inside:
        return out
    if hasattr(value, "__dict__"):
        return out | {name: described(v, inside=True) for name, v in vars(value).items()}
    # The repr of `object` would say where it lies in memory.
    return out | ({} if type(value).__repr__ is object.__repr__ else {"value": repr(value)})


def _random(value: np.random.Generator | np.random.BitGenerator | np.random.RandomState) -> str:
    """Return a digest of the state of random numbers."""
    if isinstance(value, np.random.RandomState):
        return digest(repr(value.get_state(legacy=False)))
    bits = value.bit_generator if isinstance(value, np.random.Generator) else value
    return digest(json.dumps(bits.state, default=np.ndarray.tolist))


def _name(value: Callable[..., object]) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def digest(content: str | bytes) -> str:
    """Return a short digest that differs where contents differ."""
    whole = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(whole).hexdigest()[:16]
