"""The option --shift: which seeds it moves, and that nothing else changes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shifted

import pgmengine as pgm


@pytest.fixture
def by_three(request):
    shifted.shift(3)
    yield
    shifted.shift(request.config.getoption("--shift"))


def first(seed):
    return np.random.default_rng(seed).random()


def test_integer_seeds_move_and_others_do_not(by_three):
    assert first(4) == first(np.int64(4)) == shifted.MADE(7).random()
    assert first(np.random.SeedSequence(4)) == shifted.MADE(4).random()
    assert first(shifted.MADE(4)) == shifted.MADE(4).random()
    assert first(None) != first(None)
    with pytest.raises(ValueError, match="non-negative"):
        np.random.default_rng(-1)


def test_seeds_of_the_package_move(by_three):
    weight = pgm.rbm(4, 3, rng=2).params["v-h.weight"]
    shifted.shift(0)
    np.testing.assert_array_equal(weight, pgm.rbm(4, 3, rng=5).params["v-h.weight"])


def test_without_a_shift_nothing_is_replaced(seeds_as_written):
    assert np.random.default_rng is shifted.MADE


def test_scripts_shift_as_the_test_that_runs_them(by_three, tmp_path):
    path = tmp_path / "script.py"
    drawn = "np.random.default_rng(4).random()"
    path.write_text(f"import numpy as np, sys; print(sys.argv[1:], {drawn})")
    command = [sys.executable, str(Path(shifted.__file__)), str(path), "a", "--b"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.split("] ") == ["['a', '--b'", f"{shifted.MADE(7).random()}\n"]
