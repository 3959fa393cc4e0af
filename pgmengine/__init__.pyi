"""The public names of pgmengine, each with the module from which its first use imports it."""

from pgmengine import datasets, diagnostics
from pgmengine import plots as plots
from pgmengine import sklearn as sklearn
from pgmengine.apps.explorer.explore import explore
from pgmengine.apps.learners.classifier import GenerativeClassifier
from pgmengine.base.errors import NotAsked, PgmError
from pgmengine.base.routines import build_config
from pgmengine.declare.builder import GraphBuilder
from pgmengine.declare.families import boltzmann_machine, dbm, dbn, drbm, rbm, sbn
from pgmengine.declare.model import Model
from pgmengine.declare.template import Template
from pgmengine.declare.values.noisy import noisy_and, noisy_max, noisy_min, noisy_or
from pgmengine.engine.kernels import Blend, FlipState, Gibbs
from pgmengine.evidence.soft import likelihood
from pgmengine.evidence.target import Target
from pgmengine.infer.methods import (
    AIS,
    MCMC,
    Adaptive,
    ClusterLadder,
    CoupledTempering,
    Elimination,
    Enumeration,
    Exact,
    FlatHistogram,
    Forward,
    Linear,
    MeanField,
    OneOverT,
    ParallelTempering,
    Planar,
    SimulatedTempering,
    SwendsenWang,
    TemperedTransitions,
    ThreePiece,
    WangLandau,
    base_rates,
)
from pgmengine.infer.question.ask import explain, infer, prepare
from pgmengine.infer.question.auto import Auto
from pgmengine.infer.question.impact import Contribution, Impact, impact
from pgmengine.infer.question.prepared import Method, Prepared, Scheme
from pgmengine.infer.results.by_name import Joint, Mode
from pgmengine.infer.results.expectation import Expectation
from pgmengine.infer.results.result import Plan, Result, Status
from pgmengine.infer.results.statistics import Axis
from pgmengine.io.formats import read, read_evidence, write
from pgmengine.io.store import load, load_declaration, save
from pgmengine.learn.fit import Fit, fit
from pgmengine.learn.monitoring.finding import Finding, FindingKind
from pgmengine.learn.monitoring.likelihoods import (
    AISLogLikelihood,
    ExactLogLikelihood,
    FreeEnergyGap,
    PseudoLikelihood,
    VariationalBound,
)
from pgmengine.learn.monitoring.monitors import (
    EarlyStopping,
    FlipRates,
    Occupancy,
    ReconstructionError,
    WeightNorms,
)
from pgmengine.learn.negative import (
    CAST,
    CD,
    PCD,
    PT,
    AdaptiveSAP,
    ExactGradient,
    FastPCD,
    PseudoGradient,
    TransSAP,
)
from pgmengine.learn.starting.base_rate_start import base_rate_start
from pgmengine.learn.starting.pretraining import pretrain
from pgmengine.learn.steps.em import EM
from pgmengine.learn.steps.fixed import Fixed
from pgmengine.learn.steps.lbfgs import LBFGS
from pgmengine.learn.steps.optimizers import SGD, Adam, AdaMax
from pgmengine.learn.steps.scaled import Scaled
from pgmengine.learn.steps.schedules import GrowingBlend, harmonic, linear_decay
from pgmengine.learn.steps.wrappers import Averaged, Centered
from pgmengine.units import (
    Binary,
    Categorical,
    Constant,
    Gaussian,
    Input,
    MultiValued,
    NoisyOr,
    Normal,
    Spin,
    Unit,
)

__version__: str

__all__ = [
    "AIS",
    "AISLogLikelihood",
    "AdaMax",
    "Adam",
    "Adaptive",
    "AdaptiveSAP",
    "Auto",
    "Averaged",
    "Axis",
    "Binary",
    "Blend",
    "CAST",
    "CD",
    "Categorical",
    "Centered",
    "Constant",
    "Contribution",
    "ClusterLadder",
    "CoupledTempering",
    "EM",
    "EarlyStopping",
    "Elimination",
    "Enumeration",
    "Exact",
    "ExactGradient",
    "ExactLogLikelihood",
    "Expectation",
    "FastPCD",
    "Finding",
    "FindingKind",
    "Fit",
    "Fixed",
    "FlatHistogram",
    "FlipRates",
    "FlipState",
    "Forward",
    "FreeEnergyGap",
    "Gaussian",
    "GenerativeClassifier",
    "Gibbs",
    "GraphBuilder",
    "GrowingBlend",
    "Impact",
    "Input",
    "Joint",
    "LBFGS",
    "Linear",
    "MCMC",
    "MeanField",
    "Method",
    "Mode",
    "Model",
    "MultiValued",
    "NoisyOr",
    "Normal",
    "NotAsked",
    "Occupancy",
    "OneOverT",
    "PCD",
    "PT",
    "ParallelTempering",
    "PgmError",
    "Plan",
    "Planar",
    "Prepared",
    "PseudoGradient",
    "PseudoLikelihood",
    "ReconstructionError",
    "Result",
    "SGD",
    "Scheme",
    "SimulatedTempering",
    "Scaled",
    "Spin",
    "Status",
    "SwendsenWang",
    "Target",
    "TemperedTransitions",
    "Template",
    "ThreePiece",
    "TransSAP",
    "Unit",
    "VariationalBound",
    "WangLandau",
    "WeightNorms",
    "base_rate_start",
    "base_rates",
    "boltzmann_machine",
    "build_config",
    "datasets",
    "dbm",
    "dbn",
    "diagnostics",
    "drbm",
    "explain",
    "explore",
    "fit",
    "harmonic",
    "impact",
    "infer",
    "likelihood",
    "linear_decay",
    "load",
    "load_declaration",
    "noisy_and",
    "noisy_max",
    "noisy_min",
    "noisy_or",
    "prepare",
    "pretrain",
    "rbm",
    "read",
    "read_evidence",
    "save",
    "sbn",
    "write",
]
