"""Constant units: a single value, 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array
from pgmengine.units.unit import Unit


@dataclass(frozen=True)
class Constant(Unit):
    """Units with the single value 0: variables of one state, which occur in some files of networks.

    >>> import pgmengine as pgm
    >>> pgm.Constant().support
    array([0.])
    """

    @property
    def support(self) -> Array:
        """The only value, 0."""
        return np.zeros(1)
