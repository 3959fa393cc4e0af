"""Models in files: a .safetensors file for a whole model, and a TOML declaration of a graph.

A .safetensors file has the parameters as tensors, and the declaration as JSON in its metadata. A
model with tables or variables has two more tensors, the units of the tables and of the variables. A
trained model also has the base rates of its data and its last chains, a tensor for each layer.
declared.py builds the model of a declaration, and describes the TOML format.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.files import CHECKSUM_ENTRY, plain_text, read_tensors, shown, write_tensors
from pgmengine.base.limits import MAX_AXES
from pgmengine.base.sparse import compressed
from pgmengine.base.types import Array, RngLike
from pgmengine.declare.declaration import check_names_come_back, declaration_of
from pgmengine.declare.shared.stored_terms import StoredTerm, stored_terms, term_numbers, term_units
from pgmengine.declare.stored_tables import (
    table_numbers,
    table_units,
    variable_units,
    with_stored_tables,
)
from pgmengine.io.declared import declared_model
from pgmengine.io.words import is_not_zero
from pgmengine.model.model import Model, ModelLike, as_model
from pgmengine.model.training import Training
from pgmengine.model.weights import is_sparse

MODEL_FORMAT = "pgmengine-2"

# The formats of models with tables or variables, and of models with a training, which may also have
# tables. Earlier versions of the package read neither. In files of the first of them, and in
# earlier ones of the second, no places share a table.
FORMAT_WITH_UNSHARED, FORMAT_WITH_TRAINING = "pgmengine-3", "pgmengine-4"

# The format of models with tables, variables, or shared couplings and biases. Tables may be shared.
# The model may have a training.
FORMAT_WITH_TABLES = "pgmengine-5"

# The names of the tensors with the units of tables and of variables, and with the number of the
# table of each place.
TABLE_UNITS, VARIABLE_UNITS = "tables/units", "variables/units"
TABLE_NUMBERS = "tables/numbers"

# The names of the tensors with the units of the places of shared couplings and biases, and with the
# number of the weight of each place.
SHARED_UNITS, SHARED_NUMBERS = "shared/units", "shared/numbers"

# The tensors of a training are named by one of these prefixes and the layer.
BASE_RATES_PREFIX, CHAINS_PREFIX = "training/base_rates/", "training/chains/"

# The entry of the metadata that says whether the constructor chose the parameters.
PARAMETERS_ENTRY = "parameters"

# The entry of the metadata of a model with tables that has a training.
TRAINING_ENTRY = "training"

# The format of earlier files, which have no checksum.
FORMAT_WITHOUT_CHECKSUM = "pgmengine-1"

# The parts of a sparse parameter, each of which is a tensor "name/part".
SPARSE_PARTS = ("data", "indices", "indptr", "shape")


def save(model: ModelLike, path: str | Path) -> None:
    """Write a model to one .safetensors file.

    The file replaces an existing one as a whole; if the path is a symbolic link, the file that it
    leads to is replaced. A checksum in the file tells `load` whether it is damaged.

    Parameters
    ----------
    model : a model with any layers and couplings. A unit type of your own is stored by its name,
        and must be defined when the file is read.
    path : the file, in a folder that exists.

    Raises
    ------
    PgmError
        For units that a file cannot hold, for names of units and states that are no text, numbers,
        booleans, None or tuples of these, and for a path that leads to something other than a
        regular file. Nothing is written then.
    OSError
        If the disk is full or broken. An existing file is then unchanged.

    >>> import pgmengine as pgm, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "m.safetensors"
    >>> pgm.save(pgm.rbm(3, 2, rng=0), file)
    >>> pgm.load(file)
    Restricted Boltzmann machine: 2 layers, 1 coupling, 11 parameters
      v: 3 Binary
      h: 2 Binary
      couplings: v-h
    """
    model, tensors = as_model(model), dict[str, Array]()
    check_names_come_back(model.structure.layers.values())
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
    structure, form = model.structure, MODEL_FORMAT
    if model.training is not None:
        form = FORMAT_WITH_TRAINING
        tensors |= {
            BASE_RATES_PREFIX + name: value for name, value in model.training.base_rates.items()
        }
        tensors |= {CHAINS_PREFIX + name: value for name, value in model.training.chains.items()}
    if (
        structure.tables
        or structure.variables
        or structure.shared
        or any(x.is_array for x in structure.layers.values())
    ):
        form = FORMAT_WITH_TABLES
        tensors |= {
            TABLE_UNITS: table_units(structure),
            TABLE_NUMBERS: table_numbers(structure),
            VARIABLE_UNITS: variable_units(structure),
        }
    if structure.shared:
        tensors |= {SHARED_UNITS: term_units(structure), SHARED_NUMBERS: term_numbers(structure)}
    declaration = json.dumps(declaration_of(model))
    chosen = "by the constructor" if model.fresh else "by hand or by learning"
    metadata = {"format": form, "declaration": declaration, PARAMETERS_ENTRY: chosen}
    if form == FORMAT_WITH_TABLES and model.training is not None:
        metadata[TRAINING_ENTRY] = "base rates and chains"
    write_tensors(path, tensors, metadata)


def load(path: str | Path) -> Model:
    """Read a model that `save` wrote, in this version of the package or an earlier one.

    Parameters
    ----------
    path : a .safetensors file.

    Returns
    -------
    The model, with the same parameters to the bit, and with its training.

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
        if metadata.get("format") not in (
            MODEL_FORMAT,
            FORMAT_WITH_TABLES,
            FORMAT_WITH_UNSHARED,
            FORMAT_WITH_TRAINING,
            FORMAT_WITHOUT_CHECKSUM,
        ):
            raise PgmError(
                f"not a model of pgmengine (format {metadata.get('format')!r}, expected "
                f"{MODEL_FORMAT!r})"
            )
        if metadata["format"] != FORMAT_WITHOUT_CHECKSUM and CHECKSUM_ENTRY not in metadata:
            raise PgmError("is damaged: its checksum is missing; take another copy")
        if "declaration" not in metadata:
            raise PgmError("is damaged: its declaration is missing; take another copy")
        try:
            declaration = json.loads(metadata["declaration"])
        except ValueError as error:
            raise PgmError(f"its declaration cannot be read: {error}") from None
        trained = metadata["format"] == FORMAT_WITH_TRAINING or TRAINING_ENTRY in metadata
        training = _take_training(tensors) if trained else None
        tabled = metadata["format"] in (FORMAT_WITH_TABLES, FORMAT_WITH_UNSHARED)
        tabled |= metadata["format"] == FORMAT_WITH_TRAINING and TABLE_UNITS in tensors
        tabled &= isinstance(declaration, dict)
        stored = _take_tables(declaration, tensors) if tabled else None
        units, which = (tensors.pop(name, None) for name in (SHARED_UNITS, SHARED_NUMBERS))
        params = _parameters(tensors)
        found = set(params)
        shared = list[StoredTerm]()
        if tabled and "shared" in declaration:
            shared = stored_terms(declaration.pop("shared"), units, which, params)
        model = declared_model(declaration, params, None, shared)
        if missing := [name for name in model.params if name not in found]:
            raise PgmError(f"parameter {missing[0]!r} is missing")
        whole = model if stored is None else with_stored_tables(model, *stored)
        fresh = metadata.get(PARAMETERS_ENTRY) == "by the constructor"
        return Model(whole.structure, whole.params, fresh=fresh).with_training(training)


