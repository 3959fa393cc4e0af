"""Options and settings of all tests.

--shift N asks for every verdict again with other seeds, in the workers of pytest-xdist, too. There
is a worker for each core. BLAS and OpenMP therefore run on one thread in each of them, unless the
environment says otherwise. They read their variables when numpy is loaded, hence before the
imports. Tests of several threads ask for their number.
"""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

import sys

import lanes
import pytest
import shifted

os.environ.setdefault("MPLBACKEND", "Agg")  # no windows
os.environ.setdefault("PGMENGINE_PACE", "1")  # plans as text are the same on every machine


def pytest_addoption(parser):
    parser.addoption(
        "--shift",
        type=int,
        default=0,
        metavar="N",
        help="add N to every integer seed that tests use",
    )


def pytest_configure(config):
    """Shift the seeds before test modules are imported, because some draw numbers at import."""
    shifted.shift(config.getoption("--shift"))


def pytest_unconfigure(config):
    shifted.shift(0)


def pytest_ignore_collect(collection_path, config):
    """Leave out files without the mark where the smoke lane alone is asked for: to import the
    others takes longer than the lane.
    """
    alone = config.option.markexpr == "smoke" and collection_path.suffix == ".py"
    if alone and "smoke" not in collection_path.read_text(encoding="utf-8"):
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    """Give the items of a test to their lanes. Whoever names an item gets it in any lane."""
    yield
    if metafunc._calls and not any("[" in place for place in metafunc.config.args):
        lanes.choose(metafunc)


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    """Close the figures of a test: matplotlib warns of more than twenty in one process."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def seeds_as_written(request):
    """Take the shift back for a test of the numbers that one seed gives, such as those in the
    README.
    """
    shifted.shift(0)
    yield
    shifted.shift(request.config.getoption("--shift"))
