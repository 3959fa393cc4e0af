"""Files of graphical models by their suffixes.

Every format has a function from text to Network, and some have one from Network to text. Files may
be compressed: a name that ends with .gz has the format of the suffix before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pgmengine.base.checks import real
from pgmengine.base.errors import PgmError, told
from pgmengine.base.names import nearest
from pgmengine.base.work.interrupts import stoppable
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.declare.networks.tabular import Network
from pgmengine.evidence.columns import ValuesInRows
from pgmengine.io.bif import read_bif, write_bif
from pgmengine.io.hugin import read_dsl, read_net, write_net
from pgmengine.io.network import build, by_unit, finite_units, network_of
from pgmengine.io.opened import named, suffix_of, text_of, write_text
from pgmengine.io.uai import read_uai, read_uai_evidence, write_uai
from pgmengine.io.xml.xdsl import read_xdsl
from pgmengine.io.xml.xmlbif import read_xmlbif, write_xmlbif

# Suffix -> reader. The second argument of a reader is the tolerance of `read`.
READERS: dict[str, Callable[[str, float], Network]] = {
    ".uai": read_uai,
    ".bif": read_bif,
    ".xmlbif": read_xmlbif,
    ".bifxml": read_xmlbif,
    ".net": read_net,
    ".dsl": read_dsl,
    ".xdsl": read_xdsl,
}

WRITERS: dict[str, Callable[[Network], str]] = {
    ".uai": write_uai,
    ".bif": write_bif,
    ".xmlbif": write_xmlbif,
    ".bifxml": write_xmlbif,
    ".net": write_net,
}

# The functions for files that `read` or `write` refuses.
ELSEWHERE = {
    ("read", ".safetensors"): "; load reads the files that save wrote",
    ("read", ".toml"): "; load_declaration reads a model that is declared in TOML",
    ("written", ".safetensors"): "; save writes files for load",
}

T = TypeVar("T")

# The suffix of evidence for a .uai file.
EVIDENCE_SUFFIX = ".evid"


@stoppable
def read(path: str | Path, tolerance: float = 0.0) -> Model:
    r"""Read a model from a file in a format of the field.

    Use `load` for files that `save` wrote.

    Parameters
    ----------
    path : a file whose suffix tells its format: .uai (models of the UAI competitions), .bif,
        .xmlbif or .bifxml (the Bayesian interchange format and its XML form), .net (Hugin), .dsl or
        .xdsl (GeNIe); or one of these compressed, with .gz behind the suffix.

    tolerance : the largest difference from 1, due to rounded entries, that the sum of a row of
        probabilities may have, from 0 to 1. Such a row is divided by its sum. Rounding to six
        digits is always accepted: the sum of K probabilities may differ by 1e-6 + K * 0.5e-6. A row
        of three entries .333 needs the tolerance 0.001.

    Returns
    -------
    The model, with a named variable for each variable of the file. Variables "z[0]", "z[1]", ... or
    "s[0,0]", ... that are a whole grid with the same states are the array "z" or "s", as `write`
    wrote it. Variables of a .uai file are named "0", "1", ..., and so are their states. BAYES files
    that pyAgrum or pgmpy wrote are read in the order of the entries that these programs write,
    which is not that of the format.

    Raises
    ------
    PgmError
        For a file that cannot be read, has an unknown suffix, is malformed, or has conditionals
        whose rows do not sum to 1. The message begins with the file and the line.

    >>> import pgmengine as pgm, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "coin.uai"
    >>> _ = file.write_text("MARKOV\n1\n2\n1\n1 0\n\n2\n 1.0 3.0\n")
    >>> answer = pgm.infer(pgm.read(file)).marginal("0")
    >>> round(float(answer["1"]), 6)
    0.75
    """
    with named(path):
        return build(read_network(path, tolerance))


def read_network(path: str | Path, tolerance: float = 0.0) -> Network:
    """Return the network of tables in a file, as `read` does before it builds the model."""
    with named(path):
        if not 0 <= real(tolerance) < 1:
            raise PgmError(f"tolerance must be a number from 0, and below 1, not {told(tolerance)}")
        return _known(path, READERS, "read")(text_of(path), real(tolerance))


def write_network(network: Network, path: str | Path) -> None:
    """Write a network of tables to a file; its suffix is in WRITERS, with or without .gz.

    `read` returns the same numbers, to the bit.

    Raises
    ------
    PgmError
        For unknown suffixes, and for networks that the format cannot hold.
    OSError
        If the disk is full or broken. An existing file is then unchanged.
    """
    with named(path):
        write_text(path, _known(path, WRITERS, "written")(network))


@stoppable
def write(model: ModelLike, path: str | Path) -> None:
    """Write a model to a file in a format of the field.

    Use `save` for files that only pgmengine reads: it keeps every model, to the bit.

    Parameters
    ----------
    model : a model of units with finitely many states. A .bif, .xmlbif or .net file holds a
        conditional for each variable. A .uai file holds tables, too, and biases and undirected
        couplings as tables.
    path : a file whose suffix tells its format: .uai, .bif, .xmlbif or .bifxml, or .net; .gz behind
        it compresses the file.

    Raises
    ------
    PgmError
        For unknown suffixes, and for models that the format cannot hold: units with infinitely many
        values, arrows, noisy gates with more than 2^24 joint states, names that the format has no
        way to write, and, in all files but .uai, factors that are not conditionals.
    OSError
        If the disk is full or broken. An existing file is then unchanged.

    >>> import pgmengine as pgm, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "coin.bif"
    >>> b = pgm.GraphBuilder()
    >>> coin = b.variable("coin", states=("heads", "tails"))
    >>> b.conditional("coin", (), [0.1, 0.9])
    >>> pgm.write(b.build(), file)
    >>> pgm.read(file).variables
    ['coin']
    """
    with named(path):
        _known(path, WRITERS, "written")
        write_network(network_of(as_model(model)), path)


@stoppable
def read_evidence(path: str | Path, model: ModelLike | None = None) -> dict[str, Any]:
    r"""Read evidence from a file of the UAI competitions.

    Parameters
    ----------
    path : a file with the suffix .evid, or .evid.gz.
    model : the model that the evidence is for, which has the variables of the file in this order.
        Evidence for other variables or states is then refused.

    Returns
    -------
    A state by the name of each observed variable: the name that the model has for it, or its number
    from 0 where the states have no names; without a model, numbers by the number of the variable.
    If the file has several samples, an array of states, with NaN where a sample leaves the variable
    free. Units of layers come after the variables of a model, in their order. If they have no names
    of states, the answer has their values; if they have no names either, it has an array for each
    layer.

    Raises
    ------
    PgmError
        For a file that cannot be read or is malformed. The message begins with the file, the line
        and the number of the word.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "x.uai.evid"
    >>> _ = file.write_text("2\n0 1 3 0\n")
    >>> read_evidence(file)
    {'0': 1, '3': 0}
    """
    with named(path):
        _known(path, {EVIDENCE_SUFFIX: None}, "read as evidence")
        if model is None:
            return read_uai_evidence(text_of(path))
        model = as_model(model)
        units = finite_units(model)
        sizes = [model.structure.state_counts[name] for name, _ in units]
        found = read_uai_evidence(text_of(path), sizes)
        given = {units[int(number)]: states for number, states in found.items()}
        return ValuesInRows(by_unit(model, given))


def _known(path: object, formats: Mapping[str, T], done: str) -> T:
    """Return the entry of a path's suffix; raise PgmError for an unknown one."""
    suffix = suffix_of(path)
    if suffix not in formats:
        advice = ELSEWHERE.get((done, suffix)) or nearest(suffix, formats)
        raise PgmError(
            f"files with the suffix {suffix!r} cannot be {done}, expected one of "
            f"{', '.join(formats)}, each with or without .gz{advice}"
        )
    return formats[suffix]
