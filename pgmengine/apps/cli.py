"""The command line: pgmengine demo | fit | infer | explain | sample | info."""

from __future__ import annotations

import csv
import json
import os
import struct
import sys
import zlib
from io import BytesIO, StringIO
from pathlib import Path
from typing import Annotated, Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import typer

import pgmengine as pgm
from pgmengine.apps.demo import run_demo
from pgmengine.base.checks import whole
from pgmengine.base.files import plain_text, readable, shown, writable, write_whole
from pgmengine.base.memory import no_room
from pgmengine.base.threads import threads
from pgmengine.graph.validate import as_floats
from pgmengine.infer.auto import drawing

# What numpy, zipfile, json and csv raise for files that are damaged.
UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    EOFError,
    RuntimeError,
    OverflowError,
    SyntaxError,
    MemoryError,
    BadZipFile,
    zlib.error,
    struct.error,
    csv.Error,
)

app = typer.Typer(
    add_completion=False,
    help="Graphical models: declare, learn, ask.",
    pretty_exceptions_enable=False,
)
ModelFile = Annotated[Path, typer.Argument(help="a .safetensors model, or a .toml declaration")]
Evidence = Annotated[
    list[str] | None, typer.Option(help='inline "v=1,0,?,1", or a .npz, .csv or .json file')
]
Want = Annotated[
    str,
    typer.Option(help="comma-separated: marginals, log_z, log_prob, samples, mode, pairs, bound"),
]
Seed = Annotated[int, typer.Option(help="seed of the random numbers")]


