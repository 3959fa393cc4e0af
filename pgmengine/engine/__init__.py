"""Engines that move chains: packed weights, compiled and reference sweeps, kernels, prices."""
