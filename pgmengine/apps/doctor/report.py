"""The report of an installation, as lines of text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pgmengine.apps.doctor import facts
from pgmengine.apps.doctor.self_test import Check, checks


@dataclass(frozen=True)
class Report:
    """Facts about an installation, and the outcome of its tests.

    Attributes
    ----------
    processor : name and kind of the processor.
    routines : the compiled routines that run.
    threads : the number of threads, of cores, and the variable that chose it.
    blas : the libraries of linear algebra.
    versions : package -> version.
    build : how the binaries were built.
    place : the folder of the package, and the interpreter.
    extras : optional packages -> version, for each extra; an empty text is not installed.
    problems : sentences about what is wrong beside the tests.
    checks : the tests.
    """

    processor: str
    routines: facts.Routines
    threads: dict[str, Any]
    blas: list[dict[str, Any]]
    versions: dict[str, str]
    build: str
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
        by = f", chosen by {self.threads['chosen_by']}" if self.threads["chosen_by"] else ""
        yield f"  threads: {self.threads['used']} of {self.threads['cores']} cores{by}"
        yield f"  BLAS: {', '.join(map(_text_of_blas, self.blas)) or 'none found'}"
        packages = (f"{name} {v or 'missing'}" for name, v in others)
        yield f"  packages: {', '.join(packages)}"
        if self.build:
            yield f"  build: {self.build}"
        yield ""
        yield "optional packages"
        width = max(map(len, self.extras))
        for extra in facts.EXTRAS:
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
            yield f"nothing is wrong; the self-test took {seconds:.1f} s"
        else:
            yield f"something is wrong: {failed} tests failed, {len(self.problems)} other problems"

    def as_json(self) -> dict[str, Any]:
        """Return the report as values of JSON."""
        return {"well": self.well, **asdict(self)}


def examined() -> Report:
    """Return the report of this installation; the tests take a few seconds."""
    found = facts.routines()
    versions = facts.versions()
    missing = [f"{name} is not installed" for name, v in versions.items() if not v]
    return Report(
        processor=facts.processor(),
        routines=found,
        threads=facts.thread_counts(),
        blas=facts.blas(),
        versions=versions,
        build=facts.build(),
        place=facts.place(),
        extras={e.name: {p: facts.installed(p) for p in e.packages} for e in facts.EXTRAS},
        problems=(*missing, *facts.too_old()),
        checks=tuple(checks()),
    )


def _text_of_routines(found: facts.Routines) -> str:
    """Return the kind of the routines, and the other kinds that run here."""
    if not found.kind:
        return (
            f"NOT COMPILED ({found.why_not}): every answer is made by the reference engine, which "
            "is many times slower; install a wheel, or a C compiler and pgmengine again"
        )
    by = f", chosen by {found.chosen_by}" if found.chosen_by else ""
    others = [kind for kind in found.runnable if kind != found.kind]
    also = f"; this processor also runs {', '.join(others)}" if others else ""
    return f"compiled, for {found.kind}{by}{also}"


def _text_of_blas(one: dict[str, Any]) -> str:
    """Return a library with its version and threads."""
    of = f" of {one['of']}" if one["of"] else ""
    return f"{one['library']} {one['version']}{of}, {one['threads']} threads"


def _text_of_extra(extra: facts.Extra, found: dict[str, str]) -> str:
    """Return the purpose of optional packages, and their versions or how to install them."""
    have = ", ".join(f"{name} {v}" for name, v in found.items() if v)
    if all(found.values()):
        return f"{extra.purpose}: {have}"
    missing = ", ".join(name for name, v in found.items() if not v)
    part = f"{have}; " if have else ""
    return (
        f"{extra.purpose}: {part}not installed: {missing} (pip install 'pgmengine[{extra.name}]')"
    )
