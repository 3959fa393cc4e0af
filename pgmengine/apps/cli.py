"""The command line: pgmengine demo | fit | infer | explain | sample | info.

Commands read a model and evidence from files, call the function of the package with the same name,
and print a table or write a file. An error is one line on stderr, and the exit code is 2.
"""

from __future__ import annotations

import csv
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Hashable, Mapping
from io import BytesIO, StringIO
from pathlib import Path
from typing import Annotated, Any
from zipfile import ZipFile

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import pgmengine as pgm
from pgmengine.apps.demo import run_demo
from pgmengine.base.files import plain_text, readable, shown, writable, write_whole
from pgmengine.base.memory import no_room
from pgmengine.base.threads import threads
from pgmengine.base.types import Array
from pgmengine.graph.named_units import state_number
from pgmengine.graph.validate import as_floats
from pgmengine.infer.auto import drawing
from pgmengine.io.formats import EVIDENCE, READERS
from pgmengine.io.network import network_of
from pgmengine.io.opened import suffix_of

app = typer.Typer(
    add_completion=False,
    help="Graphical models: declare, learn, ask.",
    pretty_exceptions_enable=False,
)
ModelFile = Annotated[
    Path,
    typer.Argument(
        help="a .safetensors model, a .toml declaration, or a .bif, .uai, .net, .dsl or .xdsl file"
    ),
]
Evidence = Annotated[
    list[str] | None,
    typer.Option(
        help='inline "v=1,0,?,1" or "rain=yes", or a .npz, .csv, .json or .evid file; may be given '
        "several times"
    ),
]
Want = Annotated[
    str,
    typer.Option(help="comma-separated: marginals, log_z, log_prob, samples, mode, pairs, bound"),
]
Seed = Annotated[int, typer.Option(min=0, help="seed of the random numbers")]


