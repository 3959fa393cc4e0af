"""Every example of the page about the command line runs, and prints what is shown."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from extras import extra

import pgmengine as pgm
from pgmengine.apps.cli import app, main

PAGE = Path(__file__).parents[3] / "docs" / "command_line.md"

# The first line of the table that the page shows.
TABLE = "smoke,xray,dysp\n"

pytestmark = pytest.mark.usefixtures("seeds_as_written")


def in_a_shell(line, folder):
    """The output of a line with pipes, whose commands are programs."""
    program = folder / "bin" / "pgmengine"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pgmengine.apps.cli "$@"\n'
    )
    program.chmod(0o755)
    path = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(pgm.__file__).parents[1]),
    }
    done = subprocess.run(
        ["sh", "-c", line], env={**os.environ, **path}, capture_output=True, text=True, check=True
    )
    return done.stdout


def output_of(line, folder, monkeypatch, capsys):
    """The output of a line: commands without pipes run in this process, which is faster."""
    words = shlex.split(line)
    if "|" in words:
        return in_a_shell(line, folder)
    if words[:2] == ["python", "-c"]:
        exec(words[2], {})
        return capsys.readouterr().out
    assert words[0] == "pgmengine"
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stop:
        main()
    printed = capsys.readouterr()
    assert not stop.value.code, (line, printed.err)
    return printed.out


def test_every_example_runs(tmp_path, monkeypatch, capsys):
    """The commands of each block, one after the other in one folder."""
    # One of them draws.
    extra("matplotlib")
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(sh|text|toml)\n(.*?)^```$", text, flags=re.M | re.S)
    assert sum(kind == "sh" for kind, _ in blocks) >= 10
    printed, shown = "", 0
    for kind, block in blocks:
        if kind == "text" and block.startswith(TABLE):
            Path("patients.csv").write_text(block)
        elif kind == "toml":
            Path("garden.toml").write_text(block)
        elif kind == "sh":
            lines = block.splitlines()
            printed = "".join(output_of(x, tmp_path, monkeypatch, capsys) for x in lines)
        else:
            shown += 1
            assert block in printed, (block, printed)
    assert shown >= 8


def test_every_command_and_option_is_described():
    text = PAGE.read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert f"`{command.callback.__name__}`" in text or command.hidden
    for option in ("--do", "--soft", "--likelihood", "--method", "--version", "--json", "--out"):
        assert option in text
