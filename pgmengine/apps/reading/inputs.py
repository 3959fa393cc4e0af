"""Models, evidence and data: files by their suffix, standard input, and inline texts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pgmengine as pgm
from pgmengine.apps.reading.array_files import as_rows, read_json, read_npz
from pgmengine.apps.reading.cells import as_entry, state, states_of_cells
from pgmengine.apps.reading.csv_tables import read_columns, read_csv
from pgmengine.base.files import plain_text, readable, shown
from pgmengine.io.formats import EVIDENCE_SUFFIX, READERS
from pgmengine.io.opened import suffix_of

# The word that stands for standard input.
STANDARD_INPUT = "-"

FILES_OF_EVIDENCE = ".csv, .tsv, .npz, .json or .evid, or - for standard input"

# Suffix of a file -> the reader of its text.
READERS_OF_TEXT = {".json": read_json, ".csv": read_csv, ".tsv": read_csv}


def read_model(path: Path, seed: int = 0) -> pgm.Model:
    """Return the model in a .toml, a .safetensors, or another file that `read` knows."""
    if path.suffix == ".toml":
        return pgm.load_declaration(path, rng=seed)
    return pgm.read(path) if suffix_of(path) in READERS else pgm.load(path)


def read_evidence(model: pgm.Model, given: list[str] | None) -> dict[str, Any]:
    """Return evidence from inline texts, files, and standard input.

    The evidence is layer -> array, or variable -> a state or the states of many rows, with NaN
    where nothing is observed.
    """
    evidence: dict[str, Any] = {}
    if given and given.count(STANDARD_INPUT) > 1:
        raise pgm.PgmError("evidence '-': standard input can be read once only")
    for text in given or ():
        # os.path.exists is False for texts that are too long for a file name.
        if "=" in text and not os.path.exists(text):
            found = inline(model, text, "evidence")
        elif not (os.path.exists(text) or text == STANDARD_INPUT or Path(text).suffix):
            raise pgm.PgmError(
                f"evidence {text!r}: expected NAME=STATE, such as xray=yes, or a file that exists: "
                f"{FILES_OF_EVIDENCE}"
            )
        else:
            found = read_arrays(model, Path(text))
        add(evidence, found, f"evidence {text!r}")
    return evidence


def read_interventions(model: pgm.Model, given: list[str] | None) -> dict[str, Any] | None:
    """Return the values of `do` from inline texts, None if there are none."""
    found: dict[str, Any] = {}
    for text in given or ():
        if "=" not in text:
            raise pgm.PgmError(f"do {text!r}: expected NAME=STATE, such as smoke=yes")
        add(found, inline(model, text, "do"), f"do {text!r}")
    return found or None


def add(found: dict[str, Any], more: dict[str, Any], what: str) -> None:
    """Add values by name to others; PgmError for a name that has some already."""
    for name in sorted(found.keys() & more.keys())[:1]:
        raise pgm.PgmError(f"{what}: {name!r} has been given before")
    found |= more


def inline(model: pgm.Model, text: str, option: str) -> dict[str, Any]:
    """Return the values in one text: a state of a variable by its name, or values of a layer."""
    s, what = model.structure, f"{option} {text!r}"
    name, given = name_and_rest(model, text)
    if (place := s.names.place(name)) is not None:
        try:
            return {name: as_entry(state(s.layers[place[0]], given, what))}
        except pgm.PgmError as error:
            others = [part.partition("=")[0].strip() for part in given.split(",")[1:]]
            if any(s.names.place(other) is not None for other in others):
                each = f"give the option --{option} once for each variable"
                raise pgm.PgmError(f"{error}; {each}") from None
            raise
    layer = s.names.layer(name, what=f"{what}: layer")
    return {name: states_of_cells(layer, given.split(","), lambda i: f"{what}, index {i}")}


def name_and_rest(model: pgm.Model, text: str) -> tuple[str, str]:
    """Return the name before an equals sign, and the text after it."""
    # Names of variables and of states may contain an equals sign.
    ends = [i for i, letter in enumerate(text) if letter == "="]
    names = [(text[:i].strip(), text[i + 1 :]) for i in reversed(ends)]
    s = model.structure
    known = ((n, g) for n, g in names if n in s.layers or s.names.place(n) is not None)
    return next(known, names[-1])


def read_arrays(model: pgm.Model, path: Path, what: str = "evidence") -> dict[str, Any]:
    """Return values by layer or variable from a .csv, .npz, .json or .evid file, or from `-`.

    Standard input has a JSON object, or else a table with commas, semicolons or tabs.
    """
    if str(path) == STANDARD_INPUT:
        return _checked(f"{what} from standard input", "", lambda: _read_standard(model))
    place = shown(path)
    if suffix_of(path) == EVIDENCE_SUFFIX:
        found = pgm.read_evidence(path, model)
        return {name: as_rows(model, name, states) for name, states in found.items()}
    title = f"{what} file {place}"
    if path.suffix == ".npz":
        return _checked(title, place, lambda: read_npz(model, readable(path)))
    if path.suffix not in READERS_OF_TEXT:
        raise pgm.PgmError(f"{title}: expected {FILES_OF_EVIDENCE}")
    return _checked(title, place, lambda: READERS_OF_TEXT[path.suffix](model, plain_text(path)))


def read_table(path: Path, names: Collection[str]) -> dict[str, list[Any]]:
    """Return the columns of a .csv or .tsv file, or of `-`, some of which have the given names."""
    if str(path) == STANDARD_INPUT:
        return _checked("data from standard input", "", lambda: read_columns(_standard(), names))
    if READERS_OF_TEXT.get(path.suffix) is not read_csv:
        raise pgm.PgmError(
            f"data file {shown(path)}: expected .csv or .tsv, or - for standard input, where a "
            "network is declared by --edges"
        )
    title = f"data file {shown(path)}"
    return _checked(title, shown(path), lambda: read_columns(plain_text(path), names))


def _standard() -> str:
    """Return the text of standard input."""
    if sys.stdin.isatty():
        print("pgmengine: reading from the terminal; Ctrl-D ends the input", file=sys.stderr)
    return sys.stdin.buffer.read().decode("utf-8-sig")


def _read_standard(model: pgm.Model) -> dict[str, Any]:
    """Return the values that standard input has as a JSON object, or else as a table."""
    text = _standard()
    return (read_json if text.lstrip().startswith("{") else read_csv)(model, text)


def _checked(title: str, place: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a reader returns; errors of all kinds become a PgmError with the place."""
    try:
        return read()
    except pgm.PgmError as error:
        why = str(error).removeprefix(f"{place}: ")
        raise pgm.PgmError(f"{title}: {why}") from None
    except Exception as error:
        # numpy, zipfile and json raise many kinds of errors for damaged files.
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise pgm.PgmError(f"{title} cannot be read: {why}") from None
