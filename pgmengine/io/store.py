"""Files: a TOML declaration of a graph, and one .safetensors file with the parameters and the
declaration in it.

A declaration holds layers and couplings:

    weights = "weights.safetensors"                     # optional: parameters by name [[layers]]
    name = "v" unit = "Binary" size = 784 [[layers]] name = "h" unit = "MultiValued" s = 4
    # the unit's own arguments stand beside it; inf is inf size = 500 bias = 0.0
    # a number or a list, optional labels = ["first", "second"]                        # names of
    the units, optional; states = [...] of their states [[couplings]] couple = ["v", "h"]
    # undirected; cause = ["parent", "child"] is an arrow weight = [[...]]
    # optional; drawn if absent
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.files import SUM, plain_text, read_tensors, shown, write_tensors
from pgmengine.base.names import nearest
from pgmengine.graph.builder import GraphBuilder, Rng
from pgmengine.graph.declaration import RESERVED, declaration_of, plain_label, unit_types
from pgmengine.graph.layer import Layer
from pgmengine.graph.model import Model
from pgmengine.graph.sparse import compressed
from pgmengine.graph.validate import check_size
from pgmengine.graph.weights import is_sparse

FORMAT = "pgmengine-2"
WITHOUT_SUM = "pgmengine-1"  # files of before there were checksums
SPARSE = ("data", "indices", "indptr", "shape")  # the parts of a sparse parameter
DEPTH = 64  # of lists within lists: as many as arrays may have dimensions
COUPLING = {"couple", "cause", "weight"}
LARGEST = 10**308  # of integers, which are to be floats


def save(model: Model, path: str | Path) -> None:
    """Write a model to one .safetensors file: parameters as tensors, the declaration as JSON in the
    metadata.

    The file replaces one that is there, as a whole; a symbolic link stays one, and the file that it
    leads to is replaced. A checksum in the file tells `load` whether it is damaged.

    Parameters
    ----------
    model : of any layers and couplings; units of a type of your own are found by its name, which
        must be defined when the file is read.
    path : where to; its folder exists.

    Raises
    ------
    PgmError for units that a file cannot hold, and a path of what is no regular file; OSError where
    the disk is full or broken, and then what was there is left as it was.

    >>> import pgmengine as pgm, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "m.safetensors"
    >>> pgm.save(pgm.rbm(3, 2, rng=0), file)
    >>> pgm.load(file)
    Model(v: 3 Binary(), h: 2 Binary(); v-h)
    """
    tensors: dict[str, Any] = {}
    for name, value in model.params.items():
        if is_sparse(value):
            tensors |= {
                f"{name}/data": value.data,
                f"{name}/indices": value.indices,
                f"{name}/indptr": value.indptr,
                f"{name}/shape": np.array(value.shape),
            }
        else:
            tensors[name] = value
    write_tensors(
        path, tensors, {"format": FORMAT, "declaration": json.dumps(declaration_of(model))}
    )


def load(path: str | Path) -> Model:
    """Read a model that save wrote, in this version of the package or an earlier one.

    Parameters
    ----------
    path : a .safetensors file.

    Raises
    ------
    PgmError, which names the file, for one that cannot be read, that is damaged or truncated, that
    holds no model, or whose model does not fit into free memory.

    >>> import pgmengine as pgm, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "m.safetensors"
    >>> pgm.save(pgm.rbm(3, 2, rng=0), file)
    >>> _ = file.write_bytes(file.read_bytes()[:-8])
    >>> pgm.load(file)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    PgmError: m.safetensors: not a readable .safetensors file
    """
    with _of_file(path):
        tensors, metadata = read_tensors(path)
        if metadata.get("format") not in (FORMAT, WITHOUT_SUM):
            raise PgmError(
                f"not a model of pgmengine (format {metadata.get('format')!r}, expected {FORMAT!r})"
            )
        if metadata["format"] == FORMAT and SUM not in metadata:
            raise PgmError("is damaged: its checksum is missing; take another copy")
        if "declaration" not in metadata:
            raise PgmError("is damaged: its declaration is missing; take another copy")
        try:
            declaration = json.loads(metadata["declaration"])
        except ValueError as error:
            raise PgmError(f"its declaration cannot be read: {error}") from None
        params = _parameters(tensors)
        found = set(params)
        model = _build(declaration, params, None)
        if missing := [name for name in model.params if name not in found]:
            raise PgmError(f"parameter {missing[0]!r} is missing")
    return model


def load_declaration(path: str | Path, rng: Rng = None) -> Model:
    r"""Build the model that a TOML file declares; weights that it leaves out are drawn with rng.

    Parameters
    ----------
    path : a TOML file, as the module's own description has it.
    rng : an integer or a numpy Generator.

    Raises
    ------
    PgmError, which names the file and the layer or coupling, for a file that cannot be read, names
    that are not known, values that cannot be, and sizes that do not fit into free memory.

    >>> import pgmengine as pgm, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "m.toml"
    >>> _ = file.write_text('[[layers]]\nname = "v"\nunit = "Binary"\nsize = 3')
    >>> pgm.load_declaration(file)
    Model(v: 3 Binary())
    """
    with _of_file(path):
        try:
            declaration = tomllib.loads(plain_text(path))
        except PgmError:
            raise
        except ValueError as error:
            raise PgmError(f"not a readable TOML file: {error}") from None
        params: dict[str, Any] = {}
        if "weights" in declaration:
            weights = declaration.pop("weights")
            if not isinstance(weights, str):
                raise PgmError(f"weights must be the name of a .safetensors file, not {weights!r}")
            file = Path(path).parent / weights
            with _of_file(file):
                params = _parameters(read_tensors(file)[0])
        return _build(declaration, params, rng)


@contextmanager
def _of_file(path: Any) -> Iterator[None]:
    """Within it, what cannot be read is a PgmError that begins with the file's name."""
    try:
        yield
    except PgmError as error:
        named = str(error).startswith(shown(path))
        raise PgmError(str(error) if named else f"{shown(path)}: {error}") from None
    except RecursionError:
        raise PgmError(
            f"{shown(path)}: cannot be read: lists within lists, more than {DEPTH}"
        ) from None
    except MemoryError:
        raise PgmError(
            f"{shown(path)}: cannot be read: it needs more memory than is free"
        ) from None


