"""Models in files: a .safetensors file for a whole model, and a TOML declaration of a graph.

A .safetensors file has the parameters as tensors, and the declaration as JSON in its metadata. A
model with tables or variables has two more tensors, the units of the tables and of the variables. A
declaration, in TOML, lists layers and couplings:

    # Optional: a file of parameters by name.
    weights = "weights.safetensors"

    [[layers]]
    name = "v"
    unit = "Binary"
    size = 784

    [[layers]]
    name = "h"
    unit = "MultiValued"
    # Arguments of the unit type stand beside it; inf is infinity.
    s = 4
    size = 500
    # Optional: a number or a list; names of the units; names of their states.
    bias = 0.0
    labels = ["first", "second"]
    states = ["low", "high"]

    [[couplings]]
    # An undirected coupling. An arrow is cause = ["parent", "child"].
    couple = ["v", "h"]
    # Optional: drawn if absent.
    weight = [[0.1, 0.2]]

    [[variables]]
    name = "wet"
    # Names, or a number; 2 if absent.
    states = ["no", "yes"]

    [[conditionals]]
    child = "wet"
    # A name, or ["layer", number of a unit]. Absent for a root.
    parents = ["rain", ["v", 0]]
    # Probabilities; the axes are the parents in order, then the child.
    values = [[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [0.1, 0.9]]]

    [[tables]]
    # Or the layers of many tables, with index = [[0, 1], [1, 2]], a row of units for each.
    scope = ["wet", ["h", 3]]
    values = [[1.0, 2.0], [0.5, 1.0]]
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.files import SUM, plain_text, read_tensors, shown, write_tensors
from pgmengine.base.names import nearest
from pgmengine.base.types import Array, RngLike
from pgmengine.graph.builder import GraphBuilder
from pgmengine.graph.declaration import RESERVED, declaration_of, plain_label, unit_types
from pgmengine.graph.layer import Layer
from pgmengine.graph.model import Model
from pgmengine.graph.sparse import compressed
from pgmengine.graph.stored_tables import table_units, variable_units, with_stored_tables
from pgmengine.graph.validate import check_size
from pgmengine.graph.variables import Member
from pgmengine.graph.weights import is_sparse

FORMAT = "pgmengine-2"

# The format of models with tables or variables, which earlier versions do not read.
WITH_TABLES = "pgmengine-3"

# The tensors of the units of tables and of variables.
UNITS, VARIABLES = "tables/units", "variables/units"

# The format of earlier files, which have no checksum.
WITHOUT_SUM = "pgmengine-1"

# The parts of a sparse parameter, each a tensor "name/part".
SPARSE = ("data", "indices", "indptr", "shape")

# Levels of lists within lists: the largest number of axes of an array.
DEPTH = 64

# Integers beyond this have no float.
LARGEST = 10**308

COUPLING = {"couple", "cause", "weight"}

# The lists of a declaration, and with them the name of a file of parameters.
LISTS = ("layers", "couplings", "variables", "conditionals", "tables")


def save(model: Model, path: str | Path) -> None:
    """Write a model to one .safetensors file.

    The file replaces an existing one as a whole; a symbolic link stays in place, and the file at
    its end is replaced. A checksum in the file tells `load` whether it is damaged.

    Parameters
    ----------
    model : a model with any layers and couplings. A unit type of your own is stored by its name,
        and must be defined when the file is read.
    path : the file, in a folder that exists.

    Raises
    ------
    PgmError
        For units that a file cannot hold, and for a path that leads to something other than a
        regular file.
    OSError
        If the disk is full or broken. An existing file is then unchanged.

    >>> import pgmengine as pgm, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "m.safetensors"
    >>> pgm.save(pgm.rbm(3, 2, rng=0), file)
    >>> pgm.load(file)
    Model(v: 3 Binary(), h: 2 Binary(); v-h)
    """
    tensors: dict[str, Array] = {}
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
    structure, form = model.structure, FORMAT
    if structure.tables or structure.variables:
        form = WITH_TABLES
        tensors |= {UNITS: table_units(structure), VARIABLES: variable_units(structure)}
    declaration = json.dumps(declaration_of(model))
    write_tensors(path, tensors, {"format": form, "declaration": declaration})


def load(path: str | Path) -> Model:
    """Read a model that `save` wrote, in this version of the package or an earlier one.

    Parameters
    ----------
    path : a .safetensors file.

    Returns
    -------
    The model, with the same parameters to the bit.

    Raises
    ------
    PgmError
        For a file that cannot be read, is damaged or truncated, holds no model, or holds a model
        that does not fit into free memory. The message begins with the file.

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
        if metadata.get("format") not in (FORMAT, WITH_TABLES, WITHOUT_SUM):
            raise PgmError(
                f"not a model of pgmengine (format {metadata.get('format')!r}, expected {FORMAT!r})"
            )
        if metadata["format"] != WITHOUT_SUM and SUM not in metadata:
            raise PgmError("is damaged: its checksum is missing; take another copy")
        if "declaration" not in metadata:
            raise PgmError("is damaged: its declaration is missing; take another copy")
        try:
            declaration = json.loads(metadata["declaration"])
        except ValueError as error:
            raise PgmError(f"its declaration cannot be read: {error}") from None
        tabled = metadata["format"] == WITH_TABLES and isinstance(declaration, dict)
        stored = _take_tables(declaration, tensors) if tabled else None
        params = _parameters(tensors)
        found = set(params)
        model = _build(declaration, params, None)
        if missing := [name for name in model.params if name not in found]:
            raise PgmError(f"parameter {missing[0]!r} is missing")
        return model if stored is None else with_stored_tables(model, *stored)