def main() -> None:
    """Run the command line; bad input is one clear line and exit code 2."""
    try:
        threads()  # before any work, so that a bad setting of the environment is told at once
        sys.exit(app(standalone_mode=False))
    except pgm.PgmError as error:
        message = str(error)
    except typer.Abort:
        message = "interrupted"
    except BrokenPipeError:  # whoever reads the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        place = f"{shown(error.filename)}: " if error.filename else ""
        message = f"{place}{error.strerror or error}"
    except MemoryError as error:
        message = f"more memory is needed than is free{': ' * bool(str(error))}{error}"
    except (
        Exception
    ) as error:  # click's own complaints about arguments, whichever click typer brings
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()
    print(f"pgmengine: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


def read_model(path: Path, seed: int = 0) -> pgm.Model:
    """A model from a .toml declaration or a .safetensors file."""
    return (
        pgm.load_declaration(path, rng=whole("seed", seed, 0))
        if path.suffix == ".toml"
        else pgm.load(path)
    )


def read_evidence(model: pgm.Model, given: list[str] | None) -> dict[str, Any]:
    """Evidence from inline texts and files, layer -> array with NaN where not observed."""
    evidence: dict[str, Any] = {}
    for text in given or ():
        if "=" in text and not os.path.exists(text):  # which a text too long for a name is not
            name, _, values = text.partition("=")
            model.structure.layer(name.strip(), what=f"evidence {text!r}: layer")
            found: dict[str, Any] = {
                name.strip(): [_number(v, f"evidence {text!r}") for v in values.split(",")]
            }
        else:
            found = _read_file(model, Path(text))
        if twice := sorted(set(found) & set(evidence)):
            raise pgm.PgmError(f"evidence {text!r}: layer {twice[0]!r} has been given before")
        evidence |= found
    return evidence


def _number(text: str, where: str) -> float:
    text = text.strip()
    try:
        return float("nan") if text in ("?", "") else float(text)
    except ValueError:
        raise pgm.PgmError(f"{where}: {text!r} is not a number or ?") from None


def _read_file(model: pgm.Model, path: Path) -> dict[str, Any]:
    readers = {".npz": _read_npz, ".json": _read_json, ".csv": _read_csv}
    if path.suffix not in readers:
        raise pgm.PgmError(f"evidence file {shown(path)}: expected .npz, .csv or .json")
    try:
        return readers[path.suffix](model, readable(path))
    except pgm.PgmError as error:
        why = str(error).removeprefix(f"{shown(path)}: ")
        raise pgm.PgmError(f"evidence file {shown(path)}: {why}") from None
    except UNREADABLE as error:
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise pgm.PgmError(f"evidence file {shown(path)} cannot be read: {why}") from None


def _read_npz(model: pgm.Model, place: Path) -> dict[str, Any]:
    with ZipFile(place) as parts:
        needed = sum(part.file_size for part in parts.infolist())
    if why := no_room(2 * needed, "give fewer rows"):
        raise pgm.PgmError(f"its arrays do not fit into memory: {why}")
    with np.load(place, allow_pickle=False) as arrays:
        found = dict(arrays)
    for name, value in found.items():
        if not isinstance(value, np.ndarray):
            raise pgm.PgmError(f"{name!r} is no array")
    return found


def _read_json(model: pgm.Model, place: Path) -> dict[str, Any]:
    found = json.loads(plain_text(place))
    if not isinstance(found, dict):
        raise pgm.PgmError(f"expected one array a layer, by name, not {type(found).__name__}")
    return {name: as_floats(value, f"layer {name!r}") for name, value in found.items()}


def _read_csv(model: pgm.Model, place: Path) -> dict[str, Any]:
    lines = csv.reader(StringIO(plain_text(place), newline=""))
    rows = [(lines.line_num, row) for row in lines if row]
    if not rows:
        raise pgm.PgmError("there are no rows")
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
    """Show the layers, couplings and parameters of a model."""
    from rich.console import Console
    from rich.table import Table

    m = read_model(model)
    layers = Table("layer", "unit", "size", title=str(model))
    for x in m.structure.layers.values():
        layers.add_row(x.name, repr(x.unit), str(x.size))
    params = Table("parameter", "shape", "smallest", "largest")
    for name, value in m.params.items():
        dense = np.asarray(value.data if hasattr(value, "tocoo") else value)
        low, high = (f"{f(dense):.4g}" if dense.size else "-" for f in (np.min, np.max))
        params.add_row(name, "x".join(map(str, value.shape)), low, high)
    Console(markup=False, emoji=False).print(layers, params)


@app.command()
def explain(model: ModelFile, evidence: Evidence = None, want: Want = "marginals") -> None:
    """Say which method would answer, and why."""
    m = read_model(model)
    found = pgm.explain(m, read_evidence(m, evidence), _wanted(want))
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(found)
    else:
        print(found)


def _wanted(text: str) -> tuple[str, ...]:
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
    if out is None:
        _print_answers(result, arrays)
    else:
        _write(out, arrays)


def _flat_answers(result: pgm.Result) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for name, value in result.answers.items():
        arrays |= (
            {f"{name}.{key}": v for key, v in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
    return arrays


def _check_folder(out: Path) -> None:
    """Before work is done that could not be written."""
    writable(out)
    if not out.parent.is_dir():
        raise pgm.PgmError(f"{out}: there is no folder {out.parent}")


def _check_out(out: Path | None) -> None:
    if out is not None and out.suffix not in (".npz", ".json"):
        raise pgm.PgmError(f"out must end in .npz or .json, not {out}")
    if out is not None:
        _check_folder(out)


def _write(out: Path, arrays: dict[str, Any]) -> None:
    if out.suffix == ".npz":
        held = BytesIO()
        np.savez_compressed(held, **arrays)
        content = held.getvalue()
    else:
        named = {name: _as_json(value) for name, value in arrays.items()}
        content = json.dumps(named, allow_nan=False).encode()
    write_whole(out, content)
    print(f"wrote {out}")


def _as_json(value: Any) -> Any:
    """Nested lists, null for NaN and infinities, which JSON has not."""
    array = np.asarray(value)
    shown = array.astype(object)
    shown[~np.isfinite(array)] = None
    return shown.tolist()


def _print_answers(result: pgm.Result, arrays: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("answer", "shape", "values", title=f"{result.kind}: {result.plan}")
    for name, value in arrays.items():
        array = np.asarray(value)
        shown = np.array2string(
            array, precision=4, suppress_small=True, threshold=60, max_line_width=80
        )
        table.add_row(name, str(array.shape), shown)
    Console(markup=False, emoji=False).print(table)
    for warning in result.warnings:
        print(f"warning: {warning}", file=sys.stderr)


@app.command()
def sample(
    model: ModelFile,
    evidence: Evidence = None,
    draws: Annotated[int, typer.Option(help="number of samples")] = 10,
    out: Annotated[Path | None, typer.Option(help="write them to a .npz or .json file")] = None,
    seed: Seed = 0,
) -> None:
    """Draw samples from the model given evidence."""
    m = read_model(model)
    _check_out(out)
    method = drawing(whole("draws", draws))
    result = pgm.infer(m, read_evidence(m, evidence), want=("samples",), method=method, rng=seed)
    arrays = {name: value[:draws] for name, value in result.samples.items()}
    if out is not None:
        _write(out, arrays)
        return
    rows = next(iter(result.samples.values())).shape[1]
    for i, row in np.ndindex(draws, rows):
        head = f"row {row}: " if rows > 1 else ""
        print(
            head
            + "  ".join(
                f"{n}={','.join(f'{v:g}' for v in value[i, row].ravel())}"
                for n, value in arrays.items()
            )
        )


@app.command()
def fit(
    model: ModelFile,
    data: Annotated[
        Path,
        typer.Argument(help=".npz or .json with one array a layer, or .csv for the first layer"),
    ],
    out: Annotated[Path, typer.Argument(help="where to write the learned .safetensors model")],
    epochs: Annotated[int, typer.Option(help="passes over the data")] = 10,
    rate: Annotated[float, typer.Option(help="learning rate of Adam")] = 1e-3,
    batch_size: Annotated[int, typer.Option(help="rows of a mini-batch")] = 100,
    seed: Seed = 0,
) -> None:
    """Learn the parameters from data by persistent contrastive divergence."""
    m = read_model(model, seed)
    _check_folder(out)
    if epochs < 1 or batch_size < 1 or not rate > 0:
        raise pgm.PgmError("epochs and batch-size must be at least 1, and rate positive")
    found = pgm.fit(
        m,
        _read_file(m, data),
        optimizer=pgm.Adam(rate),
        epochs=epochs,
        batch_size=batch_size,
        rng=seed,
    )
    pgm.save(found.model, out)
    print(
        f"wrote {out} after {found.state['update']} updates{' (interrupted)' * found.interrupted}"
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="folder for the picture and the model")] = Path(
        "demo_out"
    ),
    epochs: Annotated[int, typer.Option(help="passes over the digits")] = 300,
    seed: Seed = 0,
) -> None:
    """Train an RBM on 8x8 digits, measure it exactly, and ask it about digits it has not seen."""
    run_demo(out, epochs, seed)


if __name__ == "__main__":
    main()
