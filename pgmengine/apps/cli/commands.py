"""The commands and their options. Each calls the function of the package with the same name."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import pgmengine as pgm
from pgmengine import plots
from pgmengine.apps.cli.answers import (
    by_name,
    check_names_in_files,
    check_out,
    flat_answers,
    json_text,
    plans_as_json,
    result_as_json,
    write,
    write_csv,
    write_rows,
)
from pgmengine.apps.cli.completion import complete_negative, complete_optimizer
from pgmengine.apps.cli.learning import Settings, learned, learned_by_edges
from pgmengine.apps.cli.options import (
    Do,
    Evidence,
    Json,
    Likelihood,
    Measure,
    Method,
    ModelFile,
    Seconds,
    Seed,
    Soft,
    Want,
)
from pgmengine.apps.cli.printing import lines_of_model, lines_of_result, print_draws
from pgmengine.apps.demo import run_demo
from pgmengine.apps.doctor.report import examined
from pgmengine.apps.explorer.command import explore
from pgmengine.apps.reading.calls import methods, read_call
from pgmengine.apps.reading.inputs import read_evidence, read_interventions, read_model
from pgmengine.apps.reading.soft_words import read_soft
from pgmengine.base.files import write_whole
from pgmengine.infer.question.auto import drawing
from pgmengine.infer.results.overview import headline

# Plain help is wrapped by paragraphs; the other one keeps the line breaks of docstrings.
app = typer.Typer(
    help="Graphical models: declare, learn, ask.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# Columns of a terminal that the table of plans needs. A narrower table would lose the reasons.
MIN_COLUMNS_OF_PLANS = 110

# Answers that are states of units, whose names have to be different as texts.
ANSWERS_WITH_STATES = {"mode", "samples", "marginals"}


def _print_version(asked: bool) -> None:
    """Print the version and end the program, if it was asked for."""
    if asked:
        print(f"pgmengine {pgm.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def pgmengine(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="print the version", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Graphical models: declare, learn, ask."""
    if context.invoked_subcommand is None:
        commands = (x for x in app.registered_commands if not x.hidden)
        names = (getattr(x.callback, "__name__", "") for x in commands)
        raise pgm.PgmError(f"no command, expected one of {', '.join(names)}, or --help")


@app.command()
def info(model: ModelFile) -> None:
    """Show the variables, layers and parameters of a model."""
    for line in lines_of_model(read_model(model)):
        print(line)


@app.command()
def explain(
    model: ModelFile,
    evidence: Evidence = None,
    do: Do = None,
    soft: Soft = None,
    likelihood: Likelihood = None,
    want: Want = "marginals",
    method: Method = None,
    seconds: Seconds = None,
    json: Json = False,
) -> None:
    """Show how a question would be answered.

    It lists the plans of all methods that could answer, with their costs, and why others cannot.
    """
    m = read_model(model)
    question = _question(m, evidence, do, soft, likelihood, want, method, seconds)
    found = pgm.explain(m, **question)
    if json:
        print(json_text(plans_as_json(found)))
    elif sys.stdout.isatty() and Console().width >= MIN_COLUMNS_OF_PLANS:
        Console().print(found)
    else:
        print(found)


def _question(
    model: pgm.Model,
    evidence: list[str] | None,
    do: list[str] | None,
    soft: list[str] | None,
    likelihood: list[str] | None,
    want: str,
    method: str | None,
    seconds: float | None,
) -> dict[str, Any]:
    """Return the arguments of `infer` and `explain`."""
    return {
        "evidence": read_evidence(model, evidence),
        "do": read_interventions(model, do),
        "soft": read_soft(model, soft, likelihood),
        "want": _wanted(want),
        "method": None if method is None else read_call(method, "method", methods()),
        "seconds": seconds,
    }


