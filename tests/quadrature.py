"""Nodes and weights of quadrature, which are kept: to solve for 200 takes milliseconds."""

import functools

import numpy as np


@functools.cache
def legendre(count):
    """Nodes and weights of integrals over [-1, 1]."""
    return _fixed(np.polynomial.legendre.leggauss(count))


@functools.cache
def hermite(count):
    """Nodes and weights of integrals of exp(-x^2 / 2) f(x)."""
    return _fixed(np.polynomial.hermite_e.hermegauss(count))


def _fixed(arrays):
    for x in arrays:
        x.flags.writeable = False
    return arrays
