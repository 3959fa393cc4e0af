"""Inference methods: frozen dataclasses with plan(target, want) -> Plan and run(target, want, rng) -> Result."""

from pgmengine.methods.ais import AIS, base_rates
from pgmengine.methods.coupled import CoupledTempering
from pgmengine.methods.exact import Exact
from pgmengine.methods.forward import Forward
from pgmengine.methods.levels import FlatHistogram, OneOverT
from pgmengine.methods.mcmc import MCMC
from pgmengine.methods.mean_field import MeanField
from pgmengine.methods.parallel_tempering import ParallelTempering
from pgmengine.methods.schedules import Adaptive, Linear, ThreePiece
from pgmengine.methods.simulated_tempering import SimulatedTempering
from pgmengine.methods.tempered_transitions import TemperedTransitions
from pgmengine.methods.wang_landau import WangLandau

__all__ = [
    "AIS", "MCMC", "Adaptive", "CoupledTempering", "Exact", "FlatHistogram", "Forward", "Linear", "MeanField",
    "OneOverT", "ParallelTempering", "SimulatedTempering", "TemperedTransitions", "ThreePiece",
    "WangLandau", "base_rates",
]
