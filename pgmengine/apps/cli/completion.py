"""Completion of words in shells: names of variables and states of the model in the command.

typer completes commands, options and file names. The functions here complete the values of options,
as `autocompletion` of typer calls them. They print nothing and raise nothing, because the reader of
their output is a shell.

bash ends a word at an equals sign: `smoke=y` are three words, of which it completes the last one.
They are joined before typer reads them, and bash is given the last part of each suggestion.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import typer

import pgmengine as pgm
from pgmengine.apps.reading.calls import NEGATIVES, OPTIMIZERS, methods
from pgmengine.apps.reading.inputs import read_model
from pgmengine.evidence.frames import state_keys
from pgmengine.infer.results.result import WANTS
from pgmengine.model.names.state_names import text_of

# Names that a shell is given, at most.
MAX_SUGGESTIONS = 2000

# The variable with the task of completion, its value in bash, and the words of bash.
TASK, OF_BASH = "_PGMENGINE_COMPLETE", "complete_bash"
WORDS, CURRENT = "COMP_WORDS", "COMP_CWORD"


@contextmanager
def whole_words_of_bash() -> Iterator[None]:
    """Let typer read whole words, and print the part of its suggestions that bash completes."""
    begun = join_words(os.environ)
    if not begun:
        yield
        return
    held = StringIO()
    try:
        with redirect_stdout(held):
            yield
    finally:
        for line in held.getvalue().splitlines():
            print(line.removeprefix(begun))


def join_words(environment: MutableMapping[str, str]) -> str:
    """Join the words that bash has divided at equals signs, in the variables that typer reads.

    Returns
    -------
    The part of the word to complete that bash has taken for other words; it may be empty.

    >>> names = {"_PGMENGINE_COMPLETE": "complete_bash", "COMP_CWORD": "6"}
    >>> names["COMP_WORDS"] = "pgmengine infer m.bif --evidence smoke = y"
    >>> join_words(names)
    'smoke='
    >>> names["COMP_WORDS"], names["COMP_CWORD"]
    ('pgmengine infer m.bif --evidence smoke=y', '4')
    """
    if environment.get(TASK) != OF_BASH or "=" not in environment.get(WORDS, ""):
        return ""
    # The script of typer joins words by line breaks.
    between = "\n" if "\n" in environment[WORDS] else " "
    words, current = environment[WORDS].split(between), int(environment.get(CURRENT, "0"))
    if current == len(words):
        words.append("")
    joined, place, begun = list[str](), 0, ""
    for number, word in enumerate(words):
        if joined and (word == "=" or joined[-1].endswith("=")):
            joined[-1] += word
        else:
            joined.append(word)
        if number == current:
            place, begun = len(joined) - 1, joined[-1]
    environment[WORDS], environment[CURRENT] = between.join(joined), str(place)
    # bash completes the letters after the last equals sign.
    return begun[: begun.rfind("=") + 1]


def complete_wanted(incomplete: str) -> list[str]:
    """Return comma-separated lists of quantities that go on from the one that was begun."""
    before, comma, begun = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{w}" for w in WANTS if w.startswith(begun) and w not in taken]


def complete_method(incomplete: str) -> list[str]:
    """Return the names of methods that begin with the text."""
    return [name for name in methods() if name.startswith(incomplete)]


def complete_optimizer(incomplete: str) -> list[str]:
    """Return the names of optimizers that begin with the text."""
    return [name for name in OPTIMIZERS if name.startswith(incomplete)]


def complete_negative(incomplete: str) -> list[str]:
    """Return the names of negative phases that begin with the text."""
    return [name for name in NEGATIVES if name.startswith(incomplete)]


def complete_evidence(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return `variable=state` for the variables of the model, and names of files."""
    return [*_states(ctx, incomplete), *_files(incomplete)]


def complete_intervention(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return `variable=state` for the variables of the model."""
    return _states(ctx, incomplete)


def _states(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the texts `variable=state` that begin with the text; none if no model is readable."""
    # An option without its value ends the parsing before arguments get their names.
    path = ctx.params.get("model") or next(iter(ctx.args), "")
    try:
        model = read_model(Path(str(path)))
        return _texts(model, incomplete)
    except Exception:
        # A shell has no place for the message; the command itself prints it.
        return []


def _texts(model: pgm.Model, incomplete: str) -> list[str]:
    """Return `variable=state` for the variables and states that begin with the text."""
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
    """Return the paths of files and folders that begin with the text."""
    begun = Path(incomplete or ".")
    folder = begun if incomplete.endswith("/") or not incomplete else begun.parent
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return []
    texts = [f"{x}/" if x.is_dir() else str(x) for x in inside[:MAX_SUGGESTIONS]]
    return [text for text in texts if text.startswith(incomplete) and not text.startswith(".")]
