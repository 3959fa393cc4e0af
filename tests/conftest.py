"""The option --shift, which repeats every test with other seeds."""

import os

import pytest
import shifted

os.environ.setdefault("MPLBACKEND", "Agg")  # no windows


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


@pytest.fixture
def seeds_as_written(request):
    """Take the shift back for a test of the numbers that one seed gives, such as those in the
    README.
    """
    shifted.shift(0)
    yield
    shifted.shift(request.config.getoption("--shift"))
