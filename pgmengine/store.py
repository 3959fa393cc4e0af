"""Files: a TOML declaration of a graph, and one .safetensors file with the parameters and the declaration in it.

A declaration holds layers and couplings:

    weights = "weights.safetensors"                     # optional: parameters by name
    [[layers]]
    name = "v"
    unit = "Binary"
    size = 784
    [[layers]]
    name = "h"
    unit = "MultiValued"
    s = 4                                               # the unit's own arguments stand beside it; inf is inf
    size = 500
    bias = 0.0                                          # a number or a list, optional
    labels = ["first", "second"]                        # names of the units, optional; states = [...] of their states
    [[couplings]]
    couple = ["v", "h"]                                 # undirected; cause = ["parent", "child"] is an arrow
    weight = [[...]]                                    # optional; drawn if absent
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np

from pgmengine.errors import PgmError
from pgmengine.graph import GraphBuilder, Rng
from pgmengine.layer import Layer
from pgmengine.model import Model
from pgmengine.units import Unit
from pgmengine.weights import is_sparse

Array = np.ndarray
FORMAT = "pgmengine-1"
RESERVED = {"name", "unit", "size", "bias", "labels", "states"}  # what a layer says besides its unit's fields
SPARSE = ("data", "indices", "indptr", "shape")  # the parts of a sparse parameter


def save(model: Model, path: str | Path) -> None:
    """Write a model to one .safetensors file: parameters as tensors, the declaration as JSON in the metadata.

    >>> import pgmengine as pgm, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "m.safetensors"
    >>> pgm.save(pgm.rbm(3, 2, rng=0), file)
    >>> pgm.load(file)
    Model(v: 3 Binary(), h: 2 Binary(); v-h)
    """
    tensors: dict[str, Any] = {}
    for name, value in model.params.items():
        if is_sparse(value):
            tensors |= {f"{name}/data": value.data, f"{name}/indices": value.indices, f"{name}/indptr": value.indptr,
                        f"{name}/shape": np.array(value.shape)}
        else:
            tensors[name] = value
    tensors = {name: np.ascontiguousarray(value) for name, value in tensors.items()}  # others would be scrambled
    write_tensors(path, tensors, {"format": FORMAT, "declaration": json.dumps(declaration_of(model))})


def write_tensors(path: str | Path, tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write beside the file, then replace it: whatever happens, a whole one is there.

    With the rights that new files have; safetensors' own save_file makes one that nobody else may read.
    """
    from safetensors.numpy import save

    beside = Path(f"{path}.{os.getpid()}.{get_ident()}.part")
    try:
        with open(beside, "wb") as file:
            file.write(save(dict(tensors), metadata=dict(metadata)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def load(path: str | Path) -> Model:
    """Read a model that save wrote; PgmError for any other or a truncated file."""
    tensors, metadata = _read(path)
    if metadata.get("format") != FORMAT:
        raise PgmError(f"{path}: not a model of pgmengine (format {metadata.get('format')!r}, expected {FORMAT!r})")
    try:
        declaration = json.loads(metadata["declaration"])
    except (KeyError, json.JSONDecodeError) as error:
        raise PgmError(f"{path}: its declaration cannot be read: {error}") from None
    params = _parameters(tensors, str(path))
    found = set(params)
    model = _build(declaration, params, str(path), None)
    if missing := [name for name in model.params if name not in found]:
        raise PgmError(f"{path}: parameter {missing[0]!r} is missing")
    return model


def load_declaration(path: str | Path, rng: Rng = None) -> Model:
    """Build the model that a TOML file declares; weights that it leaves out are drawn with rng."""
    try:
        declaration = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PgmError(f"{path}: not a readable TOML file: {error}") from None
    params: dict[str, Any] = {}
    if "weights" in declaration:
        file = Path(path).parent / str(declaration.pop("weights"))
        params = _parameters(_read(file)[0], str(file))
    return _build(declaration, params, str(path), rng)


def declaration_of(model: Model) -> dict[str, Any]:
    """The declaration of a model's graph, without its parameters."""
    layers, types = [], unit_types()
    for layer in model.structure.layers.values():
        own = types.get(kind := type(layer.unit).__name__)
        if own is not type(layer.unit) and own is not None and _ours(own):
            raise PgmError(f"layer {layer.name!r}: pgmengine has a unit type {kind!r}, which a file would mean")
        entry = {"name": layer.name, "unit": kind, **_fields(layer), "size": int(layer.size)}
        if layer.labels is not None:
            entry["labels"] = [_label(v) for v in layer.labels]
        if layer.state_names is not None:
            entry["states"] = [_label(v) for v in layer.state_names]
        layers.append(entry)
    couplings = [{"cause" if c.directed else "couple": [c.a, c.b]} for c in model.structure.couplings]
    return {"layers": layers, "couplings": couplings}


def _fields(layer: Layer) -> dict[str, Any]:
    """The fields of the layer's unit, as a file can hold them and give them back."""
    unit, own = layer.unit, [f.name for f in fields(layer.unit) if f.init]
    if taken := RESERVED.intersection(own):
        raise PgmError(f"layer {layer.name!r}: a file has another meaning for the field {min(taken)!r} of {unit!r}")
    try:
        out = json.loads(json.dumps({name: getattr(unit, name) for name in own}, default=np.generic.item))
    except TypeError:
        out = {}
    if not out and own or type(unit)(**{name: _unlabel(value) for name, value in out.items()}) != unit:
        raise PgmError(f"layer {layer.name!r}: a file holds numbers, text and tuples, not all of {unit!r}")
    return out


def _label(value: Any) -> Any:
    """Labels as JSON has them: tuples become lists, everything that is no number or text its text."""
    if isinstance(value, tuple):
        return [_label(v) for v in value]
    if isinstance(value, np.integer):
        return int(value)
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def _unlabel(value: Any) -> Any:
    return tuple(_unlabel(v) for v in value) if isinstance(value, list) else value


def unit_types() -> dict[str, type[Unit]]:
    """Every unit type that has been defined, by name; pgmengine's own have theirs."""
    found, ours, waiting = dict[str, type[Unit]](), dict[str, type[Unit]](), [Unit]
    while waiting:
        waiting += (below := waiting.pop().__subclasses__())
        found |= {cls.__name__: cls for cls in below}
        ours |= {cls.__name__: cls for cls in below if _ours(cls)}
    return found | ours


def _ours(kind: type[Unit]) -> bool:
    return kind.__module__.startswith("pgmengine.")


def _read(path: str | Path) -> tuple[dict[str, Any], Mapping[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise PgmError(f"{path}: not a readable .safetensors file: {error}") from None


def _parameters(tensors: Mapping[str, Any], path: str) -> dict[str, Any]:
    sparse = {name.rpartition("/")[0] for name in tensors if name.rpartition("/")[2] in SPARSE}
    params = {name: value for name, value in tensors.items() if name.rpartition("/")[2] not in SPARSE}
    if sparse:
        import scipy.sparse as sp
    for name in sparse:
        try:
            data, indices, indptr, shape = (tensors[f"{name}/{part}"] for part in SPARSE)
            params[name] = sp.csr_array((data, indices, indptr), shape=tuple(int(n) for n in shape))
            params[name].check_format()
        except (KeyError, ValueError) as error:
            raise PgmError(f"{path}: the sparse parameter {name!r} is damaged: {error}") from None
    return params


def _build(declaration: Mapping[str, Any], params: dict[str, Any], path: str, rng: Rng) -> Model:
    b = GraphBuilder()
    for entry in _tables(declaration, "layers", path):
        _add_layer(b, dict(entry), params, path)
    for entry in _tables(declaration, "couplings", path):
        _add_coupling(b, dict(entry), params, path)
    extra = [*params, *(key for key in declaration if key not in ("layers", "couplings"))]
    if extra:
        raise PgmError(f"{path}: {extra[0]!r} belongs to no layer or coupling of the declaration")
    return b.build(rng)


def _tables(declaration: Mapping[str, Any], key: str, path: str) -> list[Mapping[str, Any]]:
    tables = declaration.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(t, Mapping) for t in tables):
        raise PgmError(f"{path}: {key!r} must be a list of tables, written [[{key}]]")
    return tables


def _add_layer(b: GraphBuilder, entry: dict[str, Any], params: dict[str, Any], path: str) -> None:
    name, kind, size = (entry.pop(key, None) for key in ("name", "unit", "size"))
    if not isinstance(name, str) or not isinstance(kind, str):
        raise PgmError(f"{path}: layer {name!r}: every layer needs a name, a unit and a size")
    types = unit_types()
    if kind not in types:
        raise PgmError(f"{path}: layer {name!r}: unit {kind!r} is unknown, expected one of {', '.join(sorted(types))}")
    labels, states, bias = (entry.pop(key, None) for key in ("labels", "states", "bias"))
    for key, names in (("labels", labels), ("states", states)):
        if names is not None and not isinstance(names, list):
            raise PgmError(f"{path}: layer {name!r}: {key} must be a list of names, not {names!r}")
    own = {f.name for f in fields(types[kind])}
    wrong = [key for key in entry if key not in own]
    if wrong:
        raise PgmError(f"{path}: layer {name!r}: {wrong[0]!r} is not an argument of {kind} or of a layer")
    try:
        unit = types[kind](**{key: _unlabel(value) for key, value in entry.items()})
    except TypeError as error:
        raise PgmError(f"{path}: layer {name!r}: {error}") from None
    bias = params.pop(f"{name}.bias", bias)
    if isinstance(bias, (int, float)) and isinstance(size, int):
        bias = np.full(size if unit.width == 1 else (size, unit.width), float(bias))
    b.layer(name, unit, size, bias=bias, labels=_unlabel(labels), states=_unlabel(states))  # type: ignore[arg-type]


def _add_coupling(b: GraphBuilder, entry: dict[str, Any], params: dict[str, Any], path: str) -> None:
    weight = entry.pop("weight", None)
    kind, ends = next(iter(entry.items()), ("", None))
    if kind not in ("couple", "cause") or len(entry) != 1 or not isinstance(ends, list) or len(ends) != 2:
        raise PgmError(f"{path}: a coupling is couple = [a, b] or cause = [parent, child], not {entry}")
    a, c = ends
    key = f"{a}->{c}.weight" if kind == "cause" else f"{a}-{c}.weight"
    (b.cause if kind == "cause" else b.couple)(a, c, weight=params.pop(key, weight))