def _parameters(tensors: Mapping[str, Any]) -> dict[str, Any]:
    sparse = {name.rpartition("/")[0] for name in tensors if name.rpartition("/")[2] in SPARSE}
    params = {
        name: value for name, value in tensors.items() if name.rpartition("/")[2] not in SPARSE
    }
    for name in sorted(sparse):
        missing = [part for part in SPARSE if f"{name}/{part}" not in tensors]
        if missing:
            raise PgmError(f"the sparse parameter {name!r} is damaged: {missing[0]!r} is missing")
        data, indices, indptr, shape = (tensors[f"{name}/{part}"] for part in SPARSE)
        params[name] = compressed(
            data, indices, indptr, shape, f"parameter {name!r}, which is damaged,"
        )
    return params


def _build(declaration: Any, params: dict[str, Any], rng: Rng) -> Model:
    if not isinstance(declaration, Mapping):
        raise PgmError(
            f"the declaration must be a table of layers and couplings, not {_kind(declaration)}"
        )
    _check_plain(declaration)
    b = GraphBuilder()
    for i, entry in enumerate(_tables(declaration, "layers")):
        _add_layer(b, dict(entry), params, f"layers[{i}]")
    for i, entry in enumerate(_tables(declaration, "couplings")):
        _add_coupling(b, dict(entry), params, f"couplings[{i}]")
    unknown = [key for key in declaration if key not in ("layers", "couplings")]
    if unknown:
        raise PgmError(
            f"{unknown[0]!r} belongs to no layer or coupling of the declaration"
            f"{nearest(unknown[0], ('layers', 'couplings', 'weights'))}"
        )
    if params:
        names = [f"{x.name}.bias" for x in b.layers] + [f"{c.key}.weight" for c in b.couplings]
        extra = next(iter(params))
        raise PgmError(
            f"{extra!r} belongs to no layer or coupling of the declaration{nearest(extra, names)}"
        )
    return b.build(rng)


