"""Settings as JSON has them, the same in every process: what tells a checkpoint's fit from another."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from functools import partial, singledispatch
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

Within = tuple[
    int, ...
]  # the objects that hold what is described: one that holds itself ends there
FIXED = (
    bool,
    int,
    float,
    str,
    tuple,
    np.generic,
    type(None),
)  # what a function may read of its module
PLAIN = (*FIXED, list, dict, np.ndarray)


@singledispatch
def described(value: Any, within: Within = ()) -> Any:
    """A setting; of functions what they do and hold, of other objects their class and attributes."""
    kind, own, inner = (
        type(value).__qualname__,
        type(value).__repr__ is not object.__repr__,
        (*within, id(value)),
    )
    if is_dataclass(value) and not isinstance(value, type):
        return {
            "class": kind,
            **{f.name: described(getattr(value, f.name), inner) for f in fields(value)},
        }
    if isinstance(value, type):
        return value.__qualname__
    if hasattr(value, "__dict__"):
        return {"class": kind, **{name: _inside(v, inner) for name, v in vars(value).items()}}
    return repr(value) if own else kind  # object's would say where it lies in memory


@described.register(bool | int | float | str | None)
def _plain(value: Any, within: Within = ()) -> Any:
    return value


@described.register
def _number(value: np.generic, within: Within = ()) -> Any:
    return value.item()


@described.register
def _array(value: np.ndarray, within: Within = ()) -> Any:
    return [
        list(value.shape),
        digest(repr(value.tolist()) if value.dtype.hasobject else value.tobytes()),
    ]


@described.register(list | tuple)
def _each(value: Any, within: Within = ()) -> Any:
    return [_inside(v, (*within, id(value))) for v in value]


@described.register
def _named(value: dict, within: Within = ()) -> Any:  # type: ignore[type-arg]
    return {str(name): _inside(v, (*within, id(value))) for name, v in value.items()}


@described.register
def _generator(value: np.random.Generator, within: Within = ()) -> Any:
    return described(value.bit_generator)


@described.register
def _bits(value: np.random.BitGenerator, within: Within = ()) -> Any:
    return digest(json.dumps(value.state, default=np.ndarray.tolist))


@described.register
def _legacy(value: np.random.RandomState, within: Within = ()) -> Any:
    return digest(repr(value.get_state(legacy=False)))


@described.register
def _partly(value: partial, within: Within = ()) -> Any:  # type: ignore[type-arg]
    return [_inside(v, (*within, id(value))) for v in (value.func, value.args, value.keywords)]


@described.register
def _method(value: MethodType, within: Within = ()) -> Any:
    return [_inside(v, (*within, id(value))) for v in (value.__func__, value.__self__)]


@described.register
def _function(value: FunctionType, within: Within = ()) -> Any:
    read = {
        name: v
        for name in _names(value.__code__)
        if isinstance(v := value.__globals__.get(name), FIXED)
    }
    held = [cell.cell_contents for cell in value.__closure__ or ()]
    inside = [
        _inside(v, (*within, id(value)))
        for v in (held, value.__defaults__, value.__kwdefaults__, read)
    ]
    return [value.__qualname__, digest(_code(value.__code__)), *inside]


def _inside(value: Any, within: Within) -> Any:
    """What something holds; of objects that are neither settings nor functions the class: they may
    change in use.
    """
    known = isinstance(value, PLAIN) or is_dataclass(value) or callable(value)
    return (
        described(value, within) if known and id(value) not in within else type(value).__qualname__
    )


def _code(code: CodeType) -> str:
    """What a function does, whatever line of its file it stands on."""
    inner = [
        _code(c)
        if isinstance(c, CodeType)
        else sorted(map(repr, c))
        if isinstance(c, frozenset)
        else repr(c)
        for c in code.co_consts
    ]
    return repr((code.co_code, code.co_names, inner))


def _names(code: CodeType) -> list[str]:
    """What a function looks up by name."""
    inner = [name for c in code.co_consts if isinstance(c, CodeType) for name in _names(c)]
    return sorted({*code.co_names, *inner})


def digest(content: str | bytes) -> str:
    """A short sum by which contents are told apart."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[
        :16
    ]
