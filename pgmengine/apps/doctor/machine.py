"""Facts about the machine and the installation: processor, routines, threads, BLAS, packages."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import pgmengine as pgm
from pgmengine.base.work.threads import THREADS_VARIABLE, threads

# Packages that are always needed.
CORE = (
    "numpy", "scipy", "networkx", "safetensors", "arviz-stats", "rich", "typer", "threadpoolctl",
)  # fmt: skip


@dataclass(frozen=True)
class Extra:
    """Optional packages of pyproject.toml that are installed together.

    Attributes
    ----------
    name : the name in pip install 'pgmengine[name]'.
    purpose : the functions that need it.
    packages : the names of the distributions.
    """

    name: str
    purpose: str
    packages: tuple[str, ...]


EXTRAS = (
    Extra("plots", "pictures, pgm.plots", ("matplotlib",)),
    Extra("explore", "pgm.explore in notebooks", ("anywidget",)),
    Extra("arviz", "DataFrames and ArviZ trees of answers", ("arviz-base", "pandas", "xarray")),
    Extra("sklearn", "estimators, pgmengine.sklearn", ("scikit-learn",)),
    Extra("distributed", "large questions on several machines", ("distributed",)),
    Extra("parquet", "Shards of Parquet files", ("pandas", "pyarrow")),
    Extra("treewidth", "better elimination orders of large networks", ("goatd",)),
    Extra("dimod", "models of dimod, GraphBuilder.from_dimod", ("dimod",)),
    Extra("map", "modes of any graph with a proof, pgm.Toulbar2", ("pytoulbar2",)),
    Extra("counting", "log Z of models with many zeros, pgm.ModelCounting", ("pyganak",)),
    Extra("torch", "models in torch, pgmengine.torch", ("torch",)),
    Extra("jax", "models in JAX, pgmengine.jax", ("jax",)),
    Extra(
        "tutorials",
        "running the notebooks",
        ("jupytext", "ipykernel", "matplotlib", "pandas", "arviz-base", "scikit-learn"),
    ),
    Extra(
        "docs",
        "contributors, to build the pages",
        ("sphinx", "docutils", "myst-nb", "furo", "matplotlib", "scikit-learn"),
    ),
    Extra(
        "test",
        "contributors, to run the tests",
        ("pytest", "pytest-xdist", "hypothesis", "setuptools"),
    ),
    Extra(
        "release",
        "maintainers, to check a release",
        (
            "twine",
            "check-wheel-contents",
            "validate-pyproject",
            "cffconvert",
            "pytest-run-parallel",
        ),
    ),
    Extra(
        "dev",
        "contributors, to run the checks",
        ("build", "ruff", "mypy", "scikit-learn", "selenium", "polars", "pyarrow"),
    ),
)


def processor() -> str:
    """Return the name of the processor, and the kind of machine."""
    name = ""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
        name = found[1].strip() if found else ""
    except OSError:
        # Only Linux has this file.
        name = platform.processor()
    machine = platform.machine()
    return f"{name}, {machine}" if name and name != machine else machine


def thread_counts() -> dict[str, Any]:
    """Return the number of threads of compiled loops, of cores, and what chose it."""
    return {
        "used": threads(),
        "cores": os.cpu_count() or 1,
        "chosen_by": THREADS_VARIABLE if os.environ.get(THREADS_VARIABLE) else "",
    }


def blas() -> list[dict[str, Any]]:
    """Return the BLAS libraries that are loaded, each with its version and threads."""
    from scipy.linalg import cython_blas  # noqa: F401  loads the BLAS of the compiled loops
    from threadpoolctl import threadpool_info

    return [
        {
            "library": str(one["internal_api"]),
            "version": str(one["version"] or "?"),
            "threads": int(one["num_threads"]),
            "of": Path(one["filepath"]).parent.name.removesuffix(".libs"),
        }
        for one in threadpool_info()
        if one["user_api"] == "blas"
    ]


def installed(package: str) -> str:
    """Return the version of a distribution, or an empty string."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def versions() -> dict[str, str]:
    """Return the versions of Python, pgmengine and the packages that it always needs."""
    own = {"pgmengine": pgm.__version__, "Python": platform.python_version()}
    return own | {package: installed(package) for package in CORE}


def too_old() -> list[str]:
    """Return a sentence for each needed package that is older than pgmengine asks for."""
    try:
        needed = requires("pgmengine") or []
    except PackageNotFoundError:
        # The package runs from a folder in which it was not installed.
        return []
    out = list[str]()
    for line in needed:
        found = re.match(r"([\w.-]+)\s*>=\s*([\d.]+)\s*$", line)
        if found and (here := installed(found[1])) and _numbers(here) < _numbers(found[2]):
            out.append(f"{found[1]} {here} is older than {found[2]}, which pgmengine needs")
    return out


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def place() -> str:
    """Return the folder of the package, and the interpreter."""
    return f"{Path(pgm.__file__).parent}, run by {sys.executable}"
