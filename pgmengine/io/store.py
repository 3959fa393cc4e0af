"""Models in files: a .safetensors file for a whole model, and a TOML declaration of a graph.

A .safetensors file has the parameters as tensors, and the declaration as JSON in its metadata. A
model with tables or variables has two more tensors, the units of the tables and of the variables. A
trained model also has the base rates of its data and its last chains, a tensor for each layer.
declared.py builds the model of a declaration, and describes the TOML format.
"""

from __future__ import annotations

import json
import logging
import math
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from pgmengine.base.errors import PgmError, reason
from pgmengine.base.files import CHECKSUM_ENTRY, plain_text, read_tensors, write_tensors
from pgmengine.base.sparse import compressed
from pgmengine.base.types import Array, RngLike, Weight
from pgmengine.base.work.interrupts import stoppable
from pgmengine.declare.builder import GraphBuilder
from pgmengine.declare.declaration import check_names_come_back, declaration_of
from pgmengine.declare.description import Description, description_of, in_order, own_biases
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.declare.template import Template, as_template
from pgmengine.declare.terms.stored_terms import (
    OWN_LISTS,
    TENSORS,
    UNITS,
    has_forms,
    parameters_of,
    term_tensors,
    with_stored_terms,
)
from pgmengine.io.declared_model import declared, declared_model
from pgmengine.io.formats import READERS
from pgmengine.io.opened import named, suffix_of
from pgmengine.io.words import is_not_zero
from pgmengine.model.structure import first_of
from pgmengine.model.training import Training
from pgmengine.model.weights import is_sparse

log = logging.getLogger(__name__)

MODEL_FORMAT = "pgmengine-2"

# The formats of models with tables or variables, and of models with a training, which may also have
# tables. Earlier versions of the package read neither. In files of the first of them, and in
# earlier ones of the second, no places share a table.
FORMAT_WITH_UNSHARED, FORMAT_WITH_TRAINING = "pgmengine-3", "pgmengine-4"
# The format of models with gates of earlier versions, which may have all of that, and of models
# with entries that follow from fewer numbers, such as those of gates.
FORMAT_WITH_GATES, FORMAT_WITH_FORMS = "pgmengine-6", "pgmengine-7"

# The format of models with tables, variables, or shared couplings and biases. Tables may be shared.
# The model may have a training.
FORMAT_WITH_TABLES = "pgmengine-5"

# The tensors of a training are named by one of these prefixes and the layer.
BASE_RATES_PREFIX, CHAINS_PREFIX = "training/base_rates/", "training/chains/"

# The entry of the metadata that says whether the constructor chose the parameters.
PARAMETERS_ENTRY = "parameters"

# The entry of the metadata of a model with tables that has a training.
TRAINING_ENTRY = "training"

# The format of the parameters of a template, and the entries of the metadata with its name, and
# with the descriptions of some of its models by their numbers of steps.
TEMPLATE_FORMAT, TEMPLATE_ENTRY = "pgmengine-template-2", "template"
DESCRIPTIONS_ENTRY = "descriptions"

# The format of earlier files, which have the learned parameters of a template without descriptions.
TEMPLATE_WITHOUT_DESCRIPTIONS = "pgmengine-template-1"
TEMPLATE_FORMATS = (TEMPLATE_FORMAT, TEMPLATE_WITHOUT_DESCRIPTIONS)

# The format of earlier files, which have no checksum.
FORMAT_WITHOUT_CHECKSUM = "pgmengine-1"

FORMATS = (
    MODEL_FORMAT,
    FORMAT_WITH_TABLES,
    FORMAT_WITH_UNSHARED,
    FORMAT_WITH_TRAINING,
    FORMAT_WITH_GATES,
    FORMAT_WITH_FORMS,
    FORMAT_WITHOUT_CHECKSUM,
)

FORMATS_WITH_TABLES = (
    FORMAT_WITH_TABLES,
    FORMAT_WITH_UNSHARED,
    FORMAT_WITH_GATES,
    FORMAT_WITH_FORMS,
)

# The parts of a sparse parameter, each of which is a tensor "name/part".
SPARSE_PARTS = ("data", "indices", "indptr", "shape")


