"""The command line: pgmengine demo | fit | infer | explain | sample | info.

Commands read a model and evidence from files, call the function of the package with the same name,
and print a table or write a file (cli_inputs.py reads, cli_answers.py prints and writes). An error
is one line on stderr, and the exit code is 2.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import pgmengine as pgm
from pgmengine.apps.cli_answers import (
    by_name,
    check_folder,
    check_names_in_files,
    check_out,
    flat_answers,
    print_answers,
    print_by_name,
    print_draws,
    show,
    tables_of_model,
    write,
    write_csv,
    write_rows,
)
from pgmengine.apps.cli_inputs import read_arrays, read_evidence, read_model
from pgmengine.apps.demo import run_demo
from pgmengine.apps.explorer.command import explore
from pgmengine.base.errors import visible
from pgmengine.base.files import shown
from pgmengine.base.work.threads import threads
from pgmengine.infer.question.auto import drawing

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
Seconds = Annotated[
    float | None,
    typer.Option(help="time that the answer may take, as plans estimate it; 600 by default"),
]
Seed = Annotated[int, typer.Option(min=0, help="seed of the random numbers")]

# The exit code of a command that was ended by Ctrl-C, as is usual for shells.
EXIT_CODE_INTERRUPTED = 130


def main() -> None:
    """Run the command line; an error is one line on stderr and exit code 2, or 130 for Ctrl-C."""
    code = 2
    try:
        # Report a wrong setting of the environment before any work.
        threads()
        for word in sys.argv[1:]:
            # Errors for a file name with a null character differ among versions of Python.
            if "\0" in word:
                raise pgm.PgmError(f"argument {word!r}: has a zero byte in it")
        ended = app(standalone_mode=False)
        # typer turns Ctrl-C into an exit code without a message.
        if ended != EXIT_CODE_INTERRUPTED:
            sys.exit(ended)
        code, message = EXIT_CODE_INTERRUPTED, "interrupted"
    except pgm.PgmError as error:
        message = str(error)
    except typer.Abort:
        code, message = EXIT_CODE_INTERRUPTED, "interrupted"
    except BrokenPipeError:
        # The reader of the output has closed it. Python would report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        place = f"{shown(error.filename)}: " if error.filename else ""
        message = f"{place}{error.strerror or error}"
    except MemoryError as error:
        message = f"more memory is needed than is free{': ' * bool(str(error))}{error}"
    except Exception as error:
        # This is an error of click about arguments. It is not recognised by its class, because
        # typer may have a copy of click of its own.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()
    print(f"pgmengine: {visible(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(code)


@app.command()
def info(model: ModelFile) -> None:
    """Show the variables of a model with their tables, its layers, and its parameters."""
    m = read_model(model)
    show(*tables_of_model(m, str(model)))


@app.command()
def explain(
    model: ModelFile, evidence: Evidence = None, want: Want = "marginals", seconds: Seconds = None
) -> None:
    """Show the plan of a question: the method that would answer, and the reason."""
    m = read_model(model)
    found = pgm.explain(m, read_evidence(m, evidence), _wanted(want), seconds=seconds)
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
    seconds: Seconds = None,
) -> None:
    """Answer a question; print a table or write a file."""
    m = read_model(model)
    check_out(out)
    if out is not None and {"mode", "samples"} & {*_wanted(want)}:
        check_names_in_files(m.structure)
    given = read_evidence(m, evidence)
    result = pgm.infer(m, given, want=_wanted(want), rng=seed, seconds=seconds)
    arrays = flat_answers(result, m.structure)
    if out is None and m.structure.variables:
        print_by_name(m, result, arrays)
    elif out is None:
        print_answers(result, arrays, f"{result.kind}: {result.plan}")
    else:
        write(out, arrays)


@app.command()
def sample(
    model: ModelFile,
    evidence: Evidence = None,
    draws: Annotated[int, typer.Option(min=1, help="number of samples")] = 10,
    out: Annotated[
        Path | None, typer.Option(help="write them to a .csv, .npz or .json file")
    ] = None,
    seed: Seed = 0,
    seconds: Seconds = None,
) -> None:
    """Draw samples from the model given evidence."""
    m = read_model(model)
    check_out(out, (".csv", ".npz", ".json"))
    if out is not None:
        check_names_in_files(m.structure)
    given = read_evidence(m, evidence)
    method = drawing(draws)
    result = pgm.infer(m, given, want=("samples",), method=method, rng=seed, seconds=seconds)
    arrays = {name: value[:draws] for name, value in result.raw("samples").items()}
    if out is not None and out.suffix == ".csv":
        write_csv(out, arrays, m.structure)
    elif out is not None:
        write(out, by_name("samples", arrays, m.structure))
    elif m.structure.variables:
        write_rows(arrays, m.structure, sys.stdout, "\t")
    else:
        print_draws(by_name("samples", arrays, m.structure))


@app.command()
def fit(
    model: ModelFile,
    data: Annotated[
        Path,
        typer.Argument(
            help=".npz or .json with an array for each layer or variable; .csv with names of "
            "variables in the first line, or rows of numbers for the first layer"
        ),
    ],
    out: Annotated[Path, typer.Argument(help="where to write the learned .safetensors model")],
    epochs: Annotated[int, typer.Option(min=1, help="passes over the data")] = 10,
    rate: Annotated[float, typer.Option(help="learning rate of Adam")] = 1e-3,
    batch_size: Annotated[int, typer.Option(min=1, help="rows of a mini-batch")] = 100,
    seed: Seed = 0,
) -> None:
    """Learn the parameters from data by persistent contrastive divergence.

    After Ctrl-C the output file is unchanged, and the model learned so far is written beside it.
    """
    m = read_model(model, seed)
    check_folder(out)
    found = pgm.fit(
        m,
        read_arrays(m, data),
        optimizer=pgm.Adam(rate),
        epochs=epochs,
        batch_size=batch_size,
        rng=seed,
    )
    updates = found.state["update"]
    if found.interrupted:
        beside = out.with_name(f"{out.stem}.interrupted{out.suffix}")
        pgm.save(found, beside)
        print(
            f"pgmengine: interrupted after {updates} updates: {shown(out)} is as it was, and what "
            f"was learned is in {shown(beside)}",
            file=sys.stderr,
        )
        sys.exit(EXIT_CODE_INTERRUPTED)
    pgm.save(found, out)
    print(f"wrote {out} after {updates} updates")


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


app.command()(explore)


if __name__ == "__main__":
    main()
