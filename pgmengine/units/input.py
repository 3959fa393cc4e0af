"""Input units: real values that are always observed, so they need no distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.limits import in_range
from pgmengine.units.base import Array, Unit


@dataclass(frozen=True)
class Input(Unit):
    """Real values that must be observed; h = 1 and A = 0, so the model is conditional on them.

    >>> import pgmengine as pgm
    >>> pgm.Input().observed_only
    True
    """

    bounded = False
    observed_only = True

    def log_normalizer(self, eta: Array) -> Array:
        """0: an observed value needs no normaliser."""
        return np.zeros(np.shape(eta))

    def mean(self, eta: Array) -> Array:
        """0, the derivative of A."""
        return np.zeros(np.shape(eta))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Refuse: an input has no distribution."""
        raise PgmError("Input units have no distribution to sample from; observe them")

    def log_conditional(self, x: Array, zeta: Array) -> Array:
        """0: an input is given, not modelled."""
        return np.zeros(np.shape(x))

    def score(self, x: Array, zeta: Array) -> Array:
        """0: the bias of an input root does not act."""
        return np.zeros(np.shape(x))

    def log_h(self, x: Array) -> Array:
        """0."""
        return np.zeros(np.shape(x))

    def contains(self, x: Array) -> Array:
        """Any finite number that is not beyond LARGEST."""
        return in_range(x)
