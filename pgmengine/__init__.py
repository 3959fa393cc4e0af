"""pgmengine: declare, learn and ask graphical models of energy-based and belief-network layers."""

from pgmengine import datasets, diagnostics
from pgmengine.errors import NotAsked, PgmError
from pgmengine.families import boltzmann_machine, dbm, dbn, drbm, rbm, sbn
from pgmengine.graph import GraphBuilder
from pgmengine.infer import Auto, explain, infer
from pgmengine.kernels import Blend, FlipState, Gibbs
from pgmengine.learn import CD, PCD, SGD, Adam, AdaMax, ExactGradient, ExactLogLikelihood, Fit, fit, harmonic
from pgmengine.methods import (
    AIS,
    MCMC,
    Adaptive,
    CoupledTempering,
    Exact,
    FlatHistogram,
    Linear,
    OneOverT,
    ParallelTempering,
    SimulatedTempering,
    TemperedTransitions,
    ThreePiece,
    WangLandau,
    base_rates,
)
from pgmengine.model import Model
from pgmengine.result import Plan, Result, Status
from pgmengine.store import load, load_declaration, save
from pgmengine.target import Target
from pgmengine.units import Binary, Categorical, Gaussian, Input, MultiValued, NoisyOr, Spin, Unit

__version__ = "0.1.0"

__all__ = [
    "AIS", "CD", "MCMC", "PCD", "SGD", "AdaMax", "Adam", "Adaptive", "Auto", "Binary", "Blend", "Categorical",
    "CoupledTempering", "Exact", "ExactGradient", "ExactLogLikelihood", "Fit", "FlatHistogram", "FlipState",
    "Gaussian", "Gibbs", "GraphBuilder", "Input", "Linear", "Model", "MultiValued", "NoisyOr", "NotAsked",
    "OneOverT", "ParallelTempering", "PgmError", "Plan", "Result", "SimulatedTempering", "Spin", "Status",
    "Target", "TemperedTransitions", "ThreePiece", "Unit", "WangLandau", "base_rates", "boltzmann_machine",
    "datasets", "dbm", "dbn", "diagnostics", "drbm", "explain", "fit", "harmonic", "infer", "load",
    "load_declaration", "rbm", "save", "sbn",
]
