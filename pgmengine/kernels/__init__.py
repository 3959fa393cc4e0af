"""Kernels: one MCMC transition of a unit given all else; sweeps apply them layer by layer."""

from pgmengine.kernels.blend import Blend
from pgmengine.kernels.flip_state import FlipState
from pgmengine.kernels.gibbs import Gibbs

__all__ = ["Blend", "FlipState", "Gibbs"]