def _check_plain(declaration: Mapping[str, Any]) -> None:
    """Lists are not too deep, and integers not too large, for what comes after."""
    waiting: list[tuple[str, Any, int]] = [("", declaration, 0)]
    while waiting:
        where, value, depth = waiting.pop()
        if depth > DEPTH:
            raise PgmError(f"{where[:40]}...: lists within lists, more than {DEPTH} of them")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise PgmError(
                f"{where}: an integer beyond 1e308, expected one that is a number in double "
                "precision"
            )
        parts = (
            value.items()
            if isinstance(value, Mapping)
            else enumerate(value)
            if isinstance(value, list)
            else ()
        )
        for key, part in parts:
            if isinstance(part, (Mapping, list, int)):
                place = (
                    f"{where}[{key}]"
                    if isinstance(value, list)
                    else f"{where}.{key}"
                    if where
                    else f"{key}"
                )
                waiting.append((place, part, depth + 1))


def _kind(value: Any) -> str:
    return "null" if value is None else f"{type(value).__name__} {value!r:.40}"


def _tables(declaration: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    tables = declaration.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(t, Mapping) for t in tables):
        raise PgmError(f"{key!r} must be a list of tables, written [[{key}]]")
    return tables


def _add_layer(b: GraphBuilder, entry: dict[str, Any], params: dict[str, Any], where: str) -> None:
    name, kind, size = (entry.pop(key, None) for key in ("name", "unit", "size"))
    if not isinstance(name, str) or not isinstance(kind, str) or size is None:
        raise PgmError(
            f"{where}: layer {name!r}: every layer needs a name, a unit and a size"
            f"{_hint(entry, {'name', 'unit', 'size'})}"
        )
    types = unit_types()
    if kind not in types:
        raise PgmError(
            f"layer {name!r}: unit {kind!r} is unknown, expected one of {', '.join(sorted(types))}"
            f"{nearest(kind, types)}"
        )
    labels, states, bias = (entry.pop(key, None) for key in ("labels", "states", "bias"))
    for key, names in (("labels", labels), ("states", states)):
        if names is not None and not isinstance(names, list):
            raise PgmError(f"layer {name!r}: {key} must be a list of names, not {names!r}")
    own = {f.name for f in fields(types[kind]) if f.init}
    wrong = [key for key in entry if key not in own]
    if wrong:
        raise PgmError(
            f"layer {name!r}: {wrong[0]!r} is not an argument of {kind} or of a layer"
            f"{nearest(wrong[0], own | RESERVED)}"
        )
    try:
        unit = types[kind](**{key: plain_label(value) for key, value in entry.items()})
    except (TypeError, ValueError, ArithmeticError) as error:
        raise PgmError(f"layer {name!r}: {error}") from None
    check_size(layer := Layer(name, unit, size))  # type: ignore[arg-type]
    bias = params.pop(f"{name}.bias", bias)
    if isinstance(bias, (int, float)) and not isinstance(bias, bool):
        bias = np.broadcast_to(float(bias), layer.bias_shape)
    b.layer(name, unit, size, bias=bias, labels=plain_label(labels), states=plain_label(states))  # type: ignore[arg-type]


def _hint(entry: Mapping[str, Any], known: set[str]) -> str:
    """Of the first key that is nearly one that is known, that one."""
    return next((found for key in entry if (found := nearest(key, known))), "")


def _add_coupling(
    b: GraphBuilder, entry: dict[str, Any], params: dict[str, Any], where: str
) -> None:
    weight = entry.pop("weight", None)
    kind, ends = next(iter(entry.items()), ("", None))
    names = ends if isinstance(ends, list) and all(isinstance(name, str) for name in ends) else []
    if kind not in ("couple", "cause") or len(entry) != 1 or len(names) != 2:
        mistyped = dict.fromkeys(key for key in entry if key not in COUPLING)
        raise PgmError(
            f"{where}: a coupling is couple = [a, b] or cause = [parent, child], and may "
            f"have a weight, not {str(entry):.200}{_hint(mistyped, COUPLING)}"
        )
    a, c = names
    key = f"{a}->{c}.weight" if kind == "cause" else f"{a}-{c}.weight"
    (b.cause if kind == "cause" else b.couple)(a, c, weight=params.pop(key, weight))
