"""The registry of the contract tests lists every public class, and every class of a kind."""

import contextlib
import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path

import pytest
from loops import one_test_over
from registry import (
    CONVERGED,
    FEW_CHAINS,
    FEW_DRAWS,
    KERNELS,
    METHODS,
    MONITORS,
    MONITORS_OF_DATA,
    NEGATIVES,
    OPTIMIZERS,
    UNITS,
    every,
)
from tiny import MODELS, NORMAL

import pgmengine as pgm
from pgmengine.infer.sampling.draws.sampler import Sampler

pytestmark = pytest.mark.smoke

MONITOR_CLASSES = {
    type(made)
    for made in (*MONITORS.values(), *(f({"v": [[0]]}) for f in MONITORS_OF_DATA.values()))
}

# Kind: the classes that the registry has of it.
REGISTERED = {
    "unit": {type(x) for x in UNITS},
    "kernel": {type(x) for x in KERNELS},
    "method": {type(x) for x in METHODS.values()},
    "model phase": {type(x) for x in NEGATIVES.values()},
    "optimizer": {type(x) for x in OPTIMIZERS.values()},
    "monitor": MONITOR_CLASSES,
}

# Kind: the place of its entries, and the test that then runs them.
PLACES = {
    "unit": "an instance in UNITS of tests/registry.py, a model with it in tests/tiny.py and its "
    "values in `grid` of tests/brute.py; then pytest tests/units tests/infer tests/engine",
    "kernel": "an instance in KERNELS of tests/registry.py; then pytest "
    "tests/engine/test_kernel_contract.py",
    "method": "settings in METHOD_SETTINGS of tests/registry.py; then pytest "
    "tests/infer/test_method_contract.py",
    "model phase": "settings in PHASE_SETTINGS of tests/registry.py; then pytest "
    "tests/learn/test_negative_contract.py",
    "optimizer": "an instance in OPTIMIZERS of tests/registry.py; then pytest "
    "tests/learn/test_negative_contract.py tests/learn/test_statistics.py",
    "monitor": "an instance in MONITORS of tests/registry.py, or a function of data in "
    "MONITORS_OF_DATA; then pytest tests/learn/test_monitors.py tests/package/test_doors.py",
    "other": "the class in OTHERS of tests/package/test_registries.py",
}

# Public classes that are of no kind which has a contract.
OTHERS = {
    # Optimizers that see all rows, and a phase of observed models: tests/learn has their contracts.
    "whole data": {pgm.EM, pgm.LBFGS, pgm.PseudoGradient},
    # Optional: test_modes_of_any_graph.py and test_model_counting.py have their contracts.
    "methods of other packages": {pgm.ModelCounting, pgm.Toulbar2},
    "errors": {pgm.NotAsked, pgm.PgmError},
    # A single value: no draw, no slope. Groups of columns, which only handles declare and which are
    # not for bare layers: tests/learn/test_full_normal.py has their contract.
    "units": {pgm.Constant, pgm.FullNormal},
    "graphs": {pgm.GraphBuilder, pgm.Model, pgm.Models, pgm.Target, pgm.Template, pgm.Unit},
    "data": {pgm.Shards},
    "answers": {
        pgm.Contribution,
        pgm.BestObservation,
        pgm.Compared,
        pgm.Comparison,
        pgm.Gain,
        pgm.Divergence,
        pgm.Expectation,
        pgm.Impact,
        pgm.Joint,
        pgm.Mode,
        pgm.Plan,
        pgm.Result,
        pgm.Status,
    },
    "contracts": {pgm.Axis, pgm.Method, pgm.Prepared, pgm.Scheme},
    "ladders": {pgm.Adaptive, pgm.FlatHistogram, pgm.Linear, pgm.OneOverT, pgm.ThreePiece},
    # tests/infer/sampling/test_houdayer.py has the contract of moves.
    "chains": {pgm.CoupledTempering, pgm.Houdayer},
    "schedules": {pgm.GrowingBlend, pgm.harmonic, pgm.linear_decay},
    "estimators": {pgm.Finding, pgm.FindingKind, pgm.Fit, pgm.GenerativeClassifier},
}


