"""Libraries of arrays: the log density of a model in numpy, torch or JAX, from one text.

The three have functions of the same names, `exp`, `where`, `amax`, ... They differ in two ways:
how a constant comes to the device of other arrays, and how numbers are added at given columns. A
library is its module and these two functions. Positions are numpy arrays of integers everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgmengine.base.types import Array


@dataclass(frozen=True)
class ArrayLibrary:
    """A library of arrays.

    Attributes
    ----------
    xp : the module with its functions.
    constant : makes an array from a numpy array, with the precision and on the device of another.
        Integers stay integers.
    added : (total, columns, numbers) -> total (..., n) to which numbers (..., m) are added at
        columns (m,), which may repeat; `total` itself stays.
    """

    xp: Any
    constant: Callable[[Array, Any], Any]
    added: Callable[[Any, Array, Any], Any]

    def log_sum(self, logs: Any) -> Any:
        """Return log sum exp over the last axis, -inf where all logarithms are."""
        xp = self.xp
        top = xp.amax(logs, -1)
        top = xp.where(top > -xp.inf, top, 0.0)
        return xp.log(xp.exp(logs - top[..., None]).sum(-1)) + top
