"""pgmengine: declare, learn and ask graphical models of energy-based and belief-network layers."""

from pgmengine.errors import NotAsked, PgmError
from pgmengine.families import boltzmann_machine, dbm, dbn, drbm, rbm, sbn
from pgmengine.graph import GraphBuilder
from pgmengine.infer import Auto, explain, infer
from pgmengine.kernels import Gibbs
from pgmengine.methods import MCMC, Exact
from pgmengine.model import Model
from pgmengine.result import Plan, Result, Status
from pgmengine.target import Target
from pgmengine.units import Binary, Categorical, Gaussian, Input, MultiValued, NoisyOr, Spin, Unit

__version__ = "0.1.0"

__all__ = [
    "MCMC", "Auto", "Binary", "Categorical", "Exact", "Gaussian", "Gibbs", "GraphBuilder", "Input", "Model",
    "MultiValued", "NoisyOr", "NotAsked", "PgmError", "Plan", "Result", "Spin", "Status", "Target", "Unit",
    "boltzmann_machine", "dbm", "dbn", "drbm", "explain", "infer", "rbm", "sbn",
]
