"""Inference methods: frozen dataclasses with plan(target, want) -> Plan and run(target, want, rng) -> Result."""

from pgmengine.methods.ais import AIS, base_rates
from pgmengine.methods.exact import Exact
from pgmengine.methods.mcmc import MCMC
from pgmengine.methods.parallel_tempering import ParallelTempering
from pgmengine.methods.schedules import Adaptive, Linear, ThreePiece

__all__ = ["AIS", "MCMC", "Adaptive", "Exact", "Linear", "ParallelTempering", "ThreePiece", "base_rates"]
