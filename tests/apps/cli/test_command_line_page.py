"""Every example of the page about the command line runs, and prints what is shown."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import pgmengine as pgm
from pgmengine.apps.cli import app

PAGE = Path(__file__).parents[3] / "docs" / "command_line.md"

pytestmark = pytest.mark.usefixtures("seeds_as_written")


def test_every_example_runs(tmp_path):
    """The commands of each block, one after the other in one folder, as a shell runs them."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(sh|text|csv)\n(.*?)^```$", text, flags=re.M | re.S)
    assert sum(kind == "sh" for kind, _ in blocks) >= 9
    for name in ("pgmengine", "python"):
        module = " -m pgmengine.apps.cli" if name == "pgmengine" else ""
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{module} "$@"\n')
        program.chmod(0o755)
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    printed, shown = "", 0
    for kind, block in blocks:
        if kind == "csv":
            (tmp_path / "patients.csv").write_text(block)
        elif kind == "sh":
            done = subprocess.run(
                ["sh", "-e", "-c", block],
                cwd=tmp_path,
                env={**os.environ, **path, "PYTHONPATH": str(Path(pgm.__file__).parents[1])},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (block, done.stderr)
            printed = done.stdout
        else:
            shown += 1
            assert block in printed, (block, printed)
    assert shown >= 6


def test_every_command_and_option_is_described():
    text = PAGE.read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert f"`{command.callback.__name__}`" in text or command.hidden
    for option in ("--do", "--soft", "--likelihood", "--method", "--version", "--json", "--out"):
        assert option in text
