"""The report of an installation, as lines of text and as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pgmengine.apps.doctor import machine
from pgmengine.apps.doctor.self_test import Check, checks
from pgmengine.base import numpy_routines
from pgmengine.base.routines import BuildConfig, build_config
from pgmengine.base.work.pace import PACE_VARIABLE, pace, renewed
from pgmengine.base.work.threads import THREADS_VARIABLE

# The environment variable that chooses the kind of the compiled routines.
KERNELS_VARIABLE = "PGMENGINE_KERNELS"


@dataclass(frozen=True)
class Report:
    """Facts about an installation, and the outcome of its tests.

    Attributes
    ----------
    processor : name and kind of the processor.
    routines : the routines that run, and how they were built.
    threads : the number of threads, of cores, and the variable that chose it.
    pace : seconds on this machine for a second of a plan, and the variable that chose it.
    blas : the libraries of linear algebra.
    versions : package -> version.
    place : the folder of the package, and the interpreter.
    extras : optional packages -> version, for each extra; an empty text is not installed.
    problems : sentences about what is wrong beside the tests.
    checks : the tests.
    """

    processor: str
    routines: BuildConfig
    threads: dict[str, Any]
    pace: dict[str, Any]
    blas: list[dict[str, Any]]
    versions: dict[str, str]
    place: str
    extras: dict[str, dict[str, str]]
    problems: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and all(check.good for check in self.checks)

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        own, python, *others = self.versions.items()
        yield f"pgmengine {own[1]} on Python {python[1]}"
        yield f"  folder: {self.place}"
        yield f"  processor: {self.processor}"
        yield f"  routines: {_text_of_routines(self.routines)}"
        chosen = self.threads["chosen_by"]
        by = f", chosen by {chosen}" if chosen else f" ({THREADS_VARIABLE} sets another number)"
        if self.routines.compiled:
            yield f"  built: {_text_of_build(self.routines)}"
        yield f"  threads: {self.threads['used']} of {self.threads['cores']} cores{by}"
        by = f"chosen by {self.pace['chosen_by']}" if self.pace["chosen_by"] else "measured"
        yield f"  pace: {self.pace['used']:g} s for a second of a plan, {by}"
        yield f"  BLAS: {', '.join(map(_text_of_blas, self.blas)) or 'none found'}"
        packages = (f"{name} {v or 'missing'}" for name, v in others)
        yield f"  packages: {', '.join(packages)}"
        yield ""
        yield "optional packages"
        width = max(map(len, self.extras))
        for extra in machine.EXTRAS:
            yield f"  {extra.name.ljust(width)}  {_text_of_extra(extra, self.extras[extra.name])}"
        yield ""
        yield "self-test"
        for check in self.checks:
            yield f"  {'ok    ' if check.good else 'FAILED'}  {check.name}: {check.text}"
        seconds = sum(check.seconds for check in self.checks)
        yield ""
        for problem in self.problems:
            yield f"PROBLEM: {problem}"
        failed = sum(not check.good for check in self.checks)
        if self.well:
            without = "" if self.routines.compiled else ", but there are no compiled routines"
            yield f"nothing is wrong{without}; the self-test took {seconds:.1f} s"
        else:
            yield f"something is wrong: {failed} tests failed, {len(self.problems)} other problems"

    def as_json(self) -> dict[str, Any]:
        """Return the report as values of JSON."""
        date = self.routines.date
        found = {"well": self.well, **asdict(self)}
        found["routines"]["date"] = None if date is None else date.isoformat()
        return found


def examined(measure: bool = False) -> Report:
    """Return the report of this installation; the tests take a few seconds.

    With `measure` the pace of the machine is measured anew.
    """
    chosen = PACE_VARIABLE if os.environ.get(PACE_VARIABLE) else ""
    versions = machine.versions()
    missing = [f"{name} is not installed" for name, v in versions.items() if not v]
    return Report(
        processor=machine.processor(),
        routines=build_config(),
        threads=machine.thread_counts(),
        pace={"used": renewed() if measure and not chosen else pace(), "chosen_by": chosen},
        blas=machine.blas(),
        versions=versions,
        place=machine.place(),
        extras={e.name: {p: machine.installed(p) for p in e.packages} for e in machine.EXTRAS},
        problems=(*missing, *machine.too_old()),
        checks=tuple(checks(compiled=build_config().compiled)),
    )


def _text_of_routines(found: BuildConfig) -> str:
    """Return the kind of the routines, and the other kinds that run here."""
    if not found.compiled:
        return (
            "NOT COMPILED: small questions are answered slowly, in plain Python, and others are "
            f"refused; {numpy_routines.why}"
        )
    by = f", chosen by {KERNELS_VARIABLE}" if os.environ.get(KERNELS_VARIABLE) else ""
    others = [kind for kind in found.runs_here if kind != found.used]
    also = f"; this processor also runs {', '.join(others)}" if others else ""
    return f"compiled, for {found.used}{by}{also}"


def _text_of_build(found: BuildConfig) -> str:
    """Return the compiler with its flags, and the platform."""
    flags = " ".join((*found.flags, *found.kinds.get(found.used, ()), *found.added_flags))
    date = f", {found.date:%Y-%m-%d}" if found.date else ""
    free = ", free-threaded" if found.free_threaded else ""
    return f"{found.compiler}, Cython {found.cython}, {found.platform}{free}{date}, {flags}"


def _text_of_blas(one: dict[str, Any]) -> str:
    """Return a library with its version and threads."""
    of = f" of {one['of']}" if one["of"] else ""
    return f"{one['library']} {one['version']}{of}, {one['threads']} threads"


def _text_of_extra(extra: machine.Extra, found: dict[str, str]) -> str:
    """Return the versions of optional packages, how to install missing ones, and the purpose."""
    have = ", ".join(f"{name} {v}" for name, v in found.items() if v)
    missing = ", ".join(name for name, v in found.items() if not v)
    without = f"no {missing} (pip install 'pgmengine[{extra.name}]')" if missing else ""
    return "; ".join(part for part in (have, without, f"for {extra.purpose}") if part)