def _wanted(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


@app.command()
def infer(
    model: ModelFile,
    evidence: Evidence = None,
    do: Do = None,
    soft: Soft = None,
    likelihood: Likelihood = None,
    want: Want = "marginals",
    method: Method = None,
    out: Annotated[
        Path | None, typer.Option(help="write the answers to a .npz or .json file")
    ] = None,
    json: Json = False,
    seed: Seed = 0,
    seconds: Seconds = None,
) -> None:
    """Answer a question about a model.

    It prints a line for each variable, or JSON, or writes a file. The first line says how far to
    trust the answer. Warnings go to standard error.
    """
    m = read_model(model)
    check_out(out)
    if json and out is not None:
        raise pgm.PgmError("--json prints, and --out writes a file: give one of them")
    if json or (out is not None and {"mode", "samples"} & {*_wanted(want)}):
        check_names_in_files(m.structure)
    question = _question(m, evidence, do, soft, likelihood, want, method, seconds)
    result = pgm.infer(m, **question, rng=seed)
    if json:
        print(json_text(result_as_json(result)))
    elif out is None:
        for line in lines_of_result(result, _wanted(want)):
            print(line)
    else:
        write(out, flat_answers(result, m.structure))
    if not json:
        _warn(result, with_status=out is not None)


def _warn(result: pgm.Result, with_status: bool = True) -> None:
    """Print the warnings on standard error, and before them a status that is not good."""
    if with_status and not result.status.good:
        print(f"warning: {result.status.name}, {result.status.value}", file=sys.stderr)
    for warning in result.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for way in result.ways:
        print(f"to do better, {way}", file=sys.stderr)


@app.command()
def sample(
    model: ModelFile,
    evidence: Evidence = None,
    do: Do = None,
    soft: Soft = None,
    likelihood: Likelihood = None,
    draws: Annotated[int, typer.Option(min=1, help="number of samples")] = 10,
    out: Annotated[
        Path | None, typer.Option(help="write them to a .csv, .npz or .json file")
    ] = None,
    seed: Seed = 0,
    seconds: Seconds = None,
) -> None:
    """Draw samples from a model given evidence.

    It prints a table, with tabs between the columns, or writes a file.
    """
    m = read_model(model)
    check_out(out, (".csv", ".npz", ".json"))
    if out is not None:
        check_names_in_files(m.structure)
    question = _question(m, evidence, do, soft, likelihood, "samples", None, seconds)
    result = pgm.infer(m, **question | {"method": drawing(draws)}, rng=seed)
    arrays = {name: value[:draws] for name, value in result.raw("samples").items()}
    if out is not None and out.suffix == ".csv":
        write_csv(out, arrays, m.structure)
    elif out is not None:
        write(out, by_name("samples", arrays, m.structure))
    elif m.structure.variables:
        write_rows(arrays, m.structure, sys.stdout, "\t")
    else:
        print_draws(by_name("samples", arrays, m.structure))
    _warn(result)


@app.command()
def draw(
    model: ModelFile,
    out: Annotated[Path, typer.Argument(help="the picture: a .svg, .png or .pdf file")],
    evidence: Evidence = None,
    do: Do = None,
    soft: Soft = None,
    likelihood: Likelihood = None,
    method: Method = None,
    row: Annotated[int, typer.Option(min=0, help="the row of evidence that is drawn")] = 0,
    seed: Seed = 0,
    seconds: Seconds = None,
) -> None:
    """Draw a model with its marginals (extra "plots").

    It draws variables or layers with their edges, and prints how far to trust the answer.
    """
    m = read_model(model)
    check_out(out, (".svg", ".png", ".pdf"))
    question = _question(m, evidence, do, soft, likelihood, "marginals", method, seconds)
    result = pgm.infer(m, **question, rng=seed)
    held = BytesIO()
    figure = plots.graph(m, result, row=row).get_figure()
    assert figure is not None and hasattr(figure, "savefig")
    figure.savefig(held, format=out.suffix[1:])
    print(headline(result).removeprefix("Result: "))
    write_whole(out, held.getvalue())
    print(f"wrote {out}")
    _warn(result, with_status=False)


DATA_HELP = (
    ".csv with names of variables in the first line, or rows of numbers for the first layer; .npz "
    "or .json with an array for each layer or variable; - for standard input"
)
Data = Annotated[Path, typer.Argument(help=DATA_HELP)]
Epochs = Annotated[int | None, typer.Option(min=1, help="passes over the data")]
BatchSize = Annotated[int, typer.Option(min=1, help="rows of a mini-batch")]


@app.command()
def learn(
    model: ModelFile,
    data: Annotated[Path | None, typer.Argument(help=DATA_HELP)] = None,
    edges: Annotated[
        str | None,
        typer.Option(
            help='in place of MODEL, a network of columns of DATA, "rain -> wet <- sprinkler"; a '
            "comma begins another statement"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="where to write the learned model: .safetensors, or .bif, .uai, .xmlbif or .net; "
            "by default MODEL.learned.safetensors in this folder"
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            help='as in Python, "EM(pseudocount=0.5)" or "Adam(0.01)"; chosen by default',
            autocompletion=complete_optimizer,
        ),
    ] = None,
    negative: Annotated[
        str | None,
        typer.Option(
            help='the trainer of an undirected model as in Python, "PCD(k=5)"; chosen by default',
            autocompletion=complete_negative,
        ),
    ] = None,
    given: Annotated[
        str | None,
        typer.Option(help="comma-separated layers or variables: log p(rest | given) is maximised"),
    ] = None,
    epochs: Epochs = None,
    batch_size: BatchSize = 100,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Learn the parameters of a model from data.

    Networks of conditionals are learned by counting, or by expectation maximisation where cells are
    empty or variables have no column; other models by gradients. After Ctrl-C the output file is
    unchanged, and the model learned so far is written beside it.
    """
    settings = Settings(optimizer, negative, given, epochs, batch_size, seed, json)
    if edges is not None and data is not None:
        raise pgm.PgmError("with --edges the model is declared from the data: leave MODEL out")
    if edges is not None:
        learned_by_edges(edges, model, out, settings)
    elif data is not None:
        learned(model, data, out, settings)
    else:
        raise pgm.PgmError(
            "there are no data. The arguments are, in this order: model, data; or --edges EDGES "
            "and data alone"
        )


@app.command(hidden=True)
def fit(
    model: ModelFile,
    data: Data,
    out: Annotated[Path, typer.Argument(help="where to write the learned model")],
    epochs: Epochs = None,
    rate: Annotated[float | None, typer.Option(help="learning rate of Adam")] = None,
    batch_size: BatchSize = 100,
    seed: Seed = 0,
) -> None:
    """Learn the parameters of a model: the earlier name of `learn`."""
    steps = None if rate is None else f"Adam({rate!r})"
    learned(model, data, out, Settings(steps, None, None, epochs, batch_size, seed, False))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="folder for the picture and the model")] = Path(
        "demo_out"
    ),
    epochs: Annotated[int, typer.Option(min=1, help="passes over the digits")] = 1500,
    seed: Seed = 0,
) -> None:
    """Train an RBM on digits and ask it questions.

    It is measured exactly beside a baseline, and completes digits that it has not seen.
    """
    run_demo(out, epochs, seed)


@app.command()
def doctor(json: Json = False, measure: Measure = False) -> None:
    """Describe and test the installation.

    It shows the processor, the compiled routines, threads, pace, versions and optional packages.

    The exit status is 1 where something is wrong.
    """
    report = examined(measure)
    if json:
        print(json_text(report.as_json()))
    else:
        for line in report.lines():
            print(line)
    raise typer.Exit(0 if report.well else 1)


app.command()(explore)
