"""Optional packages: the extra that installs each, and the error where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pgmengine.base.errors import PgmError

# Module -> the extra of pyproject.toml that declares its distribution.
EXTRAS = {
    "anywidget": "explore",
    "arviz_base": "arviz",
    "goatd": "treewidth",
    "jax": "jax",
    "matplotlib": "plots",
    "pandas": "arviz",
    "pyarrow": "parquet",
    "pyganak": "counting",
    "pytoulbar2": "map",
    "sklearn": "sklearn",
    "torch": "torch",
    "xarray": "arviz",
}


class MissingExtra(PgmError, ImportError):
    """An optional package that a function needs, and that is not installed.

    It is also an ImportError, for programs that test which packages are installed.
    """


@contextmanager
def needed_by(what: str, instead: str = "") -> Iterator[None]:
    """Raise MissingExtra, with the extra to install, if an import in this context finds no package.

    Parameters
    ----------
    what : the function or module that needs the package, for the message.
    instead : another way that needs no package, for the message.

    Raises
    ------
    MissingExtra
        If an optional package is not installed. Other import errors are not changed.

    Examples
    --------
    >>> with needed_by("this example"):
    ...     raise ModuleNotFoundError(name="pandas")
    Traceback (most recent call last):
    pgmengine.base.extras.MissingExtra: this example needs pandas, which is not installed: pip \
install 'pgmengine[arviz]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        missing = MissingExtra(
            f"{what} needs {module}, which is not installed: {install(module)}"
            + (f"; {instead}" if instead else "")
        )
        missing.name = module
        raise missing from error


def install(module: str) -> str:
    """Return the command that installs an optional package.

    >>> install("goatd")
    "pip install 'pgmengine[treewidth]'"
    """
    return f"pip install 'pgmengine[{EXTRAS[module]}]'"
