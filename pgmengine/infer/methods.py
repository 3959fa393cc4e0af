"""All inference methods, in one place for the public names.

Each method is a frozen dataclass whose fields are its settings, and follows the contract of Method.
"""

from pgmengine.infer.bounds.mini_bucket import MiniBucket
from pgmengine.infer.counting.model_counting import ModelCounting
from pgmengine.infer.exact.enumeration.enumeration import Enumeration
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.exact.junction_tree.elimination import Elimination
from pgmengine.infer.exact.planar import Planar
from pgmengine.infer.messages.belief_propagation import BeliefPropagation
from pgmengine.infer.modes.mode_search import ModeSearch
from pgmengine.infer.modes.toulbar2 import Toulbar2
from pgmengine.infer.sampling.clusters.cluster_ladder import ClusterLadder
from pgmengine.infer.sampling.clusters.houdayer import Houdayer
from pgmengine.infer.sampling.clusters.swendsen_wang import SwendsenWang
from pgmengine.infer.sampling.ladders.coupled_ladders import CoupledTempering
from pgmengine.infer.sampling.ladders.temperatures import Adaptive, Linear, ThreePiece
from pgmengine.infer.sampling.ladders.wandering import FlatHistogram, OneOverT
from pgmengine.infer.sampling.methods.ais import AIS
from pgmengine.infer.sampling.methods.base_rates import base_rates
from pgmengine.infer.sampling.methods.forward import Forward
from pgmengine.infer.sampling.methods.mcmc import MCMC
from pgmengine.infer.sampling.methods.parallel_tempering import ParallelTempering
from pgmengine.infer.sampling.methods.simulated_tempering import SimulatedTempering
from pgmengine.infer.sampling.methods.tempered_transitions import TemperedTransitions
from pgmengine.infer.sampling.methods.wang_landau import WangLandau
from pgmengine.infer.variational.mean_field import MeanField

__all__ = [
    "AIS",
    "MCMC",
    "Adaptive",
    "BeliefPropagation",
    "ClusterLadder",
    "CoupledTempering",
    "Elimination",
    "Enumeration",
    "Exact",
    "FlatHistogram",
    "Forward",
    "Houdayer",
    "Linear",
    "MeanField",
    "ModeSearch",
    "ModelCounting",
    "MiniBucket",
    "OneOverT",
    "ParallelTempering",
    "Planar",
    "SimulatedTempering",
    "SwendsenWang",
    "TemperedTransitions",
    "ThreePiece",
    "Toulbar2",
    "WangLandau",
    "base_rates",
]