def kind_of(cls):
    """The kind of a class, by its base or by the methods of its protocol."""
    if issubclass(cls, pgm.Unit):
        return "unit"
    if issubclass(cls, pgm.Method):
        return "method"
    if callable(getattr(cls, "transition", None)):
        return "kernel"
    if callable(getattr(cls, "step", None)) and callable(getattr(cls, "start", None)):
        return "optimizer"
    if callable(getattr(cls, "start", None)) and hasattr(cls, "precision"):
        return "model phase"
    calls = [inspect.signature(vars(c)["__call__"]) for c in cls.__mro__ if "__call__" in vars(c)]
    if any([*call.parameters][1:] == ["model", "update"] for call in calls):
        return "monitor"
    return "other"


def lacking(classes):
    """A line for each class that no table has, with the place where it is to be added."""
    known = set().union(*REGISTERED.values(), *OTHERS.values())
    return [
        f"{cls.__name__} is in no registry: add {PLACES[kind_of(cls)]}"
        for cls in sorted(classes - known, key=lambda c: c.__name__)
    ]


def public():
    return {value for name in pgm.__all__ if inspect.isclass(value := getattr(pgm, name))}


def test_every_public_class_is_registered_once():
    """A class that is in no registry has not been through the contract of its kind."""
    kinds = [*REGISTERED.values(), *OTHERS.values()]
    registered = set().union(*kinds)
    missing = lacking(public())
    assert not missing, "\n".join(missing)
    assert not registered - public(), "export these in pgmengine/__init__.pyi"
    assert sum(map(len, kinds)) == len(public())


def every_module():
    """Import all modules: classes of a module that is not imported are not found."""
    for module in pkgutil.walk_packages(pgm.__path__, "pgmengine."):
        # A module whose extra is not installed raises PgmError.
        with contextlib.suppress(pgm.PgmError):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def subclasses(base):
    return {base} | {c for sub in base.__subclasses__() for c in subclasses(sub)}


def test_every_unit_and_method_of_the_package_is_registered():
    """Also the ones that pgmengine/__init__.pyi has forgotten."""
    every_module()
    own = {
        c
        for base in (pgm.Unit, pgm.Method)
        for c in subclasses(base)
        if c.__module__.startswith("pgmengine.") and not c.__name__.startswith("_")
    }
    missing = lacking(own - {Sampler})
    assert not missing, "\n".join(missing)


@one_test_over("kind", REGISTERED)
def test_the_kind_of_a_class_is_recognised(kind):
    """So that the message for a new class of this kind names the right table."""
    assert {kind_of(cls) for cls in REGISTERED[kind]} == {kind}
    new = [type(f"New{cls.__name__}", (cls,), {}) for cls in REGISTERED[kind]]
    lines = lacking(set(new))
    assert len(lines) == len(new) and all(PLACES[kind] in line for line in lines)


def test_the_places_of_the_registry_exist():
    """The tables and files that the messages name are there."""
    folder, registry = Path(__file__).parents[1], sys.modules["registry"]
    for place in PLACES.values():
        for name in re.findall(r"\b_?[A-Z][A-Z_]+\b", place):
            assert hasattr(registry, name) or name in globals()
        for path in re.findall(r"tests/[\w/.]*\w", place):
            assert (folder.parent / path).exists(), path


def test_all_settings_of_a_class_are_of_that_class():
    for tables in ((METHODS, FEW_DRAWS), (NEGATIVES, CONVERGED, FEW_CHAINS)):
        for name, value in tables[0].items():
            assert {type(table[name]) for table in tables} == {type(value)}
    for name, value in (METHODS | OPTIMIZERS | MONITORS).items():
        assert name == type(value).__name__
    for name, make in MONITORS_OF_DATA.items():
        assert name == type(make({"v": [[0]]})).__name__


def test_every_unit_with_values_is_in_a_tiny_model():
    """Tests of whole models reach a unit only there."""
    reached = {type(x.unit) for m in (*MODELS, NORMAL) for x in m.layers}
    lacks = {type(u).__name__ for u in UNITS if not u.observed_only} - {c.__name__ for c in reached}
    assert not lacks, f"add a model with {lacks} to tests/tiny.py"


def test_a_list_of_a_test_that_lacks_a_class_is_refused():
    with pytest.raises(AssertionError, match="lacks Blend, FlipState"):
        every(KERNELS, [pgm.Gibbs()])
