"""Tools that take files apart and put them together again, for tests of damaged files."""

import contextlib
import io
import sys

import numpy as np
import scipy.sparse as sp
from safetensors import safe_open
from safetensors.numpy import save_file

import pgmengine as pgm
from pgmengine.apps import cli

TOML = """
[[layers]]
name = "v"
unit = "Binary"
size = 3
bias = 0.5
labels = ["a", "b", "c"]
states = ["off", "on"]
[[layers]]
name = "h"
unit = "MultiValued"
s = 2
size = 2
[[couplings]]
couple = ["v", "h"]
weight = [[1, 2], [3, 4], [5, 6]]
"""


def model():
    """Dense and sparse couplings, an arrow, labels, names of states, arguments of units."""
    b = pgm.GraphBuilder()
    bias, labels = [0.5, -0.25, 0.125], ["a", ("b", 1), None]
    b.layer("v", pgm.Binary(), 3, bias=bias, labels=labels, states=["off", "on"])
    b.layer("h", pgm.MultiValued(float("inf")), 2)
    b.layer("y", pgm.Categorical(3), 1, bias=[[0.0, 0.5, 1.0]])
    b.layer("g", pgm.Gaussian(2.0), 2)
    b.couple("v", "h", weight=np.arange(6).reshape(3, 2) / 8)
    b.couple("h", "g", weight=sp.csr_array(np.array([[0.0, 0.25], [-0.5, 0.0]])))
    b.cause("v", "y", weight=np.arange(9).reshape(3, 3) / 16)
    return b.build()


def tabled():
    """Variables with conditionals and tables, some of them many, beside a coupling."""
    b = pgm.GraphBuilder()
    b.layer("v", pgm.MultiValued(2), 3, bias=[0.5, 0.0, 0.125])
    b.layer("h", pgm.Binary(), 2)
    b.couple("v", "h", weight=np.arange(6).reshape(3, 2) / 8)
    b.variable("rain", states=("no", "yes"))
    b.variable("wet", states=3)
    b.conditional("rain", (), [0.1, 0.9])
    b.conditional("wet", ("rain",), [[1 / 3, 1 / 3, 1 / 3], [0.0, 0.3, 0.7]])
    b.table(("rain", ("h", 0)), [[1.0, 2.0], [0.1, 0.0]])
    b.tables(("v", "v"), [[0, 1], [1, 2]], np.arange(18.0).reshape(2, 3, 3) / 7)
    return b.build()


def parts_of(path):
    """(tensors, metadata) of a .safetensors file."""
    with safe_open(str(path), framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, file.metadata()


def without_sum(path, tensors, metadata):
    """A file of a model in the format without a checksum: only its content can be wrong."""
    kept = {key: text for key, text in metadata.items() if key != "sha256"}
    save_file(tensors, str(path), metadata={**kept, "format": "pgmengine-1"})


def answered(words):
    """(exit status, standard error) of the command line, in this process."""
    before, sys.argv = sys.argv, ["pgmengine", *map(str, words)]
    error = io.StringIO()
    try:
        with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
            cli.main()
    except SystemExit as stop:
        return stop.code or 0, error.getvalue()
    finally:
        sys.argv = before
    raise AssertionError("the command line did not exit")
