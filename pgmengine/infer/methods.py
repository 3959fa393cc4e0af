"""All inference methods, in one place for the public names.

Each method is a frozen dataclass whose fields are its settings, and follows the contract of Method.
"""

from pgmengine.infer.exact.elimination import Elimination
from pgmengine.infer.exact.enumeration import Enumeration
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.sampling.ais import AIS
from pgmengine.infer.sampling.base_rates import base_rates
from pgmengine.infer.sampling.coupled import CoupledTempering
from pgmengine.infer.sampling.forward import Forward
from pgmengine.infer.sampling.levels import FlatHistogram, OneOverT
from pgmengine.infer.sampling.mcmc import MCMC
from pgmengine.infer.sampling.parallel_tempering import ParallelTempering
from pgmengine.infer.sampling.schedules import Adaptive, Linear, ThreePiece
from pgmengine.infer.sampling.simulated_tempering import SimulatedTempering
from pgmengine.infer.sampling.tempered_transitions import TemperedTransitions
from pgmengine.infer.sampling.wang_landau import WangLandau
from pgmengine.infer.variational.mean_field import MeanField

__all__ = [
    "AIS",
    "MCMC",
    "Adaptive",
    "CoupledTempering",
    "Elimination",
    "Enumeration",
    "Exact",
    "FlatHistogram",
    "Forward",
    "Linear",
    "MeanField",
    "OneOverT",
    "ParallelTempering",
    "SimulatedTempering",
    "TemperedTransitions",
    "ThreePiece",
    "WangLandau",
    "base_rates",
]