def _take_tables(
    declaration: dict[str, Any], tensors: dict[str, Array]
) -> tuple[object, Array, Array, dict[str, Array]]:
    """Take tables and variables out of a declaration and its tensors, as `stored_tables` has them.

    The parts are the entries, the units of the tables and of the variables, and the logarithms.
    """
    if missing := [name for name in (UNITS, VARIABLES) if name not in tensors]:
        raise PgmError(f"is damaged: the tensor {missing[0]!r} is missing")
    logs = {name: tensors.pop(name) for name in list(tensors) if name.endswith(".table")}
    entries = declaration.pop("tables", [])
    return entries, tensors.pop(UNITS), tensors.pop(VARIABLES), logs


def load_declaration(path: str | Path, rng: RngLike = None) -> Model:
    r"""Build the model that a TOML file declares.

    Use it for models that are written by hand; `save` and `load` keep models that have learned.

    Parameters
    ----------
    path : a TOML file with tables [[layers]], [[couplings]], [[variables]], [[conditionals]] and
        [[tables]], in the format that the documentation of files describes.
    rng : a seed or a generator, for the weights that the file leaves out.

    Returns
    -------
    The model.

    Raises
    ------
    PgmError
        For a file that cannot be read, unknown names, wrong values, and sizes that do not fit into
        free memory. The message names the file and the layer or coupling.

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
def _of_file(path: str | Path) -> Iterator[None]:
    """Turn every failure to read into a PgmError that begins with the file."""
    try:
        yield
    except PgmError as error:
        named = str(error).startswith(shown(path))
        raise PgmError(str(error) if named else f"{shown(path)}: {error}") from None
    except RecursionError:
        raise PgmError(
            f"{shown(path)}: cannot be read: lists within lists, more than {DEPTH} levels"
        ) from None
    except MemoryError:
        raise PgmError(
            f"{shown(path)}: cannot be read: it needs more memory than is free"
        ) from None


def _parameters(tensors: Mapping[str, Array]) -> dict[str, Any]:
    """Return the parameters, with sparse ones put together from their parts."""
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


def _build(declaration: object, params: dict[str, Any], rng: RngLike) -> Model:
    """Return the model of a declaration with these parameters, all of which it has to use."""
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
    for i, entry in enumerate(_tables(declaration, "variables")):
        _add_variable(b, dict(entry), f"variables[{i}]")
    for key in ("conditionals", "tables"):
        for i, entry in enumerate(_tables(declaration, key)):
            _add_table(b, dict(entry), key == "conditionals", f"{key}[{i}]")
    unknown = [key for key in declaration if key not in LISTS]
    if unknown:
        raise PgmError(
            f"{unknown[0]!r} belongs to no layer or coupling of the declaration"
            f"{nearest(unknown[0], (*LISTS, 'weights'))}"
        )
    logs = {key: params.pop(key) for key in list(params) if key.endswith(".table")}
    if params:
        names = [f"{x.name}.bias" for x in b.layers] + [f"{c.key}.weight" for c in b.couplings]
        extra = next(iter(params))
        raise PgmError(
            f"{extra!r} belongs to no layer or coupling of the declaration{nearest(extra, names)}"
        )
    model = b.build(rng)
    return model.with_params(logs) if logs else model


def _check_plain(declaration: Mapping[str, Any]) -> None:
    """Raise PgmError for lists that are too deep, or integers too large, to become arrays."""
    waiting: list[tuple[str, Any, int]] = [("", declaration, 0)]
    while waiting:
        where, value, depth = waiting.pop()
        if depth > DEPTH:
            raise PgmError(f"{where[:40]}...: lists within lists, more than {DEPTH} levels")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise PgmError(
                f"{where}: an integer beyond 1e308, the largest number in double precision"
            )
        named = isinstance(value, Mapping)
        items = value.items() if named else enumerate(value) if isinstance(value, list) else ()
        for key, part in items:
            # Floats need no check, and weights are many.
            if isinstance(part, (Mapping, list, int)):
                place = f"{where}.{key}".removeprefix(".") if named else f"{where}[{key}]"
                waiting.append((place, part, depth + 1))


def _kind(value: object) -> str:
    """Return the type and the beginning of a value, for messages."""
    return "null" if value is None else f"{type(value).__name__} {value!r:.40}"


def _tables(declaration: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the entries of a list of tables; a missing list is empty."""
    tables = declaration.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(t, Mapping) for t in tables):
        raise PgmError(f"{key!r} must be a list of tables, written [[{key}]]")
    return tables


