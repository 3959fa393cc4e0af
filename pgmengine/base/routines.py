"""The routines: compiled, or plain ones where the package was installed without a compiler.

Other modules import `pgmengine._kernels`: the compiled module of cython_ext/kernels.pyx. Where
there is none, the plain routines of `base/numpy_routines` take its place before anything else of
the package is imported, and a line of the log says so. PGMENGINE_KERNELS=plain asks for them. A
compiled module that cannot be loaded remains an error, because it would have to be mended.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec

NAME = "pgmengine._kernels"

NOTICE = (
    "pgmengine was installed without its compiled routines: small questions are answered slowly, "
    "in plain Python, and others are refused. Install a C compiler (on Debian: gcc and "
    "python3-dev), and install pgmengine again"
)


def _provide() -> None:
    """Put the plain routines in the place of a compiled module that is not there."""
    asked = os.environ.get("PGMENGINE_KERNELS") == "plain"
    if NAME in sys.modules:
        return
    if not asked and find_spec(NAME) is not None:
        # A module that cannot be loaded, or a processor that does not exist, is an error at once.
        importlib.import_module(NAME)
        return
    plain = importlib.import_module("pgmengine.base.numpy_routines")
    if asked and find_spec(NAME) is not None:
        vars(plain)["why"] = plain.TURNED_OFF
    sys.modules[NAME] = plain
    vars(sys.modules["pgmengine"])["_kernels"] = plain
    if not asked:
        # A warning would be an error where warnings are errors, before anything was asked.
        logging.getLogger("pgmengine").warning(NOTICE)


_provide()


@dataclass(frozen=True)
class BuildConfig:
    """How the compiled routines of this installation were built; see `build_config`.

    Attributes
    ----------
    compiled : whether there are compiled routines; without them, texts are empty.
    compiler : its name and version.
    flags : of the compiler, in all files.
    unit_flags : the units of routines -> further flags of each.
    added_flags : from the environment variable CFLAGS, without those that name a path.
    kinds : the kinds of processors with routines of their own -> flags of each.
    runs_here : the kinds that this processor can run.
    used : the kind that is used in this process; PGMENGINE_KERNELS chooses another one.
    platform : the platform that they were built for.
    cython : version of Cython. The version of numpy does not matter to the binaries.
    free_threaded : whether they were built for a Python without the global interpreter lock. The
        module does not claim to be safe there, and importing it turns the lock on.
    date : SOURCE_DATE_EPOCH of the build, or None where it was not set.
    """

    compiled: bool
    compiler: str
    flags: tuple[str, ...]
    unit_flags: dict[str, tuple[str, ...]]
    added_flags: tuple[str, ...]
    kinds: dict[str, tuple[str, ...]]
    runs_here: tuple[str, ...]
    used: str
    platform: str
    cython: str
    free_threaded: bool
    date: datetime | None


def build_config() -> BuildConfig:
    """Return how the compiled routines were built, as a report of a fault needs it.

    Nothing in it depends on the folders or the name of the machine that built them.

    Returns
    -------
    BuildConfig
        The compiler and its flags, the kinds of processors that have routines of their own, and the
        one that is used in this process.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> config = pgm.build_config()
    >>> config.used in config.runs_here
    True
    """
    kernels = importlib.import_module(NAME)
    record = kernels.build_record()
    flags = [tuple(words.split()) for words in record["kind_flags"].split(";")]
    units, epoch = record["unit_flags"].split(";"), record["epoch"]
    return BuildConfig(
        compiled=record["compiler"] != "",
        compiler=record["compiler"],
        flags=tuple(record["flags"].split()),
        unit_flags={words.split()[0]: tuple(words.split()[1:]) for words in units if words},
        added_flags=tuple(record["added_flags"].split()),
        kinds=dict(zip(record["kinds"].split(), flags, strict=False)),
        runs_here=kernels.PROCESSORS,
        used=kernels.PROCESSOR,
        platform=record["platform"],
        cython=record["cython"],
        free_threaded=record["without_gil"],
        date=datetime.fromtimestamp(int(epoch), UTC) if epoch else None,
    )
