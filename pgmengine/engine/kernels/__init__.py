"""Kernels: transitions of one unit given all others; sweeps apply them layer by layer."""

from pgmengine.engine.kernels.blend import Blend
from pgmengine.engine.kernels.flip_state import FlipState
from pgmengine.engine.kernels.gibbs import Gibbs

__all__ = ["Blend", "FlipState", "Gibbs"]
