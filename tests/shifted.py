"""Shifts the seeds of tests: verdicts are to hold for any of them (`pytest --shift N`).

Every seed of the package and of the tests reaches `np.random.default_rng`, called by that name.
While shifted, it adds N to seeds that are integers, so two runs of one seed remain two runs of one
seed. Generators, SeedSequences and None are as they were.

    python tests/shifted.py SCRIPT ARGUMENTS...

runs a script as `python SCRIPT ARGUMENTS...` does, with the seeds shifted as in the test that
started it.
"""

import os
import runpy
import sys
from numbers import Integral

import numpy as np

VARIABLE = "PGMENGINE_TEST_SHIFT"
MADE = np.random.default_rng


def shift(by):
    """Add `by` to integer seeds from now on, here and in scripts run by this file; 0 ends that."""
    os.environ[VARIABLE] = str(by)
    np.random.default_rng = shifting(by) if by else MADE


def shifting(by):
    """A `default_rng` for seeds that are shifted."""

    def default_rng(seed=None):
        whole = isinstance(seed, Integral) and not isinstance(seed, bool)
        return MADE(seed + by if whole and seed >= 0 else seed)

    return default_rng


if __name__ == "__main__":
    shift(int(os.environ.get(VARIABLE, "0")))
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