def _take_training(tensors: dict[str, Array]) -> Training:
    """Take the base rates and the chains of a training out of the tensors of a file."""
    rates, chains = (
        {n.removeprefix(kind): tensors.pop(n) for n in list(tensors) if n.startswith(kind)}
        for kind in (BASE_RATES_PREFIX, CHAINS_PREFIX)
    )
    return Training(rates, chains)


def _take_tables(
    declaration: dict[str, Any], tensors: dict[str, Array]
) -> tuple[object, list[str], Array, Array | None, Array, dict[str, Array]]:
    """Take tables and variables out of a declaration and its tensors, as `stored_tables` made them.

    The parts are the entries, the names of arrays of variables, the units and numbers of the
    tables, the units of the variables, and the logarithms.
    """
    if missing := [name for name in (TABLE_UNITS, VARIABLE_UNITS) if name not in tensors]:
        raise PgmError(f"is damaged: the tensor {missing[0]!r} is missing")
    entries = declaration.pop("tables", [])
    records = entries if isinstance(entries, list) else []
    named = {r["name"] for r in records if isinstance(r, dict) and r.get("named") and "name" in r}
    own = [name for name in tensors if name.endswith(".table") or name in named]
    logs = {name: tensors.pop(name) for name in own}
    units, variables = tensors.pop(TABLE_UNITS), tensors.pop(VARIABLE_UNITS)
    arrays = declaration.pop("arrays", [])
    known = isinstance(arrays, list) and all(isinstance(name, str) for name in arrays)
    if not known:
        raise PgmError("is damaged: 'arrays' must be a list of names")
    return entries, arrays, units, tensors.pop(TABLE_NUMBERS, None), variables, logs