def _add_layer(b: GraphBuilder, entry: dict[str, Any], params: dict[str, Any], where: str) -> None:
    """Add the layer of one table; its bias leaves `params`."""
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
    check_size(layer := Layer(name, unit, size))
    bias = params.pop(f"{name}.bias", bias)
    if isinstance(bias, (int, float)) and not isinstance(bias, bool):
        bias = np.broadcast_to(float(bias), layer.bias_shape)
    b.layer(name, unit, size, bias=bias, labels=plain_label(labels), states=plain_label(states))


def _hint(entry: Collection[str], known: set[str]) -> str:
    """Return a suggestion for the first key that is nearly a known one, or an empty string."""
    return next((found for key in entry if (found := nearest(key, known))), "")


def _add_coupling(
    b: GraphBuilder, entry: dict[str, Any], params: dict[str, Any], where: str
) -> None:
    """Add the coupling of one table; its weight leaves `params`."""
    weight = entry.pop("weight", None)
    kind, ends = next(iter(entry.items()), ("", None))
    names = ends if isinstance(ends, list) and all(isinstance(name, str) for name in ends) else []
    if kind not in ("couple", "cause") or len(entry) != 1 or len(names) != 2:
        mistyped = [key for key in entry if key not in COUPLING]
        raise PgmError(
            f"{where}: a coupling is couple = [a, b] or cause = [parent, child], and may "
            f"have a weight, not {str(entry):.200}{_hint(mistyped, COUPLING)}"
        )
    a, c = names
    key = f"{a}->{c}.weight" if kind == "cause" else f"{a}-{c}.weight"
    (b.cause if kind == "cause" else b.couple)(a, c, weight=params.pop(key, weight))


def _add_variable(b: GraphBuilder, entry: dict[str, Any], where: str) -> None:
    """Add the variable of one table."""
    _check_keys(entry, ("name",), ("name", "states"), where, "a variable")
    b.variable(entry["name"], entry.get("states", 2))


def _add_table(b: GraphBuilder, entry: dict[str, Any], conditional: bool, where: str) -> None:
    """Add a conditional, a table, or many tables."""
    if conditional:
        keys = ("child", "parents", "values")
        _check_keys(entry, ("child", "values"), keys, where, "a conditional")
        parents = [_member(one, where) for one in _listed(entry.get("parents", []), where)]
        b.conditional(_member(entry["child"], where), parents, entry["values"])
        return
    keys = ("scope", "values", "index")
    _check_keys(entry, ("scope", "values"), keys, where, "a table")
    scope = [_member(one, where) for one in _listed(entry["scope"], where)]
    if "index" not in entry:
        b.table(scope, entry["values"])
        return
    if not all(isinstance(one, str) for one in scope):
        raise PgmError(f"{where}: the scope of tables with an index must be names of layers")
    b.tables([str(one) for one in scope], entry["index"], entry["values"])


def _check_keys(
    entry: Mapping[str, Any], needed: Collection[str], known: Collection[str], where: str, what: str
) -> None:
    """Raise PgmError unless an entry has the needed keys and no unknown ones."""
    missing = [key for key in needed if key not in entry]
    wrong = [key for key in entry if key not in known]
    if missing or wrong:
        fault = f"{missing[0]!r} is missing" if missing else f"{wrong[0]!r} is unknown"
        raise PgmError(
            f"{where}: {what} has {', '.join(known)}, and {fault}{_hint(wrong, set(known))}"
        )


def _listed(value: object, where: str) -> list[object]:
    """Return a list of units; PgmError if it is none."""
    if not isinstance(value, list):
        raise PgmError(f"{where}: units must be a list such as [{value!r:.40}], not {value!r:.40}")
    return value


def _member(value: object, where: str) -> Member:
    """Return a unit: the name of a variable, or (layer, number or label)."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
        return value[0], plain_label(value[1])
    raise PgmError(
        f"{where}: a unit is the name of a variable, or [layer, number], not {value!r:.40}"
    )