def main() -> None:
    """Run the command line; an error is one line on stderr and exit code 2."""
    try:
        # Tell about a wrong setting of the environment before any work.
        threads()
        sys.exit(app(standalone_mode=False))
    except pgm.PgmError as error:
        message = str(error)
    except typer.Abort:
        message = "interrupted"
    except BrokenPipeError:
        # The reader of the output has seen enough. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        place = f"{shown(error.filename)}: " if error.filename else ""
        message = f"{place}{error.strerror or error}"
    except MemoryError as error:
        message = f"more memory is needed than is free{': ' * bool(str(error))}{error}"
    except Exception as error:
        # Errors of click about arguments. typer may bring its own click, so they have no one class.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()
    print(f"pgmengine: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


def read_model(path: Path, seed: int = 0) -> pgm.Model:
    """Return the model of a .toml declaration, a file of the field, or a .safetensors file."""
    if path.suffix == ".toml":
        return pgm.load_declaration(path, rng=seed)
    return pgm.read(path) if suffix_of(path) in READERS else pgm.load(path)


def read_evidence(model: pgm.Model, given: list[str] | None) -> dict[str, Any]:
    """Return evidence from inline texts and files: layer -> array with NaN where not observed."""
    evidence: dict[str, Any] = {}
    for text in given or ():
        # os.path.exists is False for texts that are too long for a file name.
        if "=" in text and not os.path.exists(text):
            found = _inline(model, text)
        else:
            found = read_arrays(model, Path(text))
        if twice := sorted(set(found) & set(evidence)):
            raise pgm.PgmError(f"evidence {text!r}: {twice[0]!r} has been given before")
        evidence |= found
    return evidence


def _inline(model: pgm.Model, text: str) -> dict[str, Any]:
    """Return the evidence of one text: a state of a variable by its name, or values of a layer."""
    key, _, given = text.partition("=")
    name, what = key.strip(), f"evidence {text!r}"
    s = model.structure
    if name in s.places:
        layer, unit = s.places[name]
        state = given.strip()
        named = s.layers[layer].state_names or ()
        number = state_number(s.layers[layer], state, what) if state != "?" else math.nan
        # A layer of one unit takes numbers.
        return {name: [number]} if name in s.layers else {name: state if state in named else number}
    s.layer(name, what=f"{what}: layer")
    return {name: [_number(v, what) for v in given.split(",")]}


def _number(text: str, where: str) -> float:
    """Return a number, or NaN for a question mark or an empty text."""
    text = text.strip()
    try:
        return float("nan") if text in ("?", "") else float(text)
    except ValueError:
        raise pgm.PgmError(f"{where}: {text!r} is not a number or ?") from None


def read_arrays(model: pgm.Model, path: Path) -> dict[str, Any]:
    """Return arrays by layer from a .npz, .csv or .json file; a .csv is for the first layer."""
    place = shown(path)
    readers = {".npz": _read_npz, ".json": _read_json, ".csv": _read_csv}
    if suffix_of(path) == EVIDENCE:
        return dict(pgm.read_evidence(path, model))
    if path.suffix not in readers:
        raise pgm.PgmError(f"evidence file {place}: expected .npz, .csv, .json or .evid")
    try:
        return readers[path.suffix](model, readable(path))
    except pgm.PgmError as error:
        why = str(error).removeprefix(f"{place}: ")
        raise pgm.PgmError(f"evidence file {place}: {why}") from None
    except Exception as error:
        # numpy, zipfile, json and csv raise a dozen kinds of errors for damaged files.
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise pgm.PgmError(f"evidence file {place} cannot be read: {why}") from None


def _read_npz(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return the arrays of an archive by their names."""
    with ZipFile(place) as parts:
        needed = sum(part.file_size for part in parts.infolist())
    if why := no_room(2 * needed, "give fewer rows"):
        raise pgm.PgmError(f"its arrays do not fit into memory: {why}")
    with np.load(place, allow_pickle=False) as arrays:
        found = dict(arrays)
    for name, value in found.items():
        if not isinstance(value, np.ndarray):
            raise pgm.PgmError(f"{name!r} is not an array")
    return found


def _read_json(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return the arrays of a JSON object by their names."""
    found = json.loads(plain_text(place))
    if not isinstance(found, dict):
        raise pgm.PgmError(f"expected an object of arrays by layer, not {type(found).__name__}")
    return {name: as_floats(value, f"layer {name!r}") for name, value in found.items()}


def _read_csv(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return the rows of a table as the array of the first layer."""
    # numpy.loadtxt would count rows without the empty lines, and so name the wrong line.
    lines = csv.reader(StringIO(plain_text(place), newline=""))
    rows = [(lines.line_num, row) for row in lines if row]
    if not rows:
        raise pgm.PgmError("there are no rows, expected at least one")
    for number, row in rows:
        if len(row) != len(rows[0][1]):
            raise pgm.PgmError(
                f"rows of unequal length: line {number} has {len(row)} cells, "
                f"line {rows[0][0]} has {len(rows[0][1])}"
            )
    values = [[_number(cell, f"line {number}") for cell in row] for number, row in rows]
    return {next(iter(model.structure.layers)): np.array(values)}


@app.command()
def info(model: ModelFile) -> None:
    """Show the layers, couplings and parameters of a model, or its variables and tables."""
    m = read_model(model)
    if m.structure.variables:
        _show(_variables(m, str(model)))
        return
    layers = Table("layer", "unit", "size", title=str(model))
    for x in m.structure.layers.values():
        layers.add_row(x.name, repr(x.unit), str(x.size))
    params = Table("parameter", "shape", "smallest", "largest")
    for name, value in m.params.items():
        dense = np.asarray(value.data if hasattr(value, "tocoo") else value)
        low, high = (f"{f(dense):.4g}" if dense.size else "-" for f in (np.min, np.max))
        params.add_row(name, "x".join(map(str, value.shape)), low, high)
    _show(layers, params)


def _variables(model: pgm.Model, title: str) -> Table:
    """Return a table of the variables of a model, with their states and conditionals."""
    network = network_of(model)
    entries = sum(c.values.size for c in network.conditionals)
    entries += sum(t.values.size for t in network.tables)
    out = Table(
        "variable",
        "states",
        "parents",
        "tables",
        title=title,
        caption=f"{len(network.names)} variables, {len(network.conditionals)} conditionals, "
        f"{len(network.tables)} tables, {entries} entries",
    )
    parents = {
        c.child: ", ".join(network.names[p] for p in c.parents) for c in network.conditionals
    }
    inside = Counter(i for t in network.tables for i in t.scope)
    for i, (name, states) in enumerate(zip(network.names, network.states, strict=True)):
        out.add_row(name, ", ".join(states), parents.get(i, ""), str(inside[i] or ""))
    return out


def _show(*tables: Table) -> None:
    """Print tables, whose names are not read as styles."""
    Console(markup=False, emoji=False).print(*tables)


@app.command()
def explain(model: ModelFile, evidence: Evidence = None, want: Want = "marginals") -> None:
    """Show which method would answer, and why."""
    m = read_model(model)
    found = pgm.explain(m, read_evidence(m, evidence), _wanted(want))
    if sys.stdout.isatty():
        Console().print(found)
    else:
        print(found)


def _wanted(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


@app.command()
def infer(
    model: ModelFile,
    evidence: Evidence = None,
    want: Want = "marginals",
    out: Annotated[
        Path | None, typer.Option(help="write the answers to a .npz or .json file")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Answer a question; print a table or write a file."""
    m = read_model(model)
    _check_out(out)
    result = pgm.infer(m, read_evidence(m, evidence), want=_wanted(want), rng=seed)
    arrays = _flat_answers(result)
    if out is None and m.structure.variables:
        _print_by_name(m, result, arrays)
    elif out is None:
        _print_answers(result, arrays)
    else:
        _write(out, arrays)


def _flat_answers(result: pgm.Result) -> dict[str, Array]:
    """Return the answers as arrays: "log_z", and "mean.v" for the mean of layer v."""
    arrays: dict[str, Array] = {}
    for name, value in result.answers.items():
        if isinstance(value, Mapping):
            arrays |= {f"{name}.{key}": np.asarray(v) for key, v in value.items()}
        else:
            arrays[name] = np.asarray(value)
    return arrays


def _check_folder(out: Path) -> None:
    """Raise PgmError, before any work, unless the file can be written."""
    writable(out)
    if not out.parent.is_dir():
        raise pgm.PgmError(f"{out}: there is no folder {out.parent}")


def _check_out(out: Path | None) -> None:
    """Raise PgmError unless a file of answers can be written here."""
    if out is not None and out.suffix not in (".npz", ".json"):
        raise pgm.PgmError(f"out must end in .npz or .json, not {out}")
    if out is not None:
        _check_folder(out)


def _write(out: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name to a .npz or .json file."""
    if out.suffix == ".npz":
        held = BytesIO()
        # The stubs of numpy take the names for its option allow_pickle.
        np.savez_compressed(held, **arrays)  # type: ignore[arg-type]
        content = held.getvalue()
    else:
        named = {name: _as_json(value) for name, value in arrays.items()}
        content = json.dumps(named, allow_nan=False).encode()
    write_whole(out, content)
    print(f"wrote {out}")


def _as_json(array: Array) -> Any:
    """Return nested lists, with null for NaN and infinities, which JSON does not have."""
    entries = array.astype(object)
    entries[~np.isfinite(array)] = None
    return entries.tolist()


def _print_answers(result: pgm.Result, arrays: Mapping[str, Array]) -> None:
    """Print a table of arrays, and warnings to stderr."""
    table = Table("answer", "shape", "values", title=f"{result.kind}: {result.plan}")
    for name, array in arrays.items():
        text = np.array2string(
            array, precision=4, suppress_small=True, threshold=60, max_line_width=80
        )
        table.add_row(name, str(array.shape), text)
    if arrays:
        _show(table)
    for warning in result.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _print_by_name(model: pgm.Model, result: pgm.Result, arrays: Mapping[str, Array]) -> None:
    """Print marginals and the mode by the names of variables and states, and other answers."""
    table = Table("variable", title=f"{result.kind}: {result.plan}")
    mode = result.assignment() if "mode" in result.answers else {}
    if "prob" in result.answers:
        table.add_column("probabilities")
    if mode:
        table.add_column("most probable complete state")
    for name in model.variables if table.columns[1:] else ():
        shares = ["  ".join(_shares(result.marginal(name)))] if "prob" in result.answers else []
        table.add_row(name, *shares, *([str(mode[name])] if mode else []))
    if table.rows:
        _show(table)
    by_name = ("prob.", "mean.", "mode.")
    _print_answers(result, {n: a for n, a in arrays.items() if not n.startswith(by_name)})


def _shares(marginal: Mapping[Hashable, float | Array]) -> list[str]:
    """Return "state 0.25" for each state, with a number for each row."""
    return [
        f"{state} {' '.join(f'{p:.4f}' for p in np.atleast_1d(np.asarray(prob)))}"
        for state, prob in marginal.items()
    ]


@app.command()
def sample(
    model: ModelFile,
    evidence: Evidence = None,
    draws: Annotated[int, typer.Option(min=1, help="number of samples")] = 10,
    out: Annotated[Path | None, typer.Option(help="write them to a .npz or .json file")] = None,
    seed: Seed = 0,
) -> None:
    """Draw samples from the model given evidence."""
    m = read_model(model)
    _check_out(out)
    given = read_evidence(m, evidence)
    result = pgm.infer(m, given, want=("samples",), method=drawing(draws), rng=seed)
    arrays = {name: value[:draws] for name, value in result.samples.items()}
    if out is not None:
        _write(out, arrays)
        return
    if m.structure.variables:
        print(result.samples_frame().to_csv(sep="\t", index=False), end="")
        return
    rows = next(iter(arrays.values())).shape[1]
    for i, row in np.ndindex(draws, rows):
        head = f"row {row}: " if rows > 1 else ""
        layers = (
            f"{name}={','.join(f'{v:g}' for v in value[i, row].ravel())}"
            for name, value in arrays.items()
        )
        print(head + "  ".join(layers))


@app.command()
def fit(
    model: ModelFile,
    data: Annotated[
        Path,
        typer.Argument(help=".npz or .json with an array for each layer, or .csv for the first"),
    ],
    out: Annotated[Path, typer.Argument(help="where to write the learned .safetensors model")],
    epochs: Annotated[int, typer.Option(min=1, help="passes over the data")] = 10,
    rate: Annotated[float, typer.Option(help="learning rate of Adam")] = 1e-3,
    batch_size: Annotated[int, typer.Option(min=1, help="rows of a mini-batch")] = 100,
    seed: Seed = 0,
) -> None:
    """Learn the parameters from data by persistent contrastive divergence."""
    m = read_model(model, seed)
    _check_folder(out)
    found = pgm.fit(
        m,
        read_arrays(m, data),
        optimizer=pgm.Adam(rate),
        epochs=epochs,
        batch_size=batch_size,
        rng=seed,
    )
    pgm.save(found.model, out)
    note = " (interrupted)" if found.interrupted else ""
    print(f"wrote {out} after {found.state['update']} updates{note}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="folder for the picture and the model")] = Path(
        "demo_out"
    ),
    epochs: Annotated[int, typer.Option(min=1, help="passes over the digits")] = 300,
    seed: Seed = 0,
) -> None:
    """Train an RBM on 8x8 digits, measure it exactly, and ask it about digits it has not seen."""
    run_demo(out, epochs, seed)


if __name__ == "__main__":
    main()
