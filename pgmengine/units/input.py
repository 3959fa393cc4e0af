"""Input units: real values that are always observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.array_library import ArrayLibrary
from pgmengine.base.checks import in_range
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.units.unit import Unit


@dataclass(frozen=True)
class Input(Unit):
    """Real values that must be observed; the model is conditional on them.

    Use them for the features of a discriminative model. Since h = 1 and A = 0, their only
    terms in the log density are products with their neighbours.

    >>> import pgmengine as pgm
    >>> pgm.Input().observed_only
    True
    """

    bounded = False
    observed_only = True

    def log_normalizer(self, eta: Array) -> Array:
        """Return 0: an observed value needs no normalizer."""
        return np.zeros(np.shape(eta))

    def mean(self, eta: Array) -> Array:
        """Return 0, the derivative of A."""
        return np.zeros(np.shape(eta))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Raise PgmError: an input has no distribution."""
        raise PgmError("Input units have no distribution to sample from; observe them")

    def log_conditional(self, x: Array, zeta: Array) -> Array:
        """Return 0: the model is conditional on inputs."""
        return np.zeros(np.shape(x))

    def score(self, x: Array, zeta: Array) -> Array:
        """Return 0: biases of inputs have no effect."""
        return np.zeros(np.shape(x))

    def log_h(self, x: Array) -> Array:
        """Return 0."""
        return np.zeros(np.shape(x))

    def log_h_in(self, lib: ArrayLibrary, x: Any) -> Any:
        """Return 0."""
        return 0.0 * x

    def log_conditional_in(self, lib: ArrayLibrary, x: Any, zeta: Any) -> Any:
        """Return 0."""
        return 0.0 * x

    def contains(self, x: Array) -> Array:
        """Return whether x is finite and at most LARGEST in size, the limit of chains."""
        return in_range(x)