def load_declaration(path: str | Path, rng: RngLike = None) -> Model:
    r"""Build the model that a TOML file declares.

    Use it for models that are written by hand. Use `save` and `load` for trained models.

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
    Independent units: 1 layer, 3 parameters
      v: 3 Binary
    """
    with _of_file(path):
        try:
            text = plain_text(path)
            declaration = tomllib.loads(text, parse_float=partial(_float, text))
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
        return declared_model(declaration, params, rng)


def _float(text: str, word: str) -> float:
    """Return a word of a TOML text as a number; PgmError if double precision cannot hold it.

    Python would read such a number as 0 or infinity.
    """
    value = float(word)
    if (value == 0 and is_not_zero(word)) or (math.isinf(value) and "inf" not in word):
        line = text.count("\n", 0, text.find(word)) + 1
        raise PgmError(f"line {line}: {word[:40]!r} is a number that double precision cannot hold")
    return value


@contextmanager
def _of_file(path: str | Path) -> Iterator[None]:
    """Turn every error while reading into a PgmError that begins with the file."""
    try:
        yield
    except PgmError as error:
        named = str(error).startswith(shown(path))
        raise PgmError(str(error) if named else f"{shown(path)}: {error}") from None
    except RecursionError:
        raise PgmError(
            f"{shown(path)}: cannot be read: lists within lists, more than {MAX_AXES} levels"
        ) from None
    except MemoryError:
        raise PgmError(
            f"{shown(path)}: cannot be read: it needs more memory than is free"
        ) from None


def _parameters(tensors: Mapping[str, Array]) -> dict[str, Any]:
    """Return the parameters, with sparse ones put together from their parts."""
    sparse = {
        name.rpartition("/")[0] for name in tensors if name.rpartition("/")[2] in SPARSE_PARTS
    }
    params = {
        name: value
        for name, value in tensors.items()
        if name.rpartition("/")[2] not in SPARSE_PARTS
    }
    for name in sorted(sparse):
        missing = [part for part in SPARSE_PARTS if f"{name}/{part}" not in tensors]
        if missing:
            raise PgmError(f"the sparse parameter {name!r} is damaged: {missing[0]!r} is missing")
        data, indices, indptr, shape = (tensors[f"{name}/{part}"] for part in SPARSE_PARTS)
        params[name] = compressed(
            data, indices, indptr, shape, f"parameter {name!r}, which is damaged,"
        )
    return params
