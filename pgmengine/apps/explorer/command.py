"""The command `pgmengine explore`: a local page that shows a model and answers by clicking."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from pgmengine.apps.explorer.server import ExplorerServer
from pgmengine.apps.explorer.session import Session
from pgmengine.apps.reading.inputs import read_evidence, read_model

LARGEST_PORT = 65535


def explore(
    model: Annotated[
        Path,
        typer.Argument(
            help="a .safetensors model, a .toml declaration, or a .bif, .xmlbif, .bifxml, .uai, "
            ".net, .dsl or .xdsl file"
        ),
    ],
    evidence: Annotated[
        list[str] | None,
        typer.Option(
            help='evidence at the start, "rain=yes", or a file of one row; may be repeated'
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=LARGEST_PORT, help="port of the page; 0 takes a free one")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="open the page in a browser")] = True,
) -> None:
    """Show a model as a local page, and answer as its evidence is changed by clicking.

    The address is printed first. The page is served to this machine only, until Ctrl-C.
    """
    m = read_model(model)
    with ExplorerServer(Session(m, read_evidence(m, evidence)), port) as server:
        print(server.address, flush=True)
        if browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("the explorer has ended")
