"""Writes that are killed or that fail: what stays in the folder, and what the errors name."""

import errno
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from limits import no_unnamed_files

import pgmengine as pgm
from pgmengine.apps.cli import answers
from pgmengine.base import files

SAVER = """
import sys, numpy as np, pgmengine as pgm
from pgmengine.base import files
model = pgm.rbm(1500, 1500, rng=0)
if sys.argv[2] == "stop":
    def stop(number):
        print("synchronises", flush=True)
        import time; time.sleep(600)
    files.os.fsync = stop
print("saves", flush=True)
while True:
    pgm.save(model, sys.argv[1])
"""


def killed(path, how, seconds):
    """Save in another process, and kill it after so many seconds, or before the disk has it."""
    child = subprocess.Popen(
        [sys.executable, "-c", SAVER, str(path), how], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "saves\n"
    if how == "stop":
        assert child.stdout.readline() == "synchronises\n"
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no unnamed files")
def test_a_save_that_is_killed_leaves_no_other_file(tmp_path):
    before = pgm.rbm(3, 2, rng=0)
    pgm.save(before, tmp_path / "m")
    killed(tmp_path / "m", "stop", 0.0)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert repr(pgm.load(tmp_path / "m")) == repr(before)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no unnamed files")
def test_saves_that_are_killed_at_any_moment_leave_whole_files(tmp_path, kills=10):
    for k in range(kills):
        killed(tmp_path / "m", "run", 0.02 * (k + 1))
        # A kill between naming and renaming leaves a second file, which is complete, too.
        left = {path.name for path in tmp_path.iterdir()} - {"m"}
        assert all(re.fullmatch(r"m\.\d+\.\d+\.part", name) for name in left) and len(left) <= 1
        for path in tmp_path.iterdir():
            assert pgm.load(path).structure.layers
        for name in left:
            (tmp_path / name).unlink()


@pytest.mark.parametrize("unnamed", [True, False])
def test_old_files_of_killed_writes_are_removed_by_the_next_one(unnamed, monkeypatch, tmp_path):
    """A young one may belong to a process that is alive, and other names belong to others."""
    if not unnamed:
        no_unnamed_files(monkeypatch)
    names = ["m.12.34.part", "m.13.34.part", "n.12.34.part", "m.part", "m.1.x.part", "xm.1.2.part"]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
        if name != "m.13.34.part":
            os.utime(tmp_path / name, (0, 0))
    pgm.save(pgm.rbm(3, 2, rng=0), tmp_path / "m")
    assert {path.name for path in tmp_path.iterdir()} == {"m", *names[1:]}


def writers(path):
    """Every function that writes a file as a whole."""
    b = pgm.GraphBuilder()
    b.variable("x")
    b.conditional("x", (), [0.5, 0.5])
    model = b.build()
    x = {"v": np.eye(9)}
    rbm = pgm.rbm(9, 2, rng=0)
    return {
        "m.safetensors": lambda: pgm.save(model, path / "m.safetensors"),
        "m.uai": lambda: pgm.write(model, path / "m.uai"),
        "m.bif.gz": lambda: pgm.write(model, path / "m.bif.gz"),
        "m.npz": lambda: answers.write(path / "m.npz", {"a": np.eye(2)}),
        "m.json": lambda: answers.write(path / "m.json", {"a": np.eye(2)}),
        "c": lambda: pgm.fit(rbm, x, updates=1, checkpoint=path / "c", progress=False),
    }


@pytest.mark.parametrize("unnamed", [True, False])
def test_errors_name_the_file_that_was_to_be_written(unnamed, monkeypatch, tmp_path, caplog):
    if not unnamed:
        no_unnamed_files(monkeypatch)
    for name, write in writers(tmp_path / "absent").items():
        if name == "c":
            continue
        with pytest.raises(FileNotFoundError) as found:
            write()
        assert found.value.filename == str(tmp_path / "absent" / name), name
        assert found.value.errno == errno.ENOENT and ".part" not in str(found.value)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for name, write in writers(tmp_path).items():
        if name == "c":
            # A fit goes on without its checkpoint, and says so.
            told = str(write().unsaved)
            assert str(tmp_path / name) in told and ".part" not in told
            continue
        with pytest.raises(OSError, match="No space left") as found:
            write()
        assert found.value.filename == str(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_systems_whose_files_need_names_write_the_same(monkeypatch, tmp_path):
    """No unnamed files on this file system, or no folder of open files to link them from."""

    def none(*_, **__):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", none)
        files.write_whole(tmp_path / "a", b"x")
    monkeypatch.setattr(os, "O_TMPFILE", os.O_RDONLY | os.O_DIRECTORY, raising=False)
    files.write_whole(tmp_path / "b", b"x")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"x", "b": b"x"}


def test_a_name_of_a_written_file_has_the_rights_of_new_files(tmp_path):
    files.write_whole(tmp_path / "a", b"x")
    (tmp_path / "b").write_bytes(b"x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


FIT = """
import signal, sys, threading, pgmengine as pgm
# A shell starts background jobs with interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from pgmengine.apps import cli
usual = pgm.fit
def fit(*given, **named):
    def interrupt(model, update):
        if update == 3:
            signal.raise_signal(signal.SIGINT)
    return usual(*given, callbacks=[interrupt], **named)
pgm.fit = fit
sys.argv = ["pgmengine", *sys.argv[1:]]
cli.main()
"""


@pytest.mark.parametrize("exists", [True, False])
def test_a_fit_that_ctrl_c_ends_leaves_the_output_as_it_was(exists, tmp_path):
    model, out = tmp_path / "m.safetensors", tmp_path / "out.safetensors"
    pgm.save(pgm.rbm(9, 2, rng=0), model)
    np.savez(tmp_path / "x.npz", v=np.eye(9))
    if exists:
        out.write_bytes(b"what was there")
    words = [sys.executable, "-c", FIT, "fit", model, tmp_path / "x.npz", out, "--epochs", "9000"]
    ended = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert ended.returncode == 130 and ended.stdout == "", ended
    beside = tmp_path / "out.interrupted.safetensors"
    assert f"interrupted after 3 updates: {out} is as it was" in ended.stderr
    assert str(beside) in ended.stderr and pgm.load(beside).training is not None
    assert out.read_bytes() == b"what was there" if exists else not out.exists()


def test_a_demo_that_ctrl_c_ends_writes_nothing(tmp_path):
    words = [sys.executable, "-c", FIT, "demo", "--out", tmp_path / "d", "--epochs", "9000"]
    ended = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert ended.returncode == 130 and ended.stderr.endswith("pgmengine: interrupted\n"), ended
    assert not (tmp_path / "d").exists()
