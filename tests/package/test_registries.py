"""The registries of the contract tests list every public class of their kinds."""

import inspect

from registry import KERNELS, METHODS, NEGATIVES, UNITS

import pgmengine as pgm

# Public classes that are no unit, kernel, method or negative phase.
OTHERS = {
    "errors": {pgm.NotAsked, pgm.PgmError},
    # A single value: no draw, no slope.
    "units": {pgm.Constant},
    "graphs": {pgm.GraphBuilder, pgm.Model, pgm.Target, pgm.Unit},
    "answers": {pgm.Joint, pgm.Plan, pgm.Result, pgm.Status},
    "contracts": {pgm.Axis, pgm.Method, pgm.Prepared, pgm.Scheme},
    "ladders": {pgm.Adaptive, pgm.FlatHistogram, pgm.Linear, pgm.OneOverT, pgm.ThreePiece},
    "chains": {pgm.CoupledTempering},
    "optimizers": {pgm.AdaMax, pgm.Adam, pgm.Averaged, pgm.Centered, pgm.SGD, pgm.Scaled, pgm.Tied},
    "schedules": {pgm.GrowingBlend, pgm.harmonic, pgm.linear_decay},
    "monitors": {
        pgm.AISLogLikelihood,
        pgm.EarlyStopping,
        pgm.ExactLogLikelihood,
        pgm.FlipRates,
        pgm.FreeEnergyGap,
        pgm.Occupancy,
        pgm.PseudoLikelihood,
        pgm.ReconstructionError,
        pgm.VariationalBound,
        pgm.WeightNorms,
    },
    "estimators": {pgm.Finding, pgm.FindingKind, pgm.Fit, pgm.GenerativeClassifier},
}


def test_every_public_class_is_registered_once():
    """A class that is in no registry has not been through the contract of its kind."""
    public = {value for name in pgm.__all__ if inspect.isclass(value := getattr(pgm, name))}
    kinds = [{type(x) for x in kind} for kind in (UNITS, KERNELS)]
    kinds += [{type(x) for x in kind.values()} for kind in (METHODS, NEGATIVES)]
    kinds += OTHERS.values()
    registered = set().union(*kinds)
    assert not public - registered, "add these to tests/registry.py, or to OTHERS here"
    assert not registered - public, "export these in pgmengine/__init__.py"
    assert sum(map(len, kinds)) == len(public)
