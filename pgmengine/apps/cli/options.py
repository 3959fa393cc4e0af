"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgmengine.apps.cli.completion import (
    complete_evidence,
    complete_intervention,
    complete_method,
    complete_wanted,
)

ModelFile = Annotated[
    Path,
    typer.Argument(
        help="a .safetensors model, a .toml declaration, or a .bif, .uai, .xmlbif, .net, .dsl or "
        ".xdsl file"
    ),
]
Evidence = Annotated[
    list[str] | None,
    typer.Option(
        help='inline "rain=yes" or "v=1,0,?,1", or a .csv, .json, .npz or .evid file, or - for '
        "standard input; may be given several times",
        autocompletion=complete_evidence,
    ),
]
Do = Annotated[
    list[str] | None,
    typer.Option(
        help='intervene: set a variable, "rain=yes", and ignore its causes; may be given several '
        "times",
        metavar="NAME=STATE",
        autocompletion=complete_intervention,
    ),
]
Likelihood = Annotated[
    list[str] | None,
    typer.Option(
        help='soft evidence: the probability of an uncertain finding in each state, "rain=yes:0.9,'
        'no:0.2"',
        metavar="NAME=STATE:NUMBER,...",
        autocompletion=complete_intervention,
    ),
]
Soft = Annotated[
    list[str] | None,
    typer.Option(
        help='soft evidence as log weights, which have a sign: "rain=yes:+1.5,no:0"; -inf excludes '
        "a state",
        metavar="NAME=STATE:WEIGHT,...",
        autocompletion=complete_intervention,
    ),
]
Want = Annotated[
    str,
    typer.Option(
        help="comma-separated: marginals, log_z, log_prob, samples, mode, pairs, gradient, bound",
        autocompletion=complete_wanted,
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        help='a method as in Python, "MCMC" or "MCMC(draws=2000)"; chosen by default',
        autocompletion=complete_method,
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(help="time that the answer may take, as plans estimate it; 600 by default"),
]
Seed = Annotated[int, typer.Option(min=0, help="seed of the random numbers")]
Measure = Annotated[bool, typer.Option("--measure", help="measure the pace of this machine anew")]
Json = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
