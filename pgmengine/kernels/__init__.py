"""Kernels: one MCMC transition of a unit given all else; sweeps apply them layer by layer."""

from pgmengine.kernels.gibbs import Gibbs

__all__ = ["Gibbs"]