@stoppable
def save(model: ModelLike | Template, path: str | Path) -> None:
    """Write a model to one .safetensors file, or the parameters of a template.

    The file replaces an existing one as a whole; if the path is a symbolic link, the file that it
    leads to is replaced. A checksum in the file tells `load` whether it is damaged.

    Parameters
    ----------
    model : a model with any layers and couplings. A unit type of your own is stored by its name,
        and must be defined when the file is read. Of a template, the file has the parameters that
        models of all lengths share, and a description of its variables, states and terms; its
        declaration is a function, which `load` takes again.
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
    if (suffix := suffix_of(path)) in READERS:
        raise PgmError(
            f"{path}: save writes .safetensors files; pgm.write writes files of other programs, "
            f"and a file of save called {suffix} could not be read as one"
        )
    if (template := as_template(model)) is not None:
        save_template(template, path)
        return
    model, tensors = as_model(model), dict[str, Array]()
    check_names_come_back(model.structure.layers.values())
    tensors |= tensors_of(model.params)
    structure, form = model.structure, MODEL_FORMAT
    if model.training is not None:
        form = FORMAT_WITH_TRAINING
        rates, chains = model.training.base_rates, model.training.chains
        tensors |= {BASE_RATES_PREFIX + name: value for name, value in rates.items()}
        tensors |= {CHAINS_PREFIX + name: value for name, value in chains.items()}
    arrays = any(layer.is_array for layer in structure.layers.values())
    if structure.terms or structure.variables or arrays:
        form = FORMAT_WITH_FORMS if has_forms(structure) else FORMAT_WITH_TABLES
        tensors |= term_tensors(structure)
    declaration = json.dumps(declaration_of(model))
    chosen = "by the constructor" if model.fresh else "by hand or by learning"
    metadata = {"format": form, "declaration": declaration, PARAMETERS_ENTRY: chosen}
    if form in (FORMAT_WITH_TABLES, FORMAT_WITH_FORMS) and model.training is not None:
        metadata[TRAINING_ENTRY] = "base rates and chains"
    write_tensors(path, tensors, metadata)


@overload
def load(path: str | Path, declare: None = None) -> Model: ...


@overload
def load(path: str | Path, declare: Callable[[int], GraphBuilder]) -> Template: ...


@stoppable
def load(
    path: str | Path, declare: Callable[[int], GraphBuilder] | None = None
) -> Model | Template:
    """Read a model that `save` wrote, in this version of the package or an earlier one.

    Parameters
    ----------
    path : a .safetensors file.
    declare : the function that declares a template, if the file has the parameters of one. It must
        declare the variables, states and terms that the file describes. States of variables may
        have another order: tables are then put in order.

    Returns
    -------
    The model, with the same parameters to the bit, and with its training; or the template.

    Raises
    ------
    PgmError
        For a file that cannot be read, is damaged or truncated, holds no model, or holds a model
        that does not fit into free memory; and for a function that declares something else than the
        file describes. The message begins with the file.

    >>> import pgmengine as pgm, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "m.safetensors"
    >>> pgm.save(pgm.rbm(3, 2, rng=0), file)
    >>> _ = file.write_bytes(file.read_bytes()[:-8])
    >>> pgm.load(file)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    PgmError: m.safetensors: not a readable .safetensors file
    """
    with named(path):
        tensors, metadata = read_tensors(path)
        if metadata.get("format") in TEMPLATE_FORMATS or declare is not None:
            return template_of(_parameters(tensors), metadata, declare)
        if metadata.get("format") not in FORMATS:
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
            raise PgmError(f"its declaration cannot be read: {reason(error)}") from None
        trained = metadata["format"] == FORMAT_WITH_TRAINING or TRAINING_ENTRY in metadata
        training = _take_training(tensors) if trained else None
        tabled = metadata["format"] in FORMATS_WITH_TABLES
        tabled |= metadata["format"] == FORMAT_WITH_TRAINING and UNITS["tables"] in tensors
        tabled &= isinstance(declaration, dict)
        units = {name: tensors.pop(name) for name in TENSORS if name in tensors}
        params, own, lists = _parameters(tensors), dict[str, Any](), dict[str, Any]()
        if tabled:
            lists = {name: declaration.pop(name) for name in OWN_LISTS if name in declaration}
            own = {name: params.pop(name) for name in parameters_of(lists, params)}
        found = {*params}
        b = declared(declaration, params)
        whole = with_stored_terms(b, lists, units, own) if tabled else b.build()
        terms = first_of(whole.structure.terms)
        if missing := [name for name in whole.params if name not in terms and name not in found]:
            raise PgmError(f"parameter {missing[0]!r} is missing")
        fresh = metadata.get(PARAMETERS_ENTRY) == "by the constructor"
        return Model(whole.structure, whole.params, fresh=fresh).with_training(training)


def tensors_of(params: Mapping[str, Weight]) -> dict[str, Array]:
    """Return parameters as tensors of a file: sparse ones have a tensor for each of their parts."""
    tensors: dict[str, Array] = {}
    for name, value in params.items():
        if is_sparse(value):
            parts = {part: np.asarray(getattr(value, part)) for part in SPARSE_PARTS}
            tensors |= {f"{name}/{part}": array for part, array in parts.items()}
        else:
            tensors[name] = value
    return tensors


def save_template(template: Template, path: str | Path) -> None:
    """Write the parameters of a template, also those that it has not learned, and descriptions.

    A file with the learned ones alone would be read with others that the function declares by then.
    """
    if not template.learned:
        raise PgmError(
            f"{template!r} has no learned parameters: its declaration is a function, which no file "
            "holds"
        )
    described = {str(n): description_of(template(n)) for n in template.telling_steps}
    metadata = {
        "format": TEMPLATE_FORMAT,
        TEMPLATE_ENTRY: template.name,
        DESCRIPTIONS_ENTRY: json.dumps(described),
    }
    # Layers that hold variables have names and sizes that depend on the order of states. A layer
    # whose units all have conditionals has a bias of zeros.
    biases = {f"{name}.bias": has for name, has in own_biases(template(2).structure).items()}
    params = {key: value for key, value in template.params.items() if biases.get(key, True)}
    write_tensors(path, tensors_of(params), metadata)


def template_of(
    params: dict[str, Any],
    metadata: Mapping[str, str],
    declare: Callable[[int], GraphBuilder] | None,
) -> Template:
    """Return the template of a file, whose declaration the user gives again."""
    if metadata.get("format") not in TEMPLATE_FORMATS:
        raise PgmError("holds no template but a model: leave out declare=")
    if CHECKSUM_ENTRY not in metadata:
        raise PgmError("is damaged: its checksum is missing; take another copy")
    if declare is None:
        raise PgmError(
            f"has the parameters of the template {metadata.get(TEMPLATE_ENTRY)!r}: give declare=, "
            "the function of the number of steps that declares it"
        )
    template = Template(declare)
    if metadata["format"] == TEMPLATE_WITHOUT_DESCRIPTIONS:
        log.warning(
            "the file of the template %r is of an earlier format, without the names of states: "
            "declare all states in the order in which they were declared when it was written, and "
            "save the template again",
            metadata.get(TEMPLATE_ENTRY),
        )
        return template.with_params(params)
    ordered = dict(params)
    for steps, description in _descriptions(metadata):
        model = template(steps)
        own = {key: value for key, value in params.items() if key in model.params}
        ordered |= in_order(own, description, model, f"{template.name}({steps})")
    return template.with_params(ordered)


def _descriptions(metadata: Mapping[str, str]) -> list[tuple[int, Description]]:
    """Return the numbers of steps and the descriptions of a file."""
    try:
        found = json.loads(metadata[DESCRIPTIONS_ENTRY])
        for one in found.values():
            parts = [*one["variables"].values(), *one["terms"].values()]
            if not all(isinstance(part, dict) for part in parts):
                raise ValueError("an entry is no table")
        return [(int(steps), one) for steps, one in found.items()]
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise PgmError(f"is damaged: its descriptions cannot be read: {error!r}") from None


def _take_training(tensors: dict[str, Array]) -> Training:
    """Take the base rates and the chains of a training out of the tensors of a file."""
    rates, chains = (
        {n.removeprefix(kind): tensors.pop(n) for n in list(tensors) if n.startswith(kind)}
        for kind in (BASE_RATES_PREFIX, CHAINS_PREFIX)
    )
    return Training(rates, chains)


@stoppable
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
    with named(path):
        try:
            text = plain_text(path)
            declaration = tomllib.loads(text, parse_float=partial(_float, text))
        except PgmError:
            raise
        except ValueError as error:
            raise PgmError(f"not a readable TOML file: {reason(error)}") from None
        if "weights" not in declaration:
            return declared_model(declaration, {}, rng)
        weights = declaration.pop("weights")
        if not isinstance(weights, str):
            raise PgmError(f"weights must be the name of a .safetensors file, not {weights!r}")
        return _with_weights(declaration, Path(path).parent / weights, rng)


def _with_weights(declaration: dict[str, Any], file: Path, rng: RngLike) -> Model:
    """Return the model of a declaration with the parameters of a file.

    A file of `save` says what its parameters belong to. Other files have arrays by name, whose
    entries are taken by their position.
    """
    with named(file):
        tensors, metadata = read_tensors(file)
    if metadata.get("format") not in FORMATS:
        return declared_model(declaration, _parameters(tensors), rng)
    saved, model = load(file), declared_model(declaration, {}, rng)
    with named(file):
        described = description_of(saved)
        found = in_order(saved.params, described, model, "the declaration", more=True)
        return model.with_params(found)


def _float(text: str, word: str) -> float:
    """Return a word of a TOML text as a number; PgmError if double precision cannot hold it.

    Python would read such a number as 0 or infinity.
    """
    value = float(word)
    if (value == 0 and is_not_zero(word)) or (math.isinf(value) and "inf" not in word):
        line = text.count("\n", 0, text.find(word)) + 1
        raise PgmError(f"line {line}: {word[:40]!r} is a number that double precision cannot hold")
    return value


def _parameters(tensors: Mapping[str, Array]) -> dict[str, Any]:
    """Return the parameters, with sparse ones put together from their parts."""
    params, sparse = dict[str, Any](), set[str]()
    for name, value in tensors.items():
        whole, _, part = name.rpartition("/")
        if part in SPARSE_PARTS:
            sparse.add(whole)
        else:
            params[name] = value
    for name in sorted(sparse):
        missing = [part for part in SPARSE_PARTS if f"{name}/{part}" not in tensors]
        if missing:
            raise PgmError(f"the sparse parameter {name!r} is damaged: {missing[0]!r} is missing")
        data, indices, indptr, shape = (tensors[f"{name}/{part}"] for part in SPARSE_PARTS)
        params[name] = compressed(
            data, indices, indptr, shape, f"parameter {name!r}, which is damaged,"
        )
    return params
