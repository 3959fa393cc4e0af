"""Systems without Linux's files and calls: free memory and folders have fall-backs."""

import builtins
import math
import os

import pgmengine as pgm
from pgmengine.base.work.memory import available_memory, no_room


def test_free_memory_without_proc(monkeypatch):
    opened = builtins.open

    def no_proc(path, *rest, **named):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(path)
        return opened(path, *rest, **named)

    monkeypatch.setattr(builtins, "open", no_proc)
    assert 2**20 < available_memory() < math.inf
    monkeypatch.delattr(os, "sysconf")
    assert available_memory() == math.inf and no_room(1e300) == ""


def test_files_without_synchronised_folders(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "O_DIRECTORY")
    model = pgm.rbm(3, 2, rng=0)
    pgm.save(model, tmp_path / "m")
    assert str(pgm.load(tmp_path / "m")) == str(model)
