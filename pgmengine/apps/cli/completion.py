"""Completion of words in shells: names of variables and states of the model in the command.

typer completes commands, options and file names. The functions here complete the values of options.
They print nothing and raise nothing, because the reader of their output is a shell.

bash ends a word at an equals sign, so that it asks for the part after `smoke=` alone. The whole
word is then in the environment (COMP_WORDS and COMP_CWORD of the script that typer installs).
"""

from __future__ import annotations

from pathlib import Path

import typer

import pgmengine as pgm
from pgmengine.apps.cli.reading.calls import NEGATIVES, OPTIMIZERS, methods
from pgmengine.apps.cli.reading.inputs import read_model
from pgmengine.evidence.frames import state_keys
from pgmengine.evidence.state_names import text_of
from pgmengine.infer.results.result import WANTS

# Names that a shell is given, at most.
MAX_SUGGESTIONS = 2000


def complete_wanted(incomplete: str) -> list[str]:
    """Return comma-separated lists of quantities that go on from the one that was begun."""
    before, comma, begun = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{w}" for w in WANTS if w.startswith(begun) and w not in taken]


def complete_method(incomplete: str) -> list[str]:
    """Return the names of methods that begin so."""
    return [name for name in methods() if name.startswith(incomplete)]


def complete_optimizer(incomplete: str) -> list[str]:
    """Return the names of optimizers that begin so."""
    return [name for name in OPTIMIZERS if name.startswith(incomplete)]


def complete_negative(incomplete: str) -> list[str]:
    """Return the names of negative phases that begin so."""
    return [name for name in NEGATIVES if name.startswith(incomplete)]


def complete_evidence(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return `variable=state` for the variables of the model, and names of files."""
    return [*_states(ctx, incomplete), *_files(incomplete)]


def complete_intervention(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return `variable=state` for the variables of the model."""
    return _states(ctx, incomplete)


def _states(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the texts `variable=state` that begin so; none where the model cannot be read."""
    path = ctx.params.get("model")
    try:
        model = read_model(Path(str(path)))
        return _texts(model, incomplete)
    except Exception:
        # A shell has no place for the message; the command itself prints it.
        return []


def _texts(model: pgm.Model, incomplete: str) -> list[str]:
    """Return `variable=` where several variables begin so, else the states of the one variable."""
    s = model.structure
    found = [place for place in s.variables if _begins(s.names.of(place), incomplete)]
    out = list[str]()
    for place in found[:MAX_SUGGESTIONS]:
        name = s.names.of(place)
        texts = [f"{name}={text_of(x)}" for x in state_keys(s.layers[place[0]])]
        out += [text for text in texts if text.startswith(incomplete)]
    return out[:MAX_SUGGESTIONS]


def _begins(name: str, incomplete: str) -> bool:
    """Return whether `name=` begins with a text, or the text with it."""
    whole = f"{name}="
    return whole.startswith(incomplete) or incomplete.startswith(whole)


def _files(incomplete: str) -> list[str]:
    """Return the paths of files and folders that begin so."""
    begun = Path(incomplete or ".")
    folder = begun if incomplete.endswith("/") or not incomplete else begun.parent
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return []
    texts = [f"{x}/" if x.is_dir() else str(x) for x in inside[:MAX_SUGGESTIONS]]
    return [text for text in texts if text.startswith(incomplete) and not text.startswith(".")]
